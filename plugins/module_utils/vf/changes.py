# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ordered changes that bring one port to what it should be. Pure.

The order is that of the hardware: the eswitch is switched while there are no VFs, the kernel is told whether to bind
VFs before it makes them, what resets the port (MTU, number of VFs) comes before what a reset loses, the port is up
before rates are set, and attributes are set last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Union

from ..core.change import Change, Disruption
from .attributes import ByNumber, as_text, differing, from_text
from .goal import PROPERTIES, Aim, Intent, Records, aim, found_before, path_of, set_by_us
from .links import Link
from .port import Port
from .steps import SetAttributes, SetAutoprobe, SetCount, SetEswitch, SetLink, Step

_Cost = tuple[Disruption, str]
_FREE: _Cost = (Disruption.NOTHING, "")
_BACK = "no longer wanted; as it was before"
_WHY = {
    "eswitch": "the mode of the embedded switch",
    "autoprobe": "whether the kernel binds new VFs to their network driver",
    "mtu": "the MTU of the port, which those of its VFs cannot exceed",
    "up": "a port with VFs to serve is up",
    "vfs": "the number of VFs",
}


@dataclass
class PortChanges:
    """The changes of one port, collected in order. ``intent`` None: what we changed goes back."""

    port: Port
    link: Link
    intent: Union[Intent, None]
    records: Records
    identity: Mapping[str, Any]
    same_device: bool = True
    _changes: list[Change] = field(default_factory=list)
    _forgotten: set[str] = field(default_factory=set)
    _written: set[str] = field(default_factory=set)

    def ordered(self) -> tuple[Change, ...]:
        """All changes of the port."""
        port, intent = self.port, self.intent
        eswitch, autoprobe = self._aim("eswitch"), self._aim("autoprobe")
        mtu, up, count = self._aim("mtu"), self._aim("up"), self._aim("vfs")
        now = port.sriov.enabled
        if eswitch.value not in (None, port.mode):
            if now:
                if intent is None and count.value is None:
                    count = Aim(now, back=True)  # VFs of somebody else: they go for a moment
                self._make(now, 0, count) if count.back and not count.value else self._clear(now)
                now = 0
            self._scalar("eswitch", port.mode, eswitch, SetEswitch(self._at, eswitch.value), port.resetting())
        # A kernel without the attribute binds them always.
        binds = port.sriov.autoprobe is not False
        self._scalar("autoprobe", binds, autoprobe, SetAutoprobe(self._at, bool(autoprobe.value)), _FREE)
        self._scalar("mtu", self.link.mtu, mtu, SetLink(self._at, ("mtu", str(mtu.value))), port.resetting())
        wanted = now if count.value is None else int(count.value)
        if wanted != now:
            self._make(now, wanted, count)
        if up.value:
            self._scalar("up", self.link.up, up, SetLink(self._at, ("up",)), _FREE)
        self._attributes(wanted, count, fresh=wanted != now)
        if up.value is False:
            self._scalar("up", self.link.up, up, SetLink(self._at, ("down",)), port.resetting())
        self._forget_the_rest()
        return tuple(self._changes)

    @property
    def _at(self) -> str:
        return str(self.port.address)

    def _path(self, name: str) -> str:
        return path_of(self.port.address, name)

    def _aim(self, name: str) -> Aim:
        return aim(name, None if self.intent is None else getattr(self.intent, name), self.records)

    def _add(self, name: str, states: tuple[Any, Any], why: str, cost: _Cost, step: Step, **records: Any) -> None:
        disrupts, whom = cost
        before, after = states
        told = f"{why} ({whom})" if whom else why
        self._changes.append(Change(self._path(name), before, after, told, disrupts, step, **records))

    def _record(self, name: str, before: Any) -> dict[str, dict[str, Any]]:
        """A record to be kept; a live one keeps its ``before``."""
        self._written.add(name)
        known = {} if name in self.records.live else {"rebased": True}
        return {self._path(name): {"before": before, "identity": dict(self.identity), **known}}

    def _forget(self, *names: str) -> tuple[str, ...]:
        """The paths of those of the records that are there."""
        there = [name for name in names if self.records.has(name) or name in self._written]
        self._forgotten.update(there)
        return tuple(self._path(name) for name in there)

    def _scalar(self, name: str, now: Any, aimed: Aim, step: Step, cost: _Cost) -> None:
        if aimed.value is None or aimed.value == now:
            return
        if aimed.back:
            self._add(name, (now, aimed.value), _BACK, cost, step, forget=self._forget(name))
        else:
            self._add(name, (now, aimed.value), _WHY[name], cost, step, remember=self._record(name, now))

    # The number of VFs -------------------------------------------------------------------

    def _vfs_record(self) -> dict[str, dict[str, Any]]:
        """What to keep before VFs are made or taken away: those that were there. What was set on them is void then."""
        kept = self._record("vfs", {"count": self.port.sriov.enabled, "vf": as_text(self._as_found())})
        if self.records.has("vf"):
            kept[self._path("vf")] = {"before": {}, "identity": dict(self.identity), "rebased": True}
        return kept

    def _as_found(self) -> dict[int, dict[str, Any]]:
        """The attributes that the VFs had before us."""
        if "vfs" in self.records.live:
            return found_before(self.records)
        ours = set_by_us(self.records)
        return {number: {**one, **ours.get(number, {})} for number, one in self.link.vfs.items()}

    def _clear(self, now: int) -> None:
        why = "the eswitch is switched while there are no VFs"
        cost = max(self.port.without_vfs(), self.port.resetting())
        self._add("vfs", (now, 0), why, cost, SetCount(self._at, 0, clear=True), remember=self._vfs_record())

    def _make(self, now: int, wanted: int, count: Aim) -> None:
        """Another number of VFs, through none where there are some: the kernel refuses the direct way."""
        # Making VFs resets the port as taking them away does (igb closes and opens it).
        cost = max(self.port.without_vfs(), self.port.resetting()) if now else self.port.resetting()
        step = SetCount(self._at, wanted, clear=now > 0)
        if count.back:
            last = not wanted or not self._as_found()  # nothing of them is left to be set
            forget = self._forget("vf", "vfs") if last else ()
            self._add("vfs", (now, wanted), _BACK, cost, step, forget=forget)
            return
        why = f"{_WHY['vfs']}; those that are there are made anew" if now and wanted else _WHY["vfs"]
        step = SetCount(self._at, wanted, clear=now > 0, learn=self._path("vfs"))
        remember = self._vfs_record()
        self._add("vfs", (now, wanted), why, cost, step, remember=remember, forget=self._forget("vf"))

    # Attributes --------------------------------------------------------------------------

    def _attributes(self, count: int, aimed: Aim, *, fresh: bool) -> None:
        now: ByNumber = {} if fresh else self.link.vfs
        target, released = self._target(count, aimed, fresh)
        left = {number: differing(one, now.get(number, {})) for number, one in target.items()}
        left = {number: one for number, one in left.items() if one}
        if not left and not released:
            return
        before = None if fresh else as_text({n: {a: now.get(n, {}).get(a) for a in one} for n, one in left.items()})
        why = _BACK if self.intent is None else "attributes of VFs"
        cost = _FREE if fresh else self.port.changing_vfs(left)
        step = SetAttributes(self._at, self.port.driver, left) if left else None
        intent = self.intent
        records = {"forget": self._forget("vf", "vfs")} if intent is None else self._kept(intent, left, now, released)
        self._add("vf", (before, as_text(left)), why, cost, step, **records)

    def _target(self, count: int, aimed: Aim, fresh: bool) -> tuple[dict[int, dict[str, Any]], bool]:
        """What the VFs should be like, and whether some of it is what the intent no longer names."""
        if self.intent is None:
            target = self._as_found() if aimed.back else set_by_us(self.records)
            return {number: one for number, one in target.items() if number < count}, False
        target = {number: dict(one) for number, one in self.intent.attributes.items()}
        released = False
        if not fresh:
            for number, one in set_by_us(self.records).items():
                for name, value in one.items():
                    if number < count and name not in target[number]:
                        target[number][name] = value
                        released = True
        return target, released

    def _kept(self, intent: Intent, left: ByNumber, now: ByNumber, released: bool) -> dict[str, Any]:
        """The records for attributes that the intent wants: what each of them was before it was set first."""
        fresh_record = "vf" in self._forgotten  # the VFs are new, so nothing was set on them yet
        old = {} if fresh_record or "vf" not in self.records.live else from_text(self.records.live["vf"]["before"])
        ours = {number: dict(one) for number, one in old.items()}
        for number, one in left.items():
            for name in one:
                ours.setdefault(number, {}).setdefault(name, now.get(number, {}).get(name))
        record = {"before": as_text(ours), "identity": dict(self.identity), "rebased": True}
        self._written.add("vf")
        self._forgotten.discard("vf")
        remember = {self._path("vf"): record}
        if not released:
            return {"remember": remember}
        wanted = intent.attributes
        kept = {n: {a: v for a, v in one.items() if a in wanted.get(n, {})} for n, one in ours.items()}
        kept = {number: one for number, one in kept.items() if one}
        if not kept:
            return {"remember": remember, "forget": self._forget("vf")}
        return {"remember": remember, "confirm": {self._path("vf"): {"before": as_text(kept)}}}

    # Records -----------------------------------------------------------------------------

    def _forget_the_rest(self) -> None:
        """Records that nothing is done about any more: all is as it was before, or a boot (or another device) took it."""
        names = [
            name
            for name in PROPERTIES
            if self.records.has(name) and name not in self._forgotten | self._written and not self._still_ours(name)
        ]
        if names:
            self._changes.append(forgetting(self._at, names, self._forget(*names)))

    def _still_ours(self, name: str) -> bool:
        if self.intent is None or not self.same_device:
            return False
        if name == "vf":
            return any(self.intent.attributes.values())
        return getattr(self.intent, name) is not None


def forgetting(address: str, names: list[str], paths: tuple[str, ...]) -> Change:
    """The change that drops records without a write to the device."""
    why = "nothing of it is left to undo"
    return Change(f"sriov[{address}]", names, None, why, Disruption.NOTHING, None, forget=paths, undo=True)
