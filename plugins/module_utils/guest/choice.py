# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs a guest gets. Pure.

GPUs below one bridge are alike, so what is chosen is how many of each bridge. Every such choice is weighed (a few dozen on real hosts),
so that the best one is found and not only a good one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from ..path.finding import Kind
from ..pci.address import Address
from ..pci.tree import Function
from .pairing import Pairing, node_of
from .placed import Shape
from .room import Room, Share, shortages

MOST = 20000  # choices that are weighed; beyond, lower addresses are tried only

Cost = tuple[Any, ...]
Numbers = tuple[int, ...]  # GPUs by their place in the list of free ones
_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True)
class Choice:
    """GPUs for a guest, how many are on which NUMA node, and whether CPUs and memory suffice there."""

    gpus: tuple[Function, ...]
    share: Share
    fits: bool


def best(
    pairing: Pairing, room: Room, shape: Shape, only: Sequence[Address] | None, kept: frozenset[Address]
) -> Choice | None:
    """The best GPUs for a guest; None: there are too few, or too few VFs near enough.

    ``only`` are those of a partition. ``kept`` are those that the guest has, which it keeps where it can.
    """
    free = tuple(
        one
        for one in pairing.stock.gpus
        if pairing.stock.is_free(one, shape.name) and (only is None or one.address in only)
    )
    if len(free) < shape.gpus:
        return None
    weigher = _Weigher(pairing, room, shape, free, kept)
    choices = islice(_choices(weigher.bunches(), shape.gpus), MOST)
    costs = [cost for cost in map(weigher.cost, choices) if cost is not None]
    if not costs:
        return None
    least = min(costs)
    numbers: Numbers = least[-1]
    return Choice(tuple(free[one] for one in numbers), weigher.share(numbers), not least[0])


def _choices(bunches: Sequence[Numbers], wanted: int) -> Iterator[Numbers]:
    """All ways to take so many GPUs of bunches."""
    if not wanted:
        yield ()
    elif sum(map(len, bunches)) >= wanted:
        for count in range(min(wanted, len(bunches[0])), -1, -1):
            for rest in _choices(bunches[1:], wanted - count):
                yield bunches[0][:count] + rest


@dataclass
class _Weigher:
    """What makes one choice of GPUs dearer than another, for one guest."""

    pairing: Pairing
    room: Room
    shape: Shape
    free: tuple[Function, ...]
    kept: frozenset[Address]
    # By number of a free GPU.
    _kept: list[bool] = field(init=False)
    _places: list[Address | str] = field(init=False)
    _nodes: list[int | None] = field(init=False)
    _mates: list[frozenset[int]] = field(init=False)  # free GPUs in its group
    _near: list[list[Numbers]] = field(init=False)  # by distance: NICs by their place in the supply
    # GPUs by place and by node.
    _all_at: dict[Any, int] = field(init=False)
    _free_at: dict[Any, int] = field(init=False)
    _supply: list[int] = field(init=False)
    _partitions: list[frozenset[int]] = field(init=False)  # that could still be given whole
    _short: dict[tuple[tuple[int, int], ...], bool] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Look at each free GPU once."""
        pairing, stock = self.pairing, self.pairing.stock
        numbers = {gpu.address: number for number, gpu in enumerate(self.free)}
        self._kept = [gpu.address in self.kept for gpu in self.free]
        self._places = [pairing.place(gpu) for gpu in self.free]
        self._nodes = [node_of(gpu) for gpu in self.free]
        self._mates = [
            frozenset(numbers[other.address] for other in stock.companions(gpu) if other.address in numbers)
            for gpu in self.free
        ]
        self._all_at = _counted([key for gpu in stock.gpus for key in (pairing.place(gpu), node_of(gpu))])
        self._free_at = _counted([*self._places, *self._nodes])
        supply = pairing.supply(self.shape.name)
        self._supply = list(supply.values())
        order = {nic: number for number, nic in enumerate(supply)}
        self._near = [
            [
                tuple(order[nic] for nic in pairing.nics(gpu).get(kind, ())) if pairing.allows(kind) else ()
                for kind in Kind
            ]
            for gpu in self.free
        ]
        partitions = [one for one in stock.selection.partitions.values() if all(gpu in numbers for gpu in one)]
        self._partitions = [frozenset(numbers[gpu] for gpu in one) for one in partitions]

    def bunches(self) -> list[Numbers]:
        """GPUs that are alike: below one bridge, in the same partitions, in one group or in groups without another GPU.

        Those that the guest has come first.
        """
        alike: dict[tuple[Any, ...], list[int]] = {}
        for number, gpu in enumerate(self.free):
            group = gpu.iommu_group if self._mates[number] else None
            parts = tuple(number in one for one in self._partitions)
            key = (gpu.parent, gpu.root_bus, self._places[number], self._nodes[number], group, parts)
            alike.setdefault(key, []).append(number)
        return [tuple(sorted(one, key=lambda number: (not self._kept[number], number))) for one in alike.values()]

    def cost(self, chosen: Numbers) -> Cost | None:
        """What a choice costs, the weightiest part first, the choice itself last; None: VFs are too few or too far.

        CPUs and memory suffice; what a guest has it keeps; VFs are near; no GPU is lost to a shared group; few nodes and few switches;
        no whole partition, node or switch is begun that stays unfinished; what is begun is used up; low addresses.
        """
        near = self._distances(chosen)
        if near is None:
            return None
        places = _counted([self._places[one] for one in chosen])
        nodes = _counted([self._nodes[one] for one in chosen])
        return (
            self._is_short(chosen),
            -sum(self._kept[one] for one in chosen),
            near,
            len(frozenset().union(*(self._mates[one] for one in chosen)).difference(chosen)),
            len(nodes),
            len(places),
            self._broken_partitions(chosen),
            self._begun(nodes),
            self._begun(places),
            self._left(nodes),
            self._left(places),
            tuple(sorted(chosen)),
        )

    def share(self, chosen: Numbers) -> Share:
        """GPUs by node. One whose node is not told counts to the nodes of the others, or to the fullest."""
        known = _counted([node for node in (self._nodes[one] for one in chosen) if node is not None])
        if known:
            return known
        page = self.shape.page_mib
        fullest = max(self.room.cores, key=lambda node: (self.room.free_pages(node, page), -node), default=0)
        return {fullest: len(chosen)}

    def _distances(self, chosen: Numbers) -> Numbers | None:
        """How many VFs are how far, farthest first; None: there are too few near enough."""
        left, counts = self._supply.copy(), []
        wanted = [(one, self.shape.vfs_per_gpu) for one in sorted(chosen) if self.shape.vfs_per_gpu]
        for kind in Kind:
            given, still = 0, []
            for gpu, lacks in wanted:
                lacking = lacks
                for nic in self._near[gpu][kind]:
                    got = min(lacking, left[nic])
                    left[nic] -= got
                    lacking -= got
                given += lacks - lacking
                if lacking:
                    still.append((gpu, lacking))
            wanted = still
            counts.append(given)
        return None if wanted else tuple(reversed(counts))

    def _is_short(self, chosen: Numbers) -> bool:
        share = self.share(chosen)
        key = tuple(sorted(share.items()))
        if key not in self._short:
            self._short[key] = bool(shortages(self.room, self.shape, share))
        return self._short[key]

    def _broken_partitions(self, chosen: Numbers) -> int:
        """GPUs of partitions that could not be given whole any more."""
        return sum(len(one) for one in self._partitions if 0 < len(one.intersection(chosen)) < len(one))

    def _begun(self, counts: Mapping[Any, int]) -> int:
        """Places all of whose GPUs are free, and of which only some would be taken."""
        return sum(self._free_at[one] == self._all_at[one] > count for one, count in counts.items())

    def _left(self, counts: Mapping[Any, int]) -> int:
        """GPUs that would be left in these places."""
        return sum(self._free_at[one] - count for one, count in counts.items())


def _counted(keys: Iterable[_Key]) -> dict[_Key, int]:
    counts: dict[_Key, int] = {}
    for key in keys:
        counts[key] = counts.get(key, 0) + 1
    return counts
