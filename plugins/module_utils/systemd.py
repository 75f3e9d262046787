# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Units as the running systemd has them, and which of them the next boot starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .core.change import Absent, Unreadable
from .core.errors import Problem, UnreadableState
from .core.host import Host

FOLDER = "/etc/systemd/system"
_PROPERTIES = ("Id", "LoadState", "ActiveState", "SubState", "NeedDaemonReload")


@dataclass(frozen=True)
class Unit:
    """What systemd holds of a unit: ``load`` is loaded, not-found, masked, ...; ``active`` active, failed, inactive, ..."""

    load: str
    active: str
    sub: str
    stale: bool  # its file has changed or gone since systemd read it

    @property
    def waits(self) -> bool:
        """True for a timer that will elapse, or has just done so."""
        return self.active == "active" and self.sub in ("waiting", "running")


def read(host: Host, names: Iterable[str]) -> dict[str, Unit] | None:
    """The units by name; None for a captured tree, of which no systemd can be asked."""
    if host.captured:
        return None
    wanted = tuple(names)
    if isinstance(host.program("systemctl"), Absent):
        raise UnreadableState([_unanswered("the host has no systemctl")])
    done = host.look(["systemctl", "show", f"--property={','.join(_PROPERTIES)}", *wanted])
    units = parse_show(done.out)
    if units.keys() != set(wanted):
        raise UnreadableState([_unanswered(f"systemctl show tells of {', '.join(sorted(units)) or 'no unit'}")])
    return units


def parse_show(text: str) -> dict[str, Unit]:
    """The units in the output of ``systemctl show``: blocks of ``Name=value`` lines with a blank line between."""
    units = {}
    for block in text.split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if values.keys() >= set(_PROPERTIES):
            stale = values["NeedDaemonReload"] == "yes"
            units[values["Id"]] = Unit(values["LoadState"], values["ActiveState"], values["SubState"], stale)
    return units


def enabled(host: Host, wanted_by: Mapping[str, str]) -> frozenset[str]:
    """Those of the units that the next boot starts; given by name with the target that would want each."""
    found = set()
    for unit, target in wanted_by.items():
        folder = f"{FOLDER}/{target}.wants"
        names = host.names(folder)
        if isinstance(names, Unreadable):
            raise UnreadableState([Problem(folder, f"cannot be read: {names.cause}", "Run as root on the host.")])
        if not isinstance(names, Absent) and unit in names:
            found.add(unit)
    return frozenset(found)


def _unanswered(cause: str) -> Problem:
    return Problem(
        "systemd",
        f"does not tell the state of units: {cause}",
        "Boot the host with systemd, or set host_boot_enabled: false.",
    )
