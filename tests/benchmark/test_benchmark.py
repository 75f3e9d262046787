"""The targets, each a ratio of two things measured in the same run, or a count. Part of ./test --full only.

What they are made of is tested in tests/unit/benchmark, without a clock.
"""

from __future__ import annotations

import pytest

from tests.benchmark.__main__ import GROUPS
from tests.benchmark.report import table
from tests.benchmark.suite import Result, Sizes

HOSTS = ("tasks", "executions", "changes", "slope", "slope-cpu", "few", "many", "memory")
DEVICES = (
    *(
        "vf-tasks",
        "vf-executions",
        "vf-tasks-more",
        "vf-executions-more",
        "vf-wall-64",
        "vf-wall-128",
        "vf-cpu",
        "vf-cpu-1",
    ),
    *("look-left", "look-programs", "look-64", "look-128", "read-yaml", "read-walk", "read-opens", "read-more"),
)
GUESTS = (
    *(f"guest-{book}-{what}" for book in ("site", "guests") for what in ("tasks", "executions", "more")),
    *("guest-left", "guest-changes", "guest-programs", "guest-lists", "guest-look-1", "guest-look-8"),
    *("guest-look-slope", "guest-look-read"),
    *("define-programs", "define-lists", "define-changes", "define-each", "define-slope", "define-read"),
)
MANY = ("audit-host", "audit-memory", "audit-yaml", "guests-memory", "guests-yaml")
NAMES = (*HOSTS, *DEVICES, *MANY, *GUESTS)


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> dict[str, Result]:
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        found = [one for measure in GROUPS.values() for one in measure(Sizes(), print)]
        print("", *table(found), sep="\n")
    return {one.name: one for one in found}


@pytest.mark.parametrize("name", NAMES)
def test_target_is_met(name: str, results: dict[str, Result]) -> None:
    one = results[name]
    assert one.good, f"{one.what}, against {one.against or 'nothing'}: found {one.found:.3f}, wanted <= {one.target}"


def test_every_result_is_judged(results: dict[str, Result]) -> None:
    assert set(results) == set(NAMES)
