# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One ansible-playbook run through ansible-runner: events as they happen, an outcome per host at the end.

ansible-runner only logs it when an event could not be written, so a host that was asked for and of which
nothing was heard is an outcome of its own, never silence.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ansible_runner

ROOT = Path(__file__).resolve().parents[1]

# Event names of ansible-runner that end a task on a host, and what they mean.
_ENDINGS = {
    "runner_on_ok": "ok",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
    "runner_on_skipped": "skipped",
}


@dataclass(frozen=True)
class TaskEnd:
    """A task that ended on a host. ``ending`` is ok, failed, unreachable or skipped."""

    host: str
    task: str
    action: str
    ending: str
    changed: bool
    result: Mapping[str, Any]
    ignored: bool = False


@dataclass
class HostOutcome:
    """What one host saw of a run: every task that ended on it, in order."""

    host: str
    tasks: list[TaskEnd] = field(default_factory=list)
    failures: int = 0
    unreachable: int = 0

    @property
    def heard(self) -> bool:
        """True when at least one task ended on the host."""
        return bool(self.tasks)

    @property
    def ok(self) -> bool:
        """True when the host took part and nothing failed on it for good."""
        return self.heard and not self.failures and not self.unreachable

    @property
    def changed(self) -> int:
        """Tasks that changed the host, or would have."""
        return sum(task.changed for task in self.tasks if task.ending == "ok")

    @property
    def executions(self) -> int:
        """Modules that were sent to the host and run there; includes, skips and controller work do not count."""
        local = (
            "include_tasks",
            "include_role",
            "import_tasks",
            "validate_argument_spec",
            "meta",
            "set_fact",
            "debug",
            "fail",
        )
        return sum(1 for task in self.tasks if task.ending != "skipped" and task.action.rsplit(".", 1)[-1] not in local)

    @property
    def last_plan(self) -> Mapping[str, Any]:
        """The result of the last host_plan; empty when there was none."""
        plans = [task.result for task in self.tasks if task.action.endswith("host_plan") and task.ending == "ok"]
        return plans[-1] if plans else {}

    @property
    def message(self) -> str:
        """The message of the last failure, else of the last plan."""
        failed = [task for task in self.tasks if task.ending in ("failed", "unreachable")]
        if failed and not self.ok:
            return str(failed[-1].result.get("msg", "failed without a message")).strip()
        return str(self.last_plan.get("msg", ""))


@dataclass(frozen=True)
class Outcome:
    """A finished run. ``status`` is ansible-runner's word: successful, failed, canceled or timeout."""

    status: str
    hosts: Mapping[str, HostOutcome]
    output: Path

    @property
    def ok(self) -> bool:
        """True when the run succeeded and every host that was asked for was heard of."""
        return self.status == "successful" and bool(self.hosts) and all(host.ok for host in self.hosts.values())


def playbook(
    name: str,
    inventory: Path | Sequence[Path],
    artifacts: Path,
    *,
    hosts: Sequence[str] = (),
    arguments: Sequence[str] = (),
    variables: Mapping[str, Any] | None = None,
    on_task: Callable[[TaskEnd], None] | None = None,
    on_start: Callable[[str, str], None] | None = None,
) -> Outcome:
    """Run a playbook of this checkout against an inventory, or several in their order, and return its outcome.

    ``artifacts`` is private to the run (0700): it holds every event. ``hosts`` limits the run, and each of them is
    in the outcome whether it was heard of or not. ``on_task`` sees each task end, ``on_start`` (host, task) its start.
    """
    artifacts.mkdir(mode=0o700, parents=True, exist_ok=True)
    # ansible-runner would take arguments and variables that an earlier run left in this folder.
    shutil.rmtree(artifacts / "env", ignore_errors=True)
    outcomes = {host: HostOutcome(host) for host in hosts}

    def seen(event: dict[str, Any]) -> bool:
        data = event.get("event_data", {})
        if event["event"] == "runner_on_start" and on_start:
            on_start(str(data.get("host", "")), str(data.get("task", "")))
        ended = _task_end(event["event"], data)
        if ended:
            _add(outcomes, ended)
            if on_task:
                on_task(ended)
        return True

    run = ansible_runner.run(
        private_data_dir=str(artifacts),
        project_dir=str(ROOT),
        playbook=name,
        inventory=str(inventory) if isinstance(inventory, Path) else [str(one) for one in inventory],
        limit=",".join(hosts) or None,
        cmdline=" ".join(arguments) or None,
        extravars=dict(variables or {}),
        envvars={
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".ansible/collections"),
            "PATH": os.environ.get("PATH", ""),
        },
        event_handler=seen,
        quiet=True,
    )
    if run.status == "canceled":
        # ansible-runner keeps an interrupt to itself; whoever pressed Ctrl-C meant the caller too.
        raise KeyboardInterrupt
    for host, count in (run.stats or {}).get("failures", {}).items():
        outcomes.setdefault(host, HostOutcome(host)).failures = int(count)
    for host, count in (run.stats or {}).get("dark", {}).items():
        outcomes.setdefault(host, HostOutcome(host)).unreachable = int(count)
    return Outcome(str(run.status), outcomes, Path(str(run.config.artifact_dir)) / "stdout")


def _task_end(kind: str, data: Mapping[str, Any]) -> TaskEnd | None:
    if kind not in _ENDINGS:
        return None
    result = data.get("res") or {}
    return TaskEnd(
        host=str(data.get("host", "")),
        task=str(data.get("task", "")),
        action=str(data.get("resolved_action") or data.get("task_action", "")),
        ending=_ENDINGS[kind],
        changed=bool(result.get("changed", False)),
        result=result,
        ignored=bool(data.get("ignore_errors", False)),
    )


def _add(outcomes: dict[str, HostOutcome], ended: TaskEnd) -> None:
    outcomes.setdefault(ended.host, HostOutcome(ended.host)).tasks.append(ended)
