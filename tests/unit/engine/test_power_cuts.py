"""A run that is cut off before or after any of its writes: the next run completes it, and undo still gives the bytes back.

The ownership record is a write of its own, so the boundary between it and the change it is for is one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.owned import PATH as RECORD

from tests.fixtures import hosts
from tests.fixtures.fake_host import FakeHost, KilledHere
from tests.fixtures.runs import changed, run, settle

CONTRARY = {"/etc/default/grub": 'GRUB_CMDLINE_LINUX_DEFAULT="quiet  iommu=off"\nGRUB_CMDLINE_LINUX="a pci=noaer"'}
MACHINES: dict[str, tuple[str, dict[str, Any]]] = {
    "debian_12": ("debian_12", {"files": CONTRARY, "nodes": {0: 65536}}),
    "rhel_9": (
        "rhel_9",
        {"files": {"/etc/default/grub": "GRUB_CMDLINE_LINUX='iommu=strict b'\n"}, "nodes": {0: 65536}},
    ),
}
FIRST = {
    "kernel_iommu": "passthrough",
    "kernel_args": ["pci=config_acs=1@pci:8086:1234;0@a"],
    "kernel_hugepages": [{"size": "1G", "per_node": 8}],
}
SECOND = {
    "kernel_args": ["pci=realloc", "nosmt"],
    "kernel_args_absent": ["quiet"],
    "kernel_hugepages": [{"size": "1G", "per_node": 4}],
}
# What is cut off: the intents that were settled before, and the one whose run loses power.
STORIES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "apply": ([], FIRST),
    "change": ([FIRST], SECOND),
    "undo": ([FIRST], {}),
    "undo_of_a_change": ([FIRST, SECOND], {}),
}


@pytest.fixture(params=MACHINES)
def found(request: pytest.FixtureRequest, tmp_path: Path) -> FakeHost:
    like, changes = MACHINES[request.param]
    host = hosts.build(tmp_path / "found", like, changes)
    for path in host.path(hosts.ENTRIES).glob(f"*{hosts.RHEL_KERNELS[0]}*"):
        path.unlink()
    return host


@pytest.fixture(params=STORIES)
def story(request: pytest.FixtureRequest) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    return STORIES[request.param]


def disk(host: FakeHost) -> dict[str, tuple[int, bytes]]:
    """Everything but the record, which may tell of the cut."""
    return {path: content for path, content in host.disk().items() if path != RECORD}


def cuts(prepared: FakeHost, intent: dict[str, Any], root: Path) -> Iterator[FakeHost]:
    """The machine after each possible cut of one run: after an act is before the next one."""
    counted = prepared.clone(root / "counted").revive()
    run(intent, counted)
    total = len(counted.acts)
    assert total > 4
    for number in range(1, total + 2):
        host = prepared.clone(root / str(number))
        host = host.die_before(number) if number <= total else host.die_after(total)
        with pytest.raises(KilledHere):
            run(intent, host)
        yield host.revive()


def keeps_power(host: FakeHost) -> FakeHost:
    return host


@pytest.mark.parametrize("back", [keeps_power, FakeHost.boot], ids=["killed", "power_cut"])
def test_next_run_completes_what_was_cut_off(
    found: FakeHost,
    story: tuple[list[dict[str, Any]], dict[str, Any]],
    back: Callable[[FakeHost], FakeHost],
    tmp_path: Path,
) -> None:
    before, intent = story
    prepared = found.clone(tmp_path / "prepared")
    for settled in before:
        settle(settled, prepared)
    whole = prepared.clone(tmp_path / "whole")
    settle(intent, whole)
    for host in cuts(prepared, intent, tmp_path):
        back(host)
        settle(intent, host)
        assert disk(host) == disk(whole)
        assert host.line() == whole.line()
        settle({}, host)
        assert host.disk() == found.disk()
        assert host.line() == found.line()


def test_intent_that_goes_right_after_a_cut_leaves_nothing(found: FakeHost, tmp_path: Path) -> None:
    for host in cuts(found, FIRST, tmp_path):
        settle({}, host)
        assert host.disk() == found.disk()


def test_cut_off_again_and_again_it_still_completes(found: FakeHost, tmp_path: Path) -> None:
    whole = found.clone(tmp_path / "whole")
    settle(FIRST, whole)
    host = found.clone(tmp_path / "host")
    for number in range(2, 40):
        host.die_before(number % 5 + 1)
        try:
            if not changed(run(FIRST, host)):
                break
        except KilledHere:
            continue
    settle(FIRST, host.revive())
    assert disk(host) == disk(whole)
    settle({}, host)
    assert host.disk() == found.disk()


def test_what_a_killed_write_left_behind_is_swept(found: FakeHost) -> None:
    before = found.disk()
    found.put("/etc/default/.gpudirect.grub.x1y2z3", "half a fi")
    found.put("/var/lib/gpudirect/.gpudirect.owned.json.x1y2z3", "{")
    settle(FIRST, found)
    settle({}, found)
    assert found.disk() == before


def test_the_record_is_on_disk_before_the_change_it_is_for(found: FakeHost) -> None:
    run(FIRST, found.revive())
    assert found.acts[0] == f"write {RECORD}"
    assert not [pair for pair in zip(found.acts, found.acts[1:]) if pair[0] == "update-grub" and pair[1] != "sync"]
