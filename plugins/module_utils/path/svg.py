# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The few SVG elements that a picture is made of, as text. Whatever comes from outside is escaped here and nowhere else. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .finding import Kind, Verdict
from .labels import clean
from .layout import Text

FONT = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"
# Dark enough to be told apart when printed in grey; each has words or a pattern of its own besides.
COLOURS = {
    Verdict.OK: "#1a7f37",
    Verdict.DEFERRED: "#1c5fb8",
    Verdict.WARN: "#a35200",
    Verdict.UNKNOWN: "#5a5a5a",
    Verdict.FAIL: "#c1121f",
}
# Colour, width and dashes of a way, by how far apart its ends are.
WAYS = {
    Kind.PIX: ("#1a7f37", 5, ""),
    Kind.PXB: ("#0b7285", 5, "18 3"),
    Kind.PHB: ("#a35200", 4, "10 4"),
    Kind.NODE: ("#a35200", 4, "5 4"),
    Kind.SYS: ("#7a3e00", 4, "2 4"),
    Kind.UNKNOWN: ("#5a5a5a", 3, "1 6"),
}
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
STYLE = f"""text{{font-family:{FONT};font-size:11px;fill:#1b1b1b;white-space:pre}}
.t,.f,.h{{font-weight:bold}}.d{{fill:#3c3c3c}}.b{{font-weight:bold;fill:#fff}}.q{{fill:#6b6b6b}}
.w{{fill:none;stroke:#9a9a9a;stroke-width:1.2}}.p{{fill:none;stroke-linejoin:round}}
.x{{fill:none;stroke:#f3a0a6;stroke-width:13;stroke-linejoin:round}}
.box{{fill:#fff;stroke:#6b6b6b}}.gpu{{fill:#ebe6f8;stroke:#4b3f8f}}.nic{{fill:#dfecfb;stroke:#1f4f82}}
.nvswitch{{fill:#e4f0ef;stroke:#3f6b6b}}.vf{{fill:#eef5fd;stroke:#7c9cc0}}.other{{fill:#f4f4f4;stroke:#b5b5b5}}
.bridge{{fill:#fbfbfb;stroke:#6b6b6b}}.frame{{fill:#fcfcf9;stroke:#bdbdb0}}
.v4{{fill:#ffe1e1;stroke:#c1121f;stroke-width:3.5}}.v3{{fill:url(#unknown);stroke:#5a5a5a;stroke-width:2}}
.v2{{fill:#fff1cf;stroke:#a35200;stroke-width:2.5}}.v1{{fill:#fff;stroke:#1c5fb8;stroke-width:2.5;stroke-dasharray:6 3}}"""
HATCH = (
    '<defs><pattern id="unknown" width="7" height="7" patternUnits="userSpaceOnUse">'
    '<rect width="7" height="7" fill="#f7f7f7"/><path d="M0 7L7 0" stroke="#d2d2d2" stroke-width="1.5"/></pattern></defs>'
)


def escaped(text: str) -> str:
    """A text as it may stand in an element or an attribute."""
    return "".join(_ENTITIES.get(char, char) for char in clean(text))


def number(value: float) -> str:
    """A coordinate in few characters, the same on every machine."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


def rect(x: float, y: float, width: float, height: float, style: str = "", **more: str) -> str:
    """A rectangle with round corners."""
    kept = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    kind = f' class="{style}"' if style else ""
    return (
        f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}" rx="4"{kind}{kept}/>'
    )


def text(one: Text) -> str:
    """A line of text, on its band if it has one."""
    size = "" if one.size == 11 else f' style="font-size:{one.size}px"'
    kind = f' class="{one.style}"' if one.style else ""
    drawn = f'<text x="{number(one.x)}" y="{number(one.y)}"{kind}{size}>{escaped(one.words)}</text>'
    if one.band is None:
        return drawn
    left, top, right, bottom = one.area
    side = one.size / 4
    return rect(left - side, top - 2, right - left + 2 * side, bottom - top + 4, fill=COLOURS[one.band]) + drawn


def halo(points: Sequence[tuple[float, float]]) -> str:
    """The red beside a wire on whose way something fails."""
    return f'<polyline points="{_where(points)}" class="x"/>'


def line(points: Sequence[tuple[float, float]], kind: Kind | None) -> str:
    """A wire; one that is a way has the look of its kind."""
    where = _where(points)
    if kind is None:
        return f'<polyline points="{where}" class="w"/>'
    colour, width, dashes = WAYS[kind]
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<polyline points="{where}" class="p" stroke="{colour}" stroke-width="{width}"{dashed}/>'


def _where(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{number(x)},{number(y)}" for x, y in points)


def with_tip(tip: Iterable[str], *parts: str) -> str:
    """Elements that say more where one points at them."""
    words = "\n".join(escaped(one) for one in tip)
    return f"<g>{f'<title>{words}</title>' if words else ''}{''.join(parts)}</g>"


def document(width: float, height: float, title: str, description: str, parts: Iterable[str]) -> str:
    """A whole picture: white, so that it can be read and printed wherever it is shown."""
    size = f'width="{number(width)}" height="{number(height)}" viewBox="0 0 {number(width)} {number(height)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title description">'
    named = f'<title id="title">{escaped(title)}</title><desc id="description">{escaped(description)}</desc>'
    paper = f'<rect width="{number(width)}" height="{number(height)}" fill="#fff"/>'
    return "\n".join([head, named, f"<style>{STYLE}</style>", HATCH, paper, *parts, "</svg>"]) + "\n"
