# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses of rails from one prefix, for inventories. Its documentation is in the file beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError

try:
    import netaddr
except ImportError:
    netaddr = None


def rail_address(prefix: Any, rail: Any, guest: Any, length: Any = None, first: Any = 1) -> str:
    """The address of a guest on a rail, with the length of the rail's prefix."""
    if netaddr is None:
        raise _error("netaddr", "is not installed on the control node", "Install it (pip install netaddr).")
    numbers = {"rail": rail, "guest": guest, "first": first, "length": length}
    counted = {name: _number(name, value) for name, value in numbers.items() if value is not None}
    whole = _network(prefix)
    network = _rail(whole, counted["rail"], counted.get("length", whole.prefixlen))
    index = counted["first"] + counted["guest"]
    last = network.size - (2 if network.version == 4 and network.size > 2 else 1)  # IPv4 keeps the last for all
    if not index and network.size > 2:
        fact = f"its address number 0 is that of the network on rail {rail}"
        raise _error(str(network), fact, "Take a first of at least 1.")
    if index > last:
        fact = f"rail {rail} has no address number {index}"
        raise _error(str(network), fact, "Take a shorter length, or a lower first.", f"at most {last}")
    return f"{network[index]}/{network.prefixlen}"


def _network(prefix: Any) -> Any:
    try:
        network = netaddr.IPNetwork(str(prefix))
    except (netaddr.AddrFormatError, ValueError) as error:
        # Ansible tells the cause of an error after the error, so that it would stand there twice.
        raise _error(str(prefix), f"is no prefix ({error})", "Correct the address plan.") from None
    if network.ip != network.network or "/" not in str(prefix):
        raise _error(str(prefix), "is no prefix", "Write the network with its length.", str(network.cidr))
    return network


def _rail(whole: Any, rail: int, length: int) -> Any:
    """The network of one rail: the first of this length in the prefix is that of rail 0."""
    longest = 128 if whole.version == 6 else 32
    if not whole.prefixlen <= length <= longest:
        wanted = f"{whole.prefixlen} to {longest}"
        raise _error("length", f"{length} is not in {whole}", "Correct the address plan.", wanted)
    most = 1 << (length - whole.prefixlen)
    if rail >= most:
        fact = f"has no network of length {length} for rail {rail}"
        raise _error(str(whole), fact, "Take a shorter prefix or a longer length.", f"rails 0 to {most - 1}")
    network = netaddr.IPNetwork(f"{whole.network}/{length}")
    return network.next(rail) if rail else network


def _number(name: str, value: Any) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not text.isdecimal():
        raise _error(name, f"is no number ({value!r})", "Give a whole number from 0.")
    return int(text)


def _error(path: str, fact: str, advice: str, wanted: str = "") -> AnsibleFilterError:
    known = f" (wanted {wanted})" if wanted else ""
    return AnsibleFilterError(f"vela.gpudirect.rail_address: {path}: {fact}{known}. {advice}")


class FilterModule:
    """What Ansible asks for."""

    def filters(self) -> dict[str, Callable[..., str]]:
        """The filters by name."""
        return {"rail_address": rail_address}
