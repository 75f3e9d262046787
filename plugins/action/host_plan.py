# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of host_plan: check a host's variables, then send them as one document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.vela.gpudirect.plugins.module_utils import site
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import GpudirectError, IntentError, Problem


class ActionModule(ActionBase):
    """Collects the variables of all resources and runs the module once."""

    _requires_connection = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Check on the controller, plan on the host."""
        super().run(tmp, task_vars)
        variables = task_vars or {}
        try:
            intent = site.intent_of(self._values(variables))
        except GpudirectError as error:
            return {
                "failed": True,
                "changed": False,
                "msg": str(error),
                "kind": type(error).__name__,
                "problems": [str(one) for one in error.problems],
            }
        arguments = {"intent": json.dumps(intent, sort_keys=True), "previous": self._task.args.get("previous") or {}}
        name = "vela.gpudirect.host_plan"
        return dict(self._execute_module(module_name=name, module_args=arguments, task_vars=task_vars))

    def _values(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Our variables with their templates resolved; an undefined one inside is an intent error of its name."""
        prefixes = tuple({schema.prefix for schema in site.SCHEMAS})
        values: dict[str, Any] = {}
        problems: list[Problem] = []
        for name in [str(one) for one in variables if str(one).startswith(prefixes) and one not in site.RESULTS]:
            try:
                values[name] = self._templar.template(variables[name])
            except AnsibleError as error:
                problems.append(
                    Problem(
                        name,
                        f"its template cannot be resolved: {str(error).splitlines()[0].rstrip('.')}",
                        "Correct the inventory.",
                    )
                )
        if problems:
            raise IntentError(problems)
        return values
