# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads what a host has of guests and for guests. The only reader of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Union

from ..core.host import Host
from ..core.once import once
from ..path import facts
from ..pci.address import Address
from ..pci.machine import Machine
from ..pci.tree import Tree
from . import complaints, libvirt, resources
from .libvirt import Thing
from .owned_xml import parse_xml
from .placed import HostNode, Placed
from .wanted import Desired

_WIDTH = re.compile(r"^address sizes\s*:\s*(\d+) bits physical", re.MULTILINE)
_NET = "/sys/class/net"


@dataclass(frozen=True)
class Current:
    """A host with its guests. ``without`` says why there is no libvirt; ``live`` is False for a captured tree.

    ``present`` are all CPUs that the kernel found, and ``all_online`` tells that the host has none beside those of its nodes.
    """

    machine: Machine = Machine(Tree())
    nodes: tuple[HostNode, ...] = ()
    domains: Mapping[str, Thing] = field(default_factory=dict)
    networks: Mapping[str, Thing] = field(default_factory=dict)
    bridges: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()  # those of guests that are there
    logs: Mapping[str, str] = field(default_factory=dict)  # of guests that run
    address_bits: Union[int, None] = None
    present: tuple[int, ...] = ()
    all_online: bool = False
    without: str = ""
    live: bool = True


def read(host: Host, desired: Desired, records: Mapping[str, Mapping[str, Any]], *, anyway: bool = False) -> Current:
    """The host as guests see it; nothing is read where no guest is asked for and none was made, but ``anyway``."""
    wishes = desired.guests.wishes
    if not (wishes or records or anyway or desired.drain):
        return Current()
    if host.captured:
        return Current(live=False)
    if desired.drain:  # whatever the host's devices are like, its guests can be stopped
        return _domains(host)
    found = once(host, "guests", lambda: _everything(host))
    names = {*records, *(wish.shape.name for wish in wishes)}
    ours = [name for name in names if name in found.domains and found.domains[name].active]
    files = {path for wish in desired.present for path in desired.files_of(wish).all}
    return replace(
        found,
        bridges=_bridges(host, (wish.rest["network"] for wish in wishes)),
        files=frozenset(path for path in files if host.exists(path)),
        logs={name: once(host, f"log of {name}", lambda name=name: _log(host, name)) for name in ours},  # type: ignore[misc]
    )


def _domains(host: Host) -> Current:
    try:
        return Current(domains=libvirt.told(host, libvirt.DOMAINS))
    except libvirt.NotThere as error:
        return Current(without=error.problems[0].fact)


def of_tree(host: Host, kept: Iterable[Placed]) -> Current:
    """A captured tree as placement sees it. No libvirt is asked: guests on record are taken to run, those of others are not known."""
    resources.require_pages(host)
    nodes = resources.given_back(resources.read(host), kept)
    machine = facts.machine_of(host, facts.name_of(host))
    return Current(machine, nodes, present=resources.present(host), all_online=resources.all_online(host), live=False)


def _everything(host: Host) -> Current:
    """What does not depend on what is asked for: it is the same for all who look."""
    try:
        domains, networks = libvirt.told(host, libvirt.DOMAINS), libvirt.told(host, libvirt.NETWORKS)
    except libvirt.NotThere as error:
        return replace(of_tree(host, ()), without=error.problems[0].fact, live=True)
    cpuinfo = host.read_text("/proc/cpuinfo")
    width = _WIDTH.search(cpuinfo) if isinstance(cpuinfo, str) else None
    return Current(
        facts.machine_of(host, facts.name_of(host)),
        resources.read(host),
        domains,
        networks,
        address_bits=int(width[1]) if width else None,
        present=resources.present(host),
        all_online=resources.all_online(host),
    )


def _bridges(host: Host, names: Iterable[Union[str, None]]) -> frozenset[str]:
    return frozenset(name for name in names if name and "/" not in name and host.exists(f"{_NET}/{name}/bridge"))


def _log(host: Host, name: str) -> str:
    text = host.read_text(complaints.log_of(name))
    return text if isinstance(text, str) else ""


def devices_of(xml: str) -> Iterator[Address]:
    """The PCI devices of the host that a domain has by its XML."""
    if not xml:
        return
    for source in parse_xml("libvirt domain", xml).iterfind("devices/*/source"):
        for address in source.iterfind("address"):
            numbers = [address.get(name, "") for name in ("domain", "bus", "slot", "function")]
            if all(numbers[1:]) and address.get("type", "pci") == "pci":
                yield Address(*(int(number or "0", 16) for number in numbers))


def files_of(thing: Thing) -> set[str]:
    """The files that a domain has for disks, now or at its next start."""
    documents = (parse_xml("libvirt domain", xml) for xml in (thing.inactive, thing.live) if xml)
    sources = (source.get("file") for root in documents for source in root.iterfind("devices/disk/source"))
    return {path for path in sources if path}
