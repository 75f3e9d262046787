# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the engine's answer to a result dictionary: what every module edge does, once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .change import Disruption
from .converge import Resource, converge
from .errors import GpudirectError, Problem
from .host import Host

ALLOW = "gpudirect_allow"
# Where a path of a host begins in a sentence.
_PATH = re.compile(r"(?<![\w./-])(?=/(?:bin|boot|dev|etc|lib|lib64|proc|run|sbin|sys|usr|var)/)")


def outcome(resource: Resource, params: Mapping[str, Any], *, check: bool, host: Host | None = None) -> dict[str, Any]:
    """The result of a resource's module, with ``failed`` in it; never raises for a known kind of error."""
    host = host or Host()
    own = {name: value for name, value in params.items() if name != ALLOW}
    try:
        report = converge(resource, own, host, allow=Disruption.named(params[ALLOW]), check=check)
    except GpudirectError as error:
        return failure(error, host)
    return {"failed": False, **report.as_result(), "commands": _commands(host)}


def failure(error: GpudirectError, host: Host) -> dict[str, Any]:
    """The result of a run that ended with problems; ``done`` tells the changes that were made before."""
    problems = [str(located(problem, host)) for problem in error.problems]
    return {
        "failed": True,
        "changed": bool(error.done),
        "msg": "\n".join(problems),
        "kind": type(error).__name__,
        "problems": problems,
        "done": list(error.done),
        "commands": _commands(host),
    }


def located(problem: Problem, host: Host) -> Problem:
    """A problem as it is told outside: files of a captured tree by where they lie, since this machine has its own of that name."""
    if not host.captured:
        return problem
    root = host.root.rstrip("/")
    inside = re.compile(rf"{re.escape(root)}(?![\w.-])")

    def told(text: str) -> str:
        return _PATH.sub(lambda at: "" if inside.match(text, at.start()) else root, text)

    words = {name: told(getattr(problem, name)) for name in ("path", "fact", "advice", "found", "wanted")}
    return replace(problem, **words)


def _commands(host: Host) -> list[dict[str, Any]]:
    return [{"argv": list(done.argv), "status": done.status} for done in host.commands]
