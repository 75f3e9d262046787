# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Networks of libvirt that guests are on. None is built over a network device of the host that is in use."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Union

from .core.change import Change, Deferred, Plan
from .core.errors import IntentError, Problem
from .core.host import Host
from .core.owned import Owned
from .core.schema import Schema, right_entries
from .guest import libvirt, things
from .guest.found import devices_of
from .guest.libvirt import Thing
from .guest.networks import ACTIVE, BRIDGE, HOSTDEV, NAT, NETWORKS_FIELD, OVS, Network, networks_of, render
from .guest.owned_xml import parse_xml
from .guest.things import Things, Wanted
from .pci import sysfs
from .pci.address import Address
from .pci.select import matches
from .pci.tree import Tree
from .vf.intent import PORTS_FIELD, Entry, entries_of
from .vf.links import Links
from .vf.reach import network_devices, protected

# The ports tell which VFs are somebody else's to set up.
SCHEMA = Schema("libvirt_network", "guest_networks", (NETWORKS_FIELD, PORTS_FIELD))
_SECTIONS = ("ip", "mtu", "vlan", "virtualport")
# What libvirt sets itself on a VF that it gives to a guest out of a pool, and gives back after it (src/hypervisor/virhostdev.c).
_OF_POOLS = ("mac", "vlan")
# What ip calls a bridge of each kind.
_KINDS = {BRIDGE: "bridge", OVS: "openvswitch"}


@dataclass(frozen=True)
class Desired:
    """The networks that the inventory names, and the ports whose VFs ``sriov`` sets up."""

    networks: tuple[Network, ...] = ()
    ports: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class Current:
    """Networks, domains and network devices of a host; ``protected`` are those that it is reached through, with why.

    ``ports`` is the entry of ``sriov_ports`` by the network device that it selects, and ``vfs`` are those of each PF, likewise by
    its network device; both only where a pool of VFs is asked for.
    """

    networks: Mapping[str, Thing] = field(default_factory=dict)
    domains: Mapping[str, Thing] = field(default_factory=dict)
    links: Links = field(default_factory=dict)
    protected: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[str, Entry] = field(default_factory=dict)
    vfs: Mapping[str, frozenset[Address]] = field(default_factory=dict)
    without: str = ""
    live: bool = True


def parse(params: Mapping[str, Any]) -> Desired:
    """Wanted networks from options; IntentError with every mistake."""
    problems = SCHEMA.parse_all(params)[1]
    given = params.get(PORTS_FIELD.name)
    networks: tuple[Network, ...] = ()
    ports: tuple[Entry, ...] = ()
    try:
        networks = networks_of(right_entries(NETWORKS_FIELD, params))
    except IntentError as error:
        problems += error.problems
    try:
        ports = entries_of(given if isinstance(given, (list, tuple)) else [])
    except IntentError as error:
        problems += error.problems
    if problems:
        raise IntentError(dict.fromkeys(problems))
    return Desired(networks, ports)


def read(host: Host, desired: Desired) -> Current:
    """Nothing is read where no network is asked for and none was made."""
    if not desired.networks and not Owned.load(host).of(SCHEMA.name):
        return Current()
    if host.captured:
        return Current(live=False)
    links = network_devices(host)
    current = Current({}, {}, links, protected(host, links))
    if any(one.mode == HOSTDEV for one in desired.networks):
        tree = sysfs.read(host)
        current = replace(current, ports=_selected(tree, desired.ports), vfs=_vfs(tree))
    try:
        networks, domains = libvirt.told(host, libvirt.NETWORKS), libvirt.told(host, libvirt.DOMAINS)
    except libvirt.NotThere as error:
        return replace(current, without=error.problems[0].fact)
    return replace(current, networks=networks, domains=domains)


def _selected(tree: Tree, ports: Sequence[Entry]) -> dict[str, Entry]:
    """The entry by the name of each network device of the ports that it selects."""
    return {device.name: port for port in ports for one in matches(port.selector, tree) for device in one.netdevs}


def _vfs(tree: Tree) -> dict[str, frozenset[Address]]:
    """The VFs by the name of each network device of their PF."""
    return {
        device.name: frozenset(vf.address for vf in tree.vfs(one))
        for one in tree
        if one.is_pf
        for device in one.netdevs
    }


def plan(desired: Desired, current: Current, owned: Mapping[str, Any]) -> Plan:
    """The changes of all networks."""
    if not desired.networks and not owned:
        return Plan()
    if not current.live:
        why = "networks are told by the running libvirt only; this is a captured tree"
        return Plan(deferred=(Deferred(SCHEMA.name, "the running host", why),))
    active = [one for one in desired.networks if one.state == ACTIVE]
    refused = {one.name: list(_problems(one, current, owned)) for one in active}
    problems = [problem for found in refused.values() for problem in found]
    if current.without:
        # What speaks against a network is told before anything is installed for it.
        return Plan(deferred=(Deferred(SCHEMA.name, "kvm", current.without),), refused=tuple(problems))
    every = Things(SCHEMA.name, "networks", current.networks, owned, users_of(current.domains), _SECTIONS)
    wanted = [Wanted(one.path, one.name, render(one), {}) for one in active]
    return every.plan([one for one in wanted if not refused[one.name]], problems, kept=set(refused))


def apply(change: Change, host: Host) -> None:
    """Make one change of a network."""
    if change.step is not None:
        things.carry_out(change.step, host)


def users_of(domains: Mapping[str, Thing]) -> dict[str, list[str]]:
    """The running guests by the network that they are on.

    What runs tells the VF that a guest has of a pool, and no pool any more (libvirt's virDomainNetDefFormat): its definition does.
    """
    found: dict[str, list[str]] = {}
    for name, thing in sorted(domains.items()):
        for network in sorted(_networks_of(thing)) if thing.live else ():
            found.setdefault(network, []).append(name)
    return found


def _networks_of(thing: Thing) -> set[str]:
    documents = (parse_xml(thing.name, xml) for xml in (thing.live, thing.inactive) if xml)
    sources = (one for root in documents for one in root.iterfind("devices/interface/source[@network]"))
    return {source.get("network", "") for source in sources}


def _problems(one: Network, current: Current, owned: Mapping[str, Any]) -> Iterator[Problem]:
    """What of the host speaks against a network."""
    if one.mode in _KINDS:
        link = current.links.get(one.bridge)
        if link is None and current.without:
            return  # a boot or a driver of this run may still bring it
        if link is None or link.kind != _KINDS[one.mode]:
            found = "no such device" if link is None else link.kind or "a device with hardware of its own"
            advice = "Have who manages the host's network make it: it is not built over a device that may be in use."
            fact = f"{one.bridge} is no bridge of this kind"
            yield Problem(f"{one.path}.bridge", fact, advice, found, _KINDS[one.mode])
    elif one.mode == HOSTDEV:
        if one.pf not in current.links and current.without:
            return
        if one.pf not in current.links:
            yield Problem(f"{one.path}.pf", f"{one.pf} is not on this host", "Name the network device of a PF.")
        elif one.pf in current.protected:
            advice = "Take another PF, or move the route or the connection first."
            yield Problem(f"{one.path}.pf", f"{one.pf} must not be touched: {current.protected[one.pf]}", advice)
        else:
            yield from _of_pool(one, current.ports.get(one.pf))
            yield from _held(one, current)
    elif one.mode == NAT:
        yield from _of_own_bridge(one, current, owned)


def _of_pool(one: Network, port: Union[Entry, None]) -> Iterator[Problem]:
    """Two owners of the same values would undo each other's work."""
    set_ = sorted({name for attributes in port.attributes for name in attributes} & {*_OF_POOLS}) if port else []
    if port is not None and set_:
        fact = f"{one.pf} is a port of {port.path}, which sets {' and '.join(set_)} of its VFs; libvirt sets them of a VF in a pool"
        advice = f"Give {port.path}.vf_defaults mac: kept and no vlan, also in its vf, or take a port that no guest's rail is on."
        yield Problem(f"{one.path}.pf", fact, advice)


def _held(one: Network, current: Current) -> Iterator[Problem]:
    """Libvirt gives out the VFs of a pool without a look at which of them a guest has by its address."""
    vfs = current.vfs.get(one.pf, frozenset())
    for name, thing in sorted(current.domains.items()):
        taken = {*devices_of(thing.inactive), *devices_of(thing.live)} & vfs
        if taken and one.name not in _networks_of(thing):
            fact = f"VFs of {one.pf} are guest {name}'s own"
            advice = "Take another PF, or remove that guest first."
            yield Problem(f"{one.path}.pf", fact, advice, found=", ".join(map(str, sorted(taken))))


def _of_own_bridge(one: Network, current: Current, owned: Mapping[str, Any]) -> Iterator[Problem]:
    ours = f"{SCHEMA.name}[{one.name}]" in owned
    there = current.networks.get(one.name)
    known = ours and (bool(current.without) or (there is not None and there.active))
    if one.device in current.links and not known:
        advice = "Name another bridge for the network."
        yield Problem(f"{one.path}.bridge", f"{one.device} is a network device of this host already", advice)
    network = ipaddress.ip_interface(one.address).network
    for link in current.links.values():
        for text in link.addresses if link.name != one.device else ():
            if ipaddress.ip_address(text.partition("/")[0].partition("%")[0]) in network:
                advice = "Take a network that the host is not in."
                fact = f"{network} has the address {text} of {link.name} in it, which would not be reached any more"
                yield Problem(f"{one.path}.address", fact, advice)
