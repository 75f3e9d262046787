# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The picture of a machine's PCIe paths as text: the same boxes as the SVG file shows, a line each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Union

from ..pci.address import Address
from ..pci.machine import Machine
from .entries import Entry, by_ends, counts, entries, notes, relaxed
from .finding import Kind, Pair, Report, Verdict
from .labels import cells, clean, wrapped
from .plain import distances, ways
from .rules import RULES
from .scene import Box, Frame, scene

LEAST_WIDTH = 40
MOST_PLACES = 6
MOST_DETAILS = 3
# Colours that a terminal has had for ever; each is beside a word that says the same.
_COLOURS = {Verdict.OK: "32", Verdict.DEFERRED: "34", Verdict.WARN: "33", Verdict.UNKNOWN: "35", Verdict.FAIL: "1;31"}
_RESET = "\x1b[0m"


@dataclass(frozen=True)
class _Signs:
    """The characters that a tree is drawn with."""

    between: str
    last: str
    down: str
    blank: str = "   "


_LINES = _Signs("├─ ", "└─ ", "│  ")
_PLAIN = _Signs("+- ", "`- ", "|  ")


def text(
    machine: Union[Machine, None],
    report: Report,
    width: int = 100,
    colour: bool = False,
    *,
    plain_ascii: bool = False,
    table: Union[Mapping[str, Mapping[str, Kind]], None] = None,
    more: Sequence[str] = (),
) -> str:
    """The picture of a machine in lines of at most ``width`` columns. ``plain_ascii`` uses no other characters.

    Without a machine there is no tree in it; ``table`` then has the distances by label. ``more`` are lines below the distances.
    """
    page = _Page(max(width, LEAST_WIDTH), colour, _PLAIN if plain_ascii else _LINES)
    page.heading(machine, report)
    page.entries(entries(report))
    for frame in () if machine is None else scene(machine, report).frames:
        page.tree(frame)
    page.matrix(report)
    page.table(table or {})
    for line in more:
        page._put(line)
    lost = [] if machine is None else [f"{at}: {cause}" for at, cause in sorted(machine.tree.unread.items())]
    missing = [*sorted(report.missing), *sorted(() if machine is None else machine.missing), *lost]
    page.listed("Told, and no fault", notes(report))
    page.listed("Relaxed by this site", relaxed(report))
    page.listed("Missing from the input", dict.fromkeys(missing))
    words = "\n".join(page.lines) + "\n"
    return words.encode("ascii", "replace").decode("ascii") if plain_ascii else words


class _Page:
    """Lines that are being written."""

    def __init__(self, width: int, colour: bool, signs: _Signs) -> None:
        self.width, self.colour, self.signs = width, colour, signs
        self.lines: list[str] = []

    def _painted(self, words: str, verdict: Verdict) -> str:
        return f"\x1b[{_COLOURS[verdict]}m{words}{_RESET}" if self.colour else words

    def _put(self, words: str, first: str = "", rest: str = "", verdict: Verdict | None = None) -> None:
        """A text in as many lines as it takes; ``first`` and ``rest`` stand before them."""
        room = max(self.width - max(cells(first), cells(rest)), 8)
        for number, line in enumerate(wrapped(words, room) or [""]):
            shown = line if verdict is None else self._painted(line, verdict)
            self.lines.append((rest if number else first) + shown)

    def heading(self, machine: Union[Machine, None], report: Report) -> None:
        """Verdict, name and counts."""
        name = clean(report.name) or "machine without a name"
        self._put(f"{report.verdict.name}  {name}  mode {clean(report.mode) or 'not told'}", verdict=report.verdict)
        functions = {} if machine is None else machine.tree.functions
        if machine is not None:
            self._put(counts(report, len(functions), sum(one.is_vf for one in functions.values())))
        for line in (*distances(report), *ways(report)):
            self._put(line)
        if machine is not None and machine.partial:
            self._put(f"The input ({machine.source}) does not have all functions of the machine.")

    def entries(self, listed: Sequence[Entry]) -> None:
        """What is not OK, the gravest first. Why a rule matters is said of what is wrong, and a remedy once for all in a row."""
        for number, entry in enumerate(listed):
            following = listed[number + 1] if number + 1 < len(listed) else None
            if entry.verdict is not Verdict.UNKNOWN or not number or listed[number - 1].verdict is not Verdict.UNKNOWN:
                self.lines.append("")
            places = [str(one) for one in entry.places[:MOST_PLACES]]
            more = f" and {len(entry.places) - MOST_PLACES} more" if len(entry.places) > MOST_PLACES else ""
            where = f"at {', '.join(places)}{more}" if places else "the machine as a whole"
            self._put(f"[{entry.verdict.name} {entry.rule}] {where}", verdict=entry.verdict)
            self._details(entry, _remedies(following) if following and following.verdict is entry.verdict else ())

    def _details(self, entry: Entry, said_next: Sequence[str]) -> None:
        why = clean(RULES[entry.rule].why) if entry.rule in RULES else ""
        for facts, _remedy in entry.details[:MOST_DETAILS]:
            self._put(facts.removesuffix(f" {why}"), "  ", "  ")
        if len(entry.details) > MOST_DETAILS:
            self._put(f"and {len(entry.details) - MOST_DETAILS} more by this rule", "  ", "  ")
        if why and entry.verdict is not Verdict.UNKNOWN:
            self._put(f"Why: {why}", "  ", "       ")
        remedies = _remedies(entry)
        for remedy in remedies if remedies != said_next else ():
            self._put(f"To do: {remedy}", "  ", "         ")

    def tree(self, frame: Frame) -> None:
        """A NUMA node and what is in it."""
        self.lines += ["", frame.title]
        is_last = _lasts(frame)
        has_more = {box.parent for box in frame.boxes}
        befores: list[str] = []
        for index, box in enumerate(frame.boxes):
            above = "" if box.parent is None else befores[box.parent]
            step = "" if box.parent is None else self.signs.last if is_last[index] else self.signs.between
            under = "" if box.parent is None else self.signs.blank if is_last[index] else self.signs.down
            befores.append(self._narrow(above + under, box.depth))
            rest = befores[-1] + (self.signs.down if index in has_more else self.signs.blank)
            self._box(box, self._narrow(above + step, box.depth), rest)

    def _narrow(self, before: str, depth: int) -> str:
        """What stands before a line; a number where the tree is too deep to be drawn."""
        return before if cells(before) <= self.width // 2 else f"({depth}) "

    def _box(self, box: Box, first: str, rest: str) -> None:
        marks = " ".join(f"[{one.verdict.name} {one.rule}]" for one in box.marks)
        words = "  ".join([box.title, *box.lines])
        whole = f"{words}  {marks}" if marks else words
        if cells(first + whole) <= self.width:
            shown = f"{words}  {self._painted(marks, box.verdict)}" if marks else words
            self.lines.append(first + shown)
            return
        if cells(first + words) <= self.width:
            self.lines.append(first + words)
        else:
            self._put(words, first, rest)
        for one in box.marks:
            self._put(f"[{one.verdict.name} {one.rule}]", rest, rest, one.verdict)

    def matrix(self, report: Report) -> None:
        """How far apart each GPU and each NIC are; the nearest of each GPU has a star."""
        gpus, nics = sorted(set(report.gpus)), sorted(set(report.nics))
        if not gpus or not nics:
            return
        known = by_ends(report)
        names = {nic: f"N{number}" for number, nic in enumerate(nics)}
        side = max(cells(str(one)) for one in gpus) + 1
        column = max(9, *(len(name) + 1 for name in names.values()))
        many = max((self.width - side) // column, 1)
        self.lines += ["", "GPU and NIC: how far apart (* nearest)"]
        for start in range(0, len(nics), many):
            block = nics[start : start + many]
            self.lines.append((" " * side + "".join(f"{names[nic]:<{column}}" for nic in block)).rstrip())
            for gpu in gpus:
                row = "".join(f"{_kind(known, report, gpu, nic):<{column}}" for nic in block)
                self.lines.append(f"{gpu!s:<{side}}{row}".rstrip())
        self._put(", ".join(f"{name} is {nic}" for nic, name in names.items()))

    def table(self, table: Mapping[str, Mapping[str, Kind]]) -> None:
        """The same of devices that have labels; the nearest of each GPU has a star."""
        nics = list(next(iter(table.values()), {}))
        if not nics:
            return
        side = max(cells(gpu) for gpu in table) + 1
        column = max(9, *(cells(nic) + 1 for nic in nics))
        many = max((self.width - side) // column, 1)
        self.lines += ["", "GPU and NIC: how far apart (* nearest)"]
        for start in range(0, len(nics), many):
            block = nics[start : start + many]
            self.lines.append((" " * side + "".join(f"{nic:<{column}}" for nic in block)).rstrip())
            for gpu, row in table.items():
                best = min(row.values())
                words = (f"{row[nic].name}{'*' if row[nic] == best else ''}" for nic in block)
                self.lines.append(f"{gpu:<{side}}{''.join(f'{word:<{column}}' for word in words)}".rstrip())

    def listed(self, title: str, lines: Iterable[str]) -> None:
        """A list with a heading; nothing of an empty one."""
        for number, one in enumerate(lines):
            if not number:
                self.lines += ["", title]
            self._put(one, "- ", "  ")


def _remedies(entry: Entry) -> tuple[str, ...]:
    return tuple(dict.fromkeys(remedy for _facts, remedy in entry.details if remedy))


def _kind(known: Mapping[tuple[Address, Address], Pair], report: Report, gpu: Address, nic: Address) -> str:
    pair = known.get((gpu, nic))
    words = "?" if pair is None or pair.kind is Kind.UNKNOWN else pair.kind.name
    return f"{words}*" if nic in report.best.get(gpu, ()) else words


def _lasts(frame: Frame) -> Sequence[bool]:
    """Whether a box is the last below the one above it."""
    found, later = [False] * len(frame.boxes), set()
    for index in range(len(frame.boxes) - 1, -1, -1):
        found[index] = frame.boxes[index].parent not in later
        later.add(frame.boxes[index].parent)
    return found
