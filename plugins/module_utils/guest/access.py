# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may log in to a guest: what a user name and a public key have to look like. Pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Union

from ..core.errors import IntentError, Problem

_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")  # useradd(8)
_TYPES = (
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)


def check_user(path: str, text: str) -> str:
    """A user name that Linux takes."""
    if _USER.fullmatch(text):
        return text
    wanted = "a to z, digits, - and _, at most 32, the first a letter or _"
    raise IntentError([Problem(path, "is no name of a Linux user", "Correct it.", found=repr(text), wanted=wanted)])


def check_keys(path: str, given: Sequence[str]) -> list[str]:
    """Public keys as in ``authorized_keys``, without options; every one that is none at once."""
    problems = [one for index, text in enumerate(given) if (one := _wrong(f"{path}[{index}]", text))]
    if problems:
        raise IntentError(problems)
    return [*given]


def _wrong(path: str, text: str) -> Union[Problem, None]:
    """What is wrong with a key. Its body is never told: it may be a private one that was put here by mistake."""
    kind, body = [*text.split(None, 2), "", ""][:2]
    advice = "Give the line of the .pub file."
    if not text.isprintable():
        return Problem(
            path, "is not one line of printable characters", advice, repr(kind[:40]), "type base64 [comment]"
        )
    if kind not in _TYPES:
        return Problem(path, "is no public key of a known type", advice, repr(kind[:40]), " or ".join(_TYPES))
    try:
        name = _first(base64.b64decode(body, validate=True))
    except ValueError:
        name = None
    if name != kind.encode():
        return Problem(path, "has a damaged body", advice, wanted=f"the base64 of a key of type {kind}")
    return None


def _first(blob: bytes) -> Union[bytes, None]:
    """The first of the strings with their length before them that a key is made of (RFC 4251, 5); None: a string is cut off."""
    parts: list[bytes] = []
    while blob:
        length = int.from_bytes(blob[:4], "big")
        if len(blob) < 4 + length:
            return None
        parts.append(blob[4 : 4 + length])
        blob = blob[4 + length :]
    return parts[0] if len(parts) > 1 else None
