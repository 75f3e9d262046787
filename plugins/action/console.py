# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports a host that did not come back from its reboot, with what its console shows. Always fails."""

from __future__ import annotations

import shlex
import subprocess
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import Problem

_LAST_LINES = 25
_TIMEOUT_S = 60


class ActionModule(ActionBase):
    """Runs on the controller alone; the host is not reachable."""

    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Read the console and fail with one message."""
        super().run(tmp, task_vars)
        arguments = self._task.args
        cause = str((arguments.get("failure") or {}).get("msg") or "no reason was given").strip().rstrip(".")
        reasons = "; ".join(str(one) for one in arguments.get("reasons") or []) or "none was named"
        problem = Problem(
            "reboot",
            f"the host did not come back: {cause}",
            f"Reboot was for: {reasons}. {console(arguments.get('command'))}",
            wanted=f"a new boot id within {arguments.get('timeout_s')} s",
        )
        return {"failed": True, "changed": True, "msg": str(problem)}


def console(command: str | None) -> str:
    """What the console command prints at its end, or why there is nothing."""
    if not command:
        return "No console configured (reboot_console_command)."
    try:
        done = subprocess.run(
            shlex.split(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return f"The console command could not be used: {error}."
    lines = [line.rstrip() for line in (done.stdout or done.stderr).splitlines() if line.strip()]
    shown = "\n".join(lines[-_LAST_LINES:]) or "(nothing)"
    return f"The console shows:\n{shown}"
