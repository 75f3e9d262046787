"""Runs that may change guests only: on a host that is as wanted in all else they do, any other is stopped by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import host_boot, kvm, scope, site
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import (
    Awaiting,
    Change,
    Deferred,
    Disruption,
    Plan,
)
from ansible_collections.vela.gpudirect.plugins.module_utils.core.converge import Report
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import HostRefused
from ansible_collections.vela.gpudirect.plugins.module_utils.path import gate

from tests.fixtures import image_hosts
from tests.fixtures.fake_libvirt import FakeGuestHost
from tests.fixtures.image_hosts import UBUNTU, digest
from tests.fixtures.libvirt_hosts import guests, shape
from tests.fixtures.runs import DIGEST
from tests.fixtures.ssh_keys import public_key

URL = "https://images.example/noble.img"
IMAGES = [{"name": "ubuntu-24.04", "url": URL, "sha256": digest(UBUNTU)}]
ONE: dict[str, Any] = {
    **guests(shape(user="ops", ssh_keys=[public_key("ops")]), guest_images=IMAGES),
    **{"host_boot_enabled": False, "gpudirect_only": "guests"},
}


@pytest.fixture
def host(tmp_path: Path) -> FakeGuestHost:
    return image_hosts.build(tmp_path / "root", {URL: UBUNTU})


def look(host: FakeGuestHost, intent: dict[str, Any], *, check: bool = False) -> dict[str, Any]:
    with host.only_read():
        return site.look({host_boot.ENGINE: DIGEST, **intent}, host, check=check, previous={})


def test_a_host_that_is_as_wanted_gets_its_guests(host: FakeGuestHost) -> None:
    result = look(host, {**ONE, "pci_path_max_read_request": 4096})
    assert result["todo"] == ["guest_image", "libvirt_guest"]
    assert result["msg"].endswith("(this run is about guests only)")


@pytest.mark.parametrize("check", [False, True])
def test_a_host_that_is_not_is_stopped_with_the_names_of_what_is_not(host: FakeGuestHost, check: bool) -> None:
    with pytest.raises(HostRefused) as caught:
        look(host, {**ONE, "pci_path_max_read_request": 512}, check=check)
    (problem,) = caught.value.problems
    assert problem.path == "pci_path"
    assert "max_read_request" in str(problem)
    assert "Run site.yml for this host first" in str(problem)
    everything = look(host, {**ONE, "gpudirect_only": "all", "pci_path_max_read_request": 512})
    assert everything["todo"] == ["pci_path", "guest_image", "libvirt_guest"]


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (Plan((Change("sriov.x", 0, 1, "w"),)), "sriov.x left"),
        (Plan(awaiting_reboot=(Awaiting("sriov.x", 0, 1, "w"),)), r"sriov.x \(awaits a reboot\) left"),
        (Plan(deferred=(Deferred("sriov", "kernel_args", "w"),)), "waits for kernel_args left"),
        (Plan(awaiting_consent=(Change("sriov.x", 0, 1, "w"),)), "sriov.x left"),
        (Plan(tuple(Change(f"sriov.{one}", 0, 1, "w") for one in range(9))), "sriov.3 and 5 more left"),
    ],
)
def test_whatever_is_left_before_guests_stops_it(plan: Plan, said: str) -> None:
    before = Report("sriov", plan, Disruption.HOST, False, None, plan)
    with pytest.raises(HostRefused, match=said):
        scope.require_ready("guests", [before], {})
    scope.require_ready("all", [before], {})
    of_guests = Report(kvm.SCHEMA.name, plan, Disruption.HOST, False, None, plan)
    scope.require_ready("guests", [of_guests, before], {})  # what comes with or after it is its own work


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("only", ["all", "guests"])
def test_guests_do_not_wait_for_a_libvirt_that_nobody_brings(host: FakeGuestHost, only: str, check: bool) -> None:
    host.libvirt.there = False
    asked = {**ONE, "gpudirect_only": only, "guest_networks": [{"name": "m", "mode": "nat", "address": "10.9.0.1/24"}]}
    with pytest.raises(HostRefused) as caught:
        look(host, asked, check=check)
    assert [one.path for one in caught.value.problems] == ["guest_networks", "guest_shapes"]
    assert "needs libvirt, and nothing brings it to this host" in str(caught.value)
    assert "Set kvm_host: managed" in str(caught.value)


def test_guests_wait_for_a_libvirt_that_the_run_brings() -> None:
    waits = Plan(deferred=(Deferred("libvirt_guest", "kvm", "no socket"),))
    guests_of = Report("libvirt_guest", waits, Disruption.HOST, False, None, waits)
    for plan in (Plan((Change("kvm.packages", 0, 1, "w"),)), Plan(deferred=(Deferred("kvm", "packages", "w"),))):
        brings = Report("kvm", plan, Disruption.HOST, False, None, plan)
        scope.require_libvirt({"guest_shapes": [{}]}, [brings, guests_of])
    idle = Report("kvm", Plan(), Disruption.HOST, False, None, Plan())
    with pytest.raises(HostRefused, match="no socket"):
        scope.require_libvirt({"guest_shapes": [{}]}, [idle, guests_of])
    scope.require_libvirt({"guest_shapes": []}, [idle, guests_of])  # what is on record alone stops no other work


def test_broken_paths_stop_it_before_a_guest_is_made(host: FakeGuestHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "paths", lambda *_given: {"paths": {"verdict": "FAIL"}})
    with pytest.raises(HostRefused, match="paths: of GPUs and NICs are broken"):
        look(host, ONE)


def test_the_parts_are_those_of_a_round() -> None:
    names = [one.SCHEMA.name for one in site.RESOURCES]
    assert [one.SCHEMA.name for one in scope.planned("guests", site.RESOURCES)] == names
    assert {"kvm", "libvirt_guest", "host_boot"} <= set(names)
    first = names.index("kvm")
    assert not [one for one in names[:first] if one.startswith(("libvirt_", "guest_", "host_boot"))]
