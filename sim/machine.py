# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turn a host description into QEMU arguments; pure, so that it can be compared with a golden file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sim.describe import NIC_KINDS, Device, Host, Switch

# The image names its management NIC by this slot (sim/recipe/root/etc/systemd/network).
MANAGEMENT_SLOT = 3
BOOT_DISK_SLOT = 4
RNG_SLOT = 5
FIRST_EXTRA_DISK_SLOT = 6
# Ports of a server board: nothing is plugged while it runs, so the kernel starts no hotplug service for them.
FIXED = "hotplug=off"


@dataclass(frozen=True)
class Placement:
    """Where one host keeps its files and sockets on this machine."""

    folder: Path
    sockets: Path
    firmware: Path
    ssh_port: int
    accelerator: str

    @property
    def disk(self) -> Path:
        """The overlay that holds everything the host writes."""
        return self.folder / "disk.qcow2"

    @property
    def variables(self) -> Path:
        """The host's own UEFI variables."""
        return self.folder / "efivars.fd"

    @property
    def console(self) -> Path:
        """The serial log, appended to over all boots."""
        return self.folder / "console.log"

    @property
    def credentials(self) -> Path:
        """A folder with one file for each systemd credential."""
        return self.folder / "credentials"

    def stand_in(self, name: str) -> Path:
        """Backing file of a stand-in disk or an extra file system."""
        return self.folder / f"{name}.img"


def qemu_arguments(host: Host, place: Placement) -> list[str]:
    """Return everything after the program name; the order is part of the golden file."""
    return [
        *_chassis(host, place),
        *_numa(host),
        *_iommu(host),
        *_firmware(place),
        *_boot_disk(host, place),
        *_management(host, place),
        *_extra_disks(host, place),
        *(word for index, switch in enumerate(host.switches) for word in _switch(index, switch)),
        *(word for leaf in _leaves(host) for word in _device(host, place, leaf)),
        *_credentials(host, place),
        *("-serial", "chardev:console", "-chardev"),
        f"file,id=console,path={_escaped(place.console)},append=on",
        *("-qmp", f"unix:{_escaped(place.sockets / (host.name + '.qmp'))},server=on,wait=off"),
    ]


def mac_address(host: str, device: str) -> str:
    """Return a stable MAC in QEMU's range, different for each device of each host."""
    digest = hashlib.sha256(f"{host}/{device}".encode()).digest()
    return "52:54:00:" + ":".join(f"{byte:02x}" for byte in digest[:3])


def link_socket(sockets: Path, host: str, device: str) -> Path:
    """Return the end of a fabric cable that belongs to one NIC of one host."""
    return sockets / f"{host}.{device}"


def socket_paths(host: Host, place: Placement) -> list[Path]:
    """Return every unix socket path that this host's QEMU binds or talks to."""
    nics = [leaf.device for leaf in _leaves(host) if leaf.device.kind in NIC_KINDS]
    own = [link_socket(place.sockets, host.name, nic.name) for nic in nics]
    return [place.sockets / f"{host.name}.qmp", *own]


@dataclass(frozen=True)
class _Leaf:
    device: Device
    place: str


def _leaves(host: Host) -> Iterator[_Leaf]:
    for number, switch in enumerate(host.switches):
        for port, slot in enumerate(switch.slots):
            for function, device in enumerate(slot):
                several = f",addr=0.{function},multifunction=on" if len(slot) > 1 else ""
                yield _Leaf(device, f"bus=sw{number}p{port}{several}")


def _escaped(path: Path) -> str:
    # A comma ends a QEMU option value unless doubled.
    return str(path).replace(",", ",,")


def _chassis(host: Host, place: Placement) -> list[str]:
    accelerator = "tcg,thread=multi" if place.accelerator == "tcg" else place.accelerator
    return [
        *("-name", host.name, "-nodefaults", "-no-user-config", "-display", "none", "-vga", "none"),
        # A reset ends the process and the supervisor starts it again: quicker than a reset inside
        # QEMU, and the machine description is read again, as firmware settings are.
        "-no-reboot",
        *("-machine", "q35,kernel-irqchip=split,max-ram-below-4g=1G"),
        *("-accel", accelerator, "-cpu", "max"),
        *("-smp", _sockets(host), "-m", str(sum(host.memory_mib))),
        *("-rtc", "base=utc,clock=host"),
    ]


def _sockets(host: Host) -> str:
    # One socket a NUMA node: the kernel warns about cores that share a cache across nodes.
    nodes = len(host.memory_mib)
    return f"{host.cpus},sockets={nodes},cores={host.cpus // nodes},threads=1"


def _numa(host: Host) -> Iterator[str]:
    nodes = len(host.memory_mib)
    for node, mib in enumerate(host.memory_mib):
        first, last = host.cpus * node // nodes, host.cpus * (node + 1) // nodes - 1
        yield from ("-object", f"memory-backend-ram,id=m{node},size={mib}M")
        cpus = str(first) if first == last else f"{first}-{last}"
        yield from ("-numa", f"node,nodeid={node},cpus={cpus},memdev=m{node}")


def _iommu(host: Host) -> list[str]:
    if host.iommu == "intel":
        switches = "intremap=on,caching-mode=on,device-iotlb=on,aw-bits=48"
        return ["-device", f"intel-iommu,{switches}"]
    if host.iommu == "amd":
        return ["-device", "amd-iommu,intremap=on,device-iotlb=on"]
    return []


def _firmware(place: Placement) -> list[str]:
    code = _escaped(place.firmware / "OVMF_CODE_4M.fd")
    own = _escaped(place.variables)
    return [
        *("-L", str(place.firmware)),
        *("-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={code}"),
        *("-drive", f"if=pflash,unit=1,format=raw,file={own}"),
    ]


def _boot_disk(host: Host, place: Placement) -> list[str]:
    drive = f"if=none,id=disk,format=qcow2,cache=writeback,discard=unmap,file={_escaped(place.disk)}"
    model = "nvme,serial=boot" if host.boot_disk == "nvme" else "virtio-blk-pci"
    device = f"{model},drive=disk,bus=pcie.0,addr={BOOT_DISK_SLOT:#x},bootindex=1"
    return ["-drive", drive, "-device", device]


def _management(host: Host, place: Placement) -> list[str]:
    forward = f"hostfwd=tcp:127.0.0.1:{place.ssh_port}-10.0.2.15:22"
    device = f"virtio-net-pci,netdev=mgmt,bus=pcie.0,addr={MANAGEMENT_SLOT:#x}"
    return [
        *("-netdev", f"user,id=mgmt,ipv6=off,{forward}"),
        *("-device", f"{device},romfile=,mac={mac_address(host.name, 'mgmt')}"),
        *("-device", f"virtio-rng-pci,bus=pcie.0,addr={RNG_SLOT:#x}"),
    ]


def _extra_disks(host: Host, place: Placement) -> Iterator[str]:
    for slot, filesystem in enumerate(host.filesystems, start=FIRST_EXTRA_DISK_SLOT):
        file = _escaped(place.stand_in(filesystem.label))
        yield from ("-drive", f"if=none,id={filesystem.label},format=raw,file={file}")
        yield from ("-device", f"virtio-blk-pci,drive={filesystem.label},bus=pcie.0,addr={slot:#x}")


def _switch(number: int, switch: Switch) -> Iterator[str]:
    expander = f"pxb-pcie,id=pxb{number},bus_nr={switch.bus},numa_node={switch.numa_node}"
    yield from ("-device", f"{expander},bus=pcie.0,addr={0x10 + number:#x}")
    yield from ("-device", f"pcie-root-port,id=rp{number},bus=pxb{number},chassis={number + 1},{FIXED}")
    yield from ("-device", f"x3130-upstream,id=sw{number},bus=rp{number}")
    for port, slot in enumerate(switch.slots):
        yield from ("-device", _switch_port(number, port, switch, slot[0]))


def _switch_port(number: int, port: int, switch: Switch, device: Device) -> str:
    place = f"id=sw{number}p{port},bus=sw{number},addr={port:#x},chassis={16 * (number + 1) + port}"
    if not switch.acs:
        return f"xio3130-downstream,{place}"
    # A root port below the upstream port: the only switch port in QEMU that has ACS.
    options = ("" if device.acs else ",disable-acs=on") + (f",x-width={device.lanes}" if device.lanes > 1 else "")
    return f"pcie-root-port,{place},{FIXED}{options}"


def _device(host: Host, place: Placement, leaf: _Leaf) -> list[str]:
    device, name = leaf.device, leaf.device.name
    if device.kind == "empty":
        return []
    if device.kind == "testdev":
        return ["-device", f"pci-testdev,id={name},{leaf.place},membar={device.bar_mib}M"]
    if device.kind == "nvme":
        file = _escaped(place.stand_in(name))
        return [
            *("-drive", f"if=none,id={name}-disk,format=raw,file={file}"),
            *("-device", f"nvme,id={name},serial={device.serial or name},drive={name}-disk,{leaf.place}"),
        ]
    model = "igb" if device.kind == "igb" else "virtio-net-pci"
    extra = "" if device.kind == "igb" else ",disable-legacy=on,iommu_platform=on,ats=on"
    mac = mac_address(host.name, device.serial or name)
    return [
        *("-netdev", _cable(host, place, name)),
        *("-device", f"{model},id={name},netdev={name}-cable,{leaf.place},romfile=,mac={mac}{extra}"),
    ]


def _cable(host: Host, place: Placement, nic: str) -> str:
    own = _escaped(link_socket(place.sockets, host.name, nic))
    # Without a peer the cable ends at a path nobody binds: link up, nobody at the other end.
    far = _escaped(link_socket(place.sockets, host.peer or "nobody", nic))
    ends = f"local.type=unix,local.path={own},remote.type=unix,remote.path={far}"
    return f"dgram,id={nic}-cable,{ends}"


def _credentials(host: Host, place: Placement) -> Iterator[str]:
    for name in credential_names(host):
        file = _escaped(place.credentials / name)
        yield from ("-fw_cfg", f"name=opt/io.systemd.credentials/{name},file={file}")


def credential_names(host: Host) -> list[str]:
    """Return the systemd credentials that carry this host's identity into the shared image."""
    names = ["system.hostname", "system.machine_id", "tmpfiles.extra"]
    if host.ssh_user == "root":
        names.append("ssh.authorized_keys.root")
    else:
        names.append("sysusers.extra")
    if host.filesystems or wide_links(host):
        names.append("fstab.extra")
    return names


def wide_links(host: Host) -> dict[str, int]:
    """Return sysfs folders of devices that are made for more lanes than their link has, and these lanes.

    QEMU gives every endpoint one lane and says so in its capability; what can be told by an option is the port's width
    alone (x-width). So the host lays a file over what sysfs says of the device.
    """
    folders = {}
    for switch in host.switches:
        # The firmware numbers buses in the order of ports: the root port's, the switch's, then one for each port.
        root = f"/sys/devices/pci0000:{switch.bus:02x}/0000:{switch.bus:02x}:00.0/0000:{switch.bus + 1:02x}:00.0"
        for port, (device, *_others) in enumerate(switch.slots):
            if device.lanes > 1:
                place = f"0000:{switch.bus + 2:02x}:{port:02x}.0/0000:{switch.bus + 3 + port:02x}:00.0"
                folders[f"{root}/{place}"] = device.lanes
    return folders
