# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices on record that are not there: not yet, or not any more. A selector that matches others would not miss them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ..core.errors import Problem
from ..core.host import Host
from ..pci import sysfs
from ..pci.address import Address

_ADDRESS = re.compile(r"\w+\[(?P<address>[0-9a-f:.]+)\]")


def recorded(owned: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The records of one resource that tell which device is where, by address."""
    found = {}
    for path, record in owned.items():
        match = _ADDRESS.match(path)
        if match is not None and "identity" in record:
            found[match["address"]] = record
    return found


def absent(resource: str, owned: Mapping[str, Any], host: Host) -> list[Problem]:
    """The devices of a resource's records that the host does not have, in one sentence; VFs are told by their PF."""
    known = recorded(owned)
    if not known:
        return []
    tree = sysfs.read(host)
    gone = sorted(address for address in known if tree.get(Address.parse(address)) is None)
    pfs = Counter(str(known[address]["pf"]) for address in gone if known[address].get("pf"))
    told = [f"{address} ({_kind(known[address]['identity'])})" for address in gone if not known[address].get("pf")]
    told += [f"{count} VFs of {pf}" for pf, count in pfs.items()]
    if not told:
        return []
    advice = (
        "See the kernel's log; what was taken out on purpose goes into gpudirect_replaced for the next run of site.yml."
    )
    return [Problem(resource, f"devices that were set up here are not there: {', '.join(told)}", advice)]


def _kind(identity: Mapping[str, Any]) -> str:
    ids = f"{identity.get('vendor')}:{identity.get('device')}"
    return " ".join([ids, *(f"{name} {identity[name]}" for name in ("serial", "port") if name in identity)])
