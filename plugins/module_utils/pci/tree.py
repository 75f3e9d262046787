# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The PCI tree of one machine as plain data, and the questions that policies ask of it.

Built by a reader (``sysfs.read``, ``lspci``, ``hwloc``, ...); no reader's words are in here. A value that was looked for and is not there is
ABSENT, one that could not be learnt is Unreadable with the reason: neither is ever a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Union

from ..core.change import ABSENT, Absent, Unreadable
from .address import Address
from .capabilities import Capabilities, decoded
from .config_space import ConfigSpace

# phys_port_name of a representor: controller, PF, then VF or subfunction (Linux, devlink port naming).
_REPRESENTOR = re.compile(r"(c\d+)?pf\d+((vf|sf)\d+)?")

Number = Union[int, Absent, Unreadable]
Word = Union[str, Absent, Unreadable]


@dataclass(frozen=True)
class Bar:
    """One region of a function. ``index`` 0-5 are BARs, 6 the ROM, 7-12 the VF BARs of a PF, 13-16 bridge windows."""

    index: int
    start: int
    size: int  # bytes
    flags: int  # as in the kernel's ``resource`` file

    @property
    def assigned(self) -> bool:
        """True when the kernel gave it a place."""
        return self.start != 0


@dataclass(frozen=True)
class Link:
    """Speed in GT/s (tenths: 25, 50, 80, 160, 320, 640) and width in lanes, now and at best."""

    speed: Number = ABSENT
    speed_max: Number = ABSENT
    width: Number = ABSENT
    width_max: Number = ABSENT


@dataclass(frozen=True)
class Sriov:
    """The VF side of a PF. ``total`` is what the kernel allows (``sriov_totalvfs``), ``register`` what the capability says."""

    total: int
    enabled: int
    autoprobe: Union[bool, Absent, Unreadable]
    offset: Number
    stride: Number
    vf_device: Number
    register: Number
    vfs: tuple[Address, ...]  # by VF number


@dataclass(frozen=True)
class Netdev:
    """A network device of a function. A PF in switchdev mode also shows representors; they have another port name."""

    name: str
    mac: Word
    mtu: Number
    operstate: Word
    port_name: Word  # phys_port_name: p0, pf0vf3, ...
    switch_id: Word
    master: str  # bond, bridge or team above it; empty: none

    @property
    def is_representor(self) -> bool:
        """True for the host's end of a VF or subfunction, which is not a port of the function it hangs below."""
        return isinstance(self.port_name, str) and _REPRESENTOR.fullmatch(self.port_name) is not None


@dataclass(frozen=True)
class Function:
    """One PCI function as the kernel shows it."""

    address: Address
    vendor: int
    device: int
    class_code: int  # 24 bits: base class, subclass, programming interface
    subsystem_vendor: int
    subsystem_device: int
    revision: int
    parent: Union[Address, None]  # the bridge above; None on a root bus
    root_bus: str  # the kernel's name of the host bridge: pci0000:20
    numa_node: Number  # ABSENT where the kernel says -1
    iommu_group: Number
    driver: Word  # ABSENT: none bound
    driver_override: Word
    link: Link
    bars: tuple[Bar, ...]
    config: ConfigSpace
    secondary_bus: Union[int, None] = None  # of a bridge
    subordinate_bus: Union[int, None] = None
    sriov: Union[Sriov, Absent, Unreadable] = ABSENT
    physfn: Union[Address, None] = None
    serial: Word = ABSENT  # Device Serial Number of the configuration space; where there is none, the drive's own
    netdevs: tuple[Netdev, ...] = ()
    rdma: tuple[str, ...] = ()
    disks: tuple[str, ...] = ()  # block devices of the function: nvme0n1, vda
    boot_vga: bool = False
    told: Union[Capabilities, None] = None  # by a reader that has a text about the capabilities and not their bytes
    # What could not be learnt and has no place above to say so, by name, with the cause: physfn, bars, netdevs, rdma, disks;
    # by readers of other texts also vendor, device, class_code (its last two digits), subsystem and revision, which are 0 then,
    # boot_vga, and parent, which is None then and does not mean that the function is on a root bus.
    unread: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def ids(self) -> str:
        """Vendor and device as people write them; what an input did not tell is ``????``."""
        numbers = {"vendor": self.vendor, "device": self.device}
        return ":".join("????" if name in self.unread else f"{number:04x}" for name, number in numbers.items())

    @property
    def capabilities(self) -> Capabilities:
        """What its capabilities say."""
        return decoded(self.config) if self.told is None else self.told

    @property
    def is_bridge(self) -> bool:
        """True for what carries a bus below it; the kernel does not count it into a group's viability."""
        return self.class_code >> 16 == 0x06 and self.class_code >> 8 in (0x0604, 0x0609)

    @property
    def is_vf(self) -> bool:
        """True for a virtual function."""
        return self.physfn is not None

    @property
    def is_pf(self) -> bool:
        """True for what can have virtual functions, whether or not that could be read in full."""
        return self.sriov is not ABSENT

    @property
    def ports(self) -> tuple[Netdev, ...]:
        """Its own network devices, without the representors that hang below a PF."""
        return tuple(one for one in self.netdevs if not one.is_representor)


@dataclass(frozen=True)
class Tree:
    """All functions of a machine by address."""

    functions: Mapping[Address, Function] = field(default_factory=dict)
    group_types: Mapping[int, str] = field(default_factory=dict)  # identity, DMA, DMA-FQ, ...
    # Functions that are there and about which too little could be learnt to say what they are, with the cause.
    unread: Mapping[Address, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Function]:
        return (self.functions[address] for address in sorted(self.functions))

    def get(self, address: Address) -> Union[Function, None]:
        """The function at an address, if there is one."""
        return self.functions.get(address)

    def above(self, function: Function) -> Iterator[Function]:
        """The bridges between a function and its root bus, nearest first. A loop in odd data ends the walk."""
        seen = {function.address}
        while function.parent is not None and function.parent not in seen and function.parent in self.functions:
            seen.add(function.parent)
            function = self.functions[function.parent]
            yield function

    def group(self, number: int) -> tuple[Function, ...]:
        """The functions of an IOMMU group, bridges included."""
        return tuple(one for one in self if one.iommu_group == number)

    def below(self, bridge: Function) -> tuple[Function, ...]:
        """The functions directly below a bridge."""
        return tuple(one for one in self if one.parent == bridge.address)

    def vfs(self, pf: Function) -> tuple[Function, ...]:
        """The VFs of a PF by VF number."""
        addresses = pf.sriov.vfs if isinstance(pf.sriov, Sriov) else ()
        return tuple(self.functions[address] for address in addresses if address in self.functions)

    def port(self, function: Function) -> str:
        """Where a function is plugged: its root bus, then device.function of each step down to it.

        No other bus number is in it, so it is the same when buses below a root bus are renumbered. A VF has the
        place of its PF and its VF number, such as ``pci0000:20/00.0/00.0/vf3``. What could not be read is ``?``.
        """
        if function.physfn is not None:
            pf = self.functions.get(function.physfn)
            vfs = pf.sriov.vfs if pf is not None and isinstance(pf.sriov, Sriov) else ()
            number = vfs.index(function.address) if function.address in vfs else "?"
            return f"{self.port(pf) if pf is not None else f'{function.root_bus}/?'}/vf{number}"
        if "physfn" in function.unread:
            return f"{function.root_bus}/?"
        steps = [function, *self.above(function)]
        lost = [] if steps[-1].parent is None and "parent" not in steps[-1].unread else ["?"]
        return "/".join([function.root_bus, *lost, *(str(one.address)[-4:] for one in reversed(steps))])
