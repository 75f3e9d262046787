# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``lspci`` output taken apart: what it says of each function, as facts by name, and the bytes of its hexdump.

One pass, one line at a time; what a line means depends on its first word. Lines that say nothing here are passed over. A line
that cannot belong to the function above it (lspci has a fixed order) is of a function whose own first line is missing, and
nothing of it is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Union

from .address import Address
from .lspci_lines import FACTS

MOST_FUNCTIONS = 65536
_CHUNK = 1 << 20
_LONGEST = 4096  # characters of a line that are looked at

_HEAD = re.compile(
    r"(?:IOMMU [Gg]roup (?P<group>[0-9]{1,6}):?\s+)?"
    r"(?:(?P<domain>[0-9a-fA-F]{4,8}):)?(?P<bus>[0-9a-fA-F]{2}):(?P<device>[0-9a-fA-F]{2})\.(?P<function>[0-7])(?:\s+(?P<rest>.*)|$)"
)
_LIKE_ADDRESS = re.compile(r"([0-9a-fA-F]+:){1,2}[0-9a-fA-F]+\.[0-9a-fA-F]+(?=\s|$)")
_TREE = re.compile(r"\s*-?[+\\-]*-?\[[0-9a-f]{4,8}:[0-9a-f]{2}(-[0-9a-f]{2})?\]-")
_OFFSET = re.compile(r"Capabilities: \[([0-9a-f]{2,3})[ \]]")

# In what order the lines of one function stand, by their first word; those between are of any order.
HEAD, REGIONS, LISTED, KERNEL, BYTES = range(1, 6)
_ORDER = {
    **dict.fromkeys(("DeviceName:", "Subsystem:", "Flags:", "Control:", "Status:", "NUMA", "IOMMU"), HEAD),
    **dict.fromkeys(("Region", "Bus:", "BridgeCtl:"), REGIONS),
    "Capabilities:": LISTED,
    "Kernel": KERNEL,
}
_ONCE = {"Subsystem:", "Flags:", "Control:", "Status:", "NUMA", "IOMMU", "Bus:", "BridgeCtl:"}


@dataclass
class Entry:
    """What the input says about one function."""

    address: Address
    line: int
    facts: dict[str, Any] = field(default_factory=dict)
    twice: set[str] = field(default_factory=set)  # facts that the input says twice, and differently
    data: bytearray = field(default_factory=bytearray)
    stage: int = 0  # of the order of lines, the last that was met
    closed: bool = False  # something follows that shows where its text ends
    cut: bool = False  # the input ends, or goes over to something else, within it
    hole: bool = False  # its hexdump has a gap
    listed: set[int] = field(default_factory=set)  # offsets of its capabilities
    _once: set[str] = field(default_factory=set)

    def say(self, name: str, value: Any) -> None:
        """Keep a fact; one that is said twice and differently is kept as such."""
        if self.facts.setdefault(name, value) != value:
            self.twice.add(name)

    def foreign(self, first: str, body: str) -> bool:
        """Whether a line cannot be of this function, since it stands where none of its lines can stand."""
        order = _ORDER.get(first, self.stage)
        if order < self.stage or (first in _ONCE and first in self._once):
            return True
        if order == LISTED:
            match = _OFFSET.match(body)
            offset = int(match[1], 16) if match else 0
            if offset and (offset in self.listed or (offset < 0x100 <= max(self.listed, default=0))):
                return True
            self.listed.add(offset)
        self.stage = order
        self._once.add(first)
        return False

    def merge(self, other: Entry) -> None:
        """Take in what another place of the input says about the same function."""
        for name, value in other.facts.items():
            self.say(name, value)
        shorter, longer = sorted((self.data, other.data), key=len)
        if longer[: len(shorter)] != shorter:
            self.twice.add("bytes")
        self.data, self.hole = longer, self.hole if longer is self.data else other.hole
        self.twice |= other.twice
        better = other if (other.stage, other.closed) > (self.stage, self.closed) else self
        self.stage, self.closed, self.cut = better.stage, better.closed, better.cut
        self.listed |= other.listed


@dataclass
class Text:
    """The input taken apart."""

    entries: dict[Address, Entry] = field(default_factory=dict)
    absurd: list[tuple[int, str]] = field(default_factory=list)  # lines that begin like an address, and are none
    orphans: list[int] = field(
        default_factory=list
    )  # lines from which on something is said of a function without a name
    repeated: set[Address] = field(default_factory=set)
    last: Union[Entry, None] = None  # the function within which the input ends
    whole: Union[Address, None] = None  # the last one before that
    other: str = ""  # another kind of lspci output that was met
    too_many: bool = False


def lines(text: str) -> Iterator[str]:
    """The lines, without a copy of all of the text at once. Only a line feed ends a line."""
    at, size = 0, len(text) - text.endswith("\n")
    while at <= size:
        end = text.find("\n", at + _CHUNK, size)
        end = size if end < 0 else end
        yield from text[at:end].split("\n")
        at = end + 1


class _Taking:
    """The state between lines."""

    def __init__(self) -> None:
        self.text = Text()
        self.now: Union[Entry, None] = None
        self.previous: Union[Address, None] = None
        self.lost = False

    def line(self, number: int, line: str) -> None:
        if not line or line.isspace():
            self.end(closed=True)
        elif line[0] in "\t ":
            self.detail(number, line)
        elif line[2:4] == ": " or line[3:5] == ": ":
            self.bytes(number, line)
        else:
            self.first(number, line)

    def end(self, closed: bool) -> None:
        """The lines of a function are over."""
        if self.now is None:
            return
        self.now.closed |= closed
        entry, self.now = self.now, None
        known = self.text.entries.setdefault(entry.address, entry)
        self.previous = self.text.whole if self.text.whole != entry.address else self.previous
        self.text.whole = entry.address
        if known is not entry:
            self.text.repeated.add(entry.address)
            known.merge(entry)

    def first(self, number: int, line: str) -> None:
        match = _HEAD.match(line)
        if match and int(match["device"], 16) <= 0x1F:
            self.end(closed=True)
            domain = int(match["domain"] or "0", 16)
            address = Address(domain, int(match["bus"], 16), int(match["device"], 16), int(match["function"]))
            self.now, self.lost = Entry(address, number), False
            if match["group"]:
                self.now.say("group", int(match["group"]))
            FACTS["headline"](self.now, match["rest"] or "")
            self.text.other = self.text.other or ("lspci -m" if (match["rest"] or "")[:1] == '"' else "")
            self.text.too_many |= len(self.text.entries) > MOST_FUNCTIONS
            return
        self.end(closed=False)
        self.lost = True
        like = _LIKE_ADDRESS.match(line)
        if like:
            self.text.absurd.append((number, like[0][:40]))
        elif line.startswith(("-[", "-+-[")) or _TREE.match(line):
            self.text.other = self.text.other or "lspci -t"
        elif line.startswith("Slot:\t"):
            self.text.other = self.text.other or "lspci -vmm"

    def detail(self, number: int, line: str) -> None:
        entry, body = self.now, line.strip()
        if entry is None:
            self.orphan(number)
            return
        first = body.split(None, 1)[0]
        outer = line[0] == "\t" and line[1:2] not in "\t " or (line[:8] == "        " and line[8:9] not in "\t ")
        if outer and entry.foreign(first, body):
            entry.cut = True
            self.end(closed=False)
            self.orphan(number)
            return
        take = FACTS.get(first)
        if take is not None:
            take(entry, body)

    def orphan(self, number: int) -> None:
        if not self.lost:
            self.text.orphans.append(number)
        self.lost = True

    def bytes(self, number: int, line: str) -> None:
        offset, _colon, rest = line.partition(": ")
        try:
            at, data = int(offset, 16), bytes.fromhex(rest)
        except ValueError:
            self.first(number, line)
            return
        entry = self.now
        if entry is None:
            self.orphan(number)
        elif at < len(entry.data) and entry.data[at : at + len(data)] != data:
            entry.twice.add("bytes")
            self.end(closed=False)
            self.orphan(number)
        elif at > len(entry.data) or at + len(data) > 0x1000 or len(data) > 16:
            entry.hole = True
        else:
            entry.stage = BYTES
            if at == len(entry.data) and not entry.hole:
                entry.data += data


def take(text: str) -> Text:
    """The input taken apart."""
    taking = _Taking()
    number, ends = 0, text.endswith("\n")
    line: Union[str, None] = None
    odd = "\r" in text or "\0" in text
    for following in lines(text):
        if line is not None:
            if (
                line[:2] == "\t\t" and taking.now is not None
            ):  # most lines are of a capability, and most say nothing here
                words = line.split(None, 1)
                fact = FACTS.get(words[0]) if words else None
                if fact is not None:
                    fact(taking.now, line.strip())
            else:
                taking.line(number, line)
                if taking.text.too_many:
                    return taking.text
        number += 1
        line = following[:_LONGEST]
        if odd:
            line = line.replace("\0", "").rstrip("\r")
    if line is not None:
        _close(taking, number, line, ends)
    return taking.text


def _close(taking: _Taking, number: int, line: str, ends: bool) -> None:
    """The last line. One that no line feed ends may have been cut, and is used only where that shows."""
    if ends:
        taking.line(number, line)
    elif _HEAD.match(line):
        taking.line(number, line)
        if not (taking.now is None or taking.now.line == number):
            raise AssertionError
        if taking.now is not None and not line.rstrip().endswith((")", "]")):
            taking.now.cut = True
        if taking.now is not None and "(rev " not in line:
            taking.now.facts.pop("revision", None)  # it would stand behind what is there
    elif line.strip() and taking.now is not None:
        if line[2:4] == ": " or line[3:5] == ": ":
            offset, _colon, rest = line.partition(": ")
            whole = [word for word in rest.split() if len(word) == 2]
            taking.line(number, f"{offset}: {' '.join(whole)}")
        if taking.now is not None:
            taking.now.cut = taking.now.cut or len(line.split()) != 17
    entry = taking.now
    taking.end(closed=False)
    if entry is not None:
        # Where the order of lines has come to its end, no line feed is needed to know that.
        entry.cut = entry.cut or (entry.stage in (HEAD, REGIONS, LISTED) and not entry.closed)
        entry.closed = entry.closed or entry.stage >= KERNEL
        taking.text.last = entry
        taking.text.whole = taking.previous if entry.cut else taking.text.whole
