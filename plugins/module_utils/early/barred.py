# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules that must not be loaded and are: unloaded at once where nothing uses them, else gone with the next boot. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.change import Awaiting, Change
from ..core.errors import CommandFailed, GpudirectError, Problem
from ..core.host import Host
from .modules import Loaded, Modules

_MODULE = "pci_driver.module["


@dataclass(frozen=True)
class Unload:
    """Step: unload a module that nothing uses."""

    module: str


@dataclass(frozen=True)
class Load:
    """Step: load a module again that was loaded before us; without a name there is none to load."""

    module: str


def module_path(module: str) -> str:
    """The change and record path of a module."""
    return f"{_MODULE}{module}]"


def plan(
    barred: Sequence[str], modules: Modules, driving: Mapping[str, Sequence[str]], written: str
) -> list[Change | Awaiting]:
    """What is to be done about loaded modules that are barred, those on top of others first.

    ``driving`` are the devices, by module, that will still have a driver of it when the plan is carried out.
    ``written`` is the boot in which the early part was written, as far as it is right.
    """
    left = {name: modules.loaded[name] for name in barred if name in modules.loaded}
    why = {name: _needed(one, driving.get(name, ())) for name, one in left.items()}
    verdicts: list[Change | Awaiting] = []
    unloaded: set[str] = set()
    while True:
        free = sorted(
            name
            for name, one in left.items()
            if name not in unloaded and not why[name] and unloaded.issuperset(one.dependents)
        )
        if not free:
            break
        unloaded.update(free)
        verdicts += [
            Change(
                module_path(name), "loaded", None, "it must not be loaded, and nothing uses it", step=Unload(name),
                remember={module_path(name): {"before": "loaded"}},
            )
            for name in free
        ]  # fmt: skip
    for name in sorted(left.keys() - unloaded):
        above = sorted(set(left[name].dependents) - unloaded)
        reason = why[name] or f"{', '.join(above)} needs it"
        verdicts.append(
            Awaiting(module_path(name), "loaded", None, f"{reason}; the next boot does not load it", written)
        )
    return verdicts


def _needed(one: Loaded, devices: Sequence[str]) -> str:
    if devices:
        return f"it drives {', '.join(devices)}"
    return f"it is in use ({one.others} times)" if one.others > 0 else ""


def plan_undo(barred: Iterable[str], modules: Modules, owned: Mapping[str, Any], boot: str) -> list[Change]:
    """Load again, in the same boot, what we unloaded; a later boot has done so by itself."""
    changes = []
    for path, record in sorted(owned.items()):
        name = path[len(_MODULE) : -1]
        if not path.startswith(_MODULE) or name in barred:
            continue
        back = record["boot"] == boot and name not in modules.loaded
        why = "no longer barred; it is loaded again" if back else "no longer barred"
        after = "loaded" if back or name in modules.loaded else None
        changes.append(Change(path, None, after, why, step=Load(name) if back else None, forget=(path,)))
    return changes


def notes(barred: Sequence[str], modules: Modules) -> list[str]:
    """Modules that cannot be kept from being there."""
    return [
        f"pci_driver_blacklist: {name} is part of the kernel; it takes no device that an entry selects, and others as before"
        for name in barred
        if name in modules.builtin
    ]


def apply(step: Unload | Load, host: Host) -> None:
    """Unload or load a module."""
    if isinstance(step, Load):
        host.run(["modprobe", step.module])
        return
    try:
        host.run(["rmmod", step.module])
    except CommandFailed as error:
        advice = "See what uses it (lsmod), and run again: the run then waits for a boot."
        fact = f"cannot be unloaded: {error}".rstrip(".")
        raise GpudirectError([Problem(module_path(step.module), fact, advice)]) from error
