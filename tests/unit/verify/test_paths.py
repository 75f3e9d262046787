"""How the outcome checks read ways and registers: each check passes, and fails for its own reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.fake_testinfra import FakeHost, verdict
from tests.fixtures.path_hosts import vela
from tests.testinfra import paths as ways
from tests.testinfra import test_paths as checks
from tests.testinfra.conftest import Check
from tests.testinfra.paths import Paths
from tests.testinfra.pci import Function

GPU, NIC, DRIVE, ROOT = "0000:22:00.0", "0000:22:01.0", "0000:22:02.0", "0000:20:01.0"
CARD = "0000:24:00.0"


def judged(tmp_path: Path, edits: dict[str, dict[str, Any]] | None = None, **variables: Any) -> Paths:
    """The ways of a fake host, from the bytes that ``od`` would print of it."""
    machine = vela(1)
    machine[NIC].acs, machine[CARD].ats, machine[CARD].control = (0x5F, 0x5D), (0, 0), 0x5010
    for address, fields in (edits or {}).items():
        for name, value in fields.items():
            setattr(machine[address], name, value)
    machine.write(tmp_path)
    functions, text = {}, ""
    for one in machine.by_address():
        steps = machine.path(one).partition("/devices/")[2].split("/")
        values = {"vendor": f"{one.vendor:#06x}", "device": f"{one.device:#06x}", "class": f"{one.class_code:#08x}"}
        functions[one.address] = Function(one.address, tuple(steps), {**values, "numa_node": str(one.numa)})
        data = machine.at(f"{machine.path(one)}/config").read_bytes()
        text += f"@{one.address}\n" + "".join(f" {byte:02x}" for byte in data) + "\n"
    return ways.paths_of(variables, functions, ways.bytes_of(text))


def verdicts(paths: Paths) -> list[bool]:
    found = (ways.other_words(paths), ways.blocking(paths), ways.incapable(paths), ways.ats_differences(paths))
    return [not one for one in found]


def test_the_ports_on_a_way_are_judged_and_no_other(tmp_path: Path) -> None:
    found = judged(tmp_path)
    assert set(found.ports) == {ROOT, "0000:21:00.0", GPU, NIC}
    assert [one for one, port in found.ports.items() if port.nic_side] == [NIC]
    assert found.nics == {CARD: True}
    assert verdicts(found) == [True] * 4
    assert ways.device_control(found, CARD) == (4096, True)


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ({NIC: {"acs": (0x5F, 0x1D)}}, [False, True, True, True]),
        ({ROOT: {"acs": (0x5F, 0x19)}}, [False, True, True, True]),
        ({GPU: {"acs": None}}, [False, True, True, True]),
        ({GPU: {"acs": (0x5F, 0x1F)}}, [True, False, True, True]),
        ({NIC: {"acs": (0x1F, 0x1D)}}, [True, True, False, True]),
        ({CARD: {"ats": None}}, [True, True, True, False]),
    ],
)
def test_each_check_fails_for_its_own_reason(
    tmp_path: Path, edits: dict[str, dict[str, Any]], expected: list[bool]
) -> None:
    assert verdicts(judged(tmp_path, edits)) == expected


def test_bare_metal_wants_the_opposite(tmp_path: Path) -> None:
    mode = {"gpudirect_mode": "bare_metal"}
    open_ports = {address: {"acs": (0x5F, 0)} for address in (ROOT, GPU, NIC)}
    assert verdicts(judged(tmp_path / "a", **mode))[0] is False
    assert verdicts(judged(tmp_path / "b", {**open_ports, CARD: {"ats": None}}, **mode)) == [True, True, True, True]
    assert verdicts(judged(tmp_path / "c", open_ports, **mode)) == [True, True, True, False]


def test_what_the_site_has_relaxed_is_excused_for_its_devices(tmp_path: Path) -> None:
    select = {"vendor": "15b3"}
    relax = [{"rule": "ats_present", "reason": "x", "select": select}, {"rule": "acs_dt_capable", "reason": "y"}]
    edits = {CARD: {"ats": None}, NIC: {"acs": (0x1F, 0x1D)}}
    assert verdicts(judged(tmp_path / "a", edits, pci_path_relax=relax)) == [True, True, True, True]
    others = [{"rule": "ats_present", "reason": "x", "select": {"vendor": "10de"}}]
    assert verdicts(judged(tmp_path / "b", edits, pci_path_relax=others)) == [True, True, False, False]


def test_64_bytes_tell_nothing(tmp_path: Path) -> None:
    assert not judged(tmp_path, {NIC: {"readable": 64}}).readable


# The checks themselves ---------------------------------------------------------------------------


def checked(paths: Paths, name: str, **variables: Any) -> tuple[str, str]:
    """The verdict of a check on these ways; its fixtures are made as pytest makes them."""
    host: Any = FakeHost({"pci_path_acs": "auto", "pci_path_max_read_request": 4096, **variables})

    def called(check: Check) -> None:
        if name == "test_h26_nics_may_read_as_much_at_a_time_as_declared":
            checks.test_h26_nics_may_read_as_much_at_a_time_as_declared(host, paths, check)
        else:
            getattr(checks, name)(checks.managed_of(host, paths, check), check)

    return verdict(called)


WORDS, TB, DT, ATS, READS, ORDER = EVERY = (
    "test_h06_ports_have_the_words_of_the_mode",
    "test_h06_no_port_blocks_translated_requests",
    "test_h06_ports_towards_nics_can_direct_translated_requests",
    "test_h16_nics_have_ats_where_the_mode_wants_it",
    "test_h26_nics_may_read_as_much_at_a_time_as_declared",
    "test_h26_nics_may_order_loosely",
)


@pytest.mark.parametrize("name", EVERY)
def test_a_check_passes_and_does_not_apply_where_nobody_asks(tmp_path: Path, name: str) -> None:
    paths = judged(tmp_path)
    assert checked(paths, name)[0] == "OK"
    word, said = checked(paths, name, pci_path_acs="unmanaged", pci_path_max_read_request=None)
    assert word == "-"
    assert said in ("pci_path_acs is unmanaged", "pci_path_max_read_request is not given")


@pytest.mark.parametrize(
    ("edits", "name", "expected"),
    [
        ({NIC: {"acs": (0x5F, 0x1D)}}, WORDS, f"{NIC} "),
        ({GPU: {"acs": (0x5F, 0x1F)}}, TB, "ACS 0x1f of 0x5f"),
        ({NIC: {"acs": (0x1F, 0x1D)}}, DT, "ACS 0x1d of 0x1f"),
        ({CARD: {"ats": None}}, ATS, f"{CARD} has no ATS"),
        ({CARD: {"control": 0x2010}}, READS, f"{CARD}: 512 bytes"),
        ({CARD: {"control": 0x5000}}, ORDER, f"{CARD}: RlxdOrd-"),
    ],
)
def test_a_check_fails_alone_for_its_own_reason(
    tmp_path: Path, edits: dict[str, dict[str, Any]], name: str, expected: str
) -> None:
    paths = judged(tmp_path, edits)
    assert [one for one in EVERY if checked(paths, one)[0] != "OK"] == [name]
    word, said = checked(paths, name)
    assert word == "FAIL"
    assert expected in said


def test_strict_order_that_the_site_has_relaxed_passes(tmp_path: Path) -> None:
    relax = [{"rule": "relaxed_ordering", "reason": "x"}]
    assert checked(judged(tmp_path, {CARD: {"control": 0x5000}}, pci_path_relax=relax), ORDER)[0] == "OK"


@pytest.mark.parametrize("name", EVERY)
def test_what_cannot_be_read_is_unknown(tmp_path: Path, name: str) -> None:
    paths = judged(tmp_path, {NIC: {"readable": 64}})
    assert checked(paths, name) == ("unknown", checks.ROOT)


def test_a_host_without_ways_fails_where_they_are_managed() -> None:
    word, said = checked(Paths(ways.PASSTHROUGH), WORDS)
    assert word == "FAIL"
    assert "a way between a GPU and a NIC" in said


@pytest.mark.parametrize(("mode", "name"), [("virtio_vm", WORDS), ("bare_metal", TB), ("bare_metal", DT)])
def test_checks_of_another_mode_do_not_apply(tmp_path: Path, mode: str, name: str) -> None:
    paths = judged(tmp_path, gpudirect_mode=mode)
    assert checked(paths, name) == ("-", f"gpudirect_mode is {mode}")
