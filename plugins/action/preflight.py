# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Says in plain sentences why host_plan failed on a host. Always fails: it runs only as its rescue."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.vela.gpudirect.plugins.module_utils import preflight


class ActionModule(ActionBase):
    """Repeats what host_plan said itself, or probes the host without Python."""

    _requires_connection = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Judge, and fail with the sentences."""
        super().run(tmp, task_vars)
        failure = self._task.args.get("failure") or {}
        said = [str(one) for one in failure.get("problems", [])]
        problems = said or self._probe(task_vars or {})
        if not problems:
            cause = failure.get("module_stderr") or failure.get("msg") or "no reason was given"
            problems = [
                f"preflight: the host is fit, and the look at it failed all the same: {str(cause).strip()}. Report this as a fault of vela.gpudirect."
            ]
        return {"failed": True, "changed": False, "msg": "\n".join(problems), "problems": problems}

    def _probe(self, variables: dict[str, Any]) -> list[str]:
        interpreter = str(self._templar.template(variables.get("ansible_python_interpreter", "/usr/bin/python3")))
        answer = self._low_level_execute_command(preflight.PROBE.replace("INTERPRETER", interpreter), sudoable=False)
        return [str(one) for one in preflight.problems_of(preflight.facts_of(answer.get("stdout", "")), interpreter)]
