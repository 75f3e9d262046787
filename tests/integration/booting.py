"""What a host's own boot has done: the units of host_boot, and how long they took."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

BOOT, READY, WATCH = "gpudirect-boot.service", "gpudirect-ready.target", "gpudirect-drift.service"


class Node(Protocol):
    """A host that runs a shell script and gives what it printed."""

    def sh(self, script: str) -> str: ...


def shown(node: Node, unit: str = BOOT) -> dict[str, str]:
    """The state of a unit."""
    text = node.sh(f"systemctl show --property=ActiveState,Result,SubState {unit}")
    return dict(line.split("=", 1) for line in text.splitlines())


def ended(node: Node, limit_s: float = 240) -> dict[str, str]:
    """The boot run's end, waited for."""
    return until(lambda: shown(node), lambda state: state["ActiveState"] != "activating", limit_s)


def until(ask: Callable[[], dict[str, str]], good: Callable[[dict[str, str]], bool], limit_s: float) -> dict[str, str]:
    """The first good answer."""
    end = time.monotonic() + limit_s
    while not good(state := ask()):
        assert time.monotonic() < end, f"still {state} after {limit_s:.0f} s"
        time.sleep(1)
    return state


def said(node: Node, unit: str = BOOT) -> str:
    """What a unit has said in this boot."""
    return node.sh(f"journalctl --boot --unit {unit} --output cat")


def seconds(node: Node, unit: str = BOOT) -> float:
    """How long the last run of a unit took."""
    names = "ExecMainStartTimestampMonotonic,ExecMainExitTimestampMonotonic"
    text = node.sh(f"systemctl show --property={names} {unit}")
    times = [int(line.partition("=")[2]) for line in text.splitlines()]
    return (max(times) - min(times)) / 1e6
