# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an ``lspci`` text does not have, in sentences, and whether functions of the machine are missing in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..core.change import Unreadable
from .address import Address
from .capabilities import Ats, Capabilities, Words
from .lspci_function import Seen
from .lspci_text import Text
from .tree import Sriov, Tree

_MOST = 4  # that are named one by one
_UNTOLD = (
    "lspci does not tell the kernel command line, the types of IOMMU groups, what the firmware says of ATS, network, RDMA and"
    " block devices."
)


def gaps(
    taken: Text, told: Mapping[Address, Seen], tree: Tree, nonsense: Sequence[str]
) -> tuple[tuple[str, ...], bool]:
    """The sentences, and whether functions of the machine are not in the input."""
    partial = [*_broken(taken), *_not_all(told, tree)]
    found = [
        *partial,
        *(f"{sentence}." for sentence in nonsense[:_MOST]),
        *([f"{len(nonsense) - _MOST} more bridges have numbers that cannot be."] if len(nonsense) > _MOST else []),
        *_contradictions(taken, told),
        *_not_shown(told, tree),
        _UNTOLD,
    ]
    return tuple(found), bool(partial)


def _some(addresses: Iterable[object]) -> str:
    """The first few, and how many more."""
    every = [str(one) for one in addresses]
    more = f" and {len(every) - _MOST} more" if len(every) > _MOST else ""
    return ", ".join(every[:_MOST]) + more


# Functions that are missing --------------------------------------------------------------


def _broken(taken: Text) -> Iterator[str]:
    last = taken.last
    if last is not None and last.cut and last.address in taken.entries:
        whole = f"the last function that is there in full is {taken.whole}" if taken.whole else "none is there in full"
        yield f"The input ends in the middle of {last.address}; {whole}."
    lost = sorted(address for address, one in taken.entries.items() if one.cut and one is not last)
    if lost:
        yield f"Lines are missing after those of {_some(lost)}."
    if taken.orphans:
        lines = _some(taken.orphans)
        yield f"From line {lines} on the input speaks of a function whose first line is missing; that is not used."
    if taken.absurd:
        found = _some(f"{text!r} in line {number}" for number, text in taken.absurd)
        yield f"The input has what looks like a PCI address and cannot be one ({found}); what it says there is not used."


def _not_all(told: Mapping[Address, Seen], tree: Tree) -> Iterator[str]:
    """How it shows that the input does not have all functions of the machine."""
    count = f"Only {len(told)} functions are in the input"
    if not any(one.bus == 0 for one in told if one.domain == 0) and any(one.domain == 0 for one in told):
        yield f"{count}: none is on bus 00 of domain 0000, where every machine has some."
    elif not any(one.bus == 0 and one.routing_id == 0 for one in told if one.domain == 0) and _on_bus_0(told):
        yield f"{count}: 0000:00:00.0, which every machine has, is not."
    lost = [one.address for one in tree if "no bridge of the input" in one.unread.get("parent", "")]
    lost += [one.address for one in tree if "is not in the input" in one.unread.get("parent", "")]
    if lost:
        yield f"{count}: the bridges above {_some(lost)} are not."
    buses = {(one.domain, one.bus) for one in told}
    empty = [
        address
        for address, one in sorted(told.items())
        if one.is_bridge and one.buses and one.link_is_up and (address.domain, one.buses[0]) not in buses
    ]
    if empty:
        yield f"{count}: nothing is listed below {_some(empty)}, although the link there is up."
    for pf in tree:
        vfs = pf.sriov.vfs if isinstance(pf.sriov, Sriov) else ()
        absent = [vf for vf in vfs if vf not in told]
        if absent:
            yield f"{count}: of the VFs of {pf.address} that are switched on, {_some(absent)} are not."


def _on_bus_0(told: Mapping[Address, Seen]) -> bool:
    return any(one.domain == 0 and one.bus == 0 for one in told)


# Functions about which something is missing ----------------------------------------------


def _contradictions(taken: Text, told: Mapping[Address, Seen]) -> Iterator[str]:
    twice = {address: sorted(one.entry.twice) for address, one in sorted(told.items()) if one.entry.twice}
    if twice:
        found = _some(f"{address} ({', '.join(names[:_MOST])})" for address, names in twice.items())
        yield f"The input says different things about one function: {found}. None of them is used."
    same = [address for address in sorted(taken.repeated) if address not in twice]
    if same:
        yield f"{_some(same)} are in the input more than once, without contradiction."
    holes = [address for address, one in sorted(told.items()) if one.entry.hole]
    if holes:
        yield f"The hexdumps of {_some(holes)} have gaps; the bytes before them are used."
    for address, one in sorted(told.items()):
        names = _disagreeing(one)
        if names:
            yield f"Text and bytes of {address} disagree about {', '.join(names)}; the bytes are used."


def _disagreeing(one: Seen) -> list[str]:
    if len(one.config.data) < 64 or not one.config.answers:
        return []
    by_bytes = {**one.header, **_words(one.by_bytes), "buses": one.buses}
    by_bytes["class"] = one.header["class_code"] >> 8 if one.header else None
    names = ("vendor", "device", "class", "revision", "buses", "ACSCap", "ACSCtl", "ATSCtl")
    return [
        name for name in names
        if by_bytes.get(name) is not None and name in one.facts and one.facts[name] != by_bytes[name]
    ]  # fmt: skip


def _words(found: Capabilities) -> dict[str, Any]:
    acs = {"ACSCap": found.acs.capability, "ACSCtl": found.acs.control} if isinstance(found.acs, Words) else {}
    return {**acs, **({"ATSCtl": found.ats.control & 0x801F} if isinstance(found.ats, Ats) else {})}


def _not_shown(told: Mapping[Address, Seen], tree: Tree) -> Iterator[str]:
    hidden = [one.address for one in tree if isinstance(one.capabilities.acs, Unreadable)]
    withheld = [address for address in hidden if "withheld" in told[address].facts]
    if withheld:
        yield f"Capabilities of {_some(withheld)} were withheld from lspci (<access denied>); run it as root."
    silent = [address for address in hidden if "silent" in told[address].facts]
    if silent:
        yield f"{_some(silent)} did not answer when lspci asked; what they are set to is unknown."
    named = {*withheld, *silent}
    others = [address for address in hidden if address not in named]
    if others:
        yield f"The input does not say in full what {_some(others)} can do; run lspci -D -nn -vvv as root."
    if not any("numa" in one.facts for one in told.values()):
        yield "The input has no NUMA nodes (lspci -vv prints a line for each function that has one)."
    if not any("group" in one.facts for one in told.values()):
        yield (
            "The input has no IOMMU groups: lspci is older than 3.8, or was not run with -v, or the host has no IOMMU in use."
        )
    bridges = [one.address for one in tree if one.is_bridge and one.secondary_bus is None]
    if bridges:
        yield f"The input does not say what is below {_some(bridges)} (lspci -v prints the bus numbers of bridges)."
    nameless = [one.address for one in tree if "vendor" in one.unread or "device" in one.unread]
    if nameless:
        yield f"The ids of {_some(nameless)} are not in the input; run lspci with -nn."
    if tree.unread:
        yield f"It is not known what {_some(sorted(tree.unread))} are, and they are left out."
