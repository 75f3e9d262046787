"""Guests of tests: hosts by name as the engine reads them, and a guest's part of one as YAML tells it."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.options import (
    Disk,
    Firmware,
    Kernel,
    Loader,
    Network,
    Options,
    Processor,
    Topology,
)
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.placed import Cell, Given, Part, Placed, Shape
from ansible_collections.vela.gpudirect.plugins.module_utils.path.facts import machine_of
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.address import Address
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.machine import Machine
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.tree import Tree

from tests.fixtures.guest_hosts import HOSTS

PLAIN = Options(disk=Disk("/var/lib/libvirt/images/one.qcow2"), network=Network("default"))
_RECORDS: Mapping[str, Any] = {
    "disk": Disk, "network": Network, "loader": Loader, "kernel": Kernel, "processor": Processor,
}  # fmt: skip


@functools.cache
def host(like: str) -> tuple[Machine, Mapping[str, Address]]:
    """A host as the engine reads it, and its devices by name."""
    with tempfile.TemporaryDirectory() as folder:
        built = HOSTS[like]()
        machine = machine_of(Host(str(built.write(Path(folder)))), like)
    return machine, {name: Address.parse(device.address) for name, device in built.named.items()}


def placed(told: Mapping[str, Any], names: Mapping[str, Address], machine: Machine) -> Placed:
    """What ``placement`` would have answered."""
    devices = tuple(given(one, names, machine) for one in told["devices"])
    cells = tuple(
        Cell(one["node"], cpus(one["cores"], one.get("sibling")), one["memory_mib"], 2 if one.get("sibling") else 1)
        for one in told["cells"]
    )
    count = {part: sum(one.part is part for one in devices) for part in Part}
    shape = Shape(
        told["name"], count[Part.GPU], vcpus=sum(len(cell.cpus) for cell in cells),
        memory_mib=sum(cell.memory_mib for cell in cells), page_mib=told.get("page_mib", 1024),
    )  # fmt: skip
    return Placed(shape, devices, cells, tuple(told.get("emulator", ())))


def given(told: Mapping[str, str], names: Mapping[str, Address], machine: Machine) -> Given:
    """One device: ``{gpu: gpu0}``, ``{vf: vf0_0, beside: gpu0}``."""
    part, name = next((Part(key), value) for key, value in told.items() if key != "beside")
    function = machine.tree.get(names[name])
    node = function.numa_node if function is not None else None
    beside = names[told["beside"]] if "beside" in told else None
    return Given(part, names[name], node if isinstance(node, int) else None, beside)


def cpus(cores: str, sibling: int | None) -> tuple[int, ...]:
    """``2-5`` with siblings 8 further: 2, 10, 3, 11 and so on."""
    first, _, last = cores.partition("-")
    numbers = range(int(first), int(last or first) + 1)
    return tuple(cpu for core in numbers for cpu in ((core, core + sibling) if sibling else (core,)))


def options(told: Mapping[str, Any], names: Mapping[str, Address]) -> Options:
    """The wishes; devices by their names."""
    values = dict(told)
    for name, kind in _RECORDS.items():
        if values.get(name) is not None:
            values[name] = kind(**values[name])
    for name, kind in (("topology", Topology), ("firmware", Firmware)):
        if values.get(name) is not None:
            values[name] = kind(values[name])
    for name in ("macs", "cliques"):
        values[name] = {names[device]: one for device, one in told.get(name, {}).items()}
    return replace(PLAIN, **values)


def without(machine: Machine, address: Address) -> Machine:
    """The machine without a function."""
    functions = {at: one for at, one in machine.tree.functions.items() if at != address}
    return replace(machine, tree=Tree(functions))
