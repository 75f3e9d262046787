# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests of a host: placed, defined in libvirt, and running where they are to run.

What a guest gets is decided by ``placement`` and kept on record, its domain is made by ``guest/model`` and ``guest/domain_xml``. Two
stores: the definition, and the domain that runs. A running guest keeps what it has until it is restarted, which only
happens with ``gpudirect_allow: guest``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Union

from . import placement
from .assign.choice import candidates
from .core.change import Change, Deferred, Plan
from .core.errors import GpudirectError, Problem, VerificationFailed
from .core.host import Host
from .core.owned import Owned
from .early.files import is_vfio
from .guest import acts, domain_xml, found, record, resources, wanted
from .guest.changes import Present, held_devices, is_ours, removal, stranger
from .guest.drain import drained
from .guest.found import Current, devices_of
from .guest.intent import Wish
from .guest.model import model_of
from .guest.options import Disk, Firmware, Network, Options, Topology
from .guest.pending import pending
from .guest.placed import Given, Part, Placed, Placements, Refused, Shape
from .guest.wanted import DEFINED, GONE, RUNNING, Desired
from .pci.tree import Function

__all__ = ["DEFINED", "GONE", "RUNNING", "SCHEMA", "Current", "Desired"]

SCHEMA = wanted.SCHEMA
# The boot run leaves this resource to a unit of its own, which comes after all that guests need (at_boot/guests.py).
STARTS_GUESTS = True
parse = wanted.parse


def lost_at_boot(desired: Desired) -> bool:
    """That guests run is."""
    return any(wish.rest["state"] == RUNNING and wish.rest["autostart"] for wish in desired.present)


def read(host: Host, desired: Desired) -> Current:
    """The host's devices, nodes, domains and networks, where a guest is asked for or was made."""
    return found.read(host, desired, record.by_name(Owned.load(host).of(SCHEMA.name)))


def plan(desired: Desired, current: Current, owned: Mapping[str, Any]) -> Plan:
    """Guests that go, then definitions, then restarts and starts."""
    records = record.by_name(owned)
    if not (desired.guests.wishes or records or desired.drain):
        return Plan()
    if not current.live:
        why = "guests are told by the running libvirt only; this is a captured tree"
        return Plan(deferred=(Deferred(SCHEMA.name, "the running host", why),))
    if desired.drain:
        return drained(desired, current, records)
    if current.without:
        return Plan(deferred=(Deferred(SCHEMA.name, "kvm", current.without),))
    return _Guests(desired, current, records).plan()


def placements(desired: Desired, current: Current, owned: Mapping[str, Any]) -> Placements:
    """Where the guests of a host are, or would be placed by the next run. Pure; ``plan`` goes by the same answers."""
    guests = _Guests(desired, current, record.by_name(owned))
    placed = guests.placed()
    return Placements(tuple(placed), tuple(guests.refused), tuple(guests.deferred))


def apply(change: Change, host: Host) -> None:
    """Make one change of a guest."""
    if change.step is not None:
        acts.carry_out(change.step, host)


@dataclass
class _Guests:
    """All guests of a host while they are planned."""

    desired: Desired
    current: Current
    records: Mapping[str, Mapping[str, Any]]
    deferred: list[Deferred] = field(default_factory=list)
    refused: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def plan(self) -> Plan:
        """Everything in order."""
        gone = [change for name in self._going() for change in self._removal(name)]
        present = self._present()
        definitions = {one.name: list(one.definition()) for one in present}
        stops = {change.path.partition(".")[0] for change in gone if change.path.endswith(".state")}
        leaving = frozenset(one.name for one in present if one.leaves) | {
            path[len(SCHEMA.name) + 1 : -1] for path in stops
        }
        busy = held_devices(self.current.domains)
        for one in present:
            one.busy = {address: name for address, name in busy.items() if name != one.name}
            one.leaving = leaving
        states = [change for one in present for change in one.state()]
        # Who gives devices up comes before who gets them.
        states.sort(key=lambda change: change.path.endswith(".state") and change.after == "running")
        changes = (*gone, *(change for one in present for change in definitions[one.name]), *states)
        for one in present:
            self.deferred += one.deferred
            self.refused += one.refused
            self.notes += [f"{record.path_of(one.name)}: {note}" for note in one.guest.notes]
        self._judge([one for one in present if not one.leaves], changes)
        return Plan(changes, tuple(self.deferred), (), tuple(self.notes), tuple(self.refused))

    def _judge(self, present: Iterable[Present], changes: tuple[Change, ...]) -> None:
        """What logs say of guests that run on as they are; it fails the run once nothing is left to change."""
        said = [problem for one in present for problem in one.complaints()]
        if said and not changes:
            raise VerificationFailed([*said, *self.refused])
        self.notes += map(str, said)

    # Guests that go ------------------------------------------------------------------------

    def _going(self) -> list[str]:
        kept = {wish.shape.name for wish in self.desired.present}
        asked = {wish.shape.name for wish in self.desired.guests.wishes if wish.rest["state"] == GONE}
        return sorted(({*self.records} | {name for name in asked if name in self.current.domains}) - kept)

    def _removal(self, name: str) -> list[Change]:
        there, kept = self.current.domains.get(name), self.records.get(name, {})
        if there is not None and not is_ours(there):
            if not kept:
                wish = next(one for one in self.desired.guests.wishes if one.shape.name == name)
                self.refused.append(stranger(f"{wish.path}.name", name))
                return []
            there = None  # what was ours is gone, and somebody has made another of its name
            others = {key: one for key, one in self.current.domains.items() if key != name}
            current = replace(self.current, domains=others, files=frozenset())
            return removal(name, self.desired, current, kept)
        return removal(name, self.desired, self.current, kept)

    # Guests that are to be there -----------------------------------------------------------

    def _present(self) -> list[Present]:
        wishes = {wish.shape.name: wish for wish in self.desired.present}
        made = (self._made(wishes[one.shape.name], one) for one in self.placed())
        # A guest on record comes before one that may get what it gives up.
        return sorted((one for one in made if one is not None), key=lambda one: not one.record)

    def placed(self) -> list[Placed]:
        """What each guest gets; those that cannot be placed are among the refused and deferred."""
        wishes = {wish.shape.name: wish for wish in self.desired.present if self._may_be(wish)}
        waits = pending(self.desired, self.current)
        if waits:
            new = sorted(name for name in wishes if name not in self.records)
            if new:
                why = f"{waits[0][1]}; guests that wait for it: {', '.join(new)}"
                self.deferred.append(Deferred(SCHEMA.name, waits[0][0], why))
            wishes = {name: wish for name, wish in wishes.items() if name not in new}
        return self._answers(wishes)

    def _may_be(self, wish: Wish) -> bool:
        """Whether nothing speaks against a guest before it is placed."""
        name, problems = wish.shape.name, []
        there, kept = self.current.domains.get(name), self.records.get(name)
        if there is not None and not is_ours(there) and (kept is None or there.active):
            problems.append(stranger(f"{wish.path}.name", name))
        if wish.rest["networks"]:
            fact = "are not made yet: a guest has one network beside its rails"
            problems.append(Problem(f"{wish.path}.networks", fact, "Leave them out."))
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

    def _answers(self, wishes: Mapping[str, Wish]) -> list[Placed]:
        ours = self._on_record(wishes)
        running = [one for one in ours if self._runs(one.shape.name)]
        going = [record.placed_in(name, self.records[name]) for name in self._going() if name in self.records]
        nodes = resources.given_back(
            self.current.nodes, [one for one in (*running, *going) if self._runs(one.shape.name)]
        )
        guests = self.desired.guests
        selection = placement.selection_of(self.current.machine, self.desired.paths)
        answers = placement.place(
            self.current.machine, nodes, [wish.shape for wish in wishes.values()], [*ours, *self._strangers()],
            placement.Selection(selection.gpus, selection.vfs, selection.nvswitches, partitions=guests.partitions),
            reserved=guests.reserved, max_distance=guests.max_distance,
        )  # fmt: skip
        for one in answers:
            if isinstance(one, Refused):
                path = wishes[one.shape.name].path
                self.refused += [_sentence(path, reason) for reason in one.reasons]
        return sorted((one for one in answers if isinstance(one, Placed)), key=lambda one: one.shape.name)

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

    def _made(self, wish: Wish, placed: Placed) -> Union[Present, None]:
        """A guest with its domain; None for one that cannot be, which is told."""
        try:
            options = self._options(wish)
            guest = model_of(self.current.machine, placed, options)
        except GpudirectError as error:
            self.refused += error.problems
            return None
        kept = self.records.get(wish.shape.name, {})
        return Present(wish, placed, guest, domain_xml.render(guest), self.desired, self.current, kept)

    def _options(self, wish: Wish) -> Options:
        rest, files = wish.rest, self.desired.files_of(wish)
        there = self.current.domains.get(wish.shape.name)
        return Options(
            topology=Topology(rest["topology"]),
            firmware=Firmware(rest["firmware"]),
            emulator=self.desired.emulator,
            disk=Disk(files.disk) if files.disk else None,
            seed=files.seed,
            network=self._network(wish),
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


def _sentence(path: str, reason: str) -> Problem:
    """A reason of placement, which has its advice in it."""
    fact, _dot, advice = reason.partition(". ")
    return Problem(path, f"the guest does not fit this host: {fact.rstrip('.')}", advice or "Ask for less.")
