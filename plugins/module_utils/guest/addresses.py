# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""IP addresses from the inventory, with what is wrong with them in plain words. Pure."""

from __future__ import annotations

import ipaddress
from typing import Union

Interface = Union[ipaddress.IPv4Interface, ipaddress.IPv6Interface]
_IP = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]


def address_of(text: str) -> _IP:
    """An address; ValueError with what the text is not."""
    try:
        if "%" not in text:  # a zone names a network device of one machine, in any characters
            return ipaddress.ip_address(text)
    except ValueError:
        pass
    raise ValueError("is no IPv4 or IPv6 address")


def interface_of(text: str) -> Interface:
    """An address with its prefix length; ValueError with what the text is not."""
    alone, slash, _length = text.partition("/")
    address = address_of(alone)
    if not slash:
        raise ValueError("has no prefix length")
    try:
        return ipaddress.ip_interface(text)
    except ValueError:
        raise ValueError(f"has a prefix length that no IPv{address.version} network has") from None
