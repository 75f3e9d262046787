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

_HAS_LIST = 0x10  # in the status word
_STANDARD, _EXTENDED, _ALL = 0x40, 0x100, 0x1000


@dataclass(frozen=True)
class ConfigSpace:
    """The bytes that could be read: 4096, 256 (no extended space), 64 (no privilege), or none.

    Bytes that are missing are never taken for a capability that is.
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
        if len(self.data) < _ALL or not self.answers:
            return ABSENT if self.capability(EXPRESS) is ABSENT else self._unseen()
        at, seen = _EXTENDED, set()
        while at >= _EXTENDED and at not in seen:
            head = self.word(at, 4)
            if head in (0, 0xFFFFFFFF):
                break
            if head & 0xFFFF == identifier:
                return at
            seen.add(at)
            at = head >> 20 & 0xFFC
        return ABSENT

    def _unseen(self) -> Unreadable:
        if self.data and not self.answers:
            return Unreadable("the configuration space reads as ones only: the function does not answer")
        return Unreadable(f"only {len(self.data)} bytes of configuration space are readable; root is needed for more")
