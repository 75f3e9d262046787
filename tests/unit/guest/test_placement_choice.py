"""Why this GPU and not that one, this VF and not that one: each part of the policy where it alone decides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import ABSENT
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.placed import (
    Cell,
    Given,
    Part,
    Placed,
    Refused,
    Shape,
)
from ansible_collections.vela.gpudirect.plugins.module_utils.path.finding import Kind
from ansible_collections.vela.gpudirect.plugins.module_utils.placement import place

from tests.fixtures.placement_hosts import GuestHost, hgx, pcie, single, vela


def held(host: GuestHost, *names: str) -> Placed:
    """A guest that nobody names and that has these devices."""
    devices = tuple(Given(Part.GPU, host.named[name]) for name in names)
    return Placed(Shape("other", len(names)), devices, ())


def asked(gpus: int, vfs: int = 0, name: str = "a", nvswitches: str = "none") -> Shape:
    return Shape(name, gpus, vfs, nvswitches, 4, 4096)


def given(
    host: GuestHost, shape: Shape, *existing: Placed, parts: dict[str, list[str]] | None = None, **more: Any
) -> list[str]:
    """The names of what a guest gets; nothing: it is refused."""
    partitions = {key: tuple(host.named[one] for one in names) for key, names in (parts or {}).items()}
    found = place(host.machine(), host.nodes, [shape], existing, host.selection(partitions=partitions), **more)[0]
    names = {address: name for name, address in host.named.items()}
    return [names[one.address] for one in found.devices] if isinstance(found, Placed) else []


def nodes_of(*counts: int) -> GuestHost:
    """A node for each number, with so many GPUs, each below a switch of its own."""
    host = GuestHost()
    for node, count in enumerate(counts):
        for number in range(count):
            root = host.root(0x08 + 0x40 * node + 0x0C * number, node)
            root.gpu(root.switch(1)[0])
    host.cpus(len(counts), 16, 100)
    return host


def test_a_small_guest_takes_what_is_left_of_a_switch() -> None:
    assert given(vela(), asked(1), held(vela(), "gpu7")) == ["gpu6"]


def test_a_whole_node_is_not_begun_even_where_a_broken_one_has_more_left() -> None:
    host = nodes_of(2, 4)
    assert given(host, asked(1), held(host, "gpu2")) == ["gpu3"]


def test_the_node_with_the_least_left_is_used_up() -> None:
    host = hgx()
    assert given(host, asked(1), held(host, "gpu0", "gpu4", "gpu5")) == ["gpu6"]


def test_one_node_rather_than_the_rests_of_two() -> None:
    host = nodes_of(2, 2, 2)
    assert given(host, asked(2), held(host, "gpu0", "gpu2")) == ["gpu4", "gpu5"]


def test_one_switch_rather_than_the_rests_of_two() -> None:
    host = vela()
    assert given(host, asked(2), held(host, "gpu0", "gpu2")) == ["gpu4", "gpu5"]


def _switches(*counts: int) -> GuestHost:
    host = GuestHost()
    root = host.root(0x10, 0)
    for count in counts:
        for port in root.switch(count):
            root.gpu(port)
    host.cpus(1, 16, 100)
    return host


def test_the_switch_with_the_least_left_is_used_up() -> None:
    host = _switches(3, 3)
    assert given(host, asked(1), held(host, "gpu0", "gpu3", "gpu4")) == ["gpu5"]


def test_a_whole_switch_is_not_begun_even_where_a_broken_one_has_more_left() -> None:
    host = _switches(2, 4)
    assert given(host, asked(1), held(host, "gpu2")) == ["gpu3"]


def test_a_partition_that_could_be_given_whole_is_not_broken() -> None:
    assert given(hgx(), asked(1), parts={"1": ["gpu0", "gpu1"]}) == ["gpu2"]
    assert given(hgx(), asked(2), parts={"1": ["gpu0", "gpu2"]}) == ["gpu0", "gpu2"]


def test_a_gpu_whose_group_has_another_one_is_taken_last() -> None:
    host = pcie()
    host.edit("gpu0", shares="gpu1")
    assert given(host, asked(1)) == ["gpu2"]


def test_a_guest_with_a_partition_is_placed_before_larger_ones() -> None:
    host = hgx()
    selection = host.selection(partitions={"1": (host.named["gpu0"],)})
    shapes = [asked(7, name="big"), asked(1, name="part", nvswitches="1")]
    assert all(isinstance(one, Placed) for one in place(host.machine(), host.nodes, shapes, (), selection))


# VFs -------------------------------------------------------------------------------------


def _two_cards() -> GuestHost:
    """A GPU, a card with two ports (nic0, nic1) and a card with one (nic2), four VFs on each port."""
    host = GuestHost()
    root = host.root(0x10, 0)
    lower = root.switch(3)
    root.gpu(lower[0])
    root.nic(lower[1], 4, ports=2)
    root.nic(lower[2], 4)
    host.cpus(1, 8, 10)
    return host


def test_another_card_comes_before_a_port_that_is_less_used() -> None:
    host = _two_cards()
    assert given(host, asked(1, 2), held(host, "nic2vf0", "nic2vf1", "nic2vf2")) == ["gpu0", "nic0vf0", "nic2vf3"]


def test_a_card_that_others_use_less_comes_first() -> None:
    host = _two_cards()
    assert given(host, asked(1, 1), held(host, "nic1vf0", "nic1vf1", "nic2vf0")) == ["gpu0", "nic2vf1"]


def test_a_vf_whose_group_has_another_one_is_taken_last() -> None:
    host = single(3)
    host.edit("nic0vf0", shares="nic0vf1")
    assert given(host, asked(1, 1)) == ["gpu0", "nic0vf2"]


# CPUs ------------------------------------------------------------------------------------


def test_isolated_cores_are_never_the_first_for_qemu() -> None:
    host = hgx()
    host.nodes = [replace(node, isolated=tuple(cpu for core in node.cores[:20] for cpu in core)) for node in host.nodes]
    found = place(host.machine(), host.nodes, [asked(1)], (), host.selection())[0]
    assert isinstance(found, Placed)
    assert (found.cells[0].cpus, found.emulator) == ((1, 113, 2, 114), (20, 132))


# Who is there ----------------------------------------------------------------------------


def _there(host: GuestHost, shape: Shape, **more: Any) -> Placed:
    found = place(host.machine(), host.nodes, [shape], (), host.selection(**more))[0]
    assert isinstance(found, Placed)
    return found


def _again(host: GuestHost, old: Placed, shape: Shape | None = None, **more: Any) -> Any:
    selection = host.selection(partitions=more.pop("partitions", {}))
    return place(host.machine(), host.nodes, [shape or old.shape], [old], selection, **more)[0]


def test_a_guest_that_changes_keeps_its_cpus() -> None:
    host = hgx()
    old = replace(_there(host, asked(1, 1)), cells=(Cell(0, (30, 142, 31, 143), 4096, 2),))
    assert _again(host, old, replace(old.shape, memory_mib=8192)).cells == (Cell(0, (30, 142, 31, 143), 8192, 2),)


def test_a_guest_whose_vf_is_too_far_by_now_does_not_keep_it() -> None:
    host = vela(vfs=4, ports=1)
    old = _there(host, asked(3, 1))
    assert _again(host, old) == old
    assert isinstance(_again(host, old, max_distance=Kind.PXB), Refused)


def test_a_guest_whose_partition_is_another_by_now_gets_that() -> None:
    host = hgx()
    old = _there(host, asked(1, 1, nvswitches="1"), partitions={"1": (host.named["gpu0"],)})
    moved = _again(host, old, partitions={"1": (host.named["gpu1"],)})
    assert moved.devices[0].address == host.named["gpu1"]


def test_a_guest_with_all_nvswitches_gets_one_that_came() -> None:
    host = hgx()
    old = _there(host, asked(8, 1, nvswitches="all"))
    lacking = replace(old, devices=old.devices[:-1])
    assert _again(host, lacking).devices == old.devices


def test_a_record_that_does_not_add_up_is_not_kept() -> None:
    host = hgx()
    old = _there(host, asked(1, 1))
    for cells in ((), (replace(old.cells[0], memory_mib=2048),), (replace(old.cells[0], cpus=(1, 113)),)):
        assert _again(host, replace(old, cells=cells)).cells == old.cells


def test_a_device_that_its_driver_took_back_is_given_up() -> None:
    host = hgx()
    old = _there(host, asked(1, 1))
    host.edit("gpu0", driver="nvidia", numa_node=ABSENT)
    new = _again(host, old)
    assert f"Gives up {host.named['gpu0']}, which has driver nvidia." in new.notes
