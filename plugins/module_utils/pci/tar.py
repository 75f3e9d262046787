# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The members of a tar archive, read from memory, without anything being written anywhere.

Formats: POSIX.1-1988 (ustar), POSIX.1-2001 (pax) and GNU tar, as in their manuals. The standard library's reader is not
used: it takes sizes that an archive claims on trust, and what it filters depends on its version.
"""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Callable, Protocol, Union

from ..core.errors import Problem, UnreadableState

BLOCK = 512
FILE, FOLDER, LINK, HARD_LINK, OTHER = "file", "folder", "link", "hard link", "other"
_KINDS = {b"0": FILE, b"\0": FILE, b"7": FILE, b"5": FOLDER, b"2": LINK, b"1": HARD_LINK}
_OTHERS = {b"3": "device node", b"4": "device node", b"6": "fifo"}
_LONG_NAME, _LONG_LINK, _PAX, _PAX_ALL = b"L", b"K", b"x", b"g"
_HEADERS = 1 << 20  # bytes of a name or of the records of a member
_PIECE = 1 << 20  # bytes that are decompressed at a time
_GIVEN = 1 << 16  # bytes that a decompressor is given at a time, since what it leaves of them is copied
_MAGIC = 8  # bytes that tell a compression
_STREAMS = 100_000  # compressed streams in one input


@dataclass(frozen=True)
class Limits:
    """What is read at most. ``unpacked`` are bytes after decompression, ``file`` those of one file that is kept."""

    packed: int = 256 << 20
    unpacked: int = 1 << 30
    file: int = 4 << 20
    kept: int = 256 << 20
    members: int = 300_000


@dataclass(frozen=True)
class Member:
    """One member. ``kind`` is one of the words above, ``what`` tells of OTHER what it is; ``data`` is None unless kept."""

    name: str
    kind: str
    mode: int
    size: int
    target: str = ""
    what: str = ""
    data: Union[bytes, None] = None


def compression(data: bytes) -> str:
    """How bytes are compressed, by their first ones; empty: they are not."""
    for magic, name in ((b"\x1f\x8b", "gzip"), (b"BZh", "bzip2"), (b"\xfd7zXZ\0", "xz")):
        if data.startswith(magic):
            return name
    return ""


def is_tar(data: bytes) -> bool:
    """Whether bytes begin with a header of tar whose checksum is right."""
    return len(data) >= BLOCK and _checked(data[:BLOCK])


class Sliced(Protocol):
    """Bytes, or what gives pieces of them."""

    def __getitem__(self, piece: slice, /) -> bytes:
        """The bytes of a piece."""


class Unpacked:
    """Bytes that come out of a compressed input piece by piece, never more of them than asked for."""

    def __init__(self, data: Sliced, name: str, limit: int) -> None:
        """``limit`` are the bytes that may come out in all."""
        self.data, self.name, self.limit = data, name, limit
        self.at = self.out = self.streams = 0
        self.kind = compression(data[:_MAGIC])
        self.machine: Any = self._fresh() if self.kind else None
        self.buffer, self.start = b"", 0  # what came out and was not read yet begins there
        self.rest = b""

    def _fresh(self) -> Any:
        makers: dict[str, Callable[[], Any]] = {
            "gzip": lambda: zlib.decompressobj(31),
            "bzip2": bz2.BZ2Decompressor,
            "xz": lambda: lzma.LZMADecompressor(memlimit=512 << 20),
        }
        return makers[self.kind]()

    def read(self, size: int) -> bytes:
        """As many bytes as asked for; fewer only at the end."""
        while len(self.buffer) - self.start < size:
            piece = self._piece()
            if not piece:
                break
            self.buffer, self.start = self.buffer[self.start :] + piece, 0
        found = self.buffer[self.start : self.start + size]
        self.start += len(found)
        return found

    def skip(self, size: int) -> bool:
        """Pass over bytes; False where there are not as many."""
        while size > 0:
            got = len(self.read(min(size, _PIECE)))
            if not got:
                return False
            size -= got
        return True

    def _piece(self) -> bytes:
        try:
            piece = self._next()
        except (zlib.error, lzma.LZMAError, OSError, ValueError) as error:
            raise self.bad(f"is no whole {self.kind} file: {error}", "It seems to be damaged: copy it again.") from None
        self.out += len(piece)
        if self.out > self.limit:
            fact = f"unpacks to more than {self.limit >> 20} MiB"
            raise self.bad(fact, "Give a capture of /sys alone, such as that of hwloc-gather-topology.")
        return piece

    def _next(self) -> bytes:
        if not self.kind:
            piece = self.data[self.at : self.at + _PIECE]
            self.at += len(piece)
            return piece
        while True:
            if self.machine.eof:
                # What follows a stream is another one, or padding.
                left = bytes(self.machine.unused_data) or self._fed()
                if compression(left) != self.kind:
                    return b""
                self.machine, self.rest = self._fresh(), left
                self.streams += 1
                if self.streams > _STREAMS:
                    raise ValueError(f"it has more than {_STREAMS} streams")
            given = self.rest if self.rest or not self._wants() else self._fed()
            if not given and self._wants():
                raise ValueError("it ends before its end")
            unpacked: bytes = self.machine.decompress(given, _PIECE)
            self.rest = self.machine.unconsumed_tail if self.kind == "gzip" else b""
            if unpacked:
                return unpacked

    def _wants(self) -> bool:
        """Whether the decompressor has nothing left of what it was given."""
        return self.kind == "gzip" or bool(self.machine.needs_input)

    def _fed(self) -> bytes:
        given = self.data[self.at : self.at + _GIVEN]
        self.at += len(given)
        return given

    def bad(self, fact: str, advice: str) -> UnreadableState:
        """The error for this input."""
        return UnreadableState([Problem(self.name, fact, advice)])


def plain(data: bytes, name: str, limit: int) -> bytes:
    """All bytes of an input without its compression; UnreadableState where they are more than the limit."""
    stream = Unpacked(data, name, limit)
    parts: list[bytes] = []
    while True:
        piece = stream.read(_PIECE)
        if not piece:
            return b"".join(parts)
        parts.append(piece)


def members(stream: Unpacked, limits: Limits, keep: Callable[[str], bool]) -> Iterator[Member]:
    """The members in their order. Files for whose name ``keep`` is true come with their bytes, unless one is too large.

    UnreadableState where the archive is cut off, damaged, or goes beyond a limit.
    """
    kept = 0
    for one in _headers(stream, limits):
        if one.kind == FILE and one.size <= limits.file and keep(one.name):
            kept += one.size
            if kept > limits.kept:
                fact = f"has more than {limits.kept >> 20} MiB of files in /sys and /proc"
                raise stream.bad(fact, "Attributes of /sys are small; capture them again.")
            yield replace(one, data=_body(stream, one.size))
            continue
        yield one
        if one.kind in (FILE, OTHER) and not stream.skip(_padded(one.size)):
            raise stream.bad(f"is cut off in {one.name!r}", "Copy it again.")


def _headers(stream: Unpacked, limits: Limits) -> Iterator[Member]:
    """The members without their bytes, which the caller takes from the stream, or passes over, before the next one."""
    said: dict[str, str] = {}
    for count, header in enumerate(iter(lambda: stream.read(BLOCK), b"")):
        if header.count(0) == BLOCK == len(header):
            return
        if count >= limits.members:
            raise stream.bad(f"has more than {limits.members} members", "Give a capture of /sys alone.")
        kind, size = header[156:157], _octal(header[124:136])
        if len(header) < BLOCK or not _checked(header) or size < 0:
            raise stream.bad(f"is damaged or cut off after {count} headers", "Copy it again.")
        if kind in (_LONG_NAME, _LONG_LINK, _PAX, _PAX_ALL):
            if size > _HEADERS:
                raise stream.bad(f"has a name of {size} bytes", "Make it again with tar.")
            _told(kind, _body(stream, size), said)
            continue
        size = int(said["size"]) if re.fullmatch("[0-9]{1,15}", said.get("size", "")) else size
        yield _member(header, kind, size, said)
        said = {}
    raise stream.bad("is cut off: it has no end", "Copy it again.")


def _body(stream: Unpacked, size: int) -> bytes:
    data = stream.read(_padded(size))
    if len(data) < size:
        raise stream.bad("is cut off within a member", "Copy it again.")
    return data[:size]


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _checked(header: bytes) -> bool:
    """The sum of the bytes of a header, its own field taken as blanks."""
    return _octal(header[148:156]) == sum(header) - sum(header[148:156]) + 8 * 0x20


def _octal(field: bytes) -> int:
    """A number of a header, octal or, from GNU tar, binary; -1 where it is none."""
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")
    text = field.strip(b" \0")
    try:
        return int(text or b"0", 8) if b"_" not in text and text[:1] not in b"+-" or not text else -1
    except ValueError:
        return -1


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _told(kind: bytes, data: bytes, said: dict[str, str]) -> None:
    """What a header before a member says about it; records about all members are none that matter here."""
    if kind == _LONG_NAME:
        said["path"] = _text(data)
    elif kind == _LONG_LINK:
        said["linkpath"] = _text(data)
    elif kind == _PAX:
        while data:
            length, _blank, _rest = data.partition(b" ")
            size = int(length) if length.isdigit() and len(length) < 9 else 0
            key, _sign, value = data[len(length) + 1 : size - 1].partition(b"=")
            if size <= len(length) + 1 or size > len(data):
                return
            said[key.decode("utf-8", "replace")] = value.decode("utf-8", "surrogateescape")
            data = data[size:]


def _member(header: bytes, kind: bytes, size: int, said: dict[str, str]) -> Member:
    name = _text(header[:100])
    prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
    name = said.get("path", f"{prefix}/{name}" if prefix else name)
    word = _KINDS.get(kind, OTHER)
    sparse = any(key.startswith("GNU.sparse") for key in said)
    if word == FILE and (name.endswith("/") or sparse):
        word = OTHER if sparse else FOLDER
    target = said.get("linkpath", _text(header[157:257]))
    what = "" if word != OTHER else _OTHERS.get(kind, "sparse file" if sparse or kind == b"S" else "unknown kind")
    return Member(name, word, _octal(header[100:108]) & 0o7777, size, target, what)
