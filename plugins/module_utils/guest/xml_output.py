# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""XML that the engine writes: elements with attributes, the same bytes for the same data, in libvirt's own layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Union

Value = Union[str, int]

# Of attribute values in single quotes and of text (XML 1.0, 2.4). Ends of lines would be read back as spaces.
_ESCAPED = {
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    "'": "&apos;",
    '"': "&quot;",
    "\n": "&#10;",
    "\t": "&#9;",
    "\r": "&#13;",
}
_TABLE = str.maketrans(_ESCAPED)


@dataclass(frozen=True)
class Tag:
    """One element, with a text or with others inside."""

    name: str
    attributes: tuple[tuple[str, str], ...] = ()
    children: tuple[Tag, ...] = ()
    text: str = ""


def tag(name: str, attributes: Union[Mapping[str, Value], None] = None, *inside: Union[Tag, Value, None]) -> Tag:
    """An element. What is None inside is left out; a string or a number is its text."""
    written = tuple((key, str(value)) for key, value in (attributes or {}).items())
    text = "".join(str(one) for one in inside if isinstance(one, (str, int)))
    return Tag(name, written, tuple(one for one in inside if isinstance(one, Tag)), text)


def text_of(root: Tag, quote: str = "'") -> str:
    """The document, each element on a line of its own."""
    return "".join(f"{line}\n" for line in _lines(root, "", quote))


def _lines(one: Tag, indent: str, quote: str) -> Iterator[str]:
    attributes = "".join(f" {key}={quote}{value.translate(_TABLE)}{quote}" for key, value in one.attributes)
    if one.text:
        yield f"{indent}<{one.name}{attributes}>{one.text.translate(_TABLE)}</{one.name}>"
    elif one.children:
        yield f"{indent}<{one.name}{attributes}>"
        for child in one.children:
            yield from _lines(child, f"{indent}  ", quote)
        yield f"{indent}</{one.name}>"
    else:
        yield f"{indent}<{one.name}{attributes}/>"
