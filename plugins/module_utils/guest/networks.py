# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The option ``guest_networks``: its table, what it asks for, and each network as libvirt is to have it. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from ..core.errors import IntentError, Problem
from ..core.schema import Field
from .addresses import address_of, interface_of
from .xml_output import Tag, tag, text_of

NAT, BRIDGE, HOSTDEV, OVS = "nat", "bridge", "hostdev", "ovs"
ACTIVE, GONE = "active", "absent"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_DEVICE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}")  # Linux IFNAMSIZ
# Which options a mode needs, and which it takes besides.
_NEEDS: Mapping[str, tuple[str, ...]] = {NAT: ("address",), BRIDGE: ("bridge",), HOSTDEV: ("pf",), OVS: ("bridge",)}
_TAKES: Mapping[str, tuple[str, ...]] = {NAT: ("bridge", "dhcp", "mtu"), BRIDGE: (), HOSTDEV: (), OVS: ("vlan",)}


def check_name(path: str, text: str) -> str:
    """A name that is also that of a file of libvirt."""
    if _NAME.fullmatch(text):
        return text
    wanted = "at most 63 letters, digits, dots, dashes and underscores"
    raise IntentError([Problem(path, "is no name", "Correct it.", found=repr(text), wanted=wanted)])


def _check_device(path: str, text: str) -> str:
    if _DEVICE.fullmatch(text):
        return text
    wanted = "at most 15 characters"
    raise IntentError([Problem(path, "is no name of a network device", "Correct it.", found=repr(text), wanted=wanted)])


def _check_address(path: str, text: str) -> str:
    """The address of the host in the network, with its prefix."""
    try:
        interface = interface_of(text)
    except ValueError as error:
        wanted = "such as 192.168.150.1/24"
        raise IntentError([Problem(path, str(error), "Correct it.", repr(text), wanted)]) from None
    alone = interface.network.num_addresses < 4
    if alone or interface.ip in (interface.network.network_address, interface.network.broadcast_address):
        advice = "Give an address of the host in the network, such as 192.168.150.1/24."
        raise IntentError([Problem(path, "leaves no room for guests", advice, found=repr(text))])
    return str(interface)


def _check_dhcp(path: str, given: list[str]) -> list[str]:
    """The first and the last address of a range, or nothing."""
    problems: list[Problem] = []
    if len(given) not in (0, 2):
        advice = "Give the first and the last address that guests may get."
        found = ", ".join(map(repr, given))
        problems.append(Problem(path, "is no pair of addresses", advice, found, "two addresses"))
    for index, text in enumerate(given):
        try:
            address_of(text)
        except ValueError as error:
            problems.append(Problem(f"{path}[{index}]", str(error), "Correct it.", found=repr(text)))
    if problems:
        raise IntentError(problems)
    return given


NETWORKS_FIELD = Field(
    "guest_networks",
    "list",
    (
        "Networks of libvirt that guests of this host can be on. Those that are left out and were made before are removed.",
        "None is built over a network device that is in use: bridges are there already, made by who manages the host's network.",
    ),
    default=[],
    elements="dict",
    fields=(
        Field("name", "str", ("Name of the network.",), required=True, check=check_name),
        Field(
            "mode",
            "str",
            (
                "V(nat): a network of its own behind the host; V(bridge): an existing bridge of the kernel; V(ovs): one of Open vSwitch;",
                "V(hostdev): each guest gets any free VF of a PF, which libvirt chooses; no GPU's VF comes from that PF then.",
            ),
            default=NAT,
            choices=(NAT, BRIDGE, HOSTDEV, OVS),
        ),
        Field("bridge", "str", ("Bridge; of V(nat) the one that libvirt makes.",), check=_check_device),
        Field("address", "str", ("Address of the host in a V(nat) network, with its prefix.",), check=_check_address),
        Field(
            "dhcp",
            "list",
            ("First and last address that guests get by DHCP. Omitted: none.",),
            elements="str",
            check=_check_dhcp,
        ),
        Field("mtu", "int", ("MTU of a V(nat) network.",), minimum=68),
        Field("pf", "str", ("Network device of the PF of a V(hostdev) network.",), check=_check_device),
        Field("vlan", "int", ("VLAN of an V(ovs) network.",), minimum=1),
        Field("state", "str", ("Whether it is there.",), default=ACTIVE, choices=(ACTIVE, GONE)),
    ),
)


@dataclass(frozen=True)
class Network:
    """One network as the inventory asks for it. Empty text and None: not told."""

    path: str
    name: str
    mode: str
    bridge: str = ""
    address: str = ""
    dhcp: tuple[str, ...] = ()
    mtu: Union[int, None] = None
    pf: str = ""
    vlan: Union[int, None] = None
    state: str = ACTIVE

    @property
    def device(self) -> str:
        """The bridge that guests hang on; that of a network with an own one is named after it."""
        return self.bridge or (f"vg-{self.name}"[:15] if self.mode == NAT else "")


def networks_of(given: Sequence[Mapping[str, Any]]) -> tuple[Network, ...]:
    """What entries ask for; IntentError with all contradictions at once. Options that are wrong by themselves are left out."""
    problems: list[Problem] = []
    found: list[Network] = []
    for index, values in enumerate(given):
        path = f"guest_networks[{index}]"
        if not values.keys() >= {"name", "mode", "state"}:
            continue
        one = Network(path, **_told(values))
        problems += _of_mode(path, values) + _of_dhcp(path, one)
        for twin in found:
            problems += _of_twin(path, one, twin)
        found.append(one)
    if problems:
        raise IntentError(problems)
    return tuple(found)


def _told(values: Mapping[str, Any]) -> dict[str, Any]:
    told = {name: value for name, value in values.items() if value is not None}
    return {**told, "dhcp": tuple(told.get("dhcp", ()))}


def _of_mode(path: str, values: Mapping[str, Any]) -> list[Problem]:
    mode, problems = values["mode"], []
    if values["state"] == GONE:
        return []
    for name in ("bridge", "address", "dhcp", "mtu", "pf", "vlan"):
        if name not in values:  # what is wrong with it is said already
            continue
        given = values[name] not in (None, [], ())
        if name in _NEEDS[mode] and not given:
            problems.append(Problem(f"{path}.{name}", "is missing", f"Set it: mode: {mode} needs it."))
        elif given and name not in (*_NEEDS[mode], *_TAKES[mode]):
            problems.append(Problem(f"{path}.{name}", f"means nothing with mode: {mode}", "Leave it out."))
    return problems


def _of_dhcp(path: str, one: Network) -> list[Problem]:
    if not one.dhcp or not one.address:
        return []
    here = f"{path}.dhcp"
    network = ipaddress.ip_interface(one.address).network
    first, last = map(ipaddress.ip_address, one.dhcp)
    if first not in network or last not in network or int(first) > int(last):
        advice = "Give the first and the last address that guests may get."
        return [Problem(here, f"is no range inside {network}", advice, found=f"{first} to {last}")]
    return []


def _of_twin(path: str, one: Network, twin: Network) -> list[Problem]:
    """What two networks of a host must not both have."""
    if twin.name == one.name:
        return [Problem(f"{path}.name", f"is that of {twin.path} too", "Give each its own.", found=repr(one.name))]
    problems = []
    if twin.device and twin.device == one.device and NAT in (twin.mode, one.mode):
        fact = f"is that of {twin.path} ({twin.name}) too"
        problems.append(Problem(f"{path}.bridge", fact, "Give each its own.", found=repr(one.device)))
    mine, other = _subnet(one), _subnet(twin)
    if mine is not None and other is not None and mine.version == other.version and mine.overlaps(other):
        fact = f"is in a subnet that overlaps that of {twin.path} ({twin.name})"
        advice = "Give each network a subnet of its own."
        problems.append(Problem(f"{path}.address", fact, advice, f"{mine} and {other}"))
    return problems


def _subnet(one: Network) -> Union[ipaddress.IPv4Network, ipaddress.IPv6Network, None]:
    """What the host routes into a network of its own; None: nothing."""
    routed = one.mode == NAT and one.state == ACTIVE and one.address
    return ipaddress.ip_interface(one.address).network if routed else None


def render(one: Network) -> str:
    """The network's XML."""
    name = tag("name", None, one.name)
    if one.mode == NAT:
        return text_of(tag("network", None, name, tag("forward", {"mode": "nat"}), *_own_bridge(one), _addresses(one)))
    if one.mode == HOSTDEV:
        forward = tag("forward", {"mode": "hostdev", "managed": "no"}, tag("pf", {"dev": one.pf}))
        return text_of(tag("network", None, name, forward))
    bridge = tag("bridge", {"name": one.bridge})
    inside: list[Union[Tag, None]] = [name, tag("forward", {"mode": "bridge"}), bridge]
    if one.mode == OVS:
        inside.append(tag("virtualport", {"type": "openvswitch"}))
        inside.append(None if one.vlan is None else tag("vlan", None, tag("tag", {"id": one.vlan})))
    return text_of(tag("network", None, *inside))


def _own_bridge(one: Network) -> tuple[Union[Tag, None], ...]:
    bridge = tag("bridge", {"name": one.device, "stp": "on", "delay": 0})
    return bridge, None if one.mtu is None else tag("mtu", {"size": one.mtu})


def _addresses(one: Network) -> Tag:
    interface = ipaddress.ip_interface(one.address)
    dhcp = tag("dhcp", None, tag("range", dict(zip(("start", "end"), one.dhcp)))) if one.dhcp else None
    family = {"family": "ipv6"} if interface.version == 6 else {}
    return tag("ip", {**family, "address": str(interface.ip), "prefix": interface.network.prefixlen}, dhcp)
