"""Prediction, idempotence, boots and undo, on hosts with either builder of images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Disruption

from tests.fixtures.driver_hosts import BOTH, NVMES, TESTDEVS, VELA, built, devices, look, paths, run, settle
from tests.fixtures.fake_drivers import FakeDrivers, Module, catalog

HOSTS: dict[str, dict[str, Any]] = {
    "debian_12": {"like": "debian_12"},
    "debian_13": {"like": "debian_13"},
    "ubuntu": {"like": "ubuntu_cloud", "copies_rules": False},
    "rhel_9": {"like": "rhel_9"},
    "vfio_builtin": {
        "like": "debian_13",
        "modules": catalog(
            *(Module(name, builtin=True) for name in ("vfio", "vfio_iommu_type1", "vfio_pci_core")),
            Module("vfio_pci", ("vfio-pci",), builtin=True),
        ),
    },
}


@pytest.fixture(params=HOSTS)
def host(request: pytest.FixtureRequest, tmp_path: Path) -> FakeDrivers:
    return built(tmp_path / "root", **HOSTS[request.param])


def state(host: FakeDrivers) -> tuple[Any, ...]:
    return host.disk(), host.drivers(), host.overrides(), set(host.loaded) - {"vfio", "vfio_pci", "vfio_pci_core", "vfio_iommu_type1"}  # fmt: skip


NVME = ("0000:23:00.0", "0000:43:00.0")
TESTDEV = ("0000:25:00.0", "0000:45:00.0")


def on_vfio(host: FakeDrivers) -> list[str]:
    return [address for address, driver in host.drivers().items() if driver == "vfio-pci"]


def test_devices_are_taken_at_once_and_nothing_is_left(host: FakeDrivers) -> None:
    report = run(BOTH, host)
    assert report.verified
    assert report.changed
    assert on_vfio(host) == sorted((*NVME, *TESTDEV))
    assert host.overrides() == dict.fromkeys(sorted((*NVME, *TESTDEV)), "vfio-pci")
    assert look(BOTH, host).plan.empty
    assert host.lost == []


def test_four_runs(host: FakeDrivers) -> None:
    seen = [run(NVMES, host, check=check).changed for check in (True, False, True, False)]
    assert seen == [True, True, False, False]


def test_check_mode_predicts_what_the_run_does(host: FakeDrivers) -> None:
    for intent in (NVMES, BOTH, TESTDEVS, {}):
        before = state(host)
        predicted = look(intent, host)
        assert state(host) == before
        real = run(intent, host)
        assert real.as_result()["plan"] == predicted.as_result()["plan"]
        assert real.left.empty


def test_a_run_without_changes_runs_no_program_and_writes_nothing(host: FakeDrivers) -> None:
    run(BOTH, host)
    host.commands.clear()
    with host.only_read():
        run(BOTH, host)
    assert host.commands == []


def test_at_a_boot_no_other_driver_sees_the_devices(host: FakeDrivers) -> None:
    run(BOTH, host)
    for seed in range(5):
        host.seed = seed
        host.boot()
        assert {address: host.seen[address] for address in (*NVME, *TESTDEV)} == dict.fromkeys(
            (*NVME, *TESTDEV), ["vfio-pci"]
        )
        assert look(BOTH, host).plan.empty
    assert "vfio_iommu_type1" in host.loaded or host.modules["vfio_pci"].builtin


def test_every_image_has_what_the_boot_needs(host: FakeDrivers) -> None:
    run(NVMES, host)
    assert len(host.kernels()) >= 1
    for kernel in host.kernels():
        image = host.image(kernel)
        (rules,) = [text for path, text in image.files.items() if path.endswith("/udev/rules.d/10-gpudirect.rules")]
        assert rules == host.text("/etc/udev/rules.d/10-gpudirect.rules")
        assert {"vfio_pci", "vfio_iommu_type1"} <= set(image.modules)


@pytest.mark.parametrize("boots", [0, 1])
def test_without_intent_the_host_is_as_found(host: FakeDrivers, boots: int) -> None:
    found = state(host)
    run(BOTH, host)
    assert state(host) != found
    for _boot in range(boots):
        host.boot()
    report = run({}, host)
    assert report.left.empty
    assert state(host) == found
    assert not host.owned()
    host.boot()
    assert state(host) == found
    assert host.seen[NVME[0]] == ["nvme"]


def test_intents_may_follow_each_other(host: FakeDrivers) -> None:
    found = state(host)
    for intent in (NVMES, BOTH, TESTDEVS, BOTH, NVMES):
        settle(intent, host)
        wanted = {"1b36:0010": NVME, "1b36:0005": TESTDEV}
        taken = [
            address for entry in intent["pci_driver_devices"] for address in wanted[f"1b36:{entry['select']['device']}"]
        ]
        assert on_vfio(host) == sorted(taken)
        host.boot()
        assert on_vfio(host) == sorted(taken)
    settle({}, host)
    assert state(host) == found


def test_order_of_entries_and_names_change_nothing(tmp_path: Path) -> None:
    one, other = built(tmp_path / "one"), built(tmp_path / "other")
    run(BOTH, one)
    run(devices(*reversed(BOTH["pci_driver_devices"])), other)
    assert one.text("/etc/udev/rules.d/10-gpudirect.rules") == other.text("/etc/udev/rules.d/10-gpudirect.rules")
    with one.only_read():
        assert not run(devices(*reversed(BOTH["pci_driver_devices"])), one).changed
        assert not run(
            devices(*({**entry, "name": f"a{entry['name']}"} for entry in BOTH["pci_driver_devices"])), one
        ).changed


def test_nothing_disrupts_anything(host: FakeDrivers) -> None:
    assert look(BOTH, host, Disruption.NOTHING).plan.blocked_by(Disruption.NOTHING) == ()
    run(BOTH, host, allow=Disruption.NOTHING)
    run({}, host, allow=Disruption.NOTHING)


def test_another_driver_than_vfio(host: FakeDrivers) -> None:
    found = state(host)
    intent = devices({"name": "stub", "select": {"device": "0005"}, "driver": "pci-stub"})
    run(intent, host)
    assert [host.drivers()[address] for address in TESTDEV] == ["pci-stub", "pci-stub"]
    host.boot()
    assert [host.seen[address] for address in TESTDEV] == [["pci-stub"], ["pci-stub"]]
    run(TESTDEVS, host)
    assert on_vfio(host) == sorted(TESTDEV)
    run({}, host)
    assert state(host)[:3] == found[:3]


def test_without_intent_nothing_is_read(host: FakeDrivers, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real = host.read_text
    monkeypatch.setattr(host, "read_text", lambda path: asked.append(path) or real(path))
    with host.only_read():
        report = run({}, host)
    assert report.verified
    assert not [path for path in asked if path.startswith(("/sys", "/lib", "/proc/modules"))]


def test_gpus_and_switches_and_the_modules_that_would_take_them(tmp_path: Path) -> None:
    host = built(tmp_path / "root", "vela")
    found = state(host)
    assert {"nvidia", "nouveau"} <= set(host.loaded)
    report = run(VELA, host)
    assert report.verified
    assert len(on_vfio(host)) == 6
    assert not {"nvidia", "nouveau"} & set(host.loaded)
    text = host.text("/etc/modprobe.d/gpudirect.conf")
    barred = ("nouveau", "nova_core", "nova_drm", "nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_peermem", "nvidia_uvm", "nvidiafb")  # fmt: skip
    for name in barred:
        assert f"\nblacklist {name}\ninstall {name} /bin/false\n" in text
    assert text.count("\nblacklist ") == len(barred)
    host.boot()
    assert not {"nvidia", "nouveau"} & set(host.loaded)
    assert look(VELA, host).plan.empty
    run({}, host)
    assert state(host)[:3] == found[:3]
    host.boot()
    assert state(host) == found


def test_undo_in_the_same_boot_loads_again_what_was_unloaded(tmp_path: Path) -> None:
    host = built(tmp_path / "root", "vela")
    found = state(host)
    run(VELA, host)
    run({}, host)
    assert state(host) == found


def test_rules_come_before_the_kernels_own(host: FakeDrivers) -> None:
    run(NVMES, host)
    assert sorted(("80-drivers.rules", "10-gpudirect.rules"))[0] == "10-gpudirect.rules"
    assert paths(look({}, host))[0] == "pci_driver[/etc/udev/rules.d/10-gpudirect.rules]"
