# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine as a policy sees it: its PCI tree and what it says of itself as a whole. What every reader gives.

A field that a reader had no source for keeps its default, which says so; it is never taken for good or bad.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Union

from ..core.change import ABSENT, Absent, Text, Unreadable
from .tree import Number, Tree

NOT_TOLD = Unreadable("the input does not say it")

Flag = Union[bool, Absent, Unreadable]
Names = Union[tuple[str, ...], Absent, Unreadable]
Numbers = Union[tuple[int, ...], Absent, Unreadable]


@dataclass(frozen=True)
class Atsr:
    """Where the firmware lets root ports take translated requests (ACPI DMAR, remapping structures of type 2).

    ``everywhere`` are PCI segments whose structure covers all ports; ``ports`` are the ports named one by one, as
    ``DDDD:BB:DD.F`` (the path below a bridge is not followed: such an entry has the start of its path).
    """

    everywhere: tuple[int, ...] = ()
    ports: tuple[str, ...] = ()


@dataclass(frozen=True)
class Platform:
    """What the machine says of itself as a whole."""

    arguments: Text = NOT_TOLD  # kernel command line
    kernel: Text = NOT_TOLD  # release
    cpu_vendor: Text = NOT_TOLD  # GenuineIntel, AuthenticAMD, ...
    cpu_family: Number = NOT_TOLD
    cpu_model: Number = NOT_TOLD
    architecture: Text = NOT_TOLD  # x86_64, ppc64le, ...
    iommus: Names = NOT_TOLD  # names of /sys/class/iommu; ABSENT: there is none
    atsr: Union[Atsr, Absent, Unreadable] = NOT_TOLD  # ABSENT: the tables have no such structure, or it is not Intel
    lockdown: Text = NOT_TOLD  # none, integrity, confidentiality; ABSENT: the kernel has no lockdown
    memory_encryption: Text = NOT_TOLD  # sme, sev, tdx, ...; ABSENT: none is active
    unsafe_interrupts: Flag = NOT_TOLD  # of vfio_iommu_type1; ABSENT: the module is not loaded
    is_guest: Flag = NOT_TOLD  # a virtual machine itself
    numa_nodes: Numbers = NOT_TOLD
    iommufd: Flag = ABSENT  # whether a guest uses it for its devices; ABSENT: no guest is known


@dataclass(frozen=True)
class Machine:
    """One machine from one source.

    ``source`` names the kind of input (``sysfs``, ``lspci -vvv``, ``hwloc XML``, ...). ``missing`` says in sentences what
    the input does not have; ``partial`` is True where it does not have all functions of the machine.
    """

    tree: Tree
    platform: Platform = field(default_factory=Platform)
    name: str = ""
    source: str = "sysfs"
    missing: tuple[str, ...] = ()
    partial: bool = False
