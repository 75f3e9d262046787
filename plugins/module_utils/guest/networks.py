# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The option ``guest_networks``: its table, what it asks for, and each network as libvirt is to have it. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from ..core.errors import IntentError, Problem
from ..core.schema import Field
from .addresses import Interface, address_of, ends_of, interface_of, special_in
from .rails import LEAST_MTU, LEAST_MTU_V6, MOST_MTU
from .xml_output import Tag, tag, text_of

NAT, BRIDGE, HOSTDEV, OVS = "nat", "bridge", "hostdev", "ovs"
ACTIVE, GONE = "active", "absent"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_LAST_VLAN = 4094  # 802.1Q: 4095 is reserved
_BLOCK = 16  # bits in which the ends of a range may differ (libvirt src/util/virsocketaddr.c, virSocketAddrGetRange)
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
        _require_room(interface)
    except ValueError as error:
        wanted = "such as 192.168.150.1/24"
        raise IntentError([Problem(path, str(error), "Correct it.", repr(text), wanted)]) from None
    return str(interface)


def _require_room(interface: Interface) -> None:
    """ValueError with why guests could not be in the host's network of this address."""
    special = special_in(interface.network)
    if special:
        raise ValueError(f"is of a network that overlaps {special}")
    if interface.network.num_addresses < 4:
        raise ValueError("leaves no room for guests")
    if interface.ip in ends_of(interface.network):
        raise ValueError(f"is {ends_of(interface.network)[interface.ip]}")


def _check_dhcp(path: str, given: list[str]) -> list[str]:
    """The first and the last address of a range as libvirt writes them, or nothing."""
    problems, found = [], []
    if len(given) not in (0, 2):
        advice = "Give the first and the last address that guests may get."
        all_ = ", ".join(map(repr, given))
        problems.append(Problem(path, "is no pair of addresses", advice, all_, "two addresses"))
    for index, text in enumerate(given):
        try:
            found.append(str(address_of(text)))
        except ValueError as error:
            problems.append(Problem(f"{path}[{index}]", str(error), "Correct it.", found=repr(text)))
    if problems:
        raise IntentError(problems)
    return found


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
        Field(
            "address",
            "str",
            (
                "Address of the host in a V(nat) network, with its prefix; no loopback, link-local, multicast or reserved one.",
            ),
            check=_check_address,
        ),
        Field(
            "dhcp",
            "list",
            (
                "First and last address that guests get by DHCP, without those of the network itself and of broadcasts. Omitted: none.",
                "They have to be in one block of 65536 addresses; libvirt refuses any other range.",
            ),
            elements="str",
            check=_check_dhcp,
        ),
        Field(
            "mtu",
            "int",
            (f"MTU of a V(nat) network, from V({LEAST_MTU}) to V({MOST_MTU}); at least V({LEAST_MTU_V6}) with IPv6.",),
            minimum=LEAST_MTU,
            maximum=MOST_MTU,
        ),
        Field("pf", "str", ("Network device of the PF of a V(hostdev) network.",), check=_check_device),
        Field(
            "vlan",
            "int",
            (f"VLAN of an V(ovs) network, from V(1) to V({_LAST_VLAN}).",),
            minimum=1,
            maximum=_LAST_VLAN,
        ),
        Field(
            "state",
            "str",
            ("Whether it is there. A network that a guest of C(guest_shapes) is on cannot be V(absent).",),
            default=ACTIVE,
            choices=(ACTIVE, GONE),
        ),
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
        problems += [*_of_mode(path, values), *_of_dhcp(path, one), *_of_mtu(path, one)]
        problems += told_once(problem for twin in found for problem in _of_twin(path, one, twin))
        found.append(one)
    if problems:
        raise IntentError(problems)
    return tuple(found)


def told_once(problems: Iterable[Problem]) -> list[Problem]:
    """The first problem of each option: what is like two others is told once."""
    first: dict[str, Problem] = {}
    for one in problems:
        first.setdefault(one.path, one)
    return list(first.values())


def unwanted(networks: Sequence[Mapping[str, Any]], shapes: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    """Guests on networks that are to go; each entry has only the options that are right by themselves."""
    gone = {one["name"]: index for index, one in enumerate(networks) if "name" in one and one.get("state") == GONE}
    for index, shape in enumerate(shapes):
        name = shape.get("network")
        if name in gone and shape.get("state", GONE) != GONE:
            fact = f"is a network that guest_networks[{gone[name]}] has absent"
            advice = "Take state: absent out there, or put the guest on another network."
            yield Problem(f"guest_shapes[{index}].network", fact, advice, found=repr(name))


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
    advice, found = "Give the first and the last address that guests may get.", " to ".join(one.dhcp)
    return [Problem(f"{path}.dhcp", fact, advice, found=found) for fact in _faults_of_range(one)]


def _faults_of_range(one: Network) -> Iterator[str]:
    """What libvirt refuses of a range, and what would leave guests without an address."""
    own = ipaddress.ip_interface(one.address)
    first, last = map(ipaddress.ip_address, one.dhcp)
    if first not in own.network or last not in own.network:
        yield f"is no range inside {own.network}"
        return
    if int(first) > int(last):
        yield "ends before it begins"
        return
    if int(first) >> _BLOCK != int(last) >> _BLOCK:
        yield f"spans more than one block of {1 << _BLOCK} addresses, which libvirt refuses"
    for address, what in ends_of(own.network).items():
        if address in (first, last):
            yield f"has {address} in it, which is {what}"
    if first == last == own.ip:  # among others it is left out by dnsmasq
        yield "has no address in it but that of the host"


def _of_mtu(path: str, one: Network) -> list[Problem]:
    is_v6 = one.address and ipaddress.ip_interface(one.address).version == 6
    if one.mtu is None or one.mtu >= LEAST_MTU_V6 or not is_v6:
        return []
    wanted, advice = f"at least {LEAST_MTU_V6}", "Give a larger number, or an IPv4 address."
    return [Problem(f"{path}.mtu", "is too small for IPv6", advice, str(one.mtu), wanted)]


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
