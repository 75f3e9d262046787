"""VFs: they are bound when they are there, wait for the ones that come, and are in nothing that a boot reads early."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import sriov
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Disruption
from ansible_collections.vela.gpudirect.plugins.module_utils.core.converge import converge
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import HostRefused

from tests.fixtures import fake_machines
from tests.fixtures.driver_hosts import NVMES, built, devices, look, paths, run
from tests.fixtures.fake_drivers import FakeDrivers

PF = "0000:24:00.0"
VF = ("vf", {"vfs_of": {"device": "10c9"}})


def intent(count: int, *more: Any, **options: Any) -> dict[str, Any]:
    """So many VFs on every port, all on vfio-pci."""
    ports = [{"select": {"device": "10c9"}, "vfs": count}]
    return {**devices({"name": VF[0], "select": VF[1], **options}, *more), "sriov_ports": ports}


@pytest.fixture
def host(tmp_path: Path) -> FakeDrivers:
    return built(tmp_path / "root")


def make(given: dict[str, Any], host: FakeDrivers) -> None:
    """The resource that comes before ours in a round."""
    converge(sriov, sriov.SCHEMA.from_variables(given), host, allow=Disruption.HOST, check=False)


def vfs(host: FakeDrivers) -> dict[str, str]:
    return {one.address: one.driver for one in host.machine.by_address() if one.pf is not None}


def test_vfs_that_will_come_are_waited_for_and_then_taken(host: FakeDrivers) -> None:
    given = intent(3)
    report = look(given, host)
    (waiting,) = report.left.deferred
    assert (waiting.resource, waiting.waits_for) == ("pci_driver", "sriov")
    assert (
        waiting.why
        == "pci_driver_devices[0] (vf): 0000:24:00.0 has 0 VFs and gets 3; 0000:44:00.0 has 0 VFs and gets 3"
    )
    assert report.verified is False
    make(given, host)
    report = run(given, host)
    assert report.verified
    assert list(vfs(host).values()) == ["vfio-pci"] * 6
    with host.only_read():
        assert not run(given, host).changed


def test_what_does_not_wait_is_done(host: FakeDrivers) -> None:
    report = run(intent(2, *NVMES["pci_driver_devices"]), host)
    assert host.drivers()["0000:23:00.0"] == "vfio-pci"
    assert report.verified is False
    assert report.left.deferred


def test_vfs_are_in_no_file_and_in_no_image(host: FakeDrivers) -> None:
    given = intent(2)
    make(given, host)
    found = host.disk()
    report = run(given, host)
    assert all(path.startswith("pci_driver[0000:") for path in paths(report))
    changed = {path for path, entry in host.disk().items() if found.get(path) != entry}
    assert changed == {"/var/lib/gpudirect/owned.json"}


def test_another_number_makes_them_anew_and_they_are_taken_again(host: FakeDrivers) -> None:
    make(intent(2), host)
    run(intent(2), host)
    report = look(intent(4), host)
    assert [entry.waits_for for entry in report.left.deferred] == ["sriov"]
    assert not report.plan.changes
    make(intent(4), host)
    assert run(intent(4), host).verified
    assert list(vfs(host).values()) == ["vfio-pci"] * 8
    make(intent(1), host)
    assert run(intent(1), host).verified
    assert list(vfs(host).values()) == ["vfio-pci"] * 2
    make({}, host)
    run({}, host)
    assert not host.owned()


def test_a_boot_loses_them_and_the_next_run_takes_them_again(host: FakeDrivers) -> None:
    given = intent(2)
    make(given, host)
    run(given, host)
    host.boot()
    assert look(given, host).left.deferred
    make(given, host)
    assert run(given, host).verified
    assert list(vfs(host).values()) == ["vfio-pci"] * 4


def test_vfs_without_a_driver_go_back_to_none_and_others_to_theirs(host: FakeDrivers) -> None:
    make(intent(2), host)
    assert set(vfs(host).values()) == {""}
    run(intent(2), host)
    run({}, host)
    assert set(vfs(host).values()) == {""}
    assert host.overrides() == {}
    own = {"sriov_ports": [{"select": {"device": "10c9"}, "vfs": 3, "autoprobe": True}]}
    host.run(["modprobe", "igbvf"])
    make(own, host)
    assert set(vfs(host).values()) == {"igbvf"}
    run({**own, **devices(VF)}, host)
    assert set(vfs(host).values()) == {"vfio-pci"}
    run(own, host)
    assert set(vfs(host).values()) == {"igbvf"}


def test_a_vf_that_the_host_uses_itself_disrupts_its_link(host: FakeDrivers) -> None:
    own = {"sriov_ports": [{"select": {"device": "10c9"}, "vfs": 1, "autoprobe": True}]}
    host.run(["modprobe", "igbvf"])
    make(own, host)
    host.address("ens1v0", "198.51.100.9")
    blocked = look({**own, **devices(VF)}, host).plan.blocked_by(Disruption.NOTHING)
    assert [change.why for change in blocked] == ["vf: from igbvf to vfio-pci; ens1v0 has the address 198.51.100.9"]


def test_vfs_that_are_wanted_and_made_away_with_are_an_error(host: FakeDrivers) -> None:
    make(intent(2), host)
    with pytest.raises(HostRefused, match=r"sriov_ports\[0\] asks for none there"):
        look({**intent(0)}, host)


def test_expected_numbers_count_all_ports(host: FakeDrivers) -> None:
    make(intent(2), host)
    assert run(intent(2, expect=4), host).verified
    with pytest.raises(HostRefused, match="matches only 4 devices"):
        look(intent(2, expect=5), host)


def test_vfs_of_ports_that_nothing_manages_are_taken_as_they_are(host: FakeDrivers) -> None:
    host._set_count(host.machine[PF], 2)
    assert run(devices(VF), host).verified
    assert list(vfs(host).values()) == ["vfio-pci"] * 2


def test_a_guest_keeps_its_vf_while_others_are_taken(host: FakeDrivers) -> None:
    make(intent(2), host)
    run(intent(2), host)
    first = next(iter(vfs(host)))
    host.guest(first)
    with host.only_read():
        assert run(intent(2), host).verified
    with pytest.raises(HostRefused, match="cannot be given back"):
        run({}, host)


def test_vfs_that_went_with_their_port_leave_no_record(host: FakeDrivers) -> None:
    make(intent(2), host)
    run(intent(2), host)
    host.boot()
    run({}, host)
    make({}, host)
    assert not host.owned()


def test_a_number_that_will_not_come_is_refused_before_the_vfs_are_made(host: FakeDrivers) -> None:
    with pytest.raises(HostRefused, match=r"another number of VFs.*3 on 0000:24:00.0.*found 6, wanted 5"):
        look(intent(3, expect=5), host)
    assert look(intent(3, expect=6), host).left.deferred


def test_vfs_that_would_share_the_group_of_their_port_are_refused_before_they_are_made(tmp_path: Path) -> None:
    """The port above a NIC has no ACS: as the kernel groups it, the port, the NIC and all its VFs are together."""
    machine = fake_machines.rack()
    nic = machine[PF]
    nic.above.isolated = False  # type: ignore[union-attr]
    host = built(tmp_path / "root", machine)
    assert nic.group == nic.above.group  # type: ignore[union-attr]
    with pytest.raises(HostRefused, match=r"VFs of 0000:24:00.0 \(.*will share IOMMU group .*0000:22:01.0 has no ACS"):
        look(intent(2), host)
    narrow = {"vfs_of": {"device": "10c9", "numa_node": 1}}
    assert look({**intent(2), **devices({"name": "vf", "select": narrow})}, host).left.deferred
