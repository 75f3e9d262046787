from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sim.liveness import ProcessMark, mark_of, read_mark, write_mark


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def marked(process: subprocess.Popen[bytes]) -> ProcessMark:
    mark = mark_of(process.pid)
    assert mark is not None
    return mark


def test_running_process_is_recognised(sleeper: subprocess.Popen[bytes]) -> None:
    assert marked(sleeper).is_alive()


def test_reused_process_id_is_not_the_same_process(sleeper: subprocess.Popen[bytes]) -> None:
    mark = marked(sleeper)
    assert not replace(mark, start_ticks=mark.start_ticks - 1).is_alive()


def test_mark_of_an_earlier_boot_is_stale(sleeper: subprocess.Popen[bytes]) -> None:
    assert not replace(marked(sleeper), boot_id="00000000-0000-0000-0000-000000000000").is_alive()


def test_zombie_does_not_run(sleeper: subprocess.Popen[bytes]) -> None:
    mark = marked(sleeper)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert not mark.is_alive()


def test_stale_mark_kills_nobody(sleeper: subprocess.Popen[bytes]) -> None:
    mark = marked(sleeper)
    replace(mark, start_ticks=1).kill(signal.SIGKILL)
    assert sleeper.poll() is None
    mark.kill(signal.SIGKILL)
    assert sleeper.wait(timeout=10) == -signal.SIGKILL


def test_mark_of_a_gone_process_kills_nobody(sleeper: subprocess.Popen[bytes]) -> None:
    mark = marked(sleeper)
    sleeper.kill()
    sleeper.wait()
    mark.kill(signal.SIGKILL)
    assert mark_of(sleeper.pid) is None


def test_odd_process_names_do_not_shift_the_fields(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text("b\n")
    (tmp_path / "7/stat").write_text("7 (a ) (b c) S " + " ".join(str(number) for number in range(4, 53)))
    assert mark_of(7, tmp_path) == ProcessMark(7, 22, "b")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', '{"pid": 1, "start_ticks": 2, "boot_id": "b", "x": 1}'])
def test_damaged_mark_is_no_mark(tmp_path: Path, text: str) -> None:
    path = tmp_path / "supervisor.json"
    path.write_text(text)
    assert read_mark(path) is None


def test_mark_survives_the_file(tmp_path: Path) -> None:
    path = tmp_path / "supervisor.json"
    mark = ProcessMark(1, 2, "b")
    write_mark(path, mark)
    assert read_mark(path) == mark
    assert read_mark(tmp_path / "other.json") is None
