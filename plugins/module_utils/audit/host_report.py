# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a host, or of a file, as the result of a module: the part that gates, and where it is asked for all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.host import Host
from ..path import facts, picture
from ..path.gate import part
from ..path.intent import parse
from ..pci import source
from . import output
from .judged import Audit, judge

_WIDTH = 120


def judged(intent: Mapping[str, Any], host: Host, *, whole: bool) -> dict[str, Any]:
    """The result for a host; its mode is the intent's, since a host of the inventory is no guest to be audited as one."""
    parsed = parse(intent)
    machine = facts.machine_of(host, facts.name_of(host))
    return _result(judge(machine, parsed, parsed.mode), whole=whole)


def of_file(intent: Mapping[str, Any], path: str, *, whole: bool) -> dict[str, Any]:
    """The result for a file of this machine."""
    read = source.read_file(path, machine_of=facts.machine_of)
    return _result(judge(read, parse(intent), str(intent.get("gpudirect_mode") or "")), whole=whole)


def _result(audit: Audit, *, whole: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"paths": part(audit.report)}
    if whole:
        found["report"] = output.data(audit)
        found["text"] = output.text(audit, _WIDTH, colour=False, ascii_only=False)
        found["svg"] = "" if audit.machine is None else picture.svg(audit.machine, audit.report)
    return found
