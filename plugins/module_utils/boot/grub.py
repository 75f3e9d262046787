# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GRUB's files as data: ``/etc/default/grub`` and its drop-ins, and the generated ``grub.cfg``. Pure.

The defaults are shell; only plain assignments of the two command-line variables are understood here,
anything cleverer is left alone. What a boot will really use is judged from ``grub.cfg``, never from the defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from .cmdline import Line, name_of

DEFAULTS = "/etc/default/grub"
DROP_INS = "/etc/default/grub.d"
# Sorted after everything a distribution or an image builder ships, so that it is not overridden.
DROP_IN = f"{DROP_INS}/zz-gpudirect.cfg"
GENERATED = "/boot/grub/grub.cfg"

# 10_linux puts GRUB_CMDLINE_LINUX before GRUB_CMDLINE_LINUX_DEFAULT, so the second wins.
VARIABLES = ("GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT")

_HEADER = "# Written by vela.gpudirect; changes are replaced. The inventory is the source.\n"
_ASSIGNMENT = re.compile(
    r"^(?P<lead>\s*(?:export\s+)?)(?P<name>GRUB_CMDLINE_LINUX(?:_DEFAULT)?)=(?P<quote>[\"']?)(?P<value>.*?)(?P=quote)(?P<tail>\s*(?:#.*)?)$"
)
_SELF = re.compile(r"^\$\{?(GRUB_CMDLINE_LINUX(?:_DEFAULT)?)\}?$")
_NEEDS_QUOTES = re.compile(r"[;&|<>(){}#*?\[\]~!^]")
# Signs that no kernel argument of ours needs and that shell, GRUB or the kernel would take apart.
FORBIDDEN = re.compile(r"[\s\"'`$\\]|[^\x20-\x7e]")


@dataclass(frozen=True)
class Assignment:
    """One ``GRUB_CMDLINE_LINUX[_DEFAULT]=...`` line of a defaults file."""

    line: int
    name: str
    words: tuple[str, ...]

    @property
    def arguments(self) -> tuple[str, ...]:
        """The kernel arguments it names, without a reference to the variable itself."""
        return tuple(bare(word) for word in self.words if not _SELF.match(word))

    @property
    def extends(self) -> bool:
        """True when the line adds to the variable rather than replacing it."""
        return any(_SELF.match(word) for word in self.words)


def bare(word: str) -> str:
    """An argument as the kernel will see it, without the quotes that GRUB takes away.

    >>> bare("'pci=config_acs=1@a;b'")
    'pci=config_acs=1@a;b'
    """
    if len(word) >= 2 and word[0] == word[-1] == "'":
        return word[1:-1]
    return re.sub(r"\\(.)", r"\1", word)


def quoted(argument: str) -> str:
    """An argument as it must stand in a defaults file so that GRUB's own parser passes it on whole."""
    return f"'{argument}'" if _NEEDS_QUOTES.search(argument) else argument


def assignments(text: str) -> tuple[Assignment, ...]:
    """The plain command-line assignments of a defaults file, in order."""
    found = []
    for number, line in enumerate(text.splitlines()):
        match = _ASSIGNMENT.match(line)
        if match and "`" not in match["value"] and "$(" not in match["value"]:
            found.append(Assignment(number, match["name"], split_words(match["value"])))
    return tuple(found)


def split_words(value: str) -> tuple[str, ...]:
    """Words of an assigned value; single and double quotes keep white space together."""
    return tuple(re.findall(r"(?:'[^']*'|\"[^\"]*\"|[^\s'\"])+", value))


def effective(texts: Iterable[str]) -> tuple[str, ...]:
    """Foreign arguments in the order GRUB uses them, by evaluating the plain assignments of all files in turn."""
    state: dict[str, tuple[str, ...]] = dict.fromkeys(VARIABLES, ())
    for text in texts:
        for one in assignments(text):
            words: list[str] = []
            for word in one.words:
                reference = _SELF.match(word)
                words.extend(state[reference[1]] if reference else (bare(word),))
            state[one.name] = tuple(words)
    return state[VARIABLES[0]] + state[VARIABLES[1]]


def stripped(text: str, names: Iterable[str]) -> str:
    """A defaults file without the arguments of the given names, and without a repeated identical assignment.

    Lines that carry none of the names stay byte for byte as they are.
    """
    gone = frozenset(names)
    lines = text.splitlines(keepends=True)
    found = assignments(text)
    for one in found:
        if any(name_of(argument) in gone for argument in one.arguments):
            kept = [word for word in one.words if _SELF.match(word) or name_of(bare(word)) not in gone]
            lines[one.line] = _rewritten(lines[one.line], " ".join(kept))
    return "".join(_without_repeats(lines, found))


def restored(text: str, before: str, names: Iterable[str]) -> str:
    """A file that somebody edited after us, with the arguments that we had taken out put back at the end."""
    back = frozenset(names)
    for original in assignments(before):
        lost = [word for word in original.words if name_of(bare(word)) in back]
        homes = [one for one in assignments(text) if one.name == original.name]
        if not homes or not lost:
            continue
        home = homes[-1]
        missing = [word for word in lost if name_of(bare(word)) not in {name_of(have) for have in home.arguments}]
        lines = text.splitlines(keepends=True)
        lines[home.line] = _rewritten(lines[home.line], " ".join((*home.words, *missing)))
        text = "".join(lines)
    return text


def _without_repeats(lines: list[str], found: tuple[Assignment, ...]) -> list[str]:
    seen: set[str] = set()
    drop: set[int] = set()
    for one in reversed(found):
        line = lines[one.line].strip()
        if line in seen and not one.extends:
            drop.add(one.line)
        seen.add(line)
    return [line for number, line in enumerate(lines) if number not in drop]


def _rewritten(line: str, value: str) -> str:
    match = _ASSIGNMENT.match(line.rstrip("\n"))
    if match is None:
        raise ValueError(f"not an assignment: {line!r}")
    quote = match["quote"] or '"'
    end = "\n" if line.endswith("\n") else ""
    return f"{match['lead']}{match['name']}={quote}{value}{quote}{match['tail']}{end}"


def drop_in(arguments: Iterable[str]) -> str:
    """The text of our own drop-in; empty when there is nothing to add."""
    words = [quoted(argument) for argument in arguments]
    return f'{_HEADER}GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {" ".join(words)}"\n' if words else ""


def extended(text: str, arguments: Iterable[str]) -> str:
    """A defaults file whose ``GRUB_CMDLINE_LINUX`` has more arguments at its end; the line is made when there is none."""
    words = tuple(quoted(argument) for argument in arguments)
    if not words:
        return text
    homes = [one for one in assignments(text) if one.name == VARIABLES[0]]
    if not homes:
        return f'{text}{"" if text.endswith(chr(10)) or not text else chr(10)}GRUB_CMDLINE_LINUX="{" ".join(words)}"\n'
    lines = text.splitlines(keepends=True)
    lines[homes[-1].line] = _rewritten(lines[homes[-1].line], " ".join((*homes[-1].words, *words)))
    return "".join(lines)


def overriding(names_and_texts: Iterable[tuple[str, str]]) -> str:
    """The drop-in after ours that replaces the variable instead of adding to it, or an empty string."""
    for name, text in names_and_texts:
        if name > DROP_IN and any(one.name == VARIABLES[0] and not one.extends for one in assignments(text)):
            return name
    return ""


def entries(text: str) -> tuple[Line, ...]:
    """The kernel lines that 10_linux wrote into a ``grub.cfg``, each with the title of its menu entry.

    Entries of other systems (os-prober) and hand-written ones are not built from the defaults and are left out.
    Recovery entries are marked as fallback: they are built without ``GRUB_CMDLINE_LINUX_DEFAULT``.
    """
    found: list[Line] = []
    title = ""
    for line in _own_section(text):
        words = split_words(line)
        if words[:1] == ("menuentry",) and len(words) > 1:
            title = words[1].strip("'\"")
        elif words and words[0] in ("linux", "linuxefi", "linux16") and len(words) > 1:
            arguments = tuple(bare(word) for word in words[2:])
            rescue = any(one in ("single", "recovery") for one in arguments)
            found.append(Line(title or words[1], arguments, rescue, len(" ".join((words[1], *arguments)).encode())))
    return tuple(found)


def _own_section(text: str) -> list[str]:
    begin, end = "### BEGIN /etc/grub.d/10_linux ###", "### END /etc/grub.d/10_linux ###"
    if begin not in text:
        return text.splitlines()
    return text.split(begin, 1)[1].split(end, 1)[0].splitlines()
