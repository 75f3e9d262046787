# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How two functions are connected: the bridges on the way, what is in common, and how far that is. Pure.

Everything hangs on the bridge above a function, so ways are found once for each pair of bridges; functions of one port share them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..pci.address import Address
from ..pci.machine import Machine
from ..pci.tree import Function
from .finding import Kind

Chain = tuple[Address, ...]


@dataclass(frozen=True)
class Route:
    """The way between two functions, from the first to the second.

    ``nearest`` is the nearest kind that it could be by what is known: the same as ``kind`` unless that is UNKNOWN.
    """

    kind: Kind
    up: Chain = ()
    common: Chain = ()
    down: Chain = ()
    nearest: Kind = Kind.PIX

    @property
    def is_near(self) -> bool:
        """True when no request has to go through the root complex."""
        return self.kind <= Kind.PXB

    @property
    def may_be_near(self) -> bool:
        """True when that is not known."""
        return self.kind == Kind.UNKNOWN and self.nearest <= Kind.PXB


@dataclass(frozen=True)
class _Above:
    """The bridges above a function, nearest first; ``whole`` is False where the way to the root bus is not known."""

    chain: Chain
    whole: bool


class Routes:
    """The ways in one machine, each found once."""

    def __init__(self, machine: Machine) -> None:
        """Nothing is looked at before it is asked for."""
        self._functions = machine.tree.functions
        self._nodes = machine.platform.numa_nodes
        self._above: dict[Address | None, _Above] = {}
        self._between: dict[tuple[Address | None, Address | None, str, str], tuple[Chain, Chain, Chain, bool]] = {}

    def above(self, function: Function) -> Chain:
        """The bridges between a function and its root bus, nearest first, as far as they are known."""
        return self._found(function.parent).chain

    def is_whole(self, function: Function) -> bool:
        """Whether the way from a function to its root bus is known to its end."""
        return self._found(function.parent).whole

    def depth(self, bridge: Address) -> int | None:
        """How many bridges are above a bridge; None where that is not known.

        Links of PCI Express have two ends, so below a root port (0) come an upper end of a switch (1), one of its lower
        ends (2) and so on. The port-type register is not asked: some switches say there that they are root ports.
        """
        function = self._functions.get(bridge)
        if function is None:
            return None
        found = self._found(function.parent)
        return len(found.chain) if found.whole else None

    def between(self, one: Function, other: Function) -> Route:
        """The way between two functions."""
        key = (one.parent, other.parent, one.root_bus, other.root_bus)
        ways = self._between.get(key)
        if ways is None:
            ways = self._between[key] = self._split(one, other)
        up, common, down, whole = ways
        if common:
            kind = Kind.PIX if len(up) <= 1 and len(down) <= 1 else Kind.PXB
            return Route(kind, up, common, down, kind)
        if not whole:
            return Route(Kind.UNKNOWN, up, (), down, Kind.PIX)
        if one.root_bus == other.root_bus:
            return Route(Kind.PHB, up, (), down, Kind.PHB)
        kind = self._across(one, other)
        return Route(kind, up, (), down, Kind.NODE if kind == Kind.UNKNOWN else kind)

    def _across(self, one: Function, other: Function) -> Kind:
        """Between host bridges: what the NUMA nodes say."""
        if isinstance(one.numa_node, int) and isinstance(other.numa_node, int):
            return Kind.NODE if one.numa_node == other.numa_node else Kind.SYS
        return Kind.NODE if isinstance(self._nodes, tuple) and len(self._nodes) == 1 else Kind.UNKNOWN

    def _found(self, bridge: Address | None) -> _Above:
        """A bridge and all above it. A loop in odd data tells no way at all."""
        found = self._above.get(bridge)
        if found is None:
            chain: dict[Address, None] = {}
            at = bridge
            while at is not None and at not in chain:
                function = self._functions.get(at)
                if function is None:
                    break
                chain[at] = None
                at = function.parent
            looped = at in chain
            found = self._above[bridge] = _Above(() if looped else tuple(chain), at is None)
        return found

    def _split(self, one: Function, other: Function) -> tuple[Chain, Chain, Chain, bool]:
        first, second = self._found(one.parent), self._found(other.parent)
        if first.whole and second.whole and first.chain[-1:] != second.chain[-1:]:  # most pairs, and found at once
            return first.chain, (), second.chain[::-1], bool(one.root_bus and other.root_bus)
        ours = {address: place for place, address in enumerate(first.chain)}
        for place, address in enumerate(second.chain):
            if address in ours:
                met = ours[address]
                return first.chain[:met], first.chain[met:], second.chain[:place][::-1], True
        whole = first.whole and second.whole and bool(one.root_bus and other.root_bus)
        return first.chain, (), second.chain[::-1], whole
