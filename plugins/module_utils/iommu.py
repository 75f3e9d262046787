# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which IOMMU a host has, by what its firmware tables say, and the kernel arguments that follow."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .boot.cmdline import Group
from .core.change import ABSENT, Unreadable
from .core.errors import Problem
from .core.host import Host
from .core.schema import Field

TABLES = "/sys/firmware/acpi/tables"
GROUPS = "/sys/kernel/iommu_groups"

# Also an option of what needs the IOMMU and may have to wait for the boot that turns it on.
IOMMU_FIELD = Field(
    "kernel_iommu",
    "str",
    (
        "The IOMMU: V(passthrough) turns it on with identity mapping for the host's own devices (C(iommu=pt)), as GPUDirect guests need it;",
        "V(translated) turns it on with mapping for all devices; V(unmanaged) leaves its arguments alone.",
        "The switch follows the firmware's table: DMAR gives C(intel_iommu=on), IVRS none, since the AMD IOMMU is on unless switched off.",
    ),
    default="unmanaged",
    choices=("passthrough", "translated", "unmanaged"),
)


@dataclass(frozen=True)
class Iommu:
    """The IOMMU of a host: firmware tables, processor vendor, and the groups the running kernel made.

    ``groups`` is None where they cannot be read.
    """

    dmar: bool
    ivrs: bool
    vendor: str
    groups: int | None

    @property
    def described(self) -> bool:
        """True when the firmware describes an IOMMU to the kernel."""
        return self.dmar or self.ivrs

    @property
    def intel(self) -> bool:
        """True when Intel's switch applies; the table decides, the processor only where there is none yet."""
        return self.dmar or (not self.ivrs and self.vendor == "GenuineIntel")


def read(host: Host) -> Iommu:
    """The IOMMU as firmware and kernel show it."""
    names = host.names(TABLES)
    tables = () if names is ABSENT or isinstance(names, Unreadable) else tuple(names)  # type: ignore[arg-type]
    cpuinfo = host.read_text("/proc/cpuinfo")
    vendor = re.search(r"^vendor_id\s*:\s*(\S+)", cpuinfo if isinstance(cpuinfo, str) else "", re.MULTILINE)
    groups = host.names(GROUPS)
    count = None if isinstance(groups, Unreadable) else 0 if groups is ABSENT else len(tuple(groups))  # type: ignore[arg-type]
    return Iommu("DMAR" in tables, "IVRS" in tables, vendor[1] if vendor else "", count)


def groups(mode: str, iommu: Iommu) -> tuple[Group, ...]:
    """The arguments of an IOMMU mode on this host.

    Source of the rule: Linux ``kernel-parameters.txt``. ``amd_iommu=on`` is not a value the kernel knows
    (the AMD IOMMU is on unless switched off), so it is never written.
    """
    if mode == "unmanaged":
        return ()
    path = "kernel_iommu"
    if iommu.intel:
        switch = Group(path, frozenset({"intel_iommu"}), adds=("on",), drops=("off",), spelling="intel_iommu")
    else:
        switch = Group(path, frozenset({"amd_iommu"}), drops=("off",), spelling="amd_iommu")
    translation = ("iommu=pt",) if mode == "passthrough" else ()
    return switch, Group(path, frozenset({"iommu", "iommu.passthrough"}), translation)


def missing_table(iommu: Iommu, vendor_allowed: bool) -> list[Problem]:
    """The problem of a host whose firmware hides its IOMMU, unless a later step turns it on."""
    if iommu.described or vendor_allowed:
        return []
    name = {"GenuineIntel": "VT-d", "AuthenticAMD": "AMD-Vi (IOMMU)"}.get(iommu.vendor, "the IOMMU")
    return [
        Problem(
            TABLES,
            "the firmware describes no IOMMU",
            f"Turn on {name} in the BIOS, or set kernel_iommu_without_table: by_cpu_vendor when a later step of the rollout does.",
            found="neither DMAR nor IVRS",
            wanted="one of them",
        )
    ]


def not_working(iommu: Iommu) -> list[Problem]:
    """The problem of a kernel that was started with the right arguments and made no groups.

    Where the firmware describes no IOMMU yet, there cannot be any: a later step turns it on.
    """
    if iommu.groups != 0 or not iommu.described:
        return []
    return [
        Problem(
            GROUPS,
            "the kernel was started with the IOMMU arguments and made no group",
            "See `journalctl -k --grep 'DMAR|AMD-Vi|IOMMU'` on the host.",
            found="0 groups",
            wanted="at least 1",
        )
    ]
