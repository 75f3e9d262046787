# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boot Loader Specification entries as data (RHEL, Rocky 9 and 10). Pure.

An entry is a text of ``key value`` lines; ``options`` is the kernel's command line. New kernels take theirs
from ``/etc/kernel/cmdline`` and grub2-mkconfig from ``/etc/default/grub``, so those two are kept in step.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .cmdline import Line
from .words import bare, split_words, with_arguments

ENTRIES = "/boot/loader/entries"
FUTURE = "/etc/kernel/cmdline"
# What GRUB puts before the kernel's path, at its longest.
_PREFIX = "BOOT_IMAGE=(hd00,gpt00)"

_OPTIONS = re.compile(r"^(?P<key>[ \t]*options[ \t]+)(?P<value>[^\n]*?)(?P<end>[ \t]*\r?)$", re.MULTILINE)


@dataclass(frozen=True)
class Entry:
    """One entry file; ``words`` are its kernel arguments with their quotes as they stand."""

    path: str
    title: str
    kernel: str
    words: tuple[str, ...]

    @property
    def arguments(self) -> tuple[str, ...]:
        """The kernel arguments; GRUB builds a command from the line and takes the quotes away."""
        return tuple(map(bare, self.words))

    @property
    def line(self) -> Line:
        """The command line of the entry; a rescue image is a fallback, but gets our arguments too."""
        return Line(self.title or self.path, self.arguments, False, length_of(self.kernel, self.arguments))


def length_of(kernel: str, arguments: tuple[str, ...]) -> int:
    """Bytes of the command line that GRUB hands to a kernel."""
    return len(" ".join((f"{_PREFIX}{kernel}", *arguments)).encode("utf-8", "surrogateescape"))


def entry(path: str, text: str) -> Entry:
    """An entry file as data; the last of repeated keys wins, repeated ``options`` add up (specification)."""
    values: dict[str, str] = {}
    words: list[str] = []
    for line in text.split("\n"):
        key, _space, value = line.strip().replace("\t", " ").partition(" ")
        if key == "options":
            words.extend(split_words(value))
        elif key and not key.startswith("#"):
            values[key] = value.strip()
    return Entry(path, values.get("title", ""), values.get("linux", ""), tuple(words))


def boots_linux(text: str) -> bool:
    """True for the entry of a kernel that takes arguments; false for memory tests, firmware tools and the like."""
    one = entry("", text)
    return bool(one.kernel and one.words)


def arguments_of(path: str, text: str) -> tuple[str, ...]:
    """The kernel arguments in an entry, or in the line for future kernels."""
    return tuple(map(bare, split_words(text))) if path == FUTURE else entry(path, text).arguments


def changed(path: str, text: str, arguments: tuple[str, ...]) -> str:
    """The file with these kernel arguments and everything else as it was; the text itself when they are its own."""
    if arguments_of(path, text) == arguments:
        return text
    if path == FUTURE:
        return with_arguments(split_words(text), arguments) + ("\n" if text.endswith("\n") else "")
    line = with_arguments(entry(path, text).words, arguments)
    first = _OPTIONS.search(text)
    if first is None:
        return f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}options {line}\n"
    rest = re.sub(r"^[ \t]*options[ \t][^\n]*\n?", "", text[first.end() :], flags=re.MULTILINE)
    return f"{text[: first.start()]}{first['key']}{line}{first['end']}{rest}"
