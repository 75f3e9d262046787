# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of host_plan: check a host's variables, then send them as one document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import GpudirectError
from ansible_collections.vela.gpudirect.plugins.plugin_utils import inventory, paths


class ActionModule(ActionBase):
    """Collects the variables of all resources and runs the module once."""

    _requires_connection = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Check on the controller, plan on the host."""
        super().run(tmp, task_vars)
        try:
            intent = inventory.document(self._templar, task_vars or {}, self._loader)
        except GpudirectError as error:
            return inventory.refusal(error)
        arguments = {"intent": intent, "previous": self._task.args.get("previous") or {}}
        name = "vela.gpudirect.host_plan"
        result = dict(self._execute_module(module_name=name, module_args=arguments, task_vars=task_vars))
        if leaves_something(result):
            # The run is not over for this host although it ends well; that must be seen without -v.
            told = f"{(task_vars or {}).get('inventory_hostname')}: {result['msg']}"
            result["warnings"] = [*result.get("warnings", []), told]
        # What the run still has to do comes first; a host whose paths are broken after that gets no guests.
        return (
            result
            if result.get("todo")
            else paths.told(result, str((task_vars or {}).get("inventory_hostname")), "fail")
        )


def leaves_something(result: Mapping[str, Any]) -> bool:
    """Whether another run or an operator has something to do. What only a running host can tell is nothing of that kind."""
    if result.get("reboot_required") and not result.get("reboot_allowed"):
        return True
    deferred = [one for one in result.get("deferred", ()) if one["waits_for"] != "the running host"]
    return not result.get("todo") and bool(deferred or result.get("awaiting_consent"))
