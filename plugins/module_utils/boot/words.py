# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Words as GRUB and the shell read them: quotes, escapes, and assignments of a defaults file. Pure.

A kernel argument passes two of them on its way: the shell reads ``/etc/default/grub``, GRUB reads what was generated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# The two variables whose values reach the kernel. 10_linux puts the first before the second, so the second wins.
VARIABLES = ("GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT")

# Signs that no kernel argument of ours needs and that shell, GRUB or the kernel would take apart.
FORBIDDEN = re.compile(r"[\s\"'`$\\]|[^\x20-\x7e]")
_NEEDS_QUOTES = re.compile(r"[;&|<>(){}#*?\[\]~!^]")

# What ends a word; other white space of Unicode does not.
BLANKS = " \t\n\r\v\f"

# A reference to one of the variables, as a word of a value that is otherwise evaluated. A text cannot hold NUL.
_MARK = "\0"
_START = re.compile(r"^[ \t]*(?:export[ \t]+)?(GRUB_CMDLINE_LINUX(?:_DEFAULT)?)=", re.MULTILINE)
_REFERENCE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_REST = re.compile(r"[ \t]*(?:#[^\n]*)?\r?(?=\n|\Z)")


def split_words(line: str) -> tuple[str, ...]:
    """The words of a line with their quotes as they stand; an open quote reaches to the end."""
    words: list[str] = []
    word, quote, escaped = "", "", False
    for sign in line:
        if sign in BLANKS and not quote and not escaped:
            words += [word] if word else []
            word = ""
            continue
        word += sign
        if escaped:
            escaped = False
        elif sign == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
    return tuple([*words, word] if word else words)


def bare(word: str) -> str:
    """A word without the quotes and escapes that its reader takes away.

    >>> bare("'pci=config_acs=1@a;b'")
    'pci=config_acs=1@a;b'
    """
    found, quote, escaped = "", "", False
    for sign in word:
        if escaped:
            found += sign if quote != '"' or sign in '"\\$`' else f"\\{sign}"
            escaped = False
        elif sign == "\\" and quote != "'":
            escaped = True
        elif quote:
            found, quote = (found, "") if sign == quote else (found + sign, quote)
        elif sign in "'\"":
            quote = sign
        else:
            found += sign
    return found


def quoted(argument: str) -> str:
    """An argument as it must stand in a configuration so that GRUB's own parser passes it on whole."""
    return f"'{argument}'" if _NEEDS_QUOTES.search(argument) else argument


def with_arguments(words: tuple[str, ...], arguments: tuple[str, ...]) -> str:
    """A line of these arguments; one that stood in ``words`` keeps its spelling and quotes."""
    spelled: dict[str, list[str]] = {}
    for word in words:
        spelled.setdefault(bare(word), []).append(word)
    return " ".join(spelled[one].pop(0) if spelled.get(one) else quoted(one) for one in arguments)


# Assignments of a defaults file ----------------------------------------------------------


@dataclass(frozen=True)
class Assignment:
    """One ``GRUB_CMDLINE_LINUX[_DEFAULT]=...`` of a defaults file: where its value stands, and GRUB's words in it."""

    name: str
    start: int
    end: int
    single: bool
    words: tuple[str, ...]

    @property
    def arguments(self) -> tuple[str, ...]:
        """The kernel arguments it names, without references to the variables themselves."""
        return tuple(bare(word) for word in self.words if not referred(word))

    @property
    def extends(self) -> bool:
        """True when it adds to its variable rather than replacing it."""
        return any(referred(word) == self.name for word in self.words)

    @property
    def shown(self) -> str:
        """The assignment for people."""
        return f"{self.name}={' '.join(f'${referred(word)}' if referred(word) else word for word in self.words)}"

    def rewritten(self, text: str, words: tuple[str, ...]) -> str:
        """The file with other words in this assignment; its quotes stay single where the words allow it."""
        value = " ".join(words)
        if self.single and "'" not in value and _MARK not in value:
            return f"{text[: self.start]}'{value}'{text[self.end :]}"
        value = re.sub(r'([\\"$`])', r"\\\1", value)
        value = re.sub(f"{_MARK}(\\w+){_MARK}", r"$\1", value)
        return f'{text[: self.start]}"{value}"{text[self.end :]}'


def referred(word: str) -> str:
    """The variable that a word of an assignment stands for, or an empty string."""
    return word[1:-1] if word.startswith(_MARK) else ""


def assignments(text: str) -> tuple[Assignment, ...]:
    """The plain assignments of the two variables, in order; anything cleverer (commands, other variables) is left out."""
    return tuple(found for match in _START.finditer(text) if (found := _assignment(text, match)))


def _assignment(text: str, match: re.Match[str]) -> Assignment | None:
    pieces = tuple(_pieces(text, match.end()))
    if any(piece is None for piece, _end in pieces):
        return None
    value = "".join(piece or "" for piece, _end in pieces)
    end = pieces[-1][1] if pieces else match.end()
    words = split_words(value)
    if not _REST.match(text, end) or any(_MARK in word and not _is_reference(word) for word in words):
        return None
    return Assignment(match[1], match.end(), end, text[match.end() : match.end() + 1] == "'", words)


def _is_reference(word: str) -> bool:
    return word.count(_MARK) == 2 and word[0] == word[-1] == _MARK


def _pieces(text: str, at: int) -> Iterator[tuple[str | None, int]]:
    """What the shell makes of the word at a place, piece by piece with the place behind it; None: too clever for us."""
    quote = ""
    while at < len(text):
        sign = text[at]
        if quote != "'" and sign in "$`":
            match = _REFERENCE.match(text, at)
            known = match and (match[1] or match[2]) in VARIABLES
            at = match.end() if match else at
            yield (f"{_MARK}{match[1] or match[2]}{_MARK}" if match and known else None), at
            if not known:
                return
        elif quote != "'" and sign == "\\":
            follower = text[at + 1 : at + 2]
            literal = not quote or follower in '"\\$`\n'
            at += 2
            yield ("" if follower == "\n" else follower if literal else f"\\{follower}"), at
        elif sign == quote or (not quote and sign in "'\""):
            quote, at = ("" if quote else sign), at + 1
            yield "", at
        elif not quote and sign in BLANKS:
            return
        else:
            at += 1
            yield (None if not quote and sign in ";&|<>()" else sign), at
    if quote:
        yield None, at
