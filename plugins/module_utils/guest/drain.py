# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that is drained: the guests that were made here end, and nothing else of them is changed. Pure.

Devices, images and placements are not looked at, so that a host in any state can be emptied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..core.change import Change, Disruption, Plan
from ..core.errors import Problem
from .acts import Autostart
from .changes import is_ours, stop_of
from .found import Current, devices_of
from .libvirt import Thing
from .record import RESOURCE, path_of
from .wanted import Desired

_WHY = "the host is drained (guest_drain)"


def drained(desired: Desired, current: Current, records: Mapping[str, Mapping[str, Any]]) -> Plan:
    """All guests of ours that run are asked at once, and each has its own outcome."""
    if current.without:
        fact = f"whether guests run cannot be told: {current.without}"
        problem = Problem(RESOURCE, fact, "See systemctl status libvirtd virtqemud on the host.")
        return Plan(refused=(problem,)) if records else Plan()
    ours = {name: thing for name, thing in sorted(current.domains.items()) if is_ours(thing)}
    running = [name for name, thing in ours.items() if thing.active]
    notes = [f"{path_of(name)}: {'runs' if thing.active else 'does not run'}" for name, thing in ours.items()]
    notes += _strangers(current.domains)
    return Plan((*_kept_off(ours), *_stops(desired, running)), notes=tuple(notes))


def _kept_off(ours: Mapping[str, Thing]) -> Iterator[Change]:
    for name, thing in ours.items():
        if thing.autostart:
            why = "libvirt would start it at the next boot"
            yield Change(f"{path_of(name)}.autostart", True, False, why, step=Autostart(name))


def _stops(desired: Desired, running: list[str]) -> Iterator[Change]:
    for index, name in enumerate(running):
        step = replace(stop_of(desired, name), others=() if index else tuple(running[1:]), waited=index > 0)
        yield Change(
            f"{path_of(name)}.state",
            "running",
            "shut off",
            _WHY,
            Disruption.GUEST,
            step=step,
            attended=True,
            apart=True,
        )


def _strangers(domains: Mapping[str, Thing]) -> Iterator[str]:
    """Running guests of others that have devices; they are theirs to stop."""
    for name, thing in sorted(domains.items()):
        devices = sorted(devices_of(thing.live)) if thing.active and not is_ours(thing) else []
        if devices:
            held = ", ".join(map(str, devices))
            yield f"{RESOURCE}: the guest {name}, which was not made by vela.gpudirect, runs with {held} and is left alone"
