# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Network devices of a host as ``ip`` tells them: their VFs, what lies on top of them, and which must not be touched. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from ..core.errors import Problem, UnreadableState
from .attributes import Attributes, told

# One look at all devices. With -details ``ip address`` tells all that ``ip link`` does, VFs too (iproute2
# ip/ipaddress.c, print_linkinfo), so addresses need no second one.
SHOW = ("ip", "-json", "-details", "address", "show")
_OVS = "openvswitch"
_OVS_MASTER = "ovs-system"


@dataclass(frozen=True)
class Link:
    """One network device. Empty text and None: there is none, or it is not told."""

    name: str
    kind: str = ""  # bond, bridge, vlan, ...: of what has no hardware of its own
    link_type: str = "ether"
    address: str = ""
    permanent: str = ""
    mtu: int = 1500
    mtu_range: tuple[int, int] = (0, 0)  # 0: not told
    up: bool = False  # set up by an administrator
    carrier: bool = False
    master: str = ""
    below: str = ""  # the device that a VLAN or macvlan lies on
    addresses: tuple[str, ...] = ()  # without those of the link itself, which every device gives itself
    vfs: Mapping[int, Attributes] = field(default_factory=dict)


Links = Mapping[str, Link]


def parse_links(command: Sequence[str], text: str) -> dict[str, Link]:
    """The devices in the output of ``SHOW`` or of ``ip -json -details link show``."""
    entries = _document(command, text)
    if not isinstance(entries, list):
        raise UnreadableState([_strange(command, "it is no list")])
    links = {}
    for entry in entries:
        if isinstance(entry, Mapping) and "ifname" in entry:
            try:
                links[str(entry["ifname"])] = _link(entry)
            except (TypeError, ValueError, KeyError, AttributeError) as error:
                raise UnreadableState([_strange(command, f"{entry['ifname']}: {error}")]) from error
    return links


def _link(entry: Mapping[str, Any]) -> Link:
    flags = entry.get("flags", [])
    address = str(entry.get("address", "")).lower()
    return Link(
        name=str(entry["ifname"]),
        kind=str(entry.get("linkinfo", {}).get("info_kind", "")),
        link_type=str(entry.get("link_type", "")),
        address=address,
        # A bond gives its ports its own address; the permanent one is told where it differs.
        permanent=str(entry.get("permaddr", address)).lower(),
        mtu=int(entry["mtu"]),
        mtu_range=(int(entry.get("min_mtu", 0)), int(entry.get("max_mtu", 0))),
        up="UP" in flags,
        carrier="LOWER_UP" in flags,
        master=str(entry.get("master", "")),
        below=str(entry.get("link") or ""),
        addresses=tuple(
            str(one["local"]) for one in entry.get("addr_info", []) if one.get("scope") != "link" and "local" in one
        ),
        vfs={int(one["vf"]): told(one) for one in entry.get("vfinfo_list", []) if "vf" in one},
    )


def parse_routes(command: Sequence[str], text: str) -> tuple[str, ...]:
    """The devices of the routes in the output of ``ip -json route``, those of every next hop of each."""
    entries = _document(command, text)
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise UnreadableState([_strange(command, "it is no list of routes")])
    hops = [hop for entry in entries for hop in (entry, *entry.get("nexthops", []))]
    return tuple(dict.fromkeys(str(hop["dev"]) for hop in hops if "dev" in hop))


def parse_eswitch(command: Sequence[str], text: str) -> str:
    """The mode in the output of ``devlink -j dev eswitch show``; empty: it tells none."""
    document = _document(command, text)
    devices = document.get("dev", {}) if isinstance(document, Mapping) else {}
    modes = [str(one.get("mode", "")) for one in devices.values()] if isinstance(devices, Mapping) else []
    return modes[0] if modes else ""


def _document(command: Sequence[str], text: str) -> Any:
    try:
        return json.loads(text or "[]")
    except ValueError as error:
        raise UnreadableState([_strange(command, f"it is no JSON: {error}")]) from error


def _strange(command: Sequence[str], why: str) -> Problem:
    return Problem(
        " ".join(command), f"its output is not understood: {why}", "See what the program prints on the host."
    )


# How devices lie on each other ------------------------------------------------------------


def carriers(links: Links, name: str) -> tuple[str, ...]:
    """The devices that carry the traffic of one: itself, its ports, what it lies on, and so on down."""
    found = [name]
    for one in found:
        link = links.get(one)
        if link is None:
            continue
        ports = [other.name for other in links.values() if other.master == one]
        # A bridge of Open vSwitch shows no ports of its own: they all have one master.
        ports += [other.name for other in links.values() if link.kind == _OVS and other.master == _OVS_MASTER]
        found += [lower for lower in (*ports, link.below) if lower and lower not in found]
    return tuple(found)


def uses(links: Links, name: str) -> tuple[str, ...]:
    """Why a device is not idle, in words: its addresses, what it is a port of, what lies on it."""
    return tuple(_uses(links, name))


def _uses(links: Links, name: str) -> Iterator[str]:
    link = links.get(name)
    if link is None:
        return
    for address in link.addresses:
        yield f"{name} has the address {address}"
    if link.master:
        kind = links[link.master].kind if link.master in links else ""
        yield f"{name} is a port of {kind or 'device'} {link.master}"
    for other in links.values():
        if other.below == name:
            yield f"{other.kind or 'device'} {other.name} lies on {name}"


def holder(links: Links, address: str) -> Union[str, None]:
    """The device that has an address, if one does."""
    return next((link.name for link in links.values() if address in link.addresses), None)
