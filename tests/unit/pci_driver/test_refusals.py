"""What cannot be meant on a host, what a boot does all the same, and hosts that others have been at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import pci_driver
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Disruption, Unreadable
from ansible_collections.vela.gpudirect.plugins.module_utils.core.converge import bring
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import (
    GpudirectError,
    IntentError,
    UnreadableState,
)
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host

from tests.fixtures.driver_hosts import BOTH, NVMES, TESTDEVS, VELA, built, devices, refused, run
from tests.fixtures.fake_drivers import FakeDrivers, Module, catalog

DRIVE = "0000:23:00.0"


@pytest.fixture
def host(tmp_path: Path) -> FakeDrivers:
    return built(tmp_path / "root")


@pytest.fixture
def server(tmp_path: Path) -> FakeDrivers:
    return built(tmp_path / "root", "vela")


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


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\x1b[2J", "a\u2028b", "x" * 65])
def test_an_entry_has_a_name_that_fits_into_a_message(name: str) -> None:
    with pytest.raises(IntentError) as caught:
        pci_driver.parse(devices((name, {"device": "0010"})))
    message = str(caught.value)
    assert message.startswith("pci_driver_devices[0].name: is not a name (found ")
    assert message.isprintable()
    assert "wanted 1 to 64 printable characters in one line" in message


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


# A boot goes on with the rest ------------------------------------------------------------


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
    # The disk that is left was set up here before: that its twin is missing says nothing against it.
    for address in ("0000:23:00.0", "0000:25:00.0", "0000:45:00.0"):
        assert host.drivers()[address] == "vfio-pci"
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
