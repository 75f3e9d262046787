"""Selectors: what they match, and what is said when it cannot be what was meant."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Unreadable
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import (
    GpudirectError,
    HostRefused,
    IntentError,
    UnreadableState,
)
from ansible_collections.vela.gpudirect.plugins.module_utils.core.schema import Field, Schema
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.address import Address
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.select import (
    SELECT_FIELDS,
    check_some,
    chosen,
    matches,
    selector,
)
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.tree import Function, Tree

from tests.fixtures import fake_machines
from tests.fixtures.fake_pci import Machine, Net
from tests.unit.pci.machines import at, read

NICS = ["0000:24:00.0", "0000:44:00.0"]
DRIVES = ["0000:23:00.0", "0000:43:00.0"]


@pytest.fixture
def rack(tmp_path: Path) -> Machine:
    return fake_machines.rack().write(tmp_path)


@pytest.fixture
def tree(rack: Machine) -> Tree:
    """The rack with three VFs on its first NIC and two on its second."""
    for address, count in zip(NICS, (3, 2)):
        rack.add_vfs(rack[address], count)
    return read(rack)


def vfs(nic: int, count: int) -> list[str]:
    return [f"0000:{nic:x}:10.{2 * number}" for number in range(count)]


def found(tree: Tree, **conditions: Any) -> list[str]:
    return [str(one.address) for one in matches(selector("s", conditions), tree)]


def refusal(tree: Tree, expect: int | None = None, **conditions: Any) -> str:
    with pytest.raises(GpudirectError) as caught:
        chosen("s", selector("s", conditions), tree, expect)
    return str(caught.value)


# Matching --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conditions", "addresses"),
    [
        ({"vendor": "8086", "device": "10c9"}, NICS),
        ({"vendor": "0x8086", "device": "10C9"}, NICS),
        ({"subsystem_vendor": "8086", "subsystem_device": "a03c"}, NICS),
        ({"class": "0108"}, DRIVES),
        ({"class": "010802"}, DRIVES),
        ({"class": "0x010802", "numa_node": 1}, DRIVES[1:]),
        ({"class": "0108", "numa_node": "0"}, DRIVES[:1]),
        ({"address": "24:00.0"}, NICS[:1]),
        ({"serial": "52-54-00-ff-ff-85-66-a1"}, NICS[1:]),
        ({"serial": "52:54:00:FF:FF:85:66:A1"}, NICS[1:]),
        ({"serial": "gpu2"}, DRIVES[1:]),
        ({"port": "pci0000:40/00.0/00.0/01.0/00.0"}, NICS[1:]),
        ({"port": "0000:40/00.0/00.0/01.0/00.0"}, NICS[1:]),
        ({"netdev": "ens2"}, NICS[1:]),
        ({"netdev": "enp0s3"}, ["0000:00:03.0"]),
        ({"vendor": "8086", "class": "0200"}, NICS),
        ({"vendor": "8086", "device": "10ca"}, []),
        ({"vendor": "10de"}, []),
    ],
)
def test_every_condition_holds_for_what_is_matched(tree: Tree, conditions: Any, addresses: list[str]) -> None:
    assert found(tree, **conditions) == addresses


def test_vfs_come_by_pf_and_number_and_only_where_they_are_meant(tree: Tree) -> None:
    assert found(tree, vfs_of={"vendor": "8086"}) == vfs(0x24, 3) + vfs(0x44, 2)
    assert found(tree, vfs_of={"numa_node": 1}) == vfs(0x44, 2)
    assert found(tree, vfs_of={"vendor": "8086"}, numa_node=0, device="10ca") == vfs(0x24, 3)
    assert found(tree, vfs_of={"class": "0108"}) == []
    assert found(tree, address="0000:24:10.2") == ["0000:24:10.2"]
    assert found(tree, port="pci0000:40/00.0/00.0/01.0/00.0/vf1") == ["0000:44:10.2"]
    assert found(tree, vfs_of={"vendor": "8086"}, port="pci0000:40/00.0/00.0/01.0/00.0/vf1") == ["0000:44:10.2"]


def test_making_vfs_changes_nothing_but_the_vfs(rack: Machine, tree: Tree) -> None:
    for address in NICS:
        rack.remove_vfs(rack[address])
    without = read(rack)
    for conditions in ({"vendor": "8086"}, {"class": "0200"}, {"numa_node": 0}, {"subsystem_vendor": "8086"}):
        assert found(tree, **conditions) == found(without, **conditions)


def test_more_than_ten_vfs_stay_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    machine = Machine()
    nic = machine.connectx(machine.port(machine.root(0), "01.0", spare_buses=1), "ens1", "94:6d:ae:00:00:00")
    assert nic.vfs is not None
    nic.vfs.offset, nic.vfs.stride = 250, 5
    machine.add_vfs(nic, 12)
    tree = read(machine.write(tmp_path))
    numbers = [
        tree.port(one).rpartition("/vf")[2] for one in matches(selector("s", {"vfs_of": {"vendor": "15b3"}}), tree)
    ]
    assert numbers == [str(number) for number in range(12)]


def test_vfs_of_two_ports_of_one_card_stand_by_port_and_not_by_address(tmp_path: Path) -> None:
    machine = Machine()
    port = machine.port(machine.root(0), "01.0")
    for number in range(2):
        nic = machine.igb(port, f"ens{number}", f"52:54:00:85:66:a{number}", f"00.{number}")
        machine.add_vfs(nic, 2)
    tree = read(machine.write(tmp_path))
    assert found(tree, vfs_of={"vendor": "8086"}) == ["0000:01:10.0", "0000:01:10.2", "0000:01:10.1", "0000:01:10.3"]


def test_a_representor_does_not_stand_for_the_pf(tmp_path: Path) -> None:
    machine = Machine()
    nic = machine.connectx(machine.port(machine.root(0), "01.0"), "ens1np0", "94:6d:ae:00:00:00")
    nic.nets.append(Net("ens1npf0vf0", "94:6d:ae:00:00:01", port_name="pf0vf0"))
    tree = read(machine.write(tmp_path))
    assert found(tree, netdev="ens1np0") == ["0000:01:00.0"]
    assert found(tree, netdev="ens1npf0vf0") == []


# Intent ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mapping", "problems"),
    [
        (
            {"vendor": "15b", "device": "0xzzzz", "subsystem_vendor": "015b3"},
            [
                "s.device: is not a PCI id (found '0xzzzz', wanted four hexadecimal digits, such as 15b3). Correct the inventory.",
                "s.subsystem_vendor: is not a PCI id (found '015b3', wanted four hexadecimal digits, such as 15b3). "
                "Correct the inventory.",
                "s.vendor: is not a PCI id (found '15b', wanted four hexadecimal digits, such as 15b3). Correct the inventory.",
            ],
        ),
        (
            {"class": "03"},
            [
                "s.class: is not a PCI class (found '03', wanted four or six hexadecimal digits, such as 0302). "
                "Correct the inventory."
            ],
        ),
        (
            {"vendr": "15b3", "numa_node": -1},
            [
                "s.numa_node: is too small (found -1, wanted at least 0). Give a larger number.",
                "s.vendr: is not a known name. Did you mean vendor?",
            ],
        ),
        (
            {"address": "0000:82.0.0"},
            [
                "s.address: is not a PCI address (found '0000:82.0.0', wanted domain:bus:device.function, "
                "such as 0000:3b:00.0). Did you mean 0000:82:00.0?"
            ],
        ),
        (
            {"port": "0000:3b:00.0", "netdev": " ", "serial": ""},
            [
                "s.netdev: is empty. Give a value, or leave the line out.",
                "s.port: is not a place (found '0000:3b:00.0', wanted root bus, then device.function of each step, "
                "such as pci0000:20/00.0/00.0). Correct the inventory.",
                "s.serial: is empty. Give a value, or leave the line out.",
            ],
        ),
        (
            {},
            [
                "s: selects nothing in particular. Give at least one of vendor, device, subsystem_vendor, subsystem_device, "
                "class, address, serial, port, numa_node, netdev, vfs_of."
            ],
        ),
        (
            {"vfs_of": {}},
            [
                "s.vfs_of: selects nothing in particular. Give at least one of vendor, device, subsystem_vendor, "
                "subsystem_device, class, address, serial, port, numa_node, netdev."
            ],
        ),
        ({"vfs_of": {"vfs_of": {"vendor": "15b3"}}}, None),
        ({"vfs_of": {"address": "3b"}}, None),
        ({"vfs_of": "15b3"}, None),
    ],
)
def test_what_cannot_be_meant_is_told_with_its_path(mapping: dict[str, Any], problems: list[str] | None) -> None:
    with pytest.raises(IntentError) as caught:
        selector("s", mapping)
    if problems is not None:
        assert [str(problem) for problem in caught.value.problems] == problems
    assert all(problem.path.startswith("s") for problem in caught.value.problems)


@pytest.mark.parametrize("text", ["class: 0302", "vendor: 8086", "address: 0000:01:00.0", "device: 0x10c9"])
def test_ids_that_yaml_takes_for_numbers_are_asked_for_in_quotes(text: str) -> None:
    mapping = yaml.safe_load(text)
    with pytest.raises(IntentError, match=r"Put it in quotes, so that YAML leaves it as it is\.$"):
        selector("s", mapping)


def test_selectors_are_options_of_a_schema_and_may_be_parsed_twice() -> None:
    entry = Field("toy_select", "dict", ("Devices.",), fields=SELECT_FIELDS, check=check_some)
    schema = Schema("toy", "toy_", (entry,))
    asked = {"vendor": "0x8086", "address": "3B:00.0", "vfs_of": {"class": "0200", "numa_node": "1"}}
    parsed = schema.parse({"toy_select": asked})
    assert schema.parse(parsed) == parsed
    assert selector("s", parsed["toy_select"]) == selector("s", asked)
    with pytest.raises(IntentError, match="^toy_select: selects nothing in particular"):
        schema.parse({"toy_select": {}})
    assert set(schema.argument_spec()["toy_select"]["options"]["vfs_of"]["options"]) == {
        entry.name for entry in SELECT_FIELDS if entry.name != "vfs_of"
    }


def test_a_selector_is_told_in_the_words_of_the_inventory() -> None:
    asked = {"vfs_of": {"vendor": "15b3", "netdev": "ens1"}, "numa_node": 0, "class": "0200"}
    assert str(selector("s", asked)) == "class 0200, numa_node 0, VFs of (vendor 15b3, netdev ens1)"


# Too few, too many -----------------------------------------------------------------------


def test_the_number_that_is_expected_is_taken(tree: Tree) -> None:
    drives = selector("s", {"class": "0108"})
    assert [str(one.address) for one in chosen("s", drives, tree)] == DRIVES
    assert [str(one.address) for one in chosen("s", drives, tree, 2)] == DRIVES
    assert chosen("s", selector("s", {"vendor": "10de"}), tree, 0) == ()
    assert chosen("s", selector("s", {"vfs_of": {"vendor": "10de"}}), tree, 0) == ()


def test_nothing_matched_lists_what_comes_nearest_and_why_it_is_not_it(tree: Tree) -> None:
    assert refusal(tree, vendor="8086", device="10c9", numa_node=3) == (
        "s: matches no device (found nearest: "
        "0000:24:00.0 (8086:10c9, class 020000, driver igb, netdev ens1, serial 52-54-00-ff-ff-85-66-a0): its NUMA node is 0; "
        "0000:44:00.0 (8086:10c9, class 020000, driver igb, netdev ens2, serial 52-54-00-ff-ff-85-66-a1): its NUMA node is 1, "
        "wanted vendor 8086, device 10c9, numa_node 3). "
        "Correct the selector, or see whether the device is in its slot and switched on."
    )


def test_a_near_miss_says_each_thing_that_it_lacks(tree: Tree) -> None:
    said = refusal(tree, netdev="ens7", serial="x")
    assert "0000:24:00.0 (8086:10c9" in said
    assert "its serial is 52-54-00-ff-ff-85-66-a0 and its network device is ens1" in said
    assert said.index("its serial is 52-54-00-ff-ff-85-66-a0") < said.index(
        "it has no"
    )  # another one is nearer than none
    assert (
        "0000:25:00.0 (1b36:0005, class 00ff00, no driver): it has no serial and it has no network device"
        in refusal(tree, netdev="ens7", serial="x", vendor="1b36", device="0005")
    )
    assert "0000:24:10.0 (8086:10ca, class 020000, no driver): it is a VF (vfs_of selects those)" in refusal(
        tree, vendor="8086", device="10ca"
    )
    assert "it has no NUMA node" in refusal(tree, vendor="1af4", device="1042", numa_node=0)


def test_a_long_list_is_cut(tree: Tree) -> None:
    said = refusal(tree, vendor="10de")
    assert said.count("its vendor is") == 8
    assert "; and 8 more, wanted vendor 10de)" in said
    assert "0000:20:00.0" not in said  # bridges are candidates only where bridges are asked for
    assert "0000:20:00.0 (1b36:000c, class 060400" in refusal(tree, vendor="10de", **{"class": "0604"})


def test_too_few_lists_those_that_matched_and_the_nearest_others(tree: Tree) -> None:
    assert refusal(tree, 3, vendor="1b36", device="0010") == (
        "s: matches only 2 devices (found 2: 0000:23:00.0 (1b36:0010, class 010802, driver nvme, serial gpu0); "
        "0000:43:00.0 (1b36:0010, class 010802, driver nvme, serial gpu2); "
        "nearest others: 0000:00:10.0 (1b36:000b, class 060000, no driver): its device is 000b; "
        "0000:00:11.0 (1b36:000b, class 060000, no driver): its device is 000b; "
        "0000:25:00.0 (1b36:0005, class 00ff00, no driver): its device is 0005; "
        "0000:45:00.0 (1b36:0005, class 00ff00, no driver): its device is 0005, wanted 3 with vendor 1b36, device 0010). "
        "See whether all devices are in their slots and switched on, or correct expect."
    )


def test_too_many_lists_all_that_matched(tree: Tree) -> None:
    assert refusal(tree, 1, **{"class": "0108"}) == (
        "s: matches 2 devices (found 2: 0000:23:00.0 (1b36:0010, class 010802, driver nvme, serial gpu0); "
        "0000:43:00.0 (1b36:0010, class 010802, driver nvme, serial gpu2), wanted 1 with class 0108). "
        "Narrow the selector, or correct expect."
    )
    assert "matches 2 devices" in refusal(tree, 0, **{"class": "0108"})


def test_vfs_of_nothing_lists_the_pfs(rack: Machine, tree: Tree) -> None:
    said = refusal(tree, vfs_of={"vendor": "15b3"})
    assert said.startswith("s.vfs_of: matches no device (found nearest: 0000:24:00.0 (8086:10c9")
    assert "its vendor is 8086" in said
    assert "gpu0" not in said  # a drive fails in two things: it is no PF either
    for address in NICS:
        rack.remove_vfs(rack[address])
    assert refusal(read(rack), vfs_of={"vendor": "8086"}) == (
        "s: matches no device: its PFs have no VFs (found 0000:24:00.0 has 0 of 7 VFs; 0000:44:00.0 has 0 of 7 VFs, "
        "wanted VFs of (vendor 8086)). Ask for VFs in sriov_ports."
    )


def test_devices_of_another_kind_are_no_candidates(tree: Tree) -> None:
    def no_pf(function: Function) -> str:
        return "" if function.is_pf else "it is no PF"

    pfs = chosen("s", selector("s", {"vendor": "8086"}), tree, 2, only=no_pf)
    assert [str(one.address) for one in pfs] == NICS
    with pytest.raises(HostRefused, match="gpu0\\): it is no PF"):
        chosen("s", selector("s", {"serial": "gpu0"}), tree, only=no_pf)


# Unknown ---------------------------------------------------------------------------------


def test_what_cannot_be_read_is_neither_taken_nor_passed_over(rack: Machine) -> None:
    for address in NICS:
        rack[address].readable = 64
    tree = read(rack.write(rack.folder))  # type: ignore[arg-type]
    with pytest.raises(UnreadableState) as caught:
        chosen("s", selector("s", {"vendor": "8086", "class": "0200", "serial": "52-54-00-ff-ff-85-66-a1"}), tree)
    cause = "its serial cannot be read: only 64 bytes of configuration space are readable; root is needed for more"
    assert str(caught.value) == (
        "s: cannot be decided for every device (found "
        f"0000:24:00.0 (8086:10c9, class 020000, driver igb, netdev ens1): {cause}; "
        f"0000:44:00.0 (8086:10c9, class 020000, driver igb, netdev ens2): {cause}, "
        "wanted vendor 8086, class 0200, serial 52-54-00-ff-ff-85-66-a1). "
        "Run as root, or select by something that can be read."
    )
    assert found(tree, serial="gpu0") == DRIVES[:1]  # what is known holds all the same


def test_a_serial_that_was_found_needs_no_other_to_be_known(rack: Machine) -> None:
    rack[NICS[0]].readable = 64
    tree = read(rack.write(rack.folder))  # type: ignore[arg-type]
    assert [str(one.address) for one in chosen("s", selector("s", {"serial": "gpu2"}), tree)] == DRIVES[1:]
    assert "cannot be decided" in refusal(tree, serial="gpu9")


def test_what_may_be_a_vf_is_not_decided_on(tree: Tree) -> None:
    vf = at(tree, "0000:24:10.0")
    lost = replace(vf, physfn=None, unread={"physfn": "physfn: Input/output error"})
    tree = replace(tree, functions={**tree.functions, vf.address: lost})
    for asked in ({"vendor": "8086", "device": "10ca"}, {"vfs_of": {"vendor": "8086"}, "device": "10ca"}):
        assert "its PF cannot be read: physfn: Input/output error" in refusal(tree, **asked)
    assert found(tree, address="0000:24:10.0") == ["0000:24:10.0"]
    assert "its port cannot be read: all that is known is pci0000:20/?" in refusal(
        tree, port="pci0000:20/00.0/00.0/01.0/00.0/vf0"
    )


def test_an_unknown_numa_node_leaves_the_choice_open(tree: Tree) -> None:
    drive = at(tree, DRIVES[0])
    functions = {**tree.functions, drive.address: replace(drive, numa_node=Unreadable("numa_node: Input/output error"))}
    said = refusal(replace(tree, functions=functions), numa_node=1, **{"class": "0108"})
    assert "its NUMA node cannot be read: numa_node: Input/output error" in said
    said = refusal(
        replace(tree, functions={drive.address: replace(drive, unread={"netdevs": "/sys/class/net: is not there"})}),
        netdev="ens1",
    )
    assert "its network device cannot be read: /sys/class/net: is not there" in said


def test_functions_that_could_not_be_read_are_mentioned_where_nothing_matched(tree: Tree) -> None:
    lost = replace(tree, unread={Address.parse("0000:99:00.0"): "its device cannot be read"})
    assert "; not readable: 0000:99:00.0: its device cannot be read, wanted vendor 10de)" in refusal(
        lost, vendor="10de"
    )
    assert "no device to choose from" in refusal(Tree(), vendor="10de")
