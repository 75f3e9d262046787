# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What QEMU says in a guest's log when devices of it cannot reach each other. It goes on all the same, so nobody else tells. Pure."""

from __future__ import annotations

import re

from ..core.errors import Problem

FOLDER = "/var/log/libvirt/qemu"
# libvirt writes it at each start (src/qemu/qemu_domain.c): "2026-01-01 00:00:00.000+0000: starting up libvirt version: ...".
_START = re.compile(r"^\d{4}-\d\d-\d\d \S+: starting up\b")
_IOMMUFD = "Take <iommufd> out of its definition (nothing of ours writes it), so that VFIO maps these regions, and start it anew."
_SAYS: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        re.compile(r"IOMMU_IOAS_MAP failed"),
        "regions of its devices were not mapped for the other devices, so a NIC cannot reach a GPU",
        _IOMMUFD,
    ),
    (
        re.compile(r"PCI peer-to-peer transactions on BARs are not supported"),
        "QEMU has no direct way between its devices",
        _IOMMUFD,
    ),
    (
        re.compile(r"vfio_container_dma_map\(.*\) = -22\b"),
        "regions of its devices lie above the addresses that the host's IOMMU takes",
        "Limit the guest's addresses to the width of the IOMMU (maxphysaddr limit), or give it fewer GPUs; then start it anew.",
    ),
)


def log_of(name: str) -> str:
    """The log of a guest."""
    return f"{FOLDER}/{name}.log"


def since_start(text: str) -> list[str]:
    """The lines of the guest's last start."""
    lines = text.splitlines()
    first = max((number for number, line in enumerate(lines) if _START.match(line)), default=0)
    return lines[first:]


def complaints(name: str, text: str) -> list[Problem]:
    """What a log tells against the paths of a guest that runs, each kind once, with the first line that says it."""
    lines = since_start(text)
    found = []
    for pattern, fact, advice in _SAYS:
        said = next((line.strip() for line in lines if pattern.search(line)), "")
        if said:
            found.append(Problem(f"libvirt_guest[{name}]", f"{fact} ({log_of(name)})", advice, found=said[:200]))
    return found
