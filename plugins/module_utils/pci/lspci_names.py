# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers behind the names that ``lspci`` prints where it was not asked for numbers. Only those that matter here.

Class codes: PCI Code and ID Assignment Specification; vendor ids: Linux include/linux/pci_ids.h. A name that is not here is
unknown, never guessed.
"""

from __future__ import annotations

from typing import Union

CLASSES = {
    "SCSI storage controller": 0x0100,
    "RAID bus controller": 0x0104,
    "SATA controller": 0x0106,
    "Serial Attached SCSI controller": 0x0107,
    "Non-Volatile memory controller": 0x0108,
    "Mass storage controller": 0x0180,
    "Ethernet controller": 0x0200,
    "Infiniband controller": 0x0207,
    "InfiniBand controller": 0x0207,
    "Network controller": 0x0280,
    "VGA compatible controller": 0x0300,
    "3D controller": 0x0302,
    "Display controller": 0x0380,
    "Audio device": 0x0403,
    "RAM memory": 0x0500,
    "Host bridge": 0x0600,
    "ISA bridge": 0x0601,
    "PCI bridge": 0x0604,
    "Bridge": 0x0680,
    "Serial controller": 0x0700,
    "Communication controller": 0x0780,
    "PIC": 0x0800,
    "System peripheral": 0x0880,
    "Co-processor": 0x0B40,
    "USB controller": 0x0C03,
    "SMBus": 0x0C05,
    "IPMI Interface": 0x0C07,
    "Signal processing controller": 0x1180,
    "Performance counters": 0x1101,
    "Encryption controller": 0x1080,
    "Processing accelerators": 0x1200,
    "Non-Essential Instrumentation": 0x1300,
}

# By the beginning of the name; the longer of two comes first.
VENDORS = (
    ("NVIDIA Corporation", 0x10DE),
    ("Mellanox Technologies", 0x15B3),
    ("Intel Corporation", 0x8086),
    ("Advanced Micro Devices, Inc. [AMD/ATI]", 0x1002),
    ("Advanced Micro Devices, Inc. [AMD]", 0x1022),
    ("Broadcom / LSI", 0x1000),
    ("PLX Technology", 0x10B5),
    ("Broadcom Inc. and subsidiaries", 0x14E4),
    ("Microsemi / PMC", 0x11F8),
    ("PMC-Sierra", 0x11F8),
    ("Red Hat, Inc. QEMU", 0x1B36),
    ("Red Hat, Inc. Virtio", 0x1AF4),
    ("Microsoft Corporation", 0x1414),
    ("Samsung Electronics", 0x144D),
    ("Micron Technology", 0x1344),
    ("ASPEED Technology", 0x1A03),
    ("Amazon.com, Inc.", 0x1D0F),
)


def vendor(name: str) -> Union[int, None]:
    """The vendor id of a device's name, which begins with the vendor's."""
    return next((number for start, number in VENDORS if name.startswith(start)), None)
