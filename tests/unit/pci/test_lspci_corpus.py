"""lspci outputs of real machines, each judged as FILES.md of the corpus says."""

from __future__ import annotations

import re

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import ABSENT, Unreadable
from ansible_collections.vela.gpudirect.plugins.module_utils.pci import lspci
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.capabilities import Words
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.machine import Machine
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.tree import Sriov, Tree

from tests.fixtures import corpus
from tests.unit.pci.machines import at

SWITCH = "lspci/xe9680-first-switch.lspci-vvv.txt"


def text(name: str) -> str:
    return corpus.file(name).read_text(encoding="utf-8")


def without_blank(name: str) -> Machine:
    return lspci.read(text(name), name)


def above(tree: Tree, address: str) -> list[str]:
    return [str(one.address) for one in tree.above(at(tree, address))]


def test_the_first_switch_of_a_bare_metal_host() -> None:
    machine = without_blank(SWITCH)
    tree = machine.tree
    assert (machine.source, machine.partial, len(tree.functions), dict(tree.unread)) == ("lspci -vvv", True, 14, {})
    assert above(tree, "19:00.0") == ["0000:17:01.0", "0000:16:00.0", "0000:15:01.0"]
    assert above(tree, "1a:00.0") == ["0000:17:02.0", "0000:16:00.0", "0000:15:01.0"]
    assert {one.root_bus for one in tree} == {"pci0000:15"}
    assert at(tree, "17:01.0").capabilities.acs == at(tree, "17:02.0").capabilities.acs == Words(0x5F, 0)
    assert at(tree, "15:01.0").capabilities.acs == Words(0x1F, 0)
    gpu, nic = at(tree, "19:00.0"), at(tree, "1a:00.0")
    assert (gpu.ids, gpu.class_code, gpu.driver, gpu.numa_node) == ("10de:2330", 0x030200, "nvidia", 0)
    assert [(bar.index, bar.size) for bar in gpu.bars] == [(0, 16 << 20), (2, 128 << 30), (4, 32 << 20)]
    assert (nic.vendor, nic.class_code, nic.driver) == (0x15B3, 0x020000, "mlx5_core")
    assert nic.ids == "15b3:????"
    assert isinstance(nic.sriov, Sriov)
    assert (nic.sriov.register, nic.sriov.enabled, nic.sriov.vf_device) == (16, 0, 0x101E)
    assert gpu.capabilities.ats is nic.capabilities.ats is ABSENT
    assert gpu.serial == "02-00-5e-ff-fe-00-00-04"
    assert (gpu.link.speed, gpu.link.width, gpu.link.speed_max) == (320, 16, 320)
    assert all(isinstance(one.iommu_group, Unreadable) for one in tree)
    said = " ".join(machine.missing)
    assert "Only 14 functions are in the input: none is on bus 00" in said
    assert "has no IOMMU groups" in said
    assert "NUMA" not in said


def test_what_is_made_of_it() -> None:
    whole = text(SWITCH)
    flipped = re.sub(r"(17:01\.0 (?:.|\n)*?ACSCtl:\tSrcValid- TransBlk- ReqRedir)-", r"\1+", whole, count=1)
    tree = lspci.read(flipped).tree
    assert at(tree, "17:01.0").capabilities.acs == Words(0x5F, 0x04)
    assert at(tree, "17:02.0").capabilities.acs == Words(0x5F, 0)

    nowhere = lspci.read(re.sub(r"\tNUMA node: .*\n", "", whole))
    assert all(isinstance(one.numa_node, Unreadable) for one in nowhere.tree)
    assert above(nowhere.tree, "19:00.0") == above(tree, "19:00.0")
    assert any("has no NUMA nodes" in sentence for sentence in nowhere.missing)

    denied = re.sub(r"(\tCapabilities: \[.*\n(\t\t.*\n)*)+", "\tCapabilities: <access denied>\n", whole)
    machine = lspci.read(denied)
    for one in machine.tree:
        for told in (one.capabilities.express, one.capabilities.acs, one.capabilities.ats, one.serial, one.link.speed):
            assert isinstance(told, Unreadable)
            assert "root" in told.cause
    assert any("run it as root" in sentence for sentence in machine.missing)

    cut = lspci.read(whole[: whole.index("ACSCtl", whole.index("17:02.0"))])
    assert cut.missing[0] == (
        "The input ends in the middle of 0000:17:02.0; the last function that is there in full is 0000:17:01.0."
    )
    assert isinstance(at(cut.tree, "17:02.0").capabilities.acs, Unreadable)


@pytest.mark.parametrize("name", ["pciutils-cap-aer-root", "pciutils-cap-ide", "pciutils-cap-rebar"])
def test_text_and_bytes_of_one_function_agree(name: str) -> None:
    whole = text(f"lspci/{name}.txt")
    lines = whole.splitlines(keepends=True)
    is_byte = re.compile(r"[0-9a-f]{2,3}: ([0-9a-f]{2} ?){16}$")
    by_text = lspci.read("".join(line for line in lines if not is_byte.match(line)) + "\n").tree
    by_bytes = lspci.read("".join(line for line in lines if line[0] != "\t")).tree
    machine = lspci.read(whole)
    assert not [sentence for sentence in machine.missing if "disagree" in sentence]
    assert list(by_text.functions) == list(by_bytes.functions)
    for one in by_text:
        other = by_bytes.functions[one.address]
        if not isinstance(one.capabilities.acs, Unreadable):
            assert one.capabilities == other.capabilities
            assert (one.link, one.serial) == (other.link, other.serial)
        both = at(machine.tree, str(one.address))
        assert len(both.config.data) == 4096
        assert both.told is None


def test_a_root_port_that_blocks_translated_requests() -> None:
    tree = without_blank("lspci/pciutils-cap-aer-root.txt").tree
    port, nic = at(tree, "00:02.0"), at(tree, "03:00.0")
    assert port.capabilities.acs == Words(0x1F, 0x1F)
    assert (nic.parent, nic.root_bus, nic.ids) == (port.address, "pci0000:00", "15b3:1007")


def test_a_capability_that_can_do_nothing() -> None:
    (one,) = without_blank("lspci/pciutils-cap-ide.txt").tree
    assert one.capabilities.acs == Words(0, 0)
    assert isinstance(one.sriov, Sriov)
    assert (one.sriov.register, one.sriov.offset, one.sriov.stride) == (4, 32, 1)
    assert "bars" in one.unread


def test_a_cloud_guest_whose_devices_have_domains_of_their_own() -> None:
    machine = without_blank("lspci/a100-8gpu.lspci-nn.txt")
    tree = machine.tree
    assert machine.platform.is_guest is True
    assert [one.address.domain for one in tree if one.ids == "10de:20b2"] == [1, 2, 3, 4, 0xB, 0xC, 0xD, 0xE]
    nics = [one for one in tree if one.ids == "15b3:101c"]
    assert [one.address.domain for one in nics] == list(range(0x101, 0x109))
    assert {one.class_code >> 8 for one in nics} == {0x0207}
    assert all("is a VF" in one.unread["physfn"] for one in nics)
    assert sum(one.class_code >> 8 == 0x0680 for one in tree) == 6
    assert at(tree, "c941:00:02.0").ids == "15b3:1016"
    assert not machine.partial
    assert all(isinstance(one.capabilities.acs, Unreadable) for one in tree)


def test_a_q35_guest_without_a_final_line_feed() -> None:
    machine = without_blank("lspci/a10-vm.lspci-nn.txt")
    assert machine.platform.is_guest is True
    assert len(machine.tree.functions) == 20
    gpu = at(machine.tree, "06:00.0")
    assert gpu.ids == "10de:2236"
    assert gpu.unread["parent"] == "the input does not say which bridge leads to bus 06"
    assert "physfn" in at(machine.tree, "05:00.0").unread


def test_a_list_of_groups() -> None:
    tree = without_blank("iommu/hgx-h200-nvswitch-group.fragment.txt").tree
    assert len(tree.functions) == 11
    assert [str(one.address)[5:] for one in tree.group(114)] == ["05:00.0", "06:00.0", "07:00.0"]
    assert {one.driver for one in tree.group(114)} == {"nvidia-nvswitch"}
    gpus = [one for one in tree if one.class_code >> 8 == 0x0302]
    assert len({one.iommu_group for one in gpus}) == len(gpus) == 8
    assert {one.driver for one in gpus} == {"nvidia"}
