"""Network devices of a host: what ``ip`` and ``devlink`` tell, what lies on what, and which must not be touched."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Unreadable
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import UnreadableState
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.address import Address
from ansible_collections.vela.gpudirect.plugins.module_utils.vf import links, port

# As ``ip -json -details address show`` of iproute2 6.1 prints a port, shortened where nothing is read.
SHOWN = """[{"ifindex":4,"ifname":"eth0","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"],"mtu":1400,
"qdisc":"pfifo_fast","operstate":"UP","group":"default","txqlen":1000,"link_type":"ether",
"address":"02:FC:00:00:00:01","broadcast":"ff:ff:ff:ff:ff:ff","permaddr":"52:54:00:00:00:01","promiscuity":0,
"min_mtu":68,"max_mtu":65535,"num_tx_queues":1,"parentbus":"virtio","parentdev":"virtio2","addr_info":[
{"family":"inet","local":"192.0.2.2","prefixlen":24,"broadcast":"192.0.2.255","scope":"global","label":"eth0"},
{"family":"inet6","local":"fd00::2","prefixlen":64,"scope":"global","nodad":true},
{"family":"inet6","local":"fe80::fc:ff:fe00:1","prefixlen":64,"scope":"link"}]}]"""


def test_a_port_as_ip_tells_it() -> None:
    assert links.parse_links(["ip"], SHOWN)["eth0"] == links.Link(
        name="eth0",
        address="02:fc:00:00:00:01",
        permanent="52:54:00:00:00:01",
        mtu=1400,
        mtu_range=(68, 65535),
        up=True,
        carrier=True,
        addresses=("192.0.2.2", "fd00::2"),
    )


@pytest.mark.parametrize("text", ["{", "{}", "5", '[{"ifname": "x", "mtu": "many"}]', '[{"ifname": "x"}]'])
def test_output_that_is_not_understood_is_told_with_the_command(text: str) -> None:
    with pytest.raises(UnreadableState, match="ip -json: its output is not understood"):
        links.parse_links(["ip", "-json"], text)


def test_no_output_is_no_device() -> None:
    assert links.parse_links(["ip"], "") == {}


def test_every_next_hop_of_a_route_counts() -> None:
    text = '[{"dst":"default","gateway":"192.0.2.1","dev":"eth0","flags":[]},{"dst":"default","flags":[],"nexthops":[{"dev":"a"},{"dev":"b"}]}]'
    assert links.parse_routes(["ip"], text) == ("eth0", "a", "b")
    assert links.parse_routes(["ip"], "[]") == ()
    with pytest.raises(UnreadableState):
        links.parse_routes(["ip"], "[5]")


def test_the_mode_of_an_eswitch() -> None:
    told = '{"dev":{"pci/0000:03:00.0":{"mode":"switchdev","inline-mode":"none","encap-mode":"basic"}}}'
    assert links.parse_eswitch(["devlink"], told) == "switchdev"
    assert links.parse_eswitch(["devlink"], '{"dev":{}}') == ""
    assert links.parse_eswitch(["devlink"], "") == ""


def device(name: str, **values: Any) -> dict[str, Any]:
    return {"ifname": name, "mtu": 1500, "flags": [], "link_type": "ether", **values}


def kind(name: str) -> dict[str, Any]:
    return {"info_kind": name}


STACK = links.parse_links(
    ["ip"],
    json.dumps(
        [
            device("p0", master="bond0"),
            device("p1", master="bond0"),
            device("p2"),
            device("bond0", linkinfo=kind("bond"), master="br0"),
            device("br0", linkinfo=kind("bridge")),
            device("br0.5", linkinfo=kind("vlan"), link="br0", addr_info=[{"local": "192.0.2.5", "scope": "global"}]),
            device("p3", master="ovs-system"),
            device("ovs-system", linkinfo=kind("openvswitch")),
            device("br-ex", linkinfo=kind("openvswitch"), addr_info=[{"local": "192.0.2.6", "scope": "global"}]),
            device("lan", linkinfo=kind("vlan"), link=None),
        ]
    ),
)


@pytest.mark.parametrize(
    ("name", "below"),
    [
        ("br0.5", {"br0.5", "br0", "bond0", "p0", "p1"}),
        ("bond0", {"bond0", "p0", "p1"}),
        ("p2", {"p2"}),
        ("br-ex", {"br-ex", "p3"}),
        ("lan", {"lan"}),
        ("gone", {"gone"}),
    ],
)
def test_what_carries_a_device(name: str, below: set[str]) -> None:
    assert set(links.carriers(STACK, name)) == below


def test_devices_that_lie_on_each_other_in_a_circle_end_the_walk() -> None:
    circle = links.parse_links(["ip"], json.dumps([device("a", link="b"), device("b", link="a")]))
    assert set(links.carriers(circle, "a")) == {"a", "b"}


def test_why_a_device_is_not_idle() -> None:
    assert links.uses(STACK, "p0") == ("p0 is a port of bond bond0",)
    assert links.uses(STACK, "br0") == ("vlan br0.5 lies on br0",)
    assert links.uses(STACK, "br0.5") == ("br0.5 has the address 192.0.2.5",)
    assert links.uses(STACK, "p2") == links.uses(STACK, "gone") == ()


def test_who_has_an_address() -> None:
    assert links.holder(STACK, "192.0.2.5") == "br0.5"
    assert links.holder(STACK, "192.0.2.9") is None


# The port among the devices of its PF ----------------------------------------------------


@pytest.mark.parametrize(
    ("names", "own"),
    [
        ({"eth0": ""}, "eth0"),
        ({"eth0": "p0", "eth1": "pf0vf0"}, "eth0"),
        ({"aaa": "pf0vf0", "eth1": "p1"}, "eth1"),
        ({"eth0": "p0s1", "eth1": "c1pf0vf0"}, "eth0"),
        ({"eth0": "", "eth1": ""}, None),
        ({"eth0": "p0", "eth1": "p1"}, None),
        ({}, None),
    ],
)
def test_the_port_is_chosen_by_its_port_name(names: dict[str, str], own: str | None) -> None:
    assert port.own_netdev(names) == own


# Guests ----------------------------------------------------------------------------------


def vf(driver: str, group: int = 12) -> Any:
    from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import ABSENT
    from ansible_collections.vela.gpudirect.plugins.module_utils.pci.config_space import ConfigSpace
    from ansible_collections.vela.gpudirect.plugins.module_utils.pci.tree import Function, Link

    return Function(
        Address.parse("0000:21:10.0"), 0x8086, 0x10CA, 0x020000, 0, 0, 0, None, "pci0000:20", ABSENT, group,
        driver or ABSENT, ABSENT, Link(), (), ConfigSpace(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("driver", "open_files", "held"),
    [
        ("vfio-pci", {"/dev/vfio/12": (7,)}, True),
        ("mlx5_vfio_pci", {"/dev/vfio/12": (7,)}, True),
        ("vfio-pci", {"/run/libvirt/qemu/1.dev/vfio/12": (7,)}, True),
        ("vfio-pci", {"/dev/vfio/noiommu-12": (7,)}, True),
        ("vfio-pci", {"/dev/vfio/devices/vfio3": (7,)}, True),
        ("vfio-pci", {"/dev/vfio/devices/vfio4": (7,)}, False),
        ("vfio-pci", {"/dev/vfio/112": (7,), "/dev/vfio/vfio": (7,)}, False),
        ("igbvf", {"/dev/vfio/12": (7,)}, False),
        ("", {}, False),
    ],
)
def test_a_vf_that_a_process_has_open(driver: str, open_files: dict[str, tuple[int, ...]], held: bool) -> None:
    found = port.held_vfs([vf(driver)], open_files, {Address.parse("0000:21:10.0"): ["vfio3"]})
    assert bool(found) == held
    assert not held or "process 7 holds" in found[0]


def test_what_cannot_be_told_counts_as_held() -> None:
    found = port.held_vfs([vf("vfio-pci"), vf("igbvf")], Unreadable("process 3: Permission denied"), {})
    assert list(found) == [0]
    assert "cannot be told: process 3: Permission denied" in found[0]
