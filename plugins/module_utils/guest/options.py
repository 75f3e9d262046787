# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a guest is to be besides what placement gives it. Data only, with the mistakes that can be seen in it alone."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Union

from ..core.errors import IntentError, Problem
from ..pci.address import Address
from ..vf.mac import canonical_mac

# Names of files are made from it: logs, NVRAM. libvirt itself refuses a slash only.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")  # no document of XML 1.0 has them, and no value here needs one
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
CLIQUES = range(16)  # QEMU hw/vfio/pci-quirks.c: four bits


class Topology(enum.Enum):
    """How the guest's PCI tree is made.

    ``switches`` has the host's switches as emulated ones, so that GPU and VF are PIX or PXB; ``root_ports`` has one root port
    for each device below expander buses, so that NUMA nodes are right; ``flat`` has them on the guest's main bus.
    """

    SWITCHES = "switches"
    ROOT_PORTS = "root_ports"
    FLAT = "flat"


class Firmware(enum.Enum):
    """Who starts the guest. ``bios`` has no room for large regions; it is for guests of tests."""

    EFI = "efi"
    BIOS = "bios"


@dataclass(frozen=True)
class Loader:
    """A firmware image by its path. ``template``: the file from which the guest's variables are made."""

    path: str
    template: str = ""


@dataclass(frozen=True)
class Disk:
    """A file or block device of the host as the guest's disk."""

    path: str
    form: str = "qcow2"  # or raw
    is_block: bool = False


@dataclass(frozen=True)
class Network:
    """The management network: one of libvirt's by ``name``, or a ``bridge``. ``mac`` empty: made from the guest's UUID."""

    name: str = ""
    bridge: str = ""
    mac: str = ""


@dataclass(frozen=True)
class Kernel:
    """A kernel that QEMU starts itself, for guests of tests."""

    path: str
    initrd: str = ""
    arguments: str = ""


@dataclass(frozen=True)
class Processor:
    """The host's processor as NCCL names it: family and model decide how fast it takes the link between sockets to be."""

    vendor: str = ""  # empty: as the host says
    family: Union[int, None] = None
    model: Union[int, None] = None


@dataclass(frozen=True)
class Options:
    """The wishes for one guest. ``macs`` and ``cliques`` are told by host address of the device.

    ``address_bits`` is the host's width of physical addresses (None: not told, not checked); ``address_limit`` a lesser one for the
    guest, for an IOMMU that is narrower than the processor. ``port_links`` gives emulated root ports the best link of the
    devices below: only for a QEMU that knows the speed (32 GT/s from 9.0 on).
    """

    topology: Topology = Topology.SWITCHES
    virt: str = "kvm"  # or qemu: emulation
    machine: str = "q35"
    emulator: str = ""
    firmware: Firmware = Firmware.EFI
    loader: Union[Loader, None] = None  # None: libvirt chooses by the descriptors of the distribution
    kernel: Union[Kernel, None] = None
    disk: Union[Disk, None] = None
    seed: str = ""  # the ISO image of cloud-init
    network: Union[Network, None] = None
    console_log: str = ""
    locked: bool = False
    uuid: str = ""  # empty: made from the names of host and guest
    address_bits: Union[int, None] = None
    address_limit: Union[int, None] = None
    port_links: bool = False
    processor: Processor = Processor()
    macs: Mapping[Address, str] = field(default_factory=dict, hash=False)
    cliques: Mapping[Address, int] = field(default_factory=dict, hash=False)


def checked(name: str, options: Options) -> Options:
    """The options with canonical MACs; IntentError with every mistake in them."""
    path = f"guest.{name}"
    problems = [*_words(path, name, options), *_alternatives(path, options), *_cliques(path, options)]
    macs: dict[Address, str] = {}
    for address, text in sorted(options.macs.items()):
        try:
            macs[address] = canonical_mac(f"{path}.macs.{address}", text)
        except IntentError as error:
            problems += error.problems
    owners: dict[str, Address] = {}
    for address, mac in macs.items():
        first = owners.setdefault(mac, address)
        if first != address:
            advice = "Give each VF an address of its own."
            problems.append(Problem(f"{path}.macs.{address}", f"is the address of {first} too", advice, found=mac))
    if problems:
        raise IntentError(problems)
    known = {one.name: getattr(options, one.name) for one in fields(options)}
    return Options(**{**known, "macs": macs})


def _words(path: str, name: str, options: Options) -> Iterator[Problem]:
    if _NAME.fullmatch(name) is None:
        advice = "Rename the guest."
        wanted = "at most 63 letters, digits, dots, dashes and underscores, the first a letter or digit"
        yield Problem(path, "cannot be the name of a guest", advice, found=repr(name), wanted=wanted)
    for place, text in _texts("", options):
        if _CONTROL.search(text):
            yield Problem(f"{path}.{place}", "has a control character in it", "Write it without.", found=repr(text))


def _texts(above: str, value: Any) -> Iterator[tuple[str, str]]:
    """Every string of the options with its dotted place."""
    for one in fields(value):
        inner = getattr(value, one.name)
        place = f"{above}{one.name}"
        if isinstance(inner, str):
            yield place, inner
        elif isinstance(inner, (Loader, Disk, Network, Kernel, Processor)):
            yield from _texts(f"{place}.", inner)


def _alternatives(path: str, options: Options) -> Iterator[Problem]:
    network = options.network
    if network is not None and bool(network.name) == bool(network.bridge):
        found = "both" if network.name else "neither"
        yield Problem(f"{path}.network", "is a network of libvirt or a bridge", "Give one of them.", found=found)
    if network is not None and network.mac:
        try:
            canonical_mac(f"{path}.network.mac", network.mac)
        except IntentError as error:
            yield from error.problems
    if options.virt not in ("kvm", "qemu"):
        yield Problem(f"{path}.virt", "is no kind of guest", "Take kvm.", found=options.virt, wanted="kvm or qemu")
    if options.disk is not None and options.disk.form not in ("qcow2", "raw"):
        yield Problem(f"{path}.disk", "has a form that is not known", "Convert it.", options.disk.form, "qcow2 or raw")
    if options.disk is None and options.kernel is None:
        yield Problem(path, "has nothing to start from", "Give it a disk.", found="no disk and no kernel")
    if options.uuid and _UUID.fullmatch(options.uuid) is None:
        yield Problem(
            f"{path}.uuid", "is no UUID", "Leave it out.", found=options.uuid, wanted="lower case, with dashes"
        )
    if options.loader is not None and options.firmware is Firmware.BIOS:
        yield Problem(f"{path}.loader", "is for EFI only", "Leave out the loader, or set firmware: efi.")


def _cliques(path: str, options: Options) -> Iterator[Problem]:
    for address, number in sorted(options.cliques.items()):
        if number not in CLIQUES:
            advice = "Number the cliques of a guest from 0."
            yield Problem(f"{path}.cliques.{address}", "is no clique", advice, found=str(number), wanted="0 to 15")
