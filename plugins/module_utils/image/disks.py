# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The disk of each guest of a round, and what the guest is told of itself: from the model that its domain is made from. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..core.errors import IntentError, Problem
from ..guest import nccl_xml
from ..guest.model import Device
from ..guest.placed import Part
from ..guest.placing import Modelled
from ..guest.rails import MANAGEMENT, Rail, rails_of
from ..pci.address import Address
from ..pci.select import matches
from ..pci.tree import Function, Sriov, Tree
from ..vf.intent import STABLE
from ..vf.intent import Entry as PortEntry
from ..vf.links import Link, Links
from ..vf.mac import stable_mac
from ..vf.port import netdev_of
from .intent import Desired, Image
from .seed import Interface, Seed

_GIB = 1 << 30
_UNSET = "00:00:00:00:00:00"  # what a driver tells of a VF that has no address from its port


@dataclass(frozen=True)
class Disk:
    """A guest's disk and seed."""

    name: str
    image: Image
    path: str
    seed_path: str
    seed: Seed
    size: int | None = None


def needs_links(desired: Desired) -> bool:
    """Whether some guest is told of its VFs, which it finds by addresses that the network devices of the host tell."""
    return any(rail.asks for wish in desired.wishes for rail in rails_of(wish.rest))


def disks_of(
    desired: Desired, guests: Iterable[Modelled], tree: Tree, links: Links
) -> tuple[tuple[Disk, ...], tuple[Problem, ...]]:
    """The disks of these guests by name, but for those that cannot be told what they have to be, with why."""
    found: list[Disk] = []
    problems: list[Problem] = []
    macs = _Macs(desired.guests.ports, tree, links)
    for one in sorted(guests, key=lambda one: one.wish.shape.name):
        if one.wish.rest["image"]:
            try:
                found.append(_disk(desired, one, macs))
            except IntentError as error:
                problems += error.problems
    return tuple(found), tuple(problems)


def _disk(desired: Desired, one: Modelled, macs: _Macs) -> Disk:
    rest, files, name = one.wish.rest, desired.guests.files_of(one.wish), one.wish.shape.name
    topology = nccl_xml.render(one.guest) if one.guest.devices else ""
    seed = Seed(name, rest["user"] or "", tuple(rest["ssh_keys"]), _interfaces(one, macs), topology)
    size = rest["disk_gib"] * _GIB if rest["disk_gib"] else None
    return Disk(name, desired.images[rest["image"]], files.disk, files.seed, seed, size)


def _interfaces(one: Modelled, macs: _Macs) -> tuple[Interface, ...]:
    """The interface on the guest's network, and its rails."""
    found = [Interface(MANAGEMENT, one.guest.mac, dhcp=True)] if one.guest.mac else []
    problems: list[Problem] = []
    vfs = sorted((each for each in one.guest.devices if each.part is Part.VF), key=lambda each: each.host)
    for number, (rail, vf) in enumerate(zip(rails_of(one.wish.rest), vfs)):
        if rail.asks:
            try:
                mac = macs.of(f"{one.wish.path}.rails[{number}]", rail, vf)
                found.append(Interface(rail.name, mac, rail.addresses, rail.gateway, rail.mtu, rail.dhcp))
            except IntentError as error:
                problems += error.problems
    if problems:
        raise IntentError(problems)
    return tuple(found)


@dataclass(frozen=True)
class _Macs:
    """The addresses that VFs keep: those that ``sriov_ports`` gives them, or that somebody else has given to a VF."""

    ports: tuple[PortEntry, ...]
    tree: Tree
    links: Links

    def of(self, path: str, rail: Rail, vf: Device) -> str:
        """The MAC address by which a guest finds a VF in every boot; IntentError for one that has none."""
        port, number = self._place(vf.host)
        mac = "" if port is None else self._of(port, number)
        if mac:
            return mac
        whose = f"VF {number} of {port.address}" if port is not None else "it"
        advice = f"Give {whose} a mac in sriov_ports[].vf, or take mac: stable there."
        fact = f"{rail.name} is {vf.host}, which has no MAC address that it keeps, so the guest could not find it"
        raise IntentError([Problem(path, fact, advice)])

    def _place(self, address: Address) -> tuple[Function | None, int]:
        """The PF of a VF, and the VF's number."""
        function = self.tree.get(address)
        port = self.tree.get(function.physfn) if function is not None and isinstance(function.physfn, Address) else None
        if port is None or not isinstance(port.sriov, Sriov) or address not in port.sriov.vfs:
            return None, 0
        return port, port.sriov.vfs.index(address)

    def _of(self, port: Function, number: int) -> str:
        link = self.links.get(netdev_of(port) or "")
        entry = next((one for one in self.ports if port in matches(one.selector, self.tree)), None)
        if entry is None:
            mac = str(link.vfs.get(number, {}).get("mac", "")) if link is not None else ""
            return "" if mac == _UNSET else mac
        given = entry.attributes[number].get("mac") if number < entry.vfs else None
        return _stable(link, number) if given == STABLE else str(given or "")


def _stable(link: Link | None, number: int) -> str:
    """As ``sriov`` makes it."""
    return stable_mac(link.permanent, number) if link is not None and link.link_type == "ether" else ""
