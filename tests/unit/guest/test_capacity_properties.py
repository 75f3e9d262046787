"""On every host: what is placed when the host is ready was not refused before, and what the inventory told in full is told at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import ABSENT
from ansible_collections.vela.gpudirect.plugins.module_utils.guest import wanted
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.capacity import hopeless
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.found import Current
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.placed import Placed, Shape
from ansible_collections.vela.gpudirect.plugins.module_utils.path.finding import Kind
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.machine import Machine, Platform
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.tree import Function, Sriov, Tree
from ansible_collections.vela.gpudirect.plugins.module_utils.placement import place, selection_of
from hypothesis import event, given
from hypothesis import strategies as st

from tests.fixtures.placement_hosts import GuestHost
from tests.unit.guest.drawn import hosts, shape_lists

DISTANCES = {"pxb": Kind.PXB, "node": Kind.NODE, "sys": Kind.SYS}


def fresh(host: GuestHost, kept: Sequence[Function], all_online: bool) -> Current:
    """The host before anything was done to it: no groups, no VFs but those of ports that are ``kept``, no pages."""
    stay = {one.address for one in kept}
    functions = {}
    for address, one in host.functions.items():
        if one.physfn is not None and one.physfn not in stay:
            continue
        driver = one.driver if one.is_bridge or isinstance(one.sriov, Sriov) else "nvidia"
        new = replace(one, iommu_group=ABSENT, driver=driver)
        if isinstance(one.sriov, Sriov) and address not in stay:
            new = replace(new, sriov=_empty(one))
        functions[address] = new
    platform = Platform(arguments="ro quiet", numa_nodes=tuple(one.number for one in host.nodes))
    nodes = tuple(replace(one, pages={size: 0 for size in one.pages}) for one in host.nodes)
    return Current(Machine(Tree(functions), platform, "host"), nodes, all_online=all_online, without="no libvirt")


def _empty(pf: Function) -> Sriov:
    """A PF without VFs, that tells where they would be."""
    assert isinstance(pf.sriov, Sriov)
    first = pf.sriov.vfs[0].routing_id - pf.address.routing_id if pf.sriov.vfs else ABSENT
    return replace(pf.sriov, enabled=0, vfs=(), offset=first, stride=1)


def options(
    host: GuestHost, shapes: Sequence[Shape], told: Sequence[Function], pages: bool, distance: str
) -> dict[str, Any]:
    """The inventory that makes the host what it will be, as far as it tells it."""
    found: dict[str, Any] = {
        "guest_shapes": [
            {
                **{"name": one.name, "gpus": one.gpus, "vfs_per_gpu": one.vfs_per_gpu, "vcpus": one.vcpus},
                **{"memory_gib": one.memory_mib // 1024, "nvswitches": one.nvswitches},
            }
            for one in shapes
        ],
        "sriov_ports": [
            {"select": {"address": str(one.address)}, "vfs": one.sriov.enabled}
            for one in told
            if isinstance(one.sriov, Sriov)
        ],
        "guest_max_distance": distance,
        "guest_partitions": {7: [str(one) for one in sorted(host.selection().gpus)[:2]]},
    }
    if pages:
        found["kernel_hugepages"] = [{"size": "1G", "nodes": {one.number: one.pages[1024] for one in host.nodes}}]
    return found


def later(
    host: GuestHost, desired: wanted.Desired, shapes: Sequence[Shape], existing: Sequence[Placed] = ()
) -> tuple[Any, ...]:
    """What placement says when the host is ready."""
    machine = host.machine()
    selection = replace(selection_of(machine, desired.paths), partitions=desired.guests.partitions)
    return place(machine, host.nodes, shapes, existing, selection, max_distance=desired.guests.max_distance)


def possible(shapes: Sequence[Shape]) -> list[Shape]:
    """As an inventory may ask for them."""
    return [one if one.gpus else replace(one, nvswitches="none") for one in shapes]


def names(answers: Sequence[Any]) -> set[str]:
    return {one.shape.name for one in answers if isinstance(one, Placed)}


def drawn(data: st.DataObject, host: GuestHost) -> tuple[list[Function], list[Function]]:
    """The ports that the inventory tells, and those whose VFs are there already."""
    ports = [one for one in host.functions.values() if isinstance(one.sriov, Sriov)]
    told = ports if data.draw(st.booleans()) else [one for one in ports if data.draw(st.booleans())]
    return told, [one for one in ports if data.draw(st.integers(0, 3)) == 0]


def without_threads(host: GuestHost) -> None:
    """The boot has switched second threads off."""
    host.nodes = [replace(one, cores=tuple(core[:1] for core in one.cores)) for one in host.nodes]


@given(hosts(), shape_lists().map(possible), st.data())
def test_what_is_placed_in_the_end_was_not_refused_before(
    host: GuestHost, shapes: list[Shape], data: st.DataObject
) -> None:
    told, kept = drawn(data, host)
    distance = data.draw(st.sampled_from(sorted(DISTANCES)))
    given_options = options(host, shapes, told, data.draw(st.booleans()), distance)
    current = fresh(host, kept, data.draw(st.booleans()))
    if data.draw(st.integers(0, 4)) == 0:
        given_options["kernel_args"] = ["nosmt"]
        without_threads(host)
    desired = wanted.parse(given_options)
    before: list[Any] = []
    if data.draw(st.booleans()):
        before = [one for one in later(host, desired, shapes[:1]) if isinstance(one, Placed)]
    waiting = [one.name for one in shapes if one.name not in names(before)]
    refused: Mapping[str, Any] = hopeless(desired, current, waiting, before)
    event(f"refused: {bool(refused)}")
    if names(later(host, desired, shapes, before)) == {one.name for one in shapes}:
        event("all are placed")
        assert not refused
    alone = {one.name for one in shapes if names(later(host, desired, [one]))}
    for name in refused:
        assert name in waiting
        assert all(problem.path.startswith("guest_shapes[") for problem in refused[name])
        # Alone it may have had room: then all together have not.
        assert name not in alone or len(names(later(host, desired, shapes, before))) < len(shapes)
    for shape in shapes:
        if shape.name in alone and len(shapes) == 1 and not before:
            assert not refused


@given(hosts(odd=False), shape_lists(("a",)).map(possible), st.sampled_from(sorted(DISTANCES)))
def test_a_guest_that_never_fits_is_refused_at_once_where_all_is_told(
    host: GuestHost, shapes: list[Shape], distance: str
) -> None:
    ports = [one for one in host.functions.values() if isinstance(one.sriov, Sriov)]
    desired = wanted.parse(options(host, shapes, ports, True, distance))
    (answer,) = later(host, desired, shapes)
    refused = hopeless(desired, fresh(host, [], True), ["a"], ())
    event(f"placed: {isinstance(answer, Placed)}")
    assert bool(refused) is not isinstance(answer, Placed)
    if refused:
        said = [str(one).partition(": ")[2] for one in refused["a"]]
        assert [one.partition("this host: ")[2] for one in said] == list(answer.reasons)
