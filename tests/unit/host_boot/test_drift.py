"""The look at a host without a change: three verdicts, and their metrics."""

from __future__ import annotations

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import hugepages, site
from ansible_collections.vela.gpudirect.plugins.module_utils.at_boot import drift, metrics
from ansible_collections.vela.gpudirect.plugins.module_utils.at_boot.finding import Finding, verdict_of
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Unreadable
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import IntentError, Problem

from tests.fixtures.fake_host import FakeHost
from tests.fixtures.runs import settle
from tests.unit.host_boot.conftest import PAGES, Ports, appears


def look(host: FakeHost) -> list[Finding]:
    with host.only_read():
        return drift.look(site.brought_back(PAGES), host)


def test_a_host_as_wanted_has_no_drift(debian: FakeHost) -> None:
    settle(PAGES, debian)
    assert look(debian) == [Finding("hugepages", True)]


def test_what_differs_is_told_with_what_was_found_and_wanted(debian: FakeHost) -> None:
    settle(PAGES, debian)
    debian.boot()
    debian.put("/sys/devices/system/node/node1/hugepages/hugepages-1048576kB/nr_hugepages", "2\n")
    (found,) = look(debian)
    assert (found.as_wanted, found.paths) == (False, ("hugepages[1G].node1",))
    assert [str(one) for one in found.reasons] == [
        "hugepages[1G].node1: the reservation is live at once where node 1 has the room (found 2, wanted 4). "
        "Run site.yml for this host."
    ]


def test_a_state_that_cannot_be_read_is_neither_as_wanted_nor_drift(
    debian: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(PAGES, debian)
    monkeypatch.setattr(FakeHost, "names", lambda self, path: Unreadable(f"{path}: Input/output error"))
    (found,) = look(debian)
    assert (found.as_wanted, found.paths) == (None, ())
    assert "cannot be read: /sys/devices/system/node: Input/output error" in str(found.reasons[0])


def test_a_host_that_is_being_changed_is_not_judged(debian: FakeHost) -> None:
    settle(PAGES, debian)
    with debian.exclusive():
        (found,) = look(debian)
    assert found.as_wanted is None
    assert "another run of vela.gpudirect is changing this host" in str(found.reasons[0])


def test_a_fault_or_a_missing_device_of_one_resource_leaves_the_others_judged(debian: FakeHost) -> None:
    appears("b")(debian)

    class Faulty(Ports):
        def read(self, host: object, desired: object) -> dict[str, object]:
            raise ValueError("not a number.")

    found = drift.look([(Faulty("one", ("a",)), True), (Ports("two", ("a", "b")), True)], debian)
    assert [(one.as_wanted, one.paths) for one in found] == [(None, ()), (False, ("two[b]", "two[a]"))]


def test_verdicts_add_up_to_the_worst_that_is_certain() -> None:
    wanted, drifted, unknown = (Finding("x", verdict) for verdict in (True, False, None))
    assert verdict_of([]) is True
    assert verdict_of([wanted, wanted]) is True
    assert verdict_of([wanted, unknown]) is None
    assert verdict_of([drifted, unknown]) is False


# The intent that is kept -------------------------------------------------------------------


def test_only_what_a_boot_loses_is_kept_and_it_says_the_same_again() -> None:
    intent = {"kernel_iommu": "passthrough", "gpudirect_allow": "host", **PAGES, "kernel_hugepages_keep_mib": 4096}
    lost = site.lost_at_boot(intent)
    assert lost == {**PAGES, "kernel_hugepages_keep_mib": 4096}
    assert site.brought_back(lost) == [(hugepages, hugepages.parse(lost))]
    assert site.lost_at_boot({"kernel_iommu": "passthrough", "kernel_hugepages_keep_mib": 4096}) == {}


def test_options_of_another_release_are_refused_by_name() -> None:
    with pytest.raises(IntentError) as caught:
        site.brought_back(
            {"kernel_hugepage": [], "kernel_args_absent": ["nosmt"], "kernel_hugepages": [{"size": "3G"}]}
        )
    assert [problem.path for problem in caught.value.problems] == [
        "kernel_args_absent",
        "kernel_hugepage",
        "kernel_hugepages[0].size",
    ]


# Metrics -----------------------------------------------------------------------------------


def test_metrics_tell_the_three_verdicts_apart() -> None:
    path = 'sriov[0000:3b:00.0].vf[1].mac "x"\\\n'
    drifted = Finding("sriov", False, (path, "sriov[0000:3b:00.0].mtu"), (Problem("p", "f", "a"),))
    text = metrics.render([Finding("hugepages", True), drifted, Finding("pci_driver", None)])
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        "gpudirect_intent_usable 1",
        'gpudirect_judged{resource="hugepages"} 1',
        'gpudirect_judged{resource="sriov"} 1',
        'gpudirect_judged{resource="pci_driver"} 0',
        'gpudirect_as_wanted{resource="hugepages"} 1',
        'gpudirect_as_wanted{resource="sriov"} 0',
        'gpudirect_drift{resource="sriov",path="sriov[0000:3b:00.0].vf[1].mac \\"x\\"\\\\\\n"} 1',
        'gpudirect_drift{resource="sriov",path="sriov[0000:3b:00.0].mtu"} 1',
    ]


def test_an_intent_that_cannot_be_used_is_a_metric_too() -> None:
    lines = metrics.render(None).splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["gpudirect_intent_usable 0"]
    assert len([line for line in lines if line.startswith("# TYPE")]) == 5
