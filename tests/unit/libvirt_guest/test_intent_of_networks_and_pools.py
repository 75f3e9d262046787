"""What cannot be meant by networks and pools is told with everything else, by its name, before anything is written."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import (
    guest_image,
    libvirt_guest,
    libvirt_network,
    libvirt_pool,
    sriov,
)
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import IntentError

INNER = {"name": "inner", "address": "10.9.0.1/24"}
WIDE = {"name": "wide", "address": "10.0.0.1/8"}
SIX = {"name": "six", "address": "fd00:9::1/64"}
OVS = {"name": "ovs", "mode": "ovs", "bridge": "ovs0"}
SHAPE = {"name": "train", "vcpus": 4, "memory_gib": 8}


def problems(resource: Any, **params: Any) -> list[str]:
    try:
        resource.parse(params)
    except IntentError as error:
        return [str(one) for one in error.problems]
    return []


def of_network(entry: dict[str, Any], **more: Any) -> list[str]:
    return problems(libvirt_network, guest_networks=[{**entry, **more}])


def of_folders(*folders: str) -> list[str]:
    pools = [{"name": f"p{number}", "path": folder} for number, folder in enumerate(folders)]
    return problems(libvirt_pool, guest_pools=pools)


BLOCKS = "spans more than one block of 65536 addresses, which libvirt refuses"


@pytest.mark.parametrize(
    ("entry", "dhcp", "said"),
    [
        (INNER, ["10.9.0.0", "10.9.0.9"], ["has 10.9.0.0 in it, which is the address of the network itself"]),
        (INNER, ["10.9.0.9", "10.9.0.255"], ["has 10.9.0.255 in it, which is the broadcast address"]),
        (
            INNER,
            ["10.9.0.0", "10.9.0.255"],
            [
                "has 10.9.0.0 in it, which is the address of the network itself",
                "has 10.9.0.255 in it, which is the broadcast address",
            ],
        ),
        (INNER, ["10.9.0.1", "10.9.0.1"], ["has no address in it but that of the host"]),
        (INNER, ["10.9.0.9", "10.9.0.5"], ["ends before it begins"]),
        (WIDE, ["10.1.0.0", "10.2.0.0"], [BLOCKS]),
        (WIDE, ["10.1.255.255", "10.2.0.0"], [BLOCKS]),
        (WIDE, ["10.0.0.0", "10.255.255.255"], ["has 10.0.0.0 in", "has 10.255.255.255 in", BLOCKS]),
        (SIX, ["fd00:9::1:0", "fd00:9::2:0"], [BLOCKS]),
        (SIX, ["fd00:9::ffff", "fd00:9::1:0"], [BLOCKS]),
        (SIX, ["fd00:9::", "fd00:9::9"], ["has fd00:9:: in it, which is the address of the network itself"]),
    ],
)
def test_ranges_that_nobody_can_give_out(entry: dict[str, Any], dhcp: list[str], said: list[str]) -> None:
    told = of_network(entry, dhcp=dhcp)
    assert len(told) == len(said), told
    for one, text in zip(told, said):
        assert one.startswith(f"guest_networks[0].dhcp: {text}")
        assert f"(found {dhcp[0]} to {dhcp[1]})" in one


@pytest.mark.parametrize(
    ("entry", "dhcp"),
    [
        (INNER, ["10.9.0.1", "10.9.0.254"]),  # dnsmasq leaves its own address out
        (INNER, ["10.9.0.2", "10.9.0.2"]),
        (WIDE, ["10.1.0.0", "10.1.255.255"]),
        (SIX, ["fd00:9::1:0", "fd00:9::1:ffff"]),
        (SIX, ["fd00:9::ffff:ffff:ffff:fff0", "fd00:9::ffff:ffff:ffff:ffff"]),
        ({"name": "four", "address": "10.9.0.1/30"}, ["10.9.0.2", "10.9.0.2"]),
    ],
)
def test_ranges_that_are_taken(entry: dict[str, Any], dhcp: list[str]) -> None:
    assert of_network(entry, dhcp=dhcp) == []


def test_a_range_is_kept_as_libvirt_writes_it() -> None:
    (one,) = libvirt_network.parse({"guest_networks": [{**SIX, "dhcp": ["FD00:9:0::9", "fd00:9::0099"]}]}).networks
    assert one.dhcp == ("fd00:9::9", "fd00:9::99")


@pytest.mark.parametrize(
    ("entry", "more", "said"),
    [
        (OVS, {"vlan": 0}, "guest_networks[0].vlan: is too small (found 0, wanted at least 1)"),
        (OVS, {"vlan": 4095}, "guest_networks[0].vlan: is too large (found 4095, wanted at most 4094)"),
        (INNER, {"mtu": 67}, "guest_networks[0].mtu: is too small (found 67, wanted at least 68)"),
        (INNER, {"mtu": 65536}, "guest_networks[0].mtu: is too large (found 65536, wanted at most 65535)"),
        (SIX, {"mtu": 1279}, "guest_networks[0].mtu: is too small for IPv6 (found 1279, wanted at least 1280)"),
    ],
)
def test_numbers_beyond_their_bounds(entry: dict[str, Any], more: dict[str, Any], said: str) -> None:
    (told,) = of_network(entry, **more)
    assert told.startswith(said)


def test_numbers_at_their_bounds() -> None:
    for entry, more in (
        (OVS, {"vlan": 1}),
        (OVS, {"vlan": 4094}),
        (INNER, {"mtu": 68}),
        (INNER, {"mtu": 65535}),
        (SIX, {"mtu": 1280}),
    ):
        assert of_network(entry, **more) == []


def test_an_mtu_of_a_port_beyond_its_bound() -> None:
    port = {"select": {"vendor": "15b3"}, "vfs": 1}
    assert problems(sriov, sriov_ports=[{**port, "mtu": 65535}]) == []
    (told,) = problems(sriov, sriov_ports=[{**port, "mtu": 65536}])
    assert told.startswith("sriov_ports[0].mtu: is too large (found 65536, wanted at most 65535)")


@pytest.mark.parametrize(
    ("address", "met"),
    [
        ("0.1.0.1/24", "0.0.0.0/8"),
        ("127.0.1.1/24", "127.0.0.0/8 (loopback)"),
        ("169.254.7.1/24", "169.254.0.0/16 (link-local)"),
        ("224.0.0.1/24", "224.0.0.0/4 (multicast)"),
        ("239.255.0.1/16", "224.0.0.0/4 (multicast)"),
        ("240.0.0.1/24", "240.0.0.0/4 (reserved)"),
        ("255.255.255.1/24", "240.0.0.0/4 (reserved)"),
        ("64.0.0.1/2", "127.0.0.0/8 (loopback)"),
        ("::1/64", "::/8 (reserved)"),
        ("::ffff:10.9.0.1/120", "::/8 (reserved)"),
        ("fe80::1/64", "fe80::/10 (link-local)"),
        ("ff02::1/64", "ff00::/8 (multicast)"),
    ],
)
def test_addresses_of_which_no_network_can_be(address: str, met: str) -> None:
    (told,) = of_network({"name": "a", "address": address})
    assert told.startswith(f"guest_networks[0].address: is of a network that overlaps {met}")


@pytest.mark.parametrize("address", ["8.8.8.8/8", "10.9.0.1/24", "100.64.0.1/10", "fd00::1/8", "2001:db8::1/64"])
def test_addresses_that_are_somebodys_business(address: str) -> None:
    assert of_network({"name": "a", "address": address}) == []


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("192.168.7.1/24 ", "has white space in it"),
        (" 192.168.7.1/24", "has white space in it"),
        ("192.168.7.1/24\n", "has white space in it"),
        ("192.168.7.1 /24", "has white space in it"),
        ("192.168.7.1/33 ", "has a prefix length that no IPv4 network has"),
        ("192.168.7.1, 192.168.7.2/24", "is no IPv4 or IPv6 address"),
        ("192.168.7.0/24", "is the address of the network itself"),
        ("192.168.7.255/24", "is the broadcast address"),
        ("192.168.7.1/31", "leaves no room for guests"),
    ],
)
def test_an_address_is_told_by_what_is_wrong_with_it(address: str, said: str) -> None:
    (told,) = of_network({"name": "a", "address": address})
    assert told.startswith(f"guest_networks[0].address: {said} (found {address!r}")


@pytest.mark.parametrize("resource", [libvirt_guest, guest_image])
def test_a_guest_on_a_network_that_is_to_go(resource: Any) -> None:
    shapes = [{**SHAPE, "network": "a"}, {**SHAPE, "name": "other", "network": "a", "state": "absent"}]
    given = {"guest_shapes": shapes, "guest_networks": [INNER, {"name": "a", "state": "absent"}]}
    assert problems(resource, **given) == [
        "guest_shapes[0].network: is a network that guest_networks[1] has absent (found 'a')."
        " Take state: absent out there, or put the guest on another network."
    ]
    wrong = [{**shapes[0], "gpus": -1}]
    assert len(problems(resource, **{**given, "guest_shapes": wrong})) == 2
    assert problems(resource, guest_shapes=shapes, guest_networks=[INNER]) == []


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("/", "is the root folder itself"),
        ("//", "is the root folder itself"),
        ("/./", "is the root folder itself"),
        ("/srv/../srv/p", "has .. in it"),
        ("srv/p", "is not an absolute path"),
        ("", "is not an absolute path"),
        ("/srv/p\n", "has a character in it that cannot be printed"),
        ("/srv/\x00p", "has a character in it that cannot be printed"),
        ("/srv/\x7fp", "has a character in it that cannot be printed"),
        ("/srv/\ud800p", "has a character in it that cannot be printed"),
    ],
)
def test_a_folder_is_told_by_what_is_wrong_with_it(folder: str, said: str) -> None:
    (told,) = of_folders(folder)
    assert told.startswith(f"guest_pools[0].path: {said} (found {folder!r})")


@pytest.mark.parametrize("folder", ["/srv//p", "/srv/p/", "/srv/./p", "//srv/p", "/srv/p"])
def test_one_folder_has_one_name(folder: str) -> None:
    (one,) = libvirt_pool.parse({"guest_pools": [{"name": "a", "path": folder}]}).pools
    assert one.folder == "/srv/p"


def test_a_folder_may_have_spaces_and_letters_of_any_language() -> None:
    assert of_folders("/srv/Gäste und 更多") == []


def test_entries_that_are_alike_are_told_once_each() -> None:
    assert of_folders("/srv/p", "/srv//p", "/srv/p/") == [
        "guest_pools[1].path: is that of guest_pools[0] too (found '/srv/p'). Give each its own.",
        "guest_pools[2].path: is that of guest_pools[0] too (found '/srv/p'). Give each its own.",
    ]
    alike = [{"name": "a", "path": "/a"}, {"name": "a", "path": "/b", "state": "absent"}, {"name": "a", "path": "/c"}]
    assert [one.partition(" (")[0] for one in problems(libvirt_pool, guest_pools=alike)] == [
        "guest_pools[1].name: is that of guest_pools[0] too",
        "guest_pools[2].name: is that of guest_pools[0] too",
    ]
    nets = [{"name": "a", "address": f"10.9.{number}.1/16"} for number in range(3)]
    assert [one.partition(" (")[0] for one in problems(libvirt_network, guest_networks=nets)] == [
        "guest_networks[1].name: is that of guest_networks[0] too",
        "guest_networks[2].name: is that of guest_networks[0] too",
    ]
    nets = [{"name": f"n{number}", "address": f"10.9.{number}.1/16"} for number in range(3)]
    assert len(problems(libvirt_network, guest_networks=nets)) == 2


def test_one_mistake_in_a_pool_hides_no_other() -> None:
    pools = [{"name": "a", "path": "/srv/a"}, {"name": "b/c", "path": "/srv/a"}, {"name": "a", "path": "x"}]
    told = problems(libvirt_pool, guest_pools=pools)
    assert [one.partition(":")[0].replace("guest_pools", "") for one in told] == [
        "[1].name",
        "[1].path",
        "[2].name",
        "[2].path",
    ]
