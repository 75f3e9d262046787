"""A run that is cut off before or after any of its acts, or in the middle of a batch: the next run completes it, and undo still works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.fake_host import KilledHere
from tests.fixtures.fake_sriov import FakeSriov
from tests.fixtures.sriov_hosts import built, disown, look, ports, run, settle

ANY = {"vendor": "15b3", "device": "101d", "address": "0000:14:00.0"}
FIRST = ports(
    {"select": ANY, "vfs": 3, "mtu": 9000, "vf_defaults": {"trust": True, "vlan": 5}, "vf": {1: {"max_tx_rate": 9}}}
)
FEWER_WORDS = ports(
    {"select": ANY, "vfs": 3, "vf_defaults": {"trust": True, "mac": "kept"}, "vf": {0: {"spoofchk": True}}}
)
OTHER_NUMBER = ports(
    {"select": ANY, "vfs": 2, "mtu": 4000, "autoprobe": True, "vf_defaults": {"link_state": "disable"}}
)
SWITCHDEV = ports({"select": ANY, "vfs": 2, "eswitch": "switchdev", "vf_defaults": {"max_tx_rate": 7}})
NONE = ports({"select": ANY, "vfs": 0})

# What is cut off: the intents that were settled before, and the one whose run is cut.
STORIES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "apply": ([], FIRST),
    "apply_switchdev": ([], SWITCHDEV),
    "fewer_words": ([FIRST], FEWER_WORDS),
    "another_number": ([FIRST], OTHER_NUMBER),
    "to_switchdev": ([FIRST], SWITCHDEV),
    "no_vfs": ([FIRST], NONE),
    "undo": ([FIRST], {}),
    "undo_of_a_change": ([FIRST, OTHER_NUMBER], {}),
    "undo_of_fewer_words": ([FIRST, FEWER_WORDS], {}),
    "undo_switchdev": ([SWITCHDEV], {}),
}
# What others had done before: nothing, or VFs with attributes.
FOUND: dict[str, dict[str, Any]] = {
    "bare": {},
    "with_vfs": ports({"select": ANY, "vfs": 3, "mtu": 2000, "vf_defaults": {"vlan": 77, "qos": 2, "trust": True}}),
}


@pytest.fixture(params=FOUND)
def found(request: pytest.FixtureRequest, tmp_path: Path) -> FakeSriov:
    host = built(tmp_path / "found", "vela")
    if FOUND[request.param]:
        settle(FOUND[request.param], host)
        disown(host)
    return host


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
    if "ip -batch -" in counted.acts:
        for line in range(1, 8):
            host = prepared.clone(root / f"line{line}")
            host.lines_until_death = line
            try:
                run(intent, host)
            except KilledHere:
                host.revive()
                yield host


@pytest.mark.parametrize("story", STORIES)
def test_next_run_completes_what_was_cut_off_and_undo_gives_the_host_back(
    found: FakeSriov, story: str, tmp_path: Path
) -> None:
    before, intent = STORIES[story]
    as_found, disk = found.live(), found.disk()
    prepared = found.clone(tmp_path / "prepared")
    for settled in before:
        settle(settled, prepared)
    whole = prepared.clone(tmp_path / "whole")
    settle(intent, whole)
    for host in cuts(prepared, intent, tmp_path):
        settle(intent, host)
        assert host.live() == whole.live()
        settle({}, host)
        assert host.live() == as_found
        assert host.disk() == disk


@pytest.mark.parametrize("story", ["apply", "another_number", "to_switchdev", "fewer_words"])
def test_intent_that_goes_right_after_a_cut_leaves_nothing(found: FakeSriov, story: str, tmp_path: Path) -> None:
    before, intent = STORIES[story]
    as_found, disk = found.live(), found.disk()
    prepared = found.clone(tmp_path / "prepared")
    for settled in before:
        settle(settled, prepared)
    for host in cuts(prepared, intent, tmp_path):
        settle({}, host)
        assert host.live() == as_found
        assert host.disk() == disk


@pytest.mark.parametrize("story", ["apply", "another_number", "to_switchdev"])
def test_a_boot_after_a_cut_starts_from_what_the_boot_gives(found: FakeSriov, story: str, tmp_path: Path) -> None:
    before, intent = STORIES[story]
    prepared = found.clone(tmp_path / "prepared")
    for settled in before:
        settle(settled, prepared)
    whole = prepared.clone(tmp_path / "whole")
    booted = whole.boot().live()
    settle(intent, whole)
    for host in cuts(prepared, intent, tmp_path):
        host.boot()
        settle(intent, host)
        assert host.live() == whole.live()
        settle({}, host)
        assert host.live() == booted
        assert not host.owned()


def test_cut_off_again_and_again_it_still_completes(found: FakeSriov) -> None:
    as_found = found.live()
    for number in range(40):
        found.die_before(number % 4 + 1)
        try:
            if not run(FIRST, found).changed:
                break
        except KilledHere:
            continue
    found.revive()
    settle(FIRST, found)
    settle({}, found)
    assert found.live() == as_found


def test_the_record_is_there_before_the_change_it_is_for(found: FakeSriov) -> None:
    found.revive()
    run(FIRST, found)
    writes = [act for act in found.acts if "owned.json" not in act]
    for act in writes:
        assert "owned.json" in found.acts[found.acts.index(act) - 1]
    assert look(FIRST, found).plan.empty
