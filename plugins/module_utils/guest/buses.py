# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guest's own PCI tree: libvirt's controllers, where each device is plugged, and the bus numbers that the guest will see. Pure.

Two numberings are at work. libvirt counts controllers (``index``), and a place in its XML is a controller, slot and function. The
guest's firmware numbers buses: each root bus has the number of its expander, and what is below a root bus is numbered depth first,
slot by slot (EDK II PciBusDxe, SeaBIOS). Linux keeps these numbers. Nothing here reserves buses for hot plugging.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Union

from ..core.errors import IntentError, Problem
from ..pci.address import Address
from .branches import Branch, Leaf, Switch, leaves
from .options import Topology

# QEMU: pcie.0 has the host bridge in slot 0 and the ICH9's functions in slot 31.
FIRST_SLOT, LAST_SLOT = 1, 30
SLOTS = 32  # of an expander bus and of an upper end of a switch
LAST_BUS = 255
LAST_EXPANDER = 254  # libvirt formatdomain: busNr is 1 to 254
# Room between expanders, so that a guest that gets one device more keeps the numbers of the others. The first that fits.
_SPACES = (32, 16, 8, 4, 1)
# Numbers that a switch has for NCCL where the guest has no such function; those of public files.
_MADE_UP = 0xFFFF


class Kind(enum.Enum):
    """The controllers, by libvirt's names."""

    EXPANDER = "pcie-expander-bus"
    ROOT_PORT = "pcie-root-port"
    UPSTREAM = "pcie-switch-upstream-port"
    DOWNSTREAM = "pcie-switch-downstream-port"


@dataclass(frozen=True)
class Place:
    """Where something is plugged, in libvirt's words: the index of a controller, and a slot of it."""

    controller: int
    slot: int = 0


@dataclass(frozen=True)
class Controller:
    """One controller. ``bus`` is the number of the bus below it; ``address`` its own, as the guest sees it.

    ``node`` is the guest's NUMA node of an expander; ``chassis`` the number by which ports are told apart, 0 of what has none;
    ``host`` the upper end of a switch on the host that this one stands for.
    """

    kind: Kind
    index: int
    place: Place
    address: Address
    bus: int
    node: Union[int, None] = None
    chassis: int = 0
    host: Union[Address, None] = None


@dataclass(frozen=True)
class Root:
    """A root complex of the host in the guest: its NUMA node there, and what is below."""

    node: int
    below: tuple[Branch, ...]


@dataclass(frozen=True)
class Layout:
    """The whole tree. ``places`` and ``addresses`` are those of passed-through devices by their address on the host.

    ``switches`` are the addresses of the host's switches as NCCL is told them: of the emulated one, or made up.
    """

    controllers: tuple[Controller, ...]
    emulated: Mapping[str, Place]
    places: Mapping[Address, Place]
    addresses: Mapping[Address, Address]
    switches: Mapping[Address, Address]


def layout(path: str, roots: Iterable[Root], emulated: Iterable[str], topology: Topology) -> Layout:
    """Everything in its place; IntentError where something does not fit, with what would."""
    roots, emulated = tuple(roots), tuple(emulated)
    if topology is not Topology.SWITCHES:
        roots = tuple(Root(one.node, tuple(leaves(one.below))) for one in roots)
    problems = _limits(path, roots, len(emulated), topology)
    if problems:
        raise IntentError(problems)
    work = _Work()
    for slot, name in enumerate(emulated, FIRST_SLOT):
        work.emulated[name] = Place(work.root_port(0, 0, slot).index)
    slot = FIRST_SLOT + len(emulated)
    if topology is Topology.FLAT:
        for place, one in enumerate((leaf for root in roots for leaf in root.below), slot):
            work.branch(one, work.root_port(0, 0, place))
    else:
        for place, (root, bus) in enumerate(zip(roots, _expanders(roots, len(emulated))), slot):
            work.expander(root, bus, place)
    return work.done()


def made_up(numbers: Iterable[Address]) -> dict[Address, Address]:
    """Addresses for switches that no guest can have: those that public topology files use."""
    return {host: Address(_MADE_UP, 0xFF, 1 + at % 31, at // 31) for at, host in enumerate(numbers)}


@dataclass
class _Work:
    """One layout being made, in the order in which the firmware numbers."""

    controllers: list[Controller] = field(default_factory=list)
    emulated: dict[str, Place] = field(default_factory=dict)
    places: dict[Address, Place] = field(default_factory=dict)
    addresses: dict[Address, Address] = field(default_factory=dict)
    switches: dict[Address, Address] = field(default_factory=dict)
    last_bus: int = 0
    last_chassis: int = 0

    def done(self) -> Layout:
        return Layout(tuple(self.controllers), self.emulated, self.places, self.addresses, self.switches)

    def expander(self, root: Root, bus: int, slot: int) -> None:
        """An expander bus and all below it."""
        index = len(self.controllers) + 1
        self.controllers.append(
            Controller(Kind.EXPANDER, index, Place(0, slot), Address(0, 0, slot, 0), bus, root.node)
        )
        self.last_bus = bus
        for at, one in enumerate(root.below):
            self.branch(one, self.root_port(index, bus, at))

    def root_port(self, index: int, bus: int, slot: int) -> Controller:
        return self.port(Kind.ROOT_PORT, Place(index, slot), bus)

    def port(self, kind: Kind, place: Place, bus: int, host: Union[Address, None] = None) -> Controller:
        """A bridge on a bus, with the next bus below it."""
        self.last_bus += 1
        if kind is not Kind.UPSTREAM:
            self.last_chassis += 1
        chassis = 0 if kind is Kind.UPSTREAM else self.last_chassis
        index = len(self.controllers) + 1
        found = Controller(kind, index, place, Address(0, bus, place.slot, 0), self.last_bus, None, chassis, host)
        self.controllers.append(found)
        return found

    def branch(self, one: Branch, port: Controller) -> None:
        """A device, or a switch with all below it, at a port."""
        if isinstance(one, Leaf):
            self.places[one.host] = Place(port.index)
            self.addresses[one.host] = Address(0, port.bus, 0, 0)
            return
        upper = self.port(Kind.UPSTREAM, Place(port.index), port.bus, one.host)
        self.switches[one.host] = upper.address
        for slot, inner in enumerate(one.below):
            self.branch(inner, self.port(Kind.DOWNSTREAM, Place(upper.index, slot), upper.bus))


def _buses(below: Iterable[Branch]) -> int:
    """How many buses there are below these root ports or lower ends, with their own."""
    return sum(1 if isinstance(one, Leaf) else 2 + _buses(one.below) for one in below)


def _expanders(roots: tuple[Root, ...], emulated: int) -> list[int]:
    """The number of each expander: as far apart as there is room, and never more than what is below them needs."""
    for space in _SPACES:
        found: list[int] = []
        free = 1 + emulated
        for root in roots:
            found.append(-(-free // space) * space)
            free = found[-1] + 1 + _buses(root.below)
        if free <= LAST_BUS + 1 and max(found, default=1) <= LAST_EXPANDER:
            return found
    raise AssertionError("the number of buses was looked at before")


def _limits(path: str, roots: tuple[Root, ...], emulated: int, topology: Topology) -> list[Problem]:
    """All limits that the tree does not keep."""
    if topology is Topology.FLAT:
        count, free = sum(len(root.below) for root in roots), LAST_SLOT - FIRST_SLOT + 1 - emulated
        advice = "Take topology: switches, which has other buses, or give the guest fewer devices."
        return [_too_many(path, "devices for the main bus", count, free, advice)] if count > free else []
    found = []
    free = LAST_SLOT - FIRST_SLOT + 1 - emulated
    if len(roots) > free:
        advice = "Take topology: flat, or devices of fewer root complexes."
        found.append(_too_many(path, "expander buses for the main bus", len(roots), free, advice))
    for count in {_widest(root.below) for root in roots}:
        if count > SLOTS:
            advice = "Give the guest fewer devices of one root complex."
            found.append(_too_many(path, "devices beside each other below one bus", count, SLOTS, advice))
    buses = 1 + emulated + sum(1 + _buses(root.below) for root in roots)
    if buses > LAST_BUS + 1:
        fewer = "Give the guest fewer VFs"
        advice = f"{fewer}." if topology is Topology.ROOT_PORTS else f"{fewer}, or take topology: root_ports."
        found.append(_too_many(path, "PCI buses", buses, LAST_BUS + 1, advice))
    return found


def _widest(below: tuple[Branch, ...]) -> int:
    inner = [_widest(one.below) for one in below if isinstance(one, Switch)]
    return max([len(below), *inner])


def _too_many(path: str, what: str, found: int, most: int, advice: str) -> Problem:
    return Problem(f"{path}.devices", f"needs too many {what}", advice, found=str(found), wanted=f"at most {most}")
