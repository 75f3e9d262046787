"""The supervisor with a small program in the place of QEMU that speaks its monitor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sim.control import NobodyAnswers, ask
from sim.liveness import mark_of, read_mark

ROOT = Path(__file__).resolve().parents[3]
# Ends with the reason that its first start finds in the file `script`, later starts in its next line.
PLAYER = """
import json, os, pathlib, socket, sys
folder = pathlib.Path(sys.argv[1])
(fd,) = (int(word.partition("fd=")[2]) for word in sys.argv if "fd=" in word)
monitor = socket.socket(fileno=fd)
def say(message): monitor.sendall(json.dumps(message).encode() + b"\\n")
say({"QMP": {}})
lines = (folder / "script").read_text().split()
reason = lines.pop(0) if lines else "stay"
(folder / "script").write_text(" ".join(lines))
stream = monitor.makefile("rb")
while True:
    command = json.loads(stream.readline())["execute"]
    if reason == "crash":
        os._exit(1)
    if command == "qmp_capabilities" and reason not in ("stay", "button"):
        break
    if command == "system_powerdown" and reason == "button":
        reason = "guest-shutdown"
        break
say({"event": "SHUTDOWN", "data": {"guest": True, "reason": reason}})
"""
SUPERVISE = """
import sys
from pathlib import Path
from sim.supervisor import Duty, supervise
folder = Path(sys.argv[1])
command = lambda: [sys.executable, "-c", (folder / "player").read_text(), str(folder)]
sys.exit(supervise(Duty("node", folder, folder / "ctl", command, {})))
"""


class Rig:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "player").write_text(PLAYER)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, script: str) -> None:
        (self.folder / "script").write_text(script)
        self.process = self.another()

    def another(self) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-c", SUPERVISE, str(self.folder)]
        return subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": str(ROOT)})

    def ask(self, word: str) -> dict[str, object]:
        return until(lambda: ask(self.folder / "ctl", word))

    def wait_for(self, **wanted: object) -> dict[str, object]:
        def look() -> dict[str, object]:
            report = self.ask("status")
            if {key: report[key] for key in wanted} != wanted:
                raise NobodyAnswers(f"{report}, not {wanted}")
            return report

        return until(look)


def until(look: Callable[[], dict[str, object]]) -> dict[str, object]:
    limit = time.monotonic() + 60
    while True:
        try:
            return look()
        except NobodyAnswers:
            if time.monotonic() > limit:
                raise
            time.sleep(0.05)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    if rig.process is not None:
        rig.process.kill()
        rig.process.wait()


def test_guest_reset_starts_again_and_guest_shutdown_stays_off(rig: Rig) -> None:
    rig.start("guest-reset guest-reset guest-shutdown")
    report = rig.wait_for(power="off", starts=3)
    assert report["last_end"] == "guest-shutdown"


def test_host_that_is_off_can_be_switched_on_again(rig: Rig) -> None:
    rig.start("guest-shutdown stay")
    rig.wait_for(power="off", starts=1)
    assert rig.ask("on")["power"] == "on"
    rig.wait_for(power="on", starts=2)


def test_button_is_passed_on_and_the_guest_decides(rig: Rig) -> None:
    rig.start("button")
    rig.wait_for(power="on")
    rig.ask("off")
    assert rig.wait_for(power="off")["last_end"] == "guest-shutdown"


def test_cut_takes_the_power_at_once_and_is_no_reset(rig: Rig) -> None:
    rig.start("stay stay")
    rig.wait_for(power="on")
    report = rig.ask("cut")
    assert (report["power"], report["last_end"], report["starts"]) == ("off", "cut", 1)


def test_host_whose_cpu_gets_no_timer_is_started_again(rig: Rig) -> None:
    console = rig.folder / "console.log"
    words = "rcu: rcu_preempt kthread timer wakeup didn't happen for 5251 jiffies!\n"
    console.write_text(words * 3)  # of an earlier boot
    rig.start("stay")
    rig.wait_for(power="on", starts=1)
    with console.open("a") as stream:
        stream.write(words)
    time.sleep(2.5)
    rig.wait_for(power="on", starts=1)
    with console.open("a") as stream:
        stream.write(words[:30])
        stream.flush()
        time.sleep(1.5)
        stream.write(words[30:])
    rig.wait_for(power="on", starts=2)


def test_crash_stays_off_and_says_so(rig: Rig) -> None:
    rig.start("crash stay")
    report = rig.wait_for(power="off", starts=1)
    assert report["last_end"] == "QEMU ended with 1"


def test_quit_takes_qemu_along_and_leaves_no_file(rig: Rig) -> None:
    rig.start("stay")
    report = rig.wait_for(power="on")
    rig.ask("quit")
    assert rig.process is not None
    assert rig.process.wait(timeout=60) == 0
    assert mark_of(int(str(report["qemu_pid"]))) is None
    assert not (rig.folder / "ctl").exists()
    assert not (rig.folder / "supervisor.json").exists()


def test_killed_supervisor_takes_qemu_along(rig: Rig) -> None:
    rig.start("stay")
    pid = int(str(rig.wait_for(power="on")["qemu_pid"]))
    assert rig.process is not None
    mark = read_mark(rig.folder / "supervisor.json")
    assert mark is not None
    assert mark.pid == rig.process.pid
    rig.process.send_signal(signal.SIGKILL)
    rig.process.wait()
    limit = time.monotonic() + 30
    while mark_of(pid) is not None and time.monotonic() < limit:
        time.sleep(0.05)
    assert mark_of(pid) is None
    assert not mark.is_alive()


def test_second_supervisor_of_a_host_is_refused(rig: Rig) -> None:
    rig.start("stay")
    rig.wait_for(power="on")
    assert rig.another().wait(timeout=60) == 3
    assert rig.ask("status")["power"] == "on"
