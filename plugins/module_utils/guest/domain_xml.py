# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest as libvirt is to have it: the domain's XML, in the order in which libvirt prints one. Pure.

Not in it, each for a reason: ``<iommufd>`` (it does not map the regions of other devices, so that a NIC could not reach a GPU),
``<driver ats='on'/>`` of controllers (libvirt stores it and tells nobody), a balloon (it would take pinned pages), USB, sound and
screen (nobody looks).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Union

from ..core.ranges import ranges
from ..pci.address import Address
from .buses import Controller, Kind, Place
from .model import MIB, Device, Guest
from .options import Firmware
from .xml_output import Tag, Value, tag, text_of

# Of our element in <metadata>, and so not to be changed: by it a domain is known as ours.
NAMESPACE = "urn:vela.gpudirect:guest:1"
_QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
_MODELS = {
    Kind.EXPANDER: "pxb-pcie",
    Kind.ROOT_PORT: "pcie-root-port",
    Kind.UPSTREAM: "x3130-upstream",
    Kind.DOWNSTREAM: "xio3130-downstream",
}
# How far up QEMU's pcie-root-port goes by itself (tenths of GT/s), and the words of its x-speed and x-width.
_PORT_SPEED = 160
_SPEED_WORDS = {320: "32", 640: "64"}
_WIDTHS = (1, 2, 4, 8, 12, 16, 32)


def render(guest: Guest) -> str:
    """The document. Its digest is that of all the rest of it, so a domain that was not edited is told from one that was."""
    body = _domain(guest)
    digest = hashlib.sha256(text_of(body).encode()).hexdigest()
    ours = {"xmlns:gpudirect": NAMESPACE, "digest": f"sha256:{digest}"}
    metadata = tag("metadata", None, tag("gpudirect:guest", ours))
    name, uuid, *others = body.children
    return text_of(Tag(body.name, body.attributes, (name, uuid, metadata, *others)))


def alias(device: Device) -> str:
    """The name of a device for libvirt and in QEMU's messages. Names of users begin so (libvirt formatdomain)."""
    return f"ua-{device.name}"


def _domain(guest: Guest) -> Tag:
    qemu = list(_qemu(guest))
    attributes = {"type": guest.options.virt, **({"xmlns:qemu": _QEMU} if qemu else {})}
    memory = guest.memory_mib * MIB >> 10
    return tag(
        "domain", attributes,
        tag("name", None, guest.name),
        tag("uuid", None, guest.uuid),
        tag("memory", {"unit": "KiB"}, memory),
        tag("currentMemory", {"unit": "KiB"}, memory),
        _backing(guest),
        tag("vcpu", {"placement": "static"}, sum(map(len, guest.vcpus))),
        *_iothreads(guest),
        _pins(guest),
        _numa_tuning(guest),
        _os(guest),
        tag("features", None, *_features(guest)),
        _cpu(guest),
        tag(
            "clock", {"offset": "utc"}, tag("timer", {"name": "rtc", "tickpolicy": "catchup"}),
            tag("timer", {"name": "pit", "tickpolicy": "delay"}), tag("timer", {"name": "hpet", "present": "no"}),
        ),
        tag("on_poweroff", None, "destroy"),
        tag("on_reboot", None, "restart"),
        tag("on_crash", None, "destroy"),
        tag("pm", None, tag("suspend-to-mem", {"enabled": "no"}), tag("suspend-to-disk", {"enabled": "no"})),
        tag("devices", None, *_devices(guest)),
        *qemu,
    )  # fmt: skip


def _backing(guest: Guest) -> Tag:
    """Huge pages for all cells, which KSM leaves alone; VFIO pins them in any case."""
    nodes = ranges(range(len(guest.cells)))
    page = tag("page", {"size": guest.page_mib * MIB >> 10, "unit": "KiB", "nodeset": nodes})
    locked = tag("locked") if guest.options.locked else None
    return tag("memoryBacking", None, tag("hugepages", None, page), tag("nosharepages"), locked)


def _iothreads(guest: Guest) -> Iterator[Tag]:
    """One thread for the disk, so that it waits for nobody, where there are processors for it."""
    if guest.options.disk is not None and guest.emulator:
        yield tag("iothreads", None, 1)


def _pins(guest: Guest) -> Tag:
    """Each vCPU on one processor of the host, and all of QEMU's own threads beside them."""
    pairs = ((v, host) for numbers, cell in zip(guest.vcpus, guest.cells) for v, host in zip(numbers, cell.cpus))
    pins = [tag("vcpupin", {"vcpu": vcpu, "cpuset": host}) for vcpu, host in pairs]
    if guest.emulator:
        pins.append(tag("emulatorpin", {"cpuset": ranges(guest.emulator)}))
        if guest.options.disk is not None:
            pins.append(tag("iothreadpin", {"iothread": 1, "cpuset": ranges(guest.emulator)}))
    return tag("cputune", None, *pins)


def _numa_tuning(guest: Guest) -> Tag:
    nodes = [cell.node for cell in guest.cells]
    each = (tag("memnode", {"cellid": at, "mode": "strict", "nodeset": node}) for at, node in enumerate(nodes))
    return tag("numatune", None, tag("memory", {"mode": "strict", "nodeset": ranges(sorted(set(nodes)))}), *each)


def _os(guest: Guest) -> Tag:
    options = guest.options
    kind = tag("type", {"arch": "x86_64", "machine": options.machine}, "hvm")
    inside: list[Union[Tag, None]] = [kind]
    chosen = options.firmware is Firmware.EFI and options.loader is None
    if chosen:
        features = (tag("feature", {"enabled": "no", "name": name}) for name in ("enrolled-keys", "secure-boot"))
        inside.append(tag("firmware", None, *features))
    if options.loader is not None:
        inside.append(tag("loader", {"readonly": "yes", "type": "pflash"}, options.loader.path))
        inside.append(tag("nvram", {"template": options.loader.template}) if options.loader.template else None)
    if options.kernel is not None:
        words = (
            ("kernel", options.kernel.path),
            ("initrd", options.kernel.initrd),
            ("cmdline", options.kernel.arguments),
        )
        inside += [tag(name, None, word) for name, word in words if word]
    return tag("os", {"firmware": "efi"} if chosen else {}, *inside)


def _features(guest: Guest) -> Iterator[Tag]:
    yield tag("acpi")
    yield tag("apic")
    if guest.options.virt == "kvm":
        yield tag("ioapic", {"driver": "kvm"})


def _cpu(guest: Guest) -> Tag:
    """The host's own processor, with its sockets and nodes, and as wide addresses as it has."""
    limit = guest.options.address_limit
    limited = {} if limit is None else {"limit": limit}
    if guest.options.virt == "kvm":
        attributes = {"mode": "host-passthrough", "check": "none", "migratable": "off"}
        own = [tag("cache", {"mode": "passthrough"}), tag("maxphysaddr", {"mode": "passthrough", **limited})]
    else:
        attributes = {"mode": "maximum", "check": "none", "migratable": "off"}
        own = [] if limit is None else [tag("maxphysaddr", {"mode": "emulate", "bits": limit})]
    threads = guest.threads
    counts = {"sockets": threads.sockets, "dies": 1, "cores": threads.cores, "threads": threads.threads}
    cells = (
        tag(
            "cell",
            {"id": at, "cpus": ranges(vcpus), "memory": cell.memory_mib * MIB >> 10, "unit": "KiB"},
        )
        for at, (cell, vcpus) in enumerate(zip(guest.cells, guest.vcpus))
    )
    return tag("cpu", attributes, tag("topology", counts), *own, tag("numa", None, *cells))


def _devices(guest: Guest) -> Iterator[Tag]:
    options = guest.options
    if options.emulator:
        yield tag("emulator", None, options.emulator)
    yield from _disks(guest)
    yield _main_bus(guest)
    yield from (_controller(one) for one in guest.layout.controllers)
    yield tag("controller", {"type": "usb", "index": 0, "model": "none"})
    yield tag("controller", {"type": "virtio-serial", "index": 0}, _at(guest.layout.emulated["agent"]))
    yield from _network(guest)
    yield from _console(guest)
    names = {"type": "virtio", "name": "org.qemu.guest_agent.0"}
    address = tag("address", {"type": "virtio-serial", "controller": 0, "bus": 0, "port": 1})
    yield tag("channel", {"type": "unix"}, tag("target", names), address)
    yield from (_hostdev(one) for one in guest.devices)
    yield tag("memballoon", {"model": "none"})
    source = tag("backend", {"model": "random"}, "/dev/urandom")
    yield tag("rng", {"model": "virtio"}, source, _at(guest.layout.emulated["rng"]))


def _disks(guest: Guest) -> Iterator[Tag]:
    disk = guest.options.disk
    if disk is not None:
        driver: dict[str, Value] = {
            "name": "qemu",
            "type": disk.form,
            "cache": "none",
            "io": "native",
            "discard": "unmap",
        }
        if guest.emulator:
            driver["iothread"] = 1
        yield tag(
            "disk", {"type": "block" if disk.is_block else "file", "device": "disk"}, tag("driver", driver),
            tag("source", {"dev" if disk.is_block else "file": disk.path}), tag("target", {"dev": "vda", "bus": "virtio"}),
            tag("boot", {"order": 1}) if guest.options.kernel is None else None, _at(guest.layout.emulated["disk"]),
        )  # fmt: skip
    if guest.options.seed:
        yield tag(
            "disk", {"type": "file", "device": "cdrom"}, tag("driver", {"name": "qemu", "type": "raw"}),
            tag("source", {"file": guest.options.seed}), tag("target", {"dev": "sda", "bus": "sata"}), tag("readonly"),
        )  # fmt: skip


def _main_bus(guest: Guest) -> Tag:
    """The main bus. Its hole has to be told where QEMU's own is less than what is below."""
    size = tag("pcihole64", {"unit": "KiB"}, guest.window.size >> 10) if guest.window.is_large else None
    return tag("controller", {"type": "pci", "index": 0, "model": "pcie-root"}, size)


def _controller(one: Controller) -> Tag:
    target: dict[str, Value] = {}
    inside: list[Tag] = []
    if one.kind is Kind.EXPANDER:
        target = {"busNr": one.bus}
        inside = [] if one.node is None else [tag("node", None, one.node)]
    elif one.chassis:
        target = {"chassis": one.chassis, "port": f"0x{one.chassis:x}"}
    model = tag("model", {"name": _MODELS[one.kind]})
    attributes: dict[str, Value] = {"type": "pci", "index": one.index, "model": one.kind.value}
    return tag("controller", attributes, model, tag("target", target, *inside) if target else None, _at(one.place))


def _network(guest: Guest) -> Iterator[Tag]:
    network = guest.options.network
    if network is None:
        return
    kind = "bridge" if network.bridge else "network"
    yield tag(
        "interface", {"type": kind}, tag("mac", {"address": guest.mac}),
        tag("source", {kind: network.bridge or network.name}), tag("model", {"type": "virtio"}),
        tag("rom", {"enabled": "no"}), _at(guest.layout.emulated["network"]),
    )  # fmt: skip


def _console(guest: Guest) -> Iterator[Tag]:
    file = guest.options.console_log
    log = tag("log", {"file": file, "append": "on"}) if file else None
    port = tag("target", {"type": "isa-serial", "port": 0}, tag("model", {"name": "isa-serial"}))
    yield tag("serial", {"type": "pty"}, log, port)
    yield tag("console", {"type": "pty"}, log, tag("target", {"type": "serial", "port": 0}))


def _hostdev(device: Device) -> Tag:
    """A device that is on vfio-pci before and after: libvirt is not to give it to another driver between guests."""
    return tag(
        "hostdev", {"mode": "subsystem", "type": "pci", "managed": "no"},
        tag("driver", {"name": "vfio"}), tag("source", None, tag("address", _numbers(device.host))),
        tag("alias", {"name": alias(device)}), tag("rom", {"bar": "off"}), _at(device.place),
    )  # fmt: skip


def _numbers(address: Address) -> dict[str, Value]:
    return {
        "domain": f"0x{address.domain:04x}", "bus": f"0x{address.bus:02x}", "slot": f"0x{address.device:02x}",
        "function": f"0x{address.function:x}",
    }  # fmt: skip


def _at(place: Place) -> Tag:
    """A place in the guest: libvirt's ``bus`` is the index of the controller, whatever number the guest's firmware gives it."""
    return tag("address", {"type": "pci", **_numbers(Address(0, place.controller, place.slot, 0))})


def _qemu(guest: Guest) -> Iterator[Tag]:
    """What libvirt has no element for."""
    arguments = [*_firmware_window(guest), *(_port_links(guest) if guest.options.port_links else ())]
    if arguments:
        yield tag("qemu:commandline", None, *(tag("qemu:arg", {"value": word}) for word in arguments))
    told = [one for one in guest.devices if one.clique is not None]
    if told:
        yield tag("qemu:override", None, *(_clique(one) for one in told))


def _firmware_window(guest: Guest) -> Iterator[str]:
    """The size of OVMF's 64-bit window in MiB, where what it has by itself is less or depends on its version.

    Names below ``opt/ovmf`` are refused by libvirt's own ``<sysinfo type='fwcfg'>`` (seen with 9.0 and 11.3).
    """
    if guest.window.is_large and guest.options.firmware is Firmware.EFI:
        yield from ("-fw_cfg", f"name=opt/ovmf/X-PciMmio64Mb,string={guest.window.size // MIB}")


def _port_links(guest: Guest) -> Iterator[str]:
    """Speed and width of root ports, where the host's links are faster than those that QEMU gives them."""
    speed, width = guest.fallback.speed or 0, guest.fallback.width or 0
    if speed > _PORT_SPEED and speed in _SPEED_WORDS:
        yield from ("-global", f"pcie-root-port.x-speed={_SPEED_WORDS[speed]}")
        if width in _WIDTHS:
            yield from ("-global", f"pcie-root-port.x-width={width}")


def _clique(device: Device) -> Tag:
    value: dict[str, Value] = {"name": "x-nv-gpudirect-clique", "type": "unsigned", "value": device.clique or 0}
    return tag(
        "qemu:device", {"alias": alias(device)}, tag("qemu:frontend", None, tag("qemu:property", value))
    )  # fmt: skip
