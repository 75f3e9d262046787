# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine from the output of ``lspci``: ``-nn``, ``-v`` to ``-vvv``, hexdumps (``-x``, ``-xxx``, ``-xxxx``), or mixtures.

Best is ``lspci -D -nn -vvv -xxxx`` as root. Where text and bytes of a function disagree, the bytes are taken (of the ids of a VF
the text, since its registers do not hold them). What is only said by leaving it out is taken for absent only where the text of
the function is there to its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..core.change import Unreadable
from ..core.errors import Problem, UnreadableState
from .address import Address
from .buses import Positions, positions
from .lspci_function import Seen, function, seen
from .lspci_gaps import gaps
from .lspci_text import MOST_FUNCTIONS, Entry, Text, take
from .machine import NOT_TOLD, Flag, Machine, Platform
from .registers import Vfs
from .tree import Function, Tree

MOST_CHARACTERS = 256 << 20
ADVICE = "Run lspci -D -nn -vvv as root (-xxxx adds the bytes) and give its whole output."
_QEMU, _VIRTIO, _NVIDIA, _MELLANOX = 0x1B36, 0x1AF4, 0x10DE, 0x15B3
_HOST_BRIDGE = 0x0600
_ROOT_TYPES = (4, 9, 10)  # port types that are on root buses only: root ports and what is in the root complex


def read(text: str, name: str = "lspci output") -> Machine:
    """The machine that the text tells of; UnreadableState where it is no such text. ``name`` is for messages."""
    if len(text) > MOST_CHARACTERS:
        raise _refused(name, "is too long", f"{len(text)} characters", f"at most {MOST_CHARACTERS}")
    taken = take(text)
    if taken.too_many:
        raise _refused(name, "has too many functions", f"more than {MOST_FUNCTIONS}", "those of one machine")
    if taken.other:
        raise _refused(name, f"is output of {taken.other}, which does not say enough", taken.other, "lspci -vvv")
    if not taken.entries:
        found = "a line that begins like a PCI address and is none" if taken.absurd else "no line that begins with one"
        if not text.strip():
            found = "no text"
        raise _refused(name, "is not the output of lspci", found, "lines that begin with a PCI address")
    return _machine(taken, name)


def _refused(name: str, fact: str, found: str, wanted: str) -> UnreadableState:
    return UnreadableState([Problem(name, fact, ADVICE, found=found, wanted=wanted)])


def _machine(taken: Text, name: str) -> Machine:
    told = {address: seen(entry) for address, entry in taken.entries.items()}
    vfs_of = {address: _vfs(address, one) for address, one in told.items()}
    pf_of = {vf: pf for pf, vfs in vfs_of.items() for vf in vfs if vf in told and vf != pf}
    where = positions(
        told,
        {address: one.buses for address, one in told.items() if one.is_bridge},
        {(address.domain, address.bus) for address, one in told.items() if _on_a_root_bus(one)},
        # A PF that is itself a VF would be nonsense, of which a chain could be made.
        {vf: pf for vf, pf in pf_of.items() if pf not in pf_of},
    )
    functions, unread = _functions(told, where, vfs_of, pf_of)
    tree = Tree(functions, unread=unread)
    missing, partial = gaps(taken, told, tree, where.nonsense)
    return Machine(
        tree,
        Platform(is_guest=_is_guest(tree)),
        name=name,
        source=_source(taken.entries.values()),
        missing=missing,
        partial=partial,
    )


def _on_a_root_bus(one: Seen) -> bool:
    return one.port_type in _ROOT_TYPES or one.class_code == _HOST_BRIDGE


def _functions(
    told: Mapping[Address, Seen],
    where: Positions,
    vfs_of: Mapping[Address, tuple[Address, ...]],
    pf_of: Mapping[Address, Address],
) -> tuple[dict[Address, Function], dict[Address, str]]:
    numa = any("numa" in one.facts for one in told.values())
    groups = any("group" in one.facts for one in told.values())
    drivers = any("driver" in one.facts for one in told.values())
    functions: dict[Address, Function] = {}
    unread: dict[Address, str] = {}
    doubtful = _maybe_vfs(told, where)
    for address, one in told.items():
        if one.class_code is None:
            unread[address] = _without_class(one)
            continue
        functions[address] = function(
            one,
            parent=where.parents.get(address),
            root_bus=where.roots.get(address, ""),
            lost=where.unknown.get(address, ""),
            may_be_vf=address in doubtful,
            vfs=vfs_of[address],
            pf=pf_of.get(address),
            shown=(numa, groups, drivers),
        )
    return functions, unread


def _without_class(one: Seen) -> str:
    name = one.facts.get("class name")
    if one.entry.cut and one.entry.stage == 0:
        return "the input ends in its first line"
    if "class" in one.entry.twice:
        return "the input says two different classes of it"
    return f"its class {name!r} is not known by name; run lspci with -nn" if name else "its class is not in the input"


def _vfs(address: Address, one: Seen) -> tuple[Address, ...]:
    """Where the VFs of a PF are that are switched on, by number. Those beyond the last bus cannot be."""
    vfs = one.vfs
    if not isinstance(vfs, Vfs) or not vfs.enabled or not vfs.offset or (vfs.enabled > 1 and not vfs.stride):
        return ()
    last = address.routing_id + vfs.offset + (vfs.enabled - 1) * vfs.stride
    if last > 0xFFFF or vfs.enabled > max(vfs.total, 0):
        return ()
    return tuple(address.plus(vfs.offset + number * vfs.stride) for number in range(vfs.enabled))


def _maybe_vfs(told: Mapping[Address, Seen], where: Positions) -> set[Address]:
    """Functions that may be VFs of one of the same vendor before them, of which the input does not tell the VFs.

    What has SR-IOV itself is no VF; and function 0 of device 0 on a bus that a bridge leads to is that of a card.
    """
    found: set[Address] = set()
    untold: set[tuple[int, object]] = set()
    for address, one in sorted(told.items()):
        if one.is_bridge:
            continue
        key = (address.domain, one.facts.get("vendor"))
        first = address in where.parents and (address.device, address.function) == (0, 0)
        is_pf = isinstance(one.vfs, Vfs) or "sriov" in one.facts or "pf" in one.facts
        if key in untold and not first and not is_pf:
            found.add(address)
        if isinstance(one.vfs, Unreadable):
            untold.add(key)
    return found


def _is_guest(tree: Tree) -> Flag:
    """True where the hardware is a hypervisor's. Nothing in such a text shows that it is not.

    A DPU makes virtio devices too, but below a port; and no GPU or ConnectX is on bus 0 of its domain, except where a
    hypervisor put it there.
    """
    for one in tree:
        on_first_bus = one.address.bus == 0
        card = one.vendor in (_NVIDIA, _MELLANOX) and one.class_code >> 16 in (0x02, 0x03)
        if one.vendor == _QEMU or (on_first_bus and (card or one.vendor == _VIRTIO)):
            return True
    return NOT_TOLD


def _source(entries: Iterable[Entry]) -> str:
    all_of = list(entries)
    size = max(len(one.data) for one in all_of)
    dump = "xxxx" if size > 256 else "xxx" if size > 64 else "x" if size else ""
    verbose = any("verbose" in one.facts for one in all_of)
    level = "vvv" if verbose else "v" if any("names only" in one.facts for one in all_of) else "" if dump else "nn"
    return f"lspci -{level}{dump}"
