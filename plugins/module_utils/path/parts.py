# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about the GPUs and NICs themselves: links, regions, NUMA, read requests, groups. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ..core.change import Absent, Unreadable
from ..pci.address import Address
from ..pci.tree import Function, Number
from .devices import in_order
from .finding import Verdict
from .view import Looks, Seen, View

_OK = (Verdict.OK, None, "", "")
_MIB = 1 << 20
_ROM = 6
_VF_REGIONS = range(7, 13)
_WINDOWS = 13  # of bridges, from here on
# Drivers that leave a device to guests (Linux drivers/vfio, pci-stub).
_GIVES_AWAY = ("vfio-pci", "pci-stub")


# Links -----------------------------------------------------------------------------------


def _hops(view: View) -> Iterator[tuple[Function, Function | None]]:
    """The lower and upper end of every link on a path: of GPU and NIC, and of the upper end of each switch."""
    lower = {gpu: None for gpu, _nic in view.pairs}
    lower.update({nic: None for _gpu, nic in view.pairs})
    lower.update({address: None for address, port in view.ports.items() if port.is_upper})
    for address in lower:
        function = view.get(address)
        yield function, None if function.parent is None else view.machine.tree.get(function.parent)


def _linked(view: View, name: str, words: Callable[[int], str]) -> Looks:
    """What runs now is at least the lesser of what both ends can do."""
    for lower, upper in _hops(view):
        if isinstance(lower.capabilities.express, Absent):
            yield Verdict.OK, lower.address, "it is no PCI Express device and has no link", ""
            continue
        now, best = getattr(lower.link, name), getattr(lower.link, f"{name}_max")
        others = getattr(upper.link, f"{name}_max") if upper is not None else best
        limits = [value for value in (best, others) if isinstance(value, int)]
        if not isinstance(now, int) or not limits:
            yield (
                Verdict.UNKNOWN,
                lower.address,
                f"its link {name} is not known{_cause(now)}",
                "all that both ends can",
            )
        elif now >= min(limits):
            yield _OK
        elif len(limits) < 2:
            found = f"{words(now)} of {words(limits[0])}, and what the other end can is not known"
            yield Verdict.UNKNOWN, lower.address, found, "all that both ends can"
        else:
            yield Verdict.FAIL, lower.address, words(now), words(min(limits))


def _cause(value: Number) -> str:
    return f": {value.cause}" if isinstance(value, Unreadable) else ""


def link_width(view: View) -> Looks:
    """Lanes, of every hop."""
    yield from _linked(view, "width", lambda lanes: f"x{lanes}")


def link_speed(view: View) -> Looks:
    """Speed, of every hop; an idle GPU saves power by a lower one."""
    gpus = {gpu for gpu, _nic in view.pairs}
    for seen in _linked(view, "speed", lambda tenths: f"{tenths / 10:g} GT/s"):
        verdict, subject, found, wanted = seen
        if verdict == Verdict.FAIL and subject in gpus:
            yield Verdict.OK, subject, f"{found} of {wanted}, as a GPU has it that idles", wanted
        else:
            yield seen


# Regions ---------------------------------------------------------------------------------


def _devices(view: View) -> Iterator[Function]:
    yield from view.devices.gpus
    yield from view.nics


def bars_assigned(view: View) -> Looks:
    """All regions of a device, and of a NIC those of its VFs."""
    for one in _devices(view):
        if "bars" in one.unread or not one.bars:
            cause = one.unread.get("bars", "the input has none of them")
            yield Verdict.UNKNOWN, one.address, f"its regions are not known: {cause}", "an address for each"
            continue
        lost = [
            one_bar
            for one_bar in one.bars
            if not one_bar.assigned and one_bar.index != _ROM and one_bar.index < _WINDOWS
        ]
        if lost:
            names = ", ".join(_region(one_bar.index, one_bar.size) for one_bar in lost)
            yield Verdict.FAIL, one.address, f"no address for {names}", "an address for each"
        else:
            yield _OK


def _region(index: int, size: int) -> str:
    name = f"VF region {index - _VF_REGIONS.start}" if index in _VF_REGIONS else f"region {index}"
    return f"{name} ({size // _MIB} MiB)" if size >= _MIB else f"{name} ({size} bytes)"


def bars_size(view: View) -> Looks:
    """Only where the site has a wish."""
    least = view.intent.min_bar_mib
    if least is None:
        return
    for gpu in view.devices.gpus:
        largest = max((one_bar.size for one_bar in gpu.bars if one_bar.index < _ROM), default=0) // _MIB
        if "bars" in gpu.unread or not gpu.bars:
            yield Verdict.UNKNOWN, gpu.address, "its regions are not known", f"at least {least} MiB"
        elif largest < least:
            yield Verdict.FAIL, gpu.address, f"its largest region has {largest} MiB", f"at least {least} MiB"
        else:
            yield _OK


# NUMA ------------------------------------------------------------------------------------


def _one_node(view: View) -> bool:
    """Whether there is only one node to be on."""
    nodes = view.platform.numa_nodes
    return isinstance(nodes, tuple) and len(nodes) == 1


def numa_told(view: View) -> Looks:
    """The kernel says -1 where the firmware says nothing, which is right for one node, but of a guest its maker's omission."""
    needless = _one_node(view) and view.platform.is_guest is not True
    for one in _devices(view):
        if isinstance(one.numa_node, Unreadable):
            yield Verdict.UNKNOWN, one.address, f"its NUMA node cannot be read: {one.numa_node.cause}", "a NUMA node"
        elif isinstance(one.numa_node, Absent) and not needless:
            yield Verdict.WARN, one.address, "no NUMA node is told", "a NUMA node"
        else:
            yield _OK


def numa_same(view: View) -> Looks:
    """Of pairs where both are told; the others are told by ``numa_told``."""
    for gpu, nic in view.pairs:
        one, other = view.get(gpu).numa_node, view.get(nic).numa_node
        if isinstance(one, int) and isinstance(other, int) and one != other:
            yield Verdict.WARN, (gpu, nic), f"GPU on node {one}, NIC on node {other}", "the same node"
        elif isinstance(one, Unreadable) or isinstance(other, Unreadable):
            yield Verdict.UNKNOWN, (gpu, nic), "a NUMA node cannot be read", "the same node"
        else:
            yield _OK


# Device control --------------------------------------------------------------------------


def max_read_request(view: View) -> Looks:
    """Of the NICs' own functions: a VF follows its PF (PCI Express, SR-IOV)."""
    wanted = view.intent.read_request
    if wanted is None:
        return
    for nic in view.judged_nics:
        express = view.express(nic)
        found = express if isinstance(express, (Absent, Unreadable)) else express.max_read_request
        if isinstance(found, int) and found >= wanted:
            yield _OK
        elif isinstance(found, int):
            yield Verdict.FAIL, nic.address, f"{found} bytes", f"{wanted} bytes"
        else:
            yield Verdict.UNKNOWN, nic.address, f"its device control is not known{_cause_of(found)}", f"{wanted} bytes"


def relaxed_ordering(view: View) -> Looks:
    """Of the NICs' own functions."""
    for nic in view.judged_nics:
        express = view.express(nic)
        found = express if isinstance(express, (Absent, Unreadable)) else express.relaxed_ordering
        if found is True:
            yield _OK
        elif found is False:
            yield Verdict.WARN, nic.address, "RlxdOrd- in its device control", "RlxdOrd+"
        else:
            yield Verdict.UNKNOWN, nic.address, f"its device control is not known{_cause_of(found)}", "RlxdOrd+"


def _cause_of(value: object) -> str:
    return f": {value.cause}" if isinstance(value, Unreadable) else ""


# Groups ----------------------------------------------------------------------------------


def _grouped(view: View) -> Iterator[Function]:
    yield from _devices(view)
    yield from view.vfs()


def groups_distinct(view: View) -> Looks:
    """One group for each GPU, PF and VF."""
    owners: dict[int, list[Address]] = {}
    for one in _grouped(view):
        if isinstance(one.iommu_group, int):
            owners.setdefault(one.iommu_group, []).append(one.address)
    for one in _grouped(view):
        group = one.iommu_group
        if isinstance(group, Unreadable):
            yield Verdict.UNKNOWN, one.address, f"its IOMMU group cannot be read: {group.cause}", "a group of its own"
        elif isinstance(group, Absent):
            yield _without_group(view, one, bool(owners))
        elif len(owners[group]) > 1:
            others = ", ".join(str(other) for other in owners[group] if other != one.address)
            yield Verdict.FAIL, one.address, f"group {group} with {others}", "a group of its own"
        else:
            yield _OK


def _without_group(view: View, one: Function, others_have: bool) -> Seen:
    """A capture may have left the groups out: where nothing tells of an IOMMU, nothing is known."""
    if isinstance(view.platform.iommus, Unreadable) and not others_have:
        return Verdict.UNKNOWN, one.address, "the input has no IOMMU groups", "a group of its own"
    return Verdict.FAIL, one.address, "it has no IOMMU group", "a group of its own"


def groups_viable(view: View) -> Looks:
    """The groups of GPUs and VFs, which go to guests; PFs stay on the host."""
    done: set[int] = set()
    for one in (*view.devices.gpus, *view.vfs()):
        if isinstance(one.iommu_group, Unreadable):
            yield Verdict.UNKNOWN, one.address, "its IOMMU group cannot be read", "only vfio-pci in the group"
        elif isinstance(one.iommu_group, int) and one.iommu_group not in done:
            done.add(one.iommu_group)
            yield _viable(view, one, one.iommu_group)


def _viable(view: View, one: Function, group: int) -> Seen:
    members: Sequence[Function] = view.members(group)
    if len(members) == 1 and one.driver in _GIVES_AWAY:
        return _OK  # as of nearly all: there may be a hundred VFs
    members = [member for member in in_order(members) if not member.is_bridge]
    wanted = f"only vfio-pci in group {group}"
    held = [each for each in members if isinstance(each.driver, str) and each.driver not in _GIVES_AWAY]
    if held:
        names = ", ".join(f"{each.address} has {each.driver}" for each in held)
        # What the host may use between guests is detached when a guest starts; nothing else is.
        alone = all(each.is_vf for each in held)
        return Verdict.WARN if alone else Verdict.FAIL, one.address, names, wanted
    unread = [each for each in members if isinstance(each.driver, Unreadable)]
    if unread:
        names = ", ".join(str(each.address) for each in unread)
        return Verdict.UNKNOWN, one.address, f"the drivers of these cannot be read: {names}", wanted
    return _OK


LOOKS: Mapping[str, Callable[[View], Looks]] = {
    "link_speed": link_speed,
    "link_width": link_width,
    "bars_assigned": bars_assigned,
    "bars_size": bars_size,
    "numa_told": numa_told,
    "numa_same": numa_same,
    "max_read_request": max_read_request,
    "relaxed_ordering": relaxed_ordering,
    "groups_distinct": groups_distinct,
    "groups_viable": groups_viable,
}
