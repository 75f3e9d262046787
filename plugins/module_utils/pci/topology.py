# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tree as plain data for results and reports. Pure.

What is not there is null, what could not be learnt is a mapping with the key ``unreadable`` and the reason.
"""

from __future__ import annotations

from typing import Any, Union

from ..core.change import Absent, Unreadable
from .address import Address
from .capabilities import PORT_TYPES, Ats, Express, Words, acs_names
from .tree import Bar, Function, Link, Netdev, Sriov, Tree


def topology(tree: Tree) -> dict[str, Any]:
    """Functions, bridges with their buses, IOMMU groups and what could not be read, in the order of addresses."""
    return {
        "functions": [_function(one, tree) for one in tree],
        "bridges": [_bridge(one, tree) for one in tree if one.is_bridge],
        "iommu_groups": _groups(tree),
        "unread": {str(address): cause for address, cause in sorted(tree.unread.items())},
    }


def _known(value: Any) -> Any:
    """A value, null, or the reason why it is not known."""
    if isinstance(value, Absent):
        return None
    return {"unreadable": value.cause} if isinstance(value, Unreadable) else value


def _hex(value: Union[int, Absent, Unreadable], digits: int) -> Any:
    return f"{value:0{digits}x}" if isinstance(value, int) else _known(value)


def _address(address: Union[Address, None]) -> Union[str, None]:
    return None if address is None else str(address)


def _function(one: Function, tree: Tree) -> dict[str, Any]:
    told = one.capabilities
    return {
        "address": str(one.address),
        "vendor": _of(one, "vendor", _hex(one.vendor, 4)),
        "device": _of(one, "device", _hex(one.device, 4)),
        "class": _hex(one.class_code, 6) if "class_code" not in one.unread else f"{one.class_code >> 8:04x}",
        "subsystem_vendor": _of(one, "subsystem", _hex(one.subsystem_vendor, 4)),
        "subsystem_device": _of(one, "subsystem", _hex(one.subsystem_device, 4)),
        "revision": _of(one, "revision", _hex(one.revision, 2)),
        "serial": _known(one.serial),
        "port": tree.port(one),
        "parent": _of(one, "parent", _address(one.parent)),
        "root_bus": one.root_bus,
        "numa_node": _known(one.numa_node),
        "iommu_group": _known(one.iommu_group),
        "driver": _known(one.driver),
        "driver_override": _known(one.driver_override),
        "link": _link(one.link),
        "bars": _of(one, "bars", [_region(region) for region in one.bars]),
        "express": _express(told.express),
        "acs": _acs(told.acs),
        "ats": _ats(told.ats),
        "sriov": _sriov(one.sriov),
        "physfn": _of(one, "physfn", _address(one.physfn)),
        "netdevs": _of(one, "netdevs", [_netdev(net) for net in one.netdevs]),
        "rdma": _of(one, "rdma", list(one.rdma)),
        "disks": _of(one, "disks", list(one.disks)),
        "boot_vga": _of(one, "boot_vga", one.boot_vga),
    }


def _of(one: Function, name: str, value: Any) -> Any:
    """A value, unless it could not be learnt whether it is that."""
    return {"unreadable": one.unread[name]} if name in one.unread else value


def _link(link: Link) -> dict[str, Any]:
    def speed(tenths: Union[int, Absent, Unreadable]) -> Any:
        return tenths / 10 if isinstance(tenths, int) else _known(tenths)

    return {
        "speed_gts": speed(link.speed),
        "speed_max_gts": speed(link.speed_max),
        "width": _known(link.width),
        "width_max": _known(link.width_max),
    }


def _region(region: Bar) -> dict[str, Any]:
    return {
        "index": region.index,
        "start": f"{region.start:#x}",
        "size_bytes": region.size,
        "flags": f"{region.flags:#x}",
        "assigned": region.assigned,
    }


def _express(express: Union[Express, Absent, Unreadable]) -> Any:
    if not isinstance(express, Express):
        return _known(express)
    kind = express.port_type
    return {
        "port_type": PORT_TYPES.get(kind, f"type {kind}") if isinstance(kind, int) else _known(kind),
        "max_read_request_bytes": _known(express.max_read_request),
        "max_payload_bytes": _known(express.max_payload),
        "relaxed_ordering": _known(express.relaxed_ordering),
    }


def _acs(words: Union[Words, Absent, Unreadable]) -> Any:
    if not isinstance(words, Words):
        return _known(words)
    return {
        "capability": _hex(words.capability, 4),
        "control": _hex(words.control, 4),
        "capable": acs_names(words.capability),
        "enabled": acs_names(words.control),
    }


def _ats(words: Union[Ats, Absent, Unreadable]) -> Any:
    if not isinstance(words, Ats):
        return _known(words)
    return {
        "capability": _hex(words.capability, 4),
        "control": _hex(words.control, 4),
        "enabled": words.enabled,
        "smallest_unit": words.smallest_unit,
    }


def _sriov(sriov: Union[Sriov, Absent, Unreadable]) -> Any:
    if not isinstance(sriov, Sriov):
        return _known(sriov)
    return {
        "total": sriov.total,
        "register": _known(sriov.register),
        "enabled": sriov.enabled,
        "autoprobe": _known(sriov.autoprobe),
        "offset": _known(sriov.offset),
        "stride": _known(sriov.stride),
        "vf_device": _hex(sriov.vf_device, 4),
        "vfs": [str(address) for address in sriov.vfs],
    }


def _netdev(net: Netdev) -> dict[str, Any]:
    return {
        "name": net.name,
        "mac": _known(net.mac),
        "mtu": _known(net.mtu),
        "operstate": _known(net.operstate),
        "port_name": _known(net.port_name),
        "switch_id": _known(net.switch_id),
        "master": net.master or None,
        "representor": net.is_representor,
    }


def _bridge(one: Function, tree: Tree) -> dict[str, Any]:
    def bus(number: Union[int, None]) -> Union[str, None]:
        return None if number is None else f"{number:02x}"

    return {
        "address": str(one.address),
        "secondary_bus": bus(one.secondary_bus),
        "subordinate_bus": bus(one.subordinate_bus),
        "below": [str(below.address) for below in tree.below(one)],
    }


def _groups(tree: Tree) -> list[dict[str, Any]]:
    members: dict[int, list[str]] = {}
    for one in tree:
        if isinstance(one.iommu_group, int):
            members.setdefault(one.iommu_group, []).append(str(one.address))
    return [
        {"number": number, "type": tree.group_types.get(number), "functions": functions}
        for number, functions in sorted(members.items())
    ]
