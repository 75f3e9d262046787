"""What the host, a guest or a program needs is not taken: refused before the first write, or left to a boot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Disruption
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import (
    ConsentRequired,
    VerificationFailed,
)
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Connection

from tests.fixtures import fake_machines
from tests.fixtures.driver_hosts import BOTH, NVMES, VELA, built, devices, look, refused, run, settle, vela
from tests.fixtures.fake_drivers import FakeDrivers, Module, catalog
from tests.fixtures.fake_nic import Upper

EFI = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b"
DRIVE = "0000:23:00.0"


@pytest.fixture
def host(tmp_path: Path) -> FakeDrivers:
    return built(tmp_path / "root")


@pytest.fixture
def server(tmp_path: Path) -> FakeDrivers:
    return built(tmp_path / "root", "vela")


# Disks -----------------------------------------------------------------------------------


def swap(host: FakeDrivers) -> None:
    host.put("/proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n/dev/nvme0n1p3 partition\t1\t0\t-2\n")


def mark(host: FakeDrivers, name: str, *lines: str) -> None:
    """What udev keeps of a block device."""
    number = host.text(f"/sys/class/block/{name}/dev").strip()
    host.put(f"/run/udev/data/b{number}", "S:disk/by-id/x\n" + "".join(f"E:{line}\n" for line in lines))


DISKS: dict[str, tuple[Callable[[FakeDrivers], object], str]] = {
    "mounted": (lambda host: host.mount("nvme0n1p1", "/srv/data set"), "nvme0n1p1 is mounted at /srv/data set"),
    "mounted whole": (lambda host: host.mount("nvme0n1", "/data"), "nvme0n1 is mounted at /data"),
    "swap": (swap, "nvme0n1p3 is swap space"),
    "lvm or md": (lambda host: host.put("/sys/class/block/nvme0n1p2/holders/dm-0", ""), "dm-0 lies on nvme0n1p2"),
    "btrfs": (lambda host: host.put("/sys/fs/btrfs/5d3f/devices/nvme0n1p2", ""), "nvme0n1p2 is part of the btrfs 5d3f"),
    "efi": (lambda host: mark(host, "nvme0n1p1", f"ID_PART_ENTRY_TYPE={EFI}"), "nvme0n1p1 is an EFI system partition"),
    "efi on dos": (lambda host: mark(host, "nvme0n1p1", "ID_PART_ENTRY_TYPE=0xef"), "is an EFI system partition"),
    "bios": (
        lambda host: mark(host, "nvme0n1p1", "ID_PART_ENTRY_TYPE=21686148-6449-6E6F-744E-656564454649"),
        "nvme0n1p1 is a BIOS boot partition",
    ),
    "zfs": (
        lambda host: (mark(host, "nvme0n1p1", "ID_FS_TYPE=zfs_member"), host.put("/proc/spl/kstat/zfs/x", "")),
        "nvme0n1p1 is part of a ZFS pool",
    ),
    "fstab": (
        lambda host: (
            mark(host, "nvme0n1p1", "ID_FS_UUID=0a1b-2c", "ID_FS_LABEL=x"),
            host.put("/etc/fstab", '# UUID=1 /\nUUID=ffff / ext4\nUUID="0a1b-2c"  /srv xfs nofail 0 0\n'),
        ),
        "nvme0n1p1 is in /etc/fstab",
    ),
    "crypttab": (
        lambda host: (
            mark(host, "nvme0n1p2", "ID_PART_ENTRY_UUID=33-44"),
            host.put("/etc/crypttab", "secret PARTUUID=33-44 none luks\n"),
        ),
        "nvme0n1p2 is in /etc/crypttab",
    ),
    "by a link": (
        lambda host: (mark(host, "nvme0n1p3"), host.put("/etc/fstab", "/dev/disk/by-id/x /a ext4\n")),
        "nvme0n1p3 is in /etc/fstab",
    ),
    "open": (lambda host: host.processes.update({77: ["/dev/nvme0n1p1"]}), "/dev/nvme0n1p1 is open in process (77)"),
    "guest's disk": (lambda host: host.processes.update({77: ["/dev/nvme0n1"]}), "/dev/nvme0n1 is open in"),
}


@pytest.mark.parametrize("shared", [False, True], ids=["plain", "multipath"])
@pytest.mark.parametrize("use", DISKS)
def test_a_disk_in_use_is_refused(tmp_path: Path, use: str, shared: bool) -> None:
    machine = fake_machines.rack()
    disk = machine[DRIVE].disks[0]
    disk.partitions, disk.shared = 3, shared
    host = built(tmp_path / "root", machine)
    prepare, said = DISKS[use]
    prepare(host)
    message = refused(NVMES, host)
    assert f"pci_driver_devices[0].select: {DRIVE} (1b36:0010" in message
    assert said in message
    assert "0000:43:00.0" not in message


def test_the_boot_disk_is_refused(host: FakeDrivers) -> None:
    message = refused(devices(("all", {"vendor": "1af4", "class": "0100"})), host)
    assert "vda1 is mounted at /" in message
    assert host.lost == []


def test_a_mount_that_names_only_its_source_counts(host: FakeDrivers) -> None:
    """The device number of a btrfs is of no disk."""
    host.put("/proc/self/mountinfo", "29 1 0:37 /@ / rw - btrfs /dev/nvme0n1 rw\n")
    assert "nvme0n1 is mounted at /" in refused(NVMES, host)


def test_without_the_list_of_mounts_every_disk_may_be_mounted(host: FakeDrivers) -> None:
    host.path("/proc/self/mountinfo").unlink()
    assert "nvme0n1 may be mounted: /proc/self/mountinfo cannot be read" in refused(NVMES, host)


def test_what_is_open_must_be_known(host: FakeDrivers) -> None:
    host.blind = "the open files of process 1 cannot be read: Permission denied"
    assert "who uses it cannot be told (the open files of process 1" in refused(NVMES, host)


def test_disks_that_have_nothing_of_the_host_are_taken(host: FakeDrivers) -> None:
    mark(host, "nvme0n1", "ID_FS_TYPE=ext4", "ID_PART_TABLE_TYPE=gpt")
    assert run(NVMES, host).verified


def test_disks_behind_a_controller_that_makes_buses_of_its_own(tmp_path: Path) -> None:
    machine = fake_machines.rack()
    vmd = machine.plug(
        machine.roots[0], "0e.0", vendor=0x8086, device=0x28C0, class_code=0x010400, own_driver="vmd", link=None
    )
    root = machine.root(0x00, domain=0x10000, under=machine.path(vmd))
    machine.nvme(machine.port(root, "02.0"), "S4BEHIND", "nvme9n1")
    host = built(tmp_path / "root", machine, modules=catalog(Module("vmd", ("vmd",), builtin=True)))
    host.mount("nvme9n1", "/var")
    message = refused(devices(("vmd", {"class": "0104"})), host)
    assert "nvme9n1 is mounted at /var" in message


# The network -----------------------------------------------------------------------------

IGB = devices(("nic", {"device": "10c9"}))


def test_the_nic_of_the_default_route_is_refused(host: FakeDrivers) -> None:
    message = refused(devices(("all", {"device": "1041"})), host)
    assert "0000:00:03.0" in message
    assert "enp0s3: it carries the default route" in message
    assert "0000:26:00.0" not in message


def test_what_lies_below_the_default_route_is_refused(host: FakeDrivers) -> None:
    host.routes = {"-4": [{"dst": "default", "dev": "bond0", "flags": []}]}
    host.machine["0000:24:00.0"].nets[0].master = "bond0"
    host.nics["0000:24:00.0"].master = "bond0"
    host.uppers.append(Upper("bond0", "bond"))
    assert "ens1: it carries the default route (through bond0)" in refused(IGB, host)


def test_the_nic_of_the_connection_is_refused(host: FakeDrivers) -> None:
    host.nics["0000:44:00.0"].addresses = ["192.0.2.7"]
    host.ssh = Connection("192.0.2.1", "192.0.2.7")
    assert "ens2: the connection from 192.0.2.1 comes through it" in refused(IGB, host)


def test_a_nic_below_a_usb_controller_counts(server: FakeDrivers) -> None:
    folder = "/sys/devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0/net/enx0"
    server.put(f"{folder}/address", "02:00:00:00:00:01\n")
    server.path("/sys/class/net/enx0").symlink_to("../../devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0/net/enx0")
    server.routes = {"-6": [{"dst": "default", "dev": "enx0", "flags": []}]}
    assert "enx0: it carries the default route" in refused(devices(("usb", {"class": "0c03"})), server)


def test_an_idle_nic_disrupts_nothing_and_one_with_an_address_the_link(host: FakeDrivers) -> None:
    report = look(IGB, host)
    assert report.plan.blocked_by(Disruption.NOTHING) == ()
    host.nics["0000:44:00.0"].addresses = ["198.51.100.7"]
    blocked = look(IGB, host).plan.blocked_by(Disruption.NOTHING)
    assert [change.path for change in blocked] == ["pci_driver[0000:44:00.0]"]
    assert "ens2 has the address 198.51.100.7" in blocked[0].why
    before = host.disk()
    with pytest.raises(ConsentRequired, match="gpudirect_allow: link"):
        run(IGB, host, allow=Disruption.NOTHING)
    assert host.disk() == before
    assert run(IGB, host, allow=Disruption.LINK).verified


def test_a_pf_with_vfs_is_refused(host: FakeDrivers) -> None:
    host._set_count(host.machine["0000:24:00.0"], 2)
    assert "it has 2 VFs, which would go with its driver" in refused(IGB, host)


# Guests and programs ---------------------------------------------------------------------


def test_a_device_that_a_guest_has_is_not_given_back(host: FakeDrivers) -> None:
    run(NVMES, host)
    host.guest(DRIVE)
    message = refused({}, host)
    assert "pci_driver[0000:23:00.0]: cannot be given back: /dev/vfio/" in message
    assert "is open in qemu-system-x86 (4711)" in message
    stub = devices({"name": "stub", "select": {"address": DRIVE}, "driver": "pci-stub"})
    assert "is open in qemu-system-x86 (4711)" in refused(stub, host)
    host.processes.clear()
    assert run({}, host).verified


def test_a_device_held_through_its_own_vfio_file_counts_too(host: FakeDrivers) -> None:
    run(NVMES, host)
    host.hold(DRIVE, device="vfio3")
    assert "/dev/vfio/devices/vfio3 is open" in refused({}, host)


def test_what_a_guest_has_and_keeps_is_not_touched(host: FakeDrivers) -> None:
    run(BOTH, host)
    host.guest(DRIVE)
    host.guest("0000:25:00.0")
    with host.only_read():
        assert run(BOTH, host).verified
    message = refused(NVMES, host)
    assert "pci_driver[0000:25:00.0]" in message
    assert DRIVE not in message


def test_a_gpu_that_a_program_uses_waits_for_a_boot(server: FakeDrivers) -> None:
    server.processes[99] = ["/dev/nvidia0", "/dev/nvidiactl"]
    server.put("/proc/99/comm", "nvidia-persiste\n")
    report = run(VELA, server)
    waiting = {entry.path: entry.why for entry in report.left.awaiting_reboot}
    gpus = [address for address, driver in server.drivers().items() if driver in ("nvidia", "nvidia-nvswitch")]
    assert len(gpus) == 4
    assert {f"pci_driver[{address}]" for address in gpus} <= waiting.keys()
    assert "/dev/nvidia0 is open in nvidia-persiste (99)" in waiting[f"pci_driver[{gpus[0]}]"]
    assert waiting["pci_driver.module[nvidia]"].startswith("it drives 0000:")
    with server.only_read():
        assert not run(VELA, server).changed
    server.boot()
    assert look(VELA, server).plan.empty


def test_a_gpu_that_shows_the_console_waits_for_a_boot(server: FakeDrivers) -> None:
    (card,) = [one for one in server.machine.devices if one.own_driver == "nouveau"]
    server.put(f"{server.machine.path(card)}/graphics/fb0/name", "nouveaudrmfb\n")
    assert settle(VELA, server) == 1
    assert server.machine[card.address].driver == "vfio-pci"


def test_what_is_still_in_use_after_its_boot_is_a_failure_by_name(tmp_path: Path) -> None:
    machine = vela()
    modules = catalog(Module("nouveau", ("nouveau",), builtin=True))
    server = built(tmp_path / "root", machine, modules=modules)
    (card,) = [one for one in server.machine.devices if one.own_driver == "nouveau"]
    server.put(f"{server.machine.path(card)}/graphics/fb0/name", "nouveaudrmfb\n")
    assert run(VELA, server).left.awaiting_reboot
    server.boot()
    server.put(f"{server.machine.path(card)}/graphics/fb0/name", "nouveaudrmfb\n")
    with pytest.raises(VerificationFailed, match="was written before the last boot and is still not live"):
        run(VELA, server)


def test_rdma_programs_count(server: FakeDrivers) -> None:
    (address,) = [one.address for one in server.machine.devices if one.rdma == ["mlx5_0"]]
    server.put(f"/sys/bus/pci/devices/{address}/infiniband_verbs/uverbs0/ibdev", "mlx5_0\n")
    server.processes[5] = ["/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm"]
    report = look(devices(("nic", {"address": address})), server)
    (waiting,) = report.plan.awaiting_reboot
    assert "/dev/infiniband/uverbs0 is open in process (5)" in waiting.why
    assert "rdma_cm" not in waiting.why
