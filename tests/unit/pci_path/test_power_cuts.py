"""A run that is cut off before or after any of its acts: the next run completes it, and undo still works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures import fake_registers
from tests.fixtures.fake_host import KilledHere
from tests.fixtures.fake_sriov import FakeSriov
from tests.fixtures.path_hosts import ARGUMENT, BARE, REGISTER, built, requests, run, settle, words

NIC = "0000:22:01.0"
BOTH = {**ARGUMENT, "pci_path_max_read_request": 4096}
# What is cut off: the intents that were settled before, and the one whose run is cut.
STORIES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "argument": ([], BOTH),
    "register": ([], REGISTER),
    "bare_metal": ([], BARE),
    "another_way": ([BOTH], REGISTER),
    "undo": ([BOTH], {}),
    "undo_of_open_ports": ([BARE], {}),
}


@pytest.fixture(params=[{}, {"acs": {NIC: (0x7F, 0x33)}}], ids=["usual", "odd_firmware"])
def found(request: pytest.FixtureRequest, tmp_path: Path) -> FakeSriov:
    return built(tmp_path / "found", "one", **request.param)


def state(host: FakeSriov) -> tuple[dict[str, int], dict[str, int], str]:
    return words(host), requests(host), host.line()


def cuts(prepared: FakeSriov, intent: dict[str, Any], root: Path) -> Iterator[FakeSriov]:
    """The machine after each possible cut of one run."""
    counted = prepared.clone(root / "counted")
    counted.revive()
    run(intent, counted)
    total = len(counted.acts)
    assert total > 1
    for number in range(1, total + 2):
        host = prepared.clone(root / str(number))
        host.die_before(number) if number <= total else host.die_after(total)
        with pytest.raises(KilledHere):
            run(intent, host)
        host.revive()
        yield host


@pytest.mark.parametrize("story", STORIES)
def test_next_run_completes_what_was_cut_off_and_undo_gives_the_host_back(
    found: FakeSriov, story: str, tmp_path: Path
) -> None:
    before, intent = STORIES[story]
    disk = found.disk()
    prepared = found.clone(tmp_path / "prepared")
    for settled in before:
        settle(settled, prepared)
    for host in cuts(prepared, intent, tmp_path):
        settle(intent, host)
        settle({}, host)
        host.boot()
        assert state(host) == state(found.boot())
        assert host.disk() == disk


@pytest.mark.parametrize("story", ["argument", "register", "another_way"])
def test_a_boot_after_a_cut_and_a_reset_end_at_the_same_words(found: FakeSriov, story: str, tmp_path: Path) -> None:
    before, intent = STORIES[story]
    prepared = found.clone(tmp_path / "prepared")
    for settled in before:
        settle(settled, prepared)
    whole = prepared.clone(tmp_path / "whole")
    settle(intent, whole)
    for host in cuts(prepared, intent, tmp_path):
        fake_registers.reset(host.machine, NIC, words(found)[NIC])
        settle(intent, host)
        assert words(host) == words(whole)
        host.boot()
        settle(intent, host)
        assert words(host) == words(whole)
        assert not [act for act in run_again(intent, host) if "owned" not in act]


def run_again(intent: dict[str, Any], host: FakeSriov) -> list[str]:
    host.revive()
    run(intent, host)
    return host.acts


def test_undo_in_the_boot_of_the_change_needs_no_other(found: FakeSriov, tmp_path: Path) -> None:
    was, disk = state(found), found.disk()
    usual = words(found)[NIC] & 0x1F == 0x1D
    host = found.clone(tmp_path / "host")
    assert settle(BOTH, host) == 0
    # Bits that keep apart, and one that would refuse requests under way, go with a boot only.
    assert settle({}, host) == (0 if usual else 1)
    assert state(host) == was
    assert host.disk() == disk
