from __future__ import annotations

from pathlib import Path

from sim.console import tail


def test_tail_gives_the_last_lines_that_say_something(tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    log.write_bytes(b"one\r\n\x1b[2J\x1b[01;01H\r\n[\x1b[0;32m  OK  \x1b[0m] two\r\n\xff three\r\n\r\n")
    assert tail(log, 2) == ["[  OK  ] two", "\ufffd three"]


def test_host_without_a_console_said_nothing(tmp_path: Path) -> None:
    assert tail(tmp_path / "console.log", 5) == []
