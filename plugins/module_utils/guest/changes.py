# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The changes of one guest: what it takes from what libvirt has of it to what is wanted. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Union
from xml.etree.ElementTree import Element

from ..core.change import Change, Deferred, Disruption
from ..core.errors import Problem
from .acts import Autostart, Define, Start, Stop, Undefine
from .acts import Restart as RestartStep
from .complaints import complaints
from .found import Current, devices_of
from .intent import Wish
from .libvirt import Thing
from .model import Guest
from .owned_xml import Difference, differences, digest_of, merged, parse_xml, set_apart, text_of, with_free_addresses
from .placed import Placed
from .record import RESOURCE, path_of, record_of
from .wanted import FORCE, RUNNING, Desired

_SHOWN = 4  # differences in one sentence


def is_ours(thing: Thing) -> bool:
    """Whether a domain has the mark of ours."""
    return any(digest_of(parse_xml(path_of(thing.name), xml)) for xml in (thing.inactive, thing.live) if xml)


def stranger(path: str, name: str) -> Problem:
    """The problem of a name that somebody else's domain has."""
    advice = "Give the guest another name, or remove that domain if it is not needed (virsh undefine)."
    return Problem(path, f"the domain {name} on this host was not made by vela.gpudirect", advice)


def stop_of(desired: Desired, name: str) -> Stop:
    """How a guest is stopped."""
    return Stop(name, desired.stop == FORCE, desired.stop_timeout_s)


@dataclass
class Present:
    """A guest that is to be there. ``busy`` are devices that other domains have now, with the name of each."""

    wish: Wish
    placed: Placed
    guest: Guest
    wanted: str
    desired: Desired
    current: Current
    record: Mapping[str, Any] = field(default_factory=dict)
    busy: Mapping[str, str] = field(default_factory=dict)
    leaving: frozenset[str] = frozenset()  # guests whose restart or end is in this plan
    deferred: list[Deferred] = field(default_factory=list)
    refused: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its name."""
        return self.wish.shape.name

    @property
    def domain(self) -> Union[Thing, None]:
        """What libvirt has of it."""
        return self.current.domains.get(self.name)

    def definition(self) -> Iterator[Change]:
        """Have libvirt keep what is wanted."""
        there, path = self.domain, f"{path_of(self.name)}.definition"
        root = parse_xml(path, self.wanted)
        if there is None or not there.persistent:
            yield self._define(path, None, self.wanted, "the guest is not defined")
        else:
            found = parse_xml(path, there.inactive)
            wrote = self._wrote(found)
            differing = list(differences(root, found, wrote))
            if differing:
                text = text_of(with_free_addresses(merged(root, set_apart(found, root, wrote), wrote), root))
                yield self._define(path, digest_of(found) or "of others", text, _said("is not as wanted", differing))
            elif list(self.record.get("wrote", ())) != [self.wanted]:
                yield self._remembered(path)
        if there is not None and there.autostart:
            why = "libvirt would start it before its devices and paths are ready"
            yield Change(f"{path_of(self.name)}.autostart", True, False, why, step=Autostart(self.name))

    def _wrote(self, found: Element) -> list[Element]:
        """What we wrote before; without a record of it all that is there is taken for ours."""
        kept = self.record.get("wrote", ())
        return [parse_xml(path_of(self.name), xml) for xml in kept] or [found]

    def _define(self, path: str, before: Any, xml: str, why: str) -> Change:
        after = digest_of(parse_xml(path, self.wanted))
        wrote = list(dict.fromkeys([*self.record.get("wrote", ()), self.wanted]))
        return Change(
            path, before, after, why, step=Define(self.name, xml),
            remember={path_of(self.name): record_of(self.placed, wrote)},
            confirm={path_of(self.name): {"wrote": [self.wanted]}},
        )  # fmt: skip

    def _remembered(self, path: str) -> Change:
        """A run was cut off after libvirt had the definition, or the record was lost."""
        record = record_of(self.placed, [self.wanted])
        after = digest_of(parse_xml(path, self.wanted))
        return Change(path, after, after, "is not on record as ours yet", remember={path_of(self.name): record})

    @property
    def runs(self) -> bool:
        """Whether it runs now."""
        return self.domain is not None and self.domain.active

    @property
    def leaves(self) -> bool:
        """Whether it runs and this plan has it stopped or restarted."""
        if self.wish.rest["state"] != RUNNING:
            return self.runs
        return self.runs and self._waits() is None and self._runs_as_before()

    def state(self) -> Iterator[Change]:
        """Have it run, or not, and run as it is defined."""
        path, waits = f"{path_of(self.name)}.state", self._waits()
        if self.wish.rest["state"] != RUNNING:
            if self.runs:
                why = "it is not to run"
                yield Change(path, "running", "shut off", why, Disruption.GUEST, step=stop_of(self.desired, self.name))
        elif waits is not None:
            self.deferred.append(waits)
        elif not self.runs:
            yield from self._start(path)
        elif self._runs_as_before():
            if self.domain is None:
                raise AssertionError
            live, root = parse_xml(path, self.domain.live), parse_xml(path, self.wanted)
            why = _said("it runs as it was defined before", [*differences(root, live, ())])
            step = RestartStep(stop_of(self.desired, self.name), self._start_step())
            path = f"{path_of(self.name)}.restart"
            yield Change(path, "as before", "as defined", why, Disruption.GUEST, step=step, patient=True)

    def _runs_as_before(self) -> bool:
        """Whether it was started from another definition than the wanted one."""
        if self.domain is None:
            raise AssertionError
        path = path_of(self.name)
        return digest_of(parse_xml(path, self.domain.live)) != digest_of(parse_xml(path, self.wanted))

    def complaints(self) -> list[Problem]:
        """What the log of a running guest tells against its paths."""
        return complaints(self.name, self.current.logs.get(self.name, "")) if self.guest.devices else []

    def _start_step(self) -> Start:
        return Start(self.name, tuple(str(one.host) for one in self.guest.devices))

    def _start(self, path: str) -> Iterator[Change]:
        holders = {self.busy[str(one.host)] for one in self.guest.devices if str(one.host) in self.busy}
        strangers = sorted(holders - self.leaving)
        if strangers:
            advice = "Stop that guest, or give this one fewer devices."
            fact = f"devices that it gets are with {', '.join(strangers)}, which runs"
            self.refused.append(Problem(path, fact, advice))
            return
        why = "it is to run"
        held = bool(holders)
        if held:
            why = f"it is to run, with devices that {', '.join(sorted(holders))} still has"
        attended = not self.wish.rest["autostart"]
        yield Change(
            path, "shut off", "running", why, Disruption.GUEST if held else Disruption.NOTHING,
            step=self._start_step(), patient=held, attended=attended,
        )  # fmt: skip

    def _waits(self) -> Union[Deferred, None]:
        """What it needs to start and is not there yet."""
        missing = [path for path in self.desired.files_of(self.wish).all if path not in self.current.files]
        if missing:
            who = "guest_image" if self.wish.rest["image"] else "a disk of yours"
            return Deferred(RESOURCE, who, f"guest {self.name} starts from {', '.join(missing)}, not there yet")
        network = self.guest.options.network
        if network is None or not network.name:
            return None
        there = self.current.networks.get(network.name)
        if there is None or not there.active:
            why = f"guest {self.name} is on the network {network.name}, which is not active"
            return Deferred(RESOURCE, "libvirt_network", why)
        return None


def removal(name: str, desired: Desired, current: Current, record: Mapping[str, Any]) -> list[Change]:
    """All that libvirt has of a guest goes: each step only where there is something, the record with the last one."""
    there, path = current.domains.get(name), path_of(name)
    changes: list[Change] = []
    why = "nobody wants the guest any more"
    if there is not None and there.active:
        stop = stop_of(desired, name)
        changes.append(Change(f"{path}.state", "running", "shut off", why, Disruption.GUEST, step=stop, undo=True))
    if there is not None and there.persistent:
        nvram = parse_xml(path, there.inactive).find("os")
        has = nvram is not None and (nvram.get("firmware") == "efi" or nvram.find("nvram") is not None)
        step = Undefine(name, has)
        changes.append(Change(f"{path}.definition", "defined", None, why, Disruption.GUEST, step=step, undo=True))
    if not record:
        return changes
    if not changes:
        return [Change(path, "on record", None, "nothing is left of the guest", undo=True, forget=(path,))]
    last = changes[-1]
    return [*changes[:-1], replace(last, forget=(path,))]


def held_devices(domains: Mapping[str, Thing]) -> dict[str, str]:
    """The devices that running domains have now, with the name of each."""
    return {str(one): name for name, thing in domains.items() for one in devices_of(thing.live)}


def _said(beginning: str, differing: Sequence[Difference]) -> str:
    # Our mark differs with anything else; it is told where it alone does.
    differing = [one for one in differing if not one.path.startswith("metadata/")] or differing
    shown = "; ".join(map(str, differing[:_SHOWN]))
    more = f" and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else ""
    return f"{beginning}: {shown}{more}" if shown else beginning
