# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest as NCCL or RCCL sees it, from a topology file (NCCL_TOPO_FILE) or its dump (NCCL_TOPO_DUMP_FILE).

A ``cpu`` stands for a NUMA node, a ``pci`` with others inside for a switch, whose address may be made up (ffff:ff:01.0).
The file knows no root buses: those of the tree are named after the ``cpu``, so that what only a ``cpu`` joins is PHB, as
NCCL has it. Grammar and dictionary of speeds: NCCL src/graph/xml.cc, topo.cc.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Union

from ..core.change import ABSENT, Unreadable
from ..core.errors import Problem, UnreadableState
from . import untold
from .address import Address
from .machine import Machine, Platform
from .nccl_oddities import oddities
from .tree import Function, Link, Netdev, Number
from .xml_input import Element

SOURCE = "NCCL topology XML"
ASK = "an NCCL topology file does not tell it; run host_topology_info on the host"

# The strings that NCCL knows, as tenths of GT/s. It takes each as the beginning of a word.
SPEEDS = {
    **{"2.5 GT/s PCIe": 25, "5.0 GT/s PCIe": 50, "8.0 GT/s PCIe": 80, "16.0 GT/s PCIe": 160, "32.0 GT/s PCIe": 320},
    **{"64.0 GT/s PCIe": 640, "2.5 GT/s": 25, "5 GT/s": 50, "8 GT/s": 80, "16 GT/s": 160, "32 GT/s": 320},
}
_REPLACED = 0xFFFFFFFF  # domain of addresses given to those that the file has twice


@dataclass(frozen=True)
class Cpu:
    """A NUMA node. ``numaid`` is -1 where the guest has none; ``cpus`` are those of its affinity mask."""

    numaid: int
    affinity: str
    cpus: frozenset[int]
    arch: str
    vendor: str
    numbers: tuple[Union[int, None], Union[int, None]]  # family and model
    below: tuple[Address, ...]  # functions directly below it
    line: int


@dataclass(frozen=True)
class Gpu:
    """A GPU; ``dev`` is its CUDA number and None in a file that NCCL has not filled."""

    address: Address
    dev: Union[int, None]
    gdr: Union[bool, None]


@dataclass(frozen=True)
class Net:
    """A port that NCCL may use; ``address`` is None of one without a PCI function, ``dev`` None in a shipped file."""

    name: str
    address: Union[Address, None]
    dev: Union[int, None]
    gdr: Union[bool, None]
    speed: Union[int, None]  # Mb/s
    guid: int = 0

    @property
    def rdma(self) -> bool:
        """Whether it may be an RDMA device: NCCL gives a socket no GUID, and no GPU memory."""
        return self.dev is None or bool(self.guid) or bool(self.gdr)


@dataclass(frozen=True)
class NcclTopology:
    """What a topology file says. ``oddities`` are sentences about what NCCL will make of it, each with the field."""

    machine: Machine
    cpus: tuple[Cpu, ...]
    gpus: tuple[Gpu, ...]
    nets: tuple[Net, ...]
    oddities: tuple[str, ...]


def read(root: Element, name: str = "") -> NcclTopology:
    """The topology of such a file; UnreadableState for a file without any ``cpu``."""
    walk = _Walk()
    cpus = tuple(walk.cpu(one) for one in root.all("cpu"))
    if not cpus:
        advice = "See whether NCCL has written it to its end (NCCL_TOPO_DUMP_FILE)."
        raise UnreadableState([Problem(f"{name}:{root.line}", "has no cpu in its system", advice)])
    nodes = tuple(sorted({one.numaid for one in cpus if one.numaid >= 0}))
    platform = Platform(
        architecture=cpus[0].arch or ABSENT,
        cpu_vendor=cpus[0].vendor or ABSENT,
        is_guest=Unreadable(ASK),
        numa_nodes=nodes or ABSENT,
    )
    missing = ("no host bridges, ACS and ATS words, regions, drivers or IOMMU groups: an NCCL topology file has none",)
    machine = Machine(untold.tree(walk.found.values()), platform, name, SOURCE, missing, partial=True)
    gpus, nets = tuple(walk.gpus), tuple(walk.nets)
    found = NcclTopology(machine, cpus, gpus, nets, ())
    version = root.get("version")
    first = () if version in ("1", "2") else (f"system version={version!r}: NCCL reads 1, RCCL 2",)
    return replace(found, oddities=(*first, *walk.oddities, *oddities(found)))


class _Walk:
    """One pass over the elements of a file."""

    def __init__(self) -> None:
        self.found: dict[Address, Function] = {}
        self.gpus: list[Gpu] = []
        self.nets: list[Net] = []
        self.oddities: list[str] = []

    def cpu(self, element: Element) -> Cpu:
        """A NUMA node with all below it."""
        numaid = _number(element.get("numaid"))
        if numaid is None:
            self.oddities.append(f"cpu numaid={element.get('numaid')!r} (line {element.line}): is no number")
        root_bus = f"cpu{numaid if numaid is not None else '?'}"
        node: Number = numaid if numaid is not None and numaid >= 0 else ABSENT
        below = tuple(
            address
            for one in element.all("pci")
            for address in [self.pci(one, None, root_bus, node)]
            if address is not None
        )
        self.nic(element, None)
        affinity = element.get("affinity")
        cpus = _mask(affinity)
        if cpus is None:
            self.oddities.append(f"cpu numaid={numaid} affinity={affinity!r}: is no mask; NCCL wants hexadecimal words")
        return Cpu(
            -1 if numaid is None else numaid, affinity, cpus or frozenset(), element.get("arch"), element.get("vendor"),
            (_number(element.get("familyid")), _number(element.get("modelid"))), below, element.line,
        )  # fmt: skip

    def pci(self, element: Element, parent: Union[Address, None], root_bus: str, node: Number) -> Union[Address, None]:
        """A function and all below it; its address in the tree."""
        inside = list(element.all("pci"))
        address = self.address(element, bool(inside))
        if address is None:
            for one in inside:
                self.pci(one, parent, root_bus, node)
            return None
        self.found[address] = untold.function(
            address, ASK, parent=parent, root_bus=root_bus, numa_node=node,
            link=self.link(element), sriov=ABSENT if inside else Unreadable(ASK), **_ids(element),
        )  # fmt: skip
        class_code = self.found[address].class_code
        self.nic(element, address)
        if not inside:
            self.gpu(element, address, class_code)
            if class_code >> 16 == 0x02 and not list(element.all("nic")):
                self.nets.append(Net("", address, None, None, None))
        for one in inside:
            self.pci(one, address, root_bus, node)
        return address

    def address(self, element: Element, has_others: bool) -> Union[Address, None]:
        """The address of an element; another one where it was there before and has others inside."""
        text = element.get("busid")
        try:
            address = Address.parse(text)
        except ValueError as error:
            self.oddities.append(f"pci busid={text!r} (line {element.line}): {error}; NCCL cannot find it in the guest")
            return None
        if address not in self.found:
            return address
        self.oddities.append(f"pci busid={text} (line {element.line}): is in the file twice; NCCL takes the first")
        return Address(_REPLACED, len(self.found) >> 8 & 0xFF, 0, 0) if has_others else None

    def link(self, element: Element) -> Link:
        """Speed and width as the file has them; what NCCL makes of others is an oddity."""
        where, untold_ = f"pci {element.get('busid')}", Unreadable(ASK)
        speed, width = element.get("link_speed"), element.get("link_width")
        tenths = next((value for text, value in SPEEDS.items() if speed.startswith(text)), None)
        if "link_speed" in element.attributes and tenths is None:
            self.oddities.append(f"{where} link_speed={speed!r}: is none that NCCL knows; it counts 8 GT/s")
        lanes = _number(width)
        if lanes == 0:
            self.oddities.append(f"{where} link_width=0: the guest is told no width; NCCL counts 16 lanes")
        return Link(
            speed=tenths if tenths is not None else Unreadable(f"the file says {speed!r}"),
            speed_max=untold_,
            width=lanes if lanes else Unreadable(f"the file says {width!r}"),
            width_max=untold_,
        )

    def gpu(self, element: Element, address: Address, class_code: int) -> None:
        """The GPU of a function: as NCCL has filled it in, or by its class."""
        filled = next(element.all("gpu"), None)
        if filled is not None:
            self.gpus.append(Gpu(address, _number(filled.get("dev")), _flag(filled.get("gdr"))))
        elif class_code >> 16 == 0x03:
            self.gpus.append(Gpu(address, None, None))

    def nic(self, element: Element, address: Union[Address, None]) -> None:
        """The ports below a function, or below a cpu where they have none."""
        for one in (net for nic in element.all("nic") for net in nic.all("net")):
            net = Net(
                one.get("name"), address, _number(one.get("dev")) or 0, _flag(one.get("gdr")), _number(one.get("speed")),
                _guid(one.get("guid")),
            )  # fmt: skip
            self.nets.append(net)
            if address is not None:
                self.found[address] = _with(self.found[address], net)


def _with(function: Function, net: Net) -> Function:
    """The function with a port of NCCL: an RDMA device, or the network device of a socket."""
    if net.rdma:
        unread = {name: cause for name, cause in function.unread.items() if name != "rdma"}
        return replace(function, rdma=tuple(sorted({*function.rdma, net.name})), unread=unread)
    untold_ = Unreadable(ASK)
    netdev = Netdev(net.name, untold_, untold_, untold_, untold_, untold_, "")
    unread = {name: cause for name, cause in function.unread.items() if name != "netdevs"}
    return replace(function, netdevs=(*function.netdevs, netdev), unread=unread)


def _ids(element: Element) -> Mapping[str, int]:
    """Those that the file has; NCCL asks the guest for the others."""
    names = {"class_code": "class"}
    words = ("vendor", "device", "subsystem_vendor", "subsystem_device", "class_code")
    found = {word: _hexadecimal(element.get(names.get(word, word))) for word in words}
    return {word: number for word, number in found.items() if number is not None}


def _hexadecimal(text: str) -> Union[int, None]:
    return int(text, 16) if re.fullmatch("0x[0-9a-fA-F]{1,6}", text) else None


def _guid(text: str) -> int:
    return int(text, 16) if re.fullmatch("0x[0-9a-fA-F]{1,16}", text) else 0


def _number(text: str) -> Union[int, None]:
    return int(text) if re.fullmatch("-?[0-9]{1,9}", text) else None


def _flag(text: str) -> Union[bool, None]:
    return {"0": False, "1": True}.get(text)


def _mask(text: str) -> Union[frozenset[int], None]:
    """The processors of a mask: words of 32 bits, the most significant first; None where it is no mask."""
    if not text:
        return frozenset()
    words = text.split(",")
    if len(words) > 256 or not all(re.fullmatch("[0-9a-fA-F]{1,8}", word) for word in words):
        return None
    return frozenset(_bits(words))


def _bits(words: list[str]) -> Iterator[int]:
    for index, word in enumerate(reversed(words)):
        value = int(word, 16)
        yield from (32 * index + bit for bit in range(32) if value >> bit & 1)
