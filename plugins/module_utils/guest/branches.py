# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of a host's PCI tree that a guest gets: where its devices meet. Pure.

A *switch* is kept where at least two devices of the guest, or of the switches below, meet. Others say nothing about who is near
whom, and each costs the guest two buses. Two devices share a kept switch exactly where they share a switch of the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Union

from ..path.routes import Routes
from ..pci import nccl
from ..pci.address import Address
from ..pci.machine import Machine
from ..pci.tree import Function, Number


@dataclass(frozen=True)
class Lanes:
    """The best that a link can, as far as it is known: speed in tenths of GT/s, and width."""

    speed: Union[int, None] = None
    width: Union[int, None] = None

    def least(self, other: Lanes) -> Lanes:
        """What two links in a row can."""
        return Lanes(_least(self.speed, other.speed), _least(self.width, other.width))


@dataclass(frozen=True)
class Leaf:
    """A device of the guest, by its address on the host. ``lanes``: of the links up to the next kept switch or the root."""

    host: Address
    lanes: Lanes


@dataclass(frozen=True)
class Switch:
    """A kept switch, by the address of its upper end on the host."""

    host: Address
    lanes: Lanes
    below: tuple[Branch, ...]


Branch = Union[Leaf, Switch]


@dataclass(frozen=True)
class Complex:
    """A root complex of the host with what is kept below it."""

    root_bus: str
    below: tuple[Branch, ...]


def leaves(below: Iterable[Branch]) -> Iterator[Leaf]:
    """All devices, depth first."""
    for one in below:
        if isinstance(one, Leaf):
            yield one
        else:
            yield from leaves(one.below)


def switches(below: Iterable[Branch]) -> Iterator[Switch]:
    """All switches, depth first, each before those below it."""
    for one in below:
        if isinstance(one, Switch):
            yield one
            yield from switches(one.below)


def complexes_of(machine: Machine, devices: Iterable[Address]) -> tuple[Complex, ...]:
    """What is kept of a machine for these functions of it, in the order of their addresses."""
    look = _Look(machine)
    by_root: dict[str, list[Address]] = {}
    for address in sorted(devices):
        by_root.setdefault(machine.tree.functions[address].root_bus, []).append(address)
    return tuple(Complex(root_bus, look.below(found, 0)) for root_bus, found in by_root.items())


class _Look:
    """One machine being looked at for one guest."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.functions = machine.tree.functions
        self.routes = Routes(machine)
        # Such a file has one element for a whole switch (NCCL src/graph/xml.cc leaves lower ends out).
        self.whole_switches = machine.source == nccl.SOURCE

    def chain(self, address: Address) -> tuple[Address, ...]:
        """The bridges above a device, the highest first. A VF of which it is not known has those of its PF."""
        function = self.functions[address]
        pf = self.functions.get(function.physfn) if function.physfn is not None else None
        if function.parent is None and pf is not None:
            function = pf
        return self.routes.above(function)[::-1]

    def switches_above(self, address: Address) -> tuple[Address, ...]:
        """The upper ends of the switches above a device, the highest first.

        Each link of PCI Express has two ends, so below a root port follow upper and lower ends by turns; the port-type register
        is not asked (``path/routes.py``). Where the way to the root is not known, no end of a switch is known either.
        """
        chain = self.chain(address)
        return tuple(one for one in chain if self.whole_switches or (self.routes.depth(one) or 0) % 2)

    def below(self, devices: list[Address], level: int, above: Union[Address, None] = None) -> tuple[Branch, ...]:
        """The branches of these devices, which have the same ``level`` switches above them."""
        found: list[Branch] = []
        by_switch: dict[Address, list[Address]] = {}
        for address in devices:
            higher = self.switches_above(address)
            key = higher[level] if len(higher) > level else address
            by_switch.setdefault(key, []).append(address)
        for key, here in by_switch.items():
            if here == [key]:
                found.append(Leaf(key, self.lanes(key, above)))
            elif len(here) == 1 or self.meet_below(here, level + 1):
                found += self.below(here, level + 1, above)
            else:
                found.append(Switch(key, self.lanes(key, above), self.below(here, level + 1, key)))
        return tuple(found)

    def meet_below(self, devices: list[Address], level: int) -> bool:
        """Whether one switch more has all of these below it, and so says as much as the one above."""
        higher = [self.switches_above(one) for one in devices]
        return all(len(one) > level for one in higher) and len({one[level] for one in higher}) == 1

    def lanes(self, address: Address, above: Union[Address, None]) -> Lanes:
        """The least of all links between a function and a bridge above it (None: the root), each end at its best."""
        function = self.functions[address]
        pf = self.functions.get(function.physfn) if function.physfn is not None else None
        found = _best(
            function if pf is None else pf
        )  # the links of VFs say nothing (PCIe 9.3.5: those of the PF count)
        chain = self.chain(address)
        for bridge in chain[chain.index(above) + 1 if above in chain else 0 :]:
            found = found.least(_best(self.functions[bridge]))
        return found


def _best(function: Function) -> Lanes:
    link = function.link
    return Lanes(_known(link.speed_max, link.speed), _known(link.width_max, link.width))


def _known(best: Number, now: Number) -> Union[int, None]:
    """What a link can; where only a file of NCCL tells it, what it is."""
    told = next((one for one in (best, now) if isinstance(one, int)), None)
    return told or None


def _least(one: Union[int, None], other: Union[int, None]) -> Union[int, None]:
    known = [value for value in (one, other) if value is not None]
    return min(known) if known else None
