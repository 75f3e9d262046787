"""What holds on every host: nothing is given twice, near VFs come first, order means nothing, and a lost device makes nothing better."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.vela.gpudirect.plugins.module_utils.guest.pairing import Pairing
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.placed import Part, Placed, Refused, Shape
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.resources import given_back
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.stock import Selection, Stock
from ansible_collections.vela.gpudirect.plugins.module_utils.path.finding import Kind
from ansible_collections.vela.gpudirect.plugins.module_utils.path.routes import Routes
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.address import Address
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.machine import Machine
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.tree import Tree
from ansible_collections.vela.gpudirect.plugins.module_utils.placement import place
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.fixtures.placement_hosts import GuestHost
from tests.unit.guest.drawn import hosts, shape_lists, shapes_named

LIMITS = st.sampled_from([Kind.PXB, Kind.NODE, Kind.SYS, Kind.SYS])


def partitions(host: GuestHost) -> dict[str, tuple[Address, ...]]:
    return {"7": tuple(sorted(host.selection().gpus)[:2])}


def answers(host: GuestHost, shapes: Sequence[Shape], existing: Sequence[Placed] = (), **more: Any) -> tuple[Any, ...]:
    selection = host.selection(partitions=partitions(host))
    return place(host.machine(), more.pop("nodes", host.nodes), shapes, existing, selection, **more)


def placed(found: Sequence[Any]) -> list[Placed]:
    return [one for one in found if isinstance(one, Placed)]


@given(hosts(), shape_lists(), LIMITS)
def test_nothing_is_given_twice_and_all_that_is_asked_is_given(
    host: GuestHost, shapes: list[Shape], limit: Kind
) -> None:
    found = answers(host, shapes, max_distance=limit)
    assert sorted(one.shape.name for one in found) == sorted(one.name for one in shapes)
    devices = [one.address for guest in placed(found) for one in guest.devices]
    assert len(devices) == len(set(devices))
    for guest in placed(found):
        gpus = [one.address for one in guest.devices if one.part is Part.GPU]
        assert len(gpus) == guest.shape.gpus
        beside = [one.beside for one in guest.devices if one.part is Part.VF]
        assert sorted(str(one) for one in beside) == sorted(str(gpu) for gpu in gpus * guest.shape.vfs_per_gpu)
        assert sum(cell.memory_mib for cell in guest.cells) == guest.shape.memory_mib
        assert sum(len(cell.cpus) for cell in guest.cells) == guest.shape.vcpus
    for guest in found:
        assert isinstance(guest, Placed) or (guest.reasons and all(one.endswith(".") for one in guest.reasons))


@given(hosts(), shape_lists())
def test_groups_go_to_one_guest_and_have_no_driver_of_the_host(host: GuestHost, shapes: list[Shape]) -> None:
    owners: dict[Any, str] = {}
    for guest in placed(answers(host, shapes)):
        for one in guest.devices:
            function = host.functions[one.address]
            assert function.driver == "vfio-pci"
            assert owners.setdefault(function.iommu_group, guest.shape.name) == guest.shape.name
            members = [other for other in host.functions.values() if other.iommu_group == function.iommu_group]
            assert all(
                other.is_bridge or other.driver in ("vfio-pci",) or not isinstance(other.driver, str)
                for other in members
            )


@given(hosts(), shape_lists())
def test_cpus_and_pages_are_of_their_node_and_nobody_elses(host: GuestHost, shapes: list[Shape]) -> None:
    found = placed(answers(host, shapes))
    cpus = [cpu for guest in found for cell in guest.cells for cpu in cell.cpus]
    cpus += [cpu for guest in found for cpu in guest.emulator]
    assert len(cpus) == len(set(cpus))
    assert not {cpu for node in host.nodes for cpu in node.cores[0]}.intersection(cpus)
    for node in host.nodes:
        cells = [cell for guest in found for cell in guest.cells if cell.node == node.number]
        assert sum(cell.memory_mib for cell in cells) <= node.pages[1024] * 1024
        for cell in cells:
            cores = [core for core in node.cores if set(core) & set(cell.cpus)]
            assert sorted(cpu for core in cores for cpu in core) == sorted(cell.cpus)
    for guest in found:
        nodes = {one.node for one in guest.devices if one.part is Part.GPU} - {None}
        assert not nodes or {cell.node for cell in guest.cells} == nodes


@given(hosts(odd=False), st.data())
def test_nvswitches_go_all_to_the_guest_with_all_gpus(host: GuestHost, data: st.DataObject) -> None:
    chosen = host.selection()
    assume(chosen.gpus)
    gpus = data.draw(st.sampled_from([len(chosen.gpus), len(chosen.gpus), 1]))
    found = answers(host, [Shape("a", gpus, 0, "all", 8, 8192)])
    for guest in placed(found):
        assert {one.address for one in guest.devices} == {*chosen.gpus, *chosen.nvswitches}
    for guest in found:
        assert isinstance(guest, Refused) or (gpus == len(chosen.gpus) and chosen.nvswitches)


@given(hosts(), shapes_named("a"))
def test_no_nearer_vf_is_left_free(host: GuestHost, shape: Shape) -> None:
    guests = placed(answers(host, [shape]))
    assume(guests and guests[0].shape.vfs_per_gpu)
    routes = Routes(host.machine())
    stock = Stock(host.machine(), host.selection())
    stock.take(guests[0].devices, "a")
    free = [vf for vfs in stock.nics.values() for vf in vfs if stock.is_free(vf, "nobody")]
    for one in guests[0].devices:
        if one.part is Part.VF and one.beside is not None:
            gpu = host.functions[one.beside]
            mine = routes.between(gpu, host.functions[one.address]).kind
            assert all(routes.between(gpu, vf).kind >= mine for vf in free)


@given(hosts(), shape_lists(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_means_nothing(host: GuestHost, shapes: list[Shape], chance: random.Random) -> None:
    before = placed(answers(host, shapes[:2]))
    expected = repr(answers(host, shapes, before))
    functions = list(host.functions.values())
    chosen = host.selection()
    lists = [
        list(chosen.gpus),
        list(chosen.vfs),
        list(chosen.nvswitches),
        list(host.nodes),
        list(shapes),
        list(before),
        functions,
    ]
    for one in lists:
        chance.shuffle(one)
    gpus, vfs, switches, nodes, shapes, before, functions = lists  # type: ignore[assignment]
    machine = replace(host.machine(), tree=Tree({one.address: one for one in functions}))
    selection = Selection(tuple(gpus), tuple(vfs), tuple(switches), partitions=partitions(host))
    assert repr(place(machine, nodes, shapes, before, selection)) == expected


@given(hosts(), shape_lists())
def test_placing_again_changes_nothing(host: GuestHost, shapes: list[Shape]) -> None:
    found = answers(host, shapes)
    again = answers(host, [one.shape for one in placed(found)], placed(found))
    assert again == tuple(placed(found))


@given(hosts(), shape_lists(("a", "b", "c")), shape_lists(("d", "e")))
def test_new_guests_take_nothing_from_those_that_are_there(
    host: GuestHost, before: list[Shape], after: list[Shape]
) -> None:
    there = placed(answers(host, before))
    both = answers(host, [*(one.shape for one in there), *after], there)
    assert {one.shape.name: one for one in both if one.shape.name in "abc"} == {one.shape.name: one for one in there}
    # The same when nobody names them any more, and their pages are not counted.
    left = given_back(host.nodes, [])
    for one in there:
        negative = [replace(cell, memory_mib=-cell.memory_mib) for cell in one.cells]
        left = given_back(left, [replace(one, cells=tuple(negative))])
    alone = answers(host, after, there, nodes=left)
    assert alone == tuple(one for one in both if one.shape.name in "de")


@given(hosts(), shape_lists(("a", "b", "c")), st.data())
def test_a_guest_that_changes_keeps_what_it_can(host: GuestHost, shapes: list[Shape], data: st.DataObject) -> None:
    there = placed(answers(host, shapes))
    assume(there)
    changed = data.draw(shapes_named(there[0].shape.name))
    found = answers(host, [changed, *(one.shape for one in there[1:])], there)
    others = {one.shape.name: one for one in found if one.shape.name != changed.name}
    assert others == {one.shape.name: one for one in there[1:]}
    new = next(one for one in found if one.shape.name == changed.name)
    if isinstance(new, Placed) and changed.nvswitches == "none":
        had, has = ({one.address for one in guest.devices if one.part is Part.GPU} for guest in (there[0], new))
        # A node may be full, or a GPU without a VF near enough; on these hosts that takes none away where devices suffice.
        assert len(had & has) == min(len(had), len(has)) or {cell.node for cell in new.cells} != {
            cell.node for cell in there[0].cells
        }


@given(hosts(), shape_lists())
def test_who_is_refused_hinders_nobody(host: GuestHost, shapes: list[Shape]) -> None:
    found = answers(host, shapes)
    refused = {one.shape.name for one in found if isinstance(one, Refused)}
    rest = [one for one in shapes if one.name not in refused]
    assert answers(host, rest) == tuple(placed(found))


def weight(host: GuestHost, machine: Machine, selection: Selection, shape: Shape) -> tuple[Any, ...] | None:
    """How far the VFs of a guest are that is alone on the host, farthest first; None: it is refused."""
    found = place(machine, host.nodes, [shape], (), selection)[0]
    if isinstance(found, Refused):
        return None
    pairing = Pairing(Stock(machine, selection), Kind.SYS, Routes(machine))
    tree = machine.tree.functions
    kinds = [
        pairing.kind(tree[one.beside], tree[one.address].physfn or one.address)
        for one in found.devices
        if one.part is Part.VF and one.beside is not None
    ]
    return tuple(kinds.count(kind) for kind in reversed(Kind))


@given(hosts(odd=False), shapes_named("a"), st.data())
def test_a_lost_device_makes_nothing_better(host: GuestHost, shape: Shape, data: st.DataObject) -> None:
    assume(shape.nvswitches == "none")
    chosen = host.selection()
    devices = sorted((*chosen.gpus, *chosen.vfs))
    assume(devices)
    lost = data.draw(st.sampled_from(devices))
    machine = host.machine()
    fewer = replace(
        machine, tree=Tree({one: machine.tree.functions[one] for one in machine.tree.functions if one != lost})
    )
    left = Selection(tuple(one for one in chosen.gpus if one != lost), tuple(one for one in chosen.vfs if one != lost))
    before, after = weight(host, machine, chosen, shape), weight(host, fewer, left, shape)
    assert after is None or (before is not None and before <= after)
