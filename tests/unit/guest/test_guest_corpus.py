"""The topology files of clouds: a guest of such a machine is told to NCCL with the structure that its maker tells."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.guest import nccl_xml
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.model import model_of
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.options import Processor, Topology
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.placed import Cell, Given, Part, Placed, Shape
from ansible_collections.vela.gpudirect.plugins.module_utils.path.finding import Kind
from ansible_collections.vela.gpudirect.plugins.module_utils.path.routes import Routes
from ansible_collections.vela.gpudirect.plugins.module_utils.pci import nccl, xml_input
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.address import Address
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.nccl import NcclTopology

from tests.fixtures import corpus
from tests.unit.guest.guests import PLAIN

FILES = ("azure-ndv4-a100", "azure-ndv5-h100", "aws-p4d")


def topology(text: bytes | str) -> NcclTopology:
    return nccl.read(xml_input.parse(text, "file"))


def nics_of(found: NcclTopology) -> list[Address]:
    return sorted(one.address for one in found.nets if one.address is not None)


def kinds(found: NcclTopology) -> Counter[tuple[Kind, ...]]:
    """How far each GPU is from all NICs, as often as that occurs."""
    tree, routes = found.machine.tree.functions, Routes(found.machine)
    return Counter(
        tuple(sorted(routes.between(tree[gpu.address], tree[nic]).kind for nic in nics_of(found))) for gpu in found.gpus
    )


def shape(found: NcclTopology) -> list[tuple[object, ...]]:
    """Each node with its processors, switches, GPUs and NICs."""
    tree = found.machine.tree
    here = [
        Counter(
            "gpu" if one.class_code >> 16 == 3 else "nic" if one.class_code >> 16 == 2 else "switch"
            for one in tree
            if one.numa_node == cpu.numaid
        )
        for cpu in found.cpus
    ]
    return [(cpu.numaid, len(cpu.cpus), tuple(sorted(count.items()))) for cpu, count in zip(found.cpus, here)]


@pytest.mark.parametrize("topology_kind", list(Topology), ids=lambda one: one.value)
@pytest.mark.parametrize("name", FILES)
def test_structure_of_a_cloud(name: str, topology_kind: Topology) -> None:
    found = topology(corpus.file(f"nccl-topo/{name}.xml").read_bytes())
    tree = found.machine.tree.functions
    devices = []
    for part, addresses in ((Part.GPU, sorted(one.address for one in found.gpus)), (Part.VF, nics_of(found))):
        for address in addresses:
            node = tree[address].numa_node
            devices.append(Given(part, address, node if isinstance(node, int) else None))
    cells = tuple(Cell(cpu.numaid, tuple(sorted(cpu.cpus)), 1024) for cpu in found.cpus)
    wishes = replace(PLAIN, topology=topology_kind, processor=Processor(family=6, model=143))
    guest = model_of(found.machine, Placed(Shape("cloud", 8), tuple(devices), cells), wishes)
    again = topology(nccl_xml.render(guest))
    assert kinds(again) == kinds(found)
    assert shape(again) == shape(found)
    links = [sorted((str(one.link.speed), str(one.link.width)) for one in each.machine.tree) for each in (again, found)]
    assert links[0] == links[1]
    if name.startswith("azure"):  # processors in the order of nodes, as ours are
        assert [cpu.cpus for cpu in again.cpus] == [cpu.cpus for cpu in found.cpus]
