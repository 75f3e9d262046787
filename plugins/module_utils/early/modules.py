# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel modules: which are loaded and by what, which are part of the kernel, and which a kernel has at all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..core.host import Host
from .files import module_of

RELEASE = "/proc/sys/kernel/osrelease"
LOADED = "/proc/modules"
_FOLDER = "/lib/modules"
_BUILTIN = re.compile(r"([^/\s]+)\.ko\b")


@dataclass(frozen=True)
class Loaded:
    """A loaded module: its users in all, and the modules among them."""

    users: int
    dependents: tuple[str, ...] = ()

    @property
    def others(self) -> int:
        """Users that are no modules: open devices, mounted file systems, consoles."""
        return self.users - len(self.dependents)


@dataclass(frozen=True)
class Modules:
    """The modules of a running kernel.

    ``builtin`` are those that are part of it; ``lacking`` are installed kernels by the modules that were looked for and
    that they do not have; ``known`` is false where the running kernel's list could not be read.
    """

    loaded: Mapping[str, Loaded] = field(default_factory=dict)
    builtin: frozenset[str] = frozenset()
    lacking: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    running: str = ""
    known: bool = False

    def here(self, module: str) -> bool:
        """False when the running kernel is known not to have a module."""
        return module in self.loaded or not self.known or self.running not in self.lacking.get(module, ())

    def beneath(self, modules: Iterable[str]) -> frozenset[str]:
        """These loaded modules and all that they were loaded on top of."""
        found = set(modules)
        while True:
            more = {name for name, one in self.loaded.items() if found.intersection(one.dependents)} - found
            if not more:
                return frozenset(found)
            found |= more


def read(host: Host, wanted: Iterable[str], kernels: Iterable[str]) -> Modules:
    """The modules of a host; ``wanted`` are those that are looked for in the lists of the installed ``kernels``."""
    release = host.read_text(RELEASE)
    running = release.strip() if isinstance(release, str) else ""
    loaded = host.read_text(LOADED)
    builtin = host.read_text(f"{_FOLDER}/{running}/modules.builtin")
    here = host.read_text(f"{_FOLDER}/{running}/modules.dep")
    names = sorted({module_of(name) for name in wanted})
    lists = {kernel: _lists(host, kernel) for kernel in sorted({*kernels, running})} if names else {}
    return Modules(
        parse_loaded(loaded if isinstance(loaded, str) else ""),
        frozenset(module_of(name) for name in _BUILTIN.findall(builtin)) if isinstance(builtin, str) else frozenset(),
        {name: tuple(kernel for kernel, text in lists.items() if not _has(text, name)) for name in names},
        running,
        isinstance(here, str),
    )


def parse_loaded(text: str) -> dict[str, Loaded]:
    """``/proc/modules``: name, size, users, dependents, state, address."""
    loaded = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 4 and words[2].isdigit():
            dependents = tuple(name for name in words[3].split(",") if name not in ("", "-", "[permanent]"))
            loaded[words[0]] = Loaded(int(words[2]), dependents)
    return loaded


def _lists(host: Host, kernel: str) -> str:
    texts = (host.read_text(f"{_FOLDER}/{kernel}/{name}") for name in ("modules.dep", "modules.builtin"))
    return "\n".join(text for text in texts if isinstance(text, str))


def _has(text: str, module: str) -> bool:
    """File names are spelled with dashes or underscores, as their authors liked."""
    return re.search(rf"/{module.replace('_', '[-_]')}\.ko\b", text) is not None
