"""Boots of hosts with NICs and GPUs: VFs and drivers come back, and a device that is missing or another one is told."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import host_boot, pci_driver, site, sriov
from ansible_collections.vela.gpudirect.plugins.module_utils.at_boot import command_line, intent
from ansible_collections.vela.gpudirect.plugins.module_utils.core.owned import Owned

from tests.fixtures import driver_hosts, runs
from tests.fixtures.fake_drivers import FakeDrivers
from tests.fixtures.fake_host import KilledHere

FIRST, SECOND = "0000:24:00.0", "0000:44:00.0"
DRIVE = "0000:23:00.0"
INTENT: dict[str, Any] = {
    "kernel_iommu": "passthrough",
    "sriov_ports": [{"select": {"device": "10c9"}, "vfs": 4, "mtu": 9000, "vf_defaults": {"trust": True}}],
    **driver_hosts.devices(
        {"name": "gpu", "select": {"vendor": "1b36", "device": "0010"}, "expect": 2},
        {"name": "vf", "select": {"vfs_of": {"device": "10c9"}}},
    ),
}
BOOT = ["boot", "--allow", "link", "--device-timeout-s", "60"]


@pytest.fixture
def host(root: Path) -> FakeDrivers:
    """Two NICs and two drives that play GPUs, converged by runs of site.yml and booted; the boot run comes next."""
    host = driver_hosts.built(root / "rack")
    runs.settle(INTENT, host)
    host.boot()
    return host


def vfs(host: FakeDrivers) -> dict[str, list[str]]:
    """The drivers of the VFs of each port."""
    found: dict[str, list[str]] = {FIRST: [], SECOND: []}
    for device in host.machine.by_address():
        if device.pf is not None:
            found[device.pf.address].append(device.driver)
    return found


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def boot(host: FakeDrivers) -> int:
    return command_line.main(BOOT, host)


def test_what_is_kept_for_boots_is_what_they_lose(host: FakeDrivers) -> None:
    kept = intent.load(host)
    assert sorted(kept) == ["kernel_iommu", "pci_driver_devices", "sriov_ports"]
    assert [resource for resource, _desired in site.brought_back(kept)] == [sriov, pci_driver]


def test_a_boot_loses_the_vfs_and_the_boot_run_brings_them_back(
    host: FakeDrivers, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vfs(host) == {FIRST: [], SECOND: []}
    assert host.nics[FIRST].mtu == 1500
    assert host.drivers()[DRIVE] == "vfio-pci"  # that is the early part's doing
    assert boot(host) == 0
    assert vfs(host) == {FIRST: ["vfio-pci"] * 4, SECOND: ["vfio-pci"] * 4}
    assert host.nics[FIRST].mtu == 9000
    assert lines(capsys)[-1] == "This host is ready for its guests: sriov as wanted, pci_driver as wanted."
    assert not runs.changed(runs.run(INTENT, host, check=True))
    acts = len(host.acts)
    assert boot(host) == 0
    assert len(host.acts) == acts


def pulled(host: FakeDrivers, address: str) -> Callable[[Any], None]:
    """The machine boots without a NIC. What is returned plugs it in."""
    device, nic = host.machine[address], host.nics.pop(address)
    host.machine.vanish(address)

    def plugged(host: FakeDrivers) -> None:
        host.machine.devices.append(device)
        host.machine._write(device)
        host.nics[address] = nic
        host._tell_net(address)

    return plugged


def test_a_nic_that_never_appears_is_named_and_the_other_is_set_up(
    host: FakeDrivers, capsys: pytest.CaptureFixture[str]
) -> None:
    pulled(host, SECOND)
    before = Owned.load(host).of("sriov")
    assert boot(host) == 1
    assert host.clock_s == 60
    assert vfs(host) == {FIRST: ["vfio-pci"] * 4, SECOND: []}
    said = lines(capsys)
    reason = next(line for line in said if line.startswith("not ready: sriov:"))
    assert "devices that were set up here are not there: 0000:44:00.0 (8086:10c9 serial " in reason
    assert any(
        "pci_driver: devices that were set up here are not there: 4 VFs of 0000:44:00.0." in line for line in said
    )
    assert "sriov not as wanted" in said[-1]
    assert not any("site.yml:" in line for line in said)  # nothing is given up, so nothing is left for later
    # Who it is stays known, so that another device in its place is not taken for it.
    assert {path for path in before if SECOND in path} <= set(Owned.load(host).of("sriov"))


def test_vfs_that_are_there_are_taken_where_their_entry_expects_more(root: Path) -> None:
    """A number that is not met says that something is missing, and nothing against those that were set up before."""
    _drives, vf = INTENT["pci_driver_devices"]
    counted = {**INTENT, "pci_driver_devices": [{**vf, "expect": 8}]}
    host = driver_hosts.built(root / "rack")
    runs.settle(counted, host)
    host.boot()
    pulled(host, SECOND)
    assert boot(host) == 1
    assert vfs(host) == {FIRST: ["vfio-pci"] * 4, SECOND: []}


def test_a_nic_that_appears_late_is_waited_for(host: FakeDrivers, capsys: pytest.CaptureFixture[str]) -> None:
    host.later = [(20, pulled(host, SECOND))]
    assert boot(host) == 0
    assert 20 <= host.clock_s < 25
    assert vfs(host) == {FIRST: ["vfio-pci"] * 4, SECOND: ["vfio-pci"] * 4}
    assert lines(capsys)[0].startswith("sriov: ")


def test_a_nic_that_was_taken_out_on_purpose_is_waited_for_no_more(
    host: FakeDrivers, capsys: pytest.CaptureFixture[str]
) -> None:
    pulled(host, SECOND)
    runs.run(INTENT, host)
    assert boot(host) == 1  # a run alone gives up no device
    assert any("goes into gpudirect_replaced" in line for line in lines(capsys))
    runs.run({**INTENT, "gpudirect_replaced": [SECOND]}, host)
    assert boot(host) == 0
    assert not [path for path in Owned.load(host).records if SECOND in path]


def test_a_word_for_one_run_is_in_no_boot(host: FakeDrivers) -> None:
    """With it the next run, which is given no such word, would have something to change; a boot would take any device."""
    before = host.read_text("/etc/gpudirect/intent.json")
    swapped(host)
    runs.settle({**INTENT, "gpudirect_replaced": [SECOND]}, host)
    assert host.read_text("/etc/gpudirect/intent.json") == before
    assert runs.changed(runs.run(INTENT, host)) == []


def swapped(host: FakeDrivers) -> None:
    """Another card of the same kind is in the slot when the host boots."""
    assert host.at_boot is not None
    machine, nics = host.at_boot
    machine[SECOND].serial = "52-54-00-ff-ff-00-00-01"
    nics[SECOND].mac = machine[SECOND].nets[0].mac = "52:54:00:00:00:01"
    host.boot()


def test_another_nic_in_its_place_is_refused_and_the_other_is_set_up(
    host: FakeDrivers, capsys: pytest.CaptureFixture[str]
) -> None:
    swapped(host)
    assert boot(host) == 1
    assert vfs(host) == {FIRST: ["vfio-pci"] * 4, SECOND: []}
    assert any(
        "the device at 0000:44:00.0 is not the one that was set up there" in line
        for line in lines(capsys)
        if line.startswith("not ready: sriov_ports[0].select:")
    )


def test_a_drive_that_is_gone_does_not_hinder_the_nics(host: FakeDrivers, capsys: pytest.CaptureFixture[str]) -> None:
    host.machine.vanish(DRIVE)
    assert boot(host) == 1
    assert vfs(host) == {FIRST: ["vfio-pci"] * 4, SECOND: ["vfio-pci"] * 4}
    said = [line for line in lines(capsys) if line.startswith("not ready: ")]
    assert any(line.startswith("not ready: pci_driver_devices[0].select:") for line in said)
    assert any(f"not there: {DRIVE} (1b36:0010 serial gpu0" in line for line in said)


def test_an_image_without_the_early_part_is_left_for_a_run_and_does_not_delay_guests(
    host: FakeDrivers, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody has put an old image back: to build it takes a minute and is no boot's work."""
    kernel = host.kernels()[0]
    image = host.path(host.image_path(kernel))
    image.write_text("an old image", encoding="ascii")
    os.utime(image, (1, 1))
    before = len(host.commands)
    assert boot(host) == 0
    assert not [done for done in host.commands[before:] if done.argv[0] in ("update-initramfs", "dracut")]
    assert f"left for a run of site.yml: pci_driver.image[{host.image_path(kernel)}]" in lines(capsys)
    assert command_line.main(["drift"], host) == 1  # the watch does not let it be forgotten


def test_a_power_cut_in_the_boot_run_is_made_good_by_the_next_one(host: FakeDrivers, root: Path) -> None:
    counted = host.clone(root / "counted").revive()
    assert boot(counted) == 0
    for number in range(1, len(counted.acts) + 1, 3):
        one = host.clone(root / str(number)).die_before(number)
        with pytest.raises(KilledHere):
            boot(one)
        one.boot()
        assert boot(one) == 0
        assert vfs(one) == vfs(counted)
        assert not runs.changed(runs.run(INTENT, one, check=True))


def test_when_intent_goes_boots_bring_nothing_back(host: FakeDrivers) -> None:
    assert boot(host) == 0
    runs.settle({}, host)
    assert not host.owned()
    assert not host.exists(intent.PATH)
    assert not host.exists(host_boot.units.ENGINE)
    assert vfs(host) == {FIRST: [], SECOND: []}


def test_the_watch_tells_vfs_that_somebody_has_taken_away(
    host: FakeDrivers, capsys: pytest.CaptureFixture[str]
) -> None:
    assert boot(host) == 0
    assert command_line.main(["drift"], host) == 0
    host.write_attribute(f"/sys/bus/pci/devices/{SECOND}/sriov_numvfs", "0")
    lines(capsys)
    with host.only_read():
        assert command_line.main(["drift"], host) == 1
    assert any(line.startswith(f"sriov[{SECOND}].vfs: the number of VFs (found 0, wanted 4)") for line in lines(capsys))
