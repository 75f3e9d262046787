"""SR-IOV on hosts that react: prediction, idempotence, undo, refusals before and in the middle, guests, protected ports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Disruption
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import (
    ApplyFailed,
    ConsentRequired,
    HostRefused,
    UnreadableState,
    VerificationFailed,
)
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Connection, Host

from tests.fixtures.fake_nic import Nic, Upper
from tests.fixtures.fake_sriov import FakeSriov
from tests.fixtures.sriov_hosts import built, disown, look, paths, ports, rack, run, settle, vela

FIRST, SECOND = "0000:24:00.0", "0000:44:00.0"
IGB = {"vendor": "8086", "device": "10c9"}
CX6 = {"vendor": "15b3", "device": "101d"}
ONE = {"address": FIRST}
VELA = {
    "select": CX6,
    "vfs": 4,
    "mtu": 9000,
    "eswitch": "legacy",
    "vf_defaults": {"trust": True, "spoofchk": False, "link_state": "enable", "max_tx_rate": 25000, "min_tx_rate": 100},
    "vf": {0: {"vlan": 100, "qos": 3}, 3: {"vlan": 7, "vlan_protocol": "802.1ad"}},
}
RACK = {
    "select": IGB,
    "vfs": 3,
    "mtu": 9000,
    "vf_defaults": {"trust": True, "spoofchk": False, "max_tx_rate": 100},
    "vf": {0: {"vlan": 100, "qos": 3}},
}
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


def refused(intent: dict[str, Any], host: FakeSriov, kind: type[Exception] = HostRefused) -> str:
    """The message of a run that is refused before its first write."""
    before = host.live()
    with host.only_read(), pytest.raises(kind) as caught:
        run(intent, host)
    assert host.live() == before
    return str(caught.value)


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


# Refusals by the driver ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        (
            {"link_state": "enable"},
            "vf[0].link_state: 0000:24:00.0: the driver igb has no link state of VFs (found enable)",
        ),
        ({"min_tx_rate": 10}, "vf[0].min_tx_rate: 0000:24:00.0: the driver igb guarantees no rate (found 10)"),
        ({"vlan": 5, "vlan_protocol": "802.1ad"}, "the driver igb takes no other tag than 802.1q (found 802.1ad)"),
    ],
)
def test_what_a_driver_is_known_not_to_do_is_said_once_a_port(host: FakeSriov, attributes: Any, said: str) -> None:
    found = refused(ports({"select": ONE, "vfs": 4, "vf_defaults": attributes}), host)
    assert said in found
    assert found.count("\n") == 0


def test_what_igb_does_anyway_is_no_refusal(host: FakeSriov) -> None:
    settle(ports({"select": ONE, "vfs": 2, "vf_defaults": {"link_state": "auto", "min_tx_rate": 0}}), host)
    assert not any("batch" in act and "state" in act for act in host.acts)


def test_guids_are_for_infiniband_ports(host: FakeSriov) -> None:
    guids = {0: {"node_guid": "00:11:22:33:44:55:66:77", "port_guid": "00:11:22:33:44:55:66:78"}}
    said = refused(ports({"select": ONE, "vfs": 2, "vf": guids}), host)
    assert said.count("only VFs of InfiniBand ports have GUIDs") == 2 or said.count("GUIDs") >= 1


def test_an_infiniband_port_has_guids_and_no_addresses(tmp_path: Path) -> None:
    host = built(tmp_path / "root", "vela", {"ens0f0np0": {"link_type": "infiniband"}})
    guids = {
        number: {"node_guid": f"00:11:22:33:44:55:66:7{number}", "port_guid": f"00:11:22:33:44:55:77:7{number}"}
        for number in range(2)
    }
    address = next(address for address, nic in host.nics.items() if nic.link_type == "infiniband")
    found = host.live()
    settle(ports({"select": {"address": address}, "vfs": 2, "vf": guids}), host)
    assert [vf.port_guid for vf in host.nics[address].vfs] == ["00:11:22:33:44:55:77:70", "00:11:22:33:44:55:77:71"]
    settle({}, host)
    assert host.live() == found
    said = refused(ports({"select": {"address": address}, "vfs": 1, "vf": {0: {"mac": "02:00:00:00:00:01"}}}), host)
    assert "VFs of InfiniBand ports have GUIDs, not MAC addresses" in said


def test_a_refusal_in_the_middle_says_what_was_done_and_the_next_run_goes_on(tmp_path: Path) -> None:
    host = built(tmp_path / "root", "vela", {"ens1f0np0": {"refuses": {"trust": "Error: mlx5_core: no such thing."}}})
    found = host.live()
    with pytest.raises(ApplyFailed) as caught:
        run(ports(VELA), host)
    said = str(caught.value)
    assert (
        "the driver mlx5_core refused trust on: mlx5_core: no such thing. Of 18 requests for this port the first 2 were met"
        in said
    )
    assert "vf[0]" in said
    assert "(9 of 10 changes)" in said
    assert len(caught.value.done) == 9  # type: ignore[attr-defined]
    next(nic for nic in host.nics.values() if nic.refuses).refuses.clear()
    settle(ports(VELA), host)
    settle({}, host)
    assert host.live() == found


def test_a_driver_that_says_yes_and_does_nothing_fails_verification(tmp_path: Path) -> None:
    host = built(tmp_path / "root", "vela", {"ens0f0np0": {"forgets": True}})
    with pytest.raises(VerificationFailed, match=r"\.vf: does not read back"):
        run(ports({"select": CX6, "vfs": 1}), host)


def test_what_a_driver_tells_nothing_of_cannot_be_kept(tmp_path: Path) -> None:
    host = built(tmp_path / "root", "rack", {"ens1": {"untold": ("trust",)}})
    with pytest.raises(ApplyFailed, match=r"the driver igb tells nothing of it \(trust\)"):
        run(ports({"select": ONE, "vfs": 1, "vf_defaults": {"trust": True}}), host)


# Rates and the link ----------------------------------------------------------------------


def test_carrier_is_waited_for_before_rates(tmp_path: Path) -> None:
    host = built(tmp_path / "root", "rack", {"ens1": {"slow": 5}, "ens2": {"slow": 5}})
    settle(ports(RACK), host)
    assert {vf.max_tx_rate for nic in host.nics.values() for vf in nic.vfs} == {100}


def test_without_carrier_everything_but_rates_is_set(tmp_path: Path) -> None:
    host = built(tmp_path / "root", "rack", {"ens1": {"cable": False}})
    with pytest.raises(ApplyFailed, match="sets rates only while the port has a link, and ens1 has none"):
        run(ports({**RACK, "select": ONE}), host)
    assert [vf.trust for vf in host.nics[FIRST].vfs] == [True] * 3
    host.nics[FIRST].cable = True
    host._tell_net(FIRST)
    settle(ports({**RACK, "select": ONE}), host)


def test_a_rate_above_the_link_is_refused_where_the_link_is_known(tmp_path: Path) -> None:
    wanted = ports({"select": ONE, "vfs": 2, "vf_defaults": {"max_tx_rate": 2000}})
    host = built(tmp_path / "up", "rack", {"ens1": {"up": True}})
    assert (
        "vf[0].max_tx_rate: the rate is above the speed of 0000:24:00.0 (found 2000 Mb/s, wanted at most 1000 Mb/s)"
        in (refused(wanted, host))
    )
    host = built(tmp_path / "down", "rack")
    with pytest.raises(ApplyFailed, match=r"a rate is above the speed of ens1 \(found 2000 Mb/s, wanted 1000 Mb/s\)"):
        run(wanted, host)


def test_mtu_outside_what_the_device_takes(host: FakeSriov) -> None:
    said = refused(ports({"select": ONE, "vfs": 0, "mtu": 9217}), host)
    assert "sriov_ports[0].mtu: ens1 takes no such MTU (found 9217, wanted 68 to 9216)" in said


# Who uses the port -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nic", "uppers", "why"),
    [
        ({"up": True, "addresses": ["192.0.2.7"]}, [], "ens1 has the address 192.0.2.7"),
        ({"master": "br0"}, [Upper("br0", "bridge")], "ens1 is a port of bridge br0"),
        ({}, [Upper("ens1.5", "vlan", "ens1")], "vlan ens1.5 lies on ens1"),
    ],
)
def test_a_port_in_use_needs_consent_for_the_link(tmp_path: Path, nic: Any, uppers: Any, why: str) -> None:
    host = built(tmp_path / "root", "rack", {"ens1": nic}, uppers=uppers)
    intent = ports({"select": IGB, "vfs": 1, "mtu": 9000})
    report = look(intent, host, Disruption.NOTHING)
    blocked = [change["path"] for change in report.as_result()["blocked"]]
    assert blocked == [f"sriov[{FIRST}].mtu", f"sriov[{FIRST}].vfs"]
    with host.only_read(), pytest.raises(ConsentRequired, match=f"disrupts the link.*{why}"):
        run(intent, host, allow=Disruption.NOTHING)
    run(intent, host, allow=Disruption.LINK)


def test_an_idle_port_needs_none_even_while_it_is_up(tmp_path: Path) -> None:
    host = built(tmp_path / "root", "rack", {"ens1": {"up": True}, "ens2": {"up": True}})
    assert run(ports(RACK), host, allow=Disruption.NOTHING).verified


def test_a_guest_that_holds_a_vf_needs_consent_for_guests(host: FakeSriov) -> None:
    found = host.live()
    settle(ports({"select": IGB, "vfs": 2}), host)
    host.hold(host.pf(FIRST).vfs.functions[1].address)  # type: ignore[union-attr]
    for intent in (ports({"select": IGB, "vfs": 4}), ports({"select": IGB, "vfs": 2, "mtu": 9000}), {}):
        blocked = look(intent, host, Disruption.LINK).as_result()["blocked"]
        assert blocked
        assert all(change["path"].startswith(f"sriov[{FIRST}]") for change in blocked)
        with host.only_read(), pytest.raises(ConsentRequired, match="disrupts the guest.*VF 1: process 4711 holds"):
            run(intent, host, allow=Disruption.LINK)
    assert not look(ports({"select": IGB, "vfs": 2}), host).changed
    assert not host.taken_from_guests
    run({}, host, allow=Disruption.GUEST)
    assert host.live() == found
    assert host.taken_from_guests


def test_attributes_of_the_other_vfs_of_a_port_can_be_changed(host: FakeSriov) -> None:
    settle(ports({"select": ONE, "vfs": 2}), host)
    host.hold(host.pf(FIRST).vfs.functions[1].address, device="vfio0")  # type: ignore[union-attr]
    run(ports({"select": ONE, "vfs": 2, "vf": {0: {"trust": True}}}), host, allow=Disruption.NOTHING)
    with pytest.raises(ConsentRequired, match="VF 1: process 4711 holds"):
        run(
            ports({"select": ONE, "vfs": 2, "vf": {0: {"trust": True}, 1: {"trust": True}}}),
            host,
            allow=Disruption.LINK,
        )


def test_vfs_on_vfio_whose_users_cannot_be_told_count_as_held(host: FakeSriov) -> None:
    settle(ports({"select": ONE, "vfs": 2}), host)
    host.machine.bind(host.pf(FIRST).vfs.functions[0].address, "vfio-pci")  # type: ignore[union-attr]
    host.blind = "the open files of process 1 cannot be read: Permission denied"
    with pytest.raises(ConsentRequired, match="whether a guest holds it cannot be told: the open files of process 1"):
        run({}, host, allow=Disruption.LINK)
    host.blind = ""
    run({}, host, allow=Disruption.NOTHING)


def test_vfs_that_the_host_uses_need_consent_for_the_link(host: FakeSriov) -> None:
    host.machine.load("igbvf")
    settle(ports({"select": ONE, "vfs": 2, "autoprobe": True}), host)
    host.address("ens1v1", "192.0.2.9")
    with pytest.raises(ConsentRequired, match="ens1v1 has the address 192.0.2.9"):
        run({}, host, allow=Disruption.NOTHING)
    host.pf(FIRST).vfs.functions[1].nets.clear()  # type: ignore[union-attr]
    host.machine.bind(host.pf(FIRST).vfs.functions[1].address, "igbvf")  # type: ignore[union-attr]
    with pytest.raises(
        ConsentRequired, match="VF 1 is on igbvf and has no network device here: a container may have it"
    ):
        run({}, host, allow=Disruption.NOTHING)
    run({}, host, allow=Disruption.LINK)


def test_a_bond_in_legacy_mode(tmp_path: Path) -> None:
    bond = [Upper("bond0", "bond")]
    host = built(tmp_path / "root", "vela", {"ens0f0np0": {"master": "bond0"}}, uppers=bond)
    said = refused(ports({"select": CX6, "vfs": 2}), host)
    assert "sriov_ports[0].vfs: ens0f0np0 is a port of the bond bond0: in legacy mode its VFs stay on one port" in said
    assert "mlx5_bond_0" in said
    run(ports({"select": CX6, "vfs": 2, "eswitch": "switchdev"}), host, allow=Disruption.LINK)


# Ports that must not be touched ----------------------------------------------------------

DEFAULT = {"dst": "default", "gateway": "192.0.2.1", "flags": []}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"routes": {"-4": [{**DEFAULT, "dev": "ens1"}]}}, "ens1: it carries the default route"),
        ({"routes": {"-6": [{**DEFAULT, "dev": "ens1"}]}}, "ens1: it carries the default route"),
        ({"routes": {"-4": [{"dst": "default", "nexthops": [{"dev": "enp0s3"}, {"dev": "ens1"}]}]}}, "the default route"),
        (
            {"routes": {"-4": [{**DEFAULT, "dev": "br0.7"}]}, "uppers": [Upper("br0.7", "vlan", "br0"), Upper("br0", "bridge")],
             "nic": {"master": "br0"}},
            "it carries the default route (through br0.7)",
        ),
        (
            {"ssh": Connection("198.51.100.1", "192.0.2.7"), "nic": {"addresses": ["192.0.2.7"]}},
            "the connection from 198.51.100.1 comes through it",
        ),
        (
            {"ssh": Connection("fe80::1%ens1", "192.0.2.7"), "ways": {"fe80::1": "bond0"}, "nic": {"master": "bond0"},
             "uppers": [Upper("bond0", "bond")]},
            "comes through it (through bond0)",
        ),
    ],
)  # fmt: skip
def test_the_port_of_the_default_route_or_the_connection_is_never_touched(
    tmp_path: Path, more: dict[str, Any], why: str
) -> None:
    nic = more.pop("nic", {})
    host = built(tmp_path / "root", "rack", {"ens1": nic}, **more)
    said = refused(ports({"select": IGB, "vfs": 0, "mtu": 9000}), host)
    assert "0000:24:00.0 must not be touched: " in said
    assert why in said
    assert SECOND not in said
    run(ports({"select": {"address": SECOND}, "vfs": 1}), host, allow=Disruption.LINK)


def test_a_protected_port_that_is_as_wanted_is_no_problem(tmp_path: Path) -> None:
    routes = {"-4": [{**DEFAULT, "dev": "ens1"}]}
    host = built(tmp_path / "root", "rack", {"ens1": {"mtu": 9000, "up": True}}, routes=routes)
    assert look(ports({"select": ONE, "vfs": 0, "mtu": 9000, "autoprobe": True}), host).plan.empty


def test_the_pf_of_a_vf_that_carries_the_default_route_is_not_touched(host: FakeSriov) -> None:
    host.machine.load("igbvf")
    settle(ports({"select": ONE, "vfs": 2, "autoprobe": True}), host)
    host.routes = {"-4": [{**DEFAULT, "dev": "ens1v0"}]}
    assert "must not be touched: ens1v0: it carries the default route" in refused({}, host)


def test_ipv6_that_is_switched_off_is_not_asked(host: FakeSriov) -> None:
    host.path("/proc/net/if_inet6").unlink()
    look(ports({"select": ONE, "vfs": 1}), host)
    assert not [done for done in host.commands if "-6" in done.argv]


# Eswitch ---------------------------------------------------------------------------------

SWITCHDEV = {"select": CX6, "vfs": 3, "eswitch": "switchdev", "mtu": 9000, "vf_defaults": {"max_tx_rate": 1000}}


@pytest.mark.parametrize("renamed", [False, True])
@pytest.mark.parametrize("before", [0, 2])
def test_switchdev_first_then_vfs_and_back(tmp_path: Path, before: int, renamed: bool) -> None:
    names = {name: {"renamed": f"{name[:4]}np0"} for name in ("ens0f0np0", "ens1f0np0")} if renamed else {}
    host = built(tmp_path / "root", "vela", names)
    if before:
        settle(ports({"select": CX6, "vfs": before, "vf_defaults": {"trust": True, "vlan": 5}}), host)
        disown(host)
    found = host.live()
    report = settle(ports(SWITCHDEV), host)
    names_of_one = [path.rpartition(".")[2] for path in paths(report)][: len(paths(report)) // 2]
    assert [name for name in names_of_one if name in ("vfs", "eswitch")] == (["vfs"] if before else []) + [
        "eswitch",
        "vfs",
    ]
    assert all(nic.mode == "switchdev" and len(nic.vfs) == 3 for nic in host.nics.values())
    assert host.machine[next(iter(host.nics))].nets[1].port_name == "pf0vf0"
    settle({}, host)
    assert host.live() == found


def test_the_same_mode_is_no_change(cx6: FakeSriov) -> None:
    assert look(ports({"select": CX6, "vfs": 0, "eswitch": "legacy", "autoprobe": True}), cx6).plan.empty


def test_a_device_without_eswitch(host: FakeSriov) -> None:
    said = refused(ports({"select": ONE, "vfs": 1, "eswitch": "switchdev"}), host)
    assert (
        "0000:24:00.0 has no eswitch to be switched (found driver igb (its driver has none), wanted switchdev)" in said
    )
    settle(ports({"select": ONE, "vfs": 1, "eswitch": "legacy"}), host)
    assert not [done for done in host.commands if done.argv[0] == "devlink"]


@pytest.mark.parametrize("attributes", [{"trust": True}, {"spoofchk": True}, {"vlan": 3}])
def test_what_mlx5_does_in_legacy_mode_only(cx6: FakeSriov, attributes: dict[str, Any]) -> None:
    said = refused(ports({**SWITCHDEV, "vf_defaults": attributes}), cx6)
    assert "the driver mlx5_core (switchdev mode) does it in legacy mode only" in said


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


def test_a_device_that_was_replaced_on_purpose_is_taken(host: FakeSriov) -> None:
    settle(ports(RACK), host)
    swapped(host)
    found = host.live()
    settle(ports(RACK, gpudirect_replaced=["24:0.0"]), host)
    assert look(ports(RACK), host).plan.empty
    settle({}, host)
    assert host.live() == found


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
