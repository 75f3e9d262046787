"""A run that is cut off before or after any of its acts: the next run completes it, also after a boot, and undo gives all back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.owned import PATH as RECORD

from tests.fixtures.driver_hosts import built, devices, run, settle
from tests.fixtures.fake_drivers import FakeDrivers
from tests.fixtures.fake_host import KilledHere

DRIVE = devices(("drive", {"device": "0010"}))
BOTH = devices(("drive", {"device": "0010"}), ("testdev", {"device": "0005"}))
OTHER = devices(("testdev", {"device": "0005"}), {"name": "stub", "select": {"device": "0010"}, "driver": "pci-stub"})
GPU = devices(("gpu", {"vendor": "10de"}))
# The system, the intents that were settled before, and the one whose run loses power.
STORIES: dict[str, tuple[str, list[dict[str, Any]], dict[str, Any]]] = {
    "apply": ("debian_13", [], BOTH),
    "apply_with_dracut": ("rhel_9", [], DRIVE),
    "change": ("debian_12", [DRIVE], OTHER),
    "undo": ("debian_13", [DRIVE], {}),
    "undo_with_dracut": ("rhel_9", [DRIVE], {}),
    "gpu": ("debian_12", [], GPU),
    "undo_of_gpu": ("debian_12", [GPU], {}),
}


def bound(host: FakeDrivers) -> tuple[dict[str, str], dict[str, str]]:
    return host.drivers(), host.overrides()


def kept(host: FakeDrivers) -> dict[str, tuple[int, bytes]]:
    """Everything but the record, which may tell of the cut."""
    return {path: content for path, content in host.disk().items() if path != RECORD}


def cuts(prepared: FakeDrivers, intent: dict[str, Any], root: Path) -> Iterator[FakeDrivers]:
    """The machine after each possible cut of one run: after an act is before the next one."""
    counted = prepared.clone(root / "counted").revive()
    run(intent, counted)
    total = len(counted.acts)
    assert total > 8
    for number in range(1, total + 2):
        host = prepared.clone(root / str(number))
        if number <= total:
            host.die_before(number)
        else:
            host.die_after(total)
        with pytest.raises(KilledHere):
            run(intent, host)
        yield host.revive()


def keeps_power(host: FakeDrivers) -> FakeDrivers:
    return host


@pytest.mark.parametrize("back", [keeps_power, FakeDrivers.boot], ids=["killed", "power_cut"])
@pytest.mark.parametrize("story", STORIES)
def test_the_next_run_completes_what_was_cut_off(
    story: str, back: Callable[[FakeDrivers], FakeDrivers], tmp_path: Path
) -> None:
    like, before, intent = STORIES[story]
    found = built(tmp_path / "found", "small", like)
    prepared = found.clone(tmp_path / "prepared")
    for settled in before:
        settle(settled, prepared)
    whole = prepared.clone(tmp_path / "whole")
    settle(intent, whole)
    for host in cuts(prepared, intent, tmp_path):
        back(host)
        settle(intent, host)
        assert bound(host) == bound(whole)
        assert kept(host) == kept(whole)
        settle({}, host)
        assert host.disk() == found.disk()
        assert bound(host) == bound(found)
        assert host.lost == []


def test_intent_that_goes_right_after_a_cut_leaves_nothing(tmp_path: Path) -> None:
    found = built(tmp_path / "found", "small")
    for host in cuts(found, BOTH, tmp_path):
        settle({}, host)
        assert host.disk() == found.disk()
        assert bound(host) == bound(found)


def test_a_boot_between_a_cut_and_its_undo_leaves_nothing(tmp_path: Path) -> None:
    """The boot has taken the devices by the rules, although the run never came to do so."""
    found = built(tmp_path / "found", "small")
    for host in cuts(found, DRIVE, tmp_path):
        host.boot()
        settle({}, host)
        assert host.disk() == found.disk()
        assert bound(host) == bound(found)


def test_the_record_is_on_disk_before_the_change_it_is_for(tmp_path: Path) -> None:
    host = built(tmp_path / "root", "small").revive()
    run(BOTH, host)
    assert host.acts[0] == f"write {RECORD}"
    assert not [
        pair for pair in zip(host.acts, host.acts[1:]) if pair[0].startswith("update-initramfs") and pair[1] != "sync"
    ]


def test_cut_off_again_and_again_it_still_completes(tmp_path: Path) -> None:
    found = built(tmp_path / "found", "small", "rhel_9")
    whole = found.clone(tmp_path / "whole")
    settle(BOTH, whole)
    host = found.clone(tmp_path / "host")
    for number in range(2, 60):
        host.die_before(number % 6 + 1)
        try:
            if not run(BOTH, host).changed:
                break
        except KilledHere:
            continue
    settle(BOTH, host.revive())
    assert kept(host) == kept(whole)
    assert bound(host) == bound(whole)
    settle({}, host)
    assert host.disk() == found.disk()
