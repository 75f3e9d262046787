# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of p2p_topology: what the host is judged by, what stops it, and its report as files."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.vela.gpudirect.plugins.module_utils.audit import host_report
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import GpudirectError, IntentError, Problem
from ansible_collections.vela.gpudirect.plugins.module_utils.path.intent import SCHEMA
from ansible_collections.vela.gpudirect.plugins.module_utils.site import ROOT_FIELD
from ansible_collections.vela.gpudirect.plugins.plugin_utils import inventory, paths

_NAME = "vela.gpudirect.p2p_topology"
_OPTIONS = frozenset({"stop_at", "file", "report", "summary", ROOT_FIELD.name, *SCHEMA.variables()})


class ActionModule(ActionBase):
    """Judges a host by one execution of the module, a file by none, or sums a play up."""

    _requires_connection = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Check on the controller, judge on the host."""
        super().run(tmp, task_vars)
        variables, given = task_vars or {}, dict(self._task.args)
        try:
            self._check(given)
            if given.get("summary"):
                return paths.summary(variables["ansible_play_hosts_all"], variables["hostvars"], given["summary"])
            result = self._judged(given, variables)
        except GpudirectError as error:
            return inventory.refusal(error)
        if result.get("failed") or "paths" not in result:
            return result
        name = str(variables.get("inventory_hostname"))
        if given.get("report"):
            result = paths.write(given["report"], PurePath(given.get("file") or name).name, result)
        result.setdefault("msg", paths.sentence(result["paths"]))
        return paths.told(result, name, given.get("stop_at") or "unknown")

    def _judged(self, given: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        options = paths.options(self._templar, variables, given)
        whole = bool(given.get("report"))
        if given.get("file"):
            options.pop(ROOT_FIELD.name)
            return {"changed": False, **host_report.of_file(options, str(given["file"]), whole=whole)}
        arguments = {"intent": json.dumps(options, sort_keys=True), "whole": whole}
        return dict(self._execute_module(module_name=_NAME, module_args=arguments, task_vars=variables))

    def _check(self, given: dict[str, Any]) -> None:
        problems = inventory.no_options("p2p_topology", given, _OPTIONS)
        stop_at = given.get("stop_at")
        if stop_at is not None and stop_at not in paths.STOPS:
            wanted = ", ".join(paths.STOPS)
            problems.append(
                Problem("p2p_topology.stop_at", "is not one of the choices", "Take one.", repr(stop_at), wanted)
            )
        if problems:
            raise IntentError(problems)
