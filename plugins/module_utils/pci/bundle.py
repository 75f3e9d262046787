# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many inputs in one: a folder of them, or an archive, one after the other, so that thousands need no more memory than one.

A captured machine is one input, also where it is a folder or an archive itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Union

from ..core.change import Unreadable
from ..core.errors import Problem, UnreadableState
from ..core.host import Host
from . import archive, sysfs, tar

Given = tuple[str, Union[str, bytes]]  # a name, and a path or the bytes themselves

# Of an archive of inputs one is in memory at a time, so its whole size matters little.
_LIMITS = tar.Limits(packed=1 << 40, unpacked=1 << 40, file=256 << 20, kept=1 << 40, members=1_000_000)
_DEEPEST = 2  # names of a file in an archive of inputs: its own, and that of one folder
_HEAD = 1 << 16  # bytes that a decompressor may need for the first block


class Pieces:
    """A file whose bytes are read when they are asked for."""

    def __init__(self, host: Host, path: str) -> None:
        """``path`` is a file of this machine."""
        self.host, self.path = host, path

    def __getitem__(self, piece: slice) -> bytes:
        data = self.host.read_bytes(self.path, piece.stop - (piece.start or 0), piece.start or 0)
        if isinstance(data, Unreadable):
            raise UnreadableState([Problem(self.path, f"cannot be read: {data.cause}", "Copy it again.")])
        return data if isinstance(data, bytes) else b""


def inputs(path: str, host: Union[Host, None] = None) -> Iterator[Given]:
    """The inputs at a path in the order of their names, or of the archive; the path itself where it is one."""
    host = host or Host()
    names = host.names(path)
    if isinstance(names, tuple):
        yield from _in_folder(path, names, host)
        return
    stream = Pieces(host, path)
    if isinstance(host.status(path), Unreadable) or not holds_inputs(stream, path):
        yield path, path
        return
    yield from of_archive(stream, path)


def _in_folder(path: str, names: tuple[str, ...], host: Host) -> Iterator[Given]:
    """A folder is one of inputs where it is no captured machine and has a file or a captured machine in it."""
    below = [f"{path.rstrip('/')}/{name}" for name in names if not name.startswith(".")]
    if _is_machine(path, host) or not any(_is_input(one, host) for one in below):
        yield path, path
        return
    yield from ((one, one) for one in below)


def _is_machine(path: str, host: Host) -> bool:
    return isinstance(host.names(f"{path.rstrip('/')}{sysfs.DEVICES}"), tuple)


def _is_input(path: str, host: Host) -> bool:
    return not isinstance(host.names(path), tuple) or _is_machine(path, host)


def holds_inputs(data: Union[bytes, Pieces], name: str) -> bool:
    """Whether an archive has files, none deep in it, and nothing of a captured machine. One that cannot be read is left to those who say why."""
    try:
        head = data[:_HEAD]
        if not tar.is_tar(tar.Unpacked(head, name, _LIMITS.unpacked).read(tar.BLOCK)):
            return False
        found = False
        for one in tar.members(tar.Unpacked(data, name, _LIMITS.unpacked), _LIMITS, lambda _name: False):
            steps = [step for step in one.name.split("/") if step not in ("", ".")]
            if archive.is_kept(one.name) or (one.kind == tar.FILE and len(steps) > _DEEPEST):
                return False
            found = found or one.kind == tar.FILE
    except UnreadableState:
        return False
    return found


def of_archive(data: Union[bytes, Pieces], name: str) -> Iterator[Given]:
    """The files of an archive, each with its bytes. What is no file is left out."""
    for one in tar.members(tar.Unpacked(data, name, _LIMITS.unpacked), _LIMITS, lambda _name: True):
        if one.kind != tar.FILE:
            continue
        if one.data is None:
            fact = f"is larger than {_LIMITS.file >> 20} MiB"
            raise UnreadableState([Problem(f"{name}: {one.name}", fact, "Give the text of one machine.")])
        yield f"{name}: {one.name}", one.data
