from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import ABSENT, Unreadable
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import UnreadableState
from ansible_collections.vela.gpudirect.plugins.module_utils.pci import nccl, xml_input
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.address import Address
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.nccl import NcclTopology
from hypothesis import given, settings

from tests.fixtures import corpus, fake_exports, fake_pci
from tests.fixtures.fake_machines import large
from tests.unit.pci.machines import at, read
from tests.unit.pci.random_machines import machines


def of(text: str | bytes) -> NcclTopology:
    return nccl.read(xml_input.parse(text, "n.xml"), "n.xml")


def in_corpus(name: str) -> NcclTopology:
    return of(corpus.file(f"nccl-topo/{name}.xml").read_bytes())


def system(inside: str, cpu: str = 'numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel"') -> NcclTopology:
    return of(f'<system version="1"><cpu {cpu}>{inside}</cpu></system>')


def nearest(topology: NcclTopology) -> dict[str, tuple[str, set[str]]]:
    """The lowest switch above each GPU that has a NIC too, and its NICs; by walking up, as a person does it."""
    tree = topology.machine.tree
    nics = {one.address for one in topology.nets if one.address is not None}
    found = {}
    for gpu in topology.gpus:
        for bridge in tree.above(tree.functions[gpu.address]):
            here = {str(nic) for nic in nics if bridge in list(tree.above(tree.functions[nic]))}
            if here:
                found[str(gpu.address)] = (str(bridge.address), here)
                break
    return found


# The corpus ------------------------------------------------------------------------------


def test_azure_ndv4_has_a_nic_on_the_switch_of_each_gpu() -> None:
    found = in_corpus("azure-ndv4-a100")
    assert Counter(bridge for bridge, _nics in nearest(found).values()) == {f"ffff:ff:0{n}.0": 2 for n in range(1, 5)}
    assert {len(nics) for _bridge, nics in nearest(found).values()} == {2}
    nodes = {str(gpu.address): at(found.machine.tree, str(gpu.address)).numa_node for gpu in found.gpus}
    assert (nodes["0001:00:00.0"], nodes["0002:00:00.0"], nodes["0003:00:00.0"], nodes["0004:00:00.0"]) == (1, 1, 0, 0)
    assert not found.oddities
    assert [len(one.cpus) for one in found.cpus] == [24] * 4
    assert found.machine.platform.numa_nodes == (0, 1, 2, 3)
    one = at(found.machine.tree, "0101:00:00.0")
    assert (one.class_code, one.link.speed, one.link.width) == (0x020700, 160, 16)
    assert {"vendor", "device", "subsystem", "revision"} <= set(one.unread)  # NCCL asks the guest for them


def test_azure_ndv5() -> None:
    found = in_corpus("azure-ndv5-h100")
    assert len(nearest(found)) == len(found.gpus) == 8
    assert {len(nics) for _bridge, nics in nearest(found).values()} == {1}
    assert [sorted(one.cpus)[:: len(one.cpus) - 1] for one in found.cpus] == [[0, 47], [48, 95]]
    assert not found.oddities
    assert {one.link.speed for one in found.machine.tree} == {320}


def test_aws_p4d_has_nics_that_are_not_mellanox() -> None:
    found = in_corpus("aws-p4d")
    assert {at(found.machine.tree, str(net.address)).ids for net in found.nets} == {"1d0f:efa0"}
    assert [one for one in found.oddities if "shared by 2 GPUs" in one] == list(found.oddities)
    assert len(found.oddities) == 4


def test_rccl_rome_has_three_bridges_above_a_gpu() -> None:
    found = in_corpus("rccl-topo_8p_rome_4n_1")
    tree = found.machine.tree
    assert {len(list(tree.above(tree.functions[gpu.address]))) for gpu in found.gpus} == {3}
    assert {len(list(tree.above(tree.functions[net.address]))) for net in found.nets if net.address} == {1}
    assert len(nearest(found)) == 8
    assert [one.numaid for one in found.cpus] == [1, 3, 5, 7] or len(found.cpus) == 4
    assert at(tree, "0000:45:00.0").rdma == ("mlx5_1",)


def test_rccl_two_nics_below_one_node() -> None:
    found = in_corpus("rccl-topo_8p_pcie_2nic")
    assert len(nearest(found)) == 8
    assert found.oddities[0].startswith("cpu affinity: processors 8-15 are in no mask; a NUMA node without devices")
    assert [re.sub(r" \(.*", "", one) for one in found.oddities[1:]] == [
        "pci 0000:1a:00.0: one NIC is shared by 4 GPUs",
        "pci 0000:4c:00.0: one NIC is shared by 4 GPUs",
    ]


def test_rccl_guest_without_an_rdma_nic() -> None:
    found = in_corpus("rccl-topo_8p_rome_vm1")
    assert "net: no RDMA NIC in guest; only sockets (eth0 gdr=0)" in found.oddities
    assert [(net.name, net.address, net.gdr, net.rdma) for net in found.nets] == [("eth0", None, False, False)]


def test_a_flat_guest_per_field() -> None:
    found = in_corpus("h200x2-flat-guest.dump")
    assert found.oddities == (
        "pci 0000:00:06.0 link_width=0: the guest is told no width; NCCL counts 16 lanes",
        "pci 0000:00:07.0 link_width=0: the guest is told no width; NCCL counts 16 lanes",
        "cpu numaid=-1: the guest has no NUMA affinity of its PCI devices, so NCCL cannot tell near from far",
        "cpu numaid=-1 affinity: is missing; NCCL pins its threads to no processors",
        "net: no RDMA NIC in guest; only sockets (eth0 gdr=0)",
    )
    gpu = at(found.machine.tree, "0000:00:06.0")
    assert gpu.numa_node is ABSENT
    assert gpu.link.width == Unreadable("the file says '0'")
    assert gpu.link.speed == 320
    assert found.machine.platform.numa_nodes is ABSENT
    assert [(one.dev, one.gdr) for one in found.gpus] == [(0, True), (1, True)]


# Made up ---------------------------------------------------------------------------------


def test_a_made_up_machine(tmp_path: Path) -> None:
    fake = large(vfs=0).write(tmp_path)
    found, mine = of(fake_exports.nccl(fake)), read(fake)
    assert [one.address for one in found.machine.tree] == [one.address for one in mine]
    for one in found.machine.tree:
        other = mine.functions[one.address]
        for name in ("ids", "class_code", "subsystem_vendor", "subsystem_device", "parent", "numa_node", "rdma"):
            assert getattr(one, name) == getattr(other, name)
        assert (one.link.speed, one.link.width) == (other.link.speed, other.link.width)
    assert len(found.gpus) == len(nearest(found)) == 8
    assert not found.oddities


@settings(max_examples=30)
@given(machines())
def test_any_machine_keeps_its_places(machine: fake_pci.Machine) -> None:
    found = of(fake_exports.nccl(machine))
    expected = {one.address: one for one in machine.devices}
    assert {str(one.address) for one in found.machine.tree} == set(expected)
    for one in found.machine.tree:
        above = expected[str(one.address)].above
        assert one.parent == (Address.parse(above.address) if isinstance(above, fake_pci.Device) else None)


GPU = '<pci busid="0000:0{0}:00.0" class="0x030200" link_speed="{1}" link_width="16"/>'


@pytest.mark.parametrize(
    ("inside", "says"),
    [
        (GPU.format(1, ""), "pci 0000:01:00.0 link_speed='': is none that NCCL knows; it counts 8 GT/s"),
        (GPU.format(1, "16.0 GT/s"), "pci 0000:01:00.0 link_speed='16.0 GT/s': is none that NCCL knows; it counts 8 GT/s"),
        ('<pci busid="x" class="0x0300"/>', "pci busid='x' (line 1): is not a PCI address of the form"),
        (GPU.format(1, "8 GT/s") * 2, "pci busid=0000:01:00.0 (line 1): is in the file twice; NCCL takes the first"),
        ("", "cpu numaid=0: has no PCI device; pin what uses the GPUs to other nodes"),
        ("", "gpu: there is none in this file"),
        ("", "net: no RDMA NIC in guest; there is no NIC at all"),
        ('<pci busid="0:1:0.0" class="0x020000"><nic><net name="mlx5_0" dev="0" gdr="0" guid="0x2"/></nic></pci>',
         "net mlx5_0 gdr=0: NCCL copies through host memory for this NIC"),
    ],
)  # fmt: skip
def test_oddities(inside: str, says: str) -> None:
    assert any(one.startswith(says) for one in system(inside).oddities)


def test_masks_that_overlap_or_are_none() -> None:
    found = of('<system version="3"><cpu numaid="0" affinity="0000000f"/><cpu numaid="1" affinity="3c"/>'
               '<cpu numaid="1" affinity="zz"/><cpu numaid="x" affinity="0"/></system>')  # fmt: skip
    assert found.oddities[0] == "system version='3': NCCL reads 1, RCCL 2"
    assert "cpu numaid=1 affinity: has processors 2-3, which numaid=0 has too" in found.oddities
    assert "cpu numaid=1 affinity='zz': is no mask; NCCL wants hexadecimal words" in found.oddities
    assert "cpu numaid=1: is in the file 2 times" in found.oddities
    assert "cpu numaid='x' (line 1): is no number" in found.oddities
    assert "cpu numaid=-1 affinity=0: names no processor" in found.oddities


def test_two_switches_with_one_address_are_two() -> None:
    switch = '<pci busid="ffff:ff:01.0" class="0x060400">{}</pci>'
    found = system("".join(switch.format(GPU.format(number, "8 GT/s")) for number in (1, 2)))
    parents = {at(found.machine.tree, f"0000:0{number}:00.0").parent for number in (1, 2)}
    assert len(parents) == 2
    assert any("is in the file twice" in one for one in found.oddities)


def test_a_file_without_cpus() -> None:
    with pytest.raises(UnreadableState, match=r"^n.xml:1: has no cpu in its system"):
        of('<system version="1"/>')
