"""SR-IOV on hosts that react: prediction, idempotence, undo, the number of VFs, selection, identity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Disruption
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import (
    ApplyFailed,
    UnreadableState,
)
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host

from tests.fixtures.fake_nic import Nic
from tests.fixtures.fake_sriov import FakeSriov
from tests.fixtures.sriov_hosts import (
    CX6,
    FIRST,
    IGB,
    ONE,
    RACK,
    SECOND,
    VELA,
    built,
    disown,
    look,
    ports,
    rack,
    refused,
    run,
    settle,
    vela,
)

MACHINES: dict[str, tuple[Any, dict[str, Any]]] = {"rack": ("rack", RACK), "vela": ("vela", VELA)}


@pytest.fixture(params=MACHINES)
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FakeSriov, dict[str, Any]]:
    like, entry = MACHINES[request.param]
    return built(tmp_path / "root", like), ports(entry)


@pytest.fixture
def host(tmp_path: Path) -> FakeSriov:
    return built(tmp_path / "root", "rack")


@pytest.fixture
def cx6(tmp_path: Path) -> FakeSriov:
    return built(tmp_path / "root", "vela")


# Prediction, idempotence, undo -----------------------------------------------------------


def test_check_mode_writes_nothing_and_predicts_what_the_run_does(both: tuple[FakeSriov, dict[str, Any]]) -> None:
    host, intent = both
    for wanted in (intent, {}):
        predicted = look(wanted, host)
        real = run(wanted, host.revive())
        assert real.as_result()["plan"] == predicted.as_result()["plan"]
        assert real.verified


def test_every_vf_has_what_the_intent_says(tmp_path: Path) -> None:
    host = built(tmp_path / "root", "vela")
    settle(ports(VELA), host)
    for nic in host.nics.values():
        assert (nic.mtu, nic.up, len(nic.vfs)) == (9000, True, 4)
        assert all(vf.trust and not vf.spoofchk and vf.link_state == "enable" for vf in nic.vfs)
        assert all((vf.min_tx_rate, vf.max_tx_rate) == (100, 25000) for vf in nic.vfs)
        assert (nic.vfs[0].vlan, nic.vfs[0].qos, nic.vfs[3].vlan, nic.vfs[3].protocol) == (100, 3, 7, "802.1ad")
    assert len({vf.mac for nic in host.nics.values() for vf in nic.vfs} - {"00:00:00:00:00:00"}) == 8
    assert not any(vf.driver for pf in host.nics for vf in host.pf(pf).vfs.functions)  # type: ignore[union-attr]


def test_the_same_address_for_a_vf_of_two_ports_is_found_on_the_host(cx6: FakeSriov) -> None:
    """An entry that matches two ports gives both the same."""
    said = refused(ports({**VELA, "vf": {3: {"mac": "02:00:00:00:00:03"}}}), cx6)
    assert said == (
        "sriov_ports[0].vf[3].mac: 02:00:00:00:00:03, for 0000:24:00.0, is that of VF 3 of 0000:14:00.0 too. "
        "Give each VF its own, in vf."
    )


def test_a_second_run_writes_nothing_and_bounces_no_link(both: tuple[FakeSriov, dict[str, Any]]) -> None:
    host, intent = both
    settle(intent, host)
    bounces = [nic.bounces for nic in host.nics.values()]
    with host.only_read():
        report = run(intent, host)
    assert not report.changed
    assert report.verified
    assert [nic.bounces for nic in host.nics.values()] == bounces


def test_without_intent_the_host_is_as_found(both: tuple[FakeSriov, dict[str, Any]]) -> None:
    host, intent = both
    found, disk = host.live(), host.disk()
    settle(intent, host)
    assert host.live() != found
    settle({}, host)
    assert host.live() == found
    assert host.disk() == disk
    assert not host.owned()


def test_a_host_without_intent_is_not_even_looked_at(host: FakeSriov) -> None:
    assert look({}, host).plan.empty
    assert not host.commands


def test_vfs_that_were_there_before_come_back_with_their_attributes(host: FakeSriov) -> None:
    others = {
        **RACK,
        "vfs": 2,
        "vf_defaults": {"trust": True, "max_tx_rate": 40, "mac": "stable"},
        "vf": {1: {"vlan": 5}},
    }
    settle(ports(others), host)
    disown(host)
    found = host.live()
    settle(ports(RACK), host)
    settle(ports({**RACK, "vfs": 1, "vf": {}}), host)
    settle({}, host)
    assert host.live() == found


def test_vfs_that_had_their_driver_have_it_again_also_where_the_number_is_the_same(host: FakeSriov) -> None:
    host.machine.load("igbvf")
    settle(ports({"select": ONE, "vfs": 2, "autoprobe": True}), host)
    disown(host)
    found = host.live()
    for count in (0, 2):
        settle(ports({"select": ONE, "vfs": count}), host)
    assert host.live()[FIRST]["drivers"] == ["", ""]
    settle({}, host)
    assert host.live() == found


def test_attributes_of_vfs_that_were_there_go_back_too(host: FakeSriov) -> None:
    settle(ports({"select": ONE, "vfs": 2, "vf_defaults": {"trust": True}}), host)
    disown(host)
    found = host.live()
    settle(ports({"select": ONE, "vfs": 2, "vf_defaults": {"trust": False, "spoofchk": False}}), host)
    settle(ports({"select": ONE, "vfs": 2, "vf_defaults": {"spoofchk": False, "vlan": 3}}), host)
    assert [vf.trust for vf in host.nics[FIRST].vfs] == [True, True]
    settle({}, host)
    assert host.live() == found


def test_intent_that_changes_leaves_nothing_of_the_first(
    tmp_path: Path, both: tuple[FakeSriov, dict[str, Any]]
) -> None:
    host, intent = both
    found = host.live()
    select = intent["sriov_ports"][0]["select"]
    for other in (
        ports({"select": select, "vfs": 3, "vf_defaults": {"mac": "kept"}}),
        ports({"select": select, "vfs": 4, "vf_defaults": {"vlan": 9}, "vf": {1: {"trust": True}}}),
        ports({"select": select, "vfs": 0, "mtu": 4000}),
        ports({"select": select, "vfs": 3, "autoprobe": True, "vf": {2: {"max_tx_rate": 10}}}),
    ):
        fresh = host.clone(tmp_path / f"fresh{len(list(tmp_path.iterdir()))}")
        settle({}, fresh)
        assert fresh.live() == found
        settle(other, fresh)
        settle(intent, host)
        settle(other, host)
        assert host.live() == fresh.live()
    settle({}, host)
    assert host.live() == found


def test_after_a_boot_the_plan_shows_it_all_again(both: tuple[FakeSriov, dict[str, Any]]) -> None:
    host, intent = both
    first = look(intent, host).as_result()["plan"]
    settle(intent, host)
    host.boot()
    assert look(intent, host).as_result()["plan"] == first
    settle(intent, host)
    host.boot()
    found = host.live()
    report = run({}, host)
    assert {change.step for change in report.plan.changes} == {None}
    assert host.live() == found
    assert not host.owned()


def test_what_is_found_in_a_later_boot_is_what_undo_goes_back_to(host: FakeSriov) -> None:
    settle(ports(RACK), host)
    host.boot()
    host.nics[FIRST].mtu = 2000
    host._tell_net(FIRST)
    settle(ports(RACK), host)
    settle({}, host)
    assert host.nics[FIRST].mtu == 2000
    assert host.nics[SECOND].mtu == 1500


def test_a_port_that_leaves_the_intent_goes_back_and_the_other_stays(host: FakeSriov) -> None:
    found = host.live()
    settle(ports(RACK), host)
    both_of_them = host.live()
    settle(ports({**RACK, "select": {"address": SECOND}}), host)
    assert host.live() == {FIRST: found[FIRST], SECOND: both_of_them[SECOND]}


# The number of VFs -----------------------------------------------------------------------


def test_another_number_goes_through_none(host: FakeSriov) -> None:
    settle(ports({"select": ONE, "vfs": 2}), host)
    host.revive()
    run(ports({"select": ONE, "vfs": 3}), host)
    assert host.acts.count(f"set /sys/bus/pci/devices/{FIRST}/sriov_numvfs") == 2
    assert len(host.nics[FIRST].vfs) == 3


def test_the_kernel_binds_new_vfs_only_where_asked(host: FakeSriov) -> None:
    host.machine.load("igbvf")
    settle(ports({"select": ONE, "vfs": 2}, {"select": {"address": SECOND}, "vfs": 2, "autoprobe": True}), host)
    drivers = {address: one["drivers"] for address, one in host.live().items()}
    assert drivers == {FIRST: ["", ""], SECOND: ["igbvf", "igbvf"]}


def test_vfs_and_their_groups_are_waited_for(tmp_path: Path) -> None:
    host = built(tmp_path / "root", "rack", {"ens1": {"slow": 3}, "ens2": {"slow": 3}})
    settle(ports(RACK), host)


def test_vfs_that_never_come_into_a_group_stop_the_run(tmp_path: Path) -> None:
    host = built(tmp_path / "root", "rack", {"ens1": {"slow": 1000}})
    with pytest.raises(ApplyFailed, match=r"VF 0 is in no IOMMU group after 60 s"):
        run(ports({"select": ONE, "vfs": 1}), host)


def test_igb_takes_seven_of_eight(host: FakeSriov) -> None:
    said = refused(ports({"select": ONE, "vfs": 8}), host)
    assert (
        "sriov_ports[0].vfs: 0000:24:00.0 takes fewer VFs than its register says: 8 there, 7 by the driver igb" in said
    )
    settle(ports({"select": ONE, "vfs": 7}), host)


def test_more_vfs_than_firmware_allows(cx6: FakeSriov) -> None:
    said = refused(ports({"select": CX6, "vfs": 24}), cx6)
    assert "firmware allows 16 VFs on 0000:14:00.0, 24 asked (found 16, wanted 24). Set NUM_OF_VFS" in said


def test_no_room_for_vfs(tmp_path: Path) -> None:
    host = built(tmp_path / "root", "rack", {"ens1": {"no_room": True}})
    with pytest.raises(ApplyFailed, match="refused 2: Cannot allocate memory.*Above 4G Decoding") as caught:
        run(ports({"select": ONE, "vfs": 2, "mtu": 9000}), host)
    assert caught.value.done == (f"sriov[{FIRST}].autoprobe", f"sriov[{FIRST}].mtu")  # type: ignore[attr-defined]
    host.nics[FIRST].no_room = False
    settle(ports({"select": ONE, "vfs": 2, "mtu": 9000}), host)


def test_somebody_else_made_vfs_meanwhile(host: FakeSriov, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Nic, "bounce", lambda nic: None)
    original = FakeSriov._attribute

    def race(self: FakeSriov, path: str, text: str) -> None:
        if path.endswith("sriov_numvfs") and text == "2":
            self._make(self.pf(FIRST), self.nics[FIRST], 1)
        original(self, path, text)

    monkeypatch.setattr(FakeSriov, "_attribute", race)
    with pytest.raises(ApplyFailed, match="Device or resource busy"):
        run(ports({"select": ONE, "vfs": 2}), host)


# Selection -------------------------------------------------------------------------------


def test_two_entries_that_select_the_same_port(host: FakeSriov) -> None:
    said = refused(ports({"select": IGB, "vfs": 1}, {"select": {"netdev": "ens2"}, "vfs": 2}), host)
    assert said == (
        "sriov_ports[1].select: 0000:44:00.0 is selected by sriov_ports[0] too. "
        "Narrow one of them: a port is wanted one way."
    )


def test_what_has_no_sriov_is_no_port(host: FakeSriov) -> None:
    said = refused(ports({"select": {"netdev": "enats0"}, "vfs": 1}, {"select": {"vendor": "abcd"}, "vfs": 1}), host)
    assert "sriov_ports[0].select: matches no device" in said
    assert "it has no SR-IOV" in said
    assert "sriov_ports[1].select: matches no device" in said


def test_the_order_of_entries_changes_nothing(host: FakeSriov) -> None:
    entries = [{"select": ONE, "vfs": 1}, {"select": {"address": SECOND}, "vfs": 2}]
    assert look(ports(*entries), host).as_result() == look(ports(*entries[::-1]), host).as_result()


def test_a_port_without_a_driver(host: FakeSriov) -> None:
    host.machine.bind(FIRST, "")
    assert "no driver is bound to 0000:24:00.0, and only a driver makes VFs" in refused(
        ports({"select": ONE, "vfs": 1}), host
    )
    host.machine.bind(FIRST, "vfio-pci")
    said = refused(ports({"select": ONE, "vfs": 1}), host)
    assert "0000:24:00.0 has no network device (found driver vfio-pci)" in said


# Identity --------------------------------------------------------------------------------


def swapped(host: FakeSriov) -> None:
    """Another card of the same kind is in the slot when the host boots."""
    assert host.at_boot is not None
    machine, nics = host.at_boot
    machine[FIRST].serial = "52-54-00-ff-ff-00-00-01"
    nics[FIRST].mac = machine[FIRST].nets[0].mac = "52:54:00:00:00:01"
    host.boot()


def test_another_device_at_the_address_is_refused(host: FakeSriov) -> None:
    settle(ports(RACK), host)
    swapped(host)
    said = refused(ports(RACK), host)
    assert (
        "the device at 0000:24:00.0 is not the one that was set up there: its serial is 52-54-00-ff-ff-00-00-01" in said
    )
    assert "put 0000:24:00.0 into gpudirect_replaced" in said
    assert SECOND not in said


def test_a_card_without_a_serial_is_told_by_its_own_mac(host: FakeSriov) -> None:
    assert host.at_boot is not None
    for machine in (host.machine, host.at_boot[0]):
        machine[FIRST].serial = ""
    host.boot()
    settle(ports(RACK), host)
    host.at_boot[1][FIRST].mac = host.at_boot[0][FIRST].nets[0].mac = "52:54:00:00:00:01"
    host.boot()
    said = refused(ports(RACK), host)
    assert "is not the one that was set up there: its own MAC is 52:54:00:00:00:01, recorded is 52:54:00:" in said
    settle(ports(RACK, gpudirect_replaced=[FIRST]), host)
    assert look(ports(RACK), host).plan.empty


def test_a_device_that_was_replaced_on_purpose_is_taken(host: FakeSriov) -> None:
    settle(ports(RACK), host)
    swapped(host)
    found = host.live()
    settle(ports(RACK, gpudirect_replaced=["24:0.0"]), host)
    assert look(ports(RACK), host).plan.empty
    settle({}, host)
    assert host.live() == found


def test_a_replaced_device_that_is_partly_right_already_leaves_nothing_of_the_old_one(host: FakeSriov) -> None:
    settle(ports(RACK), host)
    assert host.at_boot is not None
    host.at_boot[1][FIRST].mtu = 9000
    swapped(host)
    settle(ports(RACK, gpudirect_replaced=[FIRST]), host)
    assert look(ports(RACK), host).plan.empty


def test_what_was_done_to_a_device_that_is_gone_is_only_forgotten(host: FakeSriov) -> None:
    settle(ports(RACK), host)
    swapped(host)
    found = host.live()
    run({}, host)
    assert host.live() == found
    assert not host.owned()


def test_a_device_that_was_pulled_out_is_only_forgotten(host: FakeSriov) -> None:
    settle(ports({**RACK, "select": ONE}), host)
    for vf in [one.address for one in host.pf(FIRST).vfs.functions]:  # type: ignore[union-attr]
        host.machine.vanish(vf)
    host.machine.vanish(FIRST)
    del host.nics[FIRST]
    run({}, host)
    assert not host.owned()


def test_a_port_in_a_container_is_not_given_up(host: FakeSriov) -> None:
    settle(ports({**RACK, "select": ONE}), host)
    nets, host.pf(FIRST).nets = host.pf(FIRST).nets, []
    host.machine.bind(FIRST, "igb")
    said = refused({}, host)
    assert "cannot be given back: igb has it, and no network device is seen here" in said
    host.pf(FIRST).nets = nets
    host.machine.bind(FIRST, "igb")
    settle({}, host)


# What cannot be read ---------------------------------------------------------------------


def test_a_list_of_vfs_that_was_cut(host: FakeSriov) -> None:
    settle(ports({"select": ONE, "vfs": 3}), host)
    host.nics[FIRST].vfs.pop()
    assert "tells not all VFs of ens1 (found 2 VFs, wanted 3)" in refused(
        ports({"select": ONE, "vfs": 3}), host, UnreadableState
    )


def test_a_captured_tree_is_never_judged_as_right(host: FakeSriov, tmp_path: Path) -> None:
    from ansible_collections.vela.gpudirect.plugins.module_utils import sriov
    from ansible_collections.vela.gpudirect.plugins.module_utils.core.converge import converge

    captured = Host(host.root)
    report = converge(sriov, ports({"select": IGB, "vfs": 1}), captured, allow=Disruption.HOST, check=True)
    assert [entry.waits_for for entry in report.plan.deferred] == ["the running host"]
    assert report.verified is False
    assert converge(sriov, {}, captured, allow=Disruption.HOST, check=True).plan.empty


def test_machines_are_what_the_tests_say() -> None:
    assert [one.own_driver for one in rack().by_address() if one.vfs] == ["igb", "igb"]
    assert [one.own_driver for one in vela().by_address() if one.vfs] == ["mlx5_core", "mlx5_core"]
