# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What networks and pools of libvirt have in common: changes of one, and the acts that make them. Planning is pure.

libvirt itself starts them at boot, since they need nothing of ours. One that runs as it was defined before is restarted where no guest
is on it; where one is, that is told and waits, because a guest loses its network for good when its bridge goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Union
from xml.etree.ElementTree import Element

from ..core.change import Change, Deferred, Plan
from ..core.errors import Problem
from ..core.host import Host
from . import libvirt
from .libvirt import Thing
from .owned_xml import differences, merged, parse_xml, text_of

DEFINE, START, RESTART, AUTOSTART, DESTROY, UNDEFINE, SWEEP = (
    *("define", "start", "restart", "autostart", "destroy", "undefine", "sweep"),
)
_UNWANTED = "nobody wants it any more"


@dataclass(frozen=True)
class Act:
    """One act on a network (``networks``) or pool (``pools``); ``text`` is the XML, or the folder that is swept."""

    kind: str
    verb: str
    name: str
    text: str = ""


@dataclass(frozen=True)
class Wanted:
    """One that is to be there, by its XML. ``kept`` is more of its record."""

    path: str
    name: str
    xml: str
    kept: Mapping[str, Any]


@dataclass(frozen=True)
class Things:
    """All of a kind on a host: what is there, our records, and the running guests that are on each."""

    resource: str
    kind: str
    there: Mapping[str, Thing]
    owned: Mapping[str, Mapping[str, Any]]
    users: Mapping[str, Sequence[str]]
    sections: tuple[str, ...]  # elements that are ours in what runs, too

    def plan(self, wanted: Sequence[Wanted], refused: Sequence[Problem], kept: Iterable[str] = ()) -> Plan:
        """The changes for all; those that go come first. ``kept`` are names that stay though nothing is planned for them."""
        problems, deferred = list(refused), []
        going = sorted(self._going(wanted) - set(kept))
        deferred += [self._until_free(name, _UNWANTED) for name in going if self.users.get(name)]
        changes = [change for name in going if not self.users.get(name) for change in self._removal(name)]
        for one in sorted(wanted, key=lambda one: one.name):
            if one.name in self.there and self._record(one.name) is None:
                advice = "Give it another name, or remove that one if it is not needed."
                fact = f"{one.name} is on this host and was not made by vela.gpudirect"
                problems.append(Problem(f"{one.path}.name", fact, advice))
                continue
            changes += self._definition(one)
            waits = self._waits(one)
            deferred += [waits] if waits else []
            changes += [] if waits else self._state(one)
        return Plan(tuple(changes), tuple(deferred), refused=tuple(problems))

    def path_of(self, name: str) -> str:
        """The record of one."""
        return f"{self.resource}[{name}]"

    def _record(self, name: str) -> Union[Mapping[str, Any], None]:
        return self.owned.get(self.path_of(name))

    def _going(self, wanted: Sequence[Wanted]) -> set[str]:
        names = {path[len(self.resource) + 1 : -1] for path in self.owned}
        return names - {one.name for one in wanted}

    def _wrote(self, one: Wanted) -> list[Element]:
        record = self._record(one.name) or {}
        return [parse_xml(self.path_of(one.name), xml) for xml in record.get("wrote", ())]

    def _final(self, one: Wanted) -> Element:
        """Its definition when this plan was made."""
        root, there = parse_xml(one.path, one.xml), self.there.get(one.name)
        if there is None or not there.persistent:
            return root
        found = parse_xml(one.path, there.inactive)
        if _mode(root) != _mode(found):  # what libvirt has added fits the old kind alone, as the address of a bridge
            uuid = found.find("uuid")
            root.extend([] if uuid is None else [uuid])
            return root
        return merged(root, found, self._wrote(one))

    def _definition(self, one: Wanted) -> Iterator[Change]:
        there, path = self.there.get(one.name), f"{self.path_of(one.name)}.definition"
        record = self._record(one.name) or {}
        if there is not None and there.persistent:
            found = parse_xml(path, there.inactive)
            differing = list(differences(parse_xml(path, one.xml), found, self._wrote(one)))
            why = f"is not as wanted: {'; '.join(map(str, differing[:4]))}"
            if not differing and list(record.get("wrote", ())) == [one.xml]:
                return
            if not differing:
                yield Change(
                    path, "defined", "defined", "is not on record yet", remember=self._remembered(one, [one.xml])
                )
                return
        else:
            why = "it is not defined"
        act = Act(self.kind, DEFINE, one.name, text_of(self._final(one)))
        wrote = list(dict.fromkeys([*record.get("wrote", ()), one.xml]))
        yield Change(
            path, None if there is None else "as before", "as wanted", why, step=act,
            remember=self._remembered(one, wrote), confirm={self.path_of(one.name): {"wrote": [one.xml]}},
        )  # fmt: skip

    def _remembered(self, one: Wanted, wrote: list[str]) -> dict[str, dict[str, Any]]:
        kept = {**one.kept, **{key: value for key, value in (self._record(one.name) or {}).items() if key in one.kept}}
        return {self.path_of(one.name): {"before": None, "wrote": wrote, **kept}}

    def _outdated(self, one: Wanted) -> str:
        """How what runs differs from its definition; empty: it does not."""
        there = self.there.get(one.name)
        if there is None or not there.active:
            return ""
        live, final = parse_xml(one.path, there.live), self._final(one)
        found = [str(each) for each in differences(parse_xml(one.path, one.xml), live, ())]
        more = [f"{tag} is there, wanted none" for tag in self.sections if _has(live, tag) and not _has(final, tag)]
        return "; ".join([*found, *more][:4])

    def _waits(self, one: Wanted) -> Union[Deferred, None]:
        outdated = self._outdated(one)
        if not outdated or not self.users.get(one.name):
            return None
        return self._until_free(one.name, f"it runs as it was defined before ({outdated})")

    def _until_free(self, name: str, why: str) -> Deferred:
        """What a running guest is on is not taken from it, whoever's guest it is, and whatever the run may disrupt."""
        users = ", ".join(self.users[name])
        return Deferred(self.resource, "the end of its guests", f"{name}: {why}, and these guests are on it: {users}")

    def _state(self, one: Wanted) -> Iterator[Change]:
        there, path = self.there.get(one.name), self.path_of(one.name)
        if there is None or not there.active:
            act = Act(self.kind, START, one.name)
            yield Change(f"{path}.state", "inactive", "active", "it is to be active", step=act)
        else:
            outdated = self._outdated(one)
            if outdated:
                act = Act(self.kind, RESTART, one.name)
                why = f"it runs as it was defined before: {outdated}"
                yield Change(f"{path}.restart", "as before", "as defined", why, step=act)
        if there is None or not there.autostart:
            act = Act(self.kind, AUTOSTART, one.name)
            yield Change(f"{path}.autostart", False, True, "guests need it after a boot", step=act)

    def _removal(self, name: str) -> list[Change]:
        there, path, record = self.there.get(name), self.path_of(name), self._record(name) or {}
        acts: list[tuple[str, Act]] = []
        if there is not None and there.active:
            acts.append(("state", Act(self.kind, DESTROY, name)))
        if there is not None and there.persistent:
            acts.append(("definition", Act(self.kind, UNDEFINE, name)))
        if record.get("made"):
            acts.append(("folder", Act(self.kind, SWEEP, name, record["made"])))
        changes = [Change(f"{path}.{what}", "there", None, _UNWANTED, step=act, undo=True) for what, act in acts]
        if not changes:
            return [Change(path, "on record", None, "nothing is left of it", undo=True, forget=(path,))]
        return [*changes[:-1], replace(changes[-1], forget=(path,))]


def _mode(root: Element) -> str:
    """How a network forwards; empty for a pool."""
    forward = root.find("forward")
    return "" if forward is None else forward.get("mode", "")


def _has(root: Element, tag: str) -> bool:
    return root.find(tag) is not None


def carry_out(act: Act, host: Host) -> None:
    """Do it."""
    if act.verb == SWEEP:
        host.remove(f"{act.text}/.gpudirect", with_folder=True)  # the folder alone, and only an empty one
        return
    door = libvirt.reached(host)
    kind = door.networks if act.kind == "networks" else door.pools
    if act.verb == DEFINE:
        kind.define(act.text)
    elif act.verb == START:
        kind.start(act.name)
    elif act.verb == AUTOSTART:
        kind.autostart(act.name, True)
    elif act.verb == UNDEFINE:
        kind.undefine(act.name)
    else:
        kind.destroy(act.name)
        if act.verb == RESTART:
            kind.start(act.name)
