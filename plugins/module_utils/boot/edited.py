# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of others in which owned kernel arguments are kept in order, and the steps that write them. Pure.

The text of before our first edit is remembered. As long as nobody else edits the file, every plan starts from
that text, so that undo gives back the very bytes; afterwards it starts from what the file holds now.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class WriteText:
    """Step: replace a file."""

    path: str
    text: str


@dataclass(frozen=True)
class Remove:
    """Step: remove a file of ours."""

    path: str


@dataclass(frozen=True)
class Regenerate:
    """Step: have the boot loader's own tool build its configuration anew."""

    argv: tuple[str, ...]


@dataclass(frozen=True)
class Grubby:
    """Step: set the arguments of one boot entry with the distribution's tool."""

    kernel: str
    remove: tuple[str, ...]
    add: tuple[str, ...]


@dataclass(frozen=True)
class Base:
    """What a plan starts from: the text, and whether it is the one of before our first edit."""

    text: str
    pristine: bool


def digest(text: str) -> str:
    """Identity of a text in the ownership record."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def base_of(text: str, record: Mapping[str, Any] | None) -> Base:
    """The text that a plan starts from, given the file as it is and our record of it."""
    if record is None:
        return Base(text, True)
    before: str = record["before"]
    if text == before or digest(text) == record["after"]:
        return Base(before, True)
    return Base(text, False)


def record_of(before: str | None, after: str, names: frozenset[str]) -> dict[str, Any]:
    """What undo of an edit needs: the text of before, the mark of ours, and the names we took out."""
    return {"before": before, "after": digest(after), "names": sorted(names)}
