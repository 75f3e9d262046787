"""What the demonstration makes of a guest's report."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.demo_guest import judged
from sim.guest_report import Report, reports

CONSOLE = (Path(__file__).parent / "golden" / "guest-console.txt").read_text(encoding="utf-8")


def report(old: str = "", new: str = "") -> Report:
    """The report of the golden console, with one thing in it changed."""
    assert old in CONSOLE
    (found,) = reports(CONSOLE.replace(old, new) if old else CONSOLE)
    return found


def test_a_guest_that_sees_all_it_was_given_is_good() -> None:
    seen = judged("g1", "node-a", 2, report())
    assert seen.good
    assert seen.text == "runs on node-a and sees 2 stand-ins and 0 VFs below 1 switch(es), on their NUMA nodes"


@pytest.mark.parametrize(
    ("given", "old", "new", "word"),
    [
        (3, "", "", "was given 3 devices"),
        (0, "", "", "was given 0 devices"),
        (2, "/0000:22:00.0/0000:23:00.0", "/0000:23:00.0", "lost: ['0000:23:00.0']"),
        (2, "class=0x010802 numa_node=1", "class=0x010802 numa_node=-1", "lost: ['0000:23:00.0']"),
        (2, "vendor=0x1b36 device=0x0010", "vendor=0x1b36 device=0x0011", "sees 1 stand-ins"),
    ],
    ids=["one_lost", "none_given", "no_switch", "no_node", "another_device"],
)
def test_a_guest_that_lacks_something_is_not(given: int, old: str, new: str, word: str) -> None:
    seen = judged("g1", "node-a", given, report(old, new))
    assert not seen.good
    assert word in seen.text
