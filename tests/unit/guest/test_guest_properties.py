"""What holds of every guest, whatever the host: on random trees of bridges, and of the guests that are golden files."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import replace

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import IntentError
from ansible_collections.vela.gpudirect.plugins.module_utils.guest import device_map, domain_xml, nccl_xml
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.branches import Lanes, Leaf, Switch
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.buses import Root, layout
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.model import Guest, model_of
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.options import Processor, Topology
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.placed import Cell, Given, Part, Placed, Shape
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.xml_output import tag, text_of
from ansible_collections.vela.gpudirect.plugins.module_utils.path.routes import Routes
from ansible_collections.vela.gpudirect.plugins.module_utils.pci import nccl, xml_input
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.address import Address
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.machine import Machine
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.guest.guests import PLAIN
from tests.unit.guest.seen import seen
from tests.unit.guest.test_guest_cases import GOOD, guest_of
from tests.unit.path.machines import machines

CELLS = (Cell(0, (2, 3), 1024), Cell(1, (4, 5), 1024))
TOLD = replace(PLAIN, processor=Processor("GenuineIntel", 6, 143))


def placed_on(machine: Machine) -> Placed:
    """A guest that gets everything that is no bridge."""
    devices = []
    for one in machine.tree:
        if not one.is_bridge:
            node = one.numa_node if isinstance(one.numa_node, int) else None
            devices.append(Given(Part.GPU if one.vendor == 0x10DE else Part.VF, one.address, node))
    return Placed(Shape("random", 0), tuple(devices), CELLS)


def told_switches(machine: Machine, address: Address) -> set[Address]:
    """Upper ends of switches above a function, by the definition: every second bridge from the root."""
    routes = Routes(machine)
    chain = routes.above(machine.tree.functions[address])[::-1]
    return set(chain[1::2])


def check(guest: Guest) -> None:
    """All that is true of any guest with switches."""
    text = domain_xml.render(guest)
    found, root = seen(text), ET.fromstring(text)
    told = {str(one.host): str(one.guest) for one in guest.devices}
    assert found.devices == told, "firmware sees other addresses than the model"
    assert len(set(told.values())) == len(told)
    assert len({one.guest.bus for one in guest.devices}) == len(told), "one device on each bus"
    assert len(set(found.buses)) == len(found.buses)
    assert max(found.buses) <= 255
    controllers = root.findall("devices/controller[@type='pci']")
    indexes = [int(one.get("index", "")) for one in controllers]
    assert indexes == list(range(len(indexes)))
    chassis = [one.get("chassis") for one in root.findall("devices/controller/target[@chassis]")]
    assert len(set(chassis)) == len(chassis)
    places = [tuple(sorted(one.attrib.items())) for one in root.findall("devices/*/address[@type='pci']")]
    assert max(Counter(places).values()) == 1, "two things in one slot"
    for one in controllers[1:]:
        address = one.find("address")
        assert address is not None
        assert int(address.get("bus", ""), 16) < int(one.get("index", ""))
    plan = device_map.plain(guest)
    known = {one["guest"] for one in [*plan["devices"], *plan["switches"]]}
    topology = nccl.read(xml_input.parse(nccl_xml.render(guest), "nccl"))
    assert {str(one) for one in topology.machine.tree.functions} <= known
    for one in guest.devices:
        if one.part is not Part.NVSWITCH:
            function = topology.machine.tree.functions[one.guest]
            assert function.numa_node == one.node
    odd = [
        one
        for one in topology.oddities
        if "has no PCI device" not in one and not one.startswith(("net:", "gpu:", "pci "))
    ]
    assert odd == []
    if guest.options.topology is not Topology.FLAT:
        for one in guest.devices:
            assert found.nodes[found.root(str(one.host))] == one.node
    for one in plan["switches"]:
        if not one["made_up"]:
            assert one["guest"] in found.bridges.values()


@given(machines())
def test_any_machine(machine: Machine) -> None:
    placed = placed_on(machine)
    guest = model_of(machine, placed, TOLD)
    check(guest)
    found = seen(domain_xml.render(guest))
    for one in guest.devices:
        for other in guest.devices:
            if one.host < other.host:
                shared = told_switches(machine, one.host) & told_switches(machine, other.host)
                in_guest = set(found.uppers(str(one.host))) & set(found.uppers(str(other.host)))
                assert bool(shared) == bool(in_guest), (one.host, other.host)


@given(machines(), st.sampled_from([Topology.ROOT_PORTS, Topology.FLAT]))
def test_any_machine_without_switches(machine: Machine, topology: Topology) -> None:
    guest = model_of(machine, placed_on(machine), replace(TOLD, topology=topology))
    check(guest)
    assert not guest.layout.switches
    with_switches = model_of(machine, placed_on(machine), TOLD)
    assert set(guest.switches) == set(with_switches.switches), "NCCL is told the same switches"


@settings(max_examples=25)
@given(machines(), st.randoms(use_true_random=False))
def test_order_does_not_matter(machine: Machine, random: object) -> None:
    placed = placed_on(machine)
    shuffled = list(placed.devices)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    functions = dict(reversed(list(machine.tree.functions.items())))
    other = replace(machine, tree=replace(machine.tree, functions=functions))
    one = model_of(machine, placed, PLAIN)
    two = model_of(other, replace(placed, devices=tuple(shuffled)), PLAIN)
    for made in (domain_xml.render, nccl_xml.render, device_map.text):
        assert made(one) == made(two)


@pytest.mark.parametrize("folder", GOOD, ids=lambda folder: folder.name)
def test_golden_guests(folder: object) -> None:
    check(guest_of(folder))  # type: ignore[arg-type]


def leaf(number: int) -> Leaf:
    return Leaf(Address(0, number >> 5, number & 0x1F, 0), Lanes())


@pytest.mark.parametrize(
    ("roots", "topology", "words"),
    [
        ([Root(0, tuple(map(leaf, range(33))))], Topology.ROOT_PORTS, "beside each other"),
        ([Root(0, (leaf(number),)) for number in range(27)], Topology.SWITCHES, "expander buses"),
        ([Root(0, tuple(map(leaf, range(27))))], Topology.FLAT, "topology: switches"),
        (
            [Root(0, tuple(map(leaf, range(32 * at, 32 * at + 32)))) for at in range(8)],
            Topology.SWITCHES,
            "PCI buses",
        ),
        (
            [Root(0, (Switch(Address(0, 9, 0, 0), Lanes(), tuple(map(leaf, range(33)))),))],
            Topology.SWITCHES,
            "beside each other",
        ),
    ],
)
def test_limits(roots: list[Root], topology: Topology, words: str) -> None:
    with pytest.raises(IntentError, match=words):
        layout("guest.g", roots, ["disk", "network", "agent", "rng"], topology)


def test_the_fullest_tree_fits() -> None:
    roots = [Root(0, tuple(map(leaf, range(32 * at, 32 * at + 32)))) for at in range(7)]
    found = layout("guest.g", roots, ["agent"], Topology.SWITCHES)
    buses = [one.bus for one in found.controllers]
    assert len(set(buses)) == len(buses) == 7 * 33 + 1
    assert max(buses) <= 255


@given(
    st.text(
        st.characters(min_codepoint=32, blacklist_categories=("Cs",)).filter(lambda sign: sign not in "\ufffe\uffff")
    )
)
def test_any_text_is_read_back(text: str) -> None:
    written = text_of(tag("one", {"name": text}, tag("two", None, text) if text else None))
    root = ET.fromstring(written)
    assert root.get("name") == text
    assert not text or root.findtext("two") == text


def test_a_map_is_json() -> None:
    guest = guest_of(GOOD[0])
    assert json.loads(device_map.text(guest)) == device_map.plain(guest)
