# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What hangs below PCI functions: network devices, RDMA devices and disks, found by where their folders lie."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar, Union

from ..core.change import ABSENT, Absent, Unreadable
from ..core.host import Host
from .address import Address
from .attributes import Folder, address_of, steps_of
from .tree import Netdev, Word

NETDEVS, RDMA, DISKS = "/sys/class/net", "/sys/class/infiniband", "/sys/block"

# Between the function and what is its own. Others, such as a NIC at a USB controller, belong to something in between.
_DIRECT = {
    NETDEVS: re.compile(r"(virtio[0-9]+/)?net/[^/]+"),
    RDMA: re.compile(r"infiniband/[^/]+"),
    DISKS: re.compile(r".+"),
}
# A file among the links of /sys/class/net.
_NO_DEVICES = ("bonding_masters",)

_Kind = TypeVar("_Kind")


@dataclass(frozen=True)
class Attached:
    """By function; ``unread`` tells, by the same names, what could not be learnt of any function."""

    netdevs: Mapping[Address, tuple[Netdev, ...]]
    rdma: Mapping[Address, tuple[str, ...]]
    disks: Mapping[Address, tuple[str, ...]]
    unread: Mapping[str, str]


def read(host: Host) -> Attached:
    """Everything that hangs below some PCI function, in one pass over the three classes."""
    unread: dict[str, str] = {}
    netdevs = [
        (address, _netdev(Folder(host, path))) for address, _name, path in _owned(host, NETDEVS, "netdevs", unread)
    ]
    rdma = [(address, name) for address, name, _path in _owned(host, RDMA, "rdma", unread)]
    disks = [(address, name) for address, name, _path in _owned(host, DISKS, "disks", unread)]
    return Attached(_by_address(netdevs), _by_address(rdma), _by_address(disks), unread)


def _by_address(pairs: list[tuple[Address, _Kind]]) -> dict[Address, tuple[_Kind, ...]]:
    found: dict[Address, tuple[_Kind, ...]] = {}
    for address, one in pairs:
        found[address] = (*found.get(address, ()), one)
    return found


def _owned(host: Host, folder: str, kind: str, unread: dict[str, str]) -> Iterator[tuple[Address, str, str]]:
    """Function, name and folder of each device of a class that is a function's own."""
    names = host.names(folder)
    if isinstance(names, Absent) and folder == RDMA:
        return  # the kernel has no RDMA, so there are no such devices
    if not isinstance(names, tuple):
        unread[kind] = names.cause if isinstance(names, Unreadable) else f"{folder}: is not there"
        return
    for name in names:
        target = host.link(f"{folder}/{name}")
        if isinstance(target, Unreadable) and name not in _NO_DEVICES:
            unread[kind] = target.cause
        if not isinstance(target, str):
            continue
        steps = steps_of(target)
        owners = [(at, address) for at, address in enumerate(map(address_of, steps)) if address is not None]
        if owners and _DIRECT[folder].fullmatch("/".join(steps[owners[-1][0] + 1 :])):
            yield owners[-1][1], name, f"/sys/{'/'.join(steps)}"


def _netdev(folder: Folder) -> Netdev:
    master = folder.last("master")
    return Netdev(
        name=folder.path.rpartition("/")[2],
        mac=folder.text("address"),
        mtu=folder.number("mtu"),
        operstate=folder.text("operstate"),
        port_name=_some(folder.text("phys_port_name")),
        switch_id=_some(folder.text("phys_switch_id")),
        master=master if isinstance(master, str) else "",
    )


def _some(text: Union[str, Absent, Unreadable]) -> Word:
    return ABSENT if text == "" else text
