# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which device of the host is which in the guest, as plain data for reports and for proofs from inside. Pure."""

from __future__ import annotations

import json
from typing import Any

from .model import Device, Guest


def plain(guest: Guest) -> dict[str, Any]:
    """The map. ``made_up`` of a switch says that the guest has no such function: only NCCL's file knows it."""
    names = {one.host: one.name for one in guest.devices}
    return {
        "guest": guest.name,
        "uuid": guest.uuid,
        "topology": guest.options.topology.value,
        "devices": [_device(one, names.get(one.beside) if one.beside else None) for one in guest.devices],
        "switches": [
            {"host": str(host), "guest": str(seen), "made_up": host not in guest.layout.switches}
            for host, seen in guest.switches.items()
        ],
        "nodes": [
            {"guest": number, "host": cell.node, "vcpus": len(cell.cpus), "memory_mib": cell.memory_mib}
            for number, cell in enumerate(guest.cells)
        ],
        "window_gib": guest.window.size >> 30,
        "address_bits": guest.address_bits,
        "notes": list(guest.notes),
    }


def text(guest: Guest) -> str:
    """The map as a file."""
    return json.dumps(plain(guest), indent=2, ensure_ascii=False) + "\n"


def _device(one: Device, beside: Any) -> dict[str, Any]:
    return {
        "name": one.name,
        "part": one.part.value,
        "host": str(one.host),
        "guest": str(one.guest),
        "host_node": one.host_node,
        "node": one.node,
        "beside": beside,
        "mac": one.mac or None,
    }
