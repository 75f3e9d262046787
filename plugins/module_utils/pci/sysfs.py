# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The PCI tree of a host from its sysfs, live or captured, in one pass.

Positions come from where a function's folder lies below /sys/devices, never from bus numbers or the port-type register:
root buses nest (VMD), buses are added while running, and some switch ports say that they are root ports.
Rules of the attributes: Linux Documentation/ABI/testing/sysfs-bus-pci and drivers/pci/pci-sysfs.c.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Union

from ..core.change import ABSENT, Absent, Text, Unreadable
from ..core.errors import Problem, UnreadableState
from ..core.host import Host
from ..core.once import once
from . import attached, capabilities, registers
from .address import Address
from .attributes import Folder, address_of, steps_of
from .config_space import ConfigSpace
from .tree import Bar, Function, Link, Number, Sriov, Tree, Word

DEVICES = "/sys/bus/pci/devices"
GROUPS = "/sys/kernel/iommu_groups"

_MODALIAS = re.compile(
    r"pci:v0000(?P<vendor>[0-9A-F]{4})d0000(?P<device>[0-9A-F]{4})"
    r"sv0000(?P<subsystem_vendor>[0-9A-F]{4})sd0000(?P<subsystem_device>[0-9A-F]{4})"
    r"bc(?P<base>[0-9A-F]{2})sc(?P<sub>[0-9A-F]{2})i(?P<interface>[0-9A-F]{2})"
)
_ROOT_BUS = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_SPEED = re.compile(r"([0-9]+)(?:\.([0-9]))? GT/s")
_NAMESPACE = re.compile(r"(nvme[0-9]+)(?:c[0-9]+)?(n[0-9]+)")
_DRIVE, _DISPLAY = 0x0108, 0x03  # class of NVMe and the like; base class of what draws
_BRIDGES = (0x0604, 0x0609)
_NO_WIDTH = (0, 255)  # no link is up; the kernel's word for a width that the register does not tell
_FIRST_BYTES = 256
_MOST_VFS = 0xFFFF

_Ids = Mapping[str, int]


def read(host: Host) -> Tree:
    """All PCI functions of the host; UnreadableState only where the list of them cannot be read.

    A function that goes while it is being read is left out. One that is there and tells too little of itself is
    named in ``unread`` of the tree.
    """
    return once(host, DEVICES, lambda: _read(host))


def _read(host: Host) -> Tree:
    everything = attached.read(host)
    found: dict[Address, Function] = {}
    unread: dict[Address, str] = {}
    for address in _listed(host):
        one = _function(host, address, everything)
        if isinstance(one, Function):
            found[address] = one
        else:
            unread[address] = one
    left = set(_listed(host))
    functions = _with_physfn({address: one for address, one in found.items() if address in left})
    gone = {address for address in unread if address not in left or not host.exists(f"{DEVICES}/{address}")}
    return Tree(
        functions,
        _group_types(host, functions),
        {address: cause for address, cause in unread.items() if address not in gone},
    )


def _listed(host: Host) -> list[Address]:
    names = host.names(DEVICES)
    if isinstance(names, tuple):
        return [address for address in map(address_of, names) if address is not None]
    fact = "is not there" if isinstance(names, Absent) else names.cause.rpartition(": ")[2]
    advice = "See whether the host has a PCI bus and whether its sysfs can be read."
    raise UnreadableState([Problem(DEVICES, fact, advice)])


def _with_physfn(functions: dict[Address, Function]) -> dict[Address, Function]:
    """The functions; a VF whose own link to its PF is missing is known by its PF's link to it."""
    for pf in list(functions.values()):
        for address in pf.sriov.vfs if isinstance(pf.sriov, Sriov) else ():
            vf = functions.get(address)
            if vf is not None and vf.physfn is None:
                unread = {name: cause for name, cause in vf.unread.items() if name != "physfn"}
                functions[address] = replace(vf, physfn=pf.address, unread=unread)
    return functions


def _group_types(host: Host, functions: Mapping[Address, Function]) -> dict[int, str]:
    found: dict[int, str] = {}
    for number in sorted({one.iommu_group for one in functions.values() if isinstance(one.iommu_group, int)}):
        kind = Folder(host, f"{GROUPS}/{number}").text("type")
        if isinstance(kind, str):
            found[number] = kind
    return found


# One function ----------------------------------------------------------------------------


def _function(host: Host, address: Address, everything: attached.Attached) -> Union[Function, str]:
    """One function; a text tells why too little of it could be read."""
    target = host.link(f"{DEVICES}/{address}")
    if not isinstance(target, str):
        return target.cause if isinstance(target, Unreadable) else f"{DEVICES}/{address}: is not there"
    steps = steps_of(target)
    folder = Folder(host, f"/sys/{'/'.join(steps)}")
    config = _config(folder)
    ids = _ids(folder, config)
    if isinstance(ids, str):
        return f"{folder.path}: its {ids} cannot be read"
    parent, root_bus = _position(steps[:-1])
    bars = _bars(folder.text("resource"))
    serial, disks = _drive(folder) if ids["class_code"] >> 8 == _DRIVE else (ABSENT, ())
    physfn = _physfn(folder, config)
    secondary, subordinate = _buses(folder, config) if ids["class_code"] >> 8 in _BRIDGES else (None, None)
    return Function(
        address=address,
        **ids,
        parent=parent,
        root_bus=root_bus,
        numa_node=_numa_node(folder),
        iommu_group=_iommu_group(folder),
        driver=folder.last("driver"),
        driver_override=_driver_override(folder),
        link=_link(folder),
        bars=bars if isinstance(bars, tuple) else (),
        config=config,
        secondary_bus=secondary,
        subordinate_bus=subordinate,
        sriov=_sriov(folder, config, address),
        physfn=physfn if isinstance(physfn, Address) else None,
        serial=_serial(config, serial),
        netdevs=everything.netdevs.get(address, ()),
        rdma=everything.rdma.get(address, ()),
        disks=tuple(sorted({*everything.disks.get(address, ()), *disks})),
        boot_vga=ids["class_code"] >> 16 == _DISPLAY and folder.text("boot_vga") == "1",
        told=None,
        unread={
            **everything.unread,
            **({"bars": bars} if isinstance(bars, str) else {}),
            **({"physfn": physfn} if isinstance(physfn, str) else {}),
        },
    )


def _config(folder: Folder) -> ConfigSpace:
    """Configuration space up to the end of its capabilities.

    The kernel asks the device for every four bytes of it, which costs a microsecond on a machine and much more in a
    guest, so that reading all 4096 bytes of each function would take most of the time.
    """
    config = ConfigSpace(folder.bytes("config", _FIRST_BYTES, 0))
    while config.more:
        following = folder.bytes("config", config.more, len(config.data))
        if not following:
            break
        config = ConfigSpace(config.data + following)
    return config


def _position(above: Sequence[str]) -> tuple[Union[Address, None], str]:
    """The bridge above and the root bus, from the folders that a function's folder lies in."""
    parent: Union[Address, None] = None
    for step in reversed(above):
        if _ROOT_BUS.fullmatch(step):
            return parent, step
        parent = parent or address_of(step)
    return parent, ""


def _ids(folder: Folder, config: ConfigSpace) -> Union[_Ids, str]:
    """Ids, class and revision by their names in Function; the name of the first one that nothing tells."""
    modalias = folder.text("modalias")
    match = _MODALIAS.match(modalias) if isinstance(modalias, str) else None
    told: dict[str, Number] = {"revision": folder.number("revision", 16)}
    for name in ("vendor", "device", "subsystem_vendor", "subsystem_device"):
        told[name] = int(match[name], 16) if match else folder.number(name, 16)
    told["class_code"] = (
        int(match["base"] + match["sub"] + match["interface"], 16) if match else folder.number("class", 16)
    )
    known = {name: value for name, value in told.items() if isinstance(value, int)}
    if len(known) < len(told):
        known = {**registers.header(config), **known}
    return next((name.replace("_", " ") for name in told if name not in known), known)


def _numa_node(folder: Folder) -> Number:
    """ABSENT where the kernel says -1, which is that it was not told."""
    node = folder.number("numa_node")
    return ABSENT if isinstance(node, int) and node < 0 else node


def _iommu_group(folder: Folder) -> Number:
    name = folder.last("iommu_group")
    if not isinstance(name, str):
        return name
    return int(name) if name.isdecimal() else Unreadable(f"{folder.path}/iommu_group: leads to {name!r}")


def _driver_override(folder: Folder) -> Word:
    text = folder.text("driver_override")
    return ABSENT if text in ("(null)", "") else text


def _link(folder: Folder) -> Link:
    return Link(
        speed=_speed(folder.text("current_link_speed")),
        speed_max=_speed(folder.text("max_link_speed")),
        width=_width(folder.number("current_link_width")),
        width_max=_width(folder.number("max_link_width")),
    )


def _speed(text: Text) -> Number:
    """Tenths of GT/s. The kernel says Unknown where the register tells no speed: of VFs, and where no link is up."""
    if not isinstance(text, str):
        return text
    match = _SPEED.match(text)
    return int(match[1]) * 10 + int(match[2] or 0) if match else Unreadable(f"the kernel says {text!r}")


def _width(width: Number) -> Number:
    return Unreadable(f"the kernel says {width}, which tells no width") if width in _NO_WIDTH else width


def _bars(text: Text) -> Union[tuple[Bar, ...], str]:
    """The regions that have a size, in the order of the kernel's list; why they are not known otherwise."""
    if not isinstance(text, str):
        return text.cause if isinstance(text, Unreadable) else "resource is not there"
    found: list[Bar] = []
    for index, line in enumerate(text.splitlines()):
        try:
            start, end, flags = (int(word, 16) for word in line.split())
        except ValueError:
            return f"resource has a line that is none: {line!r}"
        if end > start:
            found.append(Bar(index, start, end - start + 1, flags))
    return tuple(found)


def _drive(folder: Folder) -> tuple[Word, tuple[str, ...]]:
    """Serial number and disks of an NVMe controller. With multipath its disk hangs below no function."""
    serial: Word = ABSENT
    disks: list[str] = []
    for controller in folder.names("nvme"):
        serial = folder.text(f"nvme/{controller}/serial")
        namespaces = (_NAMESPACE.fullmatch(name) for name in folder.names(f"nvme/{controller}"))
        disks += [match[1] + match[2] for match in namespaces if match]
    return serial or ABSENT, tuple(disks)


def _serial(config: ConfigSpace, of_drive: Word) -> Word:
    """The Device Serial Number; the drive's own where there is known to be none."""
    serial = capabilities.device_serial(config)
    return of_drive if isinstance(serial, Absent) else serial


def _buses(folder: Folder, config: ConfigSpace) -> tuple[Union[int, None], Union[int, None]]:
    """The bus below a bridge and the last one below that, as they are now."""
    if len(config.data) > 0x1A and config.answers:
        return config.data[0x19], config.data[0x1A]
    numbers = (folder.number("secondary_bus_number"), folder.number("subordinate_bus_number"))
    secondary, subordinate = (number if isinstance(number, int) else None for number in numbers)
    return secondary, subordinate


# VFs -------------------------------------------------------------------------------------


def _physfn(folder: Folder, config: ConfigSpace) -> Union[Address, str, None]:
    """The PF of a VF; a text tells why it is not known. In configuration space the ids of VFs alone are all ones."""
    name = folder.last("physfn")
    if isinstance(name, str):
        return address_of(name) or f"{folder.path}/physfn: leads to {name!r}"
    if isinstance(name, Unreadable):
        return name.cause
    is_vf = config.word(0, 4) == 0xFFFFFFFF and config.answers
    return f"{folder.path}: is a VF by its configuration space, and nothing tells of which PF" if is_vf else None


def _sriov(folder: Folder, config: ConfigSpace, address: Address) -> Union[Sriov, Absent, Unreadable]:
    total = folder.number("sriov_totalvfs")
    if not isinstance(total, int):
        return total
    enabled, offset, stride = (folder.number(f"sriov_{name}") for name in ("numvfs", "offset", "stride"))
    if not isinstance(enabled, int):
        return enabled if isinstance(enabled, Unreadable) else Unreadable(f"{folder.path}/sriov_numvfs: is not there")
    if not 0 <= enabled <= _MOST_VFS:
        return Unreadable(f"{folder.path}/sriov_numvfs: {enabled} is not a number of VFs")
    vfs = _vfs(folder, address, enabled, offset, stride)
    if isinstance(vfs, Unreadable):
        return vfs
    autoprobe = folder.number("sriov_drivers_autoprobe")
    return Sriov(
        total=total,
        enabled=enabled,
        autoprobe=bool(autoprobe) if isinstance(autoprobe, int) else autoprobe,
        offset=offset,
        stride=stride,
        vf_device=folder.number("sriov_vf_device", 16),
        register=capabilities.total_vfs(config),
        vfs=vfs,
    )


def _vfs(
    folder: Folder, pf: Address, enabled: int, offset: Number, stride: Number
) -> Union[tuple[Address, ...], Unreadable]:
    """The VFs by number, as the PF's links say; a link that is missing is made up for by offset and stride."""
    names = [folder.last(f"virtfn{number}") for number in range(enabled)]
    linked = [address_of(name) if isinstance(name, str) else None for name in names]
    if isinstance(offset, int) and isinstance(stride, int):
        computed = [pf.plus(offset + number * stride) for number in range(enabled)]
        linked = [one if one is not None else other for one, other in zip(linked, computed)]
    found = tuple(one for one in linked if one is not None)
    if len(found) < enabled or len(set(found)) < enabled:
        return Unreadable(f"{folder.path}: its virtfn links do not tell {enabled} VFs; they may be changing")
    return found
