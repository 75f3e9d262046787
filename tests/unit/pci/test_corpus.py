"""Captured files of real machines, each judged as FILES.md of the corpus says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import ABSENT, Unreadable
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import HostRefused, UnreadableState
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host
from ansible_collections.vela.gpudirect.plugins.module_utils.pci import capabilities, sysfs
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.config_space import EXPRESS, ConfigSpace
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.select import chosen, matches, selector
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.tree import Tree

from tests.fixtures import corpus
from tests.unit.pci.machines import at


def tree_of(name: str, folder: Path, inside: str = ".") -> Tree:
    return sysfs.read(Host(str((corpus.unpacked(f"sysfs/{name}.tar.bz2", folder) / inside).resolve())))


# sysfs -----------------------------------------------------------------------------------


def test_a_q35_guest_whose_functions_have_no_numa_node(tmp_path: Path) -> None:
    tree = tree_of("ghw-q35-guest-nvidia-numa-minus1.sysfs", tmp_path)
    entries = sorted(one.name for one in (tmp_path / "sys/bus/pci/devices").iterdir())
    assert [str(one.address) for one in tree] == entries
    assert not tree.unread
    assert {repr(one.numa_node) for one in tree} == {"ABSENT"}
    (gpu,) = chosen("s", selector("s", {"vendor": "10de", "class": "0302"}), tree, 1)
    assert (gpu.driver, gpu.revision, tree.port(gpu)) == ("nvidia", 0xA1, "pci0000:00/01.5/00.0")
    assert sum(one.vendor == 0x1B36 and one.is_bridge for one in tree) == sum(one.is_bridge for one in tree) == 10
    assert len(tree.below(at(tree, "0000:00:01.0"))) == 7  # functions of one device below one port


def test_what_a_capture_left_out_is_unknown(tmp_path: Path) -> None:
    tree = tree_of("ghw-q35-guest-nvidia-numa-minus1.sysfs", tmp_path)
    for one in tree:
        assert isinstance(capabilities.acs(one.config), Unreadable)
        assert isinstance(one.serial, Unreadable)
        assert set(one.unread) == {"netdevs", "bars"}
        assert one.iommu_group is one.link.speed is ABSENT
    assert at(tree, "0000:02:00.0").disks == ("sda",)
    with pytest.raises(UnreadableState, match="its network device cannot be read: /sys/class/net: is not there"):
        chosen("s", selector("s", {"netdev": "eth0"}), tree)
    with pytest.raises(HostRefused, match="it has no NUMA node"):
        chosen("s", selector("s", {"vendor": "10de", "numa_node": 0}), tree)


def test_a_guest_with_a_domain_of_more_than_16_bits(tmp_path: Path) -> None:
    tree = tree_of("hwloc-2pa-pcidomain32bits.sysfs", tmp_path, "2pa-pcidomain32bits")
    assert [str(one.address) for one in tree] == [
        *(
            "0000:00:00.0",
            "0000:00:01.0",
            "0000:00:01.1",
            "0000:00:01.2",
            "0000:00:01.3",
            "0000:00:02.0",
            "0000:00:03.0",
        ),
        *("10000:00:00.0", "10000:00:04.0"),
    ]
    assert not tree.unread
    disk = at(tree, "10000:00:04.0")
    assert (disk.disks, disk.root_bus, tree.port(disk)) == (("vda",), "pci10000:00", "pci10000:00/04.0")
    assert [one.name for one in at(tree, "0000:00:03.0").netdevs] == ["ens3"]
    assert at(tree, "0000:00:01.1").disks == ("sr0",)
    assert at(tree, "0000:00:02.0").boot_vga
    assert matches(selector("s", {"address": "10000:00:04.0"}), tree) == (disk,)
    for one in tree:
        assert len(one.config.data) == 64
        assert isinstance(capabilities.ats(one.config), Unreadable)
        assert one.numa_node is ABSENT


def test_a_capture_without_pci_is_no_host_without_devices(tmp_path: Path) -> None:
    with pytest.raises(UnreadableState, match="^/sys/bus/pci/devices: is not there"):
        tree_of("gpud-h100-sys-class-infiniband", tmp_path)


# Configuration space ---------------------------------------------------------------------


def dumped(name: str) -> list[tuple[str, ConfigSpace]]:
    """What lspci wrote about each function, and the bytes that it dumped below."""
    found: list[tuple[str, ConfigSpace]] = []
    text, data = "", bytearray()
    for line in [*corpus.file(f"lspci/{name}.txt").read_text(encoding="utf-8").splitlines(), "end."]:
        match = re.fullmatch(r"([0-9a-f]{2,3}): ((?:[0-9a-f]{2} ?){16})", line)
        if match:
            assert int(match[1], 16) == len(data)
            data += bytes.fromhex(match[2])
        elif re.match(r"\S", line):
            found += [(text, ConfigSpace(bytes(data)))] if data else []
            text, data = line, bytearray()
        else:
            text += f"\n{line}"
    return found


@pytest.mark.parametrize("name", ["pciutils-cap-aer-root", "pciutils-cap-ide", "pciutils-cap-rebar"])
def test_words_of_real_functions_are_those_that_lspci_prints(name: str) -> None:
    functions = dumped(name)
    assert len(functions) == (2 if name.endswith("root") else 1)
    for text, config in functions:
        assert len(config.data) == 4096
        assert isinstance(config.capability(EXPRESS), int)
        if "Capabilities:" not in text:
            continue  # only the bytes are in the file
        words = capabilities.acs(config)
        assert (words is ABSENT) == ("ACSCap" not in text)
        if isinstance(words, capabilities.Words):
            for label, word in (("ACSCap", words.capability), ("ACSCtl", words.control)):
                (printed,) = re.findall(rf"{label}:\t(.*)", text)
                assert capabilities.acs_names(word) == re.findall(r"(\w+)\+", printed)
        serial = re.search(r"Device Serial Number ([0-9a-f-]+)", text)
        assert capabilities.device_serial(config) == (serial[1] if serial else ABSENT)
        total = re.search(r"Total VFs: (\d+)", text)
        assert capabilities.total_vfs(config) == (int(total[1]) if total else ABSENT)


def test_a_root_port_that_blocks_translated_requests() -> None:
    (_text, port), (_other, nic) = dumped("pciutils-cap-aer-root")
    assert capabilities.acs(port) == capabilities.Words(0x1F, 0x1F)
    assert capabilities.acs(nic) is capabilities.ats(nic) is ABSENT
    assert capabilities.device_serial(nic) == "02-00-5e-ff-fe-00-00-01"


def test_a_function_that_can_have_no_isolation_although_it_has_the_capability() -> None:
    ((_text, config),) = dumped("pciutils-cap-ide")
    assert capabilities.acs(config) == capabilities.Words(0, 0)
    assert capabilities.total_vfs(config) == 4
