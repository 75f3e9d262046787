"""The verbs strung together, on a resource that knows no domain; the result of a module; the voice of errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import (
    ABSENT,
    Absent,
    Awaiting,
    Change,
    Deferred,
    Disruption,
    Plan,
)
from ansible_collections.vela.gpudirect.plugins.module_utils.core.converge import bring, converge, plan_all, render_diff
from ansible_collections.vela.gpudirect.plugins.module_utils.core.edge import outcome
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import (
    ApplyFailed,
    ConsentRequired,
    GpudirectError,
    HostRefused,
    IntentError,
    Problem,
    UnreadableState,
    VerificationFailed,
)
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import BOOT_ID, Host
from ansible_collections.vela.gpudirect.plugins.module_utils.core.owned import PATH, Owned
from ansible_collections.vela.gpudirect.plugins.module_utils.core.schema import Field, Schema

from tests.fixtures.fake_host import FakeHost

FILES = ("/etc/a", "/etc/b", "/etc/c")


@dataclass
class Toy:
    """Three files that should hold one word."""

    SCHEMA = Schema("toy", "toy_", (Field("toy_word", "str", ("The word.",), default="x"),))
    disrupts: dict[str, Disruption] = field(default_factory=dict)
    refuses: str = ""
    stubborn: str = ""
    plans: Plan = field(default_factory=Plan)
    applied: list[str] = field(default_factory=list)

    def parse(self, params: Mapping[str, Any]) -> str:
        return str(self.SCHEMA.parse(params)["toy_word"])

    def read(self, host: Host, desired: str) -> dict[str, Any]:
        return {path: host.read_text(path) for path in FILES}

    def plan(self, desired: str, current: dict[str, Any], owned: Mapping[str, Any]) -> Plan:
        changes = [
            Change(
                f"toy[{path}]",
                None if text is ABSENT else text,
                desired,
                f"{path} should say it",
                self.disrupts.get(path, Disruption.NOTHING),
                (path, desired),
                {f"toy[{path}]": {"before": None if text is ABSENT else text}},
            )
            for path, text in current.items()
            if text != desired
        ]
        return replace(self.plans, changes=tuple(changes))

    def apply(self, change: Change, host: Host) -> None:
        path, word = change.step
        if path == self.refuses:
            raise HostRefused([Problem(path, "is not for us", "Leave it.")])
        self.applied.append(path)
        if path != self.stubborn:
            host.write_text(path, word)


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    host = FakeHost(str(tmp_path))
    host.put(BOOT_ID, "boot-1\n")
    host.put("/etc/a", "old")
    host.path("/run").mkdir()
    return host


def go(toy: Toy, host: Host, allow: Disruption = Disruption.NOTHING, check: bool = False) -> Any:
    return converge(toy, {"toy_word": "new"}, host, allow=allow, check=check)


def test_a_run_makes_the_changes_in_order_and_reads_them_back(host: FakeHost) -> None:
    toy = Toy()
    result = go(toy, host).as_result()
    assert toy.applied == list(FILES)
    assert result["changed"] is True
    assert result["verified"] is True
    assert result["diff"] == {
        "before": "toy[/etc/a]: old\ntoy[/etc/b]: (absent)\ntoy[/etc/c]: (absent)\n",
        "after": "".join(f"toy[{file}]: new  # {file} should say it; disrupts nothing\n" for file in FILES),
    }
    again = go(toy, host).as_result()
    assert (again["changed"], again["verified"], again["plan"]) == (False, True, [])


def test_check_mode_says_the_same_and_does_not_claim_to_have_verified(host: FakeHost) -> None:
    with host.only_read():
        result = go(Toy(), host, check=True).as_result()
    assert result["changed"] is True
    assert result["verified"] is None
    assert set(result) == set(go(Toy(), host).as_result())


def test_consent_is_asked_for_all_changes_before_the_first_write(host: FakeHost) -> None:
    toy = Toy(disrupts={"/etc/b": Disruption.GUEST, "/etc/c": Disruption.HOST})
    with host.only_read():
        shown = go(toy, host, Disruption.LINK, check=True).as_result()
        with pytest.raises(ConsentRequired) as caught:
            go(toy, host, Disruption.LINK)
    assert [change["path"] for change in shown["blocked"]] == ["toy[/etc/b]", "toy[/etc/c]"]
    assert [str(problem) for problem in caught.value.problems] == [
        "toy[/etc/b]: disrupts the guest: /etc/b should say it (found gpudirect_allow: link, wanted guest). "
        "Set gpudirect_allow: guest when that is meant.",
        "toy[/etc/c]: disrupts the host: /etc/c should say it (found gpudirect_allow: link, wanted host). "
        "Set gpudirect_allow: host when that is meant.",
    ]
    assert go(toy, host, Disruption.HOST).changed


def test_a_refused_change_stops_the_run_and_names_what_was_done(host: FakeHost) -> None:
    with pytest.raises(ApplyFailed) as caught:
        go(Toy(refuses="/etc/b"), host)
    assert caught.value.done == ("toy[/etc/a]",)
    assert str(caught.value) == (
        "toy[/etc/b]: the change was refused: /etc/b: is not for us. Leave it. "
        "Done before it: toy[/etc/a] (1 of 3 changes). Mend the cause and run again; the run goes on where it stopped."
    )
    assert not host.exists("/etc/c")
    assert set(Owned.load(host).records) == {"toy[/etc/a]", "toy[/etc/b]"}


def test_a_refusal_by_the_system_is_told_in_its_words(host: FakeHost) -> None:
    host.read_only = ("/etc/a",)
    with pytest.raises(ApplyFailed, match=r"Read-only file system\. Done before it: nothing \(0 of 3 changes\)"):
        go(Toy(), host)


def test_a_value_that_does_not_read_back_fails_and_names_all_changes_made(host: FakeHost) -> None:
    with pytest.raises(VerificationFailed) as caught:
        go(Toy(stubborn="/etc/a"), host)
    assert str(caught.value) == (
        "toy[/etc/a]: does not read back after 3 changes were made: /etc/a should say it "
        "(found 'old', wanted 'new'). See what else writes this value on the host."
    )
    assert caught.value.done == tuple(f"toy[{path}]" for path in FILES)


def test_what_waits_is_told_in_both_modes_and_only_a_boot_since_makes_it_a_failure(host: FakeHost) -> None:
    waits = Awaiting("toy.live", 1, 2, "the kernel reads it at start", "boot-1")
    toy = Toy(plans=Plan(deferred=(Deferred("toy", "tool", "not there yet"),), awaiting_reboot=(waits,), notes=("n",)))
    for check in (True, False):
        result = go(toy, host, check=check).as_result()
        assert result["reboot_required"] is True
        assert result["reboot_reasons"] == ["toy.live: the kernel reads it at start"]
        assert result["deferred"] == [{"resource": "toy", "waits_for": "tool", "why": "not there yet"}]
        assert result["notes"] == ["n"]
        assert result["verified"] is (None if check else False)  # a deferred resource is never reported as OK
    host.put(BOOT_ID, "boot-2\n")
    for check in (True, False):
        with pytest.raises(
            VerificationFailed, match=r"toy\.live: was written before the last boot.*\(found 1, wanted 2"
        ):
            go(toy, host, check=check)


def test_a_boot_that_an_earlier_round_waited_for_counts_too(host: FakeHost) -> None:
    toy = Toy(plans=Plan(awaiting_reboot=(Awaiting("toy.live", 1, 2, "why"),)))
    assert bring(toy, "x", host, allow=Disruption.HOST, check=True, waiting={"toy.live": "boot-1"})
    with pytest.raises(VerificationFailed):
        bring(toy, "x", host, allow=Disruption.HOST, check=True, waiting={"toy.live": "boot-0"})


def test_what_was_done_is_told_when_the_look_afterwards_fails(host: FakeHost) -> None:
    class Torn(Toy):
        def read(self, host: Host, desired: str) -> dict[str, Any]:
            if self.applied:
                raise UnreadableState([Problem("/etc/a", "is torn", "Mend it.")])
            return super().read(host, desired)

    with pytest.raises(UnreadableState) as caught:
        go(Torn(), host)
    assert caught.value.done == tuple(f"toy[{path}]" for path in FILES)


def test_problems_of_all_resources_come_together(host: FakeHost) -> None:
    class Refusing(Toy):
        def plan(self, desired: str, current: dict[str, Any], owned: Mapping[str, Any]) -> Plan:
            raise HostRefused([Problem(desired, "is refused", "Stop.")])

    with pytest.raises(GpudirectError) as caught:
        plan_all([(Refusing(), "b"), (Toy(), "x"), (Refusing(), "a")], host, allow=Disruption.HOST)
    assert [problem.path for problem in caught.value.problems] == ["a", "b"]


def test_a_refused_part_stops_a_run_and_not_a_boot(host: FakeHost) -> None:
    refused = Problem("toy[/etc/d]", "is not there", "Plug it in.")
    for check in (True, False):
        with host.only_read(), pytest.raises(HostRefused, match=r"toy\[/etc/d\]: is not there"):
            go(Toy(plans=Plan(refused=(refused,))), host, check=check)
    toy = Toy(plans=Plan(refused=(refused,)))
    for verified in (False, False):  # the second time there is nothing left to change
        report = bring(toy, "new", host, allow=Disruption.NOTHING, check=False, partial=True)
        assert (report.verified, report.left.refused) == (verified, (refused,))
        assert not report.left.empty
    assert toy.applied == list(FILES)


def test_two_runs_do_not_change_a_host_at_a_time(host: FakeHost) -> None:
    with host.exclusive():
        assert go(Toy(), host, check=True).changed
        with host.only_read(), pytest.raises(HostRefused, match="another run of vela.gpudirect is changing this host"):
            go(Toy(), host)
    assert go(Toy(), host).changed


def test_the_lock_of_a_run_that_failed_is_free(host: FakeHost) -> None:
    with pytest.raises(ApplyFailed):
        go(Toy(refuses="/etc/a"), host)
    assert go(Toy(), host).changed


def test_a_host_whose_lock_cannot_be_opened_is_not_changed(host: FakeHost) -> None:
    host.path("/run").rmdir()
    with host.only_read(), pytest.raises(HostRefused, match=r"/run/gpudirect.lock: cannot be opened: No such file"):
        go(Toy(), host)


# The ownership file ----------------------------------------------------------------------


def test_the_first_before_is_kept_and_the_boot_is_that_of_the_last_write(host: FakeHost) -> None:
    go(Toy(), host)
    host.put(BOOT_ID, "boot-2\n")
    converge(Toy(), {"toy_word": "newer"}, host, allow=Disruption.HOST, check=False)
    record = Owned.load(host).of("toy")["toy[/etc/a]"]
    assert record == {"before": "old", "boot": "boot-2", "resource": "toy"}
    assert Owned.load(host).of("other") == {}
    assert host.path(PATH).stat().st_mode & 0o777 == 0o600
    assert host.path(PATH).parent.stat().st_mode & 0o777 == 0o700


def test_a_record_that_somebody_elses_edit_moved_takes_the_new_before(host: FakeHost) -> None:
    owned = Owned()
    for before, rebased in (("a", {}), ("b", {}), ("c", {"rebased": True}), ("d", {})):
        change = Change(
            "p", None, None, "w", remember={"r": {"before": before, **rebased}}, confirm={"r": {"x": before}}
        )
        owned.remember(host, "toy", change, "boot")
        owned.confirm(host, change)
    assert Owned.load(host).records == {"r": {"before": "c", "boot": "boot", "resource": "toy", "x": "d"}}


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "it is no JSON: Expecting value"),
        ("{", "it is no JSON: Expecting property name"),
        ("[" * 100_000, "it is no JSON: "),
        ("[]", "it is no mapping"),
        ("null", "it is no mapping"),
        ('{"records": {}}', "it is without version"),
        ("{}", "it is without version and records"),
        ('{"version": 2, "records": {}}', "it has version 2, this release knows 1"),
        ('{"version": 1, "records": []}', "its records are not in the form of this version"),
        ('{"version": 1, "records": {"a": 1}}', "its records are not in the form of this version"),
        ('{"version": 1, "records": {"a": {"resource": "toy"}}}', "its records are not in the form of this version"),
    ],
)
def test_a_record_that_cannot_be_used_stops_the_run_before_it_writes(host: FakeHost, text: str, cause: str) -> None:
    host.put(PATH, text)
    with host.only_read(), pytest.raises(UnreadableState) as caught:
        go(Toy(), host)
    assert str(caught.value).startswith(f"{PATH}: the record of what this product changed cannot be used: {cause}")
    assert str(caught.value).endswith(
        "Restore the file from a backup, or remove it and give up the undo of earlier changes."
    )


def test_a_record_that_cannot_be_read_stops_the_run(host: FakeHost) -> None:
    host.path(PATH).mkdir(parents=True)
    with pytest.raises(UnreadableState, match="Is a directory"):
        go(Toy(), host)


# The edge --------------------------------------------------------------------------------


def test_the_result_of_a_module_is_a_mapping_for_good_and_bad(host: FakeHost) -> None:
    params = {"toy_word": "new", "gpudirect_allow": "nothing"}
    good = outcome(Toy(), params, check=False, host=host)
    assert good["failed"] is False
    assert good["changed"] is True
    bad = outcome(Toy(refuses="/etc/b"), {**params, "toy_word": "newer"}, check=False, host=host)
    assert bad["failed"] is True
    assert bad["changed"] is True
    assert bad["kind"] == "ApplyFailed"
    assert bad["done"] == ["toy[/etc/a]"]
    assert bad["msg"] == "\n".join(bad["problems"])
    wrong = outcome(Toy(), {**params, "toy_wrod": "x"}, check=True, host=host)
    assert (wrong["kind"], wrong["changed"], wrong["done"]) == ("IntentError", False, [])


def test_the_result_lists_the_commands_and_how_they_ended(host: FakeHost) -> None:
    class Running(Toy):
        def read(self, host: Host, desired: str) -> dict[str, Any]:
            host.run(["grubby", "--update-kernel=/none", "--args=a"], expect=(0, 1))
            return super().read(host, desired)

    result = outcome(Running(), {"gpudirect_allow": "nothing", "toy_word": "x"}, check=True, host=host)
    assert result["commands"] == [{"argv": ["grubby", "--update-kernel=/none", "--args=a"], "status": 1}]


# The voice -------------------------------------------------------------------------------


def test_a_problem_is_one_sentence_of_fact_and_one_of_advice() -> None:
    assert str(Problem("a.b", "is wrong", "Mend it.")) == "a.b: is wrong. Mend it."
    assert str(Problem("a", "is wrong", "Mend it.", found="1")) == "a: is wrong (found 1). Mend it."
    assert str(Problem("a", "is", "Do.", found="1", wanted="2")) == "a: is (found 1, wanted 2). Do."


def test_an_error_tells_each_problem_once_in_a_stable_order() -> None:
    one, two = Problem("a", "is", "Do."), Problem("b", "is", "Do.")
    assert str(IntentError([two, one, two])) == f"{one}\n{two}"
    assert IntentError([two, one]).problems == IntentError([one, two, one]).problems


def test_absent_is_one_and_disruption_is_ordered() -> None:
    assert Absent() is ABSENT
    assert repr(ABSENT) == "ABSENT"
    assert Disruption.NOTHING < Disruption.LINK < Disruption.GUEST < Disruption.HOST
    assert [Disruption.named(one.label) for one in Disruption] == list(Disruption)
    with pytest.raises(KeyError):
        Disruption.named("everything")


def test_a_diff_shows_lists_as_words_and_nothing_as_absent() -> None:
    change = Change("p", None, ["a", 1], "w")
    assert render_diff([change]) == {"before": "p: (absent)\n", "after": "p: a 1  # w; disrupts nothing\n"}


def test_changes_that_a_caller_leaves_out_are_told_and_are_no_failure(host: FakeHost) -> None:
    toy = Toy()

    def not_b(change: Change) -> bool:
        return change.path != "toy[/etc/b]"

    for made in (["toy[/etc/a]", "toy[/etc/c]"], []):
        report = bring(toy, "new", host, allow=Disruption.NOTHING, check=False, only=not_b)
        assert [change.path for change in report.plan.changes] == made
        assert [change.path for change in report.postponed] == ["toy[/etc/b]"]
    assert toy.applied == ["/etc/a", "/etc/c"]


def test_problems_come_in_the_order_in_which_people_count() -> None:
    paths = [f"list[{number}].name" for number in (10, 2, 0, 11, 1)]
    error = GpudirectError(Problem(path, "is wrong", "Mend it.") for path in paths)
    assert [problem.path for problem in error.problems] == [f"list[{number}].name" for number in (0, 1, 2, 10, 11)]
