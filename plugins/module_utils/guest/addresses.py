# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""IP addresses from the inventory, with what is wrong with them in plain words. Pure."""

from __future__ import annotations

import ipaddress
from typing import Union

Interface = Union[ipaddress.IPv4Interface, ipaddress.IPv6Interface]
Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]
_IP = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
# What no network of hosts is made of (IANA's registries of special addresses, RFC 6890). Public addresses are somebody's business.
_SPECIAL: tuple[tuple[Network, str], ...] = (
    (ipaddress.IPv4Network("0.0.0.0/8"), "this network"),
    (ipaddress.IPv4Network("127.0.0.0/8"), "loopback"),
    (ipaddress.IPv4Network("169.254.0.0/16"), "link-local"),
    (ipaddress.IPv4Network("224.0.0.0/4"), "multicast"),
    (ipaddress.IPv4Network("240.0.0.0/4"), "reserved"),
    (ipaddress.IPv6Network("::/8"), "reserved"),
    (ipaddress.IPv6Network("fe80::/10"), "link-local"),
    (ipaddress.IPv6Network("ff00::/8"), "multicast"),
)


def address_of(text: str) -> _IP:
    """An address; ValueError with what the text is not."""
    plain = "".join(text.split())
    if "%" in plain:  # a zone names a network device of one machine, in any characters
        plain = ""
    try:
        found = ipaddress.ip_address(plain)
    except ValueError:
        raise ValueError("is no IPv4 or IPv6 address") from None
    _require_no_space(text)
    return found


def interface_of(text: str) -> Interface:
    """An address with its prefix length; ValueError with what the text is not."""
    alone, slash, _length = text.partition("/")
    address = address_of(alone)
    if not slash:
        raise ValueError("has no prefix length")
    try:
        found = ipaddress.ip_interface("".join(text.split()))
    except ValueError:
        raise ValueError(f"has a prefix length that no IPv{address.version} network has") from None
    _require_no_space(text)
    return found


def _require_no_space(text: str) -> None:
    """ValueError for what would be right without."""
    if any(sign.isspace() for sign in text):
        raise ValueError("has white space in it")


def special_in(network: Network) -> str:
    """Those addresses that a network shares with what none of hosts is made of; empty: none."""
    met = (f"{one} ({kind})" for one, kind in _SPECIAL if one.version == network.version and one.overlaps(network))
    return next(met, "")


def ends_of(network: Network) -> dict[_IP, str]:
    """The addresses of a network that no host in it can have, with what they are. That of an IPv6 one is its routers' (RFC 4291, 2.6.1)."""
    ends: dict[_IP, str] = {network.network_address: "the address of the network itself"}
    if network.version == 4:
        ends[network.broadcast_address] = "the broadcast address"
    return ends
