# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a picture of a machine shows, before it is known where: boxes below host bridges, frames of NUMA nodes. Pure.

GPUs, NICs, NVSwitches, whatever a finding points at and the bridges above them have a box each. VFs and all other functions are
collapsed into a box that says how many they are. Nothing here recurses, so that odd data of any depth is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Union

from ..pci.address import Address
from ..pci.machine import Machine
from ..pci.tree import Function, Tree
from . import labels
from .entries import Entry, best, entries, way
from .finding import Pair, Report, Verdict

FEW = 2  # so many VFs, or functions with the same finding, are still drawn one by one
# What is above each function that is drawn; a VF hangs below its PF.
Kids = Mapping[Union[Address, None], Sequence[Address]]


@dataclass
class Box:
    """One thing that is drawn. ``depth`` is 0 for a host bridge; ``parent`` is the place of the box above in the frame."""

    role: str
    title: str
    lines: tuple[str, ...]
    tip: tuple[str, ...]
    members: tuple[Address, ...]
    depth: int
    parent: Union[int, None]
    marks: tuple[Entry, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The gravest of what points at it."""
        return max((one.verdict for one in self.marks), default=Verdict.OK)


@dataclass
class Frame:
    """One NUMA node. Boxes stand in the order in which they are drawn: each before what is below it."""

    title: str
    boxes: list[Box] = field(default_factory=list)

    def chain(self, index: int) -> list[int]:
        """A box and all above it."""
        found = [index]
        above = self.boxes[index].parent
        while above is not None:
            found.append(above)
            above = self.boxes[above].parent
        return found


@dataclass(frozen=True)
class Scene:
    """All that a picture shows of a machine."""

    frames: tuple[Frame, ...]
    entries: tuple[Entry, ...]
    ways: tuple[Pair, ...]  # each GPU and its nearest NICs


def scene(machine: Machine, report: Report) -> Scene:
    """What is shown of a machine and what was found about it."""
    found = entries(report)
    return Scene(tuple(_Stage(machine.tree, report, found).frames()), found, best(report))


class _Stage:
    """Decides what is drawn by itself and what is collapsed."""

    def __init__(self, tree: Tree, report: Report, found: Sequence[Entry]) -> None:
        self.tree = tree
        self.gpus, self.nics = frozenset(report.gpus), frozenset(report.nics)
        self.marks: dict[Address, list[Entry]] = {}
        for entry in found:
            for address in entry.places:
                self.marks.setdefault(address, []).append(entry)
        self.ways: dict[Address, list[str]] = {}
        for pair in sorted(best(report), key=lambda one: (one.gpu, -one.verdict, one.nic)):
            self.ways.setdefault(pair.gpu, []).append(way(pair))
        self.kids, order = _forest(tree)
        self.shown: dict[Address, bool] = {}
        for address in reversed(order):
            below = any(self.shown[kid] for kid in self.kids.get(address, ()))
            self.shown[address] = below or address in self.marks or self._matters(tree.functions[address])

    def _matters(self, function: Function) -> bool:
        return function.address in self.gpus | self.nics or labels.is_nvswitch(function)

    def frames(self) -> list[Frame]:
        """NUMA nodes in their order, and last what tells no node."""
        roots: dict[str, list[Address]] = {}
        for address in self.kids.get(None, ()):
            roots.setdefault(self.tree.functions[address].root_bus, []).append(address)
        nodes: dict[tuple[bool, int], list[tuple[str, list[Address]]]] = {}
        for name, tops in sorted(roots.items(), key=lambda item: (item[1][0], item[0])):
            nodes.setdefault(self._node(tops), []).append((name, tops))
        found = []
        for (untold, number), bridges in sorted(nodes.items()):
            frame = Frame("NUMA node not told" if untold else f"NUMA node {number}")
            self._fill(frame, bridges)
            found.append(frame)
        return found

    def _node(self, tops: Sequence[Address]) -> tuple[bool, int]:
        """The node that most of the functions below a host bridge are on."""
        told = Counter(self.tree.functions[one].numa_node for one in self._all_below(tops))
        known = sorted((-count, node) for node, count in told.items() if isinstance(node, int))
        return (False, known[0][1]) if known else (True, 0)

    def _all_below(self, tops: Iterable[Address]) -> list[Address]:
        found, waiting = [], list(tops)
        while waiting:
            address = waiting.pop()
            found.append(address)
            waiting += self.kids.get(address, ())
        return sorted(found)

    def _fill(self, frame: Frame, bridges: Sequence[tuple[str, list[Address]]]) -> None:
        quiet = [item for item in bridges if not any(self.shown[top] for top in item[1])]
        for name, tops in bridges:
            if len(quiet) > 1 and (name, tops) in quiet:
                continue
            title = labels.clean(name)
            tip = (f"host bridge {title}", labels.counted(len(self._all_below(tops)), "function") + " below it")
            frame.boxes.append(Box("host bridge", title, ("host bridge",), tip, (), 0, None))
            self._add_below(frame, tops, len(frame.boxes) - 1)
        if len(quiet) > 1:
            members = [self.tree.functions[one] for _rest, tops in quiet for one in self._all_below(tops)]
            words = f"{len(quiet)} other host bridges"
            names = (words, *(labels.clean(name) for name, _rest in quiet))
            frame.boxes.append(Box("host bridge", words, (), names, (), 0, None))
            frame.boxes.append(self._together(members, 1, len(frame.boxes) - 1, ()))

    def _add_below(self, frame: Frame, tops: Sequence[Address], bridge: int) -> None:
        """All boxes below a host bridge, each before those below it."""
        waiting = [(item, bridge) for item in reversed(self._items(tops))]
        while waiting:
            item, parent = waiting.pop()
            depth = frame.boxes[parent].depth + 1
            if len(item) > 1 or not self._single(item[0]):
                members = [self.tree.functions[one] for one in self._all_below(item)]
                frame.boxes.append(self._together(members, depth, parent, self._of(item[0])))
                continue
            frame.boxes.append(self._alone(item[0], depth, parent, frame.boxes[parent].role))
            here = len(frame.boxes) - 1
            waiting += [(below, here) for below in reversed(self._items(self.kids.get(item[0], ())))]

    def _single(self, address: Address) -> bool:
        return self.shown[address] or not self.kids.get(address)

    def _of(self, address: Address) -> tuple[Entry, ...]:
        return tuple(self.marks.get(address, ()))

    def _items(self, addresses: Sequence[Address]) -> list[list[Address]]:
        """What is drawn below a box: functions by themselves, then those that share a box."""
        alone: list[list[Address]] = []
        shared: dict[tuple[bool, tuple[int, ...]], list[Address]] = {}
        for address in addresses:
            function = self.tree.functions[address]
            inner = any(self.shown[kid] for kid in self.kids.get(address, ()))
            if inner or self._matters(function):
                alone.append([address])
            else:
                key = (not function.is_vf, tuple(-one.number for one in self._of(address)))
                shared.setdefault(key, []).append(address)
        for (is_other, marks), members in sorted(shared.items()):
            few = len(members) <= FEW and (marks or not is_other)
            alone += [[one] for one in members] if few else [members]
        return alone

    def _alone(self, address: Address, depth: int, parent: int, above: str) -> Box:
        function = self.tree.functions[address]
        bridges = any(self.tree.functions[kid].is_bridge for kid in self.kids.get(address, ()))
        role, title = self._role(function, above, bridges)
        # A port has its role on a line of its own, since there are many columns of ports.
        name = str(address) if function.is_bridge else f"{title} {address}"
        lines = (title, *labels.of_bridge(function)) if function.is_bridge else labels.of_device(function)
        ways = self.ways.get(address, ())
        lines += tuple(ways[:1]) if len(ways) < 2 else (f"{ways[0]} +{len(ways) - 1}",)
        tip = (*labels.in_full(function, title), *(f"nearest NIC: {way}" for way in ways))
        if function.parent is not None and function.parent not in self.tree.functions:
            tip += (f"its bridge {function.parent} is not in the input",)
        marks = self._of(address)
        tip += tuple(one.label for one in marks)
        return Box(role, name, lines, tip, (address,), depth, parent, marks)

    def _role(self, function: Function, above: str, has_bridges: bool) -> tuple[str, str]:
        if function.address in self.gpus:
            return "gpu", "GPU"
        if function.address in self.nics:
            return "nic", "NIC"
        if function.is_bridge:
            role = labels.port_role(function, above, has_bridges)
            return role, role
        if function.is_vf:
            return "vf", "VF"
        if labels.is_nvswitch(function):
            return "nvswitch", "NVSwitch"
        return "other", labels.short_class(function)

    def _together(self, members: Sequence[Function], depth: int, parent: int, marks: tuple[Entry, ...]) -> Box:
        vfs = all(one.is_vf for one in members)
        words = labels.counted(len(members), "VF" if vfs else "function" if marks else "other function")
        tip = (words, *(f"{one.address} {one.ids} {labels.driver(one)}, {labels.group(one)}" for one in members[:256]))
        tip += (f"and {len(members) - 256} more",) if len(members) > 256 else ()
        tip += tuple(one.label for one in marks)
        addresses = tuple(one.address for one in members)
        return Box("vf" if vfs else "other", words, labels.of_many(members), tip, addresses, depth, parent, marks)


def _forest(tree: Tree) -> tuple[Kids, list[Address]]:
    """What hangs below what, and all functions, each before what is below it. Each is there once, also where parents run in a circle."""
    named: dict[Union[Address, None], list[Address]] = {}
    for function in tree:
        named.setdefault(_above(tree, function), []).append(function.address)
    kids: dict[Union[Address, None], list[Address]] = {}
    order: list[Address] = []
    seen: set[Address] = set()
    tops = [*named.get(None, ()), *sorted(tree.functions)]
    for top in tops:
        waiting = [(top, None)] if top not in seen else []
        while waiting:
            address, parent = waiting.pop()
            if address in seen:
                continue
            seen.add(address)
            order.append(address)
            kids.setdefault(parent, []).append(address)
            waiting += [(kid, address) for kid in reversed(named.get(address, ()))]
    return kids, order


def _above(tree: Tree, function: Function) -> Union[Address, None]:
    for address in (function.physfn, function.parent):
        if address is not None and address in tree.functions:
            return address
    return None
