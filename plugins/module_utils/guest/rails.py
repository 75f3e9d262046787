# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rails of a guest, which are its VFs as network interfaces: their table, and what speaks against them. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from ..core.errors import IntentError, Problem
from ..core.schema import Field
from .addresses import Interface, address_of, interface_of

MANAGEMENT = "mgmt"  # what a guest's network settings call the interface on its ``network``
# Linux, include/uapi/linux/if_ether.h: of any Ethernet device; each has a maximum of its own.
LEAST_MTU, MOST_MTU = 68, 65535
LEAST_MTU_V6 = 1280  # RFC 8200, 5: Linux has no IPv6 on an interface with less
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def _check_name(path: str, text: str) -> str:
    if _NAME.fullmatch(text) is None or text.lower() == MANAGEMENT:
        wanted = f"at most 63 letters, digits, dots, dashes and underscores, and not {MANAGEMENT}"
        raise IntentError([Problem(path, "is no name for a rail", "Rename it.", found=repr(text), wanted=wanted)])
    return text


def _check_address(path: str, text: str) -> str:
    """An address with its prefix, as ``ipaddress`` writes it."""
    try:
        return str(_interface(text))
    except ValueError as error:
        raise IntentError([Problem(path, str(error), "Correct it.", repr(text), "such as 10.0.0.1/24")]) from None


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
            each=_check_address,
        ),
        Field(
            "gateway",
            "str",
            (
                "Address of the default gateway of the guest, in the network of one of the addresses.",
                "All rails of a guest have one for IPv4 and one for IPv6 at most.",
            ),
            check=_check_gateway,
        ),
        Field(
            "mtu",
            "int",
            ("MTU, as O(guest_shapes[].mtu), which it is where it is omitted.",),
            minimum=LEAST_MTU,
            maximum=MOST_MTU,
        ),
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


# What speaks against them ----------------------------------------------------------------
# Rails have only the options that are right by themselves, and None for a wrong address.


def too_many(path: str, values: Mapping[str, Any]) -> Iterator[Problem]:
    """Rails for which there is no VF."""
    count, vfs = len(values["rails"]), values["gpus"] * values["vfs_per_gpu"]
    if count > vfs:
        advice = "Take rails out, or give the guest more GPUs or vfs_per_gpu."
        yield Problem(f"{path}.rails", "are more than the guest has VFs", advice, str(count), f"at most {vfs}")


def problems_of(path: str, values: Mapping[str, Any]) -> Iterator[Problem]:
    """What of one shape's rails cannot be meant."""
    rails = values["rails"]
    if values.get("mtu") is not None and not rails:
        yield Problem(f"{path}.mtu", "is for rails, of which there are none", "Name rails, or leave it out.")
    yield from _names(path, rails)
    yield from _mtus(path, rails, values.get("mtu"))
    yield from _gateways(path, rails)


def _names(path: str, rails: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    seen: set[str] = set()
    for number, rail in enumerate(rails):
        if "name" in rail:
            name = rail["name"] or f"rail{number}"
            if name.lower() in seen:
                fact, advice = "is the name of another rail of the guest", "Rename one; upper and lower case are alike."
                yield Problem(f"{path}.rails[{number}].name", fact, advice, found=repr(name))
            seen.add(name.lower())


def _mtus(path: str, rails: Sequence[Mapping[str, Any]], of_all: Union[int, None]) -> Iterator[Problem]:
    for number, rail in enumerate(rails):
        own = rail.get("mtu")
        mtu = of_all if own is None and "mtu" in rail else own
        if mtu is not None and mtu < LEAST_MTU_V6 and any(":" in text for text in _addresses(rail).values()):
            where = f"{path}.mtu" if own is None else f"{path}.rails[{number}].mtu"
            advice = "Give a larger number, or no IPv6 addresses."
            yield Problem(where, "is too small for IPv6", advice, str(mtu), f"at least {LEAST_MTU_V6}")


def _gateways(path: str, rails: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    """Gateways that no packet could take. The guest's settings make each a default route, of which one of a kind has effect."""
    own = {text.partition("/")[0] for rail in rails for text in _addresses(rail).values()}
    first: dict[int, str] = {}
    for number, rail in enumerate(rails):
        here, gateway = f"{path}.rails[{number}].gateway", rail.get("gateway")
        if not gateway:
            continue
        version = ipaddress.ip_address(gateway).version
        if first.setdefault(version, here) != here:
            advice = "Leave one of them out; networks that are reached by a rail need no gateway."
            fact = f"is a second default gateway for IPv{version}, beside {first[version]}"
            yield Problem(here, fact, advice, found=gateway)
        if gateway in own:
            yield Problem(here, "is an address of the guest itself", "Name the router.", found=gateway)
        elif "addresses" in rail and None not in rail["addresses"]:
            yield from _unreached(here, gateway, rail["addresses"])


def _unreached(here: str, gateway: str, addresses: Sequence[str]) -> Iterator[Problem]:
    """A gateway that is no router in the network of any address."""
    networks = [ipaddress.ip_interface(text).network for text in addresses]
    near = [one for one in networks if ipaddress.ip_address(gateway) in one]
    said = ["is in the network of none of the rail's addresses"] if not near else []
    for network in near:
        try:
            _interface(f"{gateway}/{network.prefixlen}")
            return
        except ValueError as error:
            said.append(str(error))
    yield Problem(here, said[0], "Correct the gateway or the addresses.", gateway, ", ".join(addresses))


def twins(shapes: Mapping[str, Mapping[str, Any]]) -> Iterator[Problem]:
    """Addresses that two rails of this host's guests have; ``shapes`` are those with rails, by their path."""
    seen: dict[str, str] = {}
    for path, values in shapes.items():
        for number, rail in enumerate(values["rails"]):
            for index, text in _addresses(rail).items():
                here, address = f"{path}.rails[{number}].addresses[{index}]", text.partition("/")[0]
                if address in seen:
                    yield Problem(here, f"is that of {seen[address]} too", "Give each rail its own.", found=text)
                seen.setdefault(address, here)


def _addresses(rail: Mapping[str, Any]) -> dict[int, str]:
    """The right addresses of a rail by their number."""
    return {index: text for index, text in enumerate(rail.get("addresses", ())) if text is not None}
