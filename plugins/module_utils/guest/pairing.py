# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs a guest gets, and which VF goes with which GPU. Pure.

GPUs below one bridge are alike, so what is chosen is how many of each bridge. Every such choice is weighed (a few dozen on real
hosts), so the best one is found and not only a good one. VFs are given from the nearest NICs outwards; since "as near as" splits a host
into parts, and these into smaller parts, giving all that is possible at each distance before the next gives the nearest VFs in all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from ..path.finding import Kind
from ..path.routes import Routes
from ..pci.address import Address
from ..pci.tree import Function
from .placed import Given, Part, Shape
from .room import Room, Share, shortages
from .stock import Stock

_WORDS = {
    Kind.PHB: "below another root port of the same host bridge",
    Kind.NODE: "below another host bridge of the same NUMA node",
    Kind.SYS: "on another NUMA node",
    Kind.UNKNOWN: "at a distance that is not known",
}
_MOST = 20000  # choices that are weighed; beyond, lower addresses are tried only
Cost = tuple[Any, ...]
_Key = TypeVar("_Key")


@dataclass(frozen=True)
class Bunch:
    """The free GPUs below one bridge; those that share a group are a bunch of their own. ``place`` is what it is a part of."""

    place: Address | str
    node: int | None
    free: tuple[Function, ...]


@dataclass(frozen=True)
class Choice:
    """GPUs for a guest, the shares of NUMA nodes that follow, and how dear it is."""

    gpus: tuple[Function, ...]
    share: Share
    cost: Cost
    fits: bool


@dataclass
class Pairing:
    """Choices for guests of one host, as long as nothing is taken."""

    stock: Stock
    room: Room
    limit: Kind
    routes: Routes
    _at: dict[Address, dict[Kind, list[Address]]] = field(init=False, default_factory=dict)  # by GPU: NICs by distance
    _places: dict[Address, Address | str] = field(init=False, default_factory=dict)

    def kind(self, gpu: Function, nic: Address) -> Kind:
        """How far a GPU is from a NIC."""
        return next(kind for kind, nics in self.nics(gpu).items() if nic in nics)

    def nics(self, gpu: Function) -> Mapping[Kind, Sequence[Address]]:
        """The NICs by how far they are from a GPU, each list by address."""
        if gpu.address not in self._at:
            found: dict[Kind, list[Address]] = {}
            for nic in sorted(self.stock.nics):
                found.setdefault(self.routes.between(gpu, self.stock.pf(nic)).kind, []).append(nic)
            self._at[gpu.address] = found
        return self._at[gpu.address]

    def allows(self, kind: Kind) -> bool:
        """Whether the site takes a VF at this distance. Where anything goes, what is not known does too."""
        return kind <= self.limit or (kind == Kind.UNKNOWN and self.limit >= Kind.SYS)

    def place(self, gpu: Function) -> Address | str:
        """The switch that a GPU is below: the upper end of the nearest one, or where there is none its root port or root bus."""
        if gpu.address not in self._places:
            above = self.routes.above(gpu)
            self._places[gpu.address] = above[min(1, len(above) - 1)] if above else gpu.root_bus
        return self._places[gpu.address]

    # GPUs ---------------------------------------------------------------------------------

    def best(self, shape: Shape, only: Sequence[Address] | None, kept: frozenset[Address]) -> Choice | None:
        """The best GPUs for a guest; None: there are too few, or too few VFs near enough."""
        free = [
            one
            for one in self.stock.gpus
            if self.stock.is_free(one, shape.name) and (only is None or one.address in only)
        ]
        if len(free) < shape.gpus:
            return None
        weigher = _Weigher(self, shape, free, kept)
        choices = (weigher.weighed(gpus) for gpus in islice(_choices(self._bunches(free, kept), shape.gpus), _MOST))
        return min((one for one in choices if one is not None), key=lambda one: one.cost, default=None)

    def _bunches(self, free: Sequence[Function], kept: frozenset[Address]) -> list[Bunch]:
        """Kept GPUs come first in their bunch, then those whose group has no other GPU that would be lost."""
        alike: dict[tuple[object, ...], list[Function]] = {}
        known = {one.address for one in free}
        for gpu in free:
            shared = any(other.address in known for other in self.stock.companions(gpu))
            key = (gpu.parent, gpu.root_bus, self.place(gpu), gpu.iommu_group if shared else None)
            alike.setdefault(key, []).append(gpu)
        bunches = []
        for members in alike.values():
            members.sort(key=lambda one: (one.address not in kept, one.address))
            bunches.append(Bunch(self.place(members[0]), _node(members[0]), tuple(members)))
        return sorted(bunches, key=lambda one: min(gpu.address for gpu in one.free))

    # VFs ----------------------------------------------------------------------------------

    def supply(self, guest: str) -> dict[Address, int]:
        """VFs of each NIC that a guest can have."""
        return {nic: sum(self.stock.is_free(vf, guest) for vf in vfs) for nic, vfs in sorted(self.stock.nics.items())}

    def distances(
        self, gpus: Sequence[Function], per_gpu: int, supply: Mapping[Address, int]
    ) -> tuple[int, ...] | None:
        """How many VFs are how far, farthest first; None: there are too few near enough."""
        left, counts = dict(supply), []
        wanted = [(gpu, per_gpu) for gpu in gpus if per_gpu]
        for kind in Kind:
            given, still = 0, []
            for gpu, lacks in wanted if self.allows(kind) else ():
                lacking = lacks
                for nic in self.nics(gpu).get(kind, ()):
                    got = min(lacking, left[nic])
                    left[nic] -= got
                    lacking -= got
                given += lacks - lacking
                still += [(gpu, lacking)] if lacking else []
            wanted = still if self.allows(kind) else wanted
            counts.append(given)
        return None if wanted else tuple(reversed(counts))

    def vfs(self, shape: Shape, gpus: Sequence[Function], kept: Sequence[Given]) -> dict[Address, list[Function]]:
        """VFs by GPU. One of each GPU in turn, from the nearest NICs, the least used first."""
        given: dict[Address, list[Function]] = {gpu.address: [] for gpu in gpus}
        dealer = _Dealer(self, shape, gpus)
        for one in kept:
            if one.beside in given and len(given[one.beside]) < shape.vfs_per_gpu:
                given[one.beside] += dealer.again(one)
        for kind in Kind:
            if not self.allows(kind):
                continue
            for turn in range(1, shape.vfs_per_gpu + 1):
                for gpu in gpus:
                    if len(given[gpu.address]) < turn:
                        given[gpu.address] += dealer.dealt(gpu, kind, given[gpu.address])
        return given


def _choices(bunches: Sequence[Bunch], wanted: int) -> Iterator[tuple[Function, ...]]:
    """All ways to take so many GPUs of bunches."""
    if not wanted:
        yield ()
    elif sum(len(one.free) for one in bunches) >= wanted:
        for count in range(min(wanted, len(bunches[0].free)), -1, -1):
            for rest in _choices(bunches[1:], wanted - count):
                yield (*bunches[0].free[:count], *rest)


def _node(function: Function) -> int | None:
    return function.numa_node if isinstance(function.numa_node, int) else None


@dataclass
class _Weigher:
    """What makes one choice of GPUs dearer than another, for one guest."""

    pairing: Pairing
    shape: Shape
    free: Sequence[Function]
    kept: frozenset[Address]
    supply: dict[Address, int] = field(init=False)
    all_at: dict[object, int] = field(init=False, default_factory=dict)  # GPUs of the host by place and by node
    free_at: dict[object, int] = field(init=False, default_factory=dict)
    _short: dict[tuple[tuple[int, int], ...], bool] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Count what is free and what there is."""
        self.supply = self.pairing.supply(self.shape.name)
        for gpus, counts in ((self.pairing.stock.gpus, self.all_at), (self.free, self.free_at)):
            for gpu in gpus:
                for place in (self.pairing.place(gpu), _node(gpu)):
                    counts[place] = counts.get(place, 0) + 1

    def weighed(self, gpus: tuple[Function, ...]) -> Choice | None:
        """A choice with its cost, the weightiest part first; None: VFs are too few or too far.

        What a guest has it keeps. Then: CPUs and memory suffice; VFs are near; few nodes and few switches; no whole partition, node or
        switch is begun that stays unfinished; what is begun is used up; low addresses.
        """
        gpus = tuple(sorted(gpus, key=lambda one: one.address))
        share = self.share(gpus)
        near = self.pairing.distances(gpus, self.shape.vfs_per_gpu, self.supply)
        if near is None:
            return None
        fits = not self._is_short(share)
        places = _counted(self.pairing.place(gpu) for gpu in gpus)
        nodes = _counted(_node(gpu) for gpu in gpus)
        cost = (
            not fits,
            -sum(gpu.address in self.kept for gpu in gpus),
            near,
            self._lost(gpus),
            len(nodes),
            len(places),
            self._broken_partitions(gpus),
            self._begun(nodes),
            self._begun(places),
            self._left(nodes),
            self._left(places),
            tuple(gpu.address for gpu in gpus),
        )
        return Choice(gpus, share, cost, fits)

    def share(self, gpus: Sequence[Function]) -> Share:
        """GPUs by node. One whose node is not told counts to the nodes of the others, or to the fullest."""
        known = _counted(node for node in map(_node, gpus) if node is not None)
        if known:
            return known
        room, page = self.pairing.room, self.shape.page_mib
        best = max(room.cores, key=lambda node: (room.free_pages(node, page), -node), default=0)
        return {best: max(1, len(gpus))}

    def _is_short(self, share: Share) -> bool:
        key = tuple(sorted(share.items()))
        if key not in self._short:
            self._short[key] = bool(shortages(self.pairing.room, self.shape, share))
        return self._short[key]

    def _lost(self, gpus: Sequence[Function]) -> int:
        """GPUs that nobody can have, since they share a group with one of these."""
        chosen = {gpu.address for gpu in gpus}
        free = {gpu.address for gpu in self.free}
        return sum(
            other.address in free and other.address not in chosen
            for gpu in gpus
            for other in self.pairing.stock.companions(gpu)
        )

    def _broken_partitions(self, gpus: Sequence[Function]) -> int:
        """GPUs of partitions that could still be given whole, and could not any more."""
        free, chosen = {gpu.address for gpu in self.free}, {gpu.address for gpu in gpus}
        partitions = [set(one) for one in self.pairing.stock.selection.partitions.values()]
        return sum(len(one) for one in partitions if one <= free and one & chosen and not one <= chosen)

    def _begun(self, counts: Mapping[Any, int]) -> int:
        """Places all of whose GPUs are free, and of which only some would be taken."""
        return sum(self.free_at[one] == self.all_at[one] > count for one, count in counts.items())

    def _left(self, counts: Mapping[Any, int]) -> int:
        """GPUs that would be left in these places."""
        return sum(self.free_at[one] - count for one, count in counts.items())


def _counted(keys: Iterable[_Key]) -> dict[_Key, int]:
    counts: dict[_Key, int] = {}
    for key in keys:
        counts[key] = counts.get(key, 0) + 1
    return counts


@dataclass
class _Dealer:
    """VFs while they are dealt to the GPUs of one guest."""

    pairing: Pairing
    shape: Shape
    gpus: Sequence[Function]
    _free: dict[Address, list[Function]] = field(init=False)
    _load: dict[Address, int] = field(init=False)

    def __post_init__(self) -> None:
        """The free VFs of each NIC, those first that nobody else loses."""
        stock, mine = self.pairing.stock, {gpu.address for gpu in self.gpus}
        lost = {
            vf.address: sum(other.address not in mine for other in stock.companions(vf))
            for vfs in stock.nics.values()
            for vf in vfs
        }
        self._free = {
            nic: sorted(
                (vf for vf in vfs if stock.is_free(vf, self.shape.name)), key=lambda vf: (lost[vf.address], vf.address)
            )
            for nic, vfs in stock.nics.items()
        }
        self._load = {nic: stock.load(nic, self.shape.name) for nic in stock.nics}

    def again(self, given: Given) -> list[Function]:
        """A VF that the guest has already; nothing where it cannot have it any more."""
        for nic, vfs in self._free.items():
            for vf in vfs:
                gpu = next(one for one in self.gpus if one.address == given.beside)
                if vf.address == given.address and self.pairing.allows(self.pairing.kind(gpu, nic)):
                    return [self._taken(nic, vf)]
        return []

    def dealt(self, gpu: Function, kind: Kind, has: Sequence[Function]) -> list[Function]:
        """One more VF for a GPU at a distance; nothing where there is none.

        Another card before another port, another port before another VF: each has a bandwidth of its own. Then what others use least.
        """
        nics = [nic for nic in self.pairing.nics(gpu).get(kind, ()) if self._free[nic]]
        if not nics:
            return []
        own = [one.physfn or one.address for one in has]

        def use(nic: Address) -> tuple[int, int, int, int, Address]:
            cards = [other for other in self._load if _card(other) == _card(nic)]
            return (
                sum(_card(one) == _card(nic) for one in own),
                own.count(nic),
                sum(self._load[other] for other in cards),
                self._load[nic],
                nic,
            )

        nic = min(nics, key=use)
        return [self._taken(nic, self._free[nic][0])]

    def _taken(self, nic: Address, vf: Function) -> Function:
        self._free[nic].remove(vf)
        self._load[nic] += 1
        return vf


def _card(nic: Address) -> tuple[int, int, int]:
    return (nic.domain, nic.bus, nic.device)


def distance_notes(
    pairing: Pairing, gpus: Sequence[Function], given: Mapping[Address, Sequence[Function]]
) -> list[str]:
    """The VFs that are not below one switch with their GPU, in sentences."""
    notes = []
    for gpu in gpus:
        for vf in given[gpu.address]:
            kind = pairing.kind(gpu, vf.physfn or vf.address)
            if kind in _WORDS:
                notes.append(
                    f"VF {vf.address} is not behind one switch with its GPU {gpu.address}, but {_WORDS[kind]}."
                )
    return notes


def given_of(
    gpus: Sequence[Function], vfs: Mapping[Address, Sequence[Function]], switches: Sequence[Function]
) -> tuple[Given, ...]:
    """The devices of a guest in order: each GPU with its VFs, then NVSwitches."""
    devices: list[Given] = []
    for gpu in gpus:
        devices.append(Given(Part.GPU, gpu.address, _node(gpu)))
        mine = sorted(vfs.get(gpu.address, ()), key=lambda vf: vf.address)
        devices += [Given(Part.VF, vf.address, _node(vf), gpu.address) for vf in mine]
    devices += [Given(Part.NVSWITCH, one.address, _node(one)) for one in switches]
    return tuple(devices)
