"""Topology files for the GPUs of a guest: make_files.py FOLDER CPUS FAMILY MODEL.

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
gpus = [one for one in machine.tree if one.vendor == 0x10DE and one.class_code >> 16 == 3]
cpus, half = tuple(range(count)), count // 2
one_node, two_nodes = (Cell(0, cpus, 4096),), (Cell(0, cpus[:half], 4096), Cell(1, cpus[half:], 4096))


def write(name, of, cells, vfs=(), here=True):
    """Write the file of a guest whose last GPU is on its last node; ``here``: each GPU where this guest really has it."""
    at = {gpu.address: max(0, len(cells) - len(gpus) + number) for number, gpu in enumerate(gpus)}
    given = (
        *(Given(Part.GPU, address, cell) for address, cell in at.items()),
        *(Given(Part.VF, nic, at[gpu], gpu) for nic, gpu in vfs),
    )
    options = Options(topology=Topology.FLAT, kernel=Kernel("none"), processor=Processor("", family, model))
    shape = Shape("guest", len(gpus), len(vfs) // len(gpus), vcpus=count)
    guest = model_of(of, Placed(shape, given, cells), options)
    moved = tuple(replace(one, guest=one.host) if here and one.host in at else one for one in guest.devices)
    (folder / name).write_text(nccl_xml.render(replace(guest, devices=moved)))


def switched(*groups):
    """A host as this one is not: each group of GPUs below a switch of its own with a NIC. Also the NIC of each GPU."""
    functions, nics, link = [], [], {"link": Link(speed_max=320, width_max=16)}
    for number, group in enumerate(groups):
        bus = 0x20 + 0x10 * number
        on = {**link, "root_bus": f"pci0000:{bus:02x}"}
        root = replace(group[0], address=Address(0, bus, 1, 0), parent=None, class_code=0x060400, **on)
        root = replace(root, secondary_bus=bus + 1)
        upper = replace(root, address=Address(0, bus + 1, 0, 0), parent=root.address, secondary_bus=bus + 2)
        lower = [
            replace(root, address=Address(0, bus + 2, at, 0), parent=upper.address, secondary_bus=bus + 3 + at)
            for at in range(len(group) + 1)
        ]
        below = [replace(gpu, parent=port.address, **on) for gpu, port in zip(group, lower)]
        nic = Address(0, lower[-1].secondary_bus, 0, 0)
        card = replace(group[0], address=nic, parent=lower[-1].address, class_code=0x020000, **on)
        functions += [root, upper, *lower, *below, card]
        nics.append((nic, group[0].address))
    return Machine(Tree({one.address: one for one in functions}), machine.platform, "host"), nics


write("flat.xml", machine, one_node)
write("elsewhere.xml", machine, one_node, here=False)
# A root complex has one node: for GPUs on two of them, each has one of its own.
roots = {gpu.address: replace(gpu, root_bus=f"pci0000:{0x10 * number:02x}") for number, gpu in enumerate(gpus)}
apart = Tree({one.address: roots.get(one.address, one) for one in machine.tree})
write("second_node.xml", Machine(apart, machine.platform, "host"), two_nodes)
# What was written before 2026-11-30: family and model left to NCCL.
untold = (folder / "second_node.xml").read_text().replace(f' familyid="{family}" modelid="{model}"', "")
(folder / "untold.xml").write_text(untold)
# Hosts with switches: the file has those, which no function of this guest is.
hosts = {"switch": (switched(gpus), one_node)}
if len(gpus) > 1:
    hosts["switches"] = (switched(*([gpu] for gpu in gpus)), two_nodes)
for name, ((host, nics), cells) in hosts.items():
    write(f"{name}.xml", host, cells, nics)
