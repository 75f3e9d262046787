# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configuration space of one function as bytes, and the capabilities in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from ..core.change import ABSENT, Absent, Unreadable

Offset = Union[int, Absent, Unreadable]

# Identifiers: Linux include/uapi/linux/pci_regs.h.
EXPRESS = 0x10
AER = 0x0001
SERIAL = 0x0003
ACS = 0x000D
ATS = 0x000F
SRIOV = 0x0010
RESIZABLE = 0x0015

# Bytes of an extended capability that are looked at; of others its header.
_SIZES = {SERIAL: 0x0C, ACS: 0x08, ATS: 0x08, SRIOV: 0x40}

_HAS_LIST = 0x10  # in the status word
_STANDARD, _EXTENDED, _ALL = 0x40, 0x100, 0x1000
_BLOCK = 0x100


@dataclass(frozen=True)
class ConfigSpace:
    """The bytes from its beginning, as many as could be read.

    All up to the end of the capabilities, 256 (no extended space), 64 (no privilege), or none. A capability in bytes
    that are missing is unknown, not absent.
    """

    data: bytes = b""

    def word(self, offset: int, size: int = 2) -> int:
        """A little-endian number at an offset that is known to be inside."""
        return int.from_bytes(self.data[offset : offset + size], "little")

    @property
    def answers(self) -> bool:
        """False when all of the header reads as ones: the function is off, in reset or gone. Of a VF, only the ids do."""
        return self.data[:_STANDARD] != b"\xff" * _STANDARD

    def capability(self, identifier: int) -> Offset:
        """Offset of a capability of the first 256 bytes."""
        if len(self.data) <= _STANDARD or not self.answers:
            return self._unseen()
        if not self.data[0x06] & _HAS_LIST:
            return ABSENT
        at, seen = self.data[0x34] & 0xFC, set()
        while at >= _STANDARD and at not in seen:
            if at + 1 >= len(self.data):
                return self._unseen()
            if self.data[at] == identifier:
                return at
            seen.add(at)
            at = self.data[at + 1] & 0xFC
        return ABSENT

    def extended(self, identifier: int) -> Offset:
        """Offset of an extended capability; ABSENT also where the function has no extended space."""
        if len(self.data) <= _EXTENDED or not self.answers:
            return ABSENT if self.capability(EXPRESS) is ABSENT else self._unseen()
        found, beyond = self._extended_list()
        at = found.get(identifier)
        if at is None:
            return self._unseen() if beyond else ABSENT
        return at if at + _SIZES.get(identifier, 4) <= len(self.data) else self._unseen()

    @property
    def more(self) -> int:
        """How many bytes a reader should read on to see all capabilities; 0: this is all, or all there is to get."""
        if not _EXTENDED <= len(self.data) < _ALL or not isinstance(self.capability(EXPRESS), int):
            return 0
        found, beyond = self._extended_list()
        end = max([at + _SIZES.get(identifier, 4) for identifier, at in found.items()] + [beyond])
        if end <= len(self.data) and not beyond:
            return 0
        return min(-(-(end + 1) // _BLOCK) * _BLOCK, _ALL) - len(self.data)

    def _extended_list(self) -> tuple[dict[int, int], int]:
        """Offsets by identifier, the first of each; and where the list goes on beyond the data (0: it does not)."""
        found: dict[int, int] = {}
        at, seen = _EXTENDED, set()
        while at >= _EXTENDED and at not in seen:
            if at + 4 > len(self.data):
                return found, at
            head = self.word(at, 4)
            if head in (0, 0xFFFFFFFF):
                break
            found.setdefault(head & 0xFFFF, at)
            seen.add(at)
            at = head >> 20 & 0xFFC
        return found, 0

    def _unseen(self) -> Unreadable:
        if self.data and not self.answers:
            return Unreadable("the configuration space reads as ones only: the function does not answer")
        why = "root is needed for more" if len(self.data) <= _STANDARD else "its capabilities go on beyond them"
        return Unreadable(f"only {len(self.data)} bytes of configuration space are readable; {why}")
