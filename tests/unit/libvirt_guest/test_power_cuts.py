"""A run that is cut off before or after any of its acts: the next run completes it, and undo still works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.fake_host import KilledHere
from tests.fixtures.fake_libvirt import FakeGuestHost
from tests.fixtures.libvirt_hosts import built, guests, look, run, settle, shape, with_files

ONE = guests(shape())
STORIES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "apply": ([], ONE),
    "two": ([], guests(shape(), shape("other"))),
    "changed": ([ONE], guests(shape(memory_gib=16, vfs_per_gpu=2))),
    "stopped": ([ONE], guests(shape(state="defined"))),
    "handed_over": ([guests(shape(gpus=2))], guests(shape(gpus=1), shape("other"))),
    "undo": ([ONE], {}),
    "replaced": ([ONE], guests(shape("other"))),
}


@pytest.fixture
def found(tmp_path: Path) -> FakeGuestHost:
    return with_files(built(tmp_path / "found"), "train", "other")


def state(host: FakeGuestHost) -> Any:
    return host.libvirt.state()


def cuts(prepared: FakeGuestHost, intent: dict[str, Any], root: Path) -> Iterator[FakeGuestHost]:
    """The machine after each possible cut of one run."""
    counted = prepared.clone(root / "counted")
    counted.revive()
    run(intent, counted, "guest")
    total = len(counted.acts)
    assert total
    for number in range(1, total + 2):
        host = prepared.clone(root / str(number))
        host.die_before(number) if number <= total else host.die_after(total)
        with pytest.raises(KilledHere):
            run(intent, host, "guest")
        host.revive()
        host.later = []  # who was asked to end has ended, or has not heard it
        yield host


@pytest.mark.parametrize("story", STORIES)
def test_next_run_completes_what_was_cut_off_and_undo_leaves_nothing(
    found: FakeGuestHost, story: str, tmp_path: Path
) -> None:
    before, intent = STORIES[story]
    as_found = state(found)
    prepared = found.clone(tmp_path / "prepared")
    for settled in before:
        settle(settled, prepared)
    whole = prepared.clone(tmp_path / "whole")
    settle(intent, whole)
    for host in cuts(prepared, intent, tmp_path):
        settle(intent, host)
        assert state(host) == state(whole)
        settle({}, host)
        assert state(host) == as_found
        assert not host.owned()


@pytest.mark.parametrize("story", STORIES)
def test_intent_that_goes_right_after_a_cut_leaves_nothing(found: FakeGuestHost, story: str, tmp_path: Path) -> None:
    before, intent = STORIES[story]
    as_found = state(found)
    prepared = found.clone(tmp_path / "prepared")
    for settled in before:
        settle(settled, prepared)
    for host in cuts(prepared, intent, tmp_path):
        settle({}, host)
        assert state(host) == as_found
        assert not host.owned()


def test_a_boot_after_a_cut_goes_on(found: FakeGuestHost, tmp_path: Path) -> None:
    whole = found.clone(tmp_path / "whole")
    settle(ONE, whole)
    for host in cuts(found, ONE, tmp_path):
        host.boot()
        settle(ONE, host, "nothing")
        assert state(host) == state(whole)


def test_the_record_is_there_before_libvirt_hears_of_a_guest(found: FakeGuestHost) -> None:
    found.revive()
    run(ONE, found)
    define = next(index for index, act in enumerate(found.acts) if "define" in act)
    assert "owned.json" in found.acts[define - 1]
    assert look(ONE, found).plan.empty
