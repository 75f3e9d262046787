"""Identity: the same device is known again, another one at its address is noticed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.identity import differences, identity
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.tree import Tree

from tests.fixtures import fake_machines
from tests.fixtures.fake_pci import Machine
from tests.unit.pci.machines import at, read

NIC, DRIVE = "0000:24:00.0", "0000:23:00.0"


@pytest.fixture
def rack(tmp_path: Path) -> Machine:
    return fake_machines.rack().write(tmp_path)


def known(tree: Tree, address: str) -> dict[str, Any]:
    kept = identity(at(tree, address), tree)
    assert json.loads(json.dumps(kept)) == kept
    return kept


def changed(rack: Machine, address: str, change: Callable[[], object]) -> list[str]:
    """What is different of the device at an address after something was done to the machine."""
    before = known(read(rack), address)
    change()
    tree = read(rack.write(rack.folder))  # type: ignore[arg-type]
    return differences(before, at(tree, address), tree)


def test_ids_serial_and_place_are_kept(rack: Machine) -> None:
    ids = {"vendor": "8086", "device": "10c9", "subsystem_vendor": "8086", "subsystem_device": "a03c"}
    assert known(read(rack), NIC) == {
        **ids,
        "serial": "52-54-00-ff-ff-85-66-a0",
        "port": "pci0000:20/00.0/00.0/01.0/00.0",
    }
    assert "serial" not in known(read(rack), "0000:25:00.0")


def test_a_vf_is_known_by_its_pf_and_its_number(rack: Machine) -> None:
    rack.add_vfs(rack[NIC], 3)
    kept = known(read(rack), "0000:24:10.4")
    assert (kept["device"], kept["serial"], kept["port"]) == (
        "10ca",
        "52-54-00-ff-ff-85-66-a0",
        "pci0000:20/00.0/00.0/01.0/00.0/vf2",
    )
    assert changed(rack, "0000:24:10.4", lambda: setattr(rack[NIC], "serial", "52-54-00-ff-ff-85-66-ff")) == [
        "its serial is 52-54-00-ff-ff-85-66-ff, recorded is 52-54-00-ff-ff-85-66-a0"
    ]


def test_nothing_that_a_run_changes_makes_another_device(rack: Machine) -> None:
    assert (
        changed(rack, NIC, lambda: (rack.add_vfs(rack[NIC], 4), rack.set_link(NIC, ("Unknown", "x", "0", "0")))) == []
    )
    assert changed(rack, NIC, lambda: (rack.bind(NIC, "vfio-pci"), rack.override(NIC, "vfio-pci"))) == []
    assert changed(rack, DRIVE, lambda: rack.bind(DRIVE, "vfio-pci")) == []  # its serial was told by its driver
    assert changed(rack, DRIVE, lambda: rack.bind(DRIVE, "nvme")) == []


def test_another_device_in_its_place_differs_in_words(rack: Machine) -> None:
    port = rack["0000:22:00.0"]

    def swap() -> None:
        rack.unplug(rack[DRIVE])
        rack.testdev(port)

    assert changed(rack, DRIVE, swap) == ["its device id is 0005, recorded is 0010"]


def test_an_equal_drive_in_its_place_differs_by_its_serial(rack: Machine) -> None:
    assert changed(rack, DRIVE, lambda: setattr(rack[DRIVE].disks[0], "serial", "other")) == [
        "its serial is other, recorded is gpu0"
    ]


def test_an_equal_card_that_got_the_address_of_another_differs_by_its_place(tmp_path: Path) -> None:
    machine = Machine()
    upstream = machine.upstream(machine.port(machine.root(0x10), "01.0"))
    ports = [machine.port(upstream, f"{slot:02x}.0") for slot in (1, 2)]
    for port in ports:
        machine.gpu(port)
    machine.write(tmp_path)
    assert known(read(machine), "0000:13:00.0")["port"] == "pci0000:10/01.0/00.0/01.0/00.0"
    assert known(read(machine), "0000:14:00.0")["port"] == "pci0000:10/01.0/00.0/02.0/00.0"
    assert changed(machine, "0000:13:00.0", lambda: machine.unplug(ports[0])) == [
        "it is plugged at pci0000:10/01.0/00.0/02.0/00.0, recorded is pci0000:10/01.0/00.0/01.0/00.0"
    ]


def test_a_card_whose_buses_were_renumbered_is_the_same_card(tmp_path: Path) -> None:
    machine = Machine()
    root = machine.root(0x10)
    gpu = machine.gpu(machine.port(root, "02.0"))
    tree = read(machine.write(tmp_path))
    before, address = known(tree, gpu.address), gpu.address
    machine.nvme(machine.port(root, "01.0"), "S1", "nvme0n1")
    tree = read(machine.write(tmp_path))
    assert (address, gpu.address) == ("0000:11:00.0", "0000:12:00.0")
    assert differences(before, at(tree, gpu.address), tree) == []
    assert differences(before, at(tree, address), tree) == [
        "its vendor id is 1b36, recorded is 10de",
        "its device id is 0010, recorded is 20b2",
        "its subsystem vendor id is 1af4, recorded is 10de",
        "its subsystem device id is 1100, recorded is 1463",
        "it is plugged at pci0000:10/01.0/00.0, recorded is pci0000:10/02.0/00.0",
    ]


def test_a_serial_that_cannot_be_read_any_more_is_not_taken_on_trust(rack: Machine) -> None:
    cause = "only 64 bytes of configuration space are readable; root is needed for more"
    assert changed(rack, NIC, lambda: setattr(rack[NIC], "readable", 64)) == [
        f"its serial cannot be read ({cause}), recorded is 52-54-00-ff-ff-85-66-a0"
    ]


def test_a_card_that_has_lost_its_serial_is_another_one(rack: Machine) -> None:
    assert changed(rack, NIC, lambda: setattr(rack[NIC], "serial", "")) == [
        "it has no serial, recorded is 52-54-00-ff-ff-85-66-a0"
    ]


def test_what_was_not_recorded_is_not_compared(rack: Machine) -> None:
    tree = read(rack)
    assert differences({}, at(tree, NIC), tree) == []
    assert differences({"vendor": "8086"}, at(tree, NIC), tree) == []


def test_a_place_that_cannot_be_read_is_not_taken_on_trust(rack: Machine) -> None:
    before = known(read(rack), NIC)
    for name in ("modalias", "vendor", "config"):
        rack.at(f"{rack.path(rack['0000:21:00.0'])}/{name}").unlink()
    tree = read(rack)
    assert "port" not in known(tree, NIC)
    assert differences(before, at(tree, NIC), tree) == [
        "it is plugged at pci0000:20/?/01.0/00.0, recorded is pci0000:20/00.0/00.0/01.0/00.0"
    ]
