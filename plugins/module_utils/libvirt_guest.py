# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests of a host: placed, defined in libvirt, and running where they are to run.

What a guest gets is decided by ``guest/placing`` and kept on record, its domain is made by ``guest/domain_xml``. Two
stores: the definition, and the domain that runs. A running guest keeps what it has until it is restarted, which only
happens with ``gpudirect_allow: guest``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .core.change import Change, Deferred, Plan
from .core.errors import Problem, VerificationFailed
from .core.host import Host
from .core.owned import Owned
from .guest import acts, domain_xml, found, record, wanted
from .guest.changes import Present, held_devices, is_ours, removal, stranger
from .guest.drain import drained
from .guest.found import Current
from .guest.placing import Modelled, going, never, round_of, untold
from .guest.wanted import DEFINED, GONE, RUNNING, Desired

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
    if desired.drain and current.live:
        return drained(desired, current, records)
    waits = untold(current)
    if waits is not None:
        return Plan(deferred=(Deferred(SCHEMA.name, *waits),), refused=never(desired, current, records))
    return _Guests(desired, current, records).plan()


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
        gone = [change for name in going(self.desired, self.current, self.records) for change in self._removal(name)]
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

    def _removal(self, name: str) -> list[Change]:
        there, kept = self.current.domains.get(name), self.records.get(name, {})
        if there is not None and not is_ours(there):
            if not kept:
                wish = next(one for one in self.desired.guests.wishes if one.shape.name == name)
                self.refused.append(stranger(f"{wish.path}.name", name))
                return []
            there = None  # what was ours is gone, and somebody has made another of its name
            others = {key: one for key, one in self.current.domains.items() if key != name}
            current = replace(self.current, domains=others)
            return removal(name, self.desired, current, kept)
        return removal(name, self.desired, self.current, kept)

    # Guests that are to be there -----------------------------------------------------------

    def _present(self) -> list[Present]:
        found_ = round_of(self.desired, self.current, self.records)
        self.refused += found_.refused
        if found_.waiting:
            why = f"{found_.why}; guests that wait for it: {', '.join(found_.waiting)}"
            self.deferred.append(Deferred(SCHEMA.name, found_.waits_for, why))
        made = [self._one(modelled) for modelled in found_.guests]
        # A guest on record comes before one that may get what it gives up.
        return sorted(made, key=lambda one: not one.record)

    def _one(self, modelled: Modelled) -> Present:
        wish, guest = modelled.wish, modelled.guest
        kept = self.records.get(wish.shape.name, {})
        return Present(wish, modelled.placed, guest, domain_xml.render(guest), self.desired, self.current, kept)
