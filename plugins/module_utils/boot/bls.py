# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boot Loader Specification entries as data (RHEL, Rocky 9 and 10). Pure.

An entry is a text of ``key value`` lines; ``options`` is the kernel's command line. New kernels take theirs
from ``/etc/kernel/cmdline`` and grub2-mkconfig from ``/etc/default/grub``, so those two are kept in step.
"""

from __future__ import annotations

from dataclasses import dataclass

from .cmdline import Line, split
from .grub import bare

ENTRIES = "/boot/loader/entries"
FUTURE = "/etc/kernel/cmdline"


@dataclass(frozen=True)
class Entry:
    """One entry file."""

    path: str
    title: str
    kernel: str
    arguments: tuple[str, ...]

    @property
    def line(self) -> Line:
        """The command line of the entry; a rescue image is a fallback, but gets our arguments too."""
        return Line(self.title or self.path, self.arguments, False, len(" ".join(self.arguments).encode()))


def arguments(line: str) -> tuple[str, ...]:
    """The kernel arguments of an ``options`` line; GRUB builds a command from it and takes the quotes away."""
    return tuple(bare(word) for word in split(line))


def entry(path: str, text: str) -> Entry:
    """An entry file as data; the last of repeated keys wins, repeated ``options`` add up (specification)."""
    values: dict[str, str] = {}
    options: list[str] = []
    for line in text.splitlines():
        key, _, value = line.strip().partition(" ")
        if key == "options":
            options.extend(arguments(value))
        elif key and not key.startswith("#"):
            values[key] = value.strip()
    return Entry(path, values.get("title", ""), values.get("linux", ""), tuple(options))
