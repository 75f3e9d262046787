# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Disks that UEFI boots from, made of files: no loop device and no mount. The same input gives the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from sim.commands import run

MIB = 1024 * 1024
# Times of files on an ESP; dosfstools and mtools take them from here.
EPOCH = {"SOURCE_DATE_EPOCH": "1700000000", "TZ": "UTC"}


def make_esp(esp: Path, mib: int, files: Mapping[str, Path], log: Path) -> None:
    """Make the image of an EFI system partition with these files."""
    run(["mkfs.vfat", "--invariant", "-F", "32", "-n", "ESP", "-C", str(esp), str(mib * 1024)], log=log, env=EPOCH)
    folders = {f"::{folder}" for name in files for folder in PurePosixPath(name).parents if folder.name}
    run(["mmd", "-i", str(esp), *sorted(folders)], log=log, env=EPOCH)
    for name, source in files.items():
        run(["mcopy", "-i", str(esp), str(source), f"::{name}"], log=log, env=EPOCH)


def partition(disk: Path, mib: int, layout: Sequence[str], log: Path) -> None:
    """Make a disk with the partitions that these lines of sfdisk describe."""
    with disk.open("wb") as whole:
        whole.truncate(mib * MIB)
    script = disk.with_name("layout")
    script.write_text("\n".join(layout) + "\n")
    run(["sh", "-c", 'sfdisk -q "$1" < "$2"', "sh", str(disk), str(script)], log=log)
    script.unlink()


def put(part: Path, disk: Path, start_mib: int) -> None:
    """Write the image of a partition to its place, and remove it."""
    with disk.open("r+b") as whole:
        whole.seek(start_mib * MIB)
        whole.write(part.read_bytes())
    part.unlink()
