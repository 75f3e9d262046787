# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The policies of the three classes of hosts, as data: which bits of ACS words where, ATS, read requests.

Source: NVIDIA's rdma_topo (rdma-core, kernel-boot), read as patterns of bits and written anew here; it also knows what the kernel
sets by default (Linux drivers/pci/pci.c, pci_std_enable_acs). ``pci_path`` writes what ``p2p`` judges, from these tables.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Union

# Bits of both words of Access Control Services (Linux include/uapi/linux/pci_regs.h).
SV, TB, RR, CR, UF, EC, DT = (1 << bit for bit in range(7))
# What the kernel wants of each port up to the root before it keeps functions apart (Linux drivers/pci/pci.c, REQ_ACS_FLAGS).
ISOLATES = SV | RR | CR | UF

PASSTHROUGH, BARE_METAL, VIRTIO = "passthrough_vm", "bare_metal", "virtio_vm"
MODES = (PASSTHROUGH, BARE_METAL, VIRTIO)
# Judged only by how devices are connected: what a guest, a topology file or nvidia-smi shows. No class of hosts.
TOPOLOGY = "topology"


class Position(enum.Enum):
    """Where on a path a port is. Told by the tree: lower ends of switches are towards a device, their upper ends are not."""

    NIC_PORT = "the port towards the NIC"
    GPU_PORT = "the port towards the GPU"
    SWITCH = "another port of the switch"
    ROOT_PORT = "the root port"


@dataclass(frozen=True)
class Bits:
    """Bits of an ACS control word that have to be set and to be clear; what is in neither is left as it is."""

    wanted: int = 0
    barred: int = 0


@dataclass(frozen=True)
class AcsWant:
    """Bits of the ACS control word of one port that have to be set and to be clear, and which place on a path wants that."""

    set_bits: int
    clear_bits: int
    why: str


@dataclass(frozen=True)
class Policy:
    """What one class of hosts wants of the ports and NICs on its paths.

    ``near`` is for pairs below one switch or several, ``far`` for those whose requests go through the root complex. ``ats`` says
    whether a NIC shall have the capability: True, False, or None where nothing asks for either.
    """

    near: Mapping[Position, Bits]
    far: Mapping[Position, Bits]
    ats_near: Union[bool, None] = None
    ats_far: Union[bool, None] = None
    read_request: Union[int, None] = None  # bytes


def _all(bits: Bits) -> dict[Position, Bits]:
    return dict.fromkeys(Position, bits)


# Peers of one guest talk through the switch with translated addresses, all other requests go up to be translated.
_REDIRECTED = Bits(wanted=ISOLATES, barred=TB)
_DIRECT = Bits(wanted=ISOLATES | DT, barred=TB)
# Peers talk through the switch with the addresses that they have.
_OPEN = Bits(barred=SV | RR | CR | UF)

POLICIES: Mapping[str, Policy] = {
    PASSTHROUGH: Policy(
        near={**_all(_REDIRECTED), Position.NIC_PORT: _DIRECT},
        far=_all(_REDIRECTED),
        ats_near=True,
        ats_far=False,
        read_request=4096,  # published recipe of Vela (ASPLOS 2025 artifact)
    ),
    BARE_METAL: Policy(near=_all(_OPEN), far=_all(Bits()), ats_near=False, ats_far=False),
    VIRTIO: Policy(near=_all(Bits()), far=_all(Bits())),
    TOPOLOGY: Policy(near=_all(Bits()), far=_all(Bits())),
}
