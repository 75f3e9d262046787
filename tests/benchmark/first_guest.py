"""A guest that is defined and started on a host of the simulated rack, against the same run when there is nothing left to do.

The host has all that is no guest before: kernel, devices, libvirt, network. What is measured is guests.yml with the guest of
inventories/sim-guests: base image, disk, seed, definition, start, and what a boot brings back. The run that changes nothing
comes once the guest has booted, since an emulated guest takes the processor of its emulated host for that.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence

from sim.guest_report import reports
from tests.benchmark.first_apply import HOST, Runs, fresh
from tests.benchmark.loopback import ROOT
from tests.benchmark.report import RACK
from tests.benchmark.suite import Result, Tell
from tests.integration.rack import Rack

GUESTS = ROOT / "playbooks" / "guests.yml"
INVENTORY = "sim-guests"
CONSOLE = "/var/log/libvirt/qemu/g1-console.log"
NONE = {"guest_shapes": [], "gpudirect_allow": "guest", "guest_stop": "force"}
BOOT_S = 300


def first_guest_results(rounds: int, tell: Tell) -> list[Result]:
    """The guest is defined and removed again, as often as there are rounds."""
    rack = Rack("benchmark", tell)
    try:
        with fresh(rack, tell) as runs:
            runs.play(ROOT / "site.yml")  # everything is written, and the reboot is made
            found = against_no_change(runs, rounds)
    finally:
        rack.down()
    what = f"guests.yml {RACK}: a guest is defined and started, with its disk and seed"
    return [Result("first-guest", what, "run without changes", found, None)]


def against_no_change(runs: Runs, rounds: int) -> float:
    """Seconds of the run that defines the guest against those of the next one."""
    inventory = ("-i", str(runs.rack.home / "inventories" / INVENTORY))
    first, again = [], []
    for _round in range(rounds):
        runs.play(GUESTS, *inventory, "-e", json.dumps(NONE))  # also warms the connection
        runs.rack.run(HOST, f"rm -f {CONSOLE}")
        first.append(runs.play(GUESTS, *inventory))
        wait_for_guest(runs.rack)
        again.append(_without_changes(runs, inventory))
    return statistics.median(first) / statistics.median(again)


def _without_changes(runs: Runs, inventory: Sequence[str]) -> float:
    seconds = runs.play(GUESTS, *inventory)
    text = (runs.folder / "output").read_text()
    recap = [line for line in text.splitlines() if line.startswith(HOST) and " changed=" in line]
    if not recap or " changed=0 " not in recap[-1]:
        raise RuntimeError(f"{GUESTS.name} changes something again:\n{text[-3000:]}")
    return seconds


def wait_for_guest(rack: Rack, limit_s: float = BOOT_S) -> None:
    """Until the guest has told over its console what it sees, at the end of its boot."""
    end = time.monotonic() + limit_s
    while not reports(rack.run(HOST, f"cat {CONSOLE} 2>/dev/null | tr -d '\\r' || true")):
        if time.monotonic() >= end:
            raise RuntimeError(f"{HOST}: its guest has not booted within {limit_s:.0f} s; see {CONSOLE}")
        time.sleep(2)
