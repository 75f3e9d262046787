# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The JSON files that the engine keeps on a host: a mapping with members of known names. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def members(text: str, *names: str) -> tuple[Any, ...]:
    """The values of a document's members, in the order of their names; ValueError with what is wrong, to follow on "is"."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from error
    if not isinstance(document, Mapping):
        raise ValueError("no mapping")
    missing = [name for name in names if name not in document]
    if missing:
        raise ValueError(f"without {' and '.join(missing)}")
    return tuple(document[name] for name in names)
