# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell what is described, what runs, and whether this machine can do it."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from sim.acceleration import known_accelerator
from sim.describe import Host
from sim.image import Image, find_image
from sim.places import Rack, cache_folder
from sim.ports import read_port
from sim.power import report_of, supervisor_runs
from sim.requirements import missing_packages
from sim.waiting import answers_now

GIB = 1024**3
# Measured: a booted host keeps about 1 GiB resident; guests inside it come on top.
HOST_MEMORY_GIB = 1.5
BUILD_DISK_GIB = 4


@dataclass(frozen=True)
class HostStatus:
    """The state of one host, each part from where it cannot be stale."""

    name: str
    in_rack: bool
    power: str
    ssh: bool
    port: int | None
    qemu_pid: int | None
    starts: int
    on_for_s: int | None
    last_end: str
    folder: str


def status_of(rack: Rack, name: str) -> HostStatus:
    """Return the state of one host now."""
    report = report_of(rack, name)
    on = report["power"] == "on"
    return HostStatus(
        name=name,
        in_rack=supervisor_runs(rack, name),
        power=report["power"],
        ssh=on and answers_now(rack, name),
        port=read_port(rack.host(name) / "port"),
        qemu_pid=report["qemu_pid"],
        starts=report["starts"],
        on_for_s=round(time.time() - report["since"]) if on else None,
        last_end=report["last_end"],
        folder=str(rack.host(name)),
    )


def status_text(rack: Rack, hosts: Iterable[Host], *, as_json: bool) -> str:
    """Describe the default hosts and every other one that was ever up."""
    names = [host.name for host in hosts if host.default or rack.host(host.name).is_dir()]
    found = [status_of(rack, name) for name in names]
    if as_json:
        return json.dumps([asdict(status) for status in found], indent=2)
    rows: list[tuple[str, ...]] = [("HOST", "POWER", "SSH", "PORT", "STARTS", "ON FOR")]
    rows += [_status_row(status) for status in found]
    return _table(rows)


def list_text(hosts: Iterable[Host]) -> str:
    """Describe every host that can be started; a star marks those that start unasked."""
    rows: list[tuple[str, ...]] = [("HOST", "", "WHAT IT IS")]
    rows += [(host.name, "*" if host.default else "", host.about) for host in hosts]
    return _table(rows)


def check_machine(rack: Rack, hosts: Iterable[Host]) -> list[tuple[bool, str]]:
    """Return one claim about this machine for each requirement, and whether it holds."""
    image = find_image(rack)
    count = sum(host.default for host in hosts)
    return [
        _check_processor(),
        (sys.version_info >= (3, 11), f"Python {platform.python_version()} (wanted 3.11 or newer)"),
        _check_packages(rack),
        _check_image(image),
        _check_memory(count),
        _check_disk(image),
        (True, _acceleration(image)),
    ]


def _status_row(status: HostStatus) -> tuple[str, ...]:
    power = status.power if status.in_rack else "down"
    age = f"{status.on_for_s} s" if status.on_for_s is not None else status.last_end or "-"
    ssh = "yes" if status.ssh else "no"
    return (status.name, power, ssh, str(status.port or "-"), str(status.starts), age)


def _table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _check_processor() -> tuple[bool, str]:
    found = f"{platform.system()} on {platform.machine()}"
    return found == "Linux on x86_64", f"{found} (wanted Linux on x86_64)"


def _check_packages(rack: Rack) -> tuple[bool, str]:
    missing = missing_packages(rack.packages)
    if not missing:
        return True, "packages of sim/packages.txt are installed"
    names = ", ".join(missing)
    if os.geteuid() == 0:
        return True, f"packages to install: {names} (the first 'sim/rack up' does it)"
    return False, f"packages missing: {names}. Run 'apt-get install {' '.join(missing)}' as root"


def _check_image(image: Image | None) -> tuple[bool, str]:
    if image is not None:
        return True, f"image is built: {image.folder}"
    if os.geteuid() == 0:
        return True, "image is not built yet (the first 'sim/rack up' does it, in some minutes)"
    return False, "image is not built yet, and only root can build it. Run 'sim/rack image' as root"


def _check_memory(hosts: int) -> tuple[bool, str]:
    free = _available_gib()
    wanted = hosts * HOST_MEMORY_GIB
    return free >= wanted, f"{free:.1f} GiB of memory available (wanted {wanted:.1f} for {hosts} hosts)"


def _available_gib() -> float:
    lines = Path("/proc/meminfo").read_text().splitlines()
    (kib,) = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return int(kib) * 1024 / GIB


def _check_disk(image: Image | None) -> tuple[bool, str]:
    wanted = 1 if image else BUILD_DISK_GIB
    folder = _existing(cache_folder())
    free = shutil.disk_usage(folder).free / GIB
    return free >= wanted, f"{free:.1f} GiB free at {folder} (wanted {wanted})"


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


def _acceleration(image: Image | None) -> str:
    words: dict[str | None, str] = {
        "kvm": "KVM works here: hosts boot in seconds",
        "tcg": "KVM does not boot a kernel here: hosts are emulated (TCG), about a minute to boot",
        None: "KVM: /dev/kvm is there, whether it works is tried at the first 'sim/rack up'",
    }
    return words[known_accelerator(image)]
