# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Attributes of a folder of sysfs, as text, numbers and link targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from ..core.change import Text, Unreadable
from ..core.host import Host
from .address import Address
from .tree import Number


@dataclass(frozen=True)
class Folder:
    """A folder of sysfs; what is not there is ABSENT, what cannot be read or understood Unreadable."""

    host: Host
    path: str

    def text(self, name: str) -> Text:
        """An attribute without the newline at its end."""
        data = self.host.read_bytes(f"{self.path}/{name}")
        return data.decode("utf-8", "surrogateescape").strip() if isinstance(data, bytes) else data

    def bytes(self, name: str, size: int, start: int) -> bytes:
        """Bytes of an attribute from a place on; none where it cannot be read."""
        data = self.host.read_bytes(f"{self.path}/{name}", size, start)
        return data if isinstance(data, bytes) else b""

    def number(self, name: str, base: int = 10) -> Number:
        """An attribute that is a number."""
        text = self.text(name)
        if not isinstance(text, str):
            return text
        try:
            return int(text, base)
        except ValueError:
            return Unreadable(f"{self.path}/{name}: {text!r} is not a number")

    def last(self, name: str) -> Text:
        """The last step of where a link leads."""
        target = self.host.link(f"{self.path}/{name}")
        return target.rstrip("/").rpartition("/")[2] if isinstance(target, str) else target

    def names(self, name: str) -> tuple[str, ...]:
        """What is in a folder below; nothing where it is not there."""
        found = self.host.names(f"{self.path}/{name}")
        return found if isinstance(found, tuple) else ()


def address_of(name: str) -> Union[Address, None]:
    """The address that the name of a folder is, if it is one."""
    try:
        return Address.parse(name)
    except ValueError:
        return None


def steps_of(target: str) -> list[str]:
    """The steps below /sys of where a link of sysfs leads; such a link is relative and leads through no other."""
    return [step for step in target.split("/") if step not in ("", "..", "sys")]
