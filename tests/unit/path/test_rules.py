"""Rules and wishes that no captured file shows: guests, odd trees, wanted words, what a run will still set."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import p2p
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import ABSENT
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import IntentError
from ansible_collections.vela.gpudirect.plugins.module_utils.path.finding import Kind, Report, Verdict
from ansible_collections.vela.gpudirect.plugins.module_utils.path.intent import FIELDS, PathIntent
from ansible_collections.vela.gpudirect.plugins.module_utils.path.routes import Routes
from ansible_collections.vela.gpudirect.plugins.module_utils.path.rules import RELAXABLE, RULES
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.address import Address
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.machine import Machine, Platform
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.tree import Tree

from tests.unit.path.machines import GONE, changed, host, named

NIC, GPU = 0x15B3, 0x10DE


def of(report: Report, rule: str) -> list[Verdict]:
    return [one.verdict for one in report.findings if one.rule == rule]


def test_every_rule_has_code_and_every_code_a_rule() -> None:
    of_files = {name for name in RULES if name.startswith("file_")} | {"shared_nics", "nic_vendor", "consistent"}
    assert set(p2p._LOOKS) | {"relaxation_unused"} | of_files == set(RULES)


def test_texts_are_sentences() -> None:
    for name, rule in RULES.items():
        assert rule.name == name
        assert rule.modes
        for words in (rule.why, rule.remedy, rule.if_unknown):
            assert words[0].isupper(), name
            assert words.endswith("."), name


def test_what_is_not_known_is_answered_with_what_makes_it_known() -> None:
    answers = ("Give ", "Read ", "Supply ", "Judge ")
    assert {name for name, rule in RULES.items() if not rule.if_unknown.startswith(answers)} == set()
    machine = host("vela")
    machine = replace(machine, platform=replace(machine.platform, memory_encryption=GONE))
    (said,) = [one for one in p2p.judge(machine, PathIntent()).findings if one.rule == "memory_encryption"]
    assert (said.verdict, said.remedy) == (Verdict.UNKNOWN, RULES["memory_encryption"].if_unknown)
    assert "Give input that has /proc/cpuinfo" in said.remedy


@pytest.mark.parametrize(
    ("told", "verdicts"),
    [(True, [Verdict.FAIL]), (False, [Verdict.OK]), (ABSENT, []), (GONE, [Verdict.UNKNOWN])],
)
def test_iommufd_is_judged_where_a_guest_is_known(told: object, verdicts: list[Verdict]) -> None:
    machine = host("vela")
    machine = replace(machine, platform=replace(machine.platform, iommufd=told))  # type: ignore[arg-type]
    report = p2p.judge(machine, PathIntent())
    assert of(report, "iommufd") == verdicts
    assert {one.rule for one in report.findings if one.verdict != Verdict.OK} <= {"iommufd"}


def test_words_and_read_requests_that_pci_path_sets() -> None:
    machine = host("cascaded")
    words = {str(address): want for address, want in p2p.wanted_words(machine, PathIntent()).items()}
    assert {address: (want.set_bits, want.clear_bits) for address, want in words.items()} == {
        "0000:20:01.0": (0x1D, 0x02),
        "0000:21:00.0": (0x1D, 0x02),
        "0000:22:00.0": (0x1D, 0x02),
        "0000:22:01.0": (0x5D, 0x02),
        "0000:24:00.0": (0x1D, 0x02),
        "0000:25:00.0": (0x5D, 0x02),
    }
    assert words["0000:25:00.0"].why == "the port towards the NIC"
    assert {want.set_bits for want in p2p.wanted_words(machine, PathIntent(mode="bare_metal")).values()} == {0}
    assert {want.clear_bits for want in p2p.wanted_words(machine, PathIntent(mode="bare_metal")).values()} == {0x1D}
    assert p2p.wanted_words(machine, PathIntent(mode="virtio_vm")) == {}
    assert [*p2p.wanted_read_requests(machine, PathIntent()).values()] == [4096]
    assert p2p.wanted_read_requests(machine, PathIntent(mode="bare_metal")) == {}


def test_ports_and_nics_off_every_path_are_left_alone() -> None:
    machine = host("vela")
    wanted = p2p.wanted_words(machine, p2p.parse({"pci_path_gpus": [{"address": "0000:23:00.0"}]}))
    assert {address.bus for address in wanted} == {0x20, 0x21, 0x22}


def test_selected_vfs_stand_for_their_pf() -> None:
    report = p2p.judge(host("vela"), p2p.parse({"pci_path_nics": [{"vfs_of": {"address": "0000:24:00.0"}}]}))
    assert [str(one) for one in report.nics] == ["0000:24:00.0"]
    assert {pair.kind for pair in report.pairs} == {Kind.PIX, Kind.SYS}


def test_a_later_step_of_the_run_defers_one_device_only() -> None:
    machine = host("vela")
    first, second = named(machine, NIC)
    for one in (first, second):
        machine = changed(machine, one.address, config=host("bare").tree.functions[one.address].config)
    report = p2p.judge(machine, PathIntent(), {("ats_present", first.address): "nic_firmware"})
    assert of(report, "ats_present") == [Verdict.DEFERRED, Verdict.FAIL]
    assert [pair.verdict for pair in report.pairs if pair.judged][0] == Verdict.DEFERRED


def test_a_relaxation_for_one_device_leaves_the_others() -> None:
    machine = host("vela")
    for one in named(machine, NIC):
        machine = changed(machine, one.address, config=host("bare").tree.functions[one.address].config)
    relax = {"rule": "ats_present", "reason": "a test card", "select": {"address": "0000:24:00.0"}}
    report = p2p.judge(machine, p2p.parse({"pci_path_relax": [relax]}))
    assert of(report, "ats_present") == [Verdict.OK, Verdict.FAIL]
    assert [(one.rule, one.reason, one.findings) for one in report.relaxed] == [("ats_present", "a test card", 1)]


def test_a_relaxation_for_a_gpu_covers_ports_of_its_pairs_alone() -> None:
    machine = host("vela")
    gpu = named(machine, GPU)[0]
    port = machine.tree.functions[gpu.address].parent
    assert port is not None
    for shared, covered in ((gpu.address, True), (named(machine, GPU)[1].address, False)):
        relax = {"rule": "acs_redirect", "reason": "a test", "select": {"address": str(shared)}}
        report = p2p.judge(changed(machine, port, config=type(gpu.config)()), p2p.parse({"pci_path_relax": [relax]}))
        assert (Verdict.UNKNOWN not in of(report, "acs_redirect")) == covered


def test_wrong_relaxations_are_errors_of_the_input() -> None:
    twice = [{"rule": "link_width", "reason": "x"}, {"rule": "link_width", "reason": "y"}]
    with pytest.raises(IntentError, match=r"pci_path_relax\[1\]: relaxes the same as pci_path_relax\[0\]"):
        p2p.parse({"pci_path_relax": twice})
    with pytest.raises(IntentError, match="is no rule that can be relaxed"):
        p2p.parse({"pci_path_relax": [{"rule": "relaxation_unused", "reason": "x"}]})
    with pytest.raises(IntentError, match="pci_path_relaxed: is not a known name"):
        p2p.parse({"pci_path_relaxed": []})
    assert "relaxation_unused" not in RELAXABLE
    assert all(entry.name.startswith("pci_path_") or entry.name == "gpudirect_mode" for entry in FIELDS)


# Odd trees -------------------------------------------------------------------------------


def test_bridges_in_a_circle_end() -> None:
    machine = host("vela")
    gpu, nic = named(machine, GPU)[0], named(machine, NIC)[0]
    assert gpu.parent is not None
    upper = machine.tree.functions[gpu.parent].parent
    assert upper is not None
    looped = changed(machine, upper, parent=gpu.parent)
    routes = Routes(looped)
    assert routes.between(gpu, nic).kind == routes.between(nic, gpu).kind == Kind.UNKNOWN
    report = p2p.judge(looped, PathIntent())
    assert of(report, "same_switch")[0] == Verdict.UNKNOWN


def test_a_bridge_that_is_its_own_parent_ends() -> None:
    machine = host("vela")
    gpu = named(machine, GPU)[0]
    assert gpu.parent is not None
    assert Verdict.UNKNOWN in of(
        p2p.judge(changed(machine, gpu.parent, parent=gpu.parent), PathIntent()), "same_switch"
    )


def test_a_missing_bridge_is_no_shorter_way() -> None:
    machine = host("vela")
    gpu = named(machine, GPU)[0]
    functions = {address: one for address, one in machine.tree.functions.items() if address != gpu.parent}
    report = p2p.judge(replace(machine, tree=replace(machine.tree, functions=functions)), PathIntent())
    assert of(report, "same_switch").count(Verdict.UNKNOWN) >= 1
    assert report.verdict == Verdict.UNKNOWN


def test_a_machine_of_which_nothing_is_known() -> None:
    report = p2p.judge(Machine(Tree(), Platform(), partial=True), PathIntent())
    assert report.verdict == Verdict.UNKNOWN
    assert not report.pairs


def test_the_nearest_nics_are_all_those_that_are_as_near() -> None:
    machine = host("vela")
    nic = named(machine, NIC)[0]
    twin = replace(nic, address=Address(0, nic.address.bus, 0, 7))
    functions = {**machine.tree.functions, twin.address: twin}
    report = p2p.judge(replace(machine, tree=replace(machine.tree, functions=functions)), PathIntent())
    assert report.best[named(machine, GPU)[0].address] == (nic.address, twin.address)


def test_pairs_that_are_not_judged_have_no_verdict() -> None:
    report = p2p.judge(host("vela"), PathIntent())
    assert {(pair.kind, pair.judged, pair.verdict) for pair in report.pairs} == {
        (Kind.PIX, True, Verdict.OK),
        (Kind.SYS, False, Verdict.UNKNOWN),
    }
