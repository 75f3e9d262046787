# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of others in which owned kernel arguments are kept in order, and the steps that write them. Pure.

The text of before our first edit is remembered. As long as nobody else edits the file, every plan starts from
that text, so that undo gives back the very bytes; afterwards it starts from the file as it would be without us, and
that becomes the text of before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# The record of all names that are ours on a host, and of the boot entries that were there before us.
NAMES = "kernel_args.names"


@dataclass(frozen=True)
class WriteText:
    """Step: replace a file."""

    path: str
    text: str


@dataclass(frozen=True)
class Remove:
    """Step: remove a file of ours, and its folder when we had made that too and nothing else is in it."""

    path: str
    with_folder: bool = False


@dataclass(frozen=True)
class Regenerate:
    """Step: have the boot loader's own tool build its configuration anew."""

    argv: tuple[str, ...]


@dataclass(frozen=True)
class Base:
    """What a plan starts from: the file as it would be without us, and whether somebody edited it after us."""

    text: str
    edited: bool


def digest(text: str) -> str:
    """Identity of a text in the ownership record."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def base_of(
    text: str, record: Mapping[str, Any] | None, without_us: Callable[[str, Mapping[str, Any]], str] | None = None
) -> Base:
    """The text that a plan starts from, given the file as it is and our record of it."""
    if record is None:
        return Base(text, False)
    before: str = record["before"]
    if text == before or digest(text) in record["after"]:
        return Base(before, False)
    return Base(without_us(text, record) if without_us else text, True)


def record_of(base: Base, now: str, after: str, names: frozenset[str], added: tuple[str, ...] = ()) -> dict[str, Any]:
    """What undo of an edit needs: the text of before, the marks of ours, the names we took out, what we put in.

    The file as it is now counts as ours too: a run may be cut short between this record and the write.
    """
    record = {
        "before": base.text,
        "after": sorted({digest(now), digest(after)}),
        "names": sorted(names),
        "added": sorted(added),
    }
    return {**record, "rebased": True} if base.edited else record


def restored_why(base: Base) -> str:
    """The reason of a change that takes us out of a file."""
    return "our part goes, what others wrote since stays" if base.edited else "the file goes back to what it was"
