# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Networks of libvirt that guests are on. None is built over a network device of the host that is in use."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .core.change import Change, Deferred, Plan
from .core.errors import IntentError, Problem
from .core.host import Host
from .core.owned import Owned
from .core.schema import Schema, right_entries
from .guest import libvirt, things
from .guest.libvirt import Thing
from .guest.networks import ACTIVE, BRIDGE, HOSTDEV, NAT, NETWORKS_FIELD, OVS, Network, networks_of, render
from .guest.owned_xml import parse_xml
from .guest.things import Things, Wanted
from .vf.links import Links
from .vf.reach import network_devices, protected

SCHEMA = Schema("libvirt_network", "guest_networks", (NETWORKS_FIELD,))
_SECTIONS = ("ip", "mtu", "vlan", "virtualport")
# What ip calls a bridge of each kind.
_KINDS = {BRIDGE: "bridge", OVS: "openvswitch"}


@dataclass(frozen=True)
class Desired:
    """The networks that the inventory names."""

    networks: tuple[Network, ...] = ()


@dataclass(frozen=True)
class Current:
    """Networks, domains and network devices of a host; ``protected`` are those that it is reached through, with why."""

    networks: Mapping[str, Thing] = field(default_factory=dict)
    domains: Mapping[str, Thing] = field(default_factory=dict)
    links: Links = field(default_factory=dict)
    protected: Mapping[str, str] = field(default_factory=dict)
    without: str = ""
    live: bool = True


def parse(params: Mapping[str, Any]) -> Desired:
    """Wanted networks from options; IntentError with every mistake."""
    problems = SCHEMA.parse_all(params)[1]
    try:
        networks = networks_of(right_entries(NETWORKS_FIELD, params))
    except IntentError as error:
        problems += error.problems
    if problems:
        raise IntentError(problems)
    return Desired(networks)


def read(host: Host, desired: Desired) -> Current:
    """Nothing is read where no network is asked for and none was made."""
    if not desired.networks and not Owned.load(host).of(SCHEMA.name):
        return Current()
    if host.captured:
        return Current(live=False)
    try:
        networks, domains = libvirt.told(host, libvirt.NETWORKS), libvirt.told(host, libvirt.DOMAINS)
    except libvirt.NotThere as error:
        return Current(without=error.problems[0].fact)
    links = network_devices(host)
    return Current(networks, domains, links, protected(host, links))


def plan(desired: Desired, current: Current, owned: Mapping[str, Any]) -> Plan:
    """The changes of all networks."""
    if not desired.networks and not owned:
        return Plan()
    if not current.live or current.without:
        waits = "the running host" if not current.live else "kvm"
        why = current.without or "networks are told by the running libvirt only; this is a captured tree"
        return Plan(deferred=(Deferred(SCHEMA.name, waits, why),))
    active = [one for one in desired.networks if one.state == ACTIVE]
    refused = {one.name: list(_problems(one, current, owned)) for one in active}
    every = Things(SCHEMA.name, "networks", current.networks, owned, users_of(current.domains), _SECTIONS)
    wanted = [Wanted(one.path, one.name, render(one), {}) for one in active]
    problems = [problem for found in refused.values() for problem in found]
    return every.plan([one for one in wanted if not refused[one.name]], problems, kept=set(refused))


def apply(change: Change, host: Host) -> None:
    """Make one change of a network."""
    if change.step is not None:
        things.carry_out(change.step, host)


def users_of(domains: Mapping[str, Thing]) -> dict[str, list[str]]:
    """The running guests by the network that they are on."""
    found: dict[str, list[str]] = {}
    for name, thing in sorted(domains.items()):
        if thing.live:
            for source in parse_xml(name, thing.live).iterfind("devices/interface/source[@network]"):
                found.setdefault(source.get("network", ""), []).append(name)
    return found


def _problems(one: Network, current: Current, owned: Mapping[str, Any]) -> Iterator[Problem]:
    """What of the host speaks against a network."""
    if one.mode in _KINDS:
        link = current.links.get(one.bridge)
        if link is None or link.kind != _KINDS[one.mode]:
            found = "no such device" if link is None else link.kind or "a device with hardware of its own"
            advice = "Have who manages the host's network make it: it is not built over a device that may be in use."
            fact = f"{one.bridge} is no bridge of this kind"
            yield Problem(f"{one.path}.bridge", fact, advice, found, _KINDS[one.mode])
    elif one.mode == HOSTDEV:
        if one.pf not in current.links:
            yield Problem(f"{one.path}.pf", f"{one.pf} is not on this host", "Name the network device of a PF.")
        elif one.pf in current.protected:
            advice = "Take another PF, or move the route or the connection first."
            yield Problem(f"{one.path}.pf", f"{one.pf} must not be touched: {current.protected[one.pf]}", advice)
    elif one.mode == NAT:
        yield from _of_own_bridge(one, current, owned)


def _of_own_bridge(one: Network, current: Current, owned: Mapping[str, Any]) -> Iterator[Problem]:
    ours = f"{SCHEMA.name}[{one.name}]" in owned
    there = current.networks.get(one.name)
    if one.device in current.links and not (ours and there is not None and there.active):
        advice = "Name another bridge for the network."
        yield Problem(f"{one.path}.bridge", f"{one.device} is a network device of this host already", advice)
    network = ipaddress.ip_interface(one.address).network
    for link in current.links.values():
        for text in link.addresses if link.name != one.device else ():
            if ipaddress.ip_address(text.partition("/")[0].partition("%")[0]) in network:
                advice = "Take a network that the host is not in."
                fact = f"{network} has the address {text} of {link.name} in it, which would not be reached any more"
                yield Problem(f"{one.path}.address", fact, advice)
