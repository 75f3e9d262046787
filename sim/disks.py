# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make what a host has in its drive bays: the overlay, stand-in disks, extra file systems."""

from __future__ import annotations

import shutil
from pathlib import Path

from sim.commands import run
from sim.describe import Filesystem, Host
from sim.errors import RackError
from sim.image import Image
from sim.machine import Placement

MIB = 1024 * 1024
# Left for the filler's own extent blocks; single blocks fill the rest.
SPARE_BLOCKS = 8


def make_disks(place: Placement, host: Host, image: Image) -> None:
    """Give a host blank disks, so that its next boot is its first."""
    place.disk.unlink(missing_ok=True)
    create = [*image.emulator.command("qemu-img"), "create", "-q", "-f", "qcow2", "-F", "raw"]
    run([*create, "-b", str(image.disk), str(place.disk)], env=image.emulator.environment)
    shutil.copy(place.firmware / "OVMF_VARS_4M.fd", place.variables)
    for switch in host.switches:
        for device in switch.devices:
            if device.kind == "nvme":
                _make_blank(place.stand_in(device.name), device.mib)
    for filesystem in host.filesystems:
        _make_filesystem(place.stand_in(filesystem.label), filesystem, image)


def _make_blank(path: Path, mib: int) -> None:
    with path.open("wb") as file:
        file.truncate(mib * MIB)


def _make_filesystem(path: Path, wanted: Filesystem, image: Image) -> None:
    _make_blank(path, wanted.mib)
    content = ["-d", str(image.boot)] if wanted.content == "boot" else []
    # Without a reserve: root could still write to a file system that is full for others only.
    run(["mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", "-L", wanted.label, *content, str(path)])
    if wanted.full:
        _fill(path)


def _fill(path: Path) -> None:
    size = _number(path, "Block size")
    _write_into(path, size * max(0, _number(path, "Free blocks") - SPARE_BLOCKS), "filler")
    for index in range(_number(path, "Free blocks")):
        _write_into(path, size, f"filler{index}")
    if left := _number(path, "Free blocks"):
        raise RackError(f"{path}: {left} blocks are still free (wanted none). Give it another mib.")


def _write_into(path: Path, length: int, name: str) -> None:
    filler = path.with_suffix(".filler")
    filler.write_bytes(b"\xff" * length)
    # debugfs needs no mount, and so no privilege and nothing to clean up.
    run(["debugfs", "-w", "-R", f"write {filler} {name}", str(path)])
    filler.unlink()


def _number(path: Path, label: str) -> int:
    for line in run(["dumpe2fs", "-h", str(path)]).splitlines():
        name, _, value = line.partition(":")
        if name == label:
            return int(value)
    raise RackError(f"{path}: dumpe2fs says no {label!r}. Remove the file.")
