# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A captured sysfs in an archive: read in memory, as a host whose files are nowhere on this machine.

Archives of ``hwloc-gather-topology``, of sosreport, and whatever else has a ``sys/bus/pci/devices`` in it. Nothing is
unpacked to a disk, so nothing can be written outside a folder, left behind, or followed through a link.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Union

from ..core.answers import Status
from ..core.change import ABSENT, Absent, Bytes, Text, Unreadable
from ..core.errors import Problem, UnreadableState
from ..core.host import Host
from . import sysfs, tar
from .machine import Machine

SOURCE = "sysfs archive"
DEVICES = ("sys", "bus", "pci", "devices")

_KEPT = {"sys", "proc"}
# That one path may lead through, and be made of, as in the kernel.
_MOST_LINKS, _MOST_STEPS, _LONGEST = 40, 2048, 4096
_MOST_FUNCTIONS = 10_000
_SET_ID = 0o6000
_SAID = 3  # names of a sentence


MachineOf = Callable[[Host, str, str], Machine]  # host, name, source


def tree_alone(host: Host, name: str, source: str) -> Machine:
    """The machine of a host with its PCI tree, and nothing about the platform."""
    return Machine(sysfs.read(host), name=name, source=source)


@dataclass
class _Folder:
    """A folder of an archive: folders, bytes, and links as text."""

    names: dict[str, Union[_Folder, bytes, str]] = field(default_factory=dict)


_Entry = Union[_Folder, bytes, str]


class Archived(Host):
    """A host whose files are those of an archive. What a link says leads inside it, or nowhere."""

    def __init__(self, root: _Folder, name: str) -> None:
        """``name`` stands for the root in messages."""
        super().__init__(f"{name}:")
        self._root = root
        self._found: dict[str, Union[_Folder, None]] = {}

    def at(self, path: str) -> str:
        """Nowhere on this machine."""
        raise FileNotFoundError(errno.ENOENT, "is in an archive", path)

    def read_text(self, path: str) -> Text:
        """Text of a file."""
        entry = self._entry(path)
        if isinstance(entry, _Folder):
            return Unreadable(f"{path}: Is a directory")
        return ABSENT if entry is None else entry.decode("utf-8", "surrogateescape")

    def read_bytes(self, path: str, size: int = 4096, start: int = 0) -> Bytes:
        """Bytes of a file from a place on."""
        entry = self._entry(path)
        if isinstance(entry, _Folder):
            return Unreadable(f"{path}: Is a directory")
        return ABSENT if entry is None else entry[start : start + size]

    def link(self, path: str) -> Text:
        """What a link says."""
        folder, _slash, name = path.rstrip("/").rpartition("/")
        above = self._folder(folder)
        entry = above.names.get(name) if above is not None else None
        if entry is None:
            return ABSENT
        return entry if isinstance(entry, str) else Unreadable(f"{path}: is no link")

    def names(self, path: str) -> tuple[str, ...] | Absent | Unreadable:
        """Sorted names in a folder."""
        entry = self._folder(path.rstrip("/"))
        return ABSENT if entry is None else tuple(sorted(entry.names))

    def exists(self, path: str) -> bool:
        """True when the path is there."""
        return self._entry(path) is not None

    def status(self, path: str) -> Status | Absent | Unreadable:
        """Size of a file; an archive's times and modes mean nothing here."""
        entry = self._entry(path)
        if entry is None:
            return ABSENT
        return Status(len(entry) if isinstance(entry, bytes) else 0, 0, 0o755 if isinstance(entry, _Folder) else 0o644)

    def _entry(self, path: str) -> Union[_Folder, bytes, None]:
        folder, _slash, name = path.rstrip("/").rpartition("/")
        above = self._folder(folder)
        if above is None:
            return None
        entry = above.names.get(name) if name else above
        return self._walk(f"{folder}/{name}") if isinstance(entry, str) or name in (".", "..") else entry

    def _folder(self, path: str) -> Union[_Folder, None]:
        if path not in self._found:
            entry = self._walk(path)
            self._found[path] = entry if isinstance(entry, _Folder) else None
        return self._found[path]

    def _walk(self, path: str) -> Union[_Folder, bytes, None]:
        """Where a path leads, as the kernel would resolve it below this root."""
        waiting = path.split("/")[::-1]
        at: list[_Folder] = [self._root]
        links = steps = 0
        while waiting:
            step = waiting.pop()
            steps += 1
            if steps > _MOST_STEPS or links > _MOST_LINKS:
                return None
            if step in ("", "."):
                continue
            if step == "..":
                at = at[:-1] or at
                continue
            entry = at[-1].names.get(step)
            if isinstance(entry, str):
                links += 1
                at = [self._root] if entry.startswith("/") else at
                waiting += entry.split("/")[::-1]
            elif isinstance(entry, _Folder):
                at.append(entry)
            else:
                return None if any(one not in ("", ".") for one in waiting) else entry
        return at[-1]


def read(
    data: bytes, name: str = "", limits: Union[tar.Limits, None] = None, machine_of: MachineOf = tree_alone
) -> Machine:
    """The machine of an archive; UnreadableState where it is damaged, too large, or has no PCI devices in it.

    ``machine_of`` reads the host that the archive holds.
    """
    root, left_out = _unpacked(data, name, limits or tar.Limits())
    roots = list(_roots(root))
    if len(roots) != 1:
        found = ", ".join(path or "/" for path, _folder in roots[:_SAID]) or "none"
        fact = "has several captured machines in it" if roots else "has no captured PCI devices in it"
        advice = (
            "Give one machine's capture of /sys, such as that of hwloc-gather-topology, "
            "or an archive with the inputs directly in it."
        )
        raise UnreadableState([Problem(name, fact, advice, found=found, wanted="one folder with sys/bus/pci/devices")])
    host = Archived(roots[0][1], name)
    devices = host.names(sysfs.DEVICES)
    if isinstance(devices, tuple) and len(devices) > _MOST_FUNCTIONS:
        fact, found = "has too many PCI devices in it", str(len(devices))
        raise UnreadableState([Problem(name, fact, "Capture it again.", found, f"at most {_MOST_FUNCTIONS}")])
    machine = machine_of(host, name, SOURCE)
    return replace(machine, missing=(*machine.missing, *_sentences(left_out)))


def _unpacked(data: bytes, name: str, limits: tar.Limits) -> tuple[_Folder, dict[str, list[str]]]:
    """The files that matter, and what was left out, by reason."""
    placing = _Placing(limits.members)
    left_out: dict[str, list[str]] = {}
    stream = tar.Unpacked(data, name, limits.unpacked)
    for member in tar.members(stream, limits, is_kept):
        reason = _refused(member)
        if not reason and is_kept(member.name):
            reason = placing.put(member)
        if reason:
            left_out.setdefault(reason, []).append(member.name)
        if placing.room < 0:
            raise stream.bad(f"has more than {limits.members} folders", "Give a capture of /sys alone.")
    return placing.root, left_out


def is_kept(name: str) -> bool:
    """Whether a member may be part of a captured machine: only what a reader may ask for; a support bundle has much else."""
    return not _KEPT.isdisjoint(name.split("/"))


def _refused(member: tar.Member) -> str:
    """Why a member is not taken; empty: it is."""
    steps = member.name.split("/")
    if member.name.startswith("/") or ".." in steps:
        return "a place outside the archive"
    if max(len(member.name), len(member.target)) > _LONGEST:
        return "longer than a path can be"
    if member.kind in (tar.OTHER, tar.HARD_LINK):
        return member.what or member.kind
    if member.kind == tar.FILE and member.mode & _SET_ID:
        return "set-user-id or set-group-id"
    if member.kind == tar.LINK and _climbs(steps, member.target):
        return "a link that leads outside the archive"
    return ""


def _climbs(steps: list[str], target: str) -> bool:
    """Whether a relative link goes above the archive. An absolute one starts at the captured machine's own root."""
    depth = 0 if target.startswith("/") else sum(step not in ("", ".") for step in steps) - 1
    for step in target.split("/"):
        depth += -1 if step == ".." else step not in ("", ".")
        if depth < 0:
            return True
    return False


class _Placing:
    """A tree that is filled with members; nothing is placed through a link."""

    def __init__(self, room: int) -> None:
        """``room`` are the folders that it may have."""
        self.root = _Folder()
        self.room = room

    def folder(self, above: _Folder, name: str) -> Union[_Folder, None]:
        """A folder in another one, made where nothing is; None where something else is."""
        if name not in above.names:
            above.names[name] = _Folder()
            self.room -= 1
        entry = above.names[name]
        return entry if isinstance(entry, _Folder) else None

    def put(self, member: tar.Member) -> str:
        """Place a member; why it could not be, or an empty text."""
        steps = [step for step in member.name.split("/") if step not in ("", ".")]
        if not steps:
            return "" if member.kind == tar.FOLDER else "no name of a captured file"
        at = self.root
        for step in steps if member.kind == tar.FOLDER else steps[:-1]:
            below = self.folder(at, step)
            if below is None or self.room < 0:
                return "something in the place of another member"
            at = below
        if member.kind != tar.FOLDER:
            if isinstance(at.names.get(steps[-1]), _Folder):
                return "something in the place of another member"
            if member.kind == tar.FILE and member.data is None:
                return "larger than an attribute of the kernel"
            at.names[steps[-1]] = member.target if member.kind == tar.LINK else member.data or b""
        return ""


def _roots(root: _Folder) -> Iterator[tuple[str, _Folder]]:
    """The folders with captured PCI devices, the outermost ones."""
    waiting: list[tuple[PurePosixPath, _Folder]] = [(PurePosixPath(), root)]
    while waiting:
        path, folder = waiting.pop()
        if _has_devices(folder):
            yield str(path), folder
            continue
        waiting += [(path / name, one) for name, one in folder.names.items() if isinstance(one, _Folder)]


def _has_devices(folder: _Folder) -> bool:
    entry: Union[_Entry, None] = folder
    for step in DEVICES:
        entry = entry.names.get(step) if isinstance(entry, _Folder) else None
    return isinstance(entry, _Folder)


def _sentences(left_out: dict[str, list[str]]) -> Iterator[str]:
    for reason, names in sorted(left_out.items()):
        more = f" and {len(names) - _SAID} more" if len(names) > _SAID else ""
        quoted = ", ".join(repr(name) for name in names[:_SAID])
        yield f"left out of the archive as {reason}: {quoted}{more}"
