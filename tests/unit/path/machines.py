"""Machines of rules about paths, built in memory: random ones, and the fixed hosts as the engine reads them."""

from __future__ import annotations

import functools
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import ABSENT, Unreadable
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host
from ansible_collections.vela.gpudirect.plugins.module_utils.path.facts import machine_of
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.address import Address
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.capabilities import Ats, Capabilities, Express, Words
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.config_space import ConfigSpace
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.machine import Atsr, Machine, Platform
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.tree import Bar, Function, Link, Tree
from hypothesis import strategies as st

from tests.fixtures.p2p_hosts import built

GONE = Unreadable("taken away by the test")
KINDS = {"gpu": (0x10DE, 0x20B2, 0x030200), "nic": (0x15B3, 0x101D, 0x020000), "bridge": (0x1B36, 0x000C, 0x060400)}


@functools.cache
def host(like: str) -> Machine:
    """A fixed host, as it is read from its files."""
    with tempfile.TemporaryDirectory() as folder:
        return machine_of(Host(str(built(like, {}, {}, []).write(Path(folder)))), like)


def named(machine: Machine, vendor: int) -> list[Function]:
    """The physical functions of a maker, by address."""
    return [one for one in machine.tree if one.vendor == vendor and not one.is_vf]


def changed(machine: Machine, address: Address, **fields: Any) -> Machine:
    """The machine with other fields of one function."""
    functions = dict(machine.tree.functions)
    functions[address] = replace(functions[address], **fields)
    return replace(machine, tree=replace(machine.tree, functions=functions))


numbers = st.sampled_from([0, 1, ABSENT, GONE])
links = st.builds(
    Link, st.sampled_from([25, 160, ABSENT, GONE]), st.sampled_from([160, GONE]), st.sampled_from([8, 16, GONE]),
    st.sampled_from([16, GONE]),
)  # fmt: skip
words = st.sampled_from([0x00, 0x1D, 0x1F, 0x5D, 0x5F])
acs = st.one_of(st.sampled_from([ABSENT, GONE]), st.builds(Words, st.sampled_from([0x00, 0x1F, 0x5F]), words))
express = st.one_of(
    st.just(GONE),
    st.builds(Express, st.just(0), st.sampled_from([512, 4096]), st.just(256), st.sampled_from([True, False, GONE])),
)
told = st.builds(Capabilities, express, acs, st.sampled_from([ABSENT, GONE, Ats(0, 0)]))
platforms = st.builds(
    Platform,
    arguments=st.sampled_from(["ro", "ro pci=noats", "pcie_acs_override=downstream", GONE]),
    cpu_vendor=st.sampled_from(["GenuineIntel", "AuthenticAMD", GONE]),
    architecture=st.sampled_from(["x86_64", "aarch64", GONE]),
    iommus=st.sampled_from([("dmar0",), (), ABSENT, GONE]),
    atsr=st.sampled_from([Atsr((0,)), Atsr(), ABSENT, GONE]),
    memory_encryption=st.sampled_from(["sme", "tdx", ABSENT, GONE]),
    unsafe_interrupts=st.sampled_from([True, False, ABSENT, GONE]),
    numa_nodes=st.sampled_from([(0,), (0, 1), GONE]),
    iommufd=st.sampled_from([True, False, ABSENT, GONE]),
)
bars = st.sampled_from([(), (Bar(0, 0x1000, 1 << 24, 0), Bar(1, 0x1000000, 1 << 36, 0)), (Bar(0, 0, 1 << 24, 0),)])


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Up to three host bridges, bridges below each other anywhere, GPUs and NICs below any of them."""
    roots = [f"pci0000:{0x20 * number:02x}" for number in range(draw(st.integers(1, 3)))]
    functions: dict[Address, Function] = {}
    bridges: list[tuple[Address | None, str]] = [(None, root) for root in roots]
    for number in range(draw(st.integers(2, 12))):
        kind = draw(st.sampled_from(["bridge", "bridge", "gpu", "nic"]))
        parent, root = draw(st.sampled_from(bridges))
        address = Address(0, number + 1, 0, 0)
        vendor, device, class_code = KINDS[kind]
        functions[address] = Function(
            address=address, vendor=vendor, device=device, class_code=class_code, subsystem_vendor=0, subsystem_device=0,
            revision=0, parent=parent, root_bus=root, numa_node=draw(numbers),
            iommu_group=draw(st.sampled_from([1, 2, 3, ABSENT, GONE])),
            driver=draw(st.sampled_from(["vfio-pci", "nvidia", ABSENT, GONE])), driver_override=ABSENT,
            link=draw(links), bars=draw(bars), config=ConfigSpace(), told=draw(told),
        )  # fmt: skip
        if kind == "bridge":
            bridges.append((address, root))
    return Machine(Tree(functions), draw(platforms), "random")
