# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait until hosts answer ssh, each with its own bounds."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from sim.console import last_words
from sim.places import Rack
from sim.ports import read_port
from sim.power import report_of
from sim.progress import Progress
from sim.reach import Doorbell, greets, start_login

# An emulated host on a busy machine is slow but keeps writing to its console; one that hangs does not.
BOOT_LIMIT_S = 1800.0
SILENCE_LIMIT_S = 300.0
TICK_S = 0.5
GREETING_PATIENCE_S = 3.0


@dataclass
class _Boot:
    name: str
    bell: Doorbell | None = None
    login: subprocess.Popen[bytes] | None = None
    began: float = field(default_factory=time.monotonic)
    heard: float = field(default_factory=time.monotonic)
    console_size: int = -1
    answers: bool = False
    problem: str = ""

    @property
    def pending(self) -> bool:
        return not self.answers and not self.problem


def wait_for_ssh(rack: Rack, names: Sequence[str], progress: Progress) -> dict[str, str]:
    """Wait for all hosts at once and return what is wrong with those that did not come up."""
    boots = [_Boot(name) for name in names]
    try:
        while waiting := [boot for boot in boots if boot.pending]:
            for boot in waiting:
                _advance(rack, boot, progress)
            time.sleep(TICK_S if any(boot.pending for boot in boots) else 0)
    finally:
        for boot in boots:
            _let_go(boot)
    return {boot.name: boot.problem for boot in boots if boot.problem}


def answers_now(rack: Rack, name: str) -> bool:
    """Say whether a host's ssh server introduces itself."""
    port = read_port(rack.host(name) / "port")
    return port is not None and greets(port, GREETING_PATIENCE_S)


def _advance(rack: Rack, boot: _Boot, progress: Progress) -> None:
    if boot.login is not None:
        _look_at_login(boot, progress)
    elif _listen_at_door(rack, boot):
        progress.set(boot.name, "ssh")
        boot.login = start_login(rack, boot.name)
    else:
        progress.set(boot.name, "booting")
    if boot.pending:
        boot.problem = _trouble(rack, boot)
    if boot.problem:
        progress.set(boot.name, "failed")


def _listen_at_door(rack: Rack, boot: _Boot) -> bool:
    if boot.bell is None:
        boot.bell = Doorbell(read_port(rack.host(boot.name) / "port") or 0)
    heard = boot.bell.answered(0)
    if heard is not None:
        boot.bell.close()
        boot.bell = None
    return heard is True


def _look_at_login(boot: _Boot, progress: Progress) -> None:
    code = boot.login.poll() if boot.login is not None else None
    if code == 0:
        boot.answers = True
        progress.set(boot.name, "up")
    elif code is not None:
        # It greeted and then refused: pam_nologin while the host still boots. Try again.
        boot.login = None


def _trouble(rack: Rack, boot: _Boot) -> str:
    report = report_of(rack, boot.name)
    now = time.monotonic()
    size = _console_size(rack, boot.name)
    if size != boot.console_size:
        boot.console_size, boot.heard = size, now
    if report["power"] == "off":
        return f"{boot.name}: is off ({report['last_end'] or 'no supervisor'}).\n{last_words(rack, boot.name)}"
    if now - boot.heard > SILENCE_LIMIT_S or now - boot.began > BOOT_LIMIT_S:
        waited = f"ssh does not answer after {now - boot.began:.0f} s"
        silent = f"its console is silent for {now - boot.heard:.0f} s"
        return f"{boot.name}: {waited}, {silent}.\n{last_words(rack, boot.name)}"
    return ""


def _console_size(rack: Rack, name: str) -> int:
    try:
        return (rack.host(name) / "console.log").stat().st_size
    except FileNotFoundError:
        return 0


def _let_go(boot: _Boot) -> None:
    if boot.bell is not None:
        boot.bell.close()
    if boot.login is not None and boot.login.poll() is None:
        boot.login.kill()
        boot.login.wait()
