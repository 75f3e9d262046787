# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What pictures say of one function, in a few words on it and in full where one points at it. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Union

from ..core.change import Absent, Unreadable
from ..core.ranges import ranges
from ..pci.address import Address
from ..pci.capabilities import Ats, Express, Words, acs_names
from ..pci.tree import Function

# What XML 1.0 cannot hold, what a terminal would obey, and what turns the direction of text around.
_BARRED = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\uffff]")
# Bridges by their port-type register: PCI Express to PCI, and the reverse.
_CONVENTIONAL = (7, 8)
_SHORT = {
    0x0104: "RAID", 0x0106: "SATA", 0x0108: "NVMe", 0x0200: "Ethernet", 0x0207: "InfiniBand", 0x0280: "network",
    0x0300: "VGA", 0x0302: "3D", 0x0403: "audio", 0x0600: "host bridge", 0x0601: "ISA bridge", 0x0680: "bridge",
    0x0C03: "USB", 0x0C05: "SMBus", 0x1200: "accelerator",
}  # fmt: skip


def clean(text: str) -> str:
    """A text as one line without characters that steer a terminal or that XML forbids."""
    return _BARRED.sub("\ufffd", " ".join(text.split()))


def cells(text: str) -> int:
    """How many columns of a fixed-width font a text takes."""
    if text.isascii():  # as nearly all
        return len(text)
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _fitting(text: str, columns: int) -> int:
    """How many of the first characters take at most so many columns; looks at no more of them than that."""
    taken = 0
    for at, char in enumerate(text):
        taken += cells(char)
        if taken > columns:
            return at
    return len(text)


def cut(text: str, columns: int) -> str:
    """A text in at most so many columns; what is left out shows as dots."""
    if cells(text) <= columns:
        return text
    text = text[: _fitting(text, columns - 3)]
    return text.rstrip() + "..."[: max(columns, 0)]


def wrapped(text: str, columns: int) -> list[str]:
    """A text in lines of at most so many columns, between words where that is possible."""
    lines, line = [], ""
    for word in clean(text).split(" "):
        rest = word
        while len(rest) > columns or cells(f"{line} {rest}" if line else rest) > columns:
            if line:
                lines.append(line)
                line = ""
                continue
            size = max(_fitting(rest, columns), 1)
            lines.append(rest[:size])
            rest = rest[size:]
            if not rest:
                break
        if rest:
            line = f"{line} {rest}" if line else rest
    return [*lines, line] if line else lines


def counted(number: int, noun: str) -> str:
    """A number of things, in the right number."""
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + ("es" if noun.endswith("ch") else "s")
    return f"{number} {noun if number == 1 else plural}"


def some_ranges(numbers: Iterable[int], most: int = 4) -> str:
    """Numbers as ranges: 3, 40-47; what are too many ranges end in dots."""
    words = ranges(numbers).split(",")
    return ", ".join(words[:most]) + (", ..." if len(words) > most else "")


def port_role(function: Function, above: str, has_bridges: bool) -> str:
    """What a bridge is by its place; the port-type register decides only where the place leaves it open."""
    express = function.capabilities.express
    kind = express.port_type if isinstance(express, Express) else None
    if kind in _CONVENTIONAL:
        return "bridge"
    if above == "upstream port":
        return "downstream port"
    if above in ("root port", "downstream port"):
        return "upstream port" if has_bridges or kind == 5 else "bridge"
    return "root port"


def is_nvswitch(function: Function) -> bool:
    """Whether it is an NVSwitch: NVIDIA's class of other bridges."""
    return function.vendor == 0x10DE and function.class_code >> 8 == 0x0680


def short_class(function: Function) -> str:
    """What kind of device it is, in a word."""
    return _SHORT.get(function.class_code >> 8, f"class {function.class_code >> 8:04x}")


def of_bridge(function: Function) -> tuple[str, ...]:
    """The lines below the role of a bridge; of its link only that it is not at its best."""
    link = function.link
    speed, width, best, widest = link.speed, link.width, link.speed_max, link.width_max
    slow = isinstance(speed, int) and isinstance(best, int) and speed < best
    narrow = isinstance(width, int) and isinstance(widest, int) and width < widest
    return (_acs_short(function), *((f"slow link {_pace(speed, width)}",) if slow or narrow else ()))


def of_device(function: Function) -> tuple[str, ...]:
    """The lines below the address of a device."""
    names = [clean(one.name) for one in function.ports] or [clean(name) for name in function.disks]
    first = " ".join([function.ids, *names[:2], *(["..."] if len(names) > 2 else [])])
    ats = function.capabilities.ats
    told = ("ATS on" if ats.enabled else "ATS off",) if isinstance(ats, Ats) else ()
    return (first, f"{driver(function)}, {group(function)}", *told)


def driver(function: Function) -> str:
    """The driver that has it."""
    if isinstance(function.driver, str):
        return clean(function.driver)
    return "no driver" if isinstance(function.driver, Absent) else "driver ?"


def group(function: Function) -> str:
    """Its IOMMU group."""
    if isinstance(function.iommu_group, int):
        return f"group {function.iommu_group}"
    return "no group" if isinstance(function.iommu_group, Absent) else "group ?"


def of_many(members: Sequence[Function]) -> tuple[str, ...]:
    """The lines of several functions that are drawn as one."""
    first, last = members[0].address, members[-1].address
    span = str(first) if first == last else f"{first} to {_without_domain(first, last)}"
    groups = some_ranges((one.iommu_group for one in members if isinstance(one.iommu_group, int)), 2)
    drivers = sorted({driver(one) for one in members})
    words = ["/".join(drivers[:2]) + ("/..." if len(drivers) > 2 else "")]
    return span, *words, f"groups {groups}" if groups else "no groups"


def _without_domain(first: Address, last: Address) -> str:
    return str(last) if first.domain != last.domain else str(last).partition(":")[2]


def in_full(function: Function, role: str) -> tuple[str, ...]:
    """All that is known of a function and matters here, a line each."""
    capabilities = function.capabilities
    lines = [f"{role} {function.address}", f"ids {function.ids}, class {function.class_code:06x}, {driver(function)}"]
    lines.append(f"{group(function)}, NUMA node {_word(function.numa_node)}, root bus {clean(function.root_bus)}")
    lines.append(f"link {_link(function)}")
    lines.append(_acs(capabilities.acs))
    if not function.is_bridge:
        lines.append(_ats(capabilities.ats))
    if isinstance(capabilities.express, Express):
        lines.append(f"read requests of at most {_word(capabilities.express.max_read_request)} bytes")
    names = [*(one.name for one in function.netdevs), *function.rdma, *function.disks]
    if names:
        lines.append(clean(", ".join(names[:8]) + (", ..." if len(names) > 8 else "")))
    return tuple(lines)


def _word(value: Union[int, bool, str, Absent, Unreadable]) -> str:
    if isinstance(value, Absent):
        return "not there"
    return f"unknown ({clean(value.cause)})" if isinstance(value, Unreadable) else str(value)


def _acs(words: Union[Words, Absent, Unreadable]) -> str:
    if not isinstance(words, Words):
        return f"ACS {_word(words)}"
    names = ", ".join(acs_names(words.control)) or "nothing"
    return f"ACS {words.control:#04x} of {words.capability:#04x}: {names} on"


def _ats(words: Union[Ats, Absent, Unreadable]) -> str:
    return f"ATS {'on' if words.enabled else 'off'}" if isinstance(words, Ats) else f"ATS {_word(words)}"


def _acs_short(function: Function) -> str:
    words = function.capabilities.acs
    if isinstance(words, Words):
        return f"ACS {words.control:#04x}"
    return "no ACS" if isinstance(words, Absent) else "ACS ?"


def _pace(speed: object, width: object) -> str:
    rate = f"{speed / 10:g} GT/s" if isinstance(speed, int) else "unknown speed"
    return f"{rate} x{width if isinstance(width, int) else '?'}"


def _link(function: Function) -> str:
    link = function.link
    return f"{_pace(link.speed, link.width)}, at best {_pace(link.speed_max, link.width_max)}"
