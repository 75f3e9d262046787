# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which guests a host has in this round, and each of them as a model: by what is wanted, what is there, and what is on record. Pure.

``libvirt_guest`` and ``guest_image`` both ask here, so that a guest's domain and what it is told of itself cannot disagree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Union

from .. import placement
from ..assign.choice import candidates
from ..core.errors import GpudirectError, Problem
from ..early.files import is_vfio
from ..pci.tree import Function
from . import capacity, complaints, converged, record, resources
from .changes import is_ours, stranger
from .found import Current, devices_of
from .intent import Wish
from .model import Guest, model_of
from .options import Disk, Firmware, Network, Options, Topology
from .pending import pending
from .placed import Given, Part, Placed, Refused, Shape
from .refusal import sentence
from .wanted import GONE, Desired

Records = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Modelled:
    """A guest of this round."""

    wish: Wish
    placed: Placed
    guest: Guest


@dataclass(frozen=True)
class Round:
    """The guests of a round by name; those that wait for another resource, with which and why; and what cannot be."""

    guests: tuple[Modelled, ...] = ()
    placed: tuple[Placed, ...] = ()
    waiting: tuple[str, ...] = ()
    waits_for: str = ""
    why: str = ""
    refused: tuple[Problem, ...] = ()


def untold(current: Current) -> Union[tuple[str, str], None]:
    """What a host has to have before anything can be said of its guests, and why; None: it has it."""
    if not current.live:
        return "the running host", "guests are told by the running libvirt only; this is a captured tree"
    return ("kvm", current.without) if current.without else None


def going(desired: Desired, current: Current, records: Records) -> list[str]:
    """The guests that are to be no more."""
    kept = {wish.shape.name for wish in desired.present}
    asked = {wish.shape.name for wish in desired.guests.wishes if wish.rest["state"] == GONE}
    return sorted(({*records} | {name for name in asked if name in current.domains}) - kept)


def round_of(desired: Desired, current: Current, records: Records) -> Round:
    """The guests that can be there now."""
    return _Round(desired, current, records).whole()


def never(desired: Desired, current: Current, records: Records) -> tuple[Problem, ...]:
    """What speaks against new guests of a host that has no libvirt yet, whatever the run brings."""
    return _Round(desired, current, records).never() if current.without else ()


def placements(desired: Desired, current: Current, records: Records) -> Round:
    """The same without models: where guests are or would be placed, also on a host of which libvirt tells nothing."""
    return _Round(desired, current, records).placed()


@dataclass
class _Round:
    """All guests of a host while they are placed."""

    desired: Desired
    current: Current
    records: Records
    refused: list[Problem] = field(default_factory=list)

    def whole(self) -> Round:
        """Those that are placed, each as a model."""
        found = self.placed()
        wishes = {wish.shape.name: wish for wish in self.desired.present}
        made = [self._made(wishes[one.shape.name], one) for one in found.placed]
        return replace(found, guests=tuple(one for one in made if one is not None), refused=tuple(self.refused))

    def placed(self) -> Round:
        """Those that are on record, and new ones once earlier resources have done their part."""
        return self._decided({wish.shape.name: wish for wish in self.desired.present if self._may_be(wish)})

    def never(self) -> tuple[Problem, ...]:
        """What can be said against new guests of a host without libvirt: of others only libvirt knows whether they run."""
        new = [wish for wish in self.desired.present if wish.shape.name not in self.records]
        return self._decided({wish.shape.name: wish for wish in new if self._may_be(wish)}).refused

    def _decided(self, wishes: Mapping[str, Wish]) -> Round:
        """Where these guests are placed, and who waits: new guests, and those on record that do not fit as things are.

        While earlier resources have something to do, nobody is placed on what may go with it, nor refused for what may come.
        """
        self.refused += converged.not_reservable(self.desired, self.current)
        waits = pending(self.desired, self.current)
        new = [name for name in wishes if name not in self.records] if waits else []
        others = {name: wish for name, wish in wishes.items() if name not in new}
        answers = self._answers(others)
        refused = [one for one in answers if isinstance(one, Refused)]
        waiting = self._not_hopeless(sorted([*new, *(one.shape.name for one in refused if waits)]), others)
        if not waits:
            self.refused += [sentence(others[one.shape.name].path, why) for one in refused for why in one.reasons]
        resource, why = waits[0] if waiting else ("", "")
        placed = tuple(one for one in answers if isinstance(one, Placed))
        return Round((), placed, waiting, resource, why, tuple(self.refused))

    def _not_hopeless(self, names: Sequence[str], others: Mapping[str, Wish]) -> tuple[str, ...]:
        """Those of some guests that wait; the rest are refused, since no resource brings what they lack."""
        refused = capacity.hopeless(self.desired, self.current, names, self._on_record(others))
        self.refused += [problem for name in names for problem in refused.get(name, ())]
        return tuple(name for name in names if name not in refused)

    def _may_be(self, wish: Wish) -> bool:
        """Whether nothing speaks against a guest before it is placed."""
        name, problems = wish.shape.name, []
        there, kept = self.current.domains.get(name), self.records.get(name)
        if there is not None and not is_ours(there) and (kept is None or there.active):
            problems.append(stranger(f"{wish.path}.name", name))
        if kept is not None:
            problems += self._lost(wish, record.placed_in(name, kept))
        self.refused += problems
        return not problems

    def _lost(self, wish: Wish, placed: Placed) -> list[Problem]:
        """Devices of a guest that it cannot have any more. It is not moved to others for that unless somebody says so."""
        found_ = []
        if placed.shape != wish.shape:
            return []
        for one in placed.devices:
            function = self.current.machine.tree.get(one.address)
            if str(one.address) in self.desired.replaced:
                continue
            if function is None:
                fact = f"{one.address} ({one.part.value}), which the guest has, is not in this host"
                advice = (
                    "See the kernel's log; when it was taken out on purpose, put its address into gpudirect_replaced."
                )
                found_.append(Problem(f"{record.path_of(wish.shape.name)}.devices", fact, advice))
            elif not _on_vfio(function) and one.address not in candidates(
                self.desired.drivers, self.current.machine.tree
            ):
                fact = f"{one.address} ({one.part.value}), which the guest has, is not on vfio-pci"
                advice = "Name it in pci_driver_devices with driver: vfio-pci, and run again."
                driver = function.driver if isinstance(function.driver, str) else "none"
                path = f"{record.path_of(wish.shape.name)}.devices"
                found_.append(Problem(path, fact, advice, found=f"driver {driver}", wanted="driver vfio-pci"))
        return found_

    def _answers(self, wishes: Mapping[str, Wish]) -> list[Union[Placed, Refused]]:
        """What placement says of guests on this host as it is."""
        ours = self._on_record(wishes)
        running = [one for one in ours if self._runs(one.shape.name)]
        leaving = [
            record.placed_in(name, self.records[name])
            for name in going(self.desired, self.current, self.records)
            if name in self.records
        ]
        nodes = resources.given_back(
            self.current.nodes, [one for one in (*running, *leaving) if self._runs(one.shape.name)]
        )
        guests = self.desired.guests
        selection = placement.selection_of(self.current.machine, self.desired.paths, self.desired.pools)
        answers = placement.place(
            self.current.machine, nodes, [wish.shape for wish in wishes.values()], [*ours, *self._strangers()],
            placement.Selection(selection.gpus, selection.vfs, selection.nvswitches, partitions=guests.partitions),
            reserved=guests.reserved, max_distance=guests.max_distance,
        )  # fmt: skip
        return sorted(answers, key=lambda one: one.shape.name)

    def _on_record(self, wishes: Mapping[str, Wish]) -> list[Placed]:
        """What guests that stay have, those too that something speaks against.

        A run that was cut off may have put a device on record for its new guest before the guest that gives it up.
        """
        kept = {wish.shape.name for wish in self.desired.present}
        ours = [record.placed_in(name, one) for name, one in sorted(self.records.items()) if name in kept]
        settled = [one for one in ours if one.shape.name not in wishes or one.shape == wishes[one.shape.name].shape]
        taken = {given.address for one in settled for given in one.devices}
        return [
            one
            if one in settled
            else replace(one, devices=tuple(one_ for one_ in one.devices if one_.address not in taken))
            for one in ours
        ]

    def _runs(self, name: str) -> bool:
        there = self.current.domains.get(name)
        return there is not None and there.active

    def _strangers(self) -> list[Placed]:
        """The devices of domains that are not ours, which they keep."""
        found_ = []
        for name, thing in self.current.domains.items():
            if name not in self.records and not is_ours(thing):
                devices = {*devices_of(thing.inactive), *devices_of(thing.live)}
                given = tuple(Given(Part.GPU, one) for one in sorted(devices))
                found_.append(Placed(Shape(f"{name} (not ours)", 0), given, ()))
        return found_

    def _made(self, wish: Wish, placed: Placed) -> Union[Modelled, None]:
        """A guest as a model; None for one that cannot be, which is told."""
        try:
            return Modelled(wish, placed, model_of(self.current.machine, placed, self._options(wish)))
        except GpudirectError as error:
            self.refused += error.problems
            return None

    def _options(self, wish: Wish) -> Options:
        rest, files = wish.rest, self.desired.files_of(wish)
        there = self.current.domains.get(wish.shape.name)
        return Options(
            topology=Topology(rest["topology"]),
            firmware=Firmware(rest["firmware"]),
            emulator=self.desired.emulator,
            disk=Disk(files.disk),
            seed=files.seed,
            network=self._network(wish),
            # Beside libvirt's own log of the guest, and rotated by it; both stay when the guest goes.
            console_log=f"{complaints.FOLDER}/{wish.shape.name}-console.log",
            uuid=there.uuid if there is not None else "",
            address_bits=self.current.address_bits,
        )

    def _network(self, wish: Wish) -> Union[Network, None]:
        name, mac = wish.rest["network"], wish.rest["mac"] or ""
        if not name:
            return None
        if name in self.desired.networks or name in self.current.networks:
            return Network(name=name, mac=mac)
        if name in self.current.bridges:
            return Network(bridge=name, mac=mac)
        advice = "Name one of guest_networks, another network of libvirt, or a bridge that is there."
        raise _Unknown([Problem(f"{wish.path}.network", "is neither a network nor a bridge", advice, found=repr(name))])


class _Unknown(GpudirectError):
    """A name that the host does not know."""


def _on_vfio(function: Function) -> bool:
    return isinstance(function.driver, str) and is_vfio(function.driver)
