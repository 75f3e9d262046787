"""How tests look at a machine they have built."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host
from ansible_collections.vela.gpudirect.plugins.module_utils.pci import sysfs
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.address import Address
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.tree import Function, Tree

from tests.fixtures.fake_pci import Machine


def read(machine: Machine) -> Tree:
    """The machine as the engine sees it."""
    return sysfs.read(Host(str(machine.folder)))


def at(tree: Tree, address: str) -> Function:
    """The function at an address."""
    return tree.functions[Address.parse(address)]


def built(folder: Path, *makers: Callable[[Machine], object], iommu: str = "identity") -> Tree:
    """The tree of a machine made by these steps."""
    machine = Machine(iommu)
    for make in makers:
        make(machine)
    return read(machine.write(folder))
