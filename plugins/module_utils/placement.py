# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which devices, CPUs and memory each guest of a host gets: shapes and one host give a placement or reasons. Pure.

Guests that are there keep what they have, in the order of their size; then those that ask for a Fabric Manager partition, which have no
choice; then the others, the largest first. A guest that is refused takes nothing, and what it had stays its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Union

from .core.errors import natural
from .guest.choice import best
from .guest.pairing import Pairing, distance_notes, given_of
from .guest.placed import Cell, Given, HostNode, Part, Placed, Refused, Shape
from .guest.refusal import Why, of_gpus, of_vfs, repeated, spelled
from .guest.room import (
    Room,
    Share,
    cell_notes,
    cells_of,
    emulator_of,
    fullest,
    on_no_node,
    shortages,
    totals,
    wrong_numbers,
)
from .guest.stock import Selection, Stock, by_part, selection_of
from .path.finding import Kind
from .path.labels import counted
from .path.routes import Routes
from .pci.address import Address
from .pci.machine import Machine
from .pci.tree import Function

__all__ = ["Placed", "Refused", "Selection", "place", "selection_of"]

ALL, NONE = "all", "none"
Answer = Union[Placed, Refused]


def place(
    machine: Machine,
    nodes: Sequence[HostNode],
    shapes: Sequence[Shape],
    existing: Sequence[Placed],
    selection: Selection,
    *,
    reserved: frozenset[int] | None = None,
    max_distance: Kind = Kind.SYS,
) -> tuple[Answer, ...]:
    """One answer for each shape, the largest first; the order of the input does not matter.

    ``existing`` are the guests of the host: those that a shape names are placed anew and keep what they can, others keep all. As
    HostNode says, ``nodes`` count the pages of the former and not of the latter. ``reserved`` are CPUs of the host itself (None: the
    first core of each node). A VF farther from its GPU than ``max_distance`` is not given.
    """
    stock, room = Stock(machine, selection), Room(nodes, reserved)
    pairing = Pairing(stock, max_distance, Routes(machine))
    return _Placer(stock, room, pairing, {one.shape.name: one for one in existing}).answers(shapes)


def _by_size(shape: Shape) -> tuple[Any, ...]:
    """The largest first, those of one size by name, g2 before g10."""
    sizes = (-shape.gpus, -shape.vfs_per_gpu, -shape.memory_mib, -shape.vcpus)
    return (*sizes, natural(shape.name), shape.name, repr(shape))


@dataclass
class _Placer:
    """The guests of one host while they are placed."""

    stock: Stock
    room: Room
    pairing: Pairing
    had: Mapping[str, Placed]
    news: dict[str, list[str]] = field(default_factory=dict)  # by guest: what changed about it, in sentences

    def answers(self, shapes: Sequence[Shape]) -> tuple[Answer, ...]:
        """One for each shape."""
        names = Counter(shape.name for shape in shapes)
        for name in sorted(self.had):
            self._take(self.had[name], counted_pages=name in names)
        found: list[Answer] = [repeated(one, names[one.name]) for one in shapes if names[one.name] > 1]
        placed = [self._answer(one) for one in sorted(shapes, key=self._turn) if names[one.name] == 1]
        found += [one if isinstance(one, Refused) else self._finished(one) for one in placed]
        return tuple(sorted(found, key=lambda one: _by_size(one.shape)))

    def _turn(self, shape: Shape) -> tuple[object, ...]:
        old = self.had.get(shape.name)
        return (old is None, old is None or old.shape != shape, shape.nvswitches in (ALL, NONE), _by_size(shape))

    def _take(self, placed: Placed, *, counted_pages: bool = True) -> None:
        self.stock.take(placed.devices, placed.shape.name)
        page = placed.shape.page_mib if counted_pages else 0
        self.room.take(placed.shape.name, placed.cells, placed.emulator, page)

    def _answer(self, shape: Shape) -> Answer:
        old = self.had.get(shape.name)
        self.stock.give_back(shape.name)
        self.room.give_back(shape.name)
        if old is not None and old.shape == shape and self._still_right(old):
            answer: Answer = old
        else:
            answer = self._fresh(shape, old)
        if isinstance(answer, Placed):
            self._take(answer)
        elif old is not None:
            self._take(old)
        return answer

    # A guest that is there already ---------------------------------------------------------

    def _still_right(self, old: Placed) -> bool:
        """Whether a guest whose shape is as it was can keep all it has."""
        shape, gpus = old.shape, self._gpus_of(old)
        if any(
            one.address not in self.stock.chosen or self.stock.why_not(one.address, shape.name) for one in old.devices
        ):
            return False
        vfs = self._vfs_of(old)
        if len(gpus) != shape.gpus or any(len(vfs[gpu.address]) != shape.vfs_per_gpu for gpu in gpus):
            return False
        far = (self.pairing.kind(gpu, vf.physfn or vf.address) for gpu in gpus for vf in vfs[gpu.address])
        if not all(self.pairing.allows(kind) for kind in far):
            return False
        switches, why = self._switches(shape)
        if why or by_part(old, Part.NVSWITCH) != given_of((), {}, switches):
            return False
        only = self._partition(shape)
        if only is not None and {one.address for one in gpus} != set(only):
            return False
        sizes = (sum(len(cell.cpus) for cell in old.cells), sum(cell.memory_mib for cell in old.cells))
        return sizes == (shape.vcpus, shape.memory_mib) and self.room.still_has(old.cells, old.emulator, shape.page_mib)

    def _gpus_of(self, placed: Placed) -> list[Function]:
        mine = {one.address for one in by_part(placed, Part.GPU)}
        return [gpu for gpu in self.stock.gpus if gpu.address in mine]

    def _vfs_of(self, placed: Placed) -> dict[Address, list[Function]]:
        functions = self.stock.machine.tree.functions
        found: dict[Address, list[Function]] = {gpu.address: [] for gpu in self._gpus_of(placed)}
        for given in by_part(placed, Part.VF):
            if given.beside in found and given.address in functions:
                found[given.beside].append(functions[given.address])
        return found

    # A guest that is placed ----------------------------------------------------------------

    def _fresh(self, shape: Shape, old: Placed | None) -> Answer:
        if not shape.gpus:
            return self._without_gpus(shape, old)
        switches, why = self._switches(shape)
        why += wrong_numbers(self.room, shape)
        only = self._partition(shape)
        kept = frozenset(one.address for one in by_part(old, Part.GPU)) if old else frozenset()
        choice = best(self.pairing, self.room, shape, only, kept)
        if choice is None:
            if only is None or len(only) == shape.gpus:
                why += of_gpus(self.stock, shape, only) or of_vfs(self.pairing, shape, only)
            why += totals(self.room, shape)
        elif not choice.fits:
            why += shortages(self.room, shape, choice.share)
        if why or choice is None:
            return Refused(shape, spelled(shape, why))
        vfs = self.pairing.vfs(shape, choice.gpus, by_part(old, Part.VF) if old else ())
        if any(len(one) < shape.vfs_per_gpu for one in vfs.values()):
            return Refused(shape, spelled(shape, of_vfs(self.pairing, shape, only)))
        cells = cells_of(self.room, shape, choice.share, old.cells if old else ())
        return self._told(Placed(shape, given_of(choice.gpus, vfs, switches), cells), old)

    def _without_gpus(self, shape: Shape, old: Placed | None) -> Answer:
        _switches, why = self._switches(shape)
        why += wrong_numbers(self.room, shape)
        at = fullest(self.room, shape, [cell.node for cell in old.cells] if old else [])
        if at is None:
            why += on_no_node(self.room, shape)
        if why or at is None:
            return Refused(shape, spelled(shape, why))
        cells = cells_of(self.room, shape, {at: 1}, old.cells if old else ())
        return self._told(Placed(shape, (), cells), old)

    def _told(self, new: Placed, old: Placed | None) -> Placed:
        """The same, and a word about what an existing guest loses and gets."""
        if old is None:
            return new
        before, after = ({one.address for one in placed.devices} for placed in (old, new))
        news = [f"Keeps {len(before & after)} of its {counted(len(before), 'device')}."]
        for address in sorted(before - after):
            why = self.stock.why_not(address, new.shape.name)
            news.append(f"Gives up {address}{', which ' + why if why else ''}.")
        news += [f"Gets {address}." for address in sorted(after - before)]
        self.news[new.shape.name] = news if before != after else []
        return new

    # NVSwitches ----------------------------------------------------------------------------

    def _partition(self, shape: Shape) -> tuple[Address, ...] | None:
        """The only GPUs that a guest may have; None: any. An unknown partition has none."""
        return (
            None
            if shape.nvswitches in (ALL, NONE)
            else tuple(self.stock.selection.partitions.get(shape.nvswitches, ()))
        )

    def _switches(self, shape: Shape) -> tuple[tuple[Function, ...], list[Why]]:
        """The NVSwitches of a guest, or why it cannot have what it asks for."""
        if shape.nvswitches == NONE:
            return (), []
        if shape.nvswitches != ALL:
            return (), self._wrong_partition(shape)
        switches, why = self.stock.switches, []
        if not switches:
            why.append(("asks for all NVSwitches, and the host has none", "Take nvswitches: none."))
        if shape.gpus != len(self.stock.gpus):
            fact = f"asks for all NVSwitches with {counted(shape.gpus, 'GPU')}, and the host has {len(self.stock.gpus)}"
            advice = "NVSwitches go to a guest with all GPUs of its host. Take a Fabric Manager partition, or none."
            why.append((fact, advice))
        for one in switches:
            taken = self.stock.why_not(one.address, shape.name)
            if taken:
                fact = f"asks for all NVSwitches, and {one.address} {taken}"
                why.append((fact, "Free it, or take nvswitches: none."))
        return switches, why

    def _wrong_partition(self, shape: Shape) -> list[Why]:
        partitions = self.stock.selection.partitions
        gpus = partitions.get(shape.nvswitches)
        if gpus is None:
            known = ", ".join(sorted(partitions, key=lambda one: (len(one), one))) or "none"
            fact = f"asks for Fabric Manager partition {shape.nvswitches}, which is not known (known: {known})"
            return [(fact, "Correct nvswitches, or give the table of partitions as Fabric Manager lists it (fmpm -l).")]
        if len(gpus) != shape.gpus:
            fact = f"asks for {counted(shape.gpus, 'GPU')}, and partition {shape.nvswitches} has {len(gpus)}"
            return [(fact, "Take a partition of that size, or as many GPUs as it has.")]
        return []

    # When all are placed -------------------------------------------------------------------

    def _finished(self, placed: Placed) -> Placed:
        """With CPUs for QEMU's own threads, of what all guests leave, and with notes."""
        name, old = placed.shape.name, self.had.get(placed.shape.name)
        if placed is not old:
            cpus = emulator_of(self.room, placed.cells, old.emulator if old else ())
            self.room.take(name, (), cpus)
            placed = replace(placed, emulator=cpus)
        return replace(placed, notes=(*self.news.get(name, ()), *self._notes(placed)))

    def _notes(self, placed: Placed) -> list[str]:
        """What is less good than it could be."""
        gpus = self._gpus_of(placed)
        notes = distance_notes(self.pairing, gpus, self._vfs_of(placed))
        notes += [
            f"The host does not tell the NUMA node of GPU {one.address}."
            for one in by_part(placed, Part.GPU)
            if one.node is None
        ]
        notes += cell_notes(placed.shape, placed.cells, _share(placed.devices, placed.cells))
        notes += self._idle(placed)
        if placed.shape.nvswitches == NONE and len(gpus) == len(self.stock.gpus) > 1 and self.stock.switches:
            notes.append("It has all GPUs and no NVSwitch, so its GPUs have no NVLink to each other.")
        if not placed.emulator:
            notes.append("No core of its NUMA nodes is left for QEMU's own threads.")
        return notes

    def _idle(self, placed: Placed) -> list[str]:
        """What no other guest can have, since it shares a group with a device of this one."""
        mine, notes = {one.address for one in placed.devices}, {}
        for given in placed.devices:
            one = self.stock.machine.tree.get(given.address)
            for other in self.stock.companions(one) if one else ():
                if other.address in self.stock.chosen and other.address not in mine:
                    notes[other.address] = (
                        f"{other.address} goes to no other guest: it shares IOMMU group {other.iommu_group} with {given.address}."
                    )
        return [notes[address] for address in sorted(notes)]


def _share(devices: Sequence[Given], cells: Sequence[Cell]) -> Share:
    """GPUs by node; where none is told, the guest's own nodes alike."""
    counts = Counter(one.node for one in devices if one.part is Part.GPU and one.node is not None)
    return {node: count for node, count in counts.items() if node is not None} or {cell.node: 1 for cell in cells}
