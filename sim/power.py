# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power of single hosts, asked from their supervisors."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.control import NobodyAnswers, ask
from sim.errors import RackError
from sim.places import Rack
from sim.supervisor import hold_lock

SHUTDOWN_LIMIT_S = 60.0
PRESS_EVERY_S = 10.0
POLL_S = 0.2


def control_socket(rack: Rack, name: str) -> Path:
    """Return the path of a supervisor's control socket."""
    return rack.sockets / f"{name}.ctl"


def supervisor_runs(rack: Rack, name: str) -> bool:
    """Say whether a host has a supervisor now; its lock, unlike a file, cannot be stale."""
    if not rack.host(name).is_dir():
        return False
    lock = hold_lock(rack.host(name))
    if lock is None:
        return True
    os.close(lock)
    return False


def report_of(rack: Rack, name: str) -> dict[str, Any]:
    """Return the supervisor's report; a host without a supervisor is off."""
    try:
        return ask(control_socket(rack, name), "status")
    except NobodyAnswers:
        return {"name": name, "power": "off", "qemu_pid": None, "starts": 0, "since": None, "last_end": ""}


def is_on(rack: Rack, name: str) -> bool:
    """Say whether a host has power."""
    return bool(report_of(rack, name)["power"] == "on")


def switch_on(rack: Rack, name: str) -> None:
    """Give a host power; it boots by itself."""
    answer = ask(_supervised(rack, name), "on")
    if answer["power"] != "on":
        raise RackError(f"{name}: stays off ({answer['last_end']}). Read {rack.host(name)}/qemu.log.")


def shut_down(rack: Rack, name: str) -> float:
    """Press the power button and return the seconds until the host is off."""
    began = time.monotonic()
    _supervised(rack, name)
    if press_until_off(rack, [name], SHUTDOWN_LIMIT_S):
        raise RackError(
            f"{name}: did not react to its power button within {SHUTDOWN_LIMIT_S:.0f} s, it is still on. "
            f"'sim/rack power {name} cut' takes its power away."
        )
    return time.monotonic() - began


def press_until_off(rack: Rack, names: Sequence[str], limit_s: float) -> list[str]:
    """Press the power buttons of several hosts and return those that are still on after some seconds.

    Pressed again now and then: ssh answers before the host listens to its button.
    """
    began = time.monotonic()
    pressed = began - PRESS_EVERY_S
    waiting = list(names)
    while waiting := [name for name in waiting if is_on(rack, name)]:
        now = time.monotonic()
        if now - began > limit_s:
            break
        if now - pressed >= PRESS_EVERY_S:
            pressed = now
            for name in waiting:
                ask(control_socket(rack, name), "off")
        time.sleep(POLL_S)
    return waiting


def cut(rack: Rack, name: str) -> None:
    """Take a host's power away; what it did not sync is lost."""
    ask(_supervised(rack, name), "cut")


def _supervised(rack: Rack, name: str) -> Path:
    if not supervisor_runs(rack, name):
        raise RackError(f"{name}: is not in the rack now. Run 'sim/rack up {name}'.")
    return control_socket(rack, name)
