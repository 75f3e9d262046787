# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine as plain data and back: its tree, what it says of itself as a whole, and what the input did not have. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ..core.change import ABSENT, Absent, Unreadable
from .machine import Atsr, Machine, Platform
from .topology import topology

_LISTS = ("iommus", "numa_nodes")
_UNTOLD = Unreadable("the result of host_topology_info does not have it")
# What a value of each field is where it is known.
_KINDS: Mapping[str, type] = {
    **dict.fromkeys(("arguments", "kernel", "cpu_vendor", "architecture", "lockdown", "memory_encryption"), str),
    **dict.fromkeys(("cpu_family", "cpu_model"), int),
    **dict.fromkeys(("unsafe_interrupts", "is_guest", "iommufd"), bool),
}


def whole(machine: Machine) -> dict[str, Any]:
    """The machine as results have it."""
    return {
        **topology(machine.tree),
        "platform": {one.name: _plain(getattr(machine.platform, one.name)) for one in fields(Platform)},
        "name": machine.name,
        "missing": list(machine.missing),
        "partial": machine.partial,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Absent):
        return None
    if isinstance(value, Unreadable):
        return {"unreadable": value.cause}
    if isinstance(value, Atsr):
        return {"everywhere": list(value.everywhere), "ports": list(value.ports)}
    return list(value) if isinstance(value, tuple) else value


def platform(data: Mapping[str, Any]) -> Platform:
    """What ``whole`` has made of it; of an earlier version's result nothing is known. ValueError for anything else."""
    given = data.get("platform")
    if given is None:
        return Platform()
    return Platform(**{one.name: _known(one.name, given.get(one.name, _UNTOLD)) for one in fields(Platform)})


def _known(name: str, value: Any) -> Any:
    if value is None:
        return ABSENT
    if isinstance(value, Unreadable):
        return value
    if isinstance(value, Mapping) and "unreadable" in value:
        return Unreadable(str(value["unreadable"]))
    if name == "atsr":
        return Atsr(tuple(map(int, value["everywhere"])), tuple(map(str, value["ports"])))
    if name in _LISTS and isinstance(value, list):
        return tuple(map(int, value)) if name == "numa_nodes" else tuple(map(str, value))
    if name in _KINDS and isinstance(value, _KINDS[name]):
        return value
    raise ValueError(f"platform.{name} is {value!r}")
