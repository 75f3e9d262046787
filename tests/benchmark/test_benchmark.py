"""The targets, each a ratio of two things measured in the same run, or a count. Part of ./test --full only."""

from __future__ import annotations

import pytest

from tests.benchmark.report import table
from tests.benchmark.suite import Result, Sizes, loopback_results

NAMES = ("tasks", "executions", "changes", "slope", "slope-cpu", "few", "many", "memory")


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> dict[str, Result]:
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        found = loopback_results(Sizes(), print)
        print("", *table(found), sep="\n")
    return {one.name: one for one in found}


@pytest.mark.parametrize("name", NAMES)
def test_target_is_met(name: str, results: dict[str, Result]) -> None:
    one = results[name]
    assert one.good, f"{one.what}, against {one.against or 'nothing'}: found {one.found:.2f}, wanted <= {one.target}"


def test_every_result_is_judged(results: dict[str, Result]) -> None:
    assert set(results) == set(NAMES)
