# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of host_boot: hand over what a boot loses, and the engine where a host has another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.vela.gpudirect.plugins.module_utils import host_boot
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import GpudirectError
from ansible_collections.vela.gpudirect.plugins.plugin_utils import inventory

_NAME = "vela.gpudirect.host_boot"


class ActionModule(ActionBase):
    """Runs the module, with the engine where that is needed: as the round's look tells, else as the module does."""

    _requires_connection = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Check on the controller, install on the host."""
        super().run(tmp, task_vars)
        variables = task_vars or {}
        try:
            intent = inventory.document(self._templar, variables, self._loader)
        except GpudirectError as error:
            return inventory.refusal(error)
        given = {**self._task.args, "intent": intent, "archive": None}
        if self._foreseen(variables):
            given["archive"] = self._handed_over()
        result = self._module(given, variables)
        if result.pop("engine_wanted", False):
            result = self._module({**given, "archive": self._handed_over()}, variables)
        return result

    def _module(self, arguments: Mapping[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        return dict(self._execute_module(module_name=_NAME, module_args=dict(arguments), task_vars=variables))

    def _foreseen(self, variables: Mapping[str, Any]) -> bool:
        """Whether the round's look at the host has told that it needs the engine, which saves asking it again."""
        look = variables.get("gpudirect_plan") or {}
        return not self._task.check_mode and host_boot.needs_engine(look.get("plan") or [])

    def _handed_over(self) -> str:
        """A copy of the engine in the task's own folder on the host, which goes when the task has ended."""
        folder = self._connection._shell.tmpdir or self._make_tmp_path()
        path = str(self._connection._shell.join_path(folder, "engine"))
        self._transfer_data(path, inventory.ENGINE.content)
        self._fixup_perms2((folder, path))
        return path
