"""Topology files for the GPU of a guest: make_files.py FOLDER CPUS FAMILY MODEL.

Reads FOLDER/machine.json, or this machine into it. FAMILY and MODEL are the processor's, as /proc/cpuinfo has them.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

from gpudirect.core.host import Host
from gpudirect.guest import nccl_xml
from gpudirect.guest.model import model_of
from gpudirect.guest.options import Kernel, Options, Processor, Topology
from gpudirect.guest.placed import Cell, Given, Part, Placed, Shape
from gpudirect.path import facts
from gpudirect.pci import source
from gpudirect.pci.address import Address
from gpudirect.pci.machine import Machine
from gpudirect.pci.tree import Link, Tree
from gpudirect.pci.whole import whole

folder, (count, family, model) = Path(sys.argv[1]), map(int, sys.argv[2:])
kept = folder / "machine.json"
if not kept.exists():
    kept.write_text(json.dumps(whole(facts.machine_of(Host())), indent=1, sort_keys=True))
machine = source.read_file(str(kept))
gpu = next(one for one in machine.tree if one.vendor == 0x10DE and one.class_code >> 16 == 3)
cpus, half = tuple(range(count)), count // 2
one_node, two_nodes = (Cell(0, cpus, 4096),), (Cell(0, cpus[:half], 4096), Cell(1, cpus[half:], 4096))


def write(name, of, cells, vfs=(), **seen):
    """Write the file of a guest with the GPU on its last node; ``seen``: where the guest really has the GPU."""
    given = (Given(Part.GPU, gpu.address, len(cells) - 1), *(Given(Part.VF, one, 0, gpu.address) for one in vfs))
    options = Options(topology=Topology.FLAT, kernel=Kernel("none"), processor=Processor("", family, model))
    guest = model_of(of, Placed(Shape("guest", 1, len(vfs), vcpus=count), given, cells), options)
    moved = tuple(replace(one, **seen) if one.host == gpu.address else one for one in guest.devices)
    (folder / name).write_text(nccl_xml.render(replace(guest, devices=moved)))


write("flat.xml", machine, one_node, guest=gpu.address)
write("elsewhere.xml", machine, one_node)
write("second_node.xml", machine, two_nodes, guest=gpu.address)
# What was written before 2026-11-30: family and model left to NCCL.
untold = (folder / "second_node.xml").read_text().replace(f' familyid="{family}" modelid="{model}"', "")
(folder / "untold.xml").write_text(untold)
# A host on which the GPU shares a switch with a NIC: the file has that switch, which no function of this guest is.
links = {"link": Link(speed_max=320, width_max=16), "root_bus": "pci0000:20"}
root = replace(gpu, address=Address(0, 0x20, 1, 0), parent=None, class_code=0x060400, secondary_bus=0x21, **links)
upper = replace(root, address=Address(0, 0x21, 0, 0), parent=root.address, secondary_bus=0x22)
lower = [
    replace(root, address=Address(0, 0x22, at, 0), parent=upper.address, secondary_bus=0x23 + at) for at in range(2)
]
below = replace(gpu, parent=lower[0].address, **links)
nic = replace(gpu, address=Address(0, 0x24, 0, 0), parent=lower[1].address, class_code=0x020000, **links)
tree = Tree({one.address: one for one in (root, upper, *lower, below, nic)})
write("switch.xml", Machine(tree, machine.platform, "host"), one_node, [nic.address], guest=gpu.address)
