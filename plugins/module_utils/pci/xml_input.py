# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""XML that somebody else wrote, read without trusting it.

Elements and attributes only; text between them is dropped, since no format that is read here has any. A document that
declares entities is refused, because they may grow without end or lead to files (CWE-776, CWE-611). A plain DOCTYPE, as
hwloc writes it, is passed over, and what it points to is never fetched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Union
from xml.parsers import expat

from ..core.errors import Problem, UnreadableState

DEPTH, ELEMENTS = 200, 500_000

_NO_TRUST = "Get the file from the program that makes it, unedited."


@dataclass
class Element:
    """One element. ``line`` is where it begins."""

    tag: str
    attributes: Mapping[str, str]
    line: int = 0
    children: list[Element] = field(default_factory=list)

    def get(self, name: str) -> str:
        """An attribute; empty where it is not there."""
        return self.attributes.get(name, "")

    def all(self, tag: str) -> Iterator[Element]:
        """The children of a kind."""
        return (one for one in self.children if one.tag == tag)

    def inside(self) -> Iterator[Element]:
        """This element and all below it, in the order of the document."""
        waiting = [self]
        while waiting:
            one = waiting.pop()
            yield one
            waiting.extend(reversed(one.children))


def parse(data: Union[bytes, str], name: str, depth: int = DEPTH, elements: int = ELEMENTS) -> Element:
    """The root element; UnreadableState for what is no such document, is cut off or goes beyond a limit."""
    return _Reading(name, depth, elements).run(data.encode("utf-8") if isinstance(data, str) else data)


class _Reading:
    """One run of the parser."""

    def __init__(self, name: str, depth: int, elements: int) -> None:
        self.name = name
        self.depth, self.elements = depth, elements
        self.seen = 0
        self.open: list[Element] = []
        self.root: Union[Element, None] = None
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.StartDoctypeDeclHandler = self.doctype
        self.parser.EntityDeclHandler = self.entity
        self.parser.ExternalEntityRefHandler = self.outside

    def run(self, data: bytes) -> Element:
        try:
            self.parser.Parse(data, True)
        except expat.ExpatError as error:
            cut = error.code in (3, 4, 5) and error.lineno >= data.count(b"\n")  # no element, not closed, half a token
            advice = "It seems to be cut off: copy it again." if cut else _NO_TRUST
            problem = Problem(f"{self.name}:{error.lineno}", f"is no XML: {expat.ErrorString(error.code)}", advice)
            raise UnreadableState([problem]) from None
        if self.root is None:
            raise AssertionError("the parser takes no document without a root")
        return self.root

    def refuse(self, fact: str, found: str = "", wanted: str = "", advice: str = _NO_TRUST) -> None:
        place = f"{self.name}:{self.parser.CurrentLineNumber}"
        raise UnreadableState([Problem(place, fact, advice, found=found, wanted=wanted)])

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.seen += 1
        if self.seen > self.elements:
            self.refuse("has too many elements", "more", f"at most {self.elements}")
        if len(self.open) >= self.depth:
            self.refuse("nests its elements too deeply", "more", f"at most {self.depth} levels")
        one = Element(tag, attributes, self.parser.CurrentLineNumber)
        if self.open:
            self.open[-1].children.append(one)
        else:
            self.root = one
        self.open.append(one)

    def end(self, _tag: str) -> None:
        self.open.pop()

    def doctype(self, _name: str, _system: Union[str, None], _public: Union[str, None], internal: int) -> None:
        if internal:
            self.refuse("has declarations of its own in its DOCTYPE", wanted="none")

    def entity(self, name: str, *_rest: object) -> None:
        self.refuse("declares an entity", name, "none")

    def outside(self, *_arguments: object) -> int:
        self.refuse("asks for another file", wanted="all in one file")
        return 0
