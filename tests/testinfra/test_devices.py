"""H08 to H13: the devices that guests get are there, alone in their groups, at full width, and with their driver."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.testinfra.conftest import Check
from tests.testinfra.pci import DEVICES, Function
from tests.testinfra.wishes import Wishes

UNKNOWN_LINK = ("", "0", "Unknown", "255")


@pytest.fixture
def declared(wishes: Wishes, check: Check) -> list[Function]:
    """Ports with VFs and devices with a driver of their own."""
    if not (wishes.ports or wishes.taken or wishes.missed or wishes.undecided):
        check.does_not_apply("sriov_ports and pci_driver_devices are empty")
    return wishes.devices


def test_every_declared_device_is_there(wishes: Wishes, declared: list[Function], check: Check) -> None:
    if wishes.missed:
        check.fails(wanted="as many devices as declared", found="; ".join(wishes.missed), evidence=DEVICES)
    if wishes.undecided:
        check.unknown(f"their drivers tell no serial number: {'; '.join(wishes.undecided)}")
    check.passes(", ".join(one.shown() for one in declared))


def test_h08_groups_are_separate(
    wishes: Wishes, declared: list[Function], groups: dict[str, list[str]], check: Check
) -> None:
    if not wishes.taken:
        check.does_not_apply("pci_driver_devices is empty")
    taken = {one.function.address for one in wishes.taken}
    named = taken | {one.address for one in declared}
    by_device = {address: number for number, members in groups.items() for address in members}
    wrong = [f"{address} has no group" for address in sorted(named) if address not in by_device]
    for number, members in sorted(groups.items(), key=lambda item: int(item[0])):
        # Bridges are part of a group and not of what a guest gets.
        ends = [one for one in members if not (one in wishes.functions and wishes.functions[one].is_bridge)]
        if taken.intersection(ends) and len(ends) > 1:
            wrong.append(f"group {number} holds {', '.join(sorted(ends))}")
    if wrong:
        check.fails(
            wanted="each device that a guest gets alone in its group",
            found="; ".join(wrong),
            evidence="/sys/kernel/iommu_groups/*/devices",
        )
    check.passes(f"{len(named)} devices in {len({by_device[address] for address in named})} groups")


def test_h09_links_are_as_wide_as_their_devices(wishes: Wishes, declared: list[Function], check: Check) -> None:
    ends = [*wishes.physical, *_uplinks(wishes)]
    linked = [one for one in ends if one.values.get("max_link_width", "") not in UNKNOWN_LINK]
    wrong = [said for one in linked for said in _degraded(one)]
    if wrong:
        check.fails(
            wanted="the width and speed that device and kernel say are possible",
            found="; ".join(wrong),
            evidence=f"{DEVICES}/*/current_link_* and max_link_*",
        )
    if not linked:
        check.does_not_apply("no declared device has a PCI Express link")
    check.passes(", ".join(f"{one.address} x{one.values.get('current_link_width')}" for one in linked))


def _uplinks(wishes: Wishes) -> list[Function]:
    """The upper ends of the switches above the declared devices: bridges that are neither next to a root nor a device."""
    found = {}
    for one in wishes.physical:
        # steps: root bus, root port, upstream port, downstream port, device; a switch more adds two.
        bridges = one.steps[1:-1]
        for address in bridges[1::2] if len(bridges) > 1 else ():
            if address in wishes.functions:
                found[address] = wishes.functions[address]
    return [found[address] for address in sorted(found)]


def _degraded(one: Function) -> list[str]:
    now, best = one.values.get("current_link_width", ""), one.values["max_link_width"]
    said = [] if now == best else [f"{one.shown()}: x{now} of x{best}"]
    # A GPU takes its link down to a lower speed when it idles.
    speeds = [one.values.get(f"{which}_link_speed", "") for which in ("current", "max")]
    if not one.is_display and speeds[0] != speeds[1]:
        said.append(f"{one.shown()}: {speeds[0]} of {speeds[1]}")
    return said


def test_h10_devices_are_on_a_known_node(
    wishes: Wishes, declared: list[Function], nodes_with_memory: list[int], check: Check
) -> None:
    wanted = {one.function.address: one.node for one in wishes.taken}
    several = len(nodes_with_memory) > 1
    wrong = [
        f"{one.shown()}: node {'unknown' if one.node is None else one.node}"
        for one in declared
        if (several and one.node not in nodes_with_memory) or wanted.get(one.address) not in (None, one.node)
    ]
    if wrong:
        nodes = ", ".join(map(str, nodes_with_memory))
        check.fails(
            wanted=f"each on its declared node, of {nodes}", found="; ".join(wrong), evidence=f"{DEVICES}/*/numa_node"
        )
    if not several:
        check.does_not_apply("the host has one NUMA node")
    check.passes(", ".join(f"{one.address} on {one.node}" for one in declared))


def test_h11_memory_of_devices_has_a_place(wishes: Wishes, declared: list[Function], check: Check) -> None:
    regions = [(one, region) for one in wishes.physical for region in one.regions if region[0] <= 12 and region[0] != 6]
    wrong = [f"{one.shown()}: region {index} of {size:#x} bytes" for one, (index, start, size) in regions if start == 0]
    if wrong:
        check.fails(wanted="every region assigned", found="; ".join(wrong), evidence=f"{DEVICES}/*/resource")
    if not regions:
        check.unknown("the kernel shows no region of any declared device")
    largest: dict[str, int] = {}
    for one, (_index, _start, size) in regions:
        largest[one.address] = max(size, largest.get(one.address, 0))
    check.passes(", ".join(f"{address} {size >> 10} KiB" for address, size in largest.items()))


def test_h12_devices_have_the_declared_driver(wishes: Wishes, check: Check) -> None:
    if not (wishes.taken or wishes.undecided):
        check.does_not_apply("pci_driver_devices is empty")
    wrong = [
        f"{one.function.shown()} of {one.path}: {one.function.driver or 'no driver'} in the place of {one.driver}"
        for one in wishes.taken
        if one.function.driver != one.driver
    ]
    if wrong:
        check.fails(wanted="the declared driver on each", found="; ".join(wrong), evidence=f"{DEVICES}/*/driver")
    if wishes.undecided:
        check.unknown(f"which devices are meant is not known: {'; '.join(wishes.undecided)}")
    drivers = sorted({one.driver for one in wishes.taken})
    check.passes(f"{len(wishes.taken)} devices on {' and '.join(drivers)}")


def test_h12_ports_keep_their_network_driver(wishes: Wishes, check: Check) -> None:
    if not wishes.ports:
        check.does_not_apply("sriov_ports is empty")
    wrong = [
        f"{port.pf.shown()}: {port.pf.driver or 'no driver'}, {len(port.pf.netdevs)} network devices"
        for port in wishes.ports
        if not port.pf.netdevs or "vfio" in port.pf.driver
    ]
    if wrong:
        check.fails(wanted="a network driver on each port", found="; ".join(wrong), evidence=f"{DEVICES}/*/driver")
    check.passes(", ".join(f"{port.pf.address} {port.pf.driver} {port.pf.netdevs[0]}" for port in wishes.ports))


def test_h13_barred_modules_are_not_loaded(wishes: Wishes, read: Callable[[str], str | None], check: Check) -> None:
    if not wishes.barred:
        check.does_not_apply("no module is barred")
    modules = read("/proc/modules")
    if modules is None:
        check.unknown("/proc/modules cannot be read")
    loaded = {line.split()[0] for line in modules.splitlines()}
    found = sorted(loaded.intersection(wishes.barred))
    if found:
        check.fails(wanted=f"none of {' '.join(wishes.barred)}", found=" ".join(found), evidence="/proc/modules")
    check.passes(f"none of {' '.join(wishes.barred)} among {len(loaded)} modules")
