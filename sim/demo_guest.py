# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What guests of the demonstration say of themselves, held against what the host says it has given them."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rollout.run import Outcome
from sim.guest_report import Report, reports

WAIT_S = 240
# QEMU's switches; what plays GPUs (NVMe and test device), and VFs of igb.
SWITCH, STAND_INS, VF = "0x104c", {("0x1b36", "0x0010"), ("0x1b36", "0x0005")}, ("0x8086", "0x10ca")
# How many PCI devices libvirt has given a guest.
GIVEN = "virsh dumpxml {name} | grep -c '<hostdev '"


@dataclass(frozen=True)
class Seen:
    """A guest, whether it sees what it was given, and the line about it."""

    name: str
    good: bool
    text: str


def seen(rack: Path, outcome: Outcome) -> list[Seen]:
    """Every running guest of the hosts that a run was about."""
    return [one for host in outcome.hosts for one in _of_host(rack, host)]


def _of_host(rack: Path, host: str) -> Iterator[Seen]:
    for name in _said(rack, host, "virsh list --name 2>/dev/null || true").split():
        given = int(_said(rack, host, GIVEN.format(name=shlex.quote(name))).strip() or 0)
        report = _last_report(rack, host, name)
        if report is None:
            yield Seen(name, False, f"FAILED: it has said nothing on its console within {WAIT_S} s")
        else:
            yield judged(name, host, given, report)


def judged(name: str, host: str, given: int, report: Report) -> Seen:
    """The line about a guest that was given so many devices: each has to be below a switch, on a NUMA node."""
    kinds = {address: (one["vendor"], one["device"]) for address, one in report.devices.items()}
    gpus = [address for address, kind in kinds.items() if kind in STAND_INS]
    vfs = [address for address, kind in kinds.items() if kind == VF]
    lost = [
        address
        for address in (*gpus, *vfs)
        if not _switch_of(report, address) or report.devices[address]["numa_node"] == "-1"
    ]
    switches = {_switch_of(report, address) for address in (*gpus, *vfs)}
    text = f"{len(gpus)} stand-ins and {len(vfs)} VFs below {len(switches)} switch(es), on their NUMA nodes"
    if lost or len(gpus) + len(vfs) != given or not given:
        return Seen(
            name, False, f"FAILED: on {host} it was given {given} devices and sees {text}; lost: {lost or 'none'}"
        )
    return Seen(name, True, f"runs on {host} and sees {text}")


def _switch_of(report: Report, address: str) -> str:
    """The upstream port of the switch right above a device; empty: none."""
    ports = report.devices[address]["path"].split("/")[4:-1]
    if len(ports) < 2 or any(report.devices[port]["vendor"] != SWITCH for port in ports[-2:]):
        return ""
    return ports[-2]


def _last_report(rack: Path, host: str, name: str) -> Report | None:
    end = time.monotonic() + WAIT_S
    console = f"tr -d '\\r' < /var/log/libvirt/qemu/{shlex.quote(name)}-console.log"
    while not (found := reports(_said(rack, host, console))):
        if time.monotonic() > end:
            return None
        time.sleep(2)
    return found[-1]


def _said(rack: Path, host: str, script: str) -> str:
    return subprocess.run([str(rack), "ssh", host, "--", script], capture_output=True, text=True, check=False).stdout
