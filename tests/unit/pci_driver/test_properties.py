"""What holds for every machine and every intent: refused without a trace, or done, kept through a boot, and undone."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.vela.gpudirect.plugins.module_utils import pci_driver
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import GpudirectError
from ansible_collections.vela.gpudirect.plugins.module_utils.early import files
from ansible_collections.vela.gpudirect.plugins.module_utils.early.files import Guard
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.fixtures import fake_udev
from tests.fixtures.driver_hosts import built, devices, look, run, settle
from tests.fixtures.fake_drivers import FakeDrivers
from tests.fixtures.fake_pci import Machine

# Machines --------------------------------------------------------------------------------

KINDS = ("nvme", "testdev", "gpu", "igb", "sound", "empty")
slots = st.sampled_from(KINDS)


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Some devices behind root ports and switches, some of them in groups with others, some in use."""
    machine = Machine()
    main = machine.root(0x00)
    machine.virtio_net(main, "enp0s3", "52:54:00:9a:fd:51", "03.0", readable=256)
    machine.virtio_blk(main, "vda", "04.0", 1)
    for number in range(draw(st.integers(1, 2))):
        root = machine.root(0x20 + 0x20 * number, draw(st.sampled_from([0, 0, 0x10000])))
        port = machine.port(root, "01.0")
        ports = machine.switch(port, 3) if draw(st.booleans()) else [port, machine.port(root, "02.0")]
        for one in ports:
            _plug(machine, one, draw(slots))
    ends = [one for one in machine.by_address() if not one.is_bridge and one.address > "0000:20"]
    if len(ends) > 1 and draw(st.booleans()):
        first, second = draw(st.permutations(ends))[:2]
        second.shares_with = first
    return machine


def _plug(machine: Machine, port: Any, kind: str) -> None:
    number = len(machine.devices)
    if kind == "nvme":
        machine.nvme(port, f"S{number}", f"nvme{number}n1")
    elif kind == "testdev":
        machine.testdev(port)
    elif kind == "gpu":
        machine.gpu(port)
    elif kind == "igb":
        machine.igb(port, f"ens{number}", f"52:54:00:85:66:{number:02x}")
    elif kind == "sound":
        machine.plug(port, "00.0", vendor=0x8086, device=0xA170, class_code=0x040300, own_driver="snd_hda_intel")


SELECTORS: dict[str, Mapping[str, str]] = {
    "drives": {"class": "0108"},
    "testdevs": {"device": "0005"},
    "gpus": {"vendor": "10de"},
    "nics": {"device": "10c9"},
    "sound": {"class": "0403"},
    "virtio": {"vendor": "1af4"},
}
DRIVERS = ("vfio-pci", "vfio-pci", "vfio-pci", "pci-stub")


@st.composite
def worlds(draw: st.DrawFn, most: int) -> tuple[Machine, list[list[dict[str, Any]]]]:
    """A machine, and intents that mostly ask for what it has."""
    machine = draw(machines())
    there = [
        name for name in SELECTORS if name != "virtio" and wanted(machine, [{"select": SELECTORS[name], "driver": ""}])
    ]
    asked = []
    for _number in range(draw(st.integers(1, most))):
        names = draw(st.lists(st.sampled_from(there), min_size=1, unique=True)) if there else []
        names += draw(st.sampled_from([[], [], [], [], ["virtio"], ["sound"]]))
        asked.append([{"name": name, "select": SELECTORS[name], "driver": draw(st.sampled_from(DRIVERS))} for name in dict.fromkeys(names)])  # fmt: skip
    return machine, asked


def wanted(machine: Machine, asked: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Drivers by address that these entries ask for, read from the machine and not by the engine."""
    found = {}
    for entry in asked:
        for one in machine.by_address():
            texts = {"vendor": f"{one.vendor:04x}", "device": f"{one.device:04x}", "class": f"{one.class_code:06x}"}
            if not one.is_bridge and all(texts[name].startswith(text) for name, text in entry["select"].items()):
                found[one.address] = str(entry["driver"])
    return found


def state(host: FakeDrivers) -> tuple[Any, ...]:
    return host.disk(), host.drivers(), host.overrides()


def without(drivers: Mapping[str, str], addresses: Mapping[str, str]) -> dict[str, str]:
    return {address: driver for address, driver in drivers.items() if address not in addresses}


@settings(max_examples=40)
@given(worlds(2), st.integers(0, 99), st.sampled_from(["debian_12", "rhel_9"]))
def test_any_intent_is_refused_without_a_trace_or_done_kept_and_undone(
    world: tuple[Machine, list[list[dict[str, Any]]]], seed: int, like: str
) -> None:
    machine, asked = world
    with tempfile.TemporaryDirectory() as folder:
        host = built(Path(folder) / "root", machine, like, seed=seed)
        host.vital = {"0000:00:03.0", "0000:00:04.0"}
        found = state(host)
        for given_entries in asked:
            before, intent = state(host), devices(*given_entries)
            try:
                predicted = look(intent, host)
            except GpudirectError:
                assert state(host) == before
                event("refused")
                continue
            event("done" if predicted.plan.changes else "nothing to do")
            report = run(intent, host)
            assert report.as_result()["plan"] == predicted.as_result()["plan"]
            assert report.left.empty
            goal = wanted(host.machine, given_entries)
            for _booted in range(2):
                with host.only_read():
                    assert look(intent, host).plan.empty
                drivers, overrides = host.drivers(), host.overrides()
                assert {address: drivers[address] for address in goal} == goal
                assert overrides == goal
                assert without(drivers, goal) == without(found[1], goal)
                host.boot()
                assert all(host.seen[address] == [driver] for address, driver in goal.items())
        assert host.lost == []
        settle({}, host)
        assert state(host) == found
        assert not host.owned()


@settings(max_examples=20)
@given(worlds(1), st.integers(0, 99))
def test_devices_that_wait_for_the_iommu_are_taken_by_its_boot_and_no_others(
    world: tuple[Machine, list[list[dict[str, Any]]]], seed: int
) -> None:
    """The rules are written while nothing can be bound yet; what the host needs must not be in them."""
    machine, (asked,) = world
    machine.iommu = ""
    with tempfile.TemporaryDirectory() as folder:
        host = built(Path(folder) / "root", machine, seed=seed)
        found = state(host)
        intent = {**devices(*asked), "kernel_iommu": "passthrough"}
        try:
            run(intent, host)
        except GpudirectError:
            assert state(host) == found
        else:
            goal = wanted(host.machine, asked)
            assert host.at_boot is not None
            host.at_boot[0].iommu = host.machine.iommu = "identity"
            host.boot()
            assert {address: host.drivers()[address] for address in goal} == goal
            assert without(host.drivers(), goal) == without(found[1], goal)
        settle({}, host)
        assert state(host) == found


@settings(max_examples=15)
@given(worlds(1), st.randoms(use_true_random=False))
def test_the_order_of_entries_does_not_matter(world: tuple[Machine, list[list[dict[str, Any]]]], dice: Any) -> None:
    machine, (asked,) = world
    other = [*asked]
    dice.shuffle(other)
    with tempfile.TemporaryDirectory() as folder:
        host = built(Path(folder) / "root", machine)
        results = []
        for number, given_entries in enumerate((asked, other)):
            twin = host.clone(Path(folder) / str(number))
            try:
                run(devices(*given_entries), twin)
            except GpudirectError as error:
                results.append(("refused", len(error.problems), state(twin)))
                continue
            results.append(("done", 0, ({path: entry for path, entry in twin.disk().items() if "/var/lib" not in path}, *state(twin)[1:])))  # fmt: skip
        assert results[0] == results[1]


# Texts -----------------------------------------------------------------------------------

addresses = st.builds(
    lambda domain, bus, device, function: f"{domain:04x}:{bus:02x}:{device:02x}.{function}",
    st.sampled_from([0, 1, 0x10000]), st.integers(0, 255), st.integers(0, 31), st.integers(0, 7),
)  # fmt: skip
ids = st.integers(0, 0xFFFF)
guards = st.builds(
    lambda address, above, numbers, driver: Guard(address, ("pci0000:20", *above, address), *numbers, driver),
    addresses, st.lists(addresses, max_size=3), st.tuples(ids, ids, ids, ids), st.sampled_from(["vfio-pci", "mlx5_vfio_pci"]),
)  # fmt: skip


@given(st.lists(guards, max_size=4, unique_by=lambda guard: guard.address), st.randoms(use_true_random=False))
def test_rules_are_understood_and_their_order_is_theirs(found: list[Guard], dice: Any) -> None:
    text = files.rules_text(found)
    dice.shuffle(found)
    assert files.rules_text(found) == text
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == 2 * len(found)
    for line in lines:
        keys = [key for key, _inner, _operator, _value in fake_udev.tokens(line)]
        assert keys[:2] == ["ACTION", "SUBSYSTEM"]
        assert len(line) < 8192


nonsense = st.dictionaries(st.text(max_size=4), st.integers(), max_size=2)
values = st.none() | st.text(max_size=4) | st.integers() | st.lists(st.none() | st.integers() | nonsense, max_size=3)


@given(values, st.sampled_from(["pci_driver_devices", "pci_driver_blacklist"]))
def test_whatever_an_inventory_holds_is_an_error_with_a_path(value: Any, name: str) -> None:
    try:
        pci_driver.parse({name: value})
    except GpudirectError as error:
        problems = error.problems
    else:
        problems = ()
    assert all(problem.path.startswith(name) for problem in problems)
