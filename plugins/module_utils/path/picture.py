# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The picture of a machine's PCIe paths: one SVG file that says at a glance which hop is broken. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ..pci.machine import Machine
from . import svg as draw
from .entries import Entry, counts, relaxed
from .finding import Kind, Report, Verdict
from .labels import clean, counted, cut, wrapped
from .layout import ADVANCE, LINE, MARGIN, PAD, Plan, Text, plan
from .scene import Box, Scene, scene

LEAST_WIDTH = 1000
HEAD = 78  # height of badge, name and counts
MOST_IN_FULL = 12  # entries that say more than their name
MOST_PLACES = 6
MOST_LINES = 60  # of a list
_KINDS = {
    Kind.PIX: "one switch",
    Kind.PXB: "several switches",
    Kind.PHB: "through the root complex",
    Kind.NODE: "host bridges of one NUMA node",
    Kind.SYS: "between NUMA nodes",
    Kind.UNKNOWN: "not known",
}
_MEANINGS = {
    Verdict.FAIL: "broken here",
    Verdict.UNKNOWN: "was not seen",
    Verdict.WARN: "not as it should be",
    Verdict.DEFERRED: "this run will still set it",
}


def svg(machine: Machine, report: Report) -> str:
    """The picture of a machine, as a whole file; the same bytes for the same machine and findings."""
    sheet = page(machine, report)
    description = f"PCIe paths of {report.name} in mode {report.mode}: {report.verdict.name}. {sheet.counts}"
    return draw.document(sheet.width, sheet.height, f"{report.name}: {report.verdict.name}", description, sheet.parts())


class Page:
    """What is on a picture."""

    def __init__(self, drawn: Scene, laid: Plan, report: Report, facts: str) -> None:
        self.scene, self.plan, self.report, self.counts = drawn, laid, report, facts
        self.width = max(laid.width, LEAST_WIDTH)
        self.top: list[Text] = []
        self.bottom: list[Text] = []
        self.keys: list[tuple[float, float, Verdict | Kind]] = []
        self.height = 0.0

    @property
    def texts(self) -> list[Text]:
        """All texts of the page."""
        inside = [text for frame in self.plan.frames for one in frame.boxes for text in one.texts]
        return [*self.top, *(frame.title for frame in self.plan.frames), *inside, *self.bottom]

    def parts(self) -> list[str]:
        """The elements of the picture, in the order in which they are painted."""
        found = [draw.text(one) for one in self.top]
        for frame in self.plan.frames:
            found.append(draw.rect(frame.x, frame.y, frame.width, frame.height, "frame"))
            found.append(draw.text(frame.title))
        found += [draw.halo(wire.points) for wire in self.plan.wires if wire.broken]
        for wire in self.plan.wires:
            found.append(draw.with_tip([wire.tip] if wire.tip else [], draw.line(wire.points, wire.kind)))
        for frame in self.plan.frames:
            for one in frame.boxes:
                box = one.box
                look = f"v{int(box.verdict)}" if box.marks else box.role if box.role in _LOOKS else "box"
                shape = draw.rect(one.x, one.y, one.width, one.height, look)
                found.append(draw.with_tip(box.tip, shape, *(draw.text(text) for text in one.texts)))
        return [*found, *(_key(x, y, what) for x, y, what in self.keys), *(draw.text(one) for one in self.bottom)]


_PORTS = {"root port", "upstream port", "downstream port", "bridge"}
_LOOKS = {"gpu", "nic", "nvswitch", "vf", "other", "bridge"}


def page(machine: Machine, report: Report) -> Page:
    """All that is on the picture of a machine, and where."""
    drawn = scene(machine, report)
    vfs = sum(one.is_vf for one in machine.tree)
    facts = counts(report, len(machine.tree.functions), vfs)
    width = max(plan(drawn, 0).width, LEAST_WIDTH)
    top, below = _heading(report, drawn, facts, width)
    sheet = Page(drawn, plan(drawn, below), report, facts)
    sheet.top = top
    y = _legend(sheet, sheet.plan.bottom + 34)
    sheet.height = _lists(sheet, machine, y) + MARGIN
    return sheet


def _heading(report: Report, drawn: Scene, facts: str, width: float) -> tuple[list[Text], float]:
    """Badge, name and counts, then what is wrong: its texts and where they end."""
    badge = Text(MARGIN + 6, 48, report.verdict.name, "b", 30, report.verdict)
    left = MARGIN + 6 + badge.width + 20
    name = clean(report.name) or "machine without a name"
    room = int((width - MARGIN - left) / (20 * ADVANCE))
    texts = [badge, Text(left, 34, cut(name, room), "h", 20)]
    columns = int((width - MARGIN - left) / (12 * ADVANCE))
    texts.append(Text(left, 54, cut(f"mode {clean(report.mode) or 'not told'} | {facts}", columns), "", 12))
    y = float(HEAD)
    boxes = [box for frame in drawn.frames for box in frame.boxes]
    names = {one: str(one) if len(box.members) > 1 else _named(box) for box in boxes for one in box.members}
    for entry in drawn.entries[:MOST_IN_FULL]:
        where = [names.get(one, f"{one} (not in the input)") for one in entry.places]
        y = _entry(texts, entry, where, y, width)
    if len(drawn.entries) > MOST_IN_FULL:
        rest = ", ".join(one.label for one in drawn.entries[MOST_IN_FULL:])
        y = _paragraph(texts, f"and {rest}", MARGIN + PAD, y, width)
    return texts, y + 14


def _named(box: Box) -> str:
    """What a box is and where, in one line."""
    return f"{box.lines[0]} {box.title}" if box.role in _PORTS else box.title


def _entry(texts: list[Text], entry: Entry, where: Sequence[str], y: float, width: float) -> float:
    """One rule: its name on its colour, the places, and for what is broken the reason and the remedy."""
    columns = int((width - 2 * MARGIN - 30) / (13 * ADVANCE))
    label = Text(MARGIN + 6, y + 12, cut(entry.label, columns), "b", 13, entry.verdict)
    texts.append(label)
    more = f" and {len(where) - MOST_PLACES} more" if len(where) > MOST_PLACES else ""
    at = "at " + ", ".join(where[:MOST_PLACES]) + more if where else "the machine as a whole"
    left = label.x + label.width + 14
    room = int((width - MARGIN - left) / (12 * ADVANCE))
    if len(at) > room:
        y, left = y + 18, MARGIN + 24
        room = int((width - MARGIN - left) / (12 * ADVANCE))
    texts.append(Text(left, y + 12, cut(at, room), "t", 12))
    y += 18
    shown = 2 if entry.verdict is Verdict.FAIL else 1
    for facts, remedy in entry.details[:shown]:
        y = _paragraph(texts, f"{facts} To do: {remedy}" if remedy else facts, MARGIN + 24, y, width)
    if len(entry.details) > shown:
        y = _paragraph(
            texts, f"{counted(len(entry.details) - shown, 'other value')} by this rule", MARGIN + 24, y, width
        )
    return y + 12


def _paragraph(texts: list[Text], words: str, x: float, y: float, width: float) -> float:
    columns = max(int((width - MARGIN - x) / (11 * ADVANCE)), 20)
    for one in wrapped(words, columns):
        y += LINE
        texts.append(Text(x, y, one, "d"))
    return y


def _legend(sheet: Page, y: float) -> float:
    """What colours, dashes and words mean."""
    sheet.bottom.append(Text(MARGIN, y, "Legend", "f", 13))
    y += 22
    for title, keys in (("way of a GPU to its nearest NIC", _KINDS), ("findings", _MEANINGS)):
        sheet.bottom.append(Text(MARGIN, y, title, "d"))
        x = MARGIN + 230.0
        for key, meaning in keys.items():
            label = Text(x + 42, y, f"{key.name} {meaning}", "d")
            if label.area[2] > sheet.width - MARGIN:
                x, y = MARGIN + 230.0, y + 20
                label = Text(x + 42, y, label.words, "d")
            sheet.keys.append((x, y, key))
            sheet.bottom.append(label)
            x += 42 + label.width + 22
        y += 22
    hint = "Red beside a way: something on it fails. Hex after ACS is the control word. Point at a box for its ids, link, ACS and ATS words, group and driver."
    return _paragraph(sheet.bottom, hint, MARGIN, y - LINE, sheet.width)


def _key(x: float, y: float, what: Verdict | Kind) -> str:
    if isinstance(what, Kind):
        return draw.line([(x, y - 4), (x + 36, y - 4)], what)
    return draw.rect(x + 2, y - 11, 32, 14, f"v{int(what)}")


def _lists(sheet: Page, machine: Machine, y: float) -> float:
    """Rules that the site has relaxed, and what was missing."""
    lost = [f"{address}: {cause}" for address, cause in sorted(machine.tree.unread.items())]
    missing = list(dict.fromkeys([*sorted(sheet.report.missing), *sorted(machine.missing), *lost]))
    if machine.partial:
        missing.insert(0, f"The input ({machine.source}) does not have all functions of the machine.")
    for title, lines in (("Relaxed by this site", relaxed(sheet.report)), ("Missing from the input", missing)):
        if lines:
            y += 28
            sheet.bottom.append(Text(MARGIN, y, title, "f", 13))
            y += 4
        for one in lines[:MOST_LINES]:
            y = _paragraph(sheet.bottom, f"- {one}", MARGIN + PAD, y, sheet.width)
        if len(lines) > MOST_LINES:
            y = _paragraph(sheet.bottom, f"- and {len(lines) - MOST_LINES} more", MARGIN + PAD, y, sheet.width)
    return y
