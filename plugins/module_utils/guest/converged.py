# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host as it will be at its best when all other resources have done their part. Pure.

What the inventory promises is taken at its word: VFs of ``sriov_ports``, pages of ``kernel_hugepages``, drivers that are not for guests.
What it does not tell (VFs of other ports, pages of other sizes, IOMMU groups, CPUs that a boot may bring or take) counts as enough for
all guests, so that a guest without room on this host has none on any that may come of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ..assign.choice import candidates
from ..boot.cmdline import name_of, split, value_of
from ..boot.pages import KIB, Node, Pages
from ..core.change import ABSENT
from ..core.errors import Problem
from ..early.files import is_vfio
from ..path.devices import devices_of
from ..pci.address import Address
from ..pci.machine import Machine
from ..pci.select import matches
from ..pci.tree import Function, Sriov, Tree
from ..vf.intent import Entry as Port
from .found import Current
from .placed import HostNode, Shape
from .resources import not_there
from .stock import Selection, in_pool, selection_of
from .wanted import Desired

_VFIO = "vfio-pci"
_NETWORK = (0x0200, 0x0207)
_MADE_UP = 1_000_000  # IOMMU groups and CPUs that no host has
# Arguments that decide which NUMA nodes there are, and those that decide which CPUs and threads: Linux kernel-parameters.txt.
_OF_NODES = frozenset({"acpi", "numa"})
# Of the latter, those that keep the kernel from finding a CPU; others only leave it offline.
_OF_FOUND = frozenset(
    {"disable_cpu_apicid", "intremap", "noapic", "nolapic", "nosmp", "nox2apic", "nr_cpus", "possible_cpus"}
)
_OF_CPUS = frozenset({*_OF_FOUND, "l1tf", "maxcpus", "nosmt"})


@dataclass(frozen=True)
class Converged:
    """What ``placement`` takes of a host."""

    machine: Machine
    nodes: tuple[HostNode, ...]
    selection: Selection


def converged(desired: Desired, current: Current) -> Converged | None:
    """The host at its best; None where that cannot be told: what is plugged in is not known, or the nodes may become others."""
    machine = current.machine
    words = _words(desired, machine)
    unknown = machine.partial or machine.tree.unread or any(one.vfs_of is not None for one in desired.paths.gpus)
    if not current.nodes or unknown or any(name_of(word) in _OF_NODES for word in words):
        return None
    shapes = [wish.shape for wish in desired.present]
    known = current.all_online and isinstance(machine.platform.arguments, str)
    known = known and not any(_is_of_cpus(word) for word in words)
    return _Devices(desired, machine, shapes).host(
        tuple(
            replace(node, pages=_pages(desired, current, node, shapes), cores=node.cores if known else _enough(shapes))
            for node in current.nodes
        )
    )


def pages_by_node(pages: Pages, nodes: Iterable[HostNode]) -> dict[int, int]:
    """Pages of an entry of ``kernel_hugepages`` on each node."""
    return pages.by_node({one.number: Node(0, {}) for one in nodes})


def not_reservable(desired: Desired, current: Current) -> Iterator[Problem]:
    """CPUs of guest_reserved_cpus that the host neither has nor may come to have with a boot."""
    words = _words(desired, current.machine)
    if not any(name_of(word) in _OF_FOUND for word in words):
        yield from not_there(desired.guests.reserved or (), current.nodes, current.present)


def _words(desired: Desired, machine: Machine) -> list[str]:
    """The arguments of the next boot, and those of the running kernel, any of which it may be without."""
    line = machine.platform.arguments
    return [*desired.arguments, *(split(line) if isinstance(line, str) else ())]


def _is_of_cpus(word: str) -> bool:
    return name_of(word) in _OF_CPUS or "nosmt" in (value_of(word) or "").split(",")


def _enough(shapes: Iterable[Shape]) -> tuple[tuple[int, ...], ...]:
    """More cores than all guests could use, of one thread, so that any number of CPUs is whole cores."""
    return tuple((_MADE_UP + number,) for number in range(1 + sum(shape.vcpus for shape in shapes)))


def _pages(desired: Desired, current: Current, node: HostNode, shapes: Iterable[Shape]) -> dict[int, int]:
    """Pages of a node by size: those that are reserved, or where nobody says so enough for all guests."""
    found: dict[int, int] = {}
    for shape in shapes:
        found[shape.page_mib] = found.get(shape.page_mib, 0) + -(-shape.memory_mib // shape.page_mib)
    for pages in desired.pages:
        found[KIB[pages.size] // 1024] = pages_by_node(pages, current.nodes).get(node.number, 0)
    return found


@dataclass
class _Devices:
    """The devices of a host while they get what the inventory promises."""

    desired: Desired
    machine: Machine
    shapes: list[Shape]
    _bound: Mapping[Address, str] = field(init=False)
    _ports: Mapping[Address, Port] = field(init=False)
    _groups: int = _MADE_UP

    def __post_init__(self) -> None:
        """Look at what entries match once."""
        tree = self.machine.tree
        self._bound = candidates(self.desired.drivers, tree)
        self._ports = {one.address: port for port in self.desired.ports for one in matches(port.selector, tree)}

    def host(self, nodes: tuple[HostNode, ...]) -> Converged:
        """The host with its devices ready for guests, each in a group of its own."""
        tree, chosen = self.machine.tree, selection_of(self.machine, self.desired.paths, self.desired.pools)
        functions = dict(tree.functions)
        for address in (*chosen.gpus, *chosen.nvswitches):
            functions[address] = self._ready(functions[address], self._bound.get(address, _VFIO))
        vfs = []
        for pf in self._nics():
            for vf in self._vfs(pf, functions):
                functions[vf.address] = vf
                vfs.append(vf.address)
        machine = replace(self.machine, tree=Tree(functions, tree.group_types, tree.unread))
        partitions = self.desired.guests.partitions
        return Converged(machine, nodes, Selection(chosen.gpus, tuple(vfs), chosen.nvswitches, partitions=partitions))

    def _ready(self, function: Function, driver: str) -> Function:
        """A device with its driver: one for guests, unless an entry gives it another."""
        self._groups += 1
        return replace(function, iommu_group=self._groups, driver=_VFIO if is_vfio(driver) else driver)

    def _nics(self) -> Iterator[Function]:
        """The PFs whose VFs guests may come to have. A VF that is to be selected may not be there yet, and neither may a name."""
        tree, given = self.machine.tree, self.desired.paths.nics
        meant = {one.address for one in devices_of(self.machine, self.desired.paths).nics}
        for selector in given:
            if selector.vfs_of is not None:
                meant |= {one.address for one in matches(selector.vfs_of, tree)}
        untold = any(not matches(selector.vfs_of or selector, tree) for selector in given)
        for one in tree:
            if in_pool(self.machine, one.address, self.desired.pools):
                continue
            if one.is_pf and (untold or one.address in meant or (not given and self._may_become_one(one))):
                yield one

    def _may_become_one(self, function: Function) -> bool:
        """Whether a network function without an RDMA device may get one: from the driver, when it is used for guests."""
        enabled = function.sriov.enabled if isinstance(function.sriov, Sriov) else 0
        return function.class_code >> 8 in _NETWORK and (function.address in self._ports or enabled > 0)

    def _vfs(self, pf: Function, functions: Mapping[Address, Function]) -> Iterator[Function]:
        """The VFs of a PF: as many as are asked for, or where its port is in no entry enough for all guests."""
        there, port = self.machine.tree.vfs(pf), self._ports.get(pf.address)
        count = max(len(there), self._wanted()) if port is None else port.vfs
        if port is not None and len(there) == count:
            for vf in there:
                yield self._ready(vf, self._bound.get(vf.address, _VFIO))
            return
        driver = self._driver(pf)
        for address in _places(pf, count, {*functions} - {one.address for one in there}):
            new = replace(pf, address=address, physfn=pf.address, sriov=ABSENT, netdevs=(), rdma=())
            yield self._ready(new, driver)

    def _wanted(self) -> int:
        return sum(shape.gpus * shape.vfs_per_gpu for shape in self.shapes)

    def _driver(self, pf: Function) -> str:
        """The driver of VFs that are still to come, where an entry gives it to all VFs of their PF."""
        for entry in self.desired.drivers:
            pfs = entry.selector.vfs_of
            if pfs is not None and not entry.selector.conditions and pf in matches(pfs, self.machine.tree):
                return entry.driver
        return _VFIO


def _places(pf: Function, count: int, taken: set[Address]) -> Iterator[Address]:
    """Addresses of VFs, as the PF tells them; where it does not, some that nothing else has."""
    side = pf.sriov if isinstance(pf.sriov, Sriov) else None
    if side is not None and isinstance(side.offset, int) and isinstance(side.stride, int) and side.stride:
        told = [pf.address.plus(side.offset + number * side.stride) for number in range(count)]
        if not taken.intersection(told) and len(set(told)) == count:
            yield from told
            return
    at = pf.address
    for _number in range(count):
        at = at.plus(1)
        while at in taken:
            at = at.plus(1)
        taken.add(at)
        yield at
