"""What a driver does not do: said before the first write where it is known, with the driver's words otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import (
    ApplyFailed,
    VerificationFailed,
)

from tests.fixtures.fake_sriov import FakeSriov
from tests.fixtures.sriov_hosts import (
    CX6,
    FIRST,
    ONE,
    RACK,
    VELA,
    built,
    disown,
    look,
    paths,
    ports,
    refused,
    run,
    settle,
)


@pytest.fixture
def host(tmp_path: Path) -> FakeSriov:
    return built(tmp_path / "root", "rack")


@pytest.fixture
def cx6(tmp_path: Path) -> FakeSriov:
    return built(tmp_path / "root", "vela")


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


def test_a_driver_that_needs_no_carrier_is_not_waited_for(tmp_path: Path) -> None:
    host = built(tmp_path / "root", "vela", {"ens0f0np0": {"cable": False}})
    before = host.clock_s
    settle(ports({"select": {"netdev": "ens0f0np0"}, "vfs": 1, "vf_defaults": {"max_tx_rate": 100}}), host)
    assert host.clock_s == before


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
