"""Whole IOMMU groups only, and what happens where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures import fake_machines, path_hosts
from tests.fixtures.driver_hosts import NVMES, built, devices, look, refused, run
from tests.fixtures.fake_drivers import FakeDrivers
from tests.fixtures.fake_pci import Machine

DRIVE = "0000:23:00.0"


@pytest.fixture
def host(tmp_path: Path) -> FakeDrivers:
    return built(tmp_path / "root")


@pytest.fixture
def server(tmp_path: Path) -> FakeDrivers:
    return built(tmp_path / "root", "vela")


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


def test_half_of_a_group_that_we_have_does_not_go_back(server: FakeDrivers) -> None:
    card, sound = ("card", {"vendor": "10de", "class": "0300"}), ("sound", {"vendor": "10de", "class": "0403"})
    run(devices(card, sound, pci_driver_blacklist=[]), server)
    assert "shares IOMMU group" in refused(devices(card, pci_driver_blacklist=[]), server)
    assert run({}, server).verified


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


def opened(root: Path, shares: bool = False) -> FakeDrivers:
    """A host that was one for bare metal: its ports let devices see each other. ``shares``: a NIC and a drive always do."""
    machine = fake_machines.rack()
    for one in machine.devices:
        if one.acs is not None:
            one.acs, one.isolated = (one.acs[0], 0), False
    if shares:
        machine["0000:24:00.0"].shares_with = machine["0000:23:00.0"]
    return built(root, machine)


def test_groups_that_the_next_boot_keeps_apart_are_waited_for(tmp_path: Path) -> None:
    host = opened(tmp_path / "root")
    intent = {**NVMES, **path_hosts.RACK, "pci_path_acs": "boot_argument", "kernel_iommu": "passthrough"}
    assert "shares IOMMU group" in refused({**intent, "pci_path_acs": "register"}, host)
    first = run(intent, host)
    assert [one.waits_for for one in first.plan.deferred] == ["kernel_args"]
    assert "0000:23:00.0" in first.plan.deferred[0].why
    assert host.drivers()["0000:23:00.0"] == "nvme"
    path_hosts.run(intent, host)
    assert run(intent, host).plan.deferred, "the boot is still to come"
    host.boot()
    assert run(intent, host).verified
    assert host.drivers()["0000:23:00.0"] == "vfio-pci"


def test_groups_that_a_boot_has_left_together_are_refused_again(tmp_path: Path) -> None:
    host = opened(tmp_path / "root", shares=True)
    intent = {**NVMES, **path_hosts.RACK, "pci_path_acs": "boot_argument", "kernel_iommu": "passthrough"}
    assert run(intent, host).plan.deferred
    path_hosts.run(intent, host)
    host.boot()
    assert "shares IOMMU group" in refused(intent, host)


def test_a_port_that_cannot_keep_devices_apart_is_not_waited_for(tmp_path: Path) -> None:
    machine = fake_machines.rack()
    machine["0000:22:00.0"].acs, machine["0000:22:00.0"].isolated = None, False
    machine["0000:24:00.0"].shares_with = machine["0000:22:00.0"]
    host = built(tmp_path / "root", machine)
    intent = {**NVMES, **path_hosts.RACK, "pci_path_acs": "boot_argument", "kernel_iommu": "passthrough"}
    assert "shares IOMMU group" in refused(intent, host)
