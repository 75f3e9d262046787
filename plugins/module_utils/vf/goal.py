# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one port should be: by the intent, and where the intent has gone, as it was before us. Pure.

Records are kept by property: ``sriov[ADDRESS].mtu`` and so on, each with the value before our first change of this
boot and the identity of the device. All of it is lost when the host boots, so a record of an earlier boot (or of a
device that is no longer there) says only that the device was ours; what is found in this boot is found anew.

Of VFs that we made, ``sriov[ADDRESS].vfs`` keeps in ``fresh`` what they were like when they were new, and in its
``before`` what the VFs were like that were there instead of them. ``sriov[ADDRESS].vf`` keeps, of the attributes that
we set, the value before; None stands for that of a VF that was new.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Union

from ..pci.address import Address
from .attributes import Value, from_text

PROPERTIES = ("eswitch", "autoprobe", "mtu", "vfs", "up", "vf")
_PATH = re.compile(r"sriov\[(?P<address>[0-9a-f:.]+)\]\.(?P<name>[a-z]+)")
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Records:
    """The records of one address: those that still say how things were, and the names of those that do not."""

    live: Mapping[str, Record] = field(default_factory=dict)
    stale: frozenset[str] = frozenset()

    def has(self, name: str) -> bool:
        """Whether there is one for a property."""
        return name in self.live or name in self.stale


@dataclass(frozen=True)
class Intent:
    """What the inventory asks of one port, MAC addresses worked out. None: nothing. ``path`` is the entry's."""

    path: str
    eswitch: Union[str, None]
    autoprobe: bool
    mtu: Union[int, None]
    vfs: int
    attributes: Mapping[int, Mapping[str, Value]]

    @property
    def up(self) -> Union[bool, None]:
        """A port with VFs to serve is up: without carrier some drivers take no rates, and a guest has no link."""
        return True if self.vfs else None


@dataclass(frozen=True)
class Aim:
    """A value to bring about. None: leave it. ``back``: it is the one from before us, and then no longer ours."""

    value: Any = None
    back: bool = False


def path_of(address: Address, name: str) -> str:
    """The path of a property of a port, in plans and records."""
    return f"sriov[{address}].{name}"


def by_address(owned: Mapping[str, Any]) -> dict[Address, dict[str, Record]]:
    """This resource's records, by address and property."""
    found: dict[Address, dict[str, Record]] = {}
    for path, record in owned.items():
        match = _PATH.fullmatch(path)
        if match is not None:
            found.setdefault(Address.parse(match["address"]), {})[match["name"]] = record
    return found


def sorted_out(records: Mapping[str, Record], boot: str, same_device: bool) -> Records:
    """The records of one address by whether they still tell how things were."""
    live = {name: one for name, one in records.items() if same_device and one["boot"] == boot}
    return Records(live, frozenset(records) - frozenset(live))


def aim(name: str, wanted: Any, records: Records) -> Aim:
    """What to do about a property with one value (not ``vf``)."""
    if wanted is not None:
        return Aim(wanted)
    record = records.live.get(name)
    if record is None:
        return Aim()
    return Aim(record["before"]["count"] if name == "vfs" else record["before"], back=True)


def found_before(records: Records) -> dict[int, dict[str, Value]]:
    """The attributes of the VFs that were there before the ones that we made."""
    record = records.live.get("vfs")
    return from_text(record["before"]["vf"]) if record is not None else {}


def set_by_us(records: Records) -> dict[int, dict[str, Any]]:
    """The attributes that we set on the VFs that are there, with their values before; those that cannot be told are left out."""
    record = records.live.get("vf")
    if record is None:
        return {}
    fresh = from_text(records.live.get("vfs", {}).get("fresh", {}))
    known: dict[int, dict[str, Any]] = {}
    for number, one in from_text(record["before"]).items():
        for name, value in one.items():
            origin = fresh.get(number, {}).get(name) if value is None else value
            if origin is not None:
                known.setdefault(number, {})[name] = origin
    return known
