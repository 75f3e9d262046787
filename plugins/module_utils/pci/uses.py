# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a PCI function is being used for, and so whether it may be taken from its driver.

Asked only of functions that a plan would take: it looks at mounts, routes and the open files of all processes.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..core.change import Unreadable
from ..core.host import Host
from ..vf.links import Links, uses
from ..vf.reach import network_devices, protected
from . import disks as disks_of
from .address import Address
from .attributes import steps_of
from .tree import Function, Sriov, Tree

DEVICES = "/sys/bus/pci/devices"
NETDEVS = "/sys/class/net"
_ROOT_BUS = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


class Kind(enum.Enum):
    """What taking the function would mean."""

    HOST = "the host cannot do without it"
    GUEST = "a guest or another program holds it through vfio"
    LINK = "a network link goes down"
    BUSY = "it can be taken by a boot only"


@dataclass(frozen=True)
class Use:
    """One use, in words."""

    kind: Kind
    what: str


Uses = Mapping[Address, tuple[Use, ...]]


@dataclass(frozen=True)
class _Network:
    """The network devices of a host with those below each function, and those that the host is reached through."""

    links: Links = field(default_factory=dict)
    below: Mapping[Address, tuple[str, ...]] = field(default_factory=dict)
    vital: Mapping[str, str] = field(default_factory=dict)


def read(host: Host, tree: Tree, functions: Iterable[Function]) -> dict[Address, tuple[Use, ...]]:
    """The uses of these functions."""
    asked = tuple(functions)
    if not asked:
        return {}
    below = {one.address: (one, *_below(host, tree, one)) for one in asked}
    involved = {other.address: other for group in below.values() for other in group}
    disks = disks_of.read(host, [name for one in involved.values() for name in one.disks])
    network = _network(host, involved)
    held = host.held("/dev/")
    own = {
        address: (*_of_disks(one, disks), *_of_network(one, network), *_of_vfs(one), *_of_files(host, one, held))
        for address, one in involved.items()
    }
    return {address: tuple(use for other in group for use in own[other.address]) for address, group in below.items()}


def _below(host: Host, tree: Tree, function: Function) -> Iterator[Function]:
    """The functions behind one that makes root buses of its own (Intel VMD)."""
    names = host.names(f"{DEVICES}/{function.address}")
    buses = {name for name in names if _ROOT_BUS.fullmatch(name)} if isinstance(names, tuple) else set()
    if buses:
        yield from (one for one in tree if one.root_bus in buses)


def _of_disks(function: Function, disks: disks_of.Disks) -> Iterator[Use]:
    if "disks" in function.unread:
        yield Use(Kind.HOST, f"its disks cannot be read: {function.unread['disks']}")
    for what in disks.of(function.disks):
        yield Use(Kind.HOST, what)


def _of_network(function: Function, network: _Network) -> Iterator[Use]:
    if "netdevs" in function.unread:
        yield Use(Kind.HOST, f"its network devices cannot be read: {function.unread['netdevs']}")
    for name in network.below.get(function.address, ()):
        if name in network.vital:
            yield Use(Kind.HOST, f"{name}: {network.vital[name]}")
        else:
            for what in uses(network.links, name):
                yield Use(Kind.LINK, what)


def _network(host: Host, functions: Iterable[Address]) -> _Network:
    """What the functions carry of the network, down to a NIC at a USB controller."""
    below: dict[Address, tuple[str, ...]] = {}
    names = host.names(NETDEVS)
    for name in names if isinstance(names, tuple) else ():
        target = host.link(f"{NETDEVS}/{name}")
        steps = set(steps_of(target)) if isinstance(target, str) else set()
        for address in functions:
            if str(address) in steps:
                below[address] = (*below.get(address, ()), name)
    if not below:
        return _Network()
    links = network_devices(host)
    return _Network(links, below, protected(host, links))


def _of_vfs(function: Function) -> Iterator[Use]:
    """A PF's driver takes its VFs with it when it goes."""
    if isinstance(function.sriov, Unreadable):
        yield Use(Kind.HOST, f"its VFs cannot be read: {function.sriov.cause}")
    elif isinstance(function.sriov, Sriov) and function.sriov.enabled:
        yield Use(Kind.HOST, f"it has {function.sriov.enabled} VFs, which would go with its driver")


def _of_files(host: Host, function: Function, held: Mapping[str, tuple[int, ...]] | Unreadable) -> Iterator[Use]:
    """Device files of the function that a process has open, and the console on its framebuffer."""
    if isinstance(held, Unreadable):
        yield Use(Kind.HOST, f"who uses it cannot be told ({held.cause})")
        return
    for path, processes in sorted(held.items()):
        kind = _kind_of_file(host, function, path)
        if kind is not None:
            yield Use(kind, f"{path} is open in {_named(host, processes)}")
    home = f"{DEVICES}/{function.address}"
    screens = host.names(f"{home}/graphics")
    if isinstance(screens, tuple) and screens:
        yield Use(Kind.BUSY, f"the console may be on its framebuffer {screens[0]}")


def _kind_of_file(host: Host, function: Function, path: str) -> Kind | None:
    """What it means that a device file is open; None: it is not the function's."""
    home, name = f"{DEVICES}/{function.address}", path.rpartition("/")[2]
    if path == f"/dev/vfio/{function.iommu_group}" or host.exists(f"{home}/vfio-dev/{name}"):
        return Kind.GUEST if path.startswith("/dev/vfio/") else None
    if path.startswith("/dev/dri/"):
        return Kind.BUSY if host.exists(f"{home}/drm/{name}") else None
    if path.startswith("/dev/nvidia"):
        # The numbers of these are the driver's own; who has one open may use any of its devices.
        return Kind.BUSY if function.driver in ("nvidia", "nvidia-nvswitch") else None
    if path.startswith("/dev/infiniband/"):
        folders = ("infiniband_verbs", "infiniband_mad")
        return Kind.BUSY if any(host.exists(f"{home}/{folder}/{name}") for folder in folders) else None
    return Kind.HOST if any(re.fullmatch(rf"/dev/{re.escape(disk)}(p?\d+)?", path) for disk in function.disks) else None


def _named(host: Host, processes: Iterable[int]) -> str:
    """Processes as an operator knows them."""
    shown = []
    for number in processes:
        name = host.read_text(f"/proc/{number}/comm")
        shown.append(f"{name.strip() if isinstance(name, str) else 'process'} ({number})")
    return ", ".join(shown)
