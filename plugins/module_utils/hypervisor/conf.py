# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Single settings in the text of libvirt's qemu.conf: found, set, and put back byte for byte. Pure.

libvirt takes the first of several assignments of a name (src/util/virconf.c: an entry is added at the end and looked up from
the beginning), so that one is the setting.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

PATH = "/etc/libvirt/qemu.conf"
# A list may go over several lines, with comments in between.
_ASSIGNED = r"^[ \t]*%s[ \t]*=[ \t]*(\[(?:\"[^\"\n]*\"|'[^'\n]*'|#[^\n]*\n|[^\]\"'#])*\][^\n]*|[^\n]*)(\n|\Z)"


def rendered(value: Any) -> str:
    """A value in libvirt's syntax."""
    if isinstance(value, (list, tuple)):
        return f"[ {', '.join(rendered(one) for one in value)} ]" if value else "[ ]"
    return f'"{value}"' if isinstance(value, str) else str(int(value))


def found(text: str, key: str) -> str | None:
    """The whole of the assignment that counts, with the end of its line; None: the built-in default."""
    match = _match(text, key)
    return match[0] if match else None


def line(key: str, value: Any) -> str:
    """An assignment as we write it."""
    return f"{key} = {rendered(value)}\n"


def with_settings(text: str, settings: Mapping[str, Any]) -> str:
    """The text with these settings: each in the place of the assignment that counts, or at the end."""
    for key, value in sorted(settings.items()):
        text = put(text, key, line(key, value))
    return text


def put(text: str, key: str, assignment: str | None) -> str:
    """The text with another assignment of a name, or without the one that counts."""
    match = _match(text, key)
    if match is not None:
        return text[: match.start()] + (assignment or "") + text[match.end() :]
    if assignment is None:
        return text
    return text + ("" if text.endswith("\n") or not text else "\n") + assignment


def without(text: str, before: Mapping[str, str | None], ours: Mapping[str, Sequence[str]], *, ended: bool) -> str:
    """The text with the assignments of before, where ours still stand. ``ended``: it had an end of line at its end."""
    for key, assignment in sorted(before.items()):
        if found(text, key) in ours.get(key, ()):
            text = put(text, key, assignment)
    return text if ended else text.removesuffix("\n")


def _match(text: str, key: str) -> re.Match[str] | None:
    return re.search(_ASSIGNED % re.escape(key), text, re.MULTILINE)
