# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PCI addresses: one value type, tolerant of how people and tools write them, canonical on output."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..core.errors import IntentError, Problem

_WRITTEN = re.compile(
    r"(?:0x)?(?:(?P<domain>[0-9a-fA-F]{1,8}):)?(?P<bus>[0-9a-fA-F]{1,2}):(?P<device>[0-9a-fA-F]{1,2})\.(?P<function>[0-7])"
)
_FORM = "domain:bus:device.function, such as 0000:3b:00.0"


@dataclass(frozen=True, order=True)
class Address:
    """Domain (32 bits: VMD and some clouds exceed 16), bus (8), device (5) and function (3)."""

    domain: int
    bus: int
    device: int
    function: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """The address that a text means; ValueError with one sentence otherwise.

        Without a domain it is domain 0. Digits are hexadecimal, in either case, as the kernel and lspci write them.
        """
        match = _WRITTEN.fullmatch(text.strip())
        if match is None or int(match["device"], 16) > 0x1F:
            raise ValueError(f"is not a PCI address of the form {_FORM}")
        return cls(
            int(match["domain"] or "0", 16), int(match["bus"], 16), int(match["device"], 16), int(match["function"])
        )

    def __hash__(self) -> int:
        # Policies look addresses up by the thousand; the one that dataclass makes builds a tuple first.
        return self.domain << 16 | self.bus << 8 | self.device << 3 | self.function

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.{self.function:x}"

    @property
    def routing_id(self) -> int:
        """Bus, device and function as the 16 bits that travel on the link (PCIe requester id)."""
        return self.bus << 8 | self.device << 3 | self.function

    def plus(self, distance: int) -> Address:
        """The function whose routing id lies further by that much, which may be on a later bus (SR-IOV offset and stride)."""
        there = self.routing_id + distance
        return Address(self.domain, there >> 8 & 0xFF, there >> 3 & 0x1F, there & 0x7)


def address_in(path: str, text: str) -> Address:
    """The address that an inventory value means; IntentError, with what may have been meant, otherwise."""
    try:
        return Address.parse(text)
    except ValueError:
        near = _nearest(text)
        advice = f"Did you mean {near}?" if near else "Look it up with host_topology_info or lspci -D."
        raise IntentError([Problem(path, "is not a PCI address", advice, found=repr(text), wanted=_FORM)]) from None


def _nearest(text: str) -> str:
    """The address with the same digits and the right signs between them, a missing function taken for the first."""
    parts = re.findall(r"[0-9a-fA-F]+", text)
    if len(parts) == 3 and len(parts[0]) >= 4:
        parts.append("0")
    if len(parts) not in (3, 4) or any(not 1 <= len(part) <= 8 for part in parts):
        return ""
    try:
        return str(Address.parse(f"{':'.join(parts[:-1])}.{parts[-1]}"))
    except ValueError:
        return ""
