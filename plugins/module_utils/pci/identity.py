# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which device it is: what is kept of a selected device, so that another one at its address is noticed. Pure.

Addresses are given anew at each boot, and equal cards change places. Ids, serial number and the place where a device
is plugged tell whether the device at an address is the one that was recorded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..core.change import Unreadable
from .tree import Function, Tree

_IDS = ("vendor", "device", "subsystem_vendor", "subsystem_device")
# A Device Serial Number of the configuration space, which is there whatever driver the device has.
_IN_CONFIG = re.compile(r"[0-9a-f]{2}(-[0-9a-f]{2}){7}")


def identity(function: Function, tree: Tree) -> dict[str, Any]:
    """What is kept of a device, as plain JSON; ``serial`` and ``port`` only where they are known. A VF has its PF's serial."""
    kept: dict[str, Any] = {name: f"{getattr(function, name):04x}" for name in _IDS}
    serial = _owner(function, tree).serial
    if isinstance(serial, str):
        kept["serial"] = serial
    port = tree.port(function)
    if "?" not in port:
        kept["port"] = port
    return kept


def differences(recorded: Mapping[str, Any], function: Function, tree: Tree) -> list[str]:
    """What tells that the device is another one than the recorded, in words; empty: it is the same.

    A serial number that was recorded and cannot be read now counts as a difference, since equal ids prove nothing.
    That of a drive is told by its driver only, so it may be missing while another driver has the drive.
    """
    now = identity(function, tree)
    found = [
        f"its {name.replace('_', ' ')} id is {now[name]}, recorded is {recorded[name]}"
        for name in _IDS
        if recorded.get(name) not in (None, now[name])
    ]
    before = recorded.get("serial")
    if before is not None and now.get("serial") != before:
        found += _serial_words(str(before), now.get("serial"), _owner(function, tree))
    if recorded.get("port") not in (None, now.get("port")):
        found.append(f"it is plugged at {tree.port(function)}, recorded is {recorded['port']}")
    return found


def _owner(function: Function, tree: Tree) -> Function:
    """The function whose serial number counts: a VF has none of its own."""
    pf = tree.get(function.physfn) if function.physfn is not None else None
    return function if pf is None else pf


def _serial_words(before: str, now: str | None, owner: Function) -> list[str]:
    if now is not None:
        return [f"its serial is {now}, recorded is {before}"]
    if isinstance(owner.serial, Unreadable):
        return [f"its serial cannot be read ({owner.serial.cause}), recorded is {before}"]
    return [f"it has no serial, recorded is {before}"] if _IN_CONFIG.fullmatch(before) else []
