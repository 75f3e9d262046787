# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU cores and huge pages of a host's NUMA nodes, and what a guest gets of them. Pure.

A guest has one cell on each node of its GPUs: cores in proportion to the GPUs there, whole and with all their threads; memory in even
parts, since what a guest's processes take does not follow its GPUs. Pages are counted by node, because a strict cell takes them
there or does not start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..path.labels import counted
from .placed import Cell, HostNode, Shape

Core = tuple[int, ...]
# GPUs by NUMA node.
Share = Mapping[int, int]

_FREE_CORES = "Lower vcpus, or free cores there: other guests and the host itself (guest_reserved_cpus) have the rest."


@dataclass
class Room:
    """The cores and pages of each node, and what guests have of them while guests are placed."""

    nodes: Sequence[HostNode]
    reserved: frozenset[int] | None = None  # CPUs of the host; None: the first core of each node
    threads: int = field(init=False, default=1)  # CPUs of a whole core
    cores: dict[int, tuple[Core, ...]] = field(init=False, default_factory=dict)  # by node, without the host's own
    pages: dict[int, Mapping[int, int]] = field(init=False, default_factory=dict)
    isolated: frozenset[int] = field(init=False, default=frozenset())
    _cpus: dict[str, set[int]] = field(init=False, default_factory=dict)  # by guest
    _pages: dict[str, dict[tuple[int, int], int]] = field(init=False, default_factory=dict)  # by guest: node and size

    def __post_init__(self) -> None:
        """Put the host's own cores aside."""
        self.nodes = sorted(self.nodes, key=lambda one: one.number)
        self.threads = max((len(core) for node in self.nodes for core in node.cores), default=1)
        for node in self.nodes:
            cores = sorted(node.cores)
            own = frozenset(cores[0] if cores else ()) if self.reserved is None else self.reserved
            self.cores[node.number] = tuple(core for core in cores if not own.intersection(core))
            self.pages[node.number] = node.pages
            self.isolated |= frozenset(node.isolated)

    def free_cores(self, node: int) -> list[Core]:
        """The cores of a node that nobody has."""
        taken = set().union(*self._cpus.values())
        return [core for core in self.cores.get(node, ()) if not taken.intersection(core)]

    def whole(self, node: int) -> list[Core]:
        """Those with all their threads."""
        return [core for core in self.free_cores(node) if len(core) == self.threads]

    def free_pages(self, node: int, page_mib: int) -> int:
        """Free huge pages of a size on a node."""
        taken = sum(guest.get((node, page_mib), 0) for guest in self._pages.values())
        return max(0, self.pages.get(node, {}).get(page_mib, 0) - taken)

    def take(self, guest: str, cells: Iterable[Cell], emulator: Iterable[int] = (), page_mib: int = 0) -> None:
        """These are a guest's from now on, beside what it has. Without a page size its pages are in no count."""
        cpus, pages = self._cpus.setdefault(guest, set()), self._pages.setdefault(guest, {})
        cpus.update(emulator)
        for cell in cells:
            cpus.update(cell.cpus)
            if page_mib:
                key = (cell.node, page_mib)
                pages[key] = pages.get(key, 0) + -(-cell.memory_mib // page_mib)

    def give_back(self, guest: str) -> None:
        """A guest has nothing any more."""
        self._cpus.pop(guest, None)
        self._pages.pop(guest, None)

    def still_has(self, cells: Sequence[Cell], emulator: Sequence[int], page_mib: int) -> bool:
        """Whether cells of a guest that has given them back can be had again as they were."""
        for cell in cells:
            free = {cpu for core in self.whole(cell.node) for cpu in core}
            if not free.issuperset(cell.cpus) or cell.memory_mib > self.free_pages(cell.node, page_mib) * page_mib:
                return False
        rest = {cpu for node in self.cores for core in self.free_cores(node) for cpu in core}
        return rest.issuperset(emulator)


# Cells -----------------------------------------------------------------------------------


def shortages(room: Room, shape: Shape, share: Share) -> list[tuple[str, str]]:
    """What CPUs and pages of these nodes lack for a guest with so many GPUs on each, with what to do; empty: nothing."""
    nodes = sorted(share)
    return [*_too_few_cpus(room, shape, nodes), *_too_few_pages(room, shape, nodes)]


def _too_few_cpus(room: Room, shape: Shape, nodes: Sequence[int]) -> Iterator[tuple[str, str]]:
    names, wanted = _named(nodes), -(-shape.vcpus // room.threads)
    free = {node: len(room.whole(node)) for node in nodes}
    bare = [node for node in nodes if not free[node]]
    if wanted < len(nodes):
        few = f"has {shape.vcpus} vCPUs for {counted(len(nodes), 'NUMA node')} of its GPUs ({names})"
        yield few, f"Give it at least {len(nodes) * room.threads}."
    elif bare:
        yield (
            f"needs CPUs on each NUMA node of its GPUs ({names}), and on {_named(bare)} no whole core is free",
            _FREE_CORES,
        )
    elif wanted > sum(free.values()):
        each = ", ".join(f"{free[node] * room.threads} on node {node}" for node in nodes)
        where = "on the NUMA nodes of its GPUs"
        yield f"has too few CPUs {where} (found {each} in whole free cores, wanted {shape.vcpus})", _FREE_CORES


def _too_few_pages(room: Room, shape: Shape, nodes: Sequence[int]) -> Iterator[tuple[str, str]]:
    need, _spare = _pages_by_node(room, shape, nodes)
    for node in nodes:
        if need[node] > room.free_pages(node, shape.page_mib):
            found = (
                f"found {room.free_pages(node, shape.page_mib)} free pages of {shape.page_mib} MiB, wanted {need[node]}"
            )
            advice = "Lower memory_gib, or reserve more pages on that node in kernel_hugepages."
            yield f"memory does not fit on node {node} ({found})", advice
    if shape.memory_mib // shape.page_mib < len(nodes):
        fact = f"has less memory than a page of {shape.page_mib} MiB on each node of its GPUs ({_named(nodes)})"
        yield fact, "Raise memory_gib, or take smaller pages."


def on_no_node(room: Room, shape: Shape) -> list[tuple[str, str]]:
    """Why no single node has room for a guest without GPUs, each with what it lacks."""
    if not room.cores:
        return [("finds no NUMA node in this host", "See whether sysfs is mounted and readable.")]
    lacks, page = [], shape.page_mib
    pages = shape.memory_mib // page
    for node in sorted(room.cores):
        cpus, free = len(room.whole(node)) * room.threads, room.free_pages(node, page)
        few = [f"{cpus} CPUs in whole free cores"] if cpus < shape.vcpus else []
        few += [f"{free} free pages of {page} MiB"] if free < pages else []
        lacks += [f"node {node}: {' and '.join(few)}"] if few else []
    wanted = f"{counted(shape.vcpus, 'CPU')} and {counted(pages, 'page')} of {page} MiB"
    fact = (
        f"has no GPUs, so it has to fit on one NUMA node, and fits on none (found {'; '.join(lacks)}, wanted {wanted})"
    )
    advice = "Lower vcpus or memory_gib, or have cores (guest_reserved_cpus) and pages (kernel_hugepages) for it on one node."
    return [(fact, advice)] if lacks else []


def wrong_numbers(room: Room, shape: Shape) -> list[tuple[str, str]]:
    """What is wrong about CPUs and memory of a shape whatever its devices."""
    found: list[tuple[str, str]] = []
    if shape.vcpus < 1 or shape.vcpus % room.threads:
        low = max(1, shape.vcpus // room.threads) * room.threads
        fact = f"has {shape.vcpus} vCPUs, and cores of this host have {room.threads} threads"
        found.append((fact, f"Give it whole cores: {low} or {low + room.threads}."))
    if shape.memory_mib < 1 or shape.memory_mib % shape.page_mib:
        fact = f"has {shape.memory_mib} MiB of memory, which are no whole pages of {shape.page_mib} MiB"
        found.append((fact, "Give it a multiple of its page size."))
    return found


def totals(room: Room, shape: Shape) -> list[tuple[str, str]]:
    """What all nodes together have too little of."""
    found: list[tuple[str, str]] = []
    cpus = sum(len(room.whole(node)) for node in room.cores) * room.threads
    if shape.vcpus > cpus:
        fact = f"has too few CPUs on this host (found {cpus} in whole free cores, wanted {shape.vcpus})"
        found.append((fact, _FREE_CORES))
    pages = {node: room.free_pages(node, shape.page_mib) for node in sorted(room.pages)}
    if shape.memory_mib > sum(pages.values()) * shape.page_mib:
        each = ", ".join(f"node {node}: {count}" for node, count in pages.items()) or "no node"
        fact = (
            f"memory is more than the host has free (found pages of {shape.page_mib} MiB by {each}, "
            f"wanted {-(-shape.memory_mib // shape.page_mib)})"
        )
        found.append((fact, "Lower memory_gib, or reserve more pages in kernel_hugepages."))
    return found


def cells_of(room: Room, shape: Shape, share: Share, kept: Sequence[Cell] = ()) -> tuple[Cell, ...]:
    """The cells of a guest that fits. CPUs that it has already come first, then those that the kernel keeps its tasks away from."""
    nodes = sorted(share)
    had = {cpu for cell in kept for cpu in cell.cpus}
    counts = _cores_by_node(room, shape, share)
    pages, _spare = _pages_by_node(room, shape, nodes)
    cells = []
    for node in nodes:
        ranked = [(not had.intersection(core), not room.isolated.intersection(core), core) for core in room.whole(node)]
        cores = [core for _had, _isolated, core in sorted(ranked)[: counts[node]]]
        cpus = tuple(cpu for core in sorted(cores) for cpu in core)
        cells.append(Cell(node, cpus, pages[node] * shape.page_mib, room.threads))
    return tuple(cells)


def fullest(room: Room, shape: Shape, kept: Sequence[int] = ()) -> int | None:
    """The node for a guest without GPUs, of those on which it fits: its own, or the one with the most free memory; None: there is none."""
    fitting = [node for node in room.cores if not shortages(room, shape, {node: 1})]

    def use(node: int) -> tuple[bool, int, int, int]:
        return (node in kept, room.free_pages(node, shape.page_mib), len(room.whole(node)), -node)

    return max(fitting, key=use, default=None)


def emulator_of(room: Room, cells: Sequence[Cell], kept: Sequence[int] = ()) -> tuple[int, ...]:
    """A core for QEMU's own threads, of what is left on the guest's nodes; empty: nothing is.

    Isolated ones come last: nothing spreads threads over them. Cores with a thread missing come early, since no vCPU can use them.
    """
    free = {cell.node: room.free_cores(cell.node) for cell in cells}
    had = set(kept)
    rest = [
        (not had.intersection(core), bool(room.isolated.intersection(core)), len(core), -len(cores), core)
        for node, cores in sorted(free.items())
        for core in cores
    ]
    return min(rest)[-1] if rest else ()


def cell_notes(shape: Shape, cells: Sequence[Cell], share: Share) -> list[str]:
    """What is uneven about the cells of a guest, in sentences."""
    notes = []
    memory = {cell.memory_mib for cell in cells}
    if len(memory) > 1:
        each = ", ".join(f"{cell.memory_mib} MiB on node {cell.node}" for cell in cells)
        notes.append(f"Memory is not the same on each node, as its pages cannot be split evenly: {each}.")
    threads = max((cell.threads for cell in cells), default=1)
    want = _apportioned(shape.vcpus // threads, share, {node: shape.vcpus for node in share})
    if any(len(cell.cpus) != want.get(cell.node, 0) * threads for cell in cells):
        each = ", ".join(f"{len(cell.cpus)} on node {cell.node}" for cell in cells)
        notes.append(f"vCPUs are not in proportion to the GPUs of each node, as cores are short there: {each}.")
    return notes


def _cores_by_node(room: Room, shape: Shape, share: Share) -> dict[int, int]:
    free = {node: len(room.whole(node)) for node in share}
    return _apportioned(shape.vcpus // room.threads, share, free)


def _apportioned(total: int, share: Share, most: Share) -> dict[int, int]:
    """A number split by shares, each part at least one and at most what is there; the lowest node wins a tie."""
    parts = dict.fromkeys(sorted(share), 1)
    for _one in range(total - len(parts)):
        open_nodes = [node for node in parts if parts[node] < most[node]]
        if not open_nodes:
            break
        parts[min(open_nodes, key=lambda node: ((parts[node] + 1) / share[node], node))] += 1
    return parts


def _pages_by_node(room: Room, shape: Shape, nodes: Sequence[int]) -> tuple[dict[int, int], int]:
    """Pages on each node, and how many could not be split evenly; these go where most are free."""
    each, spare = divmod(shape.memory_mib // shape.page_mib, len(nodes))
    by_room = sorted(nodes, key=lambda node: (-room.free_pages(node, shape.page_mib), node))
    return {node: each + (node in by_room[:spare]) for node in nodes}, spare


def _named(nodes: Sequence[int]) -> str:
    return ", ".join(str(node) for node in nodes)
