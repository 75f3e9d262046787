# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of judged paths: what stops a host, what is told, and reports as files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.vela.gpudirect.plugins.module_utils.path.intent import SCHEMA
from ansible_collections.vela.gpudirect.plugins.plugin_utils import inventory

# From which verdict on a host is stopped.
STOPS = {"unknown": ("UNKNOWN", "FAIL"), "fail": ("FAIL",), "never": ()}
_ADVICE = "playbooks/audit.yml writes the whole report."
_NO_RESULT = "not audited: unreachable, or the look at it failed"


def options(templar: Any, variables: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options about paths of a host, from its variables and from the task, which counts; IntentError with every problem."""
    return inventory.options(templar, variables, given, SCHEMA, SCHEMA.parse)


def told(result: dict[str, Any], host: str, stop_at: str) -> dict[str, Any]:
    """The result of a look, failed where its paths stop the host, and with a warning where something is to be known."""
    paths = result.get("paths")
    if not paths or result.get("failed") or paths["verdict"] in ("OK", "DEFERRED"):
        return result
    sentences = [one for one in paths["problems"] if re.match(rf"paths\.\w+: ({'|'.join(STOPS[stop_at])})\b", one)]
    if paths["verdict"] in STOPS[stop_at]:
        return {
            **result,
            "failed": True,
            "msg": "\n".join([*sentences, f"No guest is made on this host. {_ADVICE}"]),
            "kind": "PathsRefused",
            "problems": sentences,
        }
    if stop_at == "never":
        return result  # the caller tells
    rules = ", ".join(dict.fromkeys(f"{one['verdict']} {one['rule']}" for one in paths["findings"]))
    return {**result, "warnings": [*result.get("warnings", []), f"{host}: paths of GPUs and NICs: {rules}. {_ADVICE}"]}


def sentence(paths: Mapping[str, Any]) -> str:
    """The verdict of a host in one line."""
    bad = ", ".join(dict.fromkeys(one["rule"] for one in paths["findings"] if one["verdict"] == paths["verdict"]))
    return f"{paths['verdict']} ({paths['mode']}): {bad}" if bad else f"{paths['verdict']} ({paths['mode']})"


def write(folder: str, name: str, result: dict[str, Any]) -> dict[str, Any]:
    """Write the whole report of a host; the result without it, and the paths of the files."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    contents = {
        "json": json.dumps(result.pop("report"), indent=1) + "\n",
        "txt": result.pop("text"),
        "svg": result.pop("svg"),
    }
    files = []
    for suffix, content in contents.items():
        if content:
            file = target / f"{name}.{suffix}"
            file.write_text(content, encoding="utf-8", errors="replace")
            files.append(str(file))
    return {**result, "files": files}


def summary(hosts: Iterable[str], hostvars: Mapping[str, Any], register: str) -> dict[str, Any]:
    """All hosts of a play with their verdicts, those without an answer too."""
    lines: list[str] = []
    failing = 0
    for host in hosts:
        known = hostvars[host].get(register) if host in hostvars else None
        paths = known.get("paths") if isinstance(known, Mapping) else None
        lines.append(f"{host}: {sentence(paths) if paths else _NO_RESULT}")
        failing += bool(paths) and paths["verdict"] == "FAIL"
    lines.append(f"{failing} of {len(lines)} hosts FAIL")
    return {"changed": False, "hosts": lines, "msg": lines[-1]}
