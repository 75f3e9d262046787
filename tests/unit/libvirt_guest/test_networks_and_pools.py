"""Networks and pools on a libvirt that reacts: changes are applied or told, never ignored, and nothing in use is built over."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import libvirt_guest, libvirt_network, libvirt_pool
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import (
    HostRefused,
    IntentError,
)

from tests.fixtures.fake_host import KilledHere
from tests.fixtures.fake_libvirt import FakeGuestHost
from tests.fixtures.libvirt_hosts import FOLDER, built, failing, guests, look, run, settle, shape, with_files

NET: dict[str, Any] = {"resource": libvirt_network}
POOL: dict[str, Any] = {"resource": libvirt_pool}
INNER = {"name": "inner", "address": "10.9.0.1/24", "dhcp": ["10.9.0.10", "10.9.0.99"]}
LINKS = [
    {"ifname": "eno1", "mtu": 1500, "link_type": "ether", "addr_info": [{"local": "192.0.2.7", "scope": "global"}]},
    {"ifname": "ens0f0np0", "mtu": 9000, "link_type": "ether"},
    {"ifname": "ens1f0np0", "mtu": 9000, "link_type": "ether"},
    {"ifname": "br0", "mtu": 1500, "link_type": "ether", "linkinfo": {"info_kind": "bridge"}},
    {"ifname": "ovs0", "mtu": 1500, "link_type": "ether", "linkinfo": {"info_kind": "openvswitch"}},
]


def networks(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"guest_networks": list(entries)}


@pytest.fixture
def host(tmp_path: Path) -> FakeGuestHost:
    return built(tmp_path / "root", links=json.dumps(LINKS), routes=json.dumps([{"dst": "default", "dev": "eno1"}]))


@pytest.mark.parametrize(
    "entry",
    [
        INNER,
        {"name": "lan", "mode": "bridge", "bridge": "br0"},
        {"name": "fabric", "mode": "ovs", "bridge": "ovs0", "vlan": 7},
        {"name": "any", "mode": "hostdev", "pf": "ens1f0np0"},
    ],
    ids=lambda entry: entry["name"],
)
def test_a_network_is_made_and_goes_with_its_intent(host: FakeGuestHost, entry: dict[str, Any]) -> None:
    state = host.libvirt.state()
    assert (
        look(networks(entry), host, **NET).as_result()["plan"]
        == settle(networks(entry), host, **NET).as_result()["plan"]
    )
    kept = host.libvirt.networks.kept[entry["name"]]
    assert kept.live is not None
    assert kept.autostart
    settle({}, host, "nothing", **NET)
    assert host.libvirt.state() == state
    assert not host.owned()


def test_what_others_added_to_a_network_stays(host: FakeGuestHost) -> None:
    settle(networks(INNER), host, **NET)
    root = host.libvirt.networks.kept["inner"].inactive
    assert root is not None
    ET.SubElement(root.find("ip/dhcp"), "host", {"mac": "52:54:00:00:00:09", "ip": "10.9.0.9"})  # type: ignore[arg-type]
    assert look(networks(INNER), host, **NET).plan.empty
    settle(networks({**INNER, "mtu": 9000}), host, **NET)
    kept = host.libvirt.networks.kept["inner"]
    for there in (kept.inactive, kept.live):
        assert there is not None
        assert there.find("ip/dhcp/host") is not None
        assert there.find("mtu") is not None
    settle(networks(INNER), host, **NET)
    assert kept.live is not None
    assert kept.live.find("mtu") is None


def test_a_network_with_guests_is_not_restarted_under_them(host: FakeGuestHost) -> None:
    settle(networks(INNER), host, **NET)
    one = guests(shape(network="inner"), **networks(INNER))
    settle(one, with_files(host))
    changed = networks({**INNER, "mtu": 9000})
    for _again in range(2):
        report = run(changed, host, **NET)
        (told,) = report.plan.deferred
        assert told.why == (
            "inner: it runs as it was defined before (mtu is absent, wanted there), and these guests are on it: train"
        )
        assert not report.verified
    settle({**one, "guest_shapes": [shape(network="inner", state="defined")]}, host)
    assert [change.path for change in settle(changed, host, **NET).plan.changes] == ["libvirt_network[inner].restart"]


def test_a_network_that_nobody_wants_stays_for_the_guests_on_it(host: FakeGuestHost) -> None:
    settle(networks(INNER), host, **NET)
    one = guests(shape(network="inner"), **networks(INNER))
    settle(one, with_files(host))
    state = host.libvirt.state()
    for _again in range(2):
        report = run({}, host, "host", **NET)
        assert [told.why for told in report.plan.deferred] == [
            "inner: nobody wants it any more, and these guests are on it: train"
        ]
        assert not report.plan.changes
        assert host.libvirt.state() == state
    settle(guests(), host, "guest")
    assert "libvirt_network[inner].definition" in [
        change.path for change in settle({}, host, "nothing", **NET).plan.changes
    ]
    assert not host.owned()


def test_a_network_of_others_is_refused(host: FakeGuestHost) -> None:
    host.libvirt.networks.define("<network><name>inner</name><forward mode='nat'/></network>")
    said = failing(HostRefused, networks(INNER), host, **NET)
    assert said.startswith("guest_networks[0].name: inner is on this host and was not made by vela.gpudirect.")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"name": "a", "mode": "bridge", "bridge": "eno1"}, "guest_networks[0].bridge: eno1 is no bridge of this kind"),
        ({"name": "a", "mode": "bridge", "bridge": "br9"}, "found no such device, wanted bridge"),
        ({"name": "a", "mode": "ovs", "bridge": "br0"}, "wanted openvswitch"),
        ({"name": "a", "mode": "hostdev", "pf": "eno1"}, "eno1 must not be touched: it carries the default route"),
        ({"name": "a", "mode": "hostdev", "pf": "ens9"}, "ens9 is not on this host"),
        ({"name": "a", "address": "192.0.2.1/24"}, "has the address 192.0.2.7 of eno1 in it"),
        ({**INNER, "bridge": "br0"}, "br0 is a network device of this host already"),
    ],
)
def test_nothing_is_built_over_what_is_in_use(host: FakeGuestHost, entry: dict[str, Any], said: str) -> None:
    assert said in failing(HostRefused, networks(entry), host, **NET)
    assert not host.libvirt.networks.kept


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([{"name": "a"}], "guest_networks[0].address: is missing. Set it: mode: nat needs it."),
        ([{**INNER, "pf": "x"}], "guest_networks[0].pf: means nothing with mode: nat"),
        (
            [INNER, INNER],
            "guest_networks[1].name: is that of guest_networks[0] too (found 'inner'). Give each its own.",
        ),
        (
            [INNER, {"name": "b", "address": "10.8.0.1/24", "bridge": "vg-inner"}],
            "guest_networks[1].bridge: is that of guest_networks[0] (inner) too (found 'vg-inner').",
        ),
        (
            [INNER, {"name": "b", "address": "10.9.255.1/16"}],
            "guest_networks[1].address: is in a subnet that overlaps that of guest_networks[0] (inner)"
            " (found 10.9.0.0/16 and 10.9.0.0/24).",
        ),
        ([{**INNER, "dhcp": ["10.9.0.9", "10.8.0.9"]}], "is no range inside 10.9.0.0/24"),
        ([{**INNER, "dhcp": ["10.9.0.9", "fd00::9"]}], "is no range inside 10.9.0.0/24"),
        (
            [{**INNER, "dhcp": ["10.9.0.9"]}],
            "guest_networks[0].dhcp: is no pair of addresses (found '10.9.0.9', wanted two addresses).",
        ),
        ([{**INNER, "dhcp": ["10.9.0.7", "10.9.0.8", "10.9.0.9"]}], "is no pair of addresses (found '10.9.0.7', '10"),
        ([{**INNER, "dhcp": ["10.9.0.9", "x"]}], "guest_networks[0].dhcp[1]: is no IPv4 or IPv6 address (found 'x')."),
        (
            [{**INNER, "address": "10.9.0.1"}],
            "guest_networks[0].address: has no prefix length (found '10.9.0.1', wanted",
        ),
        ([{**INNER, "address": "10.9.0.1/33"}], "has a prefix length that no IPv4 network has (found '10.9.0.1/33'"),
        ([{**INNER, "address": "fd00::1/x"}], "has a prefix length that no IPv6 network has"),
        ([{**INNER, "address": "10.9.0.0/24"}], "is the address of the network itself"),
        ([{**INNER, "address": "nothing"}], "is no IPv4 or IPv6 address (found 'nothing', wanted such as"),
        ([{**INNER, "name": "a/b"}], "is no name"),
        ([{**INNER, "bridge": "a/b"}], "is no name of a network device"),
    ],
)
def test_mistakes_are_told_by_parse(entries: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(IntentError) as caught:
        libvirt_network.parse(networks(*entries))
    assert [said in str(one) for one in caught.value.problems] == [True]


def test_one_mistake_in_a_network_hides_no_other() -> None:
    with pytest.raises(IntentError) as caught:
        libvirt_network.parse(networks(INNER, {**INNER, "mtu": 1, "pf": "x"}, {**INNER, "name": "c", "address": "x"}))
    assert [one.path.replace("guest_networks", "") for one in caught.value.problems] == [
        "[1].mtu",
        "[1].name",
        "[1].pf",
        "[2].address",
    ]


@pytest.mark.parametrize(
    "other",
    [
        {"name": "b", "address": "10.9.1.1/24"},
        {"name": "b", "address": "fd00::1/64"},
        {"name": "b", "address": "10.9.0.1/24", "state": "absent"},
    ],
)
def test_networks_that_do_not_meet_are_taken(other: dict[str, Any]) -> None:
    assert len(libvirt_network.parse(networks(INNER, other)).networks) == 2


POOL_OF_VFS = {"name": "any", "mode": "hostdev", "pf": "ens1f0np0"}


@pytest.mark.parametrize(
    ("port", "set_"),
    [
        ({"vfs": 2}, "mac"),
        ({"vfs": 2, "vf_defaults": {"mac": "kept", "vlan": 0}}, "vlan"),
        (
            {"vfs": 2, "vf_defaults": {"mac": "kept"}, "vf": {1: {"mac": "02:00:00:00:00:01", "vlan": 7}}},
            "mac and vlan",
        ),
    ],
)
def test_a_pool_and_a_port_that_set_the_same_of_vfs_are_refused(
    host: FakeGuestHost, port: dict[str, Any], set_: str
) -> None:
    ports = {"sriov_ports": [{"select": {"vendor": "15b3"}, **port}]}
    said = failing(HostRefused, {**networks(POOL_OF_VFS), **ports}, host, **NET)
    assert said.startswith(
        f"guest_networks[0].pf: ens1f0np0 is a port of sriov_ports[0], which sets {set_} of its VFs; libvirt sets them"
    )


@pytest.mark.parametrize("port", [{"vfs": 2, "vf_defaults": {"mac": "kept", "trust": True}}, {"vfs": 0}])
def test_a_pool_of_vfs_whose_addresses_are_left_is_taken(host: FakeGuestHost, port: dict[str, Any]) -> None:
    settle({**networks(POOL_OF_VFS), "sriov_ports": [{"select": {"vendor": "15b3"}, **port}]}, host, **NET)


def test_a_guest_on_a_pool_keeps_it(host: FakeGuestHost) -> None:
    """What runs tells a VF and no pool."""
    settle(networks(POOL_OF_VFS), host, **NET)
    plain = shape(gpus=0, network="any")
    settle(guests(plain, **networks(POOL_OF_VFS)), with_files(host))
    live = host.libvirt.domains.kept["train"].live
    assert live is not None
    assert live.find("devices/interface/source[@network]") is None
    report = run({}, host, "host", **NET)
    assert not report.plan.changes
    assert "these guests are on it: train" in report.plan.deferred[0].why


def test_a_pool_on_a_port_whose_vfs_a_guest_has_is_refused(host: FakeGuestHost) -> None:
    settle(guests(shape()), with_files(host))
    (near,) = pfs_of(host, "train")
    said = failing(HostRefused, networks({**POOL_OF_VFS, "pf": near}), host, **NET)
    assert said.startswith(f"guest_networks[0].pf: VFs of {near} are guest train's own (found 0000:")


def test_vfs_of_a_pool_are_no_gpus(host: FakeGuestHost) -> None:
    """libvirt may give any of them to a guest at any time."""
    settle(guests(shape()), with_files(host))
    (near,) = pfs_of(host, "train")
    settle(guests(), host)
    pool = {**POOL_OF_VFS, "pf": near}
    settle(networks(pool), host, **NET)
    settle(guests(shape(), **networks(pool)), with_files(host))
    (far,) = pfs_of(host, "train")
    assert {near, far} == {"ens0f0np0", "ens1f0np0"}
    both = networks(pool, {**POOL_OF_VFS, "name": "other", "pf": far})
    assert "VFs" in failing(HostRefused, guests(shape("late"), **both), host, "guest")


def pfs_of(host: FakeGuestHost, name: str) -> set[str]:
    """The network devices whose VFs a guest has."""
    root = ET.fromstring(ET.tostring(host.libvirt.domains.kept[name].live))
    found = set()
    for one in root.iterfind("devices/hostdev/source/address"):
        place = "{domain}:{bus}:{slot}.{function}".format(
            **{key: value.removeprefix("0x") for key, value in one.attrib.items()}
        )
        folder = host.path(f"/sys/bus/pci/devices/{place}/physfn/net")
        found |= {device.name for device in folder.iterdir()} if folder.exists() else set()
    return found


def test_what_speaks_against_a_network_is_told_before_libvirt_is_there(host: FakeGuestHost) -> None:
    host.libvirt.there = False
    later = {"name": "c", "mode": "bridge", "bridge": "br9"}  # a boot of the same run may bring it
    wrong = networks(
        {"name": "a", "mode": "bridge", "bridge": "eno1"}, {"name": "b", "mode": "hostdev", "pf": "eno1"}, later
    )
    said = failing(HostRefused, wrong, host, **NET)
    assert "br9" not in said
    assert "guest_networks[0].bridge: eno1 is no bridge of this kind" in said
    assert "guest_networks[1].pf: eno1 must not be touched" in said


def test_the_bridge_of_a_network_on_record_is_no_strangers_while_libvirt_is_away(host: FakeGuestHost) -> None:
    settle(networks(INNER), host, **NET)
    host.links = json.dumps(
        [*LINKS, {"ifname": "vg-inner", "mtu": 1500, "link_type": "ether", "linkinfo": {"info_kind": "bridge"}}]
    )
    host.libvirt.there = False
    report = run(networks(INNER), host, **NET)
    assert [one.waits_for for one in report.plan.deferred] == ["kvm"]


def test_a_pool_is_made_with_its_folder_and_goes_with_it_when_that_is_empty(host: FakeGuestHost) -> None:
    pools = {"guest_pools": [{"name": "guests", "path": "/srv/guests"}]}
    settle(pools, host, **POOL)
    assert host.path("/srv/guests").is_dir()
    settle({}, host, "nothing", **POOL)
    assert not host.path("/srv/guests").exists()
    settle(pools, host, **POOL)
    host.put("/srv/guests/disk", "a person's")
    settle({}, host, "nothing", **POOL)
    assert host.text("/srv/guests/disk") == "a person's"
    assert not host.libvirt.pools.kept
    assert not host.owned()


def test_a_pool_that_moves_waits_for_the_guests_in_it(host: FakeGuestHost) -> None:
    settle({"guest_pools": [{"name": "guests", "path": FOLDER}]}, host, **POOL)
    settle(guests(shape()), with_files(host))
    moved = {"guest_pools": [{"name": "guests", "path": "/srv/guests"}]}
    (told,) = run(moved, host, **POOL).plan.deferred
    assert "these guests are on it: train" in told.why
    settle(guests(shape(state="defined")), host)
    settle(moved, host, **POOL)


def test_a_folder_of_another_pool_is_refused(host: FakeGuestHost) -> None:
    host.libvirt.pools.define("<pool type='dir'><name>default</name><target><path>/srv/x</path></target></pool>")
    said = failing(HostRefused, {"guest_pools": [{"name": "guests", "path": "/srv/x/"}]}, host, **POOL)
    assert "guest_pools[0].path: /srv/x is the folder of the pool default" in said


@pytest.mark.parametrize(
    ("resource", "before", "intent"),
    [
        (libvirt_network, {}, networks(INNER)),
        (libvirt_network, networks(INNER), networks({**INNER, "mtu": 9000, "dhcp": []})),
        (libvirt_network, networks(INNER), {}),
        (libvirt_pool, {}, {"guest_pools": [{"name": "guests", "path": "/srv/guests"}]}),
        (libvirt_pool, {"guest_pools": [{"name": "guests", "path": "/srv/guests"}]}, {}),
    ],
)
def test_a_run_that_is_cut_off_anywhere_is_completed_or_undone(
    host: FakeGuestHost, resource: Any, before: dict[str, Any], intent: dict[str, Any], tmp_path: Path
) -> None:
    as_found = host.libvirt.state()
    settle(before, host, resource=resource)
    whole = host.clone(tmp_path / "whole").revive()
    run(intent, whole, "guest", resource)
    total = len(whole.acts)
    for number in range(1, total + 2):
        cut = host.clone(tmp_path / str(number))
        cut.die_before(number) if number <= total else cut.die_after(total)
        with pytest.raises(KilledHere):
            run(intent, cut, "guest", resource)
        cut.revive()
        again = cut.clone(tmp_path / f"{number}-undone").revive()
        settle(intent, cut, resource=resource)
        assert cut.libvirt.state() == whole.libvirt.state()
        settle({}, again, resource=resource)
        assert again.libvirt.state() == as_found
        assert not again.owned()
        assert not again.path("/srv/guests").exists()


def test_without_libvirt_they_wait_for_it(host: FakeGuestHost) -> None:
    host.libvirt.there = False
    for resource, intent in (
        (libvirt_network, networks(INNER)),
        (libvirt_pool, {"guest_pools": [{"name": "a", "path": "/b"}]}),
    ):
        assert [one.waits_for for one in look(intent, host, resource=resource).plan.deferred] == ["kvm"]
    for resource in (libvirt_guest, libvirt_network, libvirt_pool):
        assert look({}, host, resource=resource).plan.empty
