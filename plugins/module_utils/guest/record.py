# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is kept of each guest: what it got of its host, and what we wrote of it. Pure.

A guest's record is written before libvirt hears of the guest, so that one that was half made is known and continued or removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..core.errors import Problem, UnreadableState
from ..core.owned import PATH as OWNED
from ..pci.address import Address
from .placed import Cell, Given, Part, Placed, Shape

RESOURCE = "libvirt_guest"


def path_of(name: str) -> str:
    """The record of a guest."""
    return f"{RESOURCE}[{name}]"


def by_name(owned: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The records of guests by name."""
    return {path[len(RESOURCE) + 1 : -1]: record for path, record in owned.items()}


def record_of(placed: Placed, wrote: Sequence[str]) -> dict[str, Any]:
    """The record of a guest. ``wrote`` has every definition of which libvirt may have the last one."""
    return {"before": None, "placed": plain(placed), "wrote": list(wrote)}


def plain(placed: Placed) -> dict[str, Any]:
    """What a guest got, as a record keeps it."""
    devices = [
        [one.part.value, str(one.address), one.node, None if one.beside is None else str(one.beside)]
        for one in placed.devices
    ]
    cells = [[one.node, list(one.cpus), one.memory_mib, one.threads] for one in placed.cells]
    return {
        "shape": asdict(placed.shape),
        "devices": devices,
        "cells": cells,
        "emulator": list(placed.emulator),
        "notes": list(placed.notes),
    }


def placed_in(name: str, record: Mapping[str, Any]) -> Placed:
    """What a guest got by its record; UnreadableState for a record that is none."""
    try:
        kept = record["placed"]
        return Placed(
            Shape(**kept["shape"]),
            tuple(
                Given(Part(part), Address.parse(address), node, None if beside is None else Address.parse(beside))
                for part, address, node, beside in kept["devices"]
            ),
            tuple(Cell(node, tuple(cpus), memory, threads) for node, cpus, memory, threads in kept["cells"]),
            tuple(kept["emulator"]),
            tuple(kept["notes"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        fact = f"the record of guest {name} in {OWNED} cannot be used: {error!r}"
        advice = "Restore the file from a backup."
        raise UnreadableState([Problem(path_of(name), fact, advice)]) from error
