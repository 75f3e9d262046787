# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GRUB's files as data: ``/etc/default/grub`` and its drop-ins, and the generated ``grub.cfg``. Pure.

The defaults are shell; only plain assignments of the two command-line variables are understood here,
anything cleverer is left alone. What a boot will really use is judged from ``grub.cfg``, never from the defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from .cmdline import Line, name_of
from .words import VARIABLES, Assignment, assignments, bare, quoted, referred, split_words

DEFAULTS = "/etc/default/grub"
DROP_INS = "/etc/default/grub.d"
# Sorted after everything a distribution or an image builder ships, so that it is not overridden.
DROP_IN = f"{DROP_INS}/zz-gpudirect.cfg"
GENERATED = "/boot/grub/grub.cfg"

_HEADER = "# Written by vela.gpudirect; changes are replaced. The inventory is the source.\n"
# A line of a file that is nothing but settings: a line can be dropped from it without breaking a command.
_SETTING = re.compile(r"\s*(?:#.*|(?:export\s+)?[A-Za-z_]\w*=.*)?\s*")
# A value that somebody reads before it is given again has an effect.
_REFERS = re.compile(r"\$\{?GRUB_CMDLINE_LINUX")
_BLS = re.compile(r"^[ \t]*(?:export[ \t]+)?GRUB_ENABLE_BLSCFG=[\"']?(\w*)", re.MULTILINE)
_RECOVERY = re.compile(r"gnulinux-.*-recovery-.*")
_SECTION = re.compile(r"^### BEGIN /etc/grub\.d/10_linux\w* ###$(.*?)^### END ", re.MULTILINE | re.DOTALL)


def effective(texts: Iterable[str]) -> tuple[str, ...]:
    """Arguments in the order GRUB uses them, by evaluating the plain assignments of all files in turn."""
    state: dict[str, tuple[str, ...]] = dict.fromkeys(VARIABLES, ())
    for text in texts:
        for one in assignments(text):
            words: list[str] = []
            for word in one.words:
                words.extend(state[referred(word)] if referred(word) else (bare(word),))
            state[one.name] = tuple(words)
    return state[VARIABLES[0]] + state[VARIABLES[1]]


def stripped(text: str, names: Iterable[str]) -> str:
    """A defaults file without the arguments of the given names, and without a repeated identical assignment.

    Lines that carry none of the names stay byte for byte as they are.
    """
    gone = frozenset(names)
    return _without_repeats(_filtered(text, lambda argument: name_of(argument) not in gone))


def alike(text: str, other: str) -> bool:
    """True for two versions of a file whose assignments differ in white space at most."""
    return [(one.name, one.words) for one in assignments(text)] == [(one.name, one.words) for one in assignments(other)]


def without_exactly(text: str, arguments: Iterable[str]) -> str:
    """A defaults file without these very arguments."""
    gone = frozenset(arguments)
    return _filtered(text, lambda argument: argument not in gone)


def _filtered(text: str, keeps: Any) -> str:
    for one in reversed(assignments(text)):
        kept = tuple(word for word in one.words if referred(word) or keeps(bare(word)))
        if kept != one.words:
            text = one.rewritten(text, kept)
    return text


def restored(text: str, record: Mapping[str, Any]) -> str:
    """A file that somebody edited after us, as it would be without us.

    The arguments that we had added go, those that we had taken out come back at the end.
    """
    text = without_exactly(text, record["added"])
    names = frozenset(record["names"])
    for original in assignments(record["before"]):
        homes = [one for one in assignments(text) if one.name == original.name]
        if homes:
            have = {name_of(argument) for argument in homes[-1].arguments}
            lost = [word for word in original.words if not referred(word) and name_of(bare(word)) in names - have]
            text = homes[-1].rewritten(text, (*homes[-1].words, *lost)) if lost else text
    return text


def _without_repeats(text: str) -> str:
    """Of settings that are given several times alike, the last: the earlier ones have no effect."""
    found = assignments(text)
    if _REFERS.search(text) or not _only_settings(text, found):
        return text
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for one in reversed(found):
        if (one.name, one.words) in seen:
            start = text.rfind("\n", 0, one.start) + 1
            end = text.find("\n", one.end) + 1
            text = text[:start] + (text[end:] if end else "")
        seen.add((one.name, one.words))
    return text


def _only_settings(text: str, found: tuple[Assignment, ...]) -> bool:
    """True when every line is a setting of its own, apart from values that go over several lines."""
    for one in reversed(found):
        text = text[: one.start] + text[one.end :]
    return all(_SETTING.fullmatch(line) for line in text.split("\n"))


def drop_in(arguments: Iterable[str]) -> str:
    """The text of our own drop-in; empty when there is nothing to add."""
    words = [quoted(argument) for argument in arguments]
    return f'{_HEADER}GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {" ".join(words)}"\n' if words else ""


def extended(text: str, arguments: Iterable[str]) -> str:
    """A defaults file whose ``GRUB_CMDLINE_LINUX`` has more arguments at its end; a line is made when none is plain."""
    words = tuple(quoted(argument) for argument in arguments)
    if not words:
        return text
    homes = [one for one in assignments(text) if one.name == VARIABLES[0]]
    if homes:
        return homes[-1].rewritten(text, (*homes[-1].words, *words))
    start = text if text.endswith("\n") or not text else f"{text}\n"
    kept = f"${VARIABLES[0]} " if f"{VARIABLES[0]}=" in text else ""
    return f'{start}{VARIABLES[0]}="{kept}{" ".join(words)}"\n'


def overriding(names_and_texts: Iterable[tuple[str, str]]) -> str:
    """The drop-in after ours that replaces the variable instead of adding to it, or an empty string."""
    for name, text in names_and_texts:
        if name > DROP_IN and any(one.name == VARIABLES[0] and not one.extends for one in assignments(text)):
            return name
    return ""


def switched_off_bls(text: str) -> str:
    """What keeps grub2-mkconfig of RHEL from using the entries of the Boot Loader Specification, or an empty string."""
    settings = _BLS.findall(text)
    return f"GRUB_ENABLE_BLSCFG={settings[-1]}" if settings and settings[-1] != "true" else ""


def entries(text: str) -> tuple[Line, ...]:
    """The kernel lines that 10_linux wrote into a ``grub.cfg``, each with the title of its menu entry.

    Entries of other systems (os-prober) and hand-written ones are not built from the defaults and are left out.
    Recovery entries are marked as fallback: they are built without ``GRUB_CMDLINE_LINUX_DEFAULT``. Their titles are
    translated, their ids are not.
    """
    found: list[Line] = []
    title, recovery = "", False
    for line in _own_sections(text):
        words = split_words(line)
        if words[:1] == ("menuentry",) and len(words) > 1:
            title = bare(words[1])
            recovery = any(_RECOVERY.fullmatch(bare(word)) for word in words)
        elif words and words[0] in ("linux", "linuxefi", "linux16") and len(words) > 1:
            arguments = tuple(bare(word) for word in words[2:])
            length = len(" ".join((f"BOOT_IMAGE={words[1]}", *arguments)).encode("utf-8", "surrogateescape"))
            found.append(Line(title or words[1], arguments, recovery, length))
    return tuple(found)


def _own_sections(text: str) -> list[str]:
    """The lines of 10_linux (10_linux_zfs on Ubuntu); all lines of a file that no generator marked."""
    if "### BEGIN " not in text:
        return text.splitlines()
    return [line for section in _SECTION.findall(text) for line in section.split("\n")]
