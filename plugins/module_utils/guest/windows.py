# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How large a guest's PCI windows have to be, from the regions of its devices. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Union

from ..core.change import Unreadable
from ..pci.address import Address
from ..pci.machine import Machine
from ..pci.tree import Function, Sriov

GIB = 1 << 30
_IO = 0x100  # IORESOURCE_IO of the kernel's include/linux/ioport.h
_REGIONS, _OF_VFS = range(6), range(7, 13)
QEMU_HOLE = 32 * GIB  # q35's pci-hole64-size where it is not told
LARGEST = 0x1000000 << 20  # EDK II PlatformInitLib: what X-PciMmio64Mb may say at most


@dataclass(frozen=True)
class Window:
    """The 64-bit window. ``size`` is 0 where none of the devices told its regions; ``unread`` are those that did not."""

    size: int = 0
    needed: int = 0  # the sum of the regions, each rounded up to what it is aligned to
    unread: tuple[Address, ...] = field(default=())

    @property
    def is_large(self) -> bool:
        """Whether it is more than what QEMU and old firmware have by themselves."""
        return self.size > QEMU_HOLE


def window_of(machine: Machine, devices: Iterable[Address]) -> Window:
    """Twice the next power of two of all regions: each is aligned to its own size, so half may be lost between them."""
    needed, unread = 0, []
    for address in sorted(devices):
        sizes = _sizes(machine, machine.tree.functions[address])
        if isinstance(sizes, Unreadable):
            unread.append(address)
        else:
            needed += sum(power_of_two(size) for size in sizes)
    return Window(2 * power_of_two(needed) if needed else 0, needed, tuple(unread))


def bits_for(memory: int, window: int) -> int:
    """Bits of physical addresses for memory and a window above it, which begins at a multiple of its size.

    Memory above the first 4 GiB has the hole for 32-bit regions below it, which is 2 GiB with q35; on AMD hosts QEMU moves large
    memory above 1 TiB (hw/i386/pc.c), which is inside the same power of two or costs what the window's alignment costs.
    """
    below = memory + 4 * GIB
    start = -(-below // window) * window if window else below
    return (start + window - 1).bit_length()


def power_of_two(size: int) -> int:
    """The least power of two that is not less."""
    return 1 << (size - 1).bit_length() if size > 0 else 0


def _sizes(machine: Machine, function: Function) -> Union[list[int], Unreadable]:
    if "bars" in function.unread:
        return Unreadable(function.unread["bars"])
    own = [one_bar.size for one_bar in function.bars if one_bar.index in _REGIONS and not one_bar.flags & _IO]
    pf = machine.tree.get(function.physfn) if function.physfn is not None else None
    if own or pf is None or not isinstance(pf.sriov, Sriov):
        return own
    count = pf.sriov.register if isinstance(pf.sriov.register, int) else pf.sriov.total
    return [
        one_bar.size // max(1, count) for one_bar in pf.bars if one_bar.index in _OF_VFS
    ]  # the kernel tells the sum of all VFs
