"""Runs of the playbooks, each with typed outcomes and with what really went over ssh.

Outcomes come from ansible-runner's events (rollout/run.py). How often a host was reached is not taken from there: a
wrapper around ssh notes every command, so that a module which quietly runs twice is counted twice.
"""

from __future__ import annotations

import itertools
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollout.run import HostOutcome, Outcome, TaskEnd, playbook

ROOT = Path(__file__).resolve().parents[2]
REPORTS = ROOT / "reports" / "integration"
NOTING_SSH = Path(__file__).with_name("noting_ssh")

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Run:
    """A finished run: outcome by host, commands sent to each host over ssh, seconds, and the whole text."""

    outcome: Outcome
    commands: Counter[str]
    seconds: float
    text: str

    @property
    def ok(self) -> bool:
        return self.outcome.ok

    def host(self, name: str) -> HostOutcome:
        return self.outcome.hosts[name]

    def plans(self, name: str) -> list[Mapping[str, Any]]:
        """The results of host_plan, in order."""
        return [task.result for task in self.host(name).tasks if task.action.endswith("host_plan")]

    def predicted(self, name: str) -> list[dict[str, Any]]:
        """The changes that the first look foresaw."""
        return list(self.plans(name)[0]["plan"])

    def done(self, name: str) -> list[dict[str, Any]]:
        """The changes that the modules made, in order."""
        modules = [task.result for task in self.host(name).tasks if task.changed and "plan" in task.result]
        return [change for result in modules for change in result["plan"]]

    def as_foreseen(self, name: str) -> list[dict[str, Any]]:
        """The changes that were made, without those of which the first look said that they cannot be planned yet."""
        (first, *_rest), done = self.plans(name), self.done(name)
        deferred = {one["resource"] for one in first["deferred"]}
        late = [one for one in done if one not in first["plan"] and one["path"].partition("[")[0] in deferred]
        return [one for one in done if one not in late]

    def reboots(self, name: str) -> int:
        return sum(task.changed for task in self.host(name).tasks if task.action.endswith("reboot"))


def play(
    name: str,
    inventory: Path,
    hosts: Sequence[str],
    *arguments: str,
    variables: Mapping[str, Any] | None = None,
    addresses: Sequence[str] = (),
    tell: Callable[[str], None] = lambda _line: None,
) -> Run:
    """Run a playbook of this checkout; ``tell`` gets a line for each task that ends.

    ``addresses`` are what ssh calls the hosts, where that is not their names.
    """
    # A folder of its own for each run: ansible-runner would take arguments and variables that an earlier run left.
    folder = REPORTS / f"{next(_numbers):02d}-{Path(name).stem}"
    shutil.rmtree(folder, ignore_errors=True)
    began = time.monotonic()
    with noted_ssh(folder / "ssh") as notes:
        outcome = playbook(
            name,
            inventory,
            folder,
            hosts=hosts,
            arguments=arguments,
            variables=variables,
            on_task=lambda ended: tell(_line(ended)),
        )
    seconds = time.monotonic() - began
    tell(f"  {name} {' '.join(arguments)}: {outcome.status} after {seconds:.0f} s")
    return Run(outcome, commands_in(notes, addresses or hosts), seconds, outcome.output.read_text(errors="replace"))


def _line(ended: TaskEnd) -> str:
    word = "changed" if ended.changed and ended.ending == "ok" else ended.ending
    said = str(ended.result.get("msg", "")).splitlines()
    return f"    {ended.host}: {word}: {ended.task}" + (f": {said[0][:150]}" if said and said[0] else "")


def in_background(work: Callable[[], Run]) -> tuple[threading.Thread, list[Run]]:
    """A run beside what the test does meanwhile; its result is in the list when the thread has ended."""
    results: list[Run] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    return thread, results


@contextmanager
def noted_ssh(folder: Path) -> Iterator[Path]:
    """Have every ssh that Ansible starts note its arguments in a file of its own."""
    folder.mkdir(parents=True)
    settings = {"ANSIBLE_SSH_EXECUTABLE": str(NOTING_SSH), "NOTED_SSH_FOLDER": str(folder)}
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield folder
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


def commands_in(folder: Path, addresses: Sequence[str]) -> Counter[str]:
    """How many commands were sent to each address; calls that only steer a connection do not count."""
    counts: Counter[str] = Counter()
    for note in folder.iterdir():
        words = note.read_text().split("\0")[:-1]
        places = [index for index, word in enumerate(words[:-1]) if word in addresses]
        if places and "-O" not in words:
            counts[words[places[0]]] += 1
    return counts
