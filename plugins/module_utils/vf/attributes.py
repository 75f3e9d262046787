# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Attributes of a VF as its PF keeps them: how ``ip`` tells them, how it sets them, and what differs. Pure.

Names are those of the options. An attribute that is not in a mapping is not known, or not wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Union

Value = Union[str, int, bool]
Attributes = Mapping[str, Value]
ByNumber = Mapping[int, Attributes]

# What one request to the kernel sets together, in the order in which the requests are made: some drivers check source
# addresses (spoofchk) against the MAC that is set at that moment (mlx5 esw/legacy.c).
GROUPS: tuple[tuple[str, ...], ...] = (
    ("mac",),
    ("vlan", "qos", "vlan_protocol"),
    ("spoofchk",),
    ("trust",),
    ("link_state",),
    ("min_tx_rate", "max_tx_rate"),
    ("node_guid",),
    ("port_guid",),
)
RATES = GROUPS[5]
GUIDS = ("node_guid", "port_guid")
# What stands in a group for a part of it that is neither wanted nor known.
_UNSET: Attributes = {"vlan": 0, "qos": 0, "vlan_protocol": "802.1q", "min_tx_rate": 0, "max_tx_rate": 0}


@dataclass(frozen=True)
class Request:
    """One line for ``ip -batch``, and what it sets."""

    number: int
    names: tuple[str, ...]
    line: str


def told(entry: Mapping[str, Any]) -> dict[str, Value]:
    """The attributes in one object of ``vfinfo_list`` of ``ip -json -details link show``.

    ``ip`` leaves out what is zero and what the driver does not know (iproute2 ip/ipaddress.c, print_vfinfo). A VLAN of
    802.1q has no protocol there, one without VLAN is an empty object. Older releases say ``mac`` for ``address``.
    """
    known: dict[str, Value] = {}
    address = entry.get("address", entry.get("mac"))
    if isinstance(address, str):
        known["mac"] = address.lower()
    if "vlan_list" in entry or "vlan" in entry or "rate" in entry:
        vlan = (entry.get("vlan_list") or [entry])[0]
        known.update(vlan=int(vlan.get("vlan", 0)), qos=int(vlan.get("qos", 0)))
        known["vlan_protocol"] = str(vlan.get("protocol", "802.1q")).lower()
    rate = entry.get("rate")
    if isinstance(rate, Mapping):
        known.update(min_tx_rate=int(rate.get("min_tx", 0)), max_tx_rate=int(rate.get("max_tx", 0)))
    for name in ("spoofchk", "trust"):
        if isinstance(entry.get(name), bool):
            known[name] = entry[name]
    if isinstance(entry.get("link_state"), str):
        known["link_state"] = entry["link_state"]
    for name in GUIDS:
        guid = entry.get(name.replace("_", " "))
        if isinstance(guid, str):
            known[name] = guid.lower()
    return known


def differing(wanted: Attributes, current: Attributes) -> dict[str, Value]:
    """The part of ``wanted`` that is not so; what is not known counts as not so."""
    return {name: value for name, value in wanted.items() if current.get(name) != value}


def unreported(wanted: Attributes, current: Attributes) -> tuple[str, ...]:
    """The wanted attributes that the driver tells nothing of, so that nobody could say whether they are set."""
    return tuple(name for name in wanted if name not in current)


def requests(netdev: str, wanted: ByNumber, current: ByNumber) -> tuple[Request, ...]:
    """What to ask the kernel for, so that every VF gets what it should have; nothing for what is so already."""
    return tuple(
        request
        for number, attributes in sorted(wanted.items())
        for request in _of_one(netdev, number, attributes, current.get(number, {}))
    )


def _of_one(netdev: str, number: int, wanted: Attributes, current: Attributes) -> Iterator[Request]:
    different = differing(wanted, current)
    for group in GROUPS:
        if any(name in different for name in group):
            values = {name: wanted.get(name, current.get(name, _UNSET.get(name))) for name in group}
            if values.get("vlan") == 0:
                values.update(qos=wanted.get("qos", 0), vlan_protocol="802.1q")  # no priority without a VLAN
            yield Request(number, group, f"link set dev {netdev} vf {number} {_WORDS[group[0]](values)}")


def _vlan(values: Mapping[str, Any]) -> str:
    protocol = "" if values["vlan_protocol"] == "802.1q" else f" proto {values['vlan_protocol']}"
    return f"vlan {values['vlan']} qos {values['qos']}{protocol}"


def _on(name: str, values: Mapping[str, Any]) -> str:
    return f"{name} {'on' if values[name] else 'off'}"


# The words of ``ip link set dev NETDEV vf NUMBER`` by the first attribute of a group (iproute2 ip/iplink.c).
_WORDS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "mac": lambda values: f"mac {values['mac']}",
    "vlan": _vlan,
    "spoofchk": lambda values: _on("spoofchk", values),
    "trust": lambda values: _on("trust", values),
    "link_state": lambda values: f"state {values['link_state']}",
    "min_tx_rate": lambda values: f"max_tx_rate {values['max_tx_rate']} min_tx_rate {values['min_tx_rate']}",
    "node_guid": lambda values: f"node_guid {values['node_guid']}",
    "port_guid": lambda values: f"port_guid {values['port_guid']}",
}


def as_text(attributes: Mapping[int, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The same as plain data for results and records, whose keys are text."""
    return {str(number): dict(sorted(one.items())) for number, one in sorted(attributes.items()) if one}


def from_text(data: Mapping[str, Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
    """The attributes that ``as_text`` made plain."""
    return {int(number): dict(one) for number, one in data.items()}
