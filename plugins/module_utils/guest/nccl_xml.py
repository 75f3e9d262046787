# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest as NCCL is to see it: the file for NCCL_TOPO_FILE, or /var/run/nvidia-topologyd/virtualTopology.xml. Pure.

NCCL takes what is in the file and asks the guest for the rest, so links and classes are those of the host: the emulated ports of a
guest say 2.5 GT/s x1. A device is found by its ``busid`` in the guest; one that does not fit is silently passed over (NCCL
src/graph/xml.cc, topo.cc; seen of a real one: docs/examples/nccl-h200). NVSwitches are not in it: NCCL learns of them from the GPUs'
NVLinks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Union

from .branches import Branch, Lanes, Leaf
from .model import Device, Guest
from .placed import Part
from .xml_output import Tag, Value, tag, text_of

# NCCL's own words for tenths of GT/s: any other word counts as 8 GT/s.
SPEEDS = {
    25: "2.5 GT/s PCIe", 50: "5.0 GT/s PCIe", 80: "8.0 GT/s PCIe", 160: "16.0 GT/s PCIe", 320: "32.0 GT/s PCIe",
    640: "64.0 GT/s PCIe",
}  # fmt: skip
_BRIDGE = "0x060400"
# Ids of a switch: some versions of NCCL look for those that they know. These are nobody's, as in the files of clouds.
_NOBODY = {name: "0xffff" for name in ("vendor", "device", "subsystem_vendor", "subsystem_device")}
_WORD = 32  # bits in each word of a mask


def render(guest: Guest) -> str:
    """The file."""
    cpus = (_cpu(guest, node) for node in range(len(guest.cells)))
    return text_of(tag("system", {"version": 1}, *cpus), '"')


def mask(cpus: Iterable[int], width: int) -> str:
    """Processors as words of 32 bits, the most significant first, as many as ``width`` processors need."""
    value = sum(1 << cpu for cpu in cpus)
    words = range((width - 1) // _WORD, -1, -1)
    return ",".join(f"{value >> (_WORD * word) & 0xFFFFFFFF:08x}" for word in words)


def _cpu(guest: Guest, node: int) -> Tag:
    """A NUMA node. Those without devices are in it too, so that NCCL knows where all processors are."""
    processor, width = guest.processor, sum(map(len, guest.vcpus))
    known: dict[str, Value] = {"numaid": node, "affinity": mask(guest.vcpus[node], width), "arch": "x86_64"}
    told: tuple[tuple[str, Union[Value, None]], ...] = (
        ("vendor", processor.vendor or None), ("familyid", processor.family), ("modelid", processor.model),
    )  # fmt: skip
    # NCCL asks the guest's CPUID for others, only of nodes whose GPUs or NICs a job uses, and fails without: so all nodes say it.
    known.update({key: value for key, value in told if value is not None})
    below = [one for at, root in guest.complexes if at == node for one in root.below]
    return tag("cpu", known, *_branches(guest, below))


def _branches(guest: Guest, below: Iterable[Branch]) -> Iterator[Tag]:
    devices = {one.host: one for one in guest.devices}
    for one in below:
        if isinstance(one, Leaf):
            device = devices[one.host]
            if device.part is not Part.NVSWITCH:
                yield _device(guest, device, one.lanes)
        else:
            inside = tuple(_branches(guest, one.below))
            if inside:
                ids = {"busid": str(guest.switches[one.host]), "class": _BRIDGE, **_NOBODY}
                yield tag("pci", {**ids, **_link(guest, one.lanes)}, *inside)


def _device(guest: Guest, device: Device, lanes: Lanes) -> Tag:
    ids = {"busid": str(device.guest), "class": f"0x{device.class_code:06x}"}
    return tag("pci", {**ids, **_link(guest, lanes)})


def _link(guest: Guest, lanes: Lanes) -> dict[str, Value]:
    speed = lanes.speed if lanes.speed in SPEEDS else guest.fallback.speed
    width = lanes.width or guest.fallback.width or 16
    return {"link_speed": SPEEDS.get(speed or 0, SPEEDS[160]), "link_width": width}
