# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The intent that a host keeps for its boots: the options of what a boot loses, as plain data, without secrets.

The identities of the devices are not in it: they stand in the ownership record, where every run looks for them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..core.change import ABSENT, Unreadable
from ..core.document import members
from ..core.errors import IntentError, Problem, UnreadableState
from ..core.host import Host

PATH = "/etc/gpudirect/intent.json"
MODE = 0o600
VERSION = 1
_ADVICE = "Run site.yml for this host; it writes the file anew."


def render(options: Mapping[str, Any]) -> str:
    """The file's text for some options; the same options give the same text."""
    return json.dumps({"version": VERSION, "options": options}, indent=1, sort_keys=True) + "\n"


def parse(path: str, text: str) -> dict[str, Any]:
    """The options in a file's text."""
    try:
        version, options = members(text, "version", "options")
    except ValueError as error:
        raise IntentError([Problem(path, f"cannot be an intent, since it is {error}", _ADVICE)]) from error
    if version != VERSION:
        raise IntentError([Problem(path, "is of another version", _ADVICE, found=repr(version), wanted=str(VERSION))])
    if not isinstance(options, dict):
        raise IntentError([Problem(path, "cannot be an intent, since its options are no mapping", _ADVICE)])
    return options


def load(host: Host, path: str = PATH) -> dict[str, Any]:
    """The options that this host keeps."""
    text = host.read_text(path)
    if text is ABSENT:
        raise IntentError([Problem(path, "is not there", _ADVICE)])
    if isinstance(text, Unreadable):
        raise UnreadableState([Problem(path, f"cannot be read: {text.cause}", "Run as root on the host.")])
    return parse(path, str(text))
