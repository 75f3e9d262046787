"""Machines with reports about them, as the tests of pictures draw them. What the policy would say is written by hand."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import ABSENT
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host
from ansible_collections.vela.gpudirect.plugins.module_utils.path.finding import Finding, Kind, Pair, Report, Verdict
from ansible_collections.vela.gpudirect.plugins.module_utils.pci import sysfs
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.address import Address
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.machine import Machine
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.tree import Function, Tree

from tests.fixtures import fake_machines, fake_pci

MODE = "passthrough_vm"


def machine_of(fake: fake_pci.Machine, name: str = "") -> Machine:
    """A fake machine as a reader gives it."""
    with tempfile.TemporaryDirectory() as folder:
        return Machine(sysfs.read(Host(str(fake.write(Path(folder)).folder))), name=name)


def report_of(machine: Machine, gpus: Iterable[Address] = (), nics: Iterable[Address] = (), **more: object) -> Report:
    """A report with the pairs of these GPUs and NICs, each found in the tree, and the nearest NICs."""
    tree = machine.tree
    found = tuple(_pair(tree, tree.functions[gpu], tree.functions[nic]) for gpu in sorted(gpus) for nic in sorted(nics))
    best = {
        gpu: tuple(
            one.nic for one in found if one.gpu == gpu and one.kind == min(p.kind for p in found if p.gpu == gpu)
        )
        for gpu in sorted(gpus)
    }
    values = {"gpus": tuple(sorted(gpus)), "nics": tuple(sorted(nics)), "pairs": found, "best": best, **more}
    return Report(machine.name, MODE, **values)  # type: ignore[arg-type]


def _pair(tree: Tree, gpu: Function, nic: Function) -> Pair:
    above, beside = list(tree.above(gpu)), list(tree.above(nic))
    common = tuple(one for one in above if one in beside)
    up = tuple(one.address for one in above if one not in common)
    down = tuple(one.address for one in reversed(beside) if one not in common)
    if common:
        kind = Kind.PIX if len(up) <= 1 and len(down) <= 1 else Kind.PXB
    elif gpu.root_bus == nic.root_bus:
        kind = Kind.PHB
    else:
        kind = Kind.NODE if gpu.numa_node == nic.numa_node else Kind.SYS
    return Pair(gpu.address, nic.address, kind, up, tuple(one.address for one in common), down)


def of_class(machine: Machine, *classes: int) -> list[Address]:
    """The functions of these classes, without VFs and bridges."""
    return [one.address for one in machine.tree if one.class_code >> 8 in classes and not one.is_vf]


def judged(machine: Machine, *findings: Finding, **more: object) -> Report:
    """A report about the GPUs and NICs of a machine: display controllers, and Ethernet and InfiniBand."""
    gpus = of_class(machine, 0x0302)
    fine = Finding("acs_direct_translated", Verdict.OK, "0x5d", "0x5d", pair=(), path=tuple(gpus[:1]))
    report = report_of(machine, gpus, of_class(machine, 0x0200, 0x0207), findings=(fine, *findings), **more)
    bad = {hop for one in findings if one.verdict is Verdict.FAIL for hop in one.path}
    pairs = tuple(
        replace(one, verdict=Verdict.FAIL) if bad & {one.gpu, *one.up, *one.common, *one.down, one.nic} else one
        for one in report.pairs
    )
    return replace(report, pairs=pairs)


def fail(rule: str, *path: Address, verdict: Verdict = Verdict.FAIL, **more: str) -> Finding:
    """A finding at these functions."""
    values = {"found": "0x1d", "wanted": "0x5d", "why": "Translated requests go up to the root port.", **more}
    return Finding(rule, verdict, remedy=values.pop("remedy", "Set it with pci_path."), path=path, **values)


def rack() -> tuple[Machine, Report]:
    """A host of the rack; drives stand in for GPUs."""
    machine = machine_of(fake_machines.rack(), "rack-1-host-3")
    gpus = [one.address for one in machine.tree if one.class_code >> 8 == 0x0108]
    nics = [one.address for one in machine.tree if one.device == 0x10C9]
    return machine, report_of(machine, gpus, nics, findings=(fail("acs_direct_translated", *gpus, verdict=Verdict.OK),))


def large(vfs: int = 16) -> tuple[Machine, Report]:
    """Eight GPUs and eight NICs where all is well."""
    machine = _large(vfs)
    return machine, judged(machine)


@cache
def _large(vfs: int) -> Machine:
    return machine_of(fake_machines.large(vfs=vfs), "h100-rack07-u21")


def broken(vfs: int = 16) -> tuple[Machine, Report]:
    """The same with three hops that fail, each for a reason of its own, and one of each other verdict."""
    machine, _ = large(vfs)
    tree = machine.tree
    gpus, nics = of_class(machine, 0x0302), of_class(machine, 0x0200)
    above = [list(tree.above(tree.functions[nic])) for nic in nics]
    findings = [
        fail("acs_direct_translated", above[2][0].address),
        fail("nic_ats_present", nics[5], found="no ATS capability", wanted="ATS capability", why="The NIC cannot ask for translations.",
             remedy="Set ATS_ENABLED=1 with nic_firmware and boot."),
        fail("groups_differ", gpus[6], nics[6], found="group 31 of both", wanted="two groups", why="A guest would get both or none.",
             remedy="Set pci=config_acs for the ports of this switch."),
        fail("max_read_request", nics[1], verdict=Verdict.WARN, found="512", wanted="4096", why="Reads are slow."),
        fail("acs_source_validation", above[3][2].address, verdict=Verdict.UNKNOWN, found="configuration space cut at 64 bytes"),
        fail("read_only_driver", gpus[4], verdict=Verdict.DEFERRED, found="nvidia", wanted="vfio-pci", why="pci_driver sets it."),
        Finding("iommu_passthrough", Verdict.OK, "iommu=nopt", "iommu=pt", relaxed="Lab machine: DMA remapping is under test until May."),
    ]  # fmt: skip
    report = judged(machine, *findings, missing=("The input does not say whether the kernel is locked down.",))
    return machine, report


def cascaded() -> tuple[Machine, Report]:
    """Switches three deep: one GPU and NIC below one switch, one NIC two switches away."""
    fake = fake_pci.Machine()
    root = fake.root(0x20, numa=0)
    first = fake.switch(fake.port(root, "01.0"), 3)
    second = fake.switch(first[0], 2)
    third = fake.switch(second[0], 4)
    fake.gpu(third[0])
    fake.gpu(third[1])
    fake.connectx(third[2], "ens1np0", "94:6d:ae:00:00:01")
    fake.gpu(first[1])
    fake.connectx(second[1], "ens2np0", "94:6d:ae:00:00:02")
    fake.nvme(first[2], "S1", "nvme0n1")
    machine = machine_of(fake, "cascade")
    nic = of_class(machine, 0x0200)[0]
    return machine, judged(
        machine, fail("acs_direct_translated", next(machine.tree.above(machine.tree.functions[nic])).address)
    )


def cloud() -> tuple[Machine, Report]:
    """A guest of a cloud: each device alone in a 32-bit domain of its own, no NUMA node told."""
    fake = fake_pci.Machine("")
    for number in range(4):
        fake.gpu(fake.root(0, domain=0x10000 + number))  # type: ignore[arg-type]
        fake.connectx(fake.root(0, domain=0xFFFF0000 + number), f"ib{number}", f"94:6d:ae:00:00:0{number}")  # type: ignore[arg-type]
    machine = machine_of(fake, "cloud-guest")
    return machine, judged(machine)


def on_root_ports() -> tuple[Machine, Report]:
    """Two sockets, devices directly on root ports, one GPU without a NIC on its node."""
    fake = fake_pci.Machine()
    a, b, c = fake.root(0x00, numa=0), fake.root(0x40, numa=0), fake.root(0x80, numa=1)
    fake.gpu(fake.port(a, "01.0"))
    fake.connectx(fake.port(a, "02.0"), "ens1", "94:6d:ae:00:00:01")
    fake.gpu(fake.port(b, "01.0"))
    fake.gpu(fake.port(c, "01.0"))
    machine = machine_of(fake, "two-sockets")
    return machine, judged(machine, fail("nearest_is_far", *of_class(machine, 0x0302)[1:], verdict=Verdict.WARN))


def four_nodes() -> tuple[Machine, Report]:
    """Four NUMA nodes, a GPU on each, NICs on the first only, and two NVSwitches."""
    fake = fake_pci.Machine()
    for node in range(4):
        root = fake.root(0x20 * node, numa=node)
        fake.gpu(fake.port(root, "01.0"))
        if not node:
            fake.connectx(fake.port(root, "02.0"), "ens1", "94:6d:ae:00:00:01")
        if node > 1:
            fake.plug(fake.port(root, "03.0"), "00.0", vendor=0x10DE, device=0x22A3, class_code=0x068000)
    machine = machine_of(fake, "four-nodes")
    return machine, judged(machine, fail("nearest_is_far", of_class(machine, 0x0302)[3], verdict=Verdict.WARN))


def empty() -> tuple[Machine, Report]:
    """Nothing at all."""
    return Machine(Tree()), Report("", "")


def thousand() -> tuple[Machine, Report]:
    """More than a thousand functions, most of them VFs and drives."""
    machine = replace(_large(16), name="storage")
    functions = dict(machine.tree.functions)
    for one in machine.tree:
        for domain in range(1, 7):
            kind = one.class_code if one.is_bridge else 0x010802
            address, parent, physfn = (_in(domain, where) for where in (one.address, one.parent, one.physfn))
            assert address is not None
            there = {
                "address": address,
                "parent": parent,
                "physfn": physfn,
                "root_bus": f"pci{domain:04x}{one.root_bus[7:]}",
            }
            functions[address] = replace(one, class_code=kind, sriov=ABSENT, **there)  # type: ignore[arg-type]
    machine = replace(machine, tree=Tree(functions))
    return machine, judged(machine)


def _in(domain: int, address: Address | None) -> Address | None:
    return None if address is None else replace(address, domain=domain)


def circle() -> tuple[Machine, Report]:
    """Odd data: bridges that are each other's parent, one that is its own, and one whose parent is not there."""
    machine, _ = large(0)
    functions = dict(machine.tree.functions)
    addresses = sorted(functions)
    for one, other in ((0, 2), (5, 5)):
        functions[addresses[one]] = replace(functions[addresses[one]], parent=addresses[other])
    functions[addresses[10]] = replace(functions[addresses[10]], parent=Address(9, 9, 9, 1))
    machine = replace(machine, tree=Tree(functions))
    return machine, judged(machine)


def hostile() -> tuple[Machine, Report]:
    """Texts that would break out of what they are put into."""
    bad = "<script>alert('1')</script> & \"x\" ]]> \x00\x1b[31m\u202e\ud800 \uffff"
    machine, report = broken(0)
    functions = {
        address: replace(one, driver=bad, root_bus=f"{bad}{one.root_bus}")
        for address, one in machine.tree.functions.items()
    }
    machine = replace(machine, tree=Tree(functions, {}, {Address(7, 0, 0, 0): bad}), missing=(bad,))
    findings = [
        replace(one, rule=f"{one.rule}{bad}", found=bad, wanted=bad, why=bad, remedy=bad) for one in report.findings
    ]
    findings[0] = replace(findings[0], relaxed=bad)
    return machine, replace(report, name=bad * 4, mode=bad, findings=tuple(findings), missing=(bad,))


def long_names() -> tuple[Machine, Report]:
    """Long words everywhere."""
    machine, report = broken(2)
    findings = tuple(replace(one, rule=f"{one.rule}_{'very_long' * 9}", why="w" * 700) for one in report.findings)
    return machine, replace(report, name="a-host-with-a-long-name." * 12, findings=findings)


ALL: dict[str, Callable[[], tuple[Machine, Report]]] = {
    "rack": rack, "large": large, "broken": broken, "cascaded": cascaded, "cloud": cloud, "root_ports": on_root_ports, "four_nodes": four_nodes,
    "empty": empty, "thousand": thousand, "circle": circle, "hostile": hostile, "long_names": long_names,
}  # fmt: skip
