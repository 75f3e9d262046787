"""The run at boot: everything that can be set up is, devices are waited for within a bound, and the rest is told."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import hugepages
from ansible_collections.vela.gpudirect.plugins.module_utils.at_boot.boot_run import BootRun, require_record
from ansible_collections.vela.gpudirect.plugins.module_utils.at_boot.finding import Finding, verdict_of
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Disruption, Plan
from ansible_collections.vela.gpudirect.plugins.module_utils.core.converge import converge
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import HostRefused, UnreadableState
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host

from tests.fixtures.fake_host import FakeHost
from tests.fixtures.runs import settle
from tests.unit.host_boot.conftest import PAGES, Ports, appears


def run(
    host: FakeHost, *resources: Any, wait: float = 60, allow: Disruption = Disruption.LINK
) -> tuple[list[Finding], list[str]]:
    said: list[str] = []
    boot = BootRun(host, allow, said.append)
    return boot.bring_back([(one, True) for one in resources], device_timeout_s=wait), said


def count(host: FakeHost, port: str) -> str:
    return host.text(f"/sys/{port}/count")


def test_all_that_is_there_is_set_up_at_once(debian: FakeHost) -> None:
    for port in ("a", "b"):
        appears(port)(debian)
    findings, said = run(debian, Ports("one", ("a",)), Ports("two", ("b",)))
    assert [(one.as_wanted, one.paths) for one in findings] == [(True, ("one[a]",)), (True, ("two[b]",))]
    assert said == ["one: 1 changes made: one[a]", "two: 1 changes made: two[b]"]
    assert debian.clock_s == 0
    again, said = run(debian, Ports("one", ("a",)), Ports("two", ("b",)))
    assert (verdict_of(again), said, debian.clock_s) == (True, [], 0)


def test_a_device_that_comes_late_is_waited_for_and_the_others_are_not_held_up(debian: FakeHost) -> None:
    appears("b")(debian)
    two = Ports("two", ("b",))
    debian.later = [(20, appears("a")), (0.5, lambda host: two.applied.append(f"by {host.clock_s}"))]
    findings, said = run(debian, Ports("one", ("a",)), two)
    assert verdict_of(findings) is True
    assert (count(debian, "a"), debian.clock_s) == ("4", 20)
    assert two.applied == ["b", "by 0.5"]
    assert said == [
        "not yet: one[a]: is not there. See the kernel's log.",
        "two: 1 changes made: two[b]",
        "one: 1 changes made: one[a]",
    ]


def test_a_device_that_never_comes_ends_the_wait_at_its_bound_and_is_named(debian: FakeHost) -> None:
    for port in ("b", "c"):
        appears(port)(debian)
    findings, _said = run(debian, Ports("one", ("a", "b")), Ports("two", ("c",)), wait=30)
    assert debian.clock_s == 30
    assert [one.as_wanted for one in findings] == [False, True]
    assert findings[0].paths == ("one[b]",)  # the other port of the same resource
    assert [str(one) for one in findings[0].reasons] == ["one[a]: is not there. See the kernel's log."]


def test_through_ansible_a_part_that_is_refused_stops_the_run_before_its_first_write(debian: FakeHost) -> None:
    appears("b")(debian)
    for check in (True, False):
        with debian.only_read(), pytest.raises(HostRefused, match=r"one\[a\]: is not there"):
            converge(Ports("one", ("a", "b")), {"one_on": True}, debian, allow=Disruption.HOST, check=check)


def test_what_waits_for_another_resource_comes_in_the_next_round_without_waiting(debian: FakeHost) -> None:
    for port in ("a", "b"):
        appears(port)(debian)
    findings, _said = run(debian, Ports("one", ("b",), waits="a"), Ports("two", ("a",)))
    assert [one.paths for one in findings] == [("one[b]",), ("two[a]",)]
    assert (verdict_of(findings), debian.clock_s) == (True, 0)


def test_what_waits_for_a_device_of_another_resource_is_told_when_that_does_not_come(debian: FakeHost) -> None:
    appears("b")(debian)
    findings, _said = run(debian, Ports("two", ("a",)), Ports("one", ("b",), waits="a"), wait=5)
    assert [str(problem) for one in findings for problem in one.reasons] == [
        "two[a]: is not there. See the kernel's log.",
        "one: waits for the other: a is not set up. Run site.yml for this host.",
    ]
    assert count(debian, "b") == "0"


def test_a_chain_of_resources_settles_within_the_rounds_of_a_site(debian: FakeHost) -> None:
    for port in "abcd":
        appears(port)(debian)
    chain = [Ports(port, (port,), waits=before) for port, before in (("d", "c"), ("c", "b"), ("b", "a"), ("a", ""))]
    findings, _said = run(debian, *chain)
    assert (verdict_of(findings), debian.clock_s) == (True, 0)


def test_a_write_that_the_kernel_refuses_is_tried_again_and_does_not_hinder_the_others(debian: FakeHost) -> None:
    for port in ("a", "b", "c"):
        appears(port)(debian)
    one = Ports("one", ("a", "b"), refuses_from=2)

    def relent(host: FakeHost) -> None:
        one.refuses_from = 0

    debian.later = [(3, relent)]
    findings, said = run(debian, one, Ports("two", ("c",)))
    assert (verdict_of(findings), debian.clock_s) == (True, 3)
    assert findings[0].paths == ("one[a]", "one[b]")
    refusals = [line for line in said if "the change was refused: Input/output error" in line]
    assert len(refusals) == 2  # with another count of what was done before; the same sentence is said once


def test_what_does_not_read_back_is_not_written_again_and_again(debian: FakeHost) -> None:
    for port in ("a", "b"):
        appears(port)(debian)
    one = Ports("one", ("a",), stubborn=("a",))
    findings, said = run(debian, one, Ports("two", ("b",)))
    assert (one.applied, debian.clock_s) == (["a"], 0)
    assert [found.as_wanted for found in findings] == [False, True]
    assert said[1].startswith("not: one[a]: does not read back after 1 changes were made")


@pytest.mark.parametrize("allow", [Disruption.NOTHING, Disruption.LINK])
def test_links_may_go_down_at_boot_and_guests_may_not(debian: FakeHost, allow: Disruption) -> None:
    for port in ("a", "b"):
        appears(port)(debian)
    one = Ports("one", ("a",), disrupts=Disruption.LINK)
    two = Ports("two", ("b",), disrupts=Disruption.GUEST)
    findings, _said = run(debian, one, two, allow=allow)
    assert [found.as_wanted for found in findings] == [allow is Disruption.LINK, False]
    assert debian.clock_s == 0  # consent does not come by waiting
    assert "two[b]: disrupts the guest" in str(findings[1].reasons[0])


class Faulty(Ports):
    """A resource whose code is wrong."""

    def plan(self, desired: bool, current: Mapping[str, Any], owned: Mapping[str, Any]) -> Plan:
        raise KeyError("vf")


class Unreadable(Ports):
    """A resource whose device goes while it is read."""

    def read(self, host: Host, desired: bool) -> dict[str, Any]:
        raise OSError(19, "No such device")


def test_a_fault_of_one_resource_leaves_the_others_to_be_set_up(debian: FakeHost) -> None:
    appears("b")(debian)
    findings, _said = run(debian, Faulty("one", ("a",)), Unreadable("gone", ()), Ports("two", ("b",)), wait=3)
    assert [found.as_wanted for found in findings] == [None, None, True]
    assert str(findings[0].reasons[0]).startswith("one: the engine fails: KeyError: 'vf' (")
    assert "test_boot_run.py, line" in str(findings[0].reasons[0])
    assert debian.clock_s == 3  # a device that goes may come back


def test_a_run_through_ansible_at_the_same_time_is_waited_for(debian: FakeHost) -> None:
    appears("a")(debian)
    other = contextlib.ExitStack()
    other.enter_context(debian.exclusive())
    debian.later = [(45, lambda host: other.close())]
    findings, said = run(debian, Ports("one", ("a",)))
    assert verdict_of(findings) is True
    assert said[0].startswith("not yet: /run/gpudirect.lock: another run of vela.gpudirect is changing this host")
    assert 45 <= debian.clock_s <= 46


def test_a_reboot_is_never_made_and_what_needs_one_is_told(debian: FakeHost) -> None:
    debian.boot_room = debian.room = {(1, "1G"): 2}
    settle({}, debian)
    wanted = hugepages.parse(PAGES)
    said: list[str] = []
    findings = BootRun(debian, Disruption.LINK, said.append).bring_back([(hugepages, wanted)], device_timeout_s=9)
    assert findings[0].as_wanted is False
    assert [str(one) for one in findings[0].reasons] == [
        "hugepages[1G].node1: awaits a reboot: node 1 has no room for more 1G pages while running "
        "(found 2, wanted 4). Reboot the host."
    ]
    assert debian.pages("1G") == {0: 4, 1: 2}
    assert debian.clock_s == 0


def test_without_the_record_no_device_is_taken(debian: FakeHost) -> None:
    with pytest.raises(HostRefused, match=r"owned\.json: the record of what this product changed is gone"):
        require_record(debian)
    settle(PAGES, debian)
    require_record(debian)
    debian.put("/var/lib/gpudirect/owned.json", "{")
    with pytest.raises(UnreadableState, match="cannot be used"):
        require_record(debian)
