# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far GPUs are from NICs, and which VF goes with which GPU of a guest. Pure.

VFs are given from the nearest NICs outwards. "As near as" splits a host into parts, and these into smaller parts, so giving all that is
possible at each distance before the next one gives the nearest VFs in all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..path.finding import Kind
from ..path.routes import Routes
from ..pci.address import Address
from ..pci.tree import Function
from .placed import Given, Part, Shape
from .stock import Stock

_WORDS = {
    Kind.PHB: "below another root port of the same host bridge",
    Kind.NODE: "below another host bridge of the same NUMA node",
    Kind.SYS: "on another NUMA node",
    Kind.UNKNOWN: "at a distance that is not known",
}


@dataclass
class Pairing:
    """The distances of one host, each found once, and VFs for its guests."""

    stock: Stock
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

    def supply(self, guest: str) -> dict[Address, int]:
        """VFs of each NIC that a guest can have."""
        return {nic: sum(self.stock.is_free(vf, guest) for vf in vfs) for nic, vfs in sorted(self.stock.nics.items())}

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


def node_of(function: Function) -> int | None:
    """The NUMA node that the host tells of a function, if it does."""
    return function.numa_node if isinstance(function.numa_node, int) else None


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
        devices.append(Given(Part.GPU, gpu.address, node_of(gpu)))
        mine = sorted(vfs.get(gpu.address, ()), key=lambda vf: vf.address)
        devices += [Given(Part.VF, vf.address, node_of(vf), gpu.address) for vf in mine]
    devices += [Given(Part.NVSWITCH, one.address, node_of(one)) for one in switches]
    return tuple(devices)
