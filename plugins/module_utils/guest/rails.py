# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rails of a guest, which are its VFs as network interfaces: their table, and what speaks against them. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Union

from ..core.errors import IntentError, Problem
from ..core.schema import Field
from .addresses import Interface, address_of, interface_of

MANAGEMENT = "mgmt"  # what a guest's network settings call the interface on its ``network``
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def _check_name(path: str, text: str) -> str:
    if _NAME.fullmatch(text) is None or text.lower() == MANAGEMENT:
        wanted = f"at most 63 letters, digits, dots, dashes and underscores, and not {MANAGEMENT}"
        raise IntentError([Problem(path, "is no name for a rail", "Rename it.", found=repr(text), wanted=wanted)])
    return text


def _check_addresses(path: str, given: list[str]) -> list[str]:
    """Addresses with their prefix, as ``ipaddress`` writes them; every one that is none at once."""
    problems, found = [], []
    for index, text in enumerate(given):
        try:
            found.append(str(_interface(text)))
        except ValueError as error:
            problems.append(Problem(f"{path}[{index}]", str(error), "Correct it.", repr(text), "such as 10.0.0.1/24"))
    if problems:
        raise IntentError(problems)
    return found


def _interface(text: str) -> Interface:
    """The address of one interface; ValueError for what no interface can have."""
    found = interface_of(text)
    if found.ip.is_multicast or found.ip.is_unspecified or found.ip.is_loopback:
        raise ValueError("is an address that no interface of a guest can have")
    small = found.network.num_addresses < 4  # two addresses, as on a link between two, are both of use (RFC 3021)
    if found.version == 4 and not small and found.ip in (found.network[0], found.network[-1]):
        raise ValueError(f"is the address of the network {found.network} or of all in it")
    return found


def _check_gateway(path: str, text: str) -> str:
    try:
        return str(address_of(text))
    except ValueError as error:
        raise IntentError([Problem(path, str(error), "Correct it.", repr(text), "such as 10.0.0.254")]) from None


RAILS_FIELD = Field(
    "rails",
    "list",
    (
        "Settings of its VFs as network interfaces, in the order of the VFs (C(vf0), C(vf1) and so on of the domain, which is that of",
        "their addresses on the host). VFs beyond the list are left to the guest.",
        "A VF is found by its MAC address in the guest, which has to be one that stays: that of O(sriov_ports), or one set by others.",
    ),
    default=[],
    elements="dict",
    fields=(
        Field(
            "name",
            "str",
            ("Its name in the guest's network settings. Omitted: C(rail) and its number.",),
            check=_check_name,
        ),
        Field(
            "addresses",
            "list",
            ("Addresses with their prefix length.",),
            default=[],
            elements="str",
            check=_check_addresses,
        ),
        Field(
            "gateway",
            "str",
            ("Address of the default gateway, in the network of one of the addresses.",),
            check=_check_gateway,
        ),
        Field("mtu", "int", ("MTU. Omitted: that of O(guest_shapes[].mtu).",), minimum=68),
        Field("dhcp", "bool", ("Whether it asks for an IPv4 address.",), default=False),
    ),
)


@dataclass(frozen=True)
class Rail:
    """What a guest is told of one VF."""

    name: str
    addresses: tuple[str, ...] = ()
    gateway: str = ""
    mtu: Union[int, None] = None
    dhcp: bool = False

    @property
    def asks(self) -> bool:
        """Whether there is anything to be told; an empty entry keeps the place of a VF that is left alone."""
        return bool(self.addresses or self.dhcp or self.mtu is not None)


def rails_of(values: Mapping[str, Any]) -> tuple[Rail, ...]:
    """The rails of a checked shape."""
    return tuple(
        Rail(
            one["name"] or f"rail{number}",
            tuple(one["addresses"]),
            one["gateway"] or "",
            values["mtu"] if one["mtu"] is None else one["mtu"],
            one["dhcp"],
        )
        for number, one in enumerate(values["rails"])
    )


def problems_of(path: str, values: Mapping[str, Any]) -> Iterator[Problem]:
    """What of one checked shape's rails cannot be meant."""
    rails, vfs = rails_of(values), values["gpus"] * values["vfs_per_gpu"]
    if len(rails) > vfs:
        advice = "Take rails out, or give the guest more GPUs or vfs_per_gpu."
        yield Problem(f"{path}.rails", "are more than the guest has VFs", advice, str(len(rails)), f"at most {vfs}")
    if values["mtu"] is not None and not rails:
        yield Problem(f"{path}.mtu", "is for rails, of which there are none", "Name rails, or leave it out.")
    names = [one.name.lower() for one in rails]
    for number, one in enumerate(rails):
        here = f"{path}.rails[{number}]"
        if one.name.lower() in names[:number]:
            advice = "Rename one; upper and lower case are alike."
            yield Problem(f"{here}.name", "is the name of another rail of the guest", advice, found=repr(one.name))
        if one.gateway and not any(_reaches(text, one.gateway) for text in one.addresses):
            advice = "Correct the gateway or the addresses."
            fact = "is in the network of none of the rail's addresses"
            yield Problem(f"{here}.gateway", fact, advice, one.gateway, ", ".join(one.addresses))


def _reaches(address: str, gateway: str) -> bool:
    return ipaddress.ip_address(gateway) in ipaddress.ip_interface(address).network


def twins(shapes: Mapping[str, Mapping[str, Any]]) -> Iterator[Problem]:
    """Addresses that two rails of this host's guests have; ``shapes`` are checked ones by their path."""
    seen: dict[str, str] = {}
    for path, values in shapes.items():
        for number, rail in enumerate(values["rails"]):
            for index, text in enumerate(rail["addresses"]):
                here, address = f"{path}.rails[{number}].addresses[{index}]", text.partition("/")[0]
                if address in seen:
                    yield Problem(here, f"is that of {seen[address]} too", "Give each rail its own.", found=text)
                seen.setdefault(address, here)
