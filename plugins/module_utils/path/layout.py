# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where each thing of a scene lies on the page, from the sizes of its texts. Pure.

The tree grows from left to right: a column a level, a row for each end of the tree. So every text lies along its row, depth costs width
only where there is depth, and many devices cost height, which a page has. Sizes are for a font of fixed width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Union

from ..pci.address import Address
from .finding import Kind, Pair, Verdict
from .labels import cells, cut
from .scene import Box, Frame, Scene

SIZE = 11  # of the text in boxes
ADVANCE = 0.64  # width of a character in a font of fixed width, of its size, where it is rounded up to whole pixels
LINE = 14
MOST_COLUMNS = 34  # a longer text is cut; it is in full where one points at the box
MOST_MARKS = 3  # bands in a box
PAD, GAP_X, GAP_Y, BAND_GAP = 6, 26, 7, 4
FRAME_HEAD, FRAME_LEFT, FRAME_PAD = 26, 30, 12
MARGIN, BETWEEN = 24, 26
SIDE_BY_SIDE = 2500  # frames stand side by side up to this width of the page


@dataclass(frozen=True)
class Text:
    """A line of text; ``y`` is its base line. ``band`` is the verdict whose colour lies behind it."""

    x: float
    y: float
    words: str
    style: str = ""
    size: int = SIZE
    band: Union[Verdict, None] = None

    @property
    def width(self) -> float:
        """How wide it is at most."""
        return cells(self.words) * self.size * ADVANCE

    @property
    def area(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of what it takes."""
        return self.x, self.y - 0.8 * self.size, self.x + self.width, self.y + 0.22 * self.size


@dataclass(frozen=True)
class Placed:
    """A box and where it lies."""

    box: Box
    x: float
    y: float
    width: float
    height: float

    @property
    def port_y(self) -> float:
        """Where its wires arrive and leave: the height of its title."""
        return self.y + PAD + 6

    @property
    def texts(self) -> tuple[Text, ...]:
        """Its lines, from the top: title, what it is, and a band for each thing that was found."""
        texts, y = [], self.y + PAD + 9
        styles = ["t", *["d"] * len(self.box.lines)]
        for words, style in zip((self.box.title, *self.box.lines), styles):
            texts.append(Text(self.x + PAD, y, cut(words, MOST_COLUMNS), style))
            y += LINE
        for lines, verdict in bands(self.box):
            y += BAND_GAP
            for one in lines:
                texts.append(Text(self.x + PAD, y, cut(one, MOST_COLUMNS), "b", band=verdict))
                y += LINE
        return tuple(texts)


@dataclass(frozen=True)
class Wire:
    """A line between boxes. Without a kind it is only the tree."""

    points: tuple[tuple[float, float], ...]
    kind: Union[Kind, None] = None
    tip: str = ""
    broken: bool = False  # it is on a way on which something fails


@dataclass
class PlacedFrame:
    """A NUMA node and what lies in it."""

    frame: Frame
    x: float = 0
    y: float = 0
    width: float = 0
    height: float = 0
    boxes: list[Placed] = field(default_factory=list)

    @property
    def title(self) -> Text:
        """Its heading."""
        return Text(self.x + FRAME_LEFT, self.y + 18, self.frame.title, "f", 13)


@dataclass(frozen=True)
class Plan:
    """The tree's part of a page: all below ``top``."""

    width: float
    bottom: float
    frames: tuple[PlacedFrame, ...]
    wires: tuple[Wire, ...]


def bands(box: Box) -> list[tuple[tuple[str, ...], Verdict]]:
    """What stands in the coloured lines of a box: number and verdict, and below it the rule."""
    shown = box.marks if len(box.marks) <= MOST_MARKS else box.marks[: MOST_MARKS - 1]
    found: list[tuple[tuple[str, ...], Verdict]] = [
        ((f"{one.number} {one.verdict.name}", one.rule), one.verdict) for one in shown
    ]
    rest = box.marks[len(shown) :]
    return [*found, ((f"and {len(rest)} more",), rest[0].verdict)] if rest else found


def plan(scene: Scene, top: float) -> Plan:
    """Place all frames below a height of the page."""
    frames = [_framed(one) for one in scene.frames]
    columns = _columns(frames)
    x, bottom = float(MARGIN), top
    for column in columns:
        y = top
        width = max(one.width for one in column)
        for one in column:
            _move(one, x, y)
            one.width = width
            y += one.height + BETWEEN
        bottom = max(bottom, y - BETWEEN)
        x += width + BETWEEN
    return Plan(max(x - BETWEEN, MARGIN) + MARGIN, bottom, tuple(frames), tuple(_wires(scene, frames, top)))


def _columns(frames: Sequence[PlacedFrame]) -> list[list[PlacedFrame]]:
    """Frames in one column, or in two of like heights where they fit beside each other."""
    two: list[list[PlacedFrame]] = [[], []]
    for one in frames:
        two[sum(other.height for other in two[0]) > sum(other.height for other in two[1])].append(one)
    if two[1] and sum(max(one.width for one in column) for column in two) <= SIDE_BY_SIDE:
        return two
    return [list(frames)] if frames else []


def _framed(frame: Frame) -> PlacedFrame:
    """A frame with its boxes, as if it lay at the corner of the page."""
    widths: dict[int, float] = {}
    rows: list[int] = []
    heights: list[float] = []
    children: set[int] = set()
    for box in frame.boxes:
        widths[box.depth] = max(widths.get(box.depth, 0), _width(box))
        if box.parent is not None and box.parent not in children:
            children.add(box.parent)
            rows.append(rows[box.parent])
        else:
            rows.append(len(heights))
            heights.append(0)
        heights[rows[-1]] = max(heights[rows[-1]], _height(box))
    tops, y = [], float(FRAME_HEAD)
    for height in heights:
        tops.append(y)
        y += height + GAP_Y
    lefts, x = {}, float(FRAME_LEFT)
    for depth in range(len(widths)):
        lefts[depth] = x
        x += widths[depth] + GAP_X
    boxes = [
        Placed(box, lefts[box.depth], tops[row], widths[box.depth], _height(box))
        for box, row in zip(frame.boxes, rows)
    ]  # fmt: skip
    width = max(x - GAP_X + FRAME_PAD, FRAME_LEFT + Text(0, 0, frame.title, size=13).width + FRAME_PAD)
    return PlacedFrame(frame, 0, 0, width, y - GAP_Y + FRAME_PAD, boxes)


def _width(box: Box) -> float:
    words = [box.title, *box.lines, *(line for lines, _rest in bands(box) for line in lines)]
    return max(Text(0, 0, cut(one, MOST_COLUMNS)).width for one in words) + 2 * PAD


def _height(box: Box) -> float:
    marked = sum(BAND_GAP + LINE * len(lines) for lines, _rest in bands(box))
    return 2 * PAD + LINE * (1 + len(box.lines)) + marked - 2


def _move(frame: PlacedFrame, x: float, y: float) -> None:
    frame.x, frame.y = x, y
    frame.boxes = [Placed(one.box, one.x + x, one.y + y, one.width, one.height) for one in frame.boxes]


Spot = tuple[int, int]  # a frame and a box in it


@dataclass
class _Use:
    """Which ways go over a line."""

    pairs: list[Pair] = field(default_factory=list)

    def wire(self, points: Sequence[tuple[float, float]]) -> Wire:
        """The line, with the look of the shortest way."""
        words = "; ".join(f"{one.kind.name}: GPU {one.gpu} to NIC {one.nic}" for one in self.pairs[:8])
        broken = any(one.verdict is Verdict.FAIL for one in self.pairs)
        return Wire(tuple(points), min((one.kind for one in self.pairs), default=None), words, broken)


def _wires(scene: Scene, frames: Sequence[PlacedFrame], top: float) -> list[Wire]:
    """The tree, and over it the way of each GPU to its nearest NICs."""
    spots: dict[Address, Spot] = {}
    for number, frame in enumerate(frames):
        for index, one in enumerate(frame.boxes):
            spots.update((address, (number, index)) for address in one.box.members)
    edges = {spot: _Use() for spot in _edges(frames)}
    across: dict[tuple[Spot, Spot, Kind], _Use] = {}
    for pair in scene.ways:
        if pair.gpu not in spots or pair.nic not in spots:
            continue
        ends = [_chain(frames, spots[one]) for one in (pair.gpu, pair.nic)]
        common = set(ends[0]) & set(ends[1])
        for spot in [one for end in ends for one in end if one not in common]:
            if spot in edges:
                edges[spot].pairs.append(pair)
        if not common:
            first, last = sorted((ends[0][-1], ends[1][-1]))
            across.setdefault((first, last, pair.kind), _Use()).pairs.append(pair)
    wires = [use.wire(_edge(frames[spot[0]], spot[1])) for spot, use in edges.items()]
    wires += [use.wire(_across(frames, ends[:2], top)) for ends, use in sorted(across.items(), key=lambda one: one[0])]
    # What is only the tree lies lowest.
    return sorted(wires, key=lambda wire: wire.kind is not None)


def _edges(frames: Sequence[PlacedFrame]) -> list[Spot]:
    return [
        (number, index)
        for number, frame in enumerate(frames)
        for index, one in enumerate(frame.boxes)
        if one.box.parent is not None
    ]


def _chain(frames: Sequence[PlacedFrame], spot: Spot) -> list[Spot]:
    return [(spot[0], index) for index in frames[spot[0]].frame.chain(spot[1])]


def _edge(frame: PlacedFrame, index: int) -> list[tuple[float, float]]:
    """The line from a box back to the one above it."""
    here = frame.boxes[index]
    if here.box.parent is None:
        raise AssertionError
    above = frame.boxes[here.box.parent]
    start, end = (above.x + above.width, above.port_y), (here.x, here.port_y)
    bend = here.x - GAP_X / 2
    return [start, end] if start[1] == end[1] else [start, (bend, start[1]), (bend, end[1]), end]


def _across(frames: Sequence[PlacedFrame], ends: Sequence[Spot], top: float) -> list[tuple[float, float]]:
    """The line between two host bridges: inside a frame beside them, else out above the frames."""
    over = top - BETWEEN / 3
    sides = []
    for number, index in ends:
        frame, box = frames[number], frames[number].boxes[index]
        inner, outer = frame.x + FRAME_LEFT / 2, frame.x - BETWEEN / 3
        above = frame.y - BETWEEN / 3
        out = [(inner, above)] if above == over else [(inner, above), (outer, above)]
        sides.append([(box.x, box.port_y), (inner, box.port_y), *out])
    if ends[0][0] == ends[1][0]:
        return [*sides[0][:2], *reversed(sides[1][:2])]
    bus = [] if sides[0][-1][0] == sides[1][-1][0] else [(side[-1][0], over) for side in sides]
    return [*sides[0], *bus, *reversed(sides[1])]
