# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the rules look at: the judged devices of one machine, the paths between them, and the ports on these paths. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Union

from ..core.change import Absent, Unreadable
from ..pci import capabilities
from ..pci.address import Address
from ..pci.capabilities import Ats, Express, Words
from ..pci.machine import Machine, Platform
from ..pci.tree import Function
from .devices import Devices, devices_of, is_data_direct_nic
from .finding import Kind, Verdict
from .intent import PathIntent
from .policy import POLICIES, Bits, Policy, Position
from .routes import Route, Routes

# What a finding is about: nothing in particular, one function, or a GPU and a NIC.
Subject = Union[None, Address, tuple[Address, Address]]
# One look of a rule: verdict, subject, what was found, what is wanted. Texts are empty where all is as wanted.
Seen = tuple[Verdict, Subject, str, str]
Looks = Iterator[Seen]


@dataclass
class Port:
    """A port on the way of at least one judged pair."""

    function: Function
    depth: Union[int, None]  # how many bridges are above it; None: not known
    positions: set[Position] = field(default_factory=set)
    bits: Bits = field(default_factory=Bits)
    pairs: list[tuple[Address, Address]] = field(default_factory=list)
    _acs: Union[Words, Absent, Unreadable, None] = None

    @property
    def acs(self) -> Union[Words, Absent, Unreadable]:
        """Its words of Access Control Services."""
        if self._acs is None:
            told = self.function.told
            self._acs = capabilities.acs(self.function.config) if told is None else told.acs
        return self._acs

    @property
    def is_upper(self) -> bool:
        """True for the upper end of a switch, which as a single function need not have the capability."""
        return self.depth is not None and self.depth % 2 == 1

    @property
    def is_root(self) -> bool:
        """True for a root port."""
        return Position.ROOT_PORT in self.positions

    @property
    def words(self) -> str:
        """What it is, for messages."""
        return " and ".join(sorted(position.value for position in self.positions))


class View:
    """One machine as one intent looks at it."""

    def __init__(self, machine: Machine, intent: PathIntent) -> None:
        """Find devices and ways; no register is looked at yet."""
        self.machine, self.intent = machine, intent
        self.policy: Policy = POLICIES[intent.mode]
        self.devices: Devices = devices_of(machine, intent)
        self.routes = Routes(machine)
        self.ways: dict[tuple[Address, Address], Route] = {
            (gpu.address, nic.address): self.routes.between(gpu, nic)
            for gpu in self.devices.gpus
            for nic in self.devices.nics
        }
        self.best: dict[Address, tuple[Address, ...]] = {gpu.address: self._best(gpu) for gpu in self.devices.gpus}
        self.pairs = [(gpu, nic) for gpu, nics in self.best.items() for nic in nics]
        judged = {nic for _gpu, nic in self.pairs}
        self.nics: tuple[Function, ...] = tuple(one for one in self.devices.nics if one.address in judged)
        # Not judged yet: what a data-direct function has beside it has other wants.
        self.unjudged = {one.address for one in self.nics if self.devices.data_direct and is_data_direct_nic(one)}
        self.near_nics = {nic for gpu, nic in self.pairs if self.ways[gpu, nic].is_near}
        self.unsure_nics = {nic for gpu, nic in self.pairs if self.ways[gpu, nic].may_be_near}
        self.ports: dict[Address, Port] = {}
        for pair in self.pairs:
            if pair[1] not in self.unjudged:
                self._take_ports(pair)
        self._groups: dict[int, list[Function]] = {}

    @property
    def platform(self) -> Platform:
        """What the machine says of itself."""
        return self.machine.platform

    @property
    def judged_nics(self) -> Iterator[Function]:
        """The nearest NICs, but for those that are not judged."""
        return (one for one in self.nics if one.address not in self.unjudged)

    def vfs(self) -> Iterator[Function]:
        """The VFs of the nearest NICs."""
        for nic in self.nics:
            yield from self.devices.vfs_of[nic.address]

    @property
    def has_groups(self) -> bool:
        """Whether any function has a known IOMMU group."""
        return any(isinstance(one.iommu_group, int) for one in self.machine.tree.functions.values())

    def members(self, number: int) -> list[Function]:
        """The functions of a group. All groups are gathered at the first question."""
        if not self._groups:
            for one in self.machine.tree.functions.values():
                group = one.iommu_group
                if isinstance(group, int):
                    if group in self._groups:
                        self._groups[group].append(one)
                    else:
                        self._groups[group] = [one]
        return self._groups.get(number, [])

    def get(self, address: Address) -> Function:
        """A function that is known to be there."""
        return self.machine.tree.functions[address]

    def express(self, function: Function) -> Union[Express, Absent, Unreadable]:
        """Its PCI Express capability."""
        return capabilities.express(function.config) if function.told is None else function.told.express

    def ats(self, function: Function) -> Union[Ats, Absent, Unreadable]:
        """Its Address Translation Services."""
        return capabilities.ats(function.config) if function.told is None else function.told.ats

    def _best(self, gpu: Function) -> tuple[Address, ...]:
        """The nearest NICs of a GPU, and those of which it is not known that they are farther."""
        ways = [(nic.address, self.ways[gpu.address, nic.address]) for nic in self.devices.nics]
        least = min((way.kind for _nic, way in ways if way.kind != Kind.UNKNOWN), default=Kind.SYS)
        return tuple(nic for nic, way in ways if way.nearest <= least)

    def _take_ports(self, pair: tuple[Address, Address]) -> None:
        """Note the ports of a pair with what the policy wants of each there."""
        way = self.ways[pair]
        table = self.policy.near if way.is_near else self.policy.far
        for chain, towards in ((way.up, Position.GPU_PORT), (way.common, None), (way.down, Position.NIC_PORT)):
            for address in chain:
                port = self.ports.get(address)
                if port is None:
                    port = self.ports[address] = Port(self.get(address), self.routes.depth(address))
                position = _position(port, towards)
                bits = table[position]
                port.positions.add(position)
                port.bits = Bits(port.bits.wanted | bits.wanted, port.bits.barred | bits.barred)
                port.pairs.append(pair)


def _position(port: Port, towards: Position | None) -> Position:
    if port.depth == 0:
        return Position.ROOT_PORT
    return Position.SWITCH if towards is None or port.depth is None or port.is_upper else towards
