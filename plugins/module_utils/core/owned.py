# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ownership file: the first ``before`` of everything the product changed on a host.

It serves three things: touching only what is ours, undo when intent goes, and telling a
value that waits for its boot from one that did not survive it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from .change import ABSENT, Change, Text, Unreadable
from .document import members
from .errors import Problem, UnreadableState

PATH = "/var/lib/gpudirect/owned.json"
VERSION = 1


class Store(Protocol):
    """The part of a host that the ownership file needs."""

    def read_text(self, path: str) -> Text:
        """Text of a file, ABSENT or Unreadable."""

    def write_text(self, path: str, text: str, mode: int = 0o644) -> None:
        """Replace a file atomically and durably."""

    def remove(self, path: str, *, with_folder: bool = False) -> None:
        """Remove a file and, when asked and it is the last one in it, its folder."""


@dataclass
class Owned:
    """Records by path: ``{"resource", "before", "boot", ...}``; ``before`` and the rest are the resource's own data."""

    records: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def load(cls, host: Store) -> Owned:
        """The records of this host; an unreadable or foreign file stops the run, since undo depends on it."""
        text = host.read_text(PATH)
        if text is ABSENT:
            return cls()
        if isinstance(text, Unreadable):
            raise UnreadableState([_unusable(text.cause)])
        try:
            version, records = members(str(text), "version", "records")
        except ValueError as error:
            raise UnreadableState([_unusable(f"it is {error}")]) from error
        if version != VERSION or not _well_formed(records):
            raise UnreadableState([_unusable(_misfit(version))])
        return cls(records)

    def of(self, resource: str) -> dict[str, dict[str, Any]]:
        """The records of one resource."""
        return {path: record for path, record in self.records.items() if record["resource"] == resource}

    def remember(self, host: Store, resource: str, change: Change, boot: str) -> None:
        """Note what undo of a change needs, and the boot it is written in, ahead of the write.

        The first ``before`` of a record path is kept, unless the resource says with ``rebased`` that somebody else
        has changed the thing since, so that going back to it would undo that too. Everything else is replaced.
        """
        if not change.remember:
            return
        for path, record in change.remember.items():
            known = None if record.get("rebased") else self.records.get(path)
            before = record.get("before") if known is None else known["before"]
            kept = {name: value for name, value in record.items() if name != "rebased"}
            self.records[path] = {**kept, "before": before, "resource": resource, "boot": boot}
        self.save(host)

    def confirm(self, host: Store, change: Change, learnt: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """Note that a change was made: add what is known now, drop the records of what has been undone."""
        if not change.confirm and not change.forget and not learnt:
            return
        for more in (change.confirm, learnt or {}):
            for path, facts in more.items():
                self.records[path] = {**self.records[path], **facts}
        for path in change.forget:
            self.records.pop(path, None)
        self.save(host)

    def save(self, host: Store) -> None:
        """Write the file, or remove it when nothing is owned any more."""
        if self.records:
            host.write_text(
                PATH, json.dumps({"version": VERSION, "records": self.records}, indent=1, sort_keys=True) + "\n", 0o600
            )
        else:
            host.remove(PATH, with_folder=True)


def _misfit(version: Any) -> str:
    if version != VERSION:
        return f"it has version {version!r}, this release knows {VERSION}"
    return "its records are not in the form of this version"


def _well_formed(records: Any) -> bool:
    return isinstance(records, dict) and all(
        isinstance(record, dict) and {"resource", "before", "boot"} <= record.keys() for record in records.values()
    )


def _unusable(cause: str) -> Problem:
    return Problem(
        PATH,
        f"the record of what this product changed cannot be used: {cause}",
        "Restore the file from a backup, or remove it and give up the undo of earlier changes.",
    )
