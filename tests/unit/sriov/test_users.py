"""Who uses a port or its VFs: consent for links and guests, and the ports that nothing may touch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Disruption
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import (
    ConsentRequired,
)
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Connection

from tests.fixtures.fake_nic import Upper
from tests.fixtures.fake_sriov import FakeSriov
from tests.fixtures.sriov_hosts import (
    CX6,
    FIRST,
    IGB,
    ONE,
    RACK,
    SECOND,
    built,
    look,
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


def test_switching_the_eswitch_of_a_port_in_use_needs_consent_too(tmp_path: Path) -> None:
    host = built(tmp_path / "root", "vela", {"ens0f0np0": {"up": True, "addresses": ["192.0.2.7"]}})
    intent = ports({"select": {"netdev": "ens0f0np0"}, "vfs": 0, "eswitch": "switchdev", "autoprobe": True})
    assert [change["path"] for change in look(intent, host, Disruption.NOTHING).as_result()["blocked"]] == [
        "sriov[0000:14:00.0].eswitch"
    ]


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
