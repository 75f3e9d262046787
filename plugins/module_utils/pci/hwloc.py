# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine from the XML that ``lstopo --of xml`` writes (hwloc 1, 2 and 3).

In hwloc 1 a NUMANode holds what is local to it; from hwloc 2 on it is a child of that. The node of a device is the one
that is found nearest, going up from it, which is the same in both. Formats: hwloc, "Importing and exporting topologies
from/to XML files" and hwloc.h (types of OS devices: an enumeration before hwloc 3, bits from it on).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Union

from ..core.change import ABSENT, Absent, Unreadable
from ..core.errors import Problem, UnreadableState
from . import untold
from .address import Address
from .machine import Machine, Platform
from .tree import Function, Link, Netdev, Number
from .xml_input import Element

SOURCE = "hwloc XML"
ASK = "hwloc does not tell it; run lspci -vvv as root, or host_topology_info, on the machine"

_KIND = re.compile(
    r"(?P<kind>[0-9a-f]{4}) \[(?P<vendor>[0-9a-f]{4}):(?P<device>[0-9a-f]{4})\]"
    r"(?: \[(?P<subsystem_vendor>[0-9a-f]{4}):(?P<subsystem_device>[0-9a-f]{4})\]"
    r" (?P<revision>[0-9a-f]{2})(?: (?P<interface>[0-9a-f]{2}))?)?"
)
_BUSES = re.compile(r"(?P<domain>[0-9a-f]{4,8}):\[(?P<first>[0-9a-f]{2})-(?P<last>[0-9a-f]{2})\]")
_DISKS, _NETDEVS, _RDMA = "disks", "netdevs", "rdma"
_ENUMERATED = {0: _DISKS, 2: _NETDEVS, 3: _RDMA}  # HWLOC_OBJ_OSDEV_*
_BITS = ((1 << 0, _DISKS), (1 << 4, _NETDEVS), (1 << 5, _RDMA))  # the same from hwloc 3 on
# lstopo leaves such functions out unless it is asked for all: chipset functions, management processors.
_NOT_SHOWN = (0x0600, 0x0601, 0x0800, 0x0806, 0x0880, 0x1101)


def read(root: Element, name: str = "", source: str = SOURCE) -> Machine:
    """The machine of an export; UnreadableState where an object has no address that could be understood."""
    version = int(root.get("version")[:1]) if root.get("version")[:1] in ("2", "3") else 1
    found: dict[Address, Function] = {}
    walk = _Walk(name, version, found)
    walk.object(root, _Place(), [root])
    nodes = tuple(sorted({_number(one) for one in root.inside() if _is_node(one)}))
    platform = Platform(
        architecture=_info(root, "Architecture"),
        kernel=_info(root, "OSRelease"),
        cpu_vendor=_info(root, "CPUVendor"),
        numa_nodes=nodes or Unreadable("the export has no NUMANode"),
    )
    partial = not any(one.class_code >> 8 in _NOT_SHOWN for one in found.values())
    missing = tuple(_missing(found, nodes, partial))
    return Machine(untold.tree(found.values()), platform, name, source, missing, partial)


def _missing(found: Mapping[Address, Function], nodes: tuple[int, ...], partial: bool) -> Iterator[str]:
    again = "run lstopo with --whole-io"
    if not found:
        yield f"no PCI function in this export: {again}, on the machine itself"
        return
    if not any(one.class_code >> 16 == 0x02 for one in found.values()):
        yield f"no NIC in this export: {again}"
    elif not any(one.rdma for one in found.values()):
        yield "no RDMA device in this export: the driver was not loaded, or lstopo was built without it"
    if any(not one.root_bus for one in found.values()):
        yield f"no bridges above some functions, so that their places are not known: {again}"
    if partial:
        yield f"it may not have all functions of the machine: {again} for them"
    if not nodes:
        yield "no NUMA node in this export"
    yield "no ACS and no ATS words, regions, drivers or IOMMU groups: run lspci -vvv as root, or host_topology_info"


class _Place:
    """Where an object hangs: the bridge above it and its root bus."""

    def __init__(self, parent: Union[Address, None] = None, root_bus: str = "") -> None:
        self.parent, self.root_bus = parent, root_bus


class _Walk:
    """One pass over the objects of an export."""

    def __init__(self, name: str, version: int, found: dict[Address, Function]) -> None:
        self.name, self.version, self.found = name, version, found
        self.nodes: dict[int, tuple[int, ...]] = {}  # by identity of the object that they are in

    def object(self, element: Element, place: _Place, above: list[Element]) -> None:
        """An element that is no function itself; functions below it are added."""
        for child in element.all("object"):
            kind = child.get("type")
            if kind == "PCIDev" or (kind == "Bridge" and child.get("pci_busid")):
                one = self.function(child, place, above)
                self.object(child, _Place(one.address, one.root_bus), above)
            elif kind == "Bridge":
                self.object(child, _Place(None, self.root_bus(child)), above)
            elif kind != "OSDev":
                self.object(child, place, [*above, child])

    def root_bus(self, element: Element) -> str:
        """The kernel's name of the root bus below a host bridge."""
        match = _BUSES.fullmatch(element.get("bridge_pci"))
        return f"pci{int(match['domain'], 16):04x}:{match['first']}" if match else ""

    def function(self, element: Element, place: _Place, above: list[Element]) -> Function:
        """The function of an object; the first one where two say that they are the same."""
        try:
            address = Address.parse(element.get("pci_busid"))
        except ValueError as error:
            raise self.bad(element, f"pci_busid {error}", element.get("pci_busid")) from None
        match = _KIND.fullmatch(element.get("pci_type"))
        if match is None:
            wanted = "class [vendor:device] [subsystem] revision"
            raise self.bad(element, "pci_type is not understood", element.get("pci_type"), wanted)
        told = ("vendor", "device", "subsystem_vendor", "subsystem_device", "revision")
        ids = {name: int(match[name], 16) for name in told if match[name]}
        # hwloc 1 and 2 do not tell the programming interface: it is 0 then.
        class_code = int(match["kind"], 16) << 8 | int(match["interface"] or "0", 16)
        buses = _BUSES.fullmatch(element.get("bridge_pci")) if element.get("type") == "Bridge" else None
        bridge = {"secondary_bus": int(buses["first"], 16), "subordinate_bus": int(buses["last"], 16)} if buses else {}
        one = untold.function(
            address,
            ASK,
            **ids,
            **bridge,
            **self.attached(element),
            class_code=class_code,
            unread={} if match["interface"] else {"class_code": ASK},
            parent=place.parent,
            root_bus=place.root_bus,
            numa_node=self.numa_node(above),
            link=_link(element.get("pci_link_speed")),
            sriov=ABSENT if buses else Unreadable(ASK),
            serial=_serial(element),
        )
        return self.found.setdefault(address, one)

    def numa_node(self, above: list[Element]) -> Number:
        """The node of what hangs below these objects; ABSENT where it is placed at the whole of several nodes."""
        for element in reversed(above):
            if id(element) not in self.nodes:
                self.nodes[id(element)] = tuple(_number(one) for one in element.inside() if _is_node(one))
            nodes = self.nodes[id(element)]
            if nodes:
                return nodes[0] if len(nodes) == 1 else ABSENT
        return Unreadable("the export has no NUMANode")

    def attached(self, element: Element) -> dict[str, Any]:
        """Network devices, RDMA devices and disks of a function."""
        kinds: dict[str, list[Element]] = {_DISKS: [], _NETDEVS: [], _RDMA: []}
        for one in _devices(element):
            kind = self.kind(one.get("osdev_type"))
            if kind:
                kinds[kind].append(one)
        return {
            _NETDEVS: tuple(_netdev(one) for one in sorted(kinds[_NETDEVS], key=lambda one: one.get("name"))),
            _RDMA: tuple(sorted(one.get("name") for one in kinds[_RDMA])),
            _DISKS: tuple(sorted(one.get("name") for one in kinds[_DISKS])),
        }

    def kind(self, number: str) -> str:
        """What an OS device is, if it is of a kind that is kept."""
        value = int(number) if re.fullmatch("[0-9]{1,9}", number) else -1
        if self.version < 3:
            return _ENUMERATED.get(value, "")
        return next((kind for bit, kind in _BITS if value > 0 and value & bit), "")

    def bad(self, element: Element, fact: str, found: str, wanted: str = "") -> UnreadableState:
        """The error for an object."""
        advice = "Export the topology again with lstopo --of xml --whole-io."
        return UnreadableState([Problem(f"{self.name}:{element.line}", fact, advice, found=repr(found), wanted=wanted)])


def _devices(element: Element) -> Iterator[Element]:
    """The OS devices of a function, which may hang below one another."""
    for one in element.all("object"):
        if one.get("type") == "OSDev":
            yield one
            yield from _devices(one)


def _netdev(element: Element) -> Netdev:
    untold_ = Unreadable(ASK)
    mac = _own_info(element, "Address")
    return Netdev(element.get("name"), ABSENT if mac is None else mac, untold_, untold_, untold_, untold_, "")


def _serial(element: Element) -> Union[str, Unreadable]:
    """That of a drive; that of configuration space is not in an export."""
    numbers = [_own_info(one, "SerialNumber") for one in _devices(element)]
    return next((one for one in numbers if one), Unreadable(ASK))


def _link(text: str) -> Link:
    """Hwloc tells GB/s of the whole link, from which its speed and its width cannot be told apart."""
    try:
        rate = float(text or "0")
    except ValueError:
        rate = 0.0
    now = f"the export tells only that the link has {rate:.2f} GB/s" if rate > 0 else "the export tells no link speed"
    return Link(Unreadable(now), Unreadable(ASK), Unreadable(now), Unreadable(ASK))


# NUMA ------------------------------------------------------------------------------------


def _number(element: Element) -> int:
    """The kernel's number of an object; -1 where it has none."""
    text = element.get("os_index")
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else -1


def _is_node(element: Element) -> bool:
    """A NUMA node with processors; memory of a GPU is a node without."""
    cpus = element.get("cpuset")
    return (
        element.get("type") == "NUMANode"
        and _number(element) >= 0
        and (not cpus or any(digit not in "0x," for digit in cpus))
    )


# What an export says beside its objects ---------------------------------------------------


def _own_info(element: Element, name: str) -> Union[str, None]:
    return next((one.get("value") for one in element.all("info") if one.get("name") == name), None)


def _info(root: Element, name: str) -> Union[str, Absent, Unreadable]:
    """The first info of that name anywhere: hwloc 3 has those of the machine at the root, others at the Machine."""
    for one in root.inside():
        if one.tag == "info" and one.get("name") == name and one.get("value"):
            return one.get("value")
    return Unreadable(f"the export does not tell {name}")
