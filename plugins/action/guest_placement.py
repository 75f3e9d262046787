# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of guest_placement: the options of a host's guests, and whether guests that do not fit stop the play."""

from __future__ import annotations

import json
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import GpudirectError, IntentError
from ansible_collections.vela.gpudirect.plugins.module_utils.guest import overview
from ansible_collections.vela.gpudirect.plugins.module_utils.site import ROOT_FIELD
from ansible_collections.vela.gpudirect.plugins.plugin_utils import inventory

_NAME = "vela.gpudirect.guest_placement"
_OPTIONS = frozenset({"report_only", ROOT_FIELD.name, *overview.SCHEMA.variables()})


class ActionModule(ActionBase):
    """Looks at a host by one execution of the module."""

    _requires_connection = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Check on the controller, look on the host."""
        super().run(tmp, task_vars)
        variables, given = task_vars or {}, dict(self._task.args)
        try:
            options = self._options(variables, given)
        except GpudirectError as error:
            return inventory.refusal(error)
        arguments = {"intent": json.dumps(options, sort_keys=True)}
        result = dict(self._execute_module(module_name=_NAME, module_args=arguments, task_vars=variables))
        if result.get("failed") or "guests" not in result:
            return result
        if result["problems"] and not boolean(given.get("report_only", False)):
            return {**result, "failed": True, "msg": "\n".join(result["problems"]), "kind": "HostRefused"}
        verdicts = [one["verdict"] for one in result["guests"]]
        counts = [f"{verdicts.count(one)} {one}" for one in ("placed", "waits", "refused") if one in verdicts]
        return {**result, "msg": f"guests: {', '.join(counts) or 'none is asked for'}"}

    def _options(self, variables: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        """What goes to the module; all mistakes of the task and of the host's variables in one error."""
        problems = inventory.no_options("guest_placement", given, _OPTIONS)
        options: dict[str, Any] = {}
        try:
            options = inventory.of_placement(self._templar, variables, given, overview.SCHEMA)
        except IntentError as error:
            problems.extend(error.problems)
        if problems:
            raise IntentError(problems)
        return options
