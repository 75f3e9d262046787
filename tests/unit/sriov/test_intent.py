"""What the inventory may say of ports: every mistake at once, each with its place, before any host is asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import site, sriov
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import IntentError, Problem
from hypothesis import given, settings
from hypothesis import strategies as st

IGB = {"vendor": "8086", "device": "10c9"}


def problems(*entries: Any, **more: Any) -> list[str]:
    with pytest.raises(IntentError) as caught:
        sriov.parse({"sriov_ports": list(entries), **more})
    return [str(problem) for problem in caught.value.problems]


def entry(**values: Any) -> dict[str, Any]:
    return {"select": IGB, "vfs": 2, **values}


def test_nothing_asked_is_nothing_wanted() -> None:
    assert sriov.parse({}) == sriov.parse({"sriov_ports": []}) == sriov.Desired()


def test_attributes_of_a_vf_come_before_those_of_all() -> None:
    wanted = sriov.parse(
        {
            "sriov_ports": [
                entry(
                    vfs=3,
                    vf_defaults={"trust": True, "vlan": 5, "mac": "kept"},
                    vf={1: {"vlan": 0, "mac": "02:00:00:00:00:0A"}, "2": {"mac": "stable"}},
                )
            ]
        }
    )
    (one,) = wanted.entries
    assert one.attributes == (
        {"trust": True, "vlan": 5},
        {"trust": True, "vlan": 0, "mac": "02:00:00:00:00:0a"},
        {"trust": True, "vlan": 5, "mac": "stable"},
    )
    assert one.autoprobe is False
    assert one.eswitch is None
    assert sriov.parse({"sriov_ports": [entry()]}).entries[0].attributes == ({"mac": "stable"},) * 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"vfs": -1}, "sriov_ports[0].vfs: is too small"),
        ({"vfs": 65536}, "sriov_ports[0].vfs: is too large"),
        ({"vfs": None}, "sriov_ports[0].vfs: is missing"),
        ({"select": {}}, "sriov_ports[0].select: selects nothing in particular"),
        ({"select": {"vfs_of": IGB}}, "sriov_ports[0].select.vfs_of: is not a known name"),
        ({"select": {"address": "0000:82.0.0"}}, "sriov_ports[0].select.address: is not a PCI address"),
        ({"mtu": 67}, "sriov_ports[0].mtu: is too small"),
        ({"eswitch": "switch"}, "sriov_ports[0].eswitch: is not one of the choices"),
        ({"vlan": 5}, "sriov_ports[0].vlan: is not a known name"),
        ({"vf_defaults": {"vlan": 4095}}, "sriov_ports[0].vf_defaults.vlan: is too large"),
        ({"vf_defaults": {"qos": 8, "vlan": 1}}, "sriov_ports[0].vf_defaults.qos: is too large"),
        ({"vf_defaults": {"qos": 1}}, "sriov_ports[0].vf_defaults.qos: there is no VLAN tag"),
        ({"vf_defaults": {"vlan_protocol": "802.1ad"}}, "vf_defaults.vlan_protocol: there is no VLAN"),
        ({"vf_defaults": {"mac": "02:00:00:00:00:01"}}, "vf_defaults.mac: is not one of the choices"),
        ({"vf_defaults": {"min_tx_rate": 9, "max_tx_rate": 8}}, "min_tx_rate: is above max_tx_rate (found 9, wanted at most 8)"),
        ({"vf_defaults": {"node_guid": "00:11:22:33:44:55:66:77"}}, "vf_defaults.node_guid: is not a known name"),
        ({"vf": {2: {"trust": True}}}, "sriov_ports[0].vf[2]: there is no such VF (found 2, wanted 0 to 1)"),
        ({"vfs": 0, "vf": {0: {"trust": True}}}, "sriov_ports[0].vf[0]: there is no such VF (found 0, wanted no VF"),
        ({"vf": {"first": {}}}, "sriov_ports[0].vf: has the wrong type (found 'first', wanted VF numbers"),
        ({"vf": {"01": {}}}, "sriov_ports[0].vf: has the wrong type (found '01'"),
        ({"vf": {True: {}}}, "sriov_ports[0].vf: has the wrong type (found True"),
        ({"vf": {-1: {}}}, "sriov_ports[0].vf: has the wrong type (found -1"),
        ({"vf": {"1": {}, 1: {}}}, "sriov_ports[0].vf[1]: VF 1 is named twice"),
        ({"vf": {1: 5}}, "sriov_ports[0].vf[1]: has the wrong type (found 5, wanted a mapping)"),
        ({"vf": {1: {"mca": "x"}}}, "sriov_ports[0].vf[1].mca: is not a known name. Did you mean mac?"),
        ({"vf": {1: {"mac": 13}}}, "Put it in quotes"),
        ({"vf": {1: {"mac": "01:00:00:00:00:01"}}}, "sriov_ports[0].vf[1].mac: is a group address"),
        ({"vf": {1: {"mac": "00:00:00:00:00:00"}}}, "sriov_ports[0].vf[1].mac: is the zero address"),
        ({"vf": {1: {"port_guid": "1"}}}, "sriov_ports[0].vf[1].port_guid: is not a GUID"),
        ({"vf_defaults": {"vlan": 5, "qos": 1}, "vf": {1: {"vlan": 0}}}, "sriov_ports[0].vf[1].qos: there is no VLAN"),
        ({"vf_defaults": {"max_tx_rate": 5}, "vf": {0: {"min_tx_rate": 6}}}, "sriov_ports[0].vf[0].min_tx_rate: is above"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_their_place(given: dict[str, Any], said: str) -> None:
    found = problems(entry(**given))
    assert len(found) == 1, found
    assert said in found[0]


def test_all_mistakes_come_at_once() -> None:
    found = problems(entry(vfs=-1), entry(vf={5: {}, 0: {"qos": 9}}), {"vfs": 1}, gpudirect_replaced=["0000:82.0.0"])
    assert [one.partition(": ")[0] for one in found] == [
        "gpudirect_replaced[0]",
        "sriov_ports[0].vfs",
        "sriov_ports[1].vf[0].qos",
        "sriov_ports[2].select",
    ]


def test_a_contradiction_of_the_defaults_is_told_once() -> None:
    found = problems(entry(vf_defaults={"qos": 1}, vf={0: {"trust": True}, 1: {"vlan": 5}}))
    assert len(found) == 1


@pytest.mark.parametrize("name", ["mac", "node_guid", "port_guid"])
def test_an_identifier_that_two_vfs_would_have(name: str) -> None:
    value = "02:00:00:00:00:01" if name == "mac" else "00:11:22:33:44:55:66:77"
    found = problems(entry(vf={0: {name: value}, 1: {name: value.upper()}}), entry(vf={1: {name: value}}))
    assert [one.partition(":")[0] for one in found] == [f"sriov_ports[0].vf[1].{name}", f"sriov_ports[1].vf[1].{name}"]
    assert all(f"that of sriov_ports[0].vf[0].{name} too" in one for one in found)


def test_stable_and_kept_are_no_duplicates() -> None:
    sriov.parse({"sriov_ports": [entry(vf={0: {"mac": "stable"}, 1: {"mac": "stable"}})]})


def test_numbers_of_vfs_survive_the_way_to_the_host() -> None:
    given_intent = {"sriov_ports": [entry(vf={0: {"trust": True}})]}
    sent = json.loads(json.dumps(site.intent_of(given_intent)))
    assert sriov.parse(sriov.SCHEMA.from_variables(sent)) == sriov.parse(given_intent)
    assert site.intent_of(sent) == sent


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6)
documents = st.recursive(
    scalars | st.sampled_from(["8086", "0000:3b:00.0", "02:00:00:00:00:01", "stable", "²", "--5"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | st.integers(0, 3), inner, max_size=3)
    ),
    max_leaves=8,
)
attribute_names = st.sampled_from(["mac", "vlan", "qos", "trust", "min_tx_rate", "max_tx_rate", "node_guid", "x"])
vfs = st.dictionaries(
    st.integers(-1, 9) | st.text("01²x", max_size=2), st.dictionaries(attribute_names, documents), max_size=3
)
entries = st.fixed_dictionaries(
    {},
    optional={
        "select": st.dictionaries(st.sampled_from(["vendor", "address", "netdev", "port", "y"]), documents, max_size=3) | documents,
        "vfs": documents,
        "mtu": documents,
        "eswitch": documents,
        "vf_defaults": st.dictionaries(attribute_names, documents, max_size=4) | documents,
        "vf": vfs | documents,
    },
)  # fmt: skip


@settings(max_examples=200)
@given(st.lists(entries, max_size=3) | documents)
def test_input_is_accepted_or_an_error_of_the_inventory(given_ports: Any) -> None:
    found: Sequence[Problem] = ()
    try:
        sriov.parse({"sriov_ports": given_ports})
    except IntentError as error:
        found = error.problems
    assert all(problem.path and problem.fact and problem.advice for problem in found)
