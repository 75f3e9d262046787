# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which functions of a machine are its GPUs and its NICs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ..pci.address import Address
from ..pci.machine import Machine
from ..pci.select import Selector, matches
from ..pci.tree import Function, Sriov, Tree
from .intent import PathIntent

NVIDIA, AMD, INTEL, MELLANOX = 0x10DE, 0x1002, 0x8086, 0x15B3
_DISPLAY, _ACCELERATOR = 0x03, 0x12  # base classes
_DRAWS = (0x0300, 0x0302, 0x0380)
_CO_PROCESSOR = 0x0B40
_DATA_CENTER = 0x0380  # Intel's integrated ones are 0300
_NETWORK = (0x0200, 0x0207)  # Ethernet, InfiniBand
# ConnectX-2 and -3: their driver is mlx4 (Linux drivers/net/ethernet/mellanox/mlx4/main.c).
_MLX4 = frozenset((0x1003, 0x1004, 0x1007, 0x673C, 0x6340, 0x634A, 0x6354, 0x6732, 0x675A, 0x6764, 0x676E, 0x6746))
# ConnectX-8 and its function that reaches GPU memory by itself (Linux drivers/infiniband/hw/mlx5/data_direct.c).
_CONNECTX_8, _DATA_DIRECT = 0x1023, 0x2100


@dataclass(frozen=True)
class Devices:
    """GPUs, NICs (each a PF or a function without VFs) and the VFs of these NICs that are judged, by address."""

    gpus: tuple[Function, ...] = ()
    nics: tuple[Function, ...] = ()
    vfs: tuple[Function, ...] = ()
    unsupported: tuple[Function, ...] = ()  # NICs whose driver is mlx4
    untold: tuple[
        Function, ...
    ] = ()  # what may be a NIC: its RDMA devices, or what captures leave out with them, are unread
    data_direct: bool = False  # a ConnectX-8 has its second function in this machine
    # By PF: its judged VFs.
    vfs_of: dict[Address, tuple[Function, ...]] = field(default_factory=dict, hash=False)


def in_order(functions: Iterable[Function]) -> tuple[Function, ...]:
    """By address. The numbers are compared as one, which costs less than comparing addresses."""
    return tuple(sorted(functions, key=lambda one: one.address.domain << 16 | one.address.routing_id))


def is_mlx4(function: Function) -> bool:
    """True for ConnectX-2 and -3, which have neither the firmware options nor the driver that this product sets."""
    return function.vendor == MELLANOX and function.device in _MLX4


def is_data_direct_nic(function: Function) -> bool:
    """True for a NIC that can have a data-direct function beside it."""
    return function.vendor == MELLANOX and function.device == _CONNECTX_8


def devices_of(machine: Machine, intent: PathIntent) -> Devices:
    """The devices that an intent means."""
    gpus: list[Function] = []
    nics: list[Function] = []
    unsupported: list[Function] = []
    untold: list[Function] = []
    data_direct = False
    for one in machine.tree.functions.values():
        kind = one.class_code >> 8
        if kind in _NETWORK and one.physfn is None:
            if one.vendor == MELLANOX or one.rdma:
                (unsupported if is_mlx4(one) else nics).append(one)
            elif "rdma" in one.unread or "netdevs" in one.unread:
                untold.append(one)
        elif _is_gpu(one, kind):
            gpus.append(one)
        data_direct = data_direct or (one.vendor == MELLANOX and one.device == _DATA_DIRECT)
    chosen = [] if not intent.nics else _selected(machine.tree, intent.nics)
    if intent.nics:
        nics, untold = _ports(machine.tree, chosen), []
        unsupported = [one for one in nics if is_mlx4(one)]
    vfs_of = {nic.address: _vfs(machine.tree, nic, chosen) for nic in nics}
    return Devices(
        gpus=in_order(_selected(machine.tree, intent.gpus) if intent.gpus else gpus),
        nics=in_order(nics),
        vfs=tuple(vf for nic in in_order(nics) for vf in vfs_of[nic.address]),
        unsupported=in_order(unsupported),
        untold=in_order(untold),
        data_direct=data_direct,
        vfs_of=vfs_of,
    )


def _is_gpu(function: Function, kind: int) -> bool:
    """Display, 3D and processing controllers of the makers of GPUs; not what shows the console, not a VF."""
    if function.boot_vga or function.physfn is not None:
        return False
    if kind not in _DRAWS and kind >> 8 != _ACCELERATOR and kind != _CO_PROCESSOR:
        return False
    if function.vendor == INTEL:
        return function.parent is not None and (kind == _DATA_CENTER or kind >> 8 == _ACCELERATOR)
    return function.vendor in (NVIDIA, AMD)


def _selected(tree: Tree, selectors: Sequence[Selector]) -> list[Function]:
    """What any of the selectors matches, each once."""
    known = _taken_for_physical(tree)
    found = {one.address: None for chosen in selectors for one in matches(chosen, known)}
    return [tree.functions[address] for address in found]


def _taken_for_physical(tree: Tree) -> Tree:
    """The tree of an input that does not tell VFs from others at all (hwloc, topology files): none is taken for one.

    A selector means physical functions, so without this it would match nothing there. A live host tells it of each function.
    """
    functions = tree.functions
    if not functions or not all("physfn" in one.unread for one in functions.values()):
        return tree
    lighter = {
        address: replace(one, unread={name: cause for name, cause in one.unread.items() if name != "physfn"})
        for address, one in functions.items()
    }
    return Tree(lighter, tree.group_types, tree.unread)


def _ports(tree: Tree, chosen: Iterable[Function]) -> list[Function]:
    """The functions themselves, and for VFs their PFs: a VF has its PF's place."""
    found: dict[Address, Function] = {}
    for one in chosen:
        pf = one if one.physfn is None else tree.get(one.physfn)
        if pf is not None:
            found[pf.address] = pf
    return list(found.values())


def _vfs(tree: Tree, nic: Function, chosen: Sequence[Function]) -> tuple[Function, ...]:
    """The VFs of a NIC that are judged: those that were selected, or all of them."""
    picked = tuple(one for one in chosen if one.physfn == nic.address)
    if picked or not isinstance(nic.sriov, Sriov):
        return picked
    return tree.vfs(nic)
