"""On every host: what is placed when the host is ready was not refused before, and what the inventory told in full is told at once."""

from __future__ import annotations

from collections.abc import Sequence
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
from hypothesis import assume, event, given, settings
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


def as_asked(shapes: Sequence[Shape]) -> list[dict[str, Any]]:
    """Guests as an inventory tells them."""
    return [
        {
            **{"name": one.name, "gpus": one.gpus, "vfs_per_gpu": one.vfs_per_gpu, "vcpus": one.vcpus},
            **{"memory_gib": one.memory_mib // 1024, "nvswitches": one.nvswitches},
        }
        for one in shapes
    ]


def options(
    host: GuestHost, shapes: Sequence[Shape], told: Sequence[Function], pages: bool, distance: str
) -> dict[str, Any]:
    """The inventory that makes the host what it will be, as far as it tells it."""
    found: dict[str, Any] = {
        "guest_shapes": as_asked(shapes),
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
    return [one if one.gpus else replace(one, nvswitches="none", vfs_per_gpu=min(1, one.vfs_per_gpu)) for one in shapes]


def without_threads(host: GuestHost) -> None:
    """The boot has switched second threads off."""
    host.nodes = [replace(one, cores=tuple(core[:1] for core in one.cores)) for one in host.nodes]


@st.composite
def stories(draw: st.DrawFn) -> tuple[GuestHost, Current, dict[str, Any], list[Shape]]:
    """A host in the end, the same before, what the inventory tells of the way, and guests that somebody may ask for."""
    host = draw(hosts(odd=draw(st.booleans())))
    ports = [one for one in host.functions.values() if isinstance(one.sriov, Sriov)]
    told = ports if draw(st.booleans()) else [one for one in ports if draw(st.booleans())]
    current = fresh(
        host, [one for one in ports if not draw(st.integers(0, 3))], all_online=bool(draw(st.integers(0, 3)))
    )
    inventory = options(host, (), told, draw(st.booleans()), draw(st.sampled_from(sorted(DISTANCES))))
    if not draw(st.integers(0, 2)):
        inventory["kernel_args"] = ["nosmt"]
        without_threads(host)
    return host, current, inventory, possible(draw(shape_lists()))


def desired_of(inventory: dict[str, Any], shapes: Sequence[Shape]) -> wanted.Desired:
    return wanted.parse({**inventory, "guest_shapes": as_asked(shapes)})


def placed(answers: Sequence[Any]) -> list[Placed]:
    return [one for one in answers if isinstance(one, Placed)]


@settings(max_examples=400)  # a wrong refusal would be rare
@given(stories(), st.data())
def test_what_is_placed_in_the_end_was_not_refused_before(story: Any, data: st.DataObject) -> None:
    """Guests that do not fit are taken out of the inventory: what is left is placed, be it new or there before."""
    host, current, inventory, shapes = story
    before = placed(later(host, desired_of(inventory, shapes), shapes[: data.draw(st.integers(0, 2))]))
    fitting = [one.shape for one in placed(later(host, desired_of(inventory, shapes), shapes, before))]
    assume(fitting)
    event(f"{len(fitting)} guests, {len(before)} of them there before")
    waiting = [one.name for one in fitting if one.name not in {old.shape.name for old in before}]
    assert not hopeless(desired_of(inventory, fitting), current, waiting, before)


@given(stories())
def test_a_guest_is_refused_that_is_not_placed_alone_or_of_which_all_are_not_placed(story: Any) -> None:
    host, current, inventory, shapes = story
    desired = desired_of(inventory, shapes)
    refused = hopeless(desired, current, [one.name for one in shapes], ())
    event(f"refused: {bool(refused)}")
    all_fit = len(placed(later(host, desired, shapes))) == len(shapes)
    for number, shape in enumerate(shapes):
        assert {one.path for one in refused.get(shape.name, ())} <= {f"guest_shapes[{number}]"}
        assert shape.name not in refused or not all_fit
        if len(hopeless(desired_of(inventory, [shape]), current, [shape.name], ())):
            assert not placed(later(host, desired, [shape]))


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
