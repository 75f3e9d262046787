"""What is refused before the first write: devices that the host, a guest or somebody else needs, and wrong groups."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import pci_driver
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Disruption, Unreadable
from ansible_collections.vela.gpudirect.plugins.module_utils.core.converge import bring
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import (
    ConsentRequired,
    GpudirectError,
    HostRefused,
    UnreadableState,
    VerificationFailed,
)
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Connection, Host

from tests.fixtures import fake_machines
from tests.fixtures.driver_hosts import BOTH, NVMES, TESTDEVS, VELA, built, devices, look, run, settle, vela
from tests.fixtures.fake_drivers import FakeDrivers, Module, catalog
from tests.fixtures.fake_nic import Upper
from tests.fixtures.fake_pci import Machine

EFI = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b"
DRIVE = "0000:23:00.0"


def refused(intent: dict[str, Any], host: FakeDrivers, kind: type[GpudirectError] = HostRefused) -> str:
    """The message of a run that must not write, and would not in check mode either."""
    before = host.disk(), host.drivers(), host.overrides()
    with pytest.raises(kind) as raised, host.only_read():
        run(intent, host, check=True)
    with pytest.raises(kind) as really, host.only_read():
        run(intent, host)
    assert str(really.value) == str(raised.value)
    assert (host.disk(), host.drivers(), host.overrides()) == before
    return str(raised.value)


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


# Groups ----------------------------------------------------------------------------------


def test_a_group_with_a_foreign_device_is_refused(server: FakeDrivers) -> None:
    message = refused(devices(("card", {"vendor": "10de", "class": "0300"})), server)
    assert "shares IOMMU group" in message
    assert "snd_hda_intel" in message


def test_a_whole_group_is_taken(server: FakeDrivers) -> None:
    both = devices(("card", {"vendor": "10de", "class": "0300"}), ("sound", {"vendor": "10de", "class": "0403"}))
    assert run({**both, "pci_driver_blacklist": ["nouveau"]}, server).verified


def test_the_default_blacklist_leaves_no_gpu_without_a_driver(server: FakeDrivers) -> None:
    both = devices(("card", {"vendor": "10de", "class": "0300"}), ("sound", {"vendor": "10de", "class": "0403"}))
    message = refused(both, server)
    assert (
        "pci_driver_blacklist: nvidia cannot be done without: it is needed by 0000:33:00.0: no entry selects it"
        in message
    )


def test_half_of_the_switches_is_refused(server: FakeDrivers) -> None:
    address = next(one.address for one in server.machine.devices if one.device == 0x1AF1)
    message = refused(devices(("switch", {"address": address}), pci_driver_blacklist=[]), server)
    assert "nvidia-nvswitch" in message


def a10() -> Machine:
    """An A10 in one group with its root ports, as on a real host."""
    machine = Machine()
    root = machine.root(0x40)
    other = machine.port(root, "03.0")
    port = machine.port(root, "03.1", acs=None)
    machine.gpu(port, device=0x2236)
    other.shares_with = port
    return machine


def test_bridges_of_a_group_are_not_counted(tmp_path: Path) -> None:
    host = built(tmp_path / "root", a10())
    gpu = next(one for one in host.machine.devices if one.device == 0x2236)
    group = [one.address for one in host.machine.devices if one.group == gpu.group]
    assert len(group) == 3
    assert run(devices(("gpu", {"device": "2236"})), host).verified


def test_a_nic_in_the_group_of_an_a10_is_refused(tmp_path: Path) -> None:
    machine = a10()
    gpu = next(one for one in machine.devices if one.device == 0x2236)
    nic = machine.connectx(machine.port(machine.roots[0], "01.0"), "ens9", "94:6d:ae:00:00:09")
    nic.shares_with = gpu
    host = built(tmp_path / "root", machine)
    assert "driver mlx5_core, netdev ens9" in refused(devices(("gpu", {"device": "2236"})), host)


def test_devices_without_a_driver_or_on_a_stub_do_no_harm(tmp_path: Path) -> None:
    machine = fake_machines.rack()
    machine["0000:25:00.0"].shares_with = machine[DRIVE]
    host = built(tmp_path / "root", machine)
    assert run(devices(("gpu", {"address": DRIVE})), host).verified
    run({}, host)
    host.machine.override("0000:25:00.0", "pci-stub")
    host.machine.bind("0000:25:00.0", "pci-stub")
    assert run(devices(("gpu", {"address": DRIVE})), host).verified


def test_a_group_with_a_device_for_another_driver_is_refused(tmp_path: Path) -> None:
    machine = fake_machines.rack()
    machine["0000:25:00.0"].shares_with = machine[DRIVE]
    host = built(tmp_path / "root", machine)
    intent = devices(("gpu", {"address": DRIVE}), {"name": "other", "select": {"device": "0005"}, "driver": "igb"})
    assert "shares IOMMU group" in refused(intent, host)


# The IOMMU -------------------------------------------------------------------------------


@pytest.fixture
def no_groups(tmp_path: Path) -> FakeDrivers:
    machine = fake_machines.rack()
    machine.iommu = ""
    return built(tmp_path / "root", machine)


def test_without_an_iommu_vfio_is_refused(no_groups: FakeDrivers) -> None:
    message = refused(NVMES, no_groups)
    assert "0000:23:00.0 has no IOMMU group, which vfio-pci needs" in message
    assert "kernel_iommu: passthrough" in message


def test_the_boot_disk_is_refused_also_where_the_iommu_is_still_off(no_groups: FakeDrivers) -> None:
    """The rule for the next boot would take it."""
    intent = {**devices(("disk", {"class": "0100"})), "kernel_iommu": "passthrough"}
    assert "vda1 is mounted at /" in refused(intent, no_groups)
    assert "vda1 is mounted at /" in refused(devices(("disk", {"class": "0100"})), no_groups)


def test_where_the_iommu_will_be_turned_on_the_devices_wait_for_it(no_groups: FakeDrivers) -> None:
    intent = {**NVMES, "kernel_iommu": "passthrough"}
    report = run(intent, no_groups)
    assert {entry.waits_for for entry in report.left.deferred} == {"kernel_args"}
    assert report.verified is False
    assert no_groups.drivers()[DRIVE] == "nvme"
    assert no_groups.exists("/etc/udev/rules.d/10-gpudirect.rules")
    no_groups.machine.iommu = no_groups.at_boot[0].iommu = "identity"  # type: ignore[index]
    no_groups.boot()
    assert no_groups.seen[DRIVE] == ["vfio-pci"]
    assert look(intent, no_groups).plan.empty
    run({}, no_groups)
    assert no_groups.drivers()[DRIVE] == "nvme"
    assert not no_groups.owned()


def test_one_device_without_a_group_waits_for_nothing(tmp_path: Path) -> None:
    host = built(tmp_path / "root")
    host.path("/sys/bus/pci/devices/0000:23:00.0/iommu_group").unlink()
    assert "0000:23:00.0 has no IOMMU group" in refused({**NVMES, "kernel_iommu": "passthrough"}, host)


def test_another_driver_needs_no_iommu(no_groups: FakeDrivers) -> None:
    intent = devices({"name": "stub", "select": {"device": "0005"}, "driver": "pci-stub"})
    assert run(intent, no_groups).verified


# Selectors and drivers -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("intent", "said"),
    [
        (devices({"name": "gpu", "select": {"device": "0010"}, "expect": 3}), "matches only 2 devices"),
        (devices({"name": "gpu", "select": {"device": "0010"}, "expect": 1}), "matches 2 devices"),
        (devices(("gpu", {"vendor": "10de"})), "matches no device"),
        (devices(("a", {"device": "0010"}), ("b", {"address": DRIVE})), "selects 0000:23:00.0, which pci_driver_devices[0] selects too"),
        (devices(("port", {"address": "0000:20:00.0"})), "selects 0000:20:00.0, a bridge"),
        (devices({"name": "gpu", "select": {"device": "0010"}, "driver": "vfio-cpi"}), "vfio-cpi is no driver of the running kernel"),
        (devices(("vf", {"vfs_of": {"device": "10c9"}})), "its PFs have no VFs"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_on_this_host(host: FakeDrivers, intent: dict[str, Any], said: str) -> None:
    assert said in refused(intent, host)


def test_all_problems_come_at_once(host: FakeDrivers) -> None:
    host.mount("nvme0n1", "/data")
    intent = devices(*BOTH["pci_driver_devices"], ("none", {"vendor": "abcd"}), {"name": "x", "select": {"device": "10c9"}, "driver": "ifb"})  # fmt: skip
    message = refused(intent, host)
    assert "matches no device" in message
    host.machine.vanish("0000:25:00.0")
    message = refused(devices(*NVMES["pci_driver_devices"], {"name": "x", "select": {"device": "10c9"}, "driver": "ifb"}), host)  # fmt: skip
    assert "nvme0n1 is mounted at /data" in message
    assert "ifb is no driver" in message
    assert "Did you mean igb?" in message


def test_a_driver_that_this_kernel_does_not_have_is_refused(tmp_path: Path) -> None:
    kernels = ("6.12.38+deb13-amd64", "6.12.9-amd64")
    host = built(tmp_path / "root", lacking=dict.fromkeys(kernels, ("vfio_pci",)))
    assert "vfio-pci is no driver of the running kernel 6.12.38+deb13-amd64" in refused(NVMES, host)


def test_a_driver_that_another_kernel_does_not_have_is_noted(tmp_path: Path) -> None:
    host = built(tmp_path / "root", lacking={"6.12.9-amd64": ("vfio_pci",)})
    report = run(NVMES, host)
    assert report.verified
    assert any("the kernel 6.12.9-amd64 has no vfio-pci" in note for note in report.left.notes)


def test_a_device_that_refuses_its_driver_is_named_and_the_next_run_goes_on(host: FakeDrivers) -> None:
    host.refuses["0000:43:00.0"] = "Invalid argument"
    with pytest.raises(GpudirectError) as raised:
        run(NVMES, host)
    assert "the kernel did not give it to vfio-pci within 15 s" in str(raised.value)
    assert "pci_driver[0000:23:00.0]" in raised.value.done
    host.refuses.clear()
    assert run(NVMES, host).verified


# A boot goes on with the rest --------------------------------------------------------------


def at_boot(intent: dict[str, Any], host: FakeDrivers) -> Any:
    """The run of the boot unit: what is refused does not keep the rest from being done."""
    desired = pci_driver.parse(pci_driver.SCHEMA.from_variables(intent))
    return bring(pci_driver, desired, host, allow=Disruption.LINK, check=False, partial=True)


def test_a_boot_binds_what_nothing_speaks_against_and_touches_nothing_else(host: FakeDrivers) -> None:
    run(BOTH, host)
    files = host.disk()
    for address in ("0000:23:00.0", "0000:25:00.0", "0000:45:00.0"):
        host.machine.override(address, "")
        host.machine.bind(address, host.machine[address].own_driver)
    host.machine.vanish("0000:43:00.0")
    report = at_boot(BOTH, host)
    assert [problem.path for problem in report.left.refused] == ["pci_driver_devices[0].select"]
    assert report.verified is False
    assert {address: host.drivers()[address] for address in ("0000:23:00.0", "0000:25:00.0", "0000:45:00.0")} == {
        "0000:23:00.0": "nvme", "0000:25:00.0": "vfio-pci", "0000:45:00.0": "vfio-pci",
    }  # fmt: skip
    record = "/var/lib/gpudirect/owned.json"
    assert {path: entry for path, entry in host.disk().items() if path != record} == {
        path: entry for path, entry in files.items() if path != record
    }


def test_a_boot_leaves_a_device_that_is_in_use_and_takes_the_others(host: FakeDrivers) -> None:
    run(BOTH, host)
    for address in ("0000:23:00.0", "0000:43:00.0"):
        host.machine.override(address, "")
        host.machine.bind(address, "nvme")
    host.mount("nvme0n1", "/data")
    report = at_boot(BOTH, host)
    assert "nvme0n1 is mounted at /data" in str(report.left.refused[0])
    assert host.drivers()["0000:23:00.0"] == "nvme"
    assert host.drivers()["0000:43:00.0"] == "vfio-pci"


# Odd state -------------------------------------------------------------------------------


def test_a_driver_that_is_part_of_the_kernel_is_moved_when_the_host_is_up(tmp_path: Path) -> None:
    modules = catalog(Module("nvme", ("nvme",), builtin=True), Module("nvme_core", builtin=True))
    host = built(tmp_path / "root", modules=modules)
    report = run(NVMES, host)
    assert any("nvme is part of the kernel and takes 0000:23:00.0 at each boot" in note for note in report.left.notes)
    host.boot()
    assert host.seen[DRIVE] == ["nvme"]
    report = run(NVMES, host)
    assert report.changed
    assert report.verified
    assert host.drivers()[DRIVE] == "vfio-pci"
    assert any("nvme is part of the kernel" in note for note in report.left.notes)


def test_devices_that_somebody_elses_ids_took_are_noted_and_left(host: FakeDrivers) -> None:
    host.machine.bind("0000:45:00.0", "vfio-pci")
    report = run(NVMES, host)
    assert "pci_driver: vfio-pci also has 0000:45:00.0, by ids that somebody else gave it" in report.left.notes
    assert "0000:45:00.0" not in host.overrides()


def test_what_ids_took_gets_an_override_and_keeps_it_until_undo(host: FakeDrivers) -> None:
    host.machine.bind("0000:25:00.0", "vfio-pci")
    host.guest("0000:25:00.0")
    report = run(TESTDEVS, host)
    assert report.verified
    assert host.overrides()["0000:25:00.0"] == "vfio-pci"
    run({}, host)
    assert host.overrides() == {}
    assert host.drivers()["0000:25:00.0"] == "vfio-pci"
    assert host.drivers()["0000:45:00.0"] == ""


def test_an_override_of_somebody_else_comes_back(host: FakeDrivers) -> None:
    host.machine.override("0000:25:00.0", "pci-stub")
    host._load("pci_stub", {}, None, "")
    assert host.drivers()["0000:25:00.0"] == "pci-stub"
    run(TESTDEVS, host)
    run({}, host)
    assert host.overrides() == {"0000:25:00.0": "pci-stub"}
    assert host.drivers()["0000:25:00.0"] == "pci-stub"


def test_a_host_that_had_it_all_before_us_only_goes_on_record(host: FakeDrivers) -> None:
    for address in ("0000:25:00.0", "0000:45:00.0"):
        host.machine.override(address, "vfio-pci")
        host.machine.bind(address, "vfio-pci")
    report = run({**TESTDEVS}, host)
    assert report.verified
    with host.only_read():
        assert not run(TESTDEVS, host).changed
    run({}, host)
    assert host.overrides() == dict.fromkeys(("0000:25:00.0", "0000:45:00.0"), "vfio-pci")
    assert not host.owned()


def test_an_unreadable_driver_stops_the_run(host: FakeDrivers, monkeypatch: pytest.MonkeyPatch) -> None:
    real = host.link
    monkeypatch.setattr(
        host, "link", lambda path: Unreadable("x") if path.endswith("0000:23:00.0/driver") else real(path)
    )
    refused(NVMES, host, UnreadableState)


def test_a_captured_tree_is_judged_by_its_groups(server: FakeDrivers) -> None:
    def judged(intent: dict[str, Any]) -> Any:
        desired = pci_driver.parse(intent)
        return pci_driver.plan(desired, pci_driver.read(Host(server.root), desired), {})

    plan = judged(VELA)
    assert [entry.waits_for for entry in plan.deferred] == ["the running host"]
    assert not plan.changes
    (problem,) = judged(devices(("card", {"vendor": "10de", "class": "0300"}))).refused
    assert "shares IOMMU group" in str(problem)


def test_half_of_a_group_that_we_have_does_not_go_back(server: FakeDrivers) -> None:
    card, sound = ("card", {"vendor": "10de", "class": "0300"}), ("sound", {"vendor": "10de", "class": "0403"})
    run(devices(card, sound, pci_driver_blacklist=[]), server)
    assert "shares IOMMU group" in refused(devices(card, pci_driver_blacklist=[]), server)
    assert run({}, server).verified
