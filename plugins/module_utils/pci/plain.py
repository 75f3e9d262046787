# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plain data that ``topology`` makes, back into a tree: for audits of many hosts from their saved results.

Bytes of configuration spaces are not in there; the words of ACS and ATS are, and are given as told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Union

from ..core.change import ABSENT, Absent, Unreadable
from ..core.errors import Problem, UnreadableState
from . import capabilities, whole
from .address import Address
from .capabilities import Ats, Capabilities, Express, Words
from .config_space import ConfigSpace
from .machine import Machine
from .tree import Bar, Function, Link, Netdev, Sriov, Tree

SOURCE = "host_topology_info"

_UNTOLD = Unreadable("the result of host_topology_info does not have it")
_NO_BYTES = ConfigSpace()
_NAMES = ("bars", "physfn", "netdevs", "rdma", "disks", "vendor", "device", "revision", "boot_vga", "parent")
_PORT_TYPES = {name: number for number, name in capabilities.PORT_TYPES.items()}


def looks_like(data: Any) -> bool:
    """Whether this is such a result, or one that Ansible has put a host's name or ``ansible_facts`` around."""
    return isinstance(data, Mapping) and isinstance(data.get("functions"), list) and "iommu_groups" in data


def read(data: Mapping[str, Any], name: str = "") -> Machine:
    """The machine of a result; UnreadableState, with the place, where it is not one."""
    where = "functions"
    try:
        functions: dict[Address, Function] = {}
        buses = {one["address"]: one for one in data["bridges"]}
        for number, one in enumerate(data["functions"]):
            where = f"functions[{number}]"
            function = _function(one, buses.get(one["address"]))
            functions[function.address] = function
        where = "iommu_groups"
        types = {one["number"]: one["type"] for one in data["iommu_groups"] if one["type"] is not None}
        where = "unread"
        unread = {Address.parse(address): cause for address, cause in data["unread"].items()}
        where = "platform"
        platform = whole.platform(data)
        missing = tuple(str(one) for one in data.get("missing") or ())
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        fact = f"lacks {error}" if isinstance(error, KeyError) else f"is not understood: {error}"
        advice = "Give the whole result of host_topology_info of this version."
        raise UnreadableState([Problem(f"{name}: {where}" if name else where, fact, advice)]) from None
    known = str(data.get("name") or name)
    return Machine(Tree(functions, types, unread), platform, known, SOURCE, missing, bool(data.get("partial")))


def _known(value: Any) -> Any:
    """What ``topology`` made plain, back again."""
    if value is None:
        return ABSENT
    return Unreadable(value["unreadable"]) if isinstance(value, dict) else value


def _hex(value: Any) -> Any:
    return int(value, 16) if isinstance(value, str) else _known(value)


def _address(text: Union[str, None]) -> Union[Address, None]:
    """An address as ``Address`` writes it, read faster than what people write."""
    if text is None:
        return None
    domain, bus, rest = text.split(":")
    device, _dot, function = rest.partition(".")
    return Address(int(domain, 16), int(bus, 16), int(device, 16), int(function, 16))


def _function(one: Mapping[str, Any], bridge: Union[Mapping[str, Any], None]) -> Function:
    unread = _unread(one)
    address = _address(one["address"])
    if address is None:
        raise ValueError("it has no address")
    return Function(
        address=address,
        vendor=0 if "vendor" in unread else int(one["vendor"], 16),
        device=0 if "device" in unread else int(one["device"], 16),
        class_code=int(one["class"], 16) << (8 if "class_code" in unread else 0),
        subsystem_vendor=0 if "subsystem" in unread else int(one["subsystem_vendor"], 16),
        subsystem_device=0 if "subsystem" in unread else int(one["subsystem_device"], 16),
        revision=0 if "revision" in unread else int(one["revision"], 16),
        parent=None if "parent" in unread else _address(one["parent"]),
        root_bus=one["root_bus"],
        numa_node=_known(one["numa_node"]),
        iommu_group=_known(one["iommu_group"]),
        driver=_known(one["driver"]),
        driver_override=_known(one["driver_override"]),
        link=_link(one["link"]),
        bars=() if "bars" in unread else tuple(map(_bar, one["bars"])),
        config=_NO_BYTES,
        secondary_bus=_bus(bridge, "secondary_bus"),
        subordinate_bus=_bus(bridge, "subordinate_bus"),
        sriov=_sriov(one["sriov"]),
        physfn=None if "physfn" in unread else _address(one["physfn"]),
        serial=_known(one["serial"]),
        netdevs=() if "netdevs" in unread else tuple(map(_netdev, one["netdevs"])),
        rdma=() if "rdma" in unread else tuple(one["rdma"]),
        disks=() if "disks" in unread else tuple(one["disks"]),
        boot_vga=False if "boot_vga" in unread else one["boot_vga"],
        told=Capabilities(_express(one["express"]), _words(one["acs"], Words), _words(one["ats"], Ats)),
        unread=unread,
    )


def _unread(one: Mapping[str, Any]) -> dict[str, str]:
    """What could not be learnt, by the names that Function has for it."""
    unread = {name: one[name]["unreadable"] for name in _NAMES if isinstance(one[name], dict)}
    if isinstance(one["subsystem_vendor"], dict):
        unread["subsystem"] = one["subsystem_vendor"]["unreadable"]
    if len(one["class"]) == 4:  # without the programming interface
        unread["class_code"] = _UNTOLD.cause
    return unread


def _bus(bridge: Union[Mapping[str, Any], None], name: str) -> Union[int, None]:
    text = bridge[name] if bridge is not None else None
    return None if text is None else int(text, 16)


def _link(link: Mapping[str, Any]) -> Link:
    return Link(
        _speed(link["speed_gts"]), _speed(link["speed_max_gts"]), _known(link["width"]), _known(link["width_max"])
    )


def _speed(value: Any) -> Union[int, Absent, Unreadable]:
    speed: Union[int, Absent, Unreadable] = round(value * 10) if isinstance(value, (int, float)) else _known(value)
    return speed


def _bar(one: Mapping[str, Any]) -> Bar:
    return Bar(one["index"], int(one["start"], 16), one["size_bytes"], int(one["flags"], 16))


def _words(value: Any, kind: type[Words]) -> Any:
    if isinstance(value, dict) and "control" in value:
        return kind(int(value["capability"], 16), int(value["control"], 16))
    return _known(value)


def _express(value: Any) -> Union[Express, Absent, Unreadable]:
    """Results of earlier versions do not have it."""
    if isinstance(value, Unreadable):
        return value
    if not isinstance(value, dict) or "unreadable" in value:
        known: Union[Absent, Unreadable] = _known(value)
        return known
    kind = value["port_type"]
    if isinstance(kind, str):
        kind = _PORT_TYPES[kind] if kind in _PORT_TYPES else int(kind.removeprefix("type "))
    names = ("max_read_request_bytes", "max_payload_bytes", "relaxed_ordering")
    return Express(_known(kind), *(_known(value[name]) for name in names))


def _sriov(value: Any) -> Union[Sriov, Absent, Unreadable]:
    if not isinstance(value, dict) or "unreadable" in value:
        known: Union[Absent, Unreadable] = _known(value)
        return known
    vfs = tuple(address for address in map(_address, value["vfs"]) if address is not None)
    return Sriov(
        total=value["total"],
        enabled=value["enabled"],
        autoprobe=_known(value["autoprobe"]),
        offset=_known(value["offset"]),
        stride=_known(value["stride"]),
        vf_device=_hex(value["vf_device"]),
        register=_known(value["register"]),
        vfs=vfs,
    )


def _netdev(one: Mapping[str, Any]) -> Netdev:
    return Netdev(
        one["name"],
        _known(one["mac"]),
        _known(one["mtu"]),
        _known(one["operstate"]),
        _known(one["port_name"]),
        _known(one["switch_id"]),
        one["master"] or "",
    )
