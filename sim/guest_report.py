# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what a guest has said of itself on its serial console (recipe/guest/init)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

BEGIN, END = "=== guest report begins", "=== guest report ends"
KINDS = ("host", "boot", "seed", "written", "node", "pci", "net", "nvme")


@dataclass(frozen=True)
class Report:
    """What one boot of a guest saw: for each kind of thing the lines about it, as words by name."""

    cmdline: str
    things: Mapping[str, tuple[Mapping[str, str], ...]] = field(hash=False)

    def of(self, kind: str) -> tuple[Mapping[str, str], ...]:
        """Everything of a kind, in the order of the guest."""
        return self.things[kind]

    @property
    def host_name(self) -> str:
        """The name that the guest has given itself."""
        return self.of("host")[0]["name"]

    @property
    def devices(self) -> dict[str, Mapping[str, str]]:
        """PCI devices by address."""
        return {line["address"]: line for line in self.of("pci")}

    @property
    def written(self) -> dict[str, str]:
        """SHA-256 by path, of the files that the guest's seed had it write."""
        return {line["path"]: line["sha256"] for line in self.of("written")}


def reports(console: str) -> list[Report]:
    """Every complete report on a console, one for each boot; one that is still being written is left out."""
    found: list[Report] = []
    open_since: int | None = None
    lines = console.splitlines()
    for number, line in enumerate(lines):
        if line.strip() == BEGIN:
            open_since = number + 1
        elif line.strip() == END and open_since is not None:
            found.append(_report(lines[open_since:number]))
            open_since = None
    return found


def _report(lines: list[str]) -> Report:
    things: dict[str, list[Mapping[str, str]]] = {kind: [] for kind in KINDS}
    cmdline = ""
    for line in lines:
        kind, _, rest = line.strip().partition(" ")
        if kind == "cmdline":
            cmdline = rest
        elif kind in things:
            things[kind].append(dict(word.split("=", 1) for word in shlex.split(rest)))
        else:
            raise ValueError(f"guest report: {line!r} is no line of it (wanted one of {', '.join(KINDS)}, cmdline).")
    return Report(cmdline, {kind: tuple(found) for kind, found in things.items()})
