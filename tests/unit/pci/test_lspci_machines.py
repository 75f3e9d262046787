"""The text of a machine tells the same as its sysfs, and pieces of that text tell nothing else."""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import ABSENT, Unreadable
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import GpudirectError
from ansible_collections.vela.gpudirect.plugins.module_utils.pci import lspci
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.capabilities import Ats, Express, Words
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.machine import Machine as Read
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.tree import Function, Sriov, Tree
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures import fake_lspci, fake_machines
from tests.fixtures.fake_pci import Machine
from tests.unit.pci import machines as fakes
from tests.unit.pci.random_machines import machines


def facts(one: Function) -> Iterator[tuple[str, object]]:
    """What both readers can tell of a function, by name."""
    told = one.capabilities
    for name in ("vendor", "device", "revision"):
        yield name, Unreadable("") if name in one.unread else getattr(one, name)
    yield "class", one.class_code if "class_code" not in one.unread else Unreadable("")
    subsystem = (one.subsystem_vendor, one.subsystem_device)
    yield "subsystem", Unreadable("") if "subsystem" in one.unread else subsystem
    yield "position", Unreadable("") if "parent" in one.unread or not one.root_bus else (one.parent, one.root_bus)
    yield "buses", (one.secondary_bus, one.subordinate_bus) if one.secondary_bus is not None else Unreadable("")
    yield "physfn", Unreadable("") if "physfn" in one.unread else one.physfn
    for name in ("numa_node", "iommu_group", "driver"):
        yield name, getattr(one, name)
    for name in ("speed", "speed_max", "width", "width_max"):
        yield name, getattr(one.link, name)
    for name in ("port_type", "max_read_request", "max_payload", "relaxed_ordering"):
        yield name, getattr(told.express, name) if isinstance(told.express, Express) else told.express
    yield "acs", told.acs
    ats = told.ats
    yield "ats", (ats.capability & 0x1F, ats.control & 0x801F) if isinstance(ats, Ats) else ats
    vfs = one.sriov
    values = (
        (vfs.register, vfs.enabled, vfs.offset, vfs.stride, vfs.vf_device, vfs.vfs) if isinstance(vfs, Sriov) else vfs
    )
    yield "sriov", values
    if not one.disks:
        yield "serial", one.serial
    bars = [(bar.index, bar.start, bar.size) for bar in one.bars if bar.index < 6]
    yield "bars", Unreadable("") if "bars" in one.unread else bars


def compare(read: Tree, known: Tree, unknown: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    """What was read is what is known; what was not read is only what may be missing."""
    for one in read:
        other = known.functions[one.address]
        if unknown > ALWAYS and other.physfn is not None and other.physfn.bus != one.address.bus:
            continue  # fake machines keep no buses free for VFs, so it may look as if it were below another bridge
        right = dict(facts(other))
        for name, value in facts(one):
            if name not in right:
                assert name == "serial"  # the drive's own, which its driver tells
            elif isinstance(value, Unreadable):
                assert name in unknown or isinstance(right[name], Unreadable), (one.address, name, value)
            elif not isinstance(right[name], Unreadable):
                assert value == right[name], (one.address, name)


ALWAYS = {"numa_node", "iommu_group", "driver", "position"}  # may be unknown for want of a line


def written(machine: Machine, folder: str) -> Tree:
    for device in machine.devices:
        device.readable = 4096
    return fakes.read(machine.write(Path(folder)))


@given(machines())
def test_text_tells_what_sysfs_tells(machine: Machine) -> None:
    with tempfile.TemporaryDirectory() as folder:
        known = written(machine, folder)
        text = fake_lspci.text(machine)
        if not machine.devices:
            with pytest.raises(GpudirectError, match="is not the output of lspci"):
                lspci.read(text)
            return
        read = lspci.read(text)
        assert list(read.tree.functions) == list(known.functions)
        compare(read.tree, known, ALWAYS)
        compare(lspci.read(text.replace("\n", "\r\n")).tree, read.tree, ALWAYS)
        plain = lspci.read(fake_lspci.text(machine, numbers=False))
        compare(plain.tree, known, ALWAYS)


@given(machines(), st.sampled_from([0, 3]), st.sampled_from([64, 256, 4096]))
def test_bytes_tell_what_sysfs_tells(machine: Machine, verbose: int, size: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        known = written(machine, folder)
        if not machine.devices:
            return
        read = lspci.read(fake_lspci.text(machine, verbose, dump=size)).tree
        anything = {name for one in known for name, _value in facts(one)}
        compare(read, known, ALWAYS if verbose else anything)
        if size == 4096 and not verbose:
            for one in read:
                assert not isinstance(one.capabilities.acs, Unreadable)
                assert one.told is None


@given(machines())
def test_names_and_denied_capabilities_tell_nothing_wrong(machine: Machine) -> None:
    with tempfile.TemporaryDirectory() as folder:
        known = written(machine, folder)
        if not machine.devices:
            return
        anything = {name for one in known for name, _value in facts(one)}
        for text in (
            fake_lspci.text(machine, 1),
            fake_lspci.text(machine, 0),
            fake_lspci.text(machine, denied=True),
            fake_lspci.text(machine, denied=True) + fake_lspci.text(machine, 0, dump=4096),
        ):
            compare(lspci.read(text).tree, known, anything)


# Pieces of a text ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rack() -> Machine:
    machine = fake_machines.rack()
    machine.add_vfs(machine["0000:24:00.0"], 2)
    machine._assign_groups()
    for device in machine.devices:
        device.port_type = (
            6 if device.is_bridge and device.address.startswith(("0000:22", "0000:42")) else device.port_type
        )
    return machine


def told(text: str) -> Read | None:
    try:
        return lspci.read(text, "x")
    except GpudirectError:
        return None


def check(text: str, known: Tree, absent_too: bool = True) -> None:
    read = told(text)
    if read is None:
        return
    for one in read.tree:
        right = dict(facts(known.functions[one.address]))
        for name, value in facts(one):
            lost = isinstance(value, Unreadable) or (value is ABSENT and not absent_too)
            # Lines that are left out where there is nothing to say cannot be missed.
            if not lost and name not in ("bars", "serial", "physfn", "numa_node", "driver", "sriov"):
                assert value == right[name], (one.address, name)


@pytest.mark.parametrize("dump", [0, 4096])
def test_a_text_that_is_cut_anywhere_tells_nothing_wrong(rack: Machine, dump: int) -> None:
    text = fake_lspci.text(rack, 3, dump=dump)
    known = lspci.read(text).tree
    chance = random.Random(7)
    for _ in range(150):
        cut = chance.randrange(len(text))
        check(text[:cut], known)
        check(text[cut:], known)


def test_a_text_without_one_of_its_lines_tells_nothing_wrong(rack: Machine) -> None:
    lines = fake_lspci.text(rack).splitlines(keepends=True)
    known = lspci.read("".join(lines)).tree
    for number in range(len(lines)):
        check("".join(lines[:number] + lines[number + 1 :]), known)


@pytest.mark.parametrize("dump", [0, 256, 4096])
def test_a_text_without_many_of_its_lines_has_no_wrong_words(rack: Machine, dump: int) -> None:
    lines = fake_lspci.text(rack, dump=dump).splitlines(keepends=True)
    known = lspci.read("".join(lines)).tree
    chance = random.Random(3)
    for _ in range(100):
        rate = chance.choice([0.01, 0.03, 0.1])
        check("".join(line for line in lines if chance.random() > rate), known, absent_too=False)


@given(st.text(alphabet="0123456789abcdef:. \t\n[]CapailtesRgonB+-<>\0\r", max_size=400))
def test_any_text_is_a_machine_or_a_refusal(text: str) -> None:
    told(text)
    told(f"00:00.0 Host bridge [0600]: X [8086:1234]\n\t{text}")


def test_what_pciutils_makes_of_the_same_bytes(rack: Machine, tmp_path: Path) -> None:
    if shutil.which("lspci") is None:
        pytest.skip("lspci is not on this machine")
    dump = tmp_path / "dump"
    dump.write_text(fake_lspci.text(rack, 0, dump=4096), encoding="ascii")
    done = subprocess.run(["lspci", "-F", str(dump), "-D", "-nn", "-vvv"], capture_output=True, text=True, check=True)
    by_bytes, by_text = lspci.read(dump.read_text(encoding="ascii")).tree, lspci.read(done.stdout).tree
    assert list(by_bytes.functions) == list(by_text.functions)
    for one in by_text:
        other = dict(facts(by_bytes.functions[one.address]))
        for name, value in facts(one):
            is_vf = one.address in (vf.address for vf in by_bytes if vf.is_vf)
            if name not in ("bars", *ALWAYS) and not (is_vf and name in ("vendor", "device", "revision", "class")):
                same = value == other[name] or (isinstance(value, Unreadable) and isinstance(other[name], Unreadable))
                assert same or name == "subsystem", (one.address, name, value, other[name])
    assert any(isinstance(one.capabilities.acs, Words) for one in by_text)


def test_a_large_host_is_read_at_once() -> None:
    text = fake_lspci.text(fake_machines.large(8, 8, 14))
    best = min(_seconds(text) for _ in range(3))
    assert len(lspci.read(text).tree.functions) > 150
    assert best < 0.2  # 15 ms on a quiet machine


def _seconds(text: str) -> float:
    started = time.process_time()
    lspci.read(text)
    return time.process_time() - started
