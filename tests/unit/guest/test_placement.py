"""What a golden host does not show well: names, libvirt's domains, what cannot be read, ports in turn, sizes, time."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import ABSENT, Unreadable
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.placed import HostNode, Part, Placed, Refused, Shape
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.stock import selection_of
from ansible_collections.vela.gpudirect.plugins.module_utils.path.finding import Kind
from ansible_collections.vela.gpudirect.plugins.module_utils.path.intent import PathIntent
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.address import Address
from ansible_collections.vela.gpudirect.plugins.module_utils.placement import place

from tests.fixtures.placement_hosts import GuestHost, hgx, single, vela

SMALL = Shape("a", 1, 1, "none", 2, 1024)


def answers(host: GuestHost, *shapes: Shape, **more: Any) -> tuple[Any, ...]:
    return place(
        host.machine(), more.pop("nodes", host.nodes), shapes, more.pop("existing", ()), host.selection(), **more
    )


def reasons(host: GuestHost, *shapes: Shape, **more: Any) -> str:
    (found,) = answers(host, *shapes, **more)
    assert isinstance(found, Refused), found
    return "\n".join(found.reasons)


def test_two_guests_of_one_name_are_both_refused_and_others_are_not() -> None:
    found = answers(hgx(), SMALL, replace(SMALL, gpus=2), replace(SMALL, name="b"))
    assert [(one.shape.name, isinstance(one, Placed)) for one in found] == [("a", False), ("a", False), ("b", True)]
    assert found[0].reasons == ("a: is the name of 2 shapes. Give each guest a name of its own.",)


def test_guests_of_one_size_are_placed_in_the_order_of_their_numbers() -> None:
    """Of ten for eight GPUs the first eight, and not g0, g1 and g10; whatever the order in which they are asked for."""
    shapes = [replace(SMALL, name=f"g{number}") for number in (*range(9, -1, -1), 10)]
    found = answers(hgx(), *shapes)
    assert [one.shape.name for one in found] == [f"g{number}" for number in range(11)]
    assert [isinstance(one, Placed) for one in found] == [True] * 8 + [False] * 3
    (last,) = answers(hgx(), replace(SMALL, name="g10"))
    kept = [one for one in answers(hgx(), *shapes, existing=[last]) if isinstance(one, Placed)]
    assert [one.shape.name for one in kept] == [*(f"g{number}" for number in range(7)), "g10"]


def test_a_wrong_number_of_cpus_hides_no_other_reason() -> None:
    said = reasons(hgx(), replace(SMALL, vcpus=999, memory_mib=9000 * 1024))
    assert "has 999 vCPUs, and cores of this host have 2 threads" in said
    assert "has too few CPUs on the NUMA nodes of its GPUs" in said
    assert "memory does not fit on node 0" in said
    wide = replace(SMALL, gpus=8, vcpus=181, memory_mib=8 * 1024)  # more than a node has, and not more than both
    assert reasons(hgx(), wide).splitlines() == [
        "a: has 181 vCPUs, and cores of this host have 2 threads. Give it whole cores: 180 or 182."
    ]


def test_a_guest_without_gpus_is_told_that_one_node_has_to_do() -> None:
    said = reasons(hgx(), replace(SMALL, gpus=0, vcpus=181, memory_mib=9000 * 1024))
    assert "has 181 vCPUs, and cores" in said
    assert "has no GPUs, so it has to fit on one NUMA node, and fits on none (found node 0: " in said
    assert "CPUs in whole free cores and " in said
    assert "its GPUs" not in said


def test_libvirt_cannot_name_a_domain_of_32_bits() -> None:
    host = GuestHost()
    root = host.root(0x10, 0, domain=0x10000)
    root.gpu(root.port())
    host.cpus(1, 4, 10)
    fact = f"{host.named['gpu0']} is in PCI domain 10000, and libvirt cannot name domains above ffff"
    assert fact in reasons(host, replace(SMALL, vfs_per_gpu=0))


def test_what_cannot_be_read_is_not_given() -> None:
    for name, value, words in (
        ("iommu_group", Unreadable("no"), "has an IOMMU group that cannot be read"),
        ("iommu_group", ABSENT, "is in no IOMMU group"),
        ("driver", Unreadable("no"), "has a driver that cannot be read"),
        ("driver", ABSENT, "has no driver"),
    ):
        host = single()
        host.edit("gpu0", **{name: value})
        assert words in reasons(host, SMALL)


def test_a_vf_is_of_the_least_used_port_and_of_another_card_first() -> None:
    host = GuestHost()
    root = host.root(0x10, 0)
    lower = root.switch(4)
    root.gpu(lower[0])
    root.gpu(lower[1])
    root.nic(lower[2], 4, ports=2)
    root.nic(lower[3], 4)
    host.cpus(1, 8, 10)
    (found,) = answers(host, replace(SMALL, gpus=2, vfs_per_gpu=3))
    names = {address: name for name, address in host.named.items()}
    by_gpu = {
        names[one.address]: sorted(names[vf.address] for vf in found.devices if vf.beside == one.address)
        for one in found.devices
        if one.part is Part.GPU
    }
    ports = {gpu: [vf.partition("vf")[0] for vf in vfs] for gpu, vfs in by_gpu.items()}
    assert ports == dict.fromkeys(("gpu0", "gpu1"), ["nic0", "nic1", "nic2"])


def test_isolated_cores_are_for_vcpus_and_not_for_qemu() -> None:
    host = hgx()
    nodes = [replace(node, isolated=tuple(cpu for core in node.cores[40:] for cpu in core)) for node in host.nodes]
    (found,) = answers(host, SMALL, nodes=nodes)
    assert (found.cells[0].cpus, found.emulator) == ((40, 152), (1, 113))


def test_no_core_left_for_qemu_is_said() -> None:
    host = single()
    (found,) = answers(host, replace(SMALL, vcpus=7))
    assert found.emulator == ()
    assert "No core of its NUMA nodes is left for QEMU's own threads." in found.notes


def test_memory_of_a_page_for_each_node() -> None:
    assert "has less memory than a page of 1024 MiB on each node of its GPUs (0, 1)" in reasons(
        hgx(), replace(SMALL, gpus=8, vcpus=4)
    )
    assert "which are no whole pages of 1024 MiB" in reasons(hgx(), replace(SMALL, memory_mib=1500))


def test_a_guest_that_is_refused_keeps_what_it_had() -> None:
    host = hgx()
    (old,) = answers(host, replace(SMALL, gpus=4))
    grown = replace(old.shape, gpus=9)
    found = answers(host, grown, Shape("b", 5, 1, "none", 10, 5120), existing=[old])
    assert [type(one) for one in found] == [Refused, Refused]
    assert "(0000:1b:00.0 is with guest a" in found[1].reasons[0]


def test_a_changed_guest_keeps_its_vfs_where_they_are_near_enough() -> None:
    host = vela(vfs=4)
    before = answers(host, Shape("x", 1, 1, "none", 2, 1024), Shape("y", 1, 1, "none", 2, 1024))
    y = next(one for one in before if one.shape.name == "y")
    (found,) = answers(host, replace(y.shape, vfs_per_gpu=2), existing=[y])
    assert {one.address for one in y.devices} < {one.address for one in found.devices}


def test_the_default_selection_takes_gpus_vfs_and_nvswitches() -> None:
    host = vela()
    found, mine = selection_of(host.machine(), PathIntent()), host.selection()
    assert (found.gpus, found.nvswitches) == (mine.gpus, mine.nvswitches)
    assert sorted(found.vfs) == sorted(mine.vfs)


def test_a_gpu_of_no_known_node_has_its_memory_on_the_fullest_one() -> None:
    host = hgx()
    host.edit("gpu0", numa_node=ABSENT)
    nodes = [HostNode(0, host.nodes[0].cores, {1024: 5}), HostNode(1, host.nodes[1].cores, {1024: 50})]
    selection = replace(host.selection(), gpus=(host.named["gpu0"],))
    (found,) = place(host.machine(), nodes, [SMALL], (), selection)
    assert isinstance(found, Placed)
    assert [cell.node for cell in found.cells] == [1]
    assert found.devices[0].node is None
    assert "The host does not tell the NUMA node" in found.notes[0]


def test_a_distance_that_is_not_known_is_taken_only_where_any_is() -> None:
    host = hgx()
    host.edit("gpu0", numa_node=ABSENT)
    selection = replace(
        host.selection(),
        gpus=(host.named["gpu0"],),
        vfs=(host.named["nic1vf0"],),
        partitions={"1": (Address(0, 1, 0, 0),)},
    )
    (found,) = place(host.machine(), host.nodes, [SMALL], (), selection)
    assert isinstance(found, Placed)
    assert "at a distance that is not known" in found.notes[0]
    (found,) = place(host.machine(), host.nodes, [SMALL], (), selection, max_distance=Kind.NODE)
    assert isinstance(found, Refused)


def test_a_full_host_takes_milliseconds() -> None:
    host = hgx(vfs=16)
    machine, selection = host.machine(), host.selection()
    shapes = [Shape(f"s{number}", 1, 1, "none", 10, 102400) for number in range(8)]
    best = 1.0
    for _try in range(3):
        start = time.process_time()
        place(machine, host.nodes, shapes, (), selection)
        best = min(best, time.process_time() - start)
    assert best < 0.1  # about 0.01
