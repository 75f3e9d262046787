"""A device is the one that was recorded, or the run stops: swapped, plugged elsewhere, renumbered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import HostRefused

from tests.fixtures.driver_hosts import NVMES, TESTDEVS, built, devices, look, run
from tests.fixtures.fake_drivers import FakeDrivers
from tests.fixtures.fake_pci import Machine

FIRST, SECOND = "0000:23:00.0", "0000:43:00.0"


@pytest.fixture
def host(tmp_path: Path) -> FakeDrivers:
    found = built(tmp_path / "root")
    run(NVMES, found)
    return found


def other(host: FakeDrivers) -> Machine:
    """The machine that is booted next."""
    assert host.at_boot is not None
    return host.at_boot[0]


def refused(intent: dict[str, Any], host: FakeDrivers) -> str:
    before = host.disk(), host.drivers(), host.overrides()
    with pytest.raises(HostRefused) as raised, host.only_read():
        run(intent, host)
    assert (host.disk(), host.drivers(), host.overrides()) == before
    return str(raised.value)


def test_a_swapped_drive_is_refused_and_then_taken_when_that_was_meant(host: FakeDrivers) -> None:
    other(host)[FIRST].disks[0].serial = "another"
    other(host)[FIRST].subsystem = (0x1AF4, 0x1109)
    host.boot()
    assert host.drivers()[FIRST] == "nvme"
    message = refused(NVMES, host)
    assert (
        f"{FIRST} is not the device that was recorded there: its subsystem device id is 1109, recorded is 1100"
        in message
    )
    assert "its serial is another, recorded is gpu0" in message
    assert "gpudirect_replaced" in message
    meant = {**NVMES, "gpudirect_replaced": [FIRST]}
    assert run(meant, host).verified
    assert host.drivers()[FIRST] == "vfio-pci"
    with host.only_read():
        assert not run(meant, host).changed
    host.boot()
    assert host.seen[FIRST] == ["vfio-pci"]
    assert look(NVMES, host).plan.empty
    run({}, host)
    assert host.drivers()[FIRST] == "nvme"
    assert not host.owned()


def test_an_equal_card_with_another_serial_number_is_refused(tmp_path: Path) -> None:
    machine = built(tmp_path / "x", "vela").machine
    gpu = next(one for one in machine.devices if one.device == 0x20B2)
    gpu.serial = "48-b0-2d-ff-ff-00-00-01"
    host = built(tmp_path / "root", machine)
    only = devices(("gpu", {"address": gpu.address}), pci_driver_blacklist=[])
    run(only, host)
    other(host)[gpu.address].serial = "48-b0-2d-ff-ff-00-00-02"
    host.boot()
    assert "its serial is 48-b0-2d-ff-ff-00-00-02" in refused(only, host)


def test_a_device_that_was_renumbered_is_refused(tmp_path: Path) -> None:
    """The BIOS keeps more buses free in front of it, as for a card with a bridge."""
    machine = Machine()
    ports = machine.switch(machine.port(machine.root(0x20), "00.0"), 2)
    machine.testdev(ports[1])
    host = built(tmp_path / "root", machine)
    run(TESTDEVS, host)
    other(host)[ports[0].address].spare_buses = 2
    other(host)._number()
    host.boot()
    assert host.drivers() == {"0000:26:00.0": ""}
    assert "0000:26:00.0 is the device that was recorded at 0000:24:00.0" in refused(TESTDEVS, host)
    meant = {**TESTDEVS, "gpudirect_replaced": ["0000:26:00.0"]}
    assert run(meant, host).verified
    assert host.drivers() == {"0000:26:00.0": "vfio-pci"}
    assert look(TESTDEVS, host).plan.empty
    assert "0000:24:00.0" not in host.text("/etc/udev/rules.d/10-gpudirect.rules")
    run({}, host)
    assert not host.owned()


def test_a_drive_in_another_slot_is_refused(host: FakeDrivers) -> None:
    machine = other(host)
    drive = machine[FIRST]
    spare = machine.port(machine["0000:21:00.0"], "05.0")
    drive.above = spare
    machine._number()
    host.boot()
    assert f"{drive.address} is the device that was recorded at {FIRST}" in refused(NVMES, host)


def test_the_old_address_may_be_named_too(host: FakeDrivers) -> None:
    machine = other(host)
    drive = machine[FIRST]
    drive.above = machine.port(machine["0000:21:00.0"], "05.0")
    machine._number()
    host.boot()
    assert run({**NVMES, "gpudirect_replaced": [FIRST]}, host).verified


def test_a_serial_number_that_only_its_driver_tells_still_selects(tmp_path: Path) -> None:
    host = built(tmp_path / "root")
    given = devices(("gpu", {"serial": "gpu2"}))
    assert run(given, host).verified
    assert host.drivers()[SECOND] == "vfio-pci"
    with host.only_read():
        assert not run(given, host).changed
    host.boot()
    assert look(given, host).plan.empty
    run({}, host)
    assert not host.owned()


def test_another_device_at_the_address_of_a_record_is_left_alone_on_the_way_back(host: FakeDrivers) -> None:
    other(host)[FIRST].vendor = 0x144D
    host.boot()
    run({}, host)
    assert host.drivers()[FIRST] == "nvme"
    assert not host.owned()


def test_a_device_that_is_gone_is_missed_and_on_the_way_back_forgotten(host: FakeDrivers) -> None:
    other(host).unplug(other(host)[SECOND])
    host.boot()
    assert "matches only 1 device" in refused(NVMES, host)
    run({}, host)
    assert not host.owned()
