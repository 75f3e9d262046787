"""Attributes of VFs: what ``ip`` tells, what is asked of it, and addresses of our own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import IntentError
from ansible_collections.vela.gpudirect.plugins.module_utils.vf import attributes, mac
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.fake_nic import Nic, Vf

# As iproute2 6.15 prints the VFs of an 82576 (gpudirect.md D.3, simulated-rack-2.md 7).
IGB = (
    '{"vf":0,"link_type":"ether","address":"52:54:00:AA:00:01","broadcast":"ff:ff:ff:ff:ff:ff",'
    '"vlan_list":[{"vlan":100,"qos":3}],"rate":{"max_tx":100,"min_tx":0},"spoofchk":true,"link_state":"auto","trust":false}'
)
EMPTY = (
    '{"vf":1,"link_type":"ether","address":"00:00:00:00:00:00","broadcast":"ff:ff:ff:ff:ff:ff","vlan_list":[{}],'
    '"rate":{"max_tx":0,"min_tx":0},"spoofchk":true,"link_state":"auto","trust":false}'
)


def test_what_ip_tells_of_a_vf() -> None:
    assert attributes.told(json.loads(IGB)) == {
        "mac": "52:54:00:aa:00:01",
        "vlan": 100,
        "qos": 3,
        "vlan_protocol": "802.1q",
        "min_tx_rate": 0,
        "max_tx_rate": 100,
        "spoofchk": True,
        "trust": False,
        "link_state": "auto",
    }
    assert attributes.told(json.loads(EMPTY))["vlan"] == 0


@pytest.mark.parametrize(
    ("entry", "known"),
    [
        ({"vf": 0, "mac": "02:00:00:00:00:01"}, {"mac": "02:00:00:00:00:01"}),  # an old iproute2, an older kernel
        (
            {"vf": 0, "address": "02:00:00:00:00:01", "vlan_list": [{"vlan": 5, "protocol": "802.1ad"}]},
            {"mac": "02:00:00:00:00:01", "vlan": 5, "qos": 0, "vlan_protocol": "802.1ad"},
        ),
        ({"vf": 0, "vlan_list": []}, {"vlan": 0, "qos": 0, "vlan_protocol": "802.1q"}),
        ({"vf": 0, "vlan": 7, "qos": 1}, {"vlan": 7, "qos": 1, "vlan_protocol": "802.1q"}),
        (
            {"vf": 0, "node guid": "00:11:22:33:44:55:66:AA", "port guid": "00:11:22:33:44:55:66:77"},
            {"node_guid": "00:11:22:33:44:55:66:aa", "port_guid": "00:11:22:33:44:55:66:77"},
        ),
        ({"vf": 0, "query_rss_en": False}, {}),
    ],
)
def test_what_is_not_told_is_not_known(entry: dict[str, Any], known: dict[str, Any]) -> None:
    assert attributes.told(entry) == known


def lines(wanted: dict[str, Any], current: dict[str, Any]) -> list[str]:
    return [
        one.line.removeprefix("link set dev p vf 0 ") for one in attributes.requests("p", {0: wanted}, {0: current})
    ]


def test_only_what_differs_is_asked_for() -> None:
    now = attributes.told(json.loads(IGB))
    assert lines(now, now) == []
    assert lines({"trust": True, "spoofchk": True}, now) == ["trust on"]
    assert lines({}, now) == []


def test_what_the_kernel_sets_together_is_asked_for_together() -> None:
    now = attributes.told(json.loads(IGB))
    assert lines({"vlan": 200}, now) == ["vlan 200 qos 3"]
    assert lines({"qos": 1}, now) == ["vlan 100 qos 1"]
    assert lines({"vlan": 0}, now) == ["vlan 0 qos 0"]
    assert lines({"vlan_protocol": "802.1ad"}, now) == ["vlan 100 qos 3 proto 802.1ad"]
    assert lines({"max_tx_rate": 50}, now) == ["max_tx_rate 50 min_tx_rate 0"]
    assert lines({"min_tx_rate": 50}, now) == ["max_tx_rate 100 min_tx_rate 50"]
    assert lines({"vlan": 9, "max_tx_rate": 1}, {}) == ["vlan 9 qos 0", "max_tx_rate 1 min_tx_rate 0"]


def test_the_address_comes_before_the_check_of_addresses() -> None:
    wanted = {"trust": True, "spoofchk": True, "mac": "02:00:00:00:00:01", "link_state": "enable", "max_tx_rate": 5}
    assert [line.split()[0] for line in lines(wanted, {})] == ["mac", "spoofchk", "trust", "state", "max_tx_rate"]


# As parse lets them through: what is in a VLAN tag only with a VLAN.
tags = st.sampled_from(
    [{}, {"vlan": 0}, {"vlan": 1}, {"vlan": 9, "qos": 3}, {"vlan": 4094, "vlan_protocol": "802.1ad"}]
)
others = st.fixed_dictionaries(
    {},
    optional={
        "mac": st.sampled_from(["02:00:00:00:00:01", "02:00:00:00:00:02"]),
        "spoofchk": st.booleans(),
        "trust": st.booleans(),
        "link_state": st.sampled_from(["auto", "enable", "disable"]),
        "min_tx_rate": st.integers(0, 5),
        "max_tx_rate": st.integers(5, 9),
    },
)
some = st.builds(lambda tag, other: {**tag, **other}, tags, others)


@given(st.dictionaries(st.integers(0, 2), some), some)
def test_what_was_asked_for_is_told_afterwards_and_nothing_else_changed(
    wanted: dict[int, dict[str, Any]], start: dict[str, Any]
) -> None:
    nic = Nic("a", "p", "02:00:00:00:00:00", driver="any", vfs=[Vf(), Vf(), Vf()])
    before: dict[int, Any] = {}
    for round_wanted in (dict.fromkeys(range(3), start), wanted):
        before = {one["vf"]: attributes.told(one) for one in nic.shown(1)["vfinfo_list"]}
        for request in attributes.requests("p", round_wanted, before):
            words = request.line.split()
            nic.set_vf(int(words[5]), words[6:])
    after = {one["vf"]: attributes.told(one) for one in nic.shown(1)["vfinfo_list"]}
    assert not attributes.requests("p", wanted, after)
    for number, told in after.items():
        asked = wanted.get(number, {})
        assert {name: told[name] for name in asked} == asked
        left = [name for name in told if name not in asked]
        if asked.get("vlan") == 0:  # what was in the tag goes with it
            left = [name for name in left if name not in ("qos", "vlan_protocol")]
        assert {name: told[name] for name in left} == {name: before[number][name] for name in left}


def test_plain_data_and_back() -> None:
    known = {10: {"trust": True}, 2: {"mac": "02:00:00:00:00:01", "vlan": 3}}
    text = attributes.as_text({**known, 4: {}})
    assert list(text) == ["2", "10"]
    assert attributes.from_text(json.loads(json.dumps(text))) == known


# Addresses -------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["02:00:00:00:00:0A", "02-00-00-00-00-0a", " 02:00:00:00:00:0a "])
def test_an_address_has_one_form(text: str) -> None:
    assert mac.canonical_mac("p", text) == "02:00:00:00:00:0a"


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("00:00:00:00:00:00", "zero address"),
        ("01:00:5e:00:00:01", "group address"),
        ("ff:ff:ff:ff:ff:ff", "group address"),
        ("02:00:00:00:00", "not a MAC address"),
        ("02:00:00:00:00:0g", "not a MAC address"),
        ("020000000001", "not a MAC address"),
        ("", "not a MAC address"),
    ],
)
def test_what_is_no_address_of_one_device(text: str, fact: str) -> None:
    with pytest.raises(IntentError, match=fact):
        mac.canonical_mac("p", text)


@pytest.mark.parametrize(("text", "fact"), [("00:00:00:00:00:00:00:00", "zero GUID"), ("00:11", "not a GUID")])
def test_what_is_no_guid(text: str, fact: str) -> None:
    with pytest.raises(IntentError, match=fact):
        mac.canonical_guid("p", text)


def test_a_stable_address_is_the_same_for_ever() -> None:
    """A change of these values changes the addresses of every guest of every fleet."""
    assert mac.stable_mac("52:54:00:85:66:a0", 0) == "0e:ed:fa:1f:50:47"
    assert mac.stable_mac("52:54:00:85:66:a0", 1) == "06:db:76:90:4b:1c"


@given(st.integers(0, 2**48 - 1), st.integers(0, 255))
def test_a_stable_address_is_local_of_one_device_and_valid(pf: int, number: int) -> None:
    found = mac.stable_mac(pf.to_bytes(6, "big").hex(":"), number)
    assert mac.canonical_mac("p", found) == found
    assert int(found[:2], 16) & 3 == 2


def test_stable_addresses_of_a_fleet_do_not_collide() -> None:
    found = {mac.stable_mac(f"94:6d:ae:00:{pf >> 8:02x}:{pf & 255:02x}", vf) for pf in range(1000) for vf in range(64)}
    assert len(found) == 64000
