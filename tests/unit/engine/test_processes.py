"""What the door tells of processes: who has a file open, which connection a run hangs on; waiting, and feeding a program."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core import host as door
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Change, Disruption, Plan, Unreadable
from ansible_collections.vela.gpudirect.plugins.module_utils.core.converge import bring
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import CommandFailed, HostRefused
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Connection, Host
from ansible_collections.vela.gpudirect.plugins.module_utils.core.owned import Owned
from ansible_collections.vela.gpudirect.plugins.module_utils.core.schema import Schema

from tests.fixtures import hosts

SHELL = "/bin/sh"


class Live(Host):
    """A folder that counts as the machine itself."""

    @property
    def captured(self) -> bool:
        return False


@pytest.fixture
def live(tmp_path: Path) -> Host:
    return Live(str(tmp_path))


# Open files ------------------------------------------------------------------------------


def process(root: Path, number: int, *targets: str) -> None:
    folder = root / "proc" / str(number) / "fd"
    folder.mkdir(parents=True)
    for index, target in enumerate(targets):
        (folder / str(index)).symlink_to(target)


def test_who_has_a_file_open(live: Host, tmp_path: Path) -> None:
    process(tmp_path, 30, "/dev/vfio/vfio", "/dev/vfio/12", "/dev/vfio/12")
    process(tmp_path, 7, "/dev/vfio/12", "pipe:[5]", "/var/log/x (deleted)")
    (tmp_path / "proc/99").mkdir()  # it ends just now
    (tmp_path / "proc/sys").mkdir()
    assert live.held("/vfio/") == {"/dev/vfio/12": (7, 30), "/dev/vfio/vfio": (30,)}
    assert live.held("/kvm") == {}


def test_a_process_that_cannot_be_looked_into_makes_all_of_it_unknown(
    live: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process(tmp_path, 7, "/dev/vfio/12")

    def refuse(path: str) -> str:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "readlink", refuse)
    assert live.held("/vfio/") == Unreadable("the open files of process 7 cannot be read: Permission denied")


def test_without_processes_nobody_knows(live: Host) -> None:
    assert live.held("/vfio/") == Unreadable("/proc is not there")


def test_an_open_file_of_a_real_process_is_found(live: Host, tmp_path: Path) -> None:
    """Of this one only: where tests run, others may not be readable."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / str(os.getpid())).symlink_to(f"/proc/{os.getpid()}")
    file = tmp_path / "held here"
    with file.open("w"):
        assert live.held(str(file)) == {str(file): (os.getpid(),)}
    assert live.held(str(file)) == {}


# The connection --------------------------------------------------------------------------

LOOK = """
import sys; sys.path[:0] = {path!r}
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host
print(Host().connection())
"""


def told_below(environment: dict[str, str], depth: int) -> str:
    """What a process says whose ancestors, so many above it, were started with this environment."""
    code = LOOK.format(path=sys.path)
    for _level in range(depth):
        # As sudo does it: what is started gets an environment without the variable.
        code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}], env={{'A': 'b'}}, check=True)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_the_connection_is_found_in_the_ancestors(depth: int) -> None:
    environment = {"X": "y", "SSH_CONNECTION": "198.51.100.1 50022 192.0.2.7 22", "Z": ""}
    assert told_below(environment, depth) == "Connection(client='198.51.100.1', local='192.0.2.7')"


def test_ancestors_are_told_by_what_the_kernel_says(
    live: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 50)

    def ancestor(number: int, parent: int, environment: str) -> None:
        folder = tmp_path / "proc" / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "environ").write_text(environment)
        (folder / "stat").write_text(f"{number} (a) S 9 (b) S {parent} 1 1 0\n")

    ancestor(50, 40, "A=b\0")
    ancestor(40, 1, "NOT_SSH_CONNECTION=a 1 b 2\0SSH_CONNECTION=UNKNOWN\0")
    assert live.connection() is None
    ancestor(40, 30, "")
    ancestor(30, 1, "LANG=C\0SSH_CONNECTION=fe80::1%eth0 50022 fe80::2%eth0 22\0")
    assert live.connection() == Connection("fe80::1%eth0", "fe80::2%eth0")
    ancestor(30, 50, "")  # processes never hang on each other in a circle; data may
    assert live.connection() is None


# Waiting and feeding ---------------------------------------------------------------------


def test_a_condition_is_asked_until_it_holds() -> None:
    asked: list[int] = []

    def third() -> bool:
        asked.append(1)
        return len(asked) == 3

    assert Host().wait_until(third, 5)
    assert len(asked) == 3


def test_a_condition_that_holds_costs_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it slept"))
    assert Host().wait_until(lambda: True, 5)


def test_waiting_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(time, "sleep", sleep)
    assert not Host().wait_until(lambda: False, 3)
    assert sum(slept) == pytest.approx(3)
    assert slept[0] <= 0.01
    assert max(slept) <= door._POLL_S[1]


def test_a_program_reads_what_it_is_given() -> None:
    assert Host().run([SHELL, "-c", "cat"], stdin="a\nü\n").out == "a\nü\n"
    assert Host().run([SHELL, "-c", "cat"]).out == ""


def test_a_program_that_reads_nothing_of_much_ends_as_it_ends() -> None:
    done = Host().run([SHELL, "-c", "exit 3"], stdin="x" * (1 << 20), expect=(3,))
    assert done.status == 3


def test_a_reader_runs_programs_on_the_live_host_only(tmp_path: Path) -> None:
    assert Host().look([SHELL, "-c", "echo a"]).out == "a\n"
    with pytest.raises(CommandFailed):
        Host().look([SHELL, "-c", "exit 1"])
    with pytest.raises(HostRefused, match="a captured tree"):
        Host(str(tmp_path)).look([SHELL, "-c", "echo a"])


# What a change learnt ---------------------------------------------------------------------


class Learning:
    """A resource with one change, which tells something about what it made."""

    SCHEMA = Schema("learning", "learning_", ())

    def parse(self, params: Any) -> None:
        """Nothing is wanted in particular."""

    def read(self, host: Any, desired: Any) -> bool:
        return bool(host.exists("/etc/made"))

    def plan(self, desired: Any, current: bool, owned: Any) -> Plan:
        if current:
            return Plan()
        remember = {"learning.made": {"before": None}}
        return Plan((Change("learning.made", None, 1, "why", remember=remember, confirm={"learning.made": {"x": 1}}),))

    def apply(self, change: Change, host: Any) -> dict[str, dict[str, Any]]:
        host.write_text("/etc/made", "")
        return {"learning.made": {"fresh": {"0": {"mac": "a"}}}}


def test_what_a_change_learnt_is_kept_with_its_record(tmp_path: Path) -> None:
    host = hosts.build(tmp_path / "root", "debian_12")
    bring(Learning(), None, host, allow=Disruption.NOTHING, check=False)
    record = Owned.load(host).of("learning")["learning.made"]
    assert record["fresh"] == {"0": {"mac": "a"}}
    assert record["x"] == 1
    assert json.loads(host.text("/var/lib/gpudirect/owned.json"))["records"]["learning.made"] == record
