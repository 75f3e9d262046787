# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a guest gets of a host: the answer of ``placement``, and what the guest's model is made from. Data only."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..pci.address import Address


class Part(enum.Enum):
    """What a passed-through device is to its guest."""

    GPU = "gpu"
    VF = "vf"
    NVSWITCH = "nvswitch"


@dataclass(frozen=True)
class HostNode:
    """One NUMA node of a host.

    ``cores`` are the CPUs of each core, siblings together, in ascending order. ``pages`` are the huge pages by size in MiB that no
    running guest has: free ones and those of guests that are placed anew. ``isolated`` are the CPUs that the kernel gives to no task
    by itself (isolcpus). ``all_pages`` are those of guests too, where the kernel tells them of a node with memory.
    """

    number: int
    cores: tuple[tuple[int, ...], ...] = ()
    pages: Mapping[int, int] = field(default_factory=dict, hash=False)
    isolated: tuple[int, ...] = ()
    all_pages: Mapping[int, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Shape:
    """One guest as the inventory asks for it. ``memory_mib`` is a multiple of its page size; ``page_mib`` is 2 or 1024.

    ``nvswitches`` is ``all``, ``none``, or the number of a Fabric Manager partition. ``image`` and the rest of a guest's wishes do not
    matter to placement.
    """

    name: str
    gpus: int
    vfs_per_gpu: int = 1
    nvswitches: str = "none"
    vcpus: int = 2
    memory_mib: int = 2048
    page_mib: int = 1024


@dataclass(frozen=True)
class Given:
    """One device that a guest gets. ``beside`` is the GPU that a VF is for; ``node`` is the host's NUMA node, None: not told."""

    part: Part
    address: Address
    node: int | None = None
    beside: Address | None = None


@dataclass(frozen=True)
class Cell:
    """One NUMA node of a guest, on one node of the host. ``cpus`` are host CPUs, one for each vCPU of the cell, in order.

    Where the host's cores have sibling threads, vCPUs come in whole cores: ``threads`` of them follow each other.
    """

    node: int
    cpus: tuple[int, ...]
    memory_mib: int
    threads: int = 1


@dataclass(frozen=True)
class Placed:
    """A guest and all that it gets of its host. ``emulator`` are the host CPUs of QEMU's own threads."""

    shape: Shape
    devices: tuple[Given, ...]
    cells: tuple[Cell, ...]
    emulator: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()  # what is less good than it could be, in sentences


@dataclass(frozen=True)
class Refused:
    """A guest that does not fit, with every reason and what to do."""

    shape: Shape
    reasons: tuple[str, ...]
