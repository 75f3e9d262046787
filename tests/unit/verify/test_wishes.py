"""How the outcome checks read a host's devices and what an inventory asks of them; the rack shows the rest."""

from __future__ import annotations

from typing import Any

import pytest

from tests.testinfra.pci import Function, ats_root_ports, canonical, functions_of, groups_of, place_of, selected
from tests.testinfra.wishes import Wishes, needs_serials, vf_differences, wishes_of

ROOT = "../../../devices/pci0000:20"
VALUES = """\
0000:20:00.0/vendor:0x1b36
0000:20:00.0/device:0x000c
0000:20:00.0/class:0x060400
0000:23:00.0/vendor:0x1b36
0000:23:00.0/device:0x0010
0000:23:00.0/class:0x010802
0000:23:00.0/numa_node:0
0000:23:00.0/max_link_width:1
0000:23:00.0/nvme/nvme0/serial:gpu0
0000:23:00.0/resource:0x0000000000000000 0x0000000000003fff 0x0000000000140204
0000:23:00.0/resource:0x0000000000000000 0x0000000000000000 0x0000000000000000
0000:24:00.0/vendor:0x8086
0000:24:00.0/device:0x10c9
0000:24:00.0/class:0x020000
0000:24:00.0/numa_node:-1
0000:24:00.0/sriov_totalvfs:7
0000:24:00.0/sriov_numvfs:2
0000:24:10.0/vendor:0x8086
0000:24:10.0/device:0x10ca
0000:24:10.2/vendor:0x8086
0000:24:10.2/device:0x10ca
"""
LINKS = f"""\
0000:20:00.0={ROOT}/0000:20:00.0
0000:23:00.0={ROOT}/0000:20:00.0/0000:23:00.0
0000:24:00.0={ROOT}/0000:20:00.0/0000:24:00.0
0000:24:10.0={ROOT}/0000:20:00.0/0000:24:10.0
0000:24:10.2={ROOT}/0000:20:00.0/0000:24:10.2
0000:23:00.0/driver=../../../../bus/pci/drivers/nvme
0000:23:00.0/iommu_group=../../../../kernel/iommu_groups/7
0000:24:00.0/virtfn1=../0000:24:10.2
0000:24:00.0/virtfn0=../0000:24:10.0
0000:24:10.0/physfn=../0000:24:00.0
0000:24:10.2/physfn=../0000:24:00.0
"""
NAMES = """\
/sys/bus/pci/devices/0000:24:00.0/net/ens1
/sys/kernel/iommu_groups/7/devices/0000:23:00.0
/sys/kernel/iommu_groups/8/devices/0000:24:00.0
/sys/kernel/iommu_groups/8/devices/0000:24:10.0
"""
SERIALS = """\
0000:24:00.0 Ethernet controller: Intel
\tCapabilities: [140 v1] Device Serial Number 52-54-00-ff-ff-85-66-a4
"""


@pytest.fixture
def machine() -> dict[str, Function]:
    return functions_of(VALUES, LINKS, NAMES, SERIALS)


def addresses(select: dict[str, Any], machine: dict[str, Function]) -> list[str]:
    return [one.address for one in selected(select, machine)]


def test_a_function_is_read_from_its_files_and_links(machine: dict[str, Function]) -> None:
    drive, nic = machine["0000:23:00.0"], machine["0000:24:00.0"]
    assert (drive.ids, drive.driver, drive.group, drive.node, drive.serial) == ("1b36:0010", "nvme", "7", 0, "gpu0")
    assert drive.regions == [(0, 0, 0x4000)]
    assert drive.steps == ("pci0000:20", "0000:20:00.0", "0000:23:00.0")
    assert (nic.netdevs, nic.vfs, nic.node) == (("ens1",), ["0000:24:10.0", "0000:24:10.2"], None)
    assert (machine["0000:20:00.0"].is_bridge, nic.is_bridge) == (True, False)
    assert groups_of(NAMES) == {"7": ["0000:23:00.0"], "8": ["0000:24:00.0", "0000:24:10.0"]}


@pytest.mark.parametrize(
    ("select", "wanted"),
    [
        ({"vendor": "8086"}, ["0000:24:00.0"]),  # VFs are meant with their PF only
        ({"vendor": "0x8086", "device": "10C9"}, ["0000:24:00.0"]),
        ({"vendor": "8086", "device": None}, ["0000:24:00.0"]),
        ({"class": "0108"}, ["0000:23:00.0"]),
        ({"class": "010802"}, ["0000:23:00.0"]),
        ({"class": "010801"}, []),
        ({"address": "24:00.0"}, ["0000:24:00.0"]),
        ({"address": "0000:24:10.2"}, ["0000:24:10.2"]),
        ({"serial": "gpu0"}, ["0000:23:00.0"]),
        ({"serial": "525400ffff8566a4"}, ["0000:24:00.0"]),
        ({"port": "pci0000:20/00.0/00.0", "vendor": "1b36"}, ["0000:23:00.0"]),
        ({"port": "0000:20/00.0/00.0/vf1"}, ["0000:24:10.2"]),
        ({"netdev": "ens1"}, ["0000:24:00.0"]),
        ({"numa_node": 0}, ["0000:23:00.0"]),
        ({"vfs_of": {"vendor": "8086"}}, ["0000:24:10.0", "0000:24:10.2"]),
        ({"vfs_of": {"vendor": "8086"}, "address": "24:10.2"}, ["0000:24:10.2"]),
        ({"vfs_of": {"vendor": "1b36"}}, []),
    ],
)
def test_a_selector_means_what_its_documentation_says(
    select: dict[str, Any], wanted: list[str], machine: dict[str, Function]
) -> None:
    assert addresses(select, machine) == wanted


def test_addresses_and_places_have_one_form(machine: dict[str, Function]) -> None:
    assert canonical("3B:0.1") == "0000:3b:00.1"
    assert canonical("10001:80:05.0") == "10001:80:05.0"
    assert place_of(machine["0000:24:10.0"], machine) == "pci0000:20/00.0/00.0/vf0"


def test_serial_numbers_are_asked_for_only_where_a_selector_has_one() -> None:
    assert not needs_serials({"sriov_ports": [{"select": {"vendor": "8086"}}]})
    assert needs_serials({"pci_driver_devices": [{"select": {"vfs_of": {"serial": "1"}}}]})


def test_wishes_are_resolved_to_functions_and_misses_are_told(machine: dict[str, Function]) -> None:
    found = wishes_of(
        {
            "sriov_ports": [
                {"select": {"device": "10c9"}, "vfs": 2, "vf_defaults": {"trust": True}, "vf": {"1": {"vlan": 7}}},
                {"select": {"vendor": "1b36"}, "vfs": 1},
            ],
            "pci_driver_devices": [
                {"name": "vf", "select": {"vfs_of": {"vendor": "8086"}}, "expect": 2},
                {"name": "gpu", "select": {"device": "0010"}, "expect": 2, "driver": "other"},
            ],
            "pci_driver_blacklist": ["nvidia", "nova-core"],
        },
        machine,
    )
    (port,) = found.ports
    assert port.attributes == {0: {"mac": "stable", "trust": True}, 1: {"mac": "stable", "trust": True, "vlan": 7}}
    assert (port.mtu, port.autoprobe) == (None, False)
    assert [(one.function.address, one.driver) for one in found.taken] == [
        ("0000:24:10.0", "vfio-pci"),
        ("0000:24:10.2", "vfio-pci"),
        ("0000:23:00.0", "other"),
    ]
    assert [one.partition(":")[0] for one in found.missed] == ["sriov_ports[1]", "pci_driver_devices[1] (gpu)"]
    assert found.barred == ("nova_core", "nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_peermem", "nvidia_uvm")
    assert [one.address for one in found.physical] == ["0000:23:00.0", "0000:24:00.0"]
    assert wishes_of({}, machine) == Wishes(functions=machine)


def test_a_drive_that_another_driver_has_tells_no_serial_number(machine: dict[str, Function]) -> None:
    entry = {"name": "gpu", "select": {"serial": "gpu0", "vendor": "1b36"}}
    assert not wishes_of({"pci_driver_devices": [entry]}, machine).undecided
    silent = functions_of(VALUES.replace("0000:23:00.0/nvme/nvme0/serial:gpu0\n", ""), LINKS, NAMES)
    found = wishes_of({"pci_driver_devices": [entry]}, silent)
    assert (len(found.undecided), found.missed, found.taken) == (1, (), ())
    other = {"name": "gpu", "select": {"serial": "gpu0", "vendor": "10de"}}
    assert len(wishes_of({"pci_driver_devices": [other]}, silent).missed) == 1


TOLD = {
    "vf": 0,
    "address": "02:11:22:33:44:55",
    "vlan_list": [{"vlan": 100, "qos": 3}],
    "rate": {"max_tx": 0, "min_tx": 0},
    "spoofchk": False,
    "link_state": "auto",
    "trust": True,
}


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"trust": True, "spoofchk": False, "vlan": 100, "qos": 3, "mac": "stable", "max_tx_rate": 0}, []),
        ({"mac": "02-11-22-33-44-55", "link_state": "auto"}, []),
        ({"mac": "kept", "trust": None}, []),
        ({"trust": False}, ["trust true"]),
        ({"spoofchk": True, "vlan": 0}, ["spoofchk false", "vlan 100"]),
        ({"qos": 0, "max_tx_rate": 100, "link_state": "enable"}, ["qos 3", "max_tx_rate 0", "link_state auto"]),
        ({"mac": "02:00:00:00:00:01"}, ["mac 02:11:22:33:44:55"]),
    ],
)
def test_vf_attributes_are_compared_one_by_one(wanted: dict[str, Any], words: list[str]) -> None:
    said = vf_differences(wanted, TOLD)
    assert len(said) == len(words)
    assert all(any(one.startswith(word) for one in said) for word in words)


@pytest.mark.parametrize("mac", ["00:00:00:00:00:00", "50:54:00:12:34:56", "03:00:00:00:00:01"])
def test_a_stable_mac_is_one_of_our_own(mac: str) -> None:
    assert vf_differences({"mac": "stable"}, {**TOLD, "address": mac})


def _atsr(flags: int, *scopes: bytes) -> bytes:
    body = b"".join(scopes)
    structure = bytes([2, 0]) + (8 + len(body)).to_bytes(2, "little") + bytes([flags, 0, 0, 0]) + body
    other = bytes([0, 0, 16, 0]) + bytes(12)
    return bytes(48) + other + structure


def test_root_ports_with_ats_are_read_from_the_dmar_table() -> None:
    scope = bytes([2, 8, 0, 0, 0, 0x20, 0, 1])
    assert ats_root_ports(_atsr(1)) == (True, [])
    assert ats_root_ports(_atsr(0, scope, scope)) == (False, ["0000:20:00.1", "0000:20:00.1"])
    assert ats_root_ports(bytes(48)) == (False, [])
