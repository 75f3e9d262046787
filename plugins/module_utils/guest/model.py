# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One guest as data: what both its libvirt domain and its NCCL topology file are made from, so that they cannot disagree. Pure."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Union

from ..core.errors import IntentError, Problem
from ..pci.address import Address
from ..pci.machine import Machine
from ..pci.nccl_oddities import lacking
from .branches import Complex, Lanes, complexes_of, leaves, switches
from .buses import Layout, Place, Root, layout, made_up
from .options import Firmware, Options, Processor, Topology, checked
from .placed import Cell, Given, Part, Placed
from .windows import LARGEST, Window, bits_for, window_of

LAST_DOMAIN = 0xFFFF  # libvirt: a PCI address of a host has a domain of 16 bits
# More of them need interrupt remapping in the guest, which a guest without an IOMMU of its own has not (libvirt, QEMU).
MOST_CPUS = 255
NVIDIA = 0x10DE
MIB = 1 << 20
# Each has a root port of its own on the main bus, in this order; the numbers of the others' buses follow from it.
_EMULATED = ("disk", "network", "agent", "rng")


@dataclass(frozen=True)
class Device:
    """One passed-through device. ``guest`` is its address there, ``node`` the guest's NUMA node (NCCL's numaid)."""

    name: str  # gpu0, vf0, nvswitch0, by address on the host
    part: Part
    host: Address
    host_node: Union[int, None]
    beside: Union[Address, None]  # the GPU that a VF is for, by its address on the host
    place: Place
    guest: Address
    node: int
    vendor: int
    device: int
    class_code: int
    mac: str = ""
    clique: Union[int, None] = None


@dataclass(frozen=True)
class Threads:
    """The guest's processors as sockets, cores and threads."""

    sockets: int
    cores: int
    threads: int


@dataclass(frozen=True)
class Guest:
    """Everything about one guest. ``complexes`` has the host's root complexes, each with the guest's node that it is on.

    ``vcpus`` are the numbers of each cell's vCPUs. ``address_bits`` is the least width of physical addresses that it can do with.
    """

    name: str
    uuid: str
    mac: str
    page_mib: int
    cells: tuple[Cell, ...]
    vcpus: tuple[tuple[int, ...], ...]
    threads: Threads
    emulator: tuple[int, ...]
    devices: tuple[Device, ...]
    complexes: tuple[tuple[int, Complex], ...]
    layout: Layout
    switches: Mapping[Address, Address] = field(hash=False)
    fallback: Lanes
    window: Window
    address_bits: int
    processor: Processor
    options: Options
    notes: tuple[str, ...] = ()

    @property
    def memory_mib(self) -> int:
        """All of its memory."""
        return sum(cell.memory_mib for cell in self.cells)

    def on_host(self, address: Address) -> Device:
        """The device with an address on the host."""
        return next(one for one in self.devices if one.host == address)


def model_of(machine: Machine, placed: Placed, options: Options) -> Guest:
    """The guest; IntentError with every reason for which it cannot be."""
    path = f"guest.{placed.shape.name}"
    options = checked(placed.shape.name, options)
    problems = [*_devices(path, machine, placed), *_told(path, machine, placed, options), *_cells(path, placed)]
    if problems:
        raise IntentError(problems)
    given = sorted(placed.devices, key=lambda one: one.address)
    notes = list(placed.notes)
    complexes = tuple(
        (_cell(placed.cells, one, given, notes), one) for one in complexes_of(machine, (one.address for one in given))
    )
    tree = layout(path, (Root(node, one.below) for node, one in complexes), _emulated(options), options.topology)
    window = window_of(machine, (one.address for one in given))
    memory = sum(cell.memory_mib for cell in placed.cells) * MIB
    bits = bits_for(memory, window.size)
    problems = list(_width(path, options, window, bits))
    if problems:
        raise IntentError(problems)
    notes += remarks(options.firmware, window)
    uuid = options.uuid or _uuid(machine.name, placed.shape.name)
    return Guest(
        name=placed.shape.name, uuid=uuid, mac=_mac(uuid, options), page_mib=placed.shape.page_mib, cells=placed.cells,
        vcpus=_vcpus(placed.cells), threads=_threads(placed.cells), emulator=placed.emulator,
        devices=tuple(_named(machine, given, complexes, tree, options)), complexes=complexes, layout=tree,
        switches=_switches(complexes, tree), fallback=_fallback(complexes, notes), window=window, address_bits=bits,
        processor=_processor(machine, placed.cells, options, notes), options=options, notes=tuple(dict.fromkeys(notes)),
    )  # fmt: skip


def _devices(path: str, machine: Machine, placed: Placed) -> Iterator[Problem]:
    counted = Counter(one.address for one in placed.devices)
    for address, times in sorted(counted.items()):
        where = f"{path}.devices.{address}"
        if times > 1:
            advice = "Place the guests of this host anew."
            yield Problem(where, "is given to the guest more than once", advice, f"{times} times", "once")
        if machine.tree.get(address) is None:
            advice = "Read the host again, and place its guests anew."
            yield Problem(where, "is not in the host's PCI tree", advice)
        if address.domain > LAST_DOMAIN:
            advice = "Switch off in the firmware setup what makes such domains (VMD), or take another device."
            yield Problem(
                where, "cannot be passed through by libvirt", advice, f"domain {address.domain:#x}", "at most 0xffff"
            )
    for one in placed.devices:
        if one.beside is not None and one.beside not in counted:
            advice = "Place the guests of this host anew."
            yield Problem(f"{path}.devices.{one.address}", f"is for {one.beside}, which the guest does not get", advice)


def _told(path: str, machine: Machine, placed: Placed, options: Options) -> Iterator[Problem]:
    """What the inventory says of single devices."""
    parts = {one.address: one.part for one in placed.devices}
    for address in sorted(options.macs):
        if parts.get(address) is not Part.VF:
            yield Problem(f"{path}.macs.{address}", "is no VF of this guest", "Leave it out.")
    for address in sorted(options.cliques):
        function = machine.tree.get(address)
        if parts.get(address) is not Part.GPU or function is None or function.vendor != NVIDIA:
            advice = "Leave it out: QEMU refuses a clique for anything else."
            yield Problem(f"{path}.cliques.{address}", "is no NVIDIA GPU of this guest", advice)


def _cells(path: str, placed: Placed) -> Iterator[Problem]:
    again = "Place the guests of this host anew."
    if not placed.cells:
        yield Problem(f"{path}.cells", "has no processors and no memory", again)
    for number, cell in enumerate(placed.cells):
        where = f"{path}.cells.{number}"
        if not cell.cpus or cell.threads < 1 or len(cell.cpus) % cell.threads:
            found = f"{len(cell.cpus)} processors, {cell.threads} of a core"
            yield Problem(where, "has no whole cores", again, found=found)
        if cell.memory_mib <= 0 or cell.memory_mib % placed.shape.page_mib:
            found, wanted = f"{cell.memory_mib} MiB", f"a multiple of {placed.shape.page_mib} MiB"
            yield Problem(where, "has memory that is no number of pages", again, found, wanted)
    counted = Counter(cpu for cell in placed.cells for cpu in cell.cpus)
    for cpu in sorted(cpu for cpu, times in counted.items() if times > 1):
        yield Problem(f"{path}.cells", f"has processor {cpu} of the host more than once", again)
    if sum(counted.values()) > MOST_CPUS:
        found, advice = str(sum(counted.values())), "Ask for fewer vCPUs: more need an IOMMU in the guest."
        yield Problem(f"{path}.cells", "has too many vCPUs", advice, found, f"at most {MOST_CPUS}")


def _width(path: str, options: Options, window: Window, bits: int) -> Iterator[Problem]:
    if window.size > LARGEST:
        advice = "Give the guest fewer devices, or make their regions smaller in the firmware setup."
        found, wanted = f"{window.size >> 30} GiB", f"at most {LARGEST >> 30} GiB"
        yield Problem(
            f"{path}.devices", "have larger regions than the guest's firmware has room for", advice, found, wanted
        )
    have = min((one for one in (options.address_bits, options.address_limit) if one is not None), default=None)
    if have is not None and have < bits:
        advice = "Give the guest fewer GPUs or less memory, or raise the limit where the processor has more."
        what = f"needs more physical addresses than there are ({window.size >> 30} GiB for regions, and its memory)"
        yield Problem(f"{path}.address_bits", what, advice, f"{have} bits", f"{bits} bits")


def remarks(firmware: Firmware, window: Window) -> Iterator[str]:
    """What is to be known of the room for a guest's regions, and does not stop it."""
    if window.unread:
        names = ", ".join(map(str, window.unread))
        yield f"the regions of {names} are not known: the guest's 64-bit window has no room counted for them"
    if firmware is Firmware.BIOS and window.is_large:
        yield "the guest starts with a BIOS, which has no room for its large regions: take firmware: efi"


def _emulated(options: Options) -> Iterator[str]:
    there = {"disk": options.disk is not None, "network": options.network is not None}
    return (name for name in _EMULATED if there.get(name, True))


def _cell(cells: tuple[Cell, ...], one: Complex, given: list[Given], notes: list[str]) -> int:
    """The guest's node of a root complex: the first on the host's node of its devices."""
    here = {leaf.host for leaf in leaves(one.below)}
    told = [each.node for each in given if each.address in here and each.node is not None]
    if len(set(told)) > 1:
        notes.append(f"devices below {one.root_bus} are on several NUMA nodes; the guest has them on that of the first")
    if not told:
        notes.append(f"the NUMA node of {one.root_bus} is not known; the guest has it on its node 0")
        return 0
    found = next((number for number, cell in enumerate(cells) if cell.node == told[0]), None)
    if found is None:
        notes.append(f"{one.root_bus} is on node {told[0]}, of which the guest has nothing; it has it on its node 0")
    return found or 0


def _named(
    machine: Machine, given: list[Given], complexes: tuple[tuple[int, Complex], ...], tree: Layout, options: Options
) -> Iterator[Device]:
    nodes = {leaf.host: node for node, one in complexes for leaf in leaves(one.below)}
    counted: Counter[Part] = Counter()
    for one in given:
        function = machine.tree.functions[one.address]
        yield Device(
            name=f"{one.part.value}{counted[one.part]}", part=one.part, host=one.address, host_node=one.node,
            beside=one.beside, place=tree.places[one.address], guest=tree.addresses[one.address],
            node=nodes[one.address], vendor=function.vendor, device=function.device, class_code=function.class_code,
            mac=options.macs.get(one.address, ""), clique=options.cliques.get(one.address),
        )  # fmt: skip
        counted[one.part] += 1


def _vcpus(cells: tuple[Cell, ...]) -> tuple[tuple[int, ...], ...]:
    found, first = [], 0
    for cell in cells:
        found.append(tuple(range(first, first + len(cell.cpus))))
        first += len(cell.cpus)
    return tuple(found)


def _threads(cells: tuple[Cell, ...]) -> Threads:
    """A socket for each cell where they are alike; otherwise one socket, and threads only where all have as many."""
    threads = cells[0].threads if len({cell.threads for cell in cells}) == 1 else 1
    sockets = len(cells) if len({len(cell.cpus) for cell in cells}) == 1 else 1
    return Threads(sockets, sum(len(cell.cpus) for cell in cells) // sockets // threads, threads)


def _switches(complexes: tuple[tuple[int, Complex], ...], tree: Layout) -> Mapping[Address, Address]:
    """Each switch of the host that matters, as NCCL is told it: it also is where the guest's tree has no switches."""
    found = [switch.host for _node, one in complexes for switch in switches(one.below)]
    return tree.switches if set(found) == set(tree.switches) else made_up(found)


def _fallback(complexes: tuple[tuple[int, Complex], ...], notes: list[str]) -> Lanes:
    """For links of which the host tells nothing: the best of the others. The emulated ports' 2.5 GT/s x1 would mislead NCCL."""
    everything: list[Lanes] = []
    for _node, one in complexes:
        everything += [leaf.lanes for leaf in leaves(one.below)] + [switch.lanes for switch in switches(one.below)]
    if any(lanes.speed is None or lanes.width is None for lanes in everything):
        notes.append("some links of the host are not known; the NCCL file has the best of the others for them")
    speeds = [lanes.speed for lanes in everything if lanes.speed is not None]
    widths = [lanes.width for lanes in everything if lanes.width is not None]
    return Lanes(max(speeds, default=160), max(widths, default=16))


def _processor(machine: Machine, cells: tuple[Cell, ...], options: Options, notes: list[str]) -> Processor:
    """The host's processor. NCCL looks up itself only that of nodes with a GPU or NIC that the job uses, and fails without."""
    told, vendor = options.processor, machine.platform.cpu_vendor
    family, model = (
        one if isinstance(one, int) else None for one in (machine.platform.cpu_family, machine.platform.cpu_model)
    )
    found = Processor(
        told.vendor or (vendor if isinstance(vendor, str) else ""),
        family if told.family is None else told.family,
        model if told.model is None else told.model,
    )
    if len(cells) > 1 and lacking(found.vendor, (found.family, found.model)):
        lacks = "the host does not tell all of its processor's maker, family and model"
        notes.append(f"{lacks}: NCCL fails with the file in a job that uses no GPU of one of the guest's nodes")
    return found


def _uuid(host: str, name: str) -> str:
    """The same on every run, and another one on every host: guests of racks often have the same names (RFC 9562, version 8)."""
    drawn = bytearray(hashlib.sha256(f"vela.gpudirect guest {host}/{name}".encode()).digest()[:16])
    drawn[6], drawn[8] = drawn[6] & 0x0F | 0x80, drawn[8] & 0x3F | 0x80
    text = drawn.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _mac(uuid: str, options: Options) -> str:
    """Of the management network, in the range that QEMU's guests have (52:54:00)."""
    if options.network is None:
        return ""
    drawn = hashlib.sha256(f"{uuid} network".encode()).digest()[:3].hex(":")
    return options.network.mac.lower().replace("-", ":") or f"52:54:00:{drawn}"


__all__ = ["Device", "Guest", "Options", "Threads", "Topology", "model_of", "remarks"]
