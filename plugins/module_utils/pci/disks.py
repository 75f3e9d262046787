# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why the host cannot do without a disk: what is mounted from it, swapped to it, built on it, booted from it.

Each in words. A disk of which that cannot be learnt is in use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..core.change import Absent, Unreadable
from ..core.host import Host

BLOCK = "/sys/class/block"
MOUNTS = "/proc/self/mountinfo"
SWAPS = "/proc/swaps"
BTRFS = "/sys/fs/btrfs"
UDEV = "/run/udev/data"
# What a boot waits for, with the column of the device (fstab(5), crypttab(5)): without it, the host does not come up.
TABLES = {"/etc/fstab": 0, "/etc/crypttab": 1}
_TAGS = {
    "UUID": "ID_FS_UUID",
    "LABEL": "ID_FS_LABEL",
    "PARTUUID": "ID_PART_ENTRY_UUID",
    "PARTLABEL": "ID_PART_ENTRY_NAME",
}
_ZFS = "/proc/spl/kstat/zfs"

# Partition types: UEFI specification and the Discoverable Partitions Specification; the third is GRUB's on a GPT.
_BOOT_TYPES = {
    "c12a7328-f81f-11d2-ba4b-00a0c93ec93b": "an EFI system partition",
    "bc13c2ff-59e6-4262-a352-b275fd6f7172": "an extended boot loader partition",
    "21686148-6449-6e6f-744e-656564454649": "a BIOS boot partition",
    "0xef": "an EFI system partition",
}
_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """One line of a process's mountinfo: device number, where it is mounted, type, source."""

    number: str
    place: str
    kind: str
    source: str


@dataclass(frozen=True)
class Disks:
    """What a host uses of its disks. ``parts`` are a disk's own name and those of its partitions."""

    mounts: tuple[Mount, ...] = ()
    unread: str = ""
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    uses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def of(self, disks: Iterable[str]) -> tuple[str, ...]:
        """Why these disks cannot be done without; empty when they can."""
        return tuple(use for disk in disks for part in self.parts.get(disk, (disk,)) for use in self.uses.get(part, ()))


def read(host: Host, disks: Iterable[str]) -> Disks:
    """The uses of these disks, named as in /sys/class/block."""
    text = host.read_text(MOUNTS)
    mounts = parse_mounts(text) if isinstance(text, str) else ()
    unread = "" if isinstance(text, str) else f"{MOUNTS} cannot be read"
    parts = {disk: _parts(host, disk) for disk in dict.fromkeys(disks)}
    names = [name for disk in parts for name in parts[disk]]
    shared, listed = (_shared(host), _listed(host)) if names else ({}, {})
    uses = {name: tuple(_uses(host, name, mounts, shared, listed)) for name in names}
    if unread:
        uses = {name: (*uses[name], f"{name} may be mounted: {unread}") for name in names}
    return Disks(mounts, unread, parts, uses)


def parse_mounts(text: str) -> tuple[Mount, ...]:
    """The lines of mountinfo (Linux Documentation/filesystems/proc.rst, 3.5)."""
    mounts = []
    for line in text.splitlines():
        left, _separator, right = line.partition(" - ")
        words, rest = left.split(" "), right.split(" ")
        if len(words) >= 5 and len(rest) >= 2:
            mounts.append(Mount(words[2], _plain(words[4]), rest[0], _plain(rest[1])))
    return tuple(mounts)


def _plain(text: str) -> str:
    """Blanks and the like are octal in there."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)


def _parts(host: Host, disk: str) -> tuple[str, ...]:
    names = host.names(f"{BLOCK}/{disk}")
    own = names if isinstance(names, tuple) else ()
    return (disk, *(name for name in own if host.exists(f"{BLOCK}/{disk}/{name}/partition")))


def _shared(host: Host) -> dict[str, str]:
    """File systems over several disks by disk: btrfs tells its disks, and shows only one of them as mounted."""
    found = {}
    for system in _names(host, BTRFS):
        for name in _names(host, f"{BTRFS}/{system}/devices"):
            found[name] = f"{name} is part of the btrfs {system}"
    return found


def _names(host: Host, folder: str) -> tuple[str, ...]:
    names = host.names(folder)
    return names if isinstance(names, tuple) else ()


def _uses(
    host: Host, name: str, mounts: Iterable[Mount], shared: Mapping[str, str], listed: Mapping[str, str]
) -> Iterator[str]:
    number = host.read_text(f"{BLOCK}/{name}/dev")
    number = number.strip() if isinstance(number, str) else ""
    places = [one.place for one in mounts if one.number == number or one.source == f"/dev/{name}"]
    if places:
        yield f"{name} is mounted at {', '.join(dict.fromkeys(places))}"
    swaps = host.read_text(SWAPS)
    if isinstance(swaps, str) and any(line.split()[:1] == [f"/dev/{name}"] for line in swaps.splitlines()):
        yield f"{name} is swap space"
    holders = host.names(f"{BLOCK}/{name}/holders")
    if isinstance(holders, tuple) and holders:
        yield f"{', '.join(holders)} lies on {name}"
    if name in shared:
        yield shared[name]
    yield from _marked(host, name, number, listed)


def _marked(host: Host, name: str, number: str, listed: Mapping[str, str]) -> Iterator[str]:
    """What udev has found on it: the firmware boots from it, the next boot wants it, or ZFS has it, which tells no holders."""
    text = host.read_text(f"{UDEV}/b{number}")
    lines = text.splitlines() if isinstance(text, str) else []
    words = dict(line[2:].partition("=")[::2] for line in lines if line.startswith("E:"))
    kind = _BOOT_TYPES.get(words.get("ID_PART_ENTRY_TYPE", "").lower())
    if kind:
        yield f"{name} is {kind}"
    if words.get("ID_FS_TYPE") == "zfs_member" and not isinstance(host.names(_ZFS), (Absent, Unreadable)):
        yield f"{name} is part of a ZFS pool"
    names = {f"{tag}={words[word]}" for tag, word in _TAGS.items() if word in words}
    names |= {f"/dev/{name}", *(f"/dev/{line[2:]}" for line in lines if line.startswith("S:"))}
    for table in sorted({listed[one] for one in names if one in listed}):
        yield f"{name} is in {table}"


def _listed(host: Host) -> dict[str, str]:
    """Block devices, as they are named there, that a boot waits for: file by device."""
    found = {}
    for path, column in TABLES.items():
        text = host.read_text(path)
        for line in text.splitlines() if isinstance(text, str) else []:
            fields = line.split()
            if len(fields) > column and not fields[0].startswith("#"):
                found[_plain(fields[column]).replace('"', "")] = path
    return found
