# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What single lines of ``lspci`` say, by their first word, as it has been written by all versions of the last fifteen years.

Each function takes an entry and a line without its indentation, and puts facts into the entry. A line that is not whole is no
fact. Numbers without a unit are as in the registers, sizes are bytes, speeds are tenths of GT/s.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Protocol

from . import lspci_names
from .capabilities import ACS_BITS
from .tree import Bar


class Facts(Protocol):
    """What facts are put into."""

    facts: dict[str, Any]

    def say(self, name: str, value: Any) -> None:
        """Keep a fact."""


_CLASS = re.compile(r"(?:(.*) )?\[?([0-9a-f]{4})\]?")
_IDS = re.compile(r"\[([0-9a-f]{4}):([0-9a-f]{4})\]")
_PLAIN_IDS = re.compile(r"(?:Device )?\[?([0-9a-f]{4}):([0-9a-f]{4})\]?(?: \(|$)")
_DEVICE = re.compile(r" Device ([0-9a-f]{4})(?: \(|$)")
_REVISION = re.compile(r"\(rev ([0-9a-f]{2})\)")
_INTERFACE = re.compile(r"\(prog-if ([0-9a-f]{2})[ )]")
_DRIVER = re.compile(r"\(driver: ([^\s()]+)\)")
_SUBSYSTEM = re.compile(r"Subsystem: (?:.*\[|Device |)([0-9a-f]{4}):([0-9a-f]{4})\]?$")
_NUMBERED = re.compile(r"(NUMA node|IOMMU group):? ([0-9]{1,6})(?=,|$)")
_BUS = re.compile(r"Bus: primary=([0-9a-f]{2}), secondary=([0-9a-f]{2}), subordinate=([0-9a-f]{2}),")
_REGION = re.compile(r"(?:Region ([0-5]): )?(?:\[[a-z]+\] )*(Memory|I/O ports|Expansion ROM) at (\S+)(.*)")
_SIZE = re.compile(r"\[size=([0-9]+)([KMGTPE]?)\]")
_WINDOW = re.compile(r"(I/O|Memory|Prefetchable memory) behind bridge: ([0-9a-f]{1,16})-([0-9a-f]{1,16})(?=[ ]|$)")
_CAPABILITY = re.compile(r"Capabilities: \[([0-9a-f]{2,3})(?: v[0-9]+)?\] (\S.*)")
_EXPRESS = re.compile(r"Express (?:\(v[0-9]+\) )?([A-Za-z/ -]+?)(?:,| \(Slot|$)")
_SERIAL = re.compile(r"Device Serial Number ((?:[0-9a-f]{2}-){7}[0-9a-f]{2})$")
_PAYLOAD = re.compile(r"MaxPayload ([0-9]+) bytes, MaxReadReq ([0-9]+) bytes")
_SPEED = re.compile(r"Speed ([0-9]{1,3})(?:\.([0-9]))?GT/s")
_WIDTH = re.compile(r"Width x([0-9]{1,3})(?=[, ]|$)")
_DEPTH = re.compile(r"Invalidate Queue Depth: ([0-9a-f]{2})")
_ATS = re.compile(r"ATSCtl:\s*Enable([+-]), Smallest Translation Unit: ([0-9a-f]{2})")
_VFS = re.compile(r"Initial VFs: ([0-9]+), Total VFs: ([0-9]+), Number of VFs: ([0-9]+),")
_OFFSETS = re.compile(r"VF offset: ([0-9]+), stride: ([0-9]+), Device ID: ([0-9a-f]{4})")

_TYPES = {
    "Endpoint": 0, "Legacy Endpoint": 1, "Root Port": 4, "Upstream Port": 5, "Downstream Port": 6,
    "PCI-Express to PCI/PCI-X Bridge": 7, "PCI/PCI-X to PCI-Express Bridge": 8, "Root Complex Integrated Endpoint": 9,
    "Root Complex Event Collector": 10,
}  # fmt: skip
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40, "P": 50, "E": 60}
# As in the kernel's resource files (Linux include/linux/ioport.h), with the bits that BARs of these kinds have in them.
_IO, _MEMORY, _ROM = 0x40101, 0x40200, 0x46200
_PREFETCHABLE, _WIDE = 0x2008, 0x100004
_WINDOWS = {"I/O": (13, 0x101), "Memory": (14, 0x200), "Prefetchable memory": (15, 0x102201)}


def _headline(entry: Facts, rest: str) -> None:
    """Class, vendor and device, by number or by name."""
    kind, colon, name = rest.partition(": ")
    match = _CLASS.fullmatch(kind)
    code = int(match[2], 16) if match else lspci_names.CLASSES.get(kind) if colon else None
    if code is not None:
        entry.say("class", code)
    elif kind:
        entry.facts["class name"] = kind[:60]
    ids = _IDS.findall(name) or [match.groups() for match in [_PLAIN_IDS.match(name)] if match]
    if ids:
        entry.say("vendor", int(ids[-1][0], 16))
        entry.say("device", int(ids[-1][1], 16))
    elif name:
        _by_name(entry, name)
    if "Virtual Function" in name:
        entry.say("vf", True)
    elif "ConnectX" in name:
        entry.say("pf", True)  # the names of their VFs say so
    match = _REVISION.search(name)
    if match or name:
        entry.say("revision", int(match[1], 16) if match else 0)  # 0 is not printed
    for label, pattern, base in (("interface", _INTERFACE, 16), ("driver", _DRIVER, 0)):
        match = pattern.search(name)
        if match:
            entry.say(label, int(match[1], 16) if base else match[1])


def _by_name(entry: Facts, name: str) -> None:
    vendor = lspci_names.vendor(name)
    if vendor is not None:
        entry.say("vendor", vendor)
    match = _DEVICE.search(name)
    if match:
        entry.say("device", int(match[1], 16))


def _subsystem(entry: Facts, body: str) -> None:
    match = _SUBSYSTEM.search(body)
    if match:
        entry.say("subsystem", (int(match[1], 16), int(match[2], 16)))


def _flags(entry: Facts, body: str) -> None:
    entry.facts["names only"] = True
    for label, number in _NUMBERED.findall(body):
        entry.say("numa" if label[0] == "N" else "group", int(number))


def _control(entry: Facts, _body: str) -> None:
    entry.facts["verbose"] = True


def _status(entry: Facts, body: str) -> None:
    if body.startswith("Status: Cap"):
        entry.say("has capabilities", body[11:12] == "+")


def _numbered(entry: Facts, body: str) -> None:
    match = _NUMBERED.match(body)
    if match:
        entry.say("numa" if match[1][0] == "N" else "group", int(match[2]))


def _kernel(entry: Facts, body: str) -> None:
    entry.facts["kernel"] = True
    if body.startswith("Kernel driver in use: ") and len(body) < 100:
        entry.say("driver", body[22:])


def _bus(entry: Facts, body: str) -> None:
    match = _BUS.match(body)
    if match:
        entry.say("buses", (int(match[2], 16), int(match[3], 16)))


def _region(entry: Facts, body: str) -> None:
    """A BAR or the ROM. A line of a capability that looks alike has no place of its own here."""
    match = _REGION.match(body)
    if match is None or "listing" in entry.facts or " behind " in body[:30]:
        return
    rom = match[2] == "Expansion ROM"
    if match[1] is None and not rom:
        entry.facts["unnumbered"] = True
        return
    index = 6 if rom else int(match[1])
    size = _SIZE.search(match[4])
    if match[3] == "<ignored>":
        return
    if size is None:
        entry.facts["unsized"] = True
        return
    start = int(match[3], 16) if re.fullmatch("[0-9a-f]{1,16}", match[3]) else 0
    entry.say(f"bar {index}", Bar(index, start, int(size[1]) << _UNITS[size[2]], _region_flags(match[2], match[4])))


def _region_flags(kind: str, rest: str) -> int:
    if kind != "Memory":
        return _ROM if kind == "Expansion ROM" else _IO
    wide = _WIDE if "(64-bit" in rest else 0
    return _MEMORY | wide | (_PREFETCHABLE if ", prefetchable)" in rest else 0)


def _window(entry: Facts, body: str) -> None:
    match = _WINDOW.match(body)
    if match:
        index, flags = _WINDOWS[match[1]]
        start, end = int(match[2], 16), int(match[3], 16)
        if end > start:
            entry.say(f"bar {index}", Bar(index, start, end - start + 1, flags))
    else:
        _region(entry, body)


def _capability(entry: Facts, body: str) -> None:
    entry.facts["listing"] = True
    match = _CAPABILITY.match(body)
    if match is None:
        if body.startswith("Capabilities: <"):
            entry.facts["withheld"] = body[14:60]
        return
    offset, name = match[1], match[2]
    entry.facts["extended" if len(offset) > 2 else "standard"] = True
    if name.startswith("Express "):
        entry.facts["express"] = True
        kind = _EXPRESS.match(name)
        if kind and kind[1] in _TYPES:
            entry.say("type", _TYPES[kind[1]])
    elif name.startswith("Access Control Services"):
        entry.facts["acs"] = True
    elif name.startswith("Address Translation Service"):
        entry.facts["ats"] = True
    elif name.startswith("Single Root I/O Virtualization"):
        entry.facts["sriov"] = True
    elif name.startswith("Device Serial Number"):
        number = _SERIAL.match(name)
        entry.say("serial", number[1] if number else "")
    elif name.startswith("Subsystem: "):
        _subsystem(entry, name)


def _ordering(entry: Facts, body: str) -> None:
    entry.say("relaxed", body[7:8] == "+")


def _payload(entry: Facts, body: str) -> None:
    match = _PAYLOAD.match(body)
    if match:
        entry.say("payload", int(match[1]))
        entry.say("read request", int(match[2]))


def _link(entry: Facts, body: str) -> None:
    """Speed and width; 0 where lspci says that the register tells none."""
    which = " best" if body.startswith("LnkCap") else ""
    match = _SPEED.search(body)
    if match:
        entry.say(f"speed{which}", int(match[1]) * 10 + int(match[2] or 0))
    elif "Speed unknown," in body:
        entry.say(f"speed{which}", 0)
    match = _WIDTH.search(body)
    if match:
        entry.say(f"width{which}", int(match[1]))


def _link_goes_on(entry: Facts, body: str) -> None:
    """DLActive stands in the line below LnkSta, or in it."""
    if "DLActive+" in body:
        entry.facts["up"] = True


def _status_of_link(entry: Facts, body: str) -> None:
    _link(entry, body)
    _link_goes_on(entry, body)


def _acs(entry: Facts, body: str) -> None:
    """A word of which any bit is not in the line is not known."""
    signs = {word[:-1]: word[-1] for word in body[7:].split()}
    values = [signs.get(name) for name in ACS_BITS]
    if all(value in ("+", "-") for value in values):
        entry.say(body[:6], sum(1 << bit for bit, value in enumerate(values) if value == "+"))


def _ats_capability(entry: Facts, body: str) -> None:
    match = _DEPTH.search(body)
    if match:
        entry.say("ATSCap", int(match[1], 16))


def _ats_control(entry: Facts, body: str) -> None:
    match = _ATS.match(body)
    if match:
        entry.say("ATSCtl", (0x8000 if match[1] == "+" else 0) | int(match[2], 16))


def _vfs_on(entry: Facts, body: str) -> None:
    match = re.match(r"IOVCtl:\s*Enable([+-])", body)
    if match:
        entry.say("vfs on", match[1] == "+")


def _vfs(entry: Facts, body: str) -> None:
    match = _VFS.match(body)
    if match:
        entry.say("vfs total", int(match[2]))
        entry.say("vfs number", int(match[3]))


def _offsets(entry: Facts, body: str) -> None:
    match = _OFFSETS.match(body)
    if match:
        entry.say("vfs offset", int(match[1]))
        entry.say("vfs stride", int(match[2]))
        entry.say("vfs device", int(match[3], 16))


def _silent(entry: Facts, body: str) -> None:
    if body.startswith("!!! Unknown header type"):
        entry.facts["silent"] = True


_Take = Callable[[Any, str], None]
FACTS: dict[str, _Take] = {
    "headline": _headline,
    "Subsystem:": _subsystem,
    "Flags:": _flags,
    "Control:": _control,
    "Status:": _status,
    "NUMA": _numbered,
    "IOMMU": _numbered,
    "Kernel": _kernel,
    "Bus:": _bus,
    "Region": _region,
    "Expansion": _region,
    "[virtual]": _region,
    "I/O": _window,
    "Memory": _window,
    "Prefetchable": _window,
    "Capabilities:": _capability,
    "RlxdOrd+": _ordering,
    "RlxdOrd-": _ordering,
    "MaxPayload": _payload,
    "LnkCap:": _link,
    "LnkSta:": _status_of_link,
    "TrErr-": _link_goes_on,
    "TrErr+": _link_goes_on,
    "ACSCap:": _acs,
    "ACSCtl:": _acs,
    "ATSCap:": _ats_capability,
    "ATSCtl:": _ats_control,
    "IOVCtl:": _vfs_on,
    "Initial": _vfs,
    "VF": _offsets,
    "!!!": _silent,
}
