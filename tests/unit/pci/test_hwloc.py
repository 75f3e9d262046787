from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import ABSENT, Unreadable
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import UnreadableState
from ansible_collections.vela.gpudirect.plugins.module_utils.pci import hwloc, lstopo, xml_input
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.address import Address
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.machine import Machine
from hypothesis import given, settings

from tests.fixtures import corpus, fake_exports, fake_pci
from tests.fixtures.fake_machines import large, rack
from tests.unit.pci.machines import at, read
from tests.unit.pci.random_machines import machines

LSTOPO = shutil.which("lstopo-no-graphics") or shutil.which("lstopo")
POWER9 = "hwloc/power9-4v100-cx5-multidomain.v2.xml"


def of(text: str | bytes, name: str = "m") -> Machine:
    return hwloc.read(xml_input.parse(text, name), name)


def in_corpus(name: str) -> Machine:
    return of(corpus.file(name).read_bytes(), name)


def places(machine: Machine) -> dict[str, tuple[object, ...]]:
    return {str(one.address): (one.parent, one.root_bus, one.numa_node) for one in machine.tree}


def exported(path: str, *words: str) -> str:
    """What hwloc itself makes of an input."""
    if LSTOPO is None:
        pytest.skip("lstopo is not on this machine")
    return subprocess.run(
        [LSTOPO, *words, "--of", "xml"], env={"HWLOC_XMLFILE": path, "HWLOC_THISSYSTEM": "0", "PATH": "/usr/bin"},
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip


# Machines made up ------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_a_made_up_machine(tmp_path: Path, version: str) -> None:
    fake = large(vfs=0).write(tmp_path)
    found = of(fake_exports.hwloc(fake, version))
    mine = read(fake)
    assert [one.address for one in found.tree] == [one.address for one in mine]
    for one in found.tree:
        other = mine.functions[one.address]
        for name in ("vendor", "device", "class_code", "subsystem_vendor", "subsystem_device", "revision", "parent"):
            assert getattr(one, name) == getattr(other, name)
        assert (one.root_bus, one.numa_node, one.rdma, one.disks) == (
            other.root_bus, other.numa_node, other.rdma, other.disks,
        )  # fmt: skip
        assert [(net.name, net.mac) for net in one.netdevs] == [(net.name, net.mac) for net in other.netdevs]
        assert (one.secondary_bus, one.subordinate_bus) == (other.secondary_bus, other.subordinate_bus)
    assert found.platform.numa_nodes == (0, 1)


@settings(max_examples=25)
@given(machines())
def test_the_versions_of_one_machine_are_one_machine(machine: fake_pci.Machine) -> None:
    one, two, three = (of(fake_exports.hwloc(machine, version)) for version in ("1", "2", "3"))
    assert one == two
    assert places(two) == places(three)
    expected = {
        device.address: (
            Address.parse(device.above.address) if isinstance(device.above, fake_pci.Device) else None,
            next(root.name for root in machine.roots if root.domain == int(device.address.split(":")[0], 16)
                 and _is_below(device, root)),
            next(root.numa if root.numa >= 0 else ABSENT for root in machine.roots if _is_below(device, root)),
        )
        for device in machine.by_address()
        if device.pf is None
    }  # fmt: skip
    assert {address: place for address, place in places(two).items() if address in expected} == expected


def _is_below(device: fake_pci.Device, root: fake_pci.Root) -> bool:
    above = device.above
    while isinstance(above, fake_pci.Device):
        above = above.above
    return above is root


def test_what_an_export_does_not_tell_is_unreadable() -> None:
    (machine,) = [of(fake_exports.hwloc(rack()))]
    one = at(machine.tree, "0000:23:00.0")
    for value in (
        one.driver,
        one.iommu_group,
        one.sriov,
        one.capabilities.acs,
        one.capabilities.express,
        one.link.speed,
    ):
        assert isinstance(value, Unreadable)
    assert one.sriov == Unreadable(hwloc.ASK)
    assert "15.75 GB/s" in one.link.speed.cause
    assert set(one.unread) == {"bars", "physfn", "boot_vga", "class_code"}
    assert "no ACS and no ATS words" in machine.missing[-1]
    assert not machine.partial  # the chipset is in it, so it was made with --whole-io


def test_an_export_without_bridges_says_so() -> None:
    text = (
        '<topology version="2.0"><object type="Machine" os_index="0"><object type="NUMANode" os_index="0"/>'
        '<object type="PCIDev" pci_busid="0000:01:00.0" pci_type="0302 [10de:2330] [10de:16c1] a1"/></object></topology>'
    )
    machine = of(text)
    assert machine.partial
    assert "no NIC in this export: run lstopo with --whole-io" in machine.missing
    assert any(one.startswith("no bridges above some functions") for one in machine.missing)
    assert of("<topology/>").missing == (
        "no PCI function in this export: run lstopo with --whole-io, on the machine itself",
    )


def test_memory_of_a_gpu_is_no_numa_node_of_a_device() -> None:
    gpu = '<object type="PCIDev" pci_busid="0000:01:00.0" pci_type="0302 [10de:1db1] [10de:1212] a1"/>'
    nodes = '<object type="NUMANode" os_index="8" cpuset="0xff"/><object type="NUMANode" os_index="255" cpuset="0x0"/>'
    machine = of(f'<topology version="2.0"><object type="Package" os_index="0">{nodes}{gpu}</object></topology>')
    assert at(machine.tree, "0000:01:00.0").numa_node == 8


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ('pci_busid="1:0" pci_type="0302 [10de:1db1] [10de:1212] a1"', "m:1: pci_busid is not a PCI address"),
        ('pci_busid="0000:01:00.0" pci_type="GPU"', "m:1: pci_type is not understood (found 'GPU', wanted class"),
    ],
)
def test_an_object_that_is_not_understood(values: str, says: str) -> None:
    with pytest.raises(UnreadableState) as error:
        of(f'<topology><object type="PCIDev" {values}/></topology>')
    assert says in str(error.value)


# The corpus ------------------------------------------------------------------------------


def test_dgx2_has_no_nic_in_its_export() -> None:
    machine = in_corpus("hwloc/dgx2-16gpu.v3.xml")
    assert sum(one.vendor == 0x10DE and one.class_code >> 8 == 0x0302 for one in machine.tree) == 16
    assert machine.missing[0] == "no NIC in this export: run lstopo with --whole-io"
    assert machine.partial
    gpus = [one for one in machine.tree if one.class_code >> 8 == 0x0302]
    assert {one.numa_node for one in gpus} == {0, 1}
    first, second = gpus[:2]
    shared = {one.address for one in machine.tree.above(first)} & {one.address for one in machine.tree.above(second)}
    assert Address.parse("0000:32:00.0") in shared


def test_power9_has_seven_domains() -> None:
    machine = in_corpus(POWER9)
    assert {one.address.domain for one in machine.tree} == {0, 2, 3, 4, 5, 0x33, 0x35}
    assert machine.platform.numa_nodes == (0, 8)
    assert [(str(one.address), one.rdma, one.numa_node) for one in machine.tree if one.rdma] == [
        ("0003:01:00.0", ("mlx5_0",), 0),
        ("0003:01:00.1", ("mlx5_1",), 0),
        ("0033:01:00.0", ("mlx5_2",), 8),
        ("0033:01:00.1", ("mlx5_3",), 8),
    ]
    gpus = [(str(one.address), one.root_bus, one.numa_node) for one in machine.tree if one.class_code >> 8 == 0x0302]
    assert gpus == [
        ("0004:04:00.0", "pci0004:00", 0),
        ("0004:05:00.0", "pci0004:00", 0),
        ("0035:03:00.0", "pci0035:00", 8),
        ("0035:04:00.0", "pci0035:00", 8),
    ]
    other = at(machine.tree, "0005:01:00.0")
    assert (other.rdma, [net.name for net in other.netdevs]) == ((), ["enP5p1s0f0"])


def test_power9_exported_by_hwloc_as_version_1_is_the_same_machine() -> None:
    two = in_corpus(POWER9)
    one = of(exported(str(corpus.file(POWER9)), "--whole-io", "--export-xml-flags", "1"), POWER9)
    assert one == two


def test_text_of_a_machine_with_two_switches() -> None:
    text = corpus.file("hwloc/plx9797-8accel-2ib.lstopo.txt").read_text(encoding="utf-8")
    machine = lstopo.read(text, "plx")
    assert (machine.source, machine.platform.numa_nodes) == ("lstopo text", (0, 1))
    below = {"0000:18:00.0": set(), "0000:3b:00.0": set()}
    for one in machine.tree:
        for bridge in machine.tree.above(one):
            if str(bridge.address) in below and not one.is_bridge:
                below[str(bridge.address)].add(f"{one.address} {one.class_code >> 8:04x}")
    assert below["0000:18:00.0"] == {
        "0000:1a:00.0 0207",
        *(f"0000:{bus}:00.0 0b40" for bus in ("1b", "1c", "1d", "1e")),
    }
    assert below["0000:3b:00.0"] == {
        "0000:3e:00.0 0207",
        *(f"0000:{bus}:00.0 0b40" for bus in ("3d", "3f", "40", "41")),
    }
    assert {one.numa_node for one in machine.tree} == {0}
    assert [net.mac for net in at(machine.tree, "0000:60:00.1").netdevs] == ["02:00:5e:00:00:02"]


def test_the_long_text_of_hwloc_is_its_xml() -> None:
    if LSTOPO is None:
        pytest.skip("lstopo is not on this machine")
    path = str(corpus.file(POWER9))
    text = subprocess.run(
        [LSTOPO, "--whole-io", "--of", "console", "-v"], env={"HWLOC_XMLFILE": path, "PATH": "/usr/bin"},
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    assert lstopo.looks_like(text)
    found, xml = lstopo.read(text, "p9"), in_corpus(POWER9)
    assert places(found) == places(xml)
    assert [(one.ids, one.rdma, one.disks) for one in found.tree] == [
        (one.ids, one.rdma, one.disks) for one in xml.tree
    ]


def test_the_short_text_of_lstopo_has_no_addresses() -> None:
    text = "Machine (255GB total)\n  Package L#0\n    HostBridge\n      PCIBridge\n        PCI 01:00.0 (NVMExp)\n"
    assert lstopo.looks_like(text)
    with pytest.raises(UnreadableState, match=r"^s:4: has no address and no ids of its PCI functions, .*--whole-io -v"):
        lstopo.read(text, "s")


# hwloc itself ----------------------------------------------------------------------------


@pytest.mark.parametrize("make", [rack, lambda: large(2, 2, 0)])
def test_hwloc_reads_a_captured_sysfs_as_we_do(tmp_path: Path, make) -> None:
    """Its linux back-end needs processors in the tree; its PCI back-end reads the same folders as ours."""
    if LSTOPO is None:
        pytest.skip("lstopo is not on this machine")
    fake = make().write(tmp_path)
    for number in range(2):
        cpu = tmp_path / f"sys/devices/system/cpu/cpu{number}/topology"
        cpu.mkdir(parents=True)
        for name, value in (("core_cpus", 1 << number), ("package_cpus", 1 << number), ("core_id", number)):
            (cpu / name).write_text(f"{value:x}\n")
        (cpu / "physical_package_id").write_text(f"{number}\n")
        node = tmp_path / f"sys/devices/system/node/node{number}"
        node.mkdir(parents=True)
        (node / "cpumap").write_text(f"{1 << number:x}\n")
        (node / "meminfo").write_text(f"Node {number} MemTotal: 1048576 kB\n")
    for name in ("online", "possible", "present"):
        (tmp_path / f"sys/devices/system/cpu/{name}").write_text("0-1\n")
    (tmp_path / "sys/devices/system/node/online").write_text("0-1\n")
    for device in fake.by_address():
        if device.numa >= 0:
            fake.at(f"{fake.path(device)}/local_cpus").write_text(f"{1 << device.numa:x}\n")
    (tmp_path / "proc").mkdir()
    done = subprocess.run(
        [LSTOPO, "--whole-io", "--of", "xml"],
        env={"HWLOC_FSROOT": str(tmp_path), "HWLOC_COMPONENTS": "linux,linuxio,stop", "HWLOC_THISSYSTEM": "0", "PATH": "/usr/bin"},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    theirs, ours = of(done.stdout), read(fake)
    if not theirs.tree.functions:
        pytest.skip("this hwloc reads no PCI devices of a captured tree")
    for one in theirs.tree:
        other = ours.functions[one.address]
        assert (one.ids, one.class_code >> 8, one.parent) == (other.ids, other.class_code >> 8, other.parent)
        assert one.root_bus == other.root_bus
        if isinstance(other.numa_node, int):
            assert one.numa_node == other.numa_node
    assert [one.address for one in theirs.tree] == [one.address for one in ours]
