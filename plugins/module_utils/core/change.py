# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan as data: what will change, why, and what it disrupts."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Union

from .errors import Problem


class Disruption(enum.IntEnum):
    """What a change takes down while it is made, in ascending order."""

    NOTHING = 0
    LINK = 1
    GUEST = 2
    HOST = 3

    @property
    def label(self) -> str:
        """The word used in ``gpudirect_allow`` and in results."""
        return self.name.lower()

    @classmethod
    def named(cls, label: str) -> Disruption:
        """The disruption that an operator's word stands for; KeyError for any other word."""
        return cls[label.upper()]


class Absent:
    """Marks a thing that was looked for and is not there; distinct from unreadable."""

    _one: Absent | None = None

    def __new__(cls) -> Absent:
        """There is only one, so that ``is ABSENT`` works."""
        if cls._one is None:
            cls._one = super().__new__(cls)
        return cls._one

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = Absent()


@dataclass(frozen=True)
class Unreadable:
    """Marks a thing whose value could not be learnt, with the reason."""

    cause: str


Text = Union[str, Absent, Unreadable]
Bytes = Union[bytes, Absent, Unreadable]


@dataclass(frozen=True)
class Change:
    """One write, in order of execution.

    ``before`` and ``after`` are plain data of owned values only (None: not there).
    ``step`` is the resource's own instruction for ``apply``. ``remember`` are the records that
    undo needs, by record path, stored in the ownership file before the write; ``confirm`` is what is
    added to them after it, and ``forget`` names the records that are dropped then.

    The run at boot leaves two kinds of changes to a run through Ansible: ``next_boot``, which serves boots to come only,
    and ``undo``, which gives back what is no longer wanted or drops the record of it. A ``patient`` change is left for a
    run with consent where it disrupts more than this one may, and named; any other stops the run then. An ``attended``
    change is never made at boot, where nobody watches. Where one that stands ``apart`` is refused, those after it are made all the
    same, and the run fails at its end.
    """

    path: str
    before: Any
    after: Any
    why: str
    disrupts: Disruption = Disruption.NOTHING
    step: Any = None
    remember: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    confirm: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    forget: tuple[str, ...] = ()
    next_boot: bool = False
    undo: bool = False
    patient: bool = False
    attended: bool = False
    apart: bool = False

    def as_result(self) -> dict[str, Any]:
        """The change as modules return it."""
        return {
            "path": self.path,
            "before": self.before,
            "after": self.after,
            "why": self.why,
            "disrupts": self.disrupts.label,
        }


@dataclass(frozen=True)
class Deferred:
    """Something that cannot be planned before an earlier change of this run was made."""

    resource: str
    waits_for: str
    why: str

    def as_result(self) -> dict[str, Any]:
        """The entry as modules return it."""
        return {"resource": self.resource, "waits_for": self.waits_for, "why": self.why}


@dataclass(frozen=True)
class Awaiting:
    """Right in the persistent store (or will be, once the plan's changes are made), not live yet.

    ``written_boot`` is the boot id in which the persistent value was written, if known: when the
    host has booted since, the value did not take, and that is a failure.
    """

    path: str
    live: Any
    wanted: Any
    why: str
    written_boot: str = ""

    def as_result(self) -> dict[str, Any]:
        """The entry as modules return it."""
        return {"path": self.path, "live": self.live, "wanted": self.wanted, "why": self.why}

    @property
    def reason(self) -> str:
        """One line for the list of reboot reasons."""
        return f"{self.path}: {self.why}"


@dataclass(frozen=True)
class Plan:
    """The way from the current to the desired state of one resource. Empty means: as wanted.

    ``refused`` are the parts of the intent that this host cannot take, where the changes for the other parts do not
    depend on them. A run stops before its first write for them; a boot goes on with the rest and tells them.
    ``awaiting_consent`` are the patient changes that this run may not make.
    """

    changes: tuple[Change, ...] = ()
    deferred: tuple[Deferred, ...] = ()
    awaiting_reboot: tuple[Awaiting, ...] = ()
    notes: tuple[str, ...] = ()
    refused: tuple[Problem, ...] = ()
    awaiting_consent: tuple[Change, ...] = ()

    def within(self, allow: Disruption) -> Plan:
        """The plan without those of its patient changes that disrupt more than ``allow``."""
        left = tuple(change for change in self.changes if change.patient and change.disrupts > allow)
        changes = tuple(change for change in self.changes if change not in left)
        return replace(self, changes=changes, awaiting_consent=self.awaiting_consent + left)

    def blocked_by(self, allow: Disruption) -> tuple[Change, ...]:
        """The changes that disrupt more than ``allow``."""
        return tuple(change for change in self.changes if change.disrupts > allow)

    @property
    def empty(self) -> bool:
        """True when nothing is left to write, to defer or to boot for, and nothing was refused."""
        return not (self.changes or self.deferred or self.awaiting_reboot or self.refused or self.awaiting_consent)
