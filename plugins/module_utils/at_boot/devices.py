# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices on record that are not there: not yet, or not any more. A selector that matches others would not miss them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..core.errors import Problem
from ..core.host import Host
from ..pci import sysfs
from ..pci.address import Address

_ADDRESS = re.compile(r"\w+\[(?P<address>[0-9a-f:.]+)\]")
_SHOWN = 8


def recorded(owned: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The records of one resource that tell which device is where, by address."""
    found = {}
    for path, record in owned.items():
        match = _ADDRESS.match(path)
        if match is not None and "identity" in record:
            found[match["address"]] = record
    return found


def absent(resource: str, owned: Mapping[str, Any], host: Host) -> list[Problem]:
    """The devices of a resource's records that the host does not have, in one sentence.

    VFs of a PF that is absent itself are not told: they are its matter.
    """
    known = recorded(owned)
    if not known:
        return []
    tree = sysfs.read(host)
    gone = sorted(address for address in known if tree.get(Address.parse(address)) is None)
    told = [address for address in gone if known[address].get("pf") not in gone]
    if not told:
        return []
    shown = ", ".join(f"{address} ({_kind(known[address]['identity'])})" for address in told[:_SHOWN])
    more = f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
    fact = f"{len(told)} of the devices that were set up here are not there: {shown}{more}"
    advice = "See the kernel's log for them; where they were taken out on purpose, run site.yml."
    return [Problem(resource, fact, advice)]


def _kind(identity: Mapping[str, Any]) -> str:
    ids = f"{identity.get('vendor')}:{identity.get('device')}"
    return " ".join([ids, *(f"{name} {identity[name]}" for name in ("serial", "port") if name in identity)])
