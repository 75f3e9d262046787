# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The devices of a host that guests may get: which are free, whose the others are, and why one cannot be given. Pure.

A device is given away by its IOMMU group: VFIO opens a group for one guest, and only when no driver of the host has a function of it
(bridges do not count; Linux Documentation/driver-api/vfio.rst).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..core.change import Unreadable
from ..early.files import is_vfio
from ..path.devices import NVIDIA, devices_of, in_order
from ..path.intent import PathIntent
from ..pci.address import Address
from ..pci.machine import Machine
from ..pci.tree import Function
from .placed import Given, Part, Placed

_NVSWITCH = 0x0680  # a bridge of another kind
_LIBVIRT_DOMAINS = 0xFFFF  # libvirt keeps a PCI domain in 16 bits (docs/schemas/basictypes.rng, pciDomain)


@dataclass(frozen=True)
class Selection:
    """The devices that guests of this host may get.

    ``coming`` are those that this run still binds to vfio-pci. ``partitions`` are the GPUs of each Fabric Manager partition by its
    number, where NVSwitches are shared.
    """

    gpus: tuple[Address, ...] = ()
    vfs: tuple[Address, ...] = ()
    nvswitches: tuple[Address, ...] = ()
    coming: frozenset[Address] = frozenset()
    partitions: Mapping[str, tuple[Address, ...]] = field(default_factory=dict, hash=False)


def selection_of(machine: Machine, intent: PathIntent, pools: Container[str] = ()) -> Selection:
    """The GPUs and VFs that ``p2p`` judges, and all NVSwitches. ``pools`` are PFs, by network device, whose VFs libvirt gives out."""
    devices = devices_of(machine, intent)
    switches = [
        one for one in machine.tree.functions.values() if one.vendor == NVIDIA and one.class_code >> 8 == _NVSWITCH
    ]
    return Selection(
        tuple(one.address for one in devices.gpus),
        tuple(one.address for one in devices.vfs if not in_pool(machine, one.physfn, pools)),
        tuple(one.address for one in in_order(switches)),
    )


def in_pool(machine: Machine, pf: Address | None, pools: Container[str]) -> bool:
    """Whether the VFs of a PF are libvirt's to give out."""
    function = None if pf is None else machine.tree.get(pf)
    return function is not None and any(one.name in pools for one in function.netdevs)


@dataclass
class Stock:
    """The devices of one host while guests are placed: owners change, the rest does not."""

    machine: Machine
    selection: Selection
    gpus: tuple[Function, ...] = field(init=False)
    switches: tuple[Function, ...] = field(init=False)
    nics: dict[Address, list[Function]] = field(init=False, default_factory=dict)  # by PF: selected VFs
    chosen: frozenset[Address] = field(init=False, default=frozenset())  # all selected devices that are there
    gone: dict[Address, str] = field(init=False, default_factory=dict)  # selected, and never to be had: why
    groups: dict[int, list[Function]] = field(init=False, default_factory=dict)
    # By group and, for what has none, by address.
    _owners: dict[int | Address, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Look at each selected device once."""
        for one in self.machine.tree.functions.values():
            if isinstance(one.iommu_group, int) and not one.is_bridge:
                self.groups.setdefault(one.iommu_group, []).append(one)
        self.gpus = self._functions(self.selection.gpus)
        self.switches = self._functions(self.selection.nvswitches)
        for vf in self._functions(self.selection.vfs):
            self.nics.setdefault(vf.address if vf.physfn is None else vf.physfn, []).append(vf)
        selected = (*self.gpus, *self.switches, *(vf for vfs in self.nics.values() for vf in vfs))
        self.chosen = frozenset(one.address for one in selected)
        for one in selected:
            why = self._hindrance(one)
            if why:
                self.gone[one.address] = why

    def pf(self, nic: Address) -> Function:
        """The function that tells where a NIC is: the PF, or where that is not known one of its VFs."""
        return self.machine.tree.get(nic) or self.nics[nic][0]

    def is_free(self, one: Function, guest: str) -> bool:
        """Whether a guest can have a function: nothing hinders it, and no other guest has its group."""
        return one.address not in self.gone and self._owners.get(_key(one), guest) == guest

    def why_not(self, address: Address, guest: str) -> str:
        """Why a guest cannot have a device; empty: it can."""
        one = self.machine.tree.get(address)
        if one is None:
            return "is not in this host"
        owner = self._owners.get(_key(one), guest)
        if address in self.gone or owner == guest:
            return self.gone.get(address, "")
        return f"is with guest {owner}"

    def take(self, devices: Iterable[Given], guest: str) -> None:
        """These devices, and with them their groups, belong to a guest from now on."""
        for given in devices:
            one = self.machine.tree.get(given.address)
            self._owners[given.address if one is None else _key(one)] = guest

    def give_back(self, guest: str) -> None:
        """A guest has nothing any more."""
        self._owners = {key: owner for key, owner in self._owners.items() if owner != guest}

    def companions(self, one: Function) -> list[Function]:
        """The other functions in its group, bridges left out: they go to the same guest or to none."""
        group = one.iommu_group
        members = self.groups.get(group, []) if isinstance(group, int) else []
        return [other for other in members if other.address != one.address]

    def load(self, nic: Address, guest: str) -> int:
        """How many VFs of a NIC other guests have."""
        return sum(self._owners.get(_key(vf), guest) != guest for vf in self.nics[nic])

    def _functions(self, addresses: Sequence[Address]) -> tuple[Function, ...]:
        found = (self.machine.tree.get(address) for address in set(addresses))
        return in_order(one for one in found if one is not None)

    def _hindrance(self, one: Function) -> str:
        """Why no guest can have a function; empty: one can."""
        if one.address.domain > _LIBVIRT_DOMAINS:
            return f"is in PCI domain {one.address.domain:x}, and libvirt cannot name domains above ffff"
        if not isinstance(one.iommu_group, int):
            unread = isinstance(one.iommu_group, Unreadable)
            return "has an IOMMU group that cannot be read" if unread else "is in no IOMMU group"
        if one.address not in self.selection.coming and not _on_vfio(one):
            return _has_driver(one)
        for other in self.companions(one):
            if other.address not in self.selection.coming and not _left_alone(other):
                return f"shares IOMMU group {one.iommu_group} with {other.address}, which {_has_driver(other)}"
        return ""


def _key(one: Function) -> int | Address:
    return one.iommu_group if isinstance(one.iommu_group, int) else one.address


def _on_vfio(one: Function) -> bool:
    return isinstance(one.driver, str) and is_vfio(one.driver)


def _left_alone(one: Function) -> bool:
    """Whether VFIO lets a function stay in the group of one that a guest has: without a driver, or with one of its own."""
    if isinstance(one.driver, Unreadable):
        return False
    return not isinstance(one.driver, str) or one.driver == "pci-stub" or is_vfio(one.driver)


def _has_driver(one: Function) -> str:
    if isinstance(one.driver, Unreadable):
        return "has a driver that cannot be read"
    return f"has driver {one.driver}" if isinstance(one.driver, str) else "has no driver"


def by_part(placed: Placed, part: Part) -> tuple[Given, ...]:
    """The devices of one kind that a guest has."""
    return tuple(one for one in placed.devices if one.part is part)
