"""The look at a host and its rounds: what is due, what waits, when a round is the last, and when it never ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.vela.gpudirect.plugins.module_utils import host_boot, hugepages, kernel_args, site
from ansible_collections.vela.gpudirect.plugins.module_utils.at_boot import command_line
from ansible_collections.vela.gpudirect.plugins.module_utils.core import edge
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Unreadable
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import (
    ConsentRequired,
    GpudirectError,
    Problem,
    UnreadableState,
    VerificationFailed,
)
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host
from ansible_collections.vela.gpudirect.plugins.modules import (
    guest_placement,
    host_plan,
    host_topology_info,
    p2p_topology,
)

from tests.fixtures import hosts
from tests.fixtures.fake_host import FakeHost
from tests.fixtures.runs import DIGEST, one, run

VELA = {
    "gpudirect_allow": "host",
    "kernel_iommu": "passthrough",
    "kernel_hugepages": [{"size": "1G", "per_node": 8}],
}
KEYS = {
    *(
        "plan",
        "blocked",
        "deferred",
        "awaiting_reboot",
        "awaiting_consent",
        "reboot_reasons",
        "reboot_required",
        "reboot_allowed",
    ),
    *("notes", "todo", "verified", "diff", "msg", "next"),
}


@pytest.fixture
def debian(tmp_path: Path) -> FakeHost:
    return hosts.build(tmp_path / "root", "debian_12")


def look(host: Host, intent: dict[str, Any], previous: Any = None, check: bool = False) -> dict[str, Any]:
    intent = {host_boot.ENGINE: DIGEST, **intent}
    if isinstance(host, FakeHost):
        with host.only_read():
            return site.look(intent, host, check=check, previous=previous or {})
    return site.look(intent, host, check=check, previous=previous or {})


def test_rounds_end_with_a_host_that_is_as_wanted(debian: FakeHost) -> None:
    first = look(debian, VELA)
    assert set(first) == KEYS
    assert first["todo"] == ["kernel_args", "hugepages", "host_boot", "reboot"]
    assert first["next"]["round"] == 1
    assert sorted(first["next"]["waiting"]) == ["kernel_args.live[intel_iommu]", "kernel_args.live[iommu]"]
    assert first["msg"] == (
        "13 changes to make, a reboot is needed for "
        "kernel_args.live[intel_iommu]: absent until the reboot, then intel_iommu=on; "
        "kernel_args.live[iommu]: absent until the reboot, then iommu=pt"
    )
    run(VELA, debian)
    debian.boot()
    second = look(debian, VELA, first["next"])
    assert (second["todo"], second["verified"], second["msg"]) == ([], True, "as wanted")
    assert second["next"] == {"round": 2, "waiting": {}, "rebooting_from": ""}


def test_a_second_run_says_nothing_is_to_do(debian: FakeHost) -> None:
    first = look(debian, VELA)
    run(VELA, debian)
    debian.boot()
    look(debian, VELA, first["next"])
    assert look(debian, VELA)["msg"] == "as wanted"


def test_a_reboot_that_is_not_allowed_is_left_and_named(debian: FakeHost) -> None:
    intent = {**VELA, "gpudirect_allow": "nothing"}
    first = look(debian, intent)
    assert first["todo"] == ["kernel_args", "hugepages", "host_boot"]
    assert (first["reboot_required"], first["reboot_allowed"], first["verified"]) == (True, False, False)
    assert "a reboot that gpudirect_allow does not cover, left for later, is needed for " in first["msg"]
    run(VELA, debian)
    second = look(debian, intent, first["next"])
    assert (second["todo"], second["verified"]) == ([], False)
    assert second["msg"].startswith("a reboot that gpudirect_allow does not cover")


def test_a_reboot_that_a_round_left_out_is_not_asked_for_again(debian: FakeHost) -> None:
    first = look(debian, VELA)
    run(VELA, debian)
    second = look(debian, VELA, first["next"])
    assert (second["todo"], second["reboot_required"]) == ([], True)
    assert look(debian, VELA)["todo"] == ["reboot"]


def test_a_reboot_that_did_not_bring_the_value_fails_in_the_next_round(debian: FakeHost) -> None:
    # Entries that are right without our doing: only the rounds know since when the value waits.
    debian.put("/etc/default/grub", 'GRUB_CMDLINE_LINUX="nosmt"\n')
    debian.run(["update-grub"])
    intent = {"gpudirect_allow": "host", "kernel_args": ["nosmt"]}
    first = look(debian, intent)
    assert first["todo"] == ["reboot"]
    line = debian.line()
    debian.boot()
    debian.put("/proc/cmdline", line + "\n")
    with pytest.raises(VerificationFailed, match=r"kernel_args\.live\[nosmt\]: was written before the last boot"):
        look(debian, intent, first["next"])


def test_a_value_keeps_the_boot_in_which_it_was_first_seen_to_wait(debian: FakeHost) -> None:
    boot = debian.boot_id()
    first = look(debian, VELA)
    assert set(first["next"]["waiting"].values()) == {boot}
    run(VELA, debian)
    previous = {"round": 1, "waiting": dict.fromkeys(first["next"]["waiting"], boot)}
    assert look(debian, VELA, previous)["next"]["waiting"] == previous["waiting"]


def test_rounds_that_do_not_settle_are_an_error_after_six(debian: FakeHost) -> None:
    assert look(debian, VELA, {"round": 5})["todo"]
    with pytest.raises(
        VerificationFailed,
        match="site: does not settle in 6 rounds; left are kernel_args, hugepages, host_boot, reboot",
    ):
        look(debian, VELA, {"round": 6})
    run(VELA, debian)
    debian.boot()
    assert look(debian, VELA, {"round": 6})["verified"] is True


def test_consent_that_lacks_is_shown_in_check_mode_and_an_error_otherwise(debian: FakeHost) -> None:
    run(VELA, debian)
    debian.boot()
    debian.use(0, "1G", 8)
    intent = {**VELA, "gpudirect_allow": "link", "kernel_hugepages": [{"size": "1G", "per_node": 4}]}
    shown = look(debian, intent, check=True)
    assert [change["path"] for change in shown["blocked"]] == ["hugepages[1G].node0"]
    assert "1 of them blocked: hugepages[1G].node0" in shown["msg"]
    with pytest.raises(ConsentRequired, match="Set gpudirect_allow: guest when that is meant"):
        look(debian, intent)


def test_problems_of_all_resources_are_told_together(tmp_path: Path) -> None:
    host = hosts.build(tmp_path / "root", "no_iommu")
    with pytest.raises(GpudirectError) as caught:
        look(host, {**VELA, "kernel_hugepages": [{"size": "1G", "nodes": {9: 1}}]})
    assert [problem.path for problem in caught.value.problems] == [
        "/sys/firmware/acpi/tables",
        "kernel_hugepages[0].nodes[9]",
    ]


def test_a_look_plans_what_the_modules_do(debian: FakeHost) -> None:
    planned = look(debian, VELA)["plan"]
    assert planned == [
        change.as_result()
        for resource in (kernel_args, hugepages, host_boot)
        for change in one(resource, VELA, debian).plan.changes
    ]


def test_a_captured_tree_is_judged_and_left_alone(debian: FakeHost) -> None:
    captured = Host(debian.root)
    seen = look(captured, VELA)
    assert seen["todo"] == []
    assert seen["plan"]
    assert seen["verified"] is False


def test_without_intent_nothing_is_to_do_anywhere(tmp_path: Path) -> None:
    host = hosts.build(tmp_path / "root", "no_loader")
    assert look(host, {})["msg"] == "as wanted"


# A captured tree ---------------------------------------------------------------------------


def test_a_root_that_is_no_captured_machine_is_named_as_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "node.tar.gz").write_bytes(b"\x1f\x8b")
    (tmp_path / "empty").mkdir()
    (tmp_path / "part/proc").mkdir(parents=True)
    facts = {"gone": "is not there", "node.tar.gz": "is no folder"}
    facts |= dict.fromkeys(("empty", "part"), "has no captured /sys in it")
    for name, fact in facts.items():
        with pytest.raises(UnreadableState) as raised:
            site.require_capture(Host(str(tmp_path / name)))
        assert str(raised.value) == (
            f"gpudirect_root: {fact} (found {tmp_path / name}, wanted a folder with sys/bus/pci/devices). "
            "Unpack the archive first, or give it to ./gpudirect audit."
        )


def test_a_root_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "turning").symlink_to("turning")
    with pytest.raises(
        UnreadableState, match=r"^gpudirect_root: cannot be read: .*Too many levels.* See who may read it"
    ):
        site.require_capture(Host(str(tmp_path / "turning")))


def test_a_captured_machine_and_the_host_itself_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    site.require_capture(Host(str(tmp_path)))
    site.require_capture(Host())


def test_every_module_that_takes_a_root_names_a_wrong_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = {"gpudirect_root": str(tmp_path)}
    given = {"intent": json.dumps(root)}
    for module, options in (
        (host_plan, given), (guest_placement, given), (p2p_topology, given), (host_topology_info, root),
    ):  # fmt: skip
        with patch_module_args(options), pytest.raises(SystemExit):
            module.main()
        result = json.loads(capsys.readouterr().out)
        assert result["msg"].startswith("gpudirect_root: has no captured /sys in it"), module.__name__
        assert len(result["problems"]) == 1


# What is told of a captured tree -----------------------------------------------------------


@pytest.mark.parametrize("below", ["tree", "var/tree"])
def test_a_problem_of_a_captured_tree_names_its_file_and_not_that_of_this_machine(tmp_path: Path, below: str) -> None:
    """Or somebody removes the record of the machine that he sits at."""
    root = f"{tmp_path}/{below}"
    why = Unreadable("/sys/x: Permission denied")
    problem = Problem(
        "/var/lib/gpudirect/owned.json", f"is none: {why.cause} ({root}/etc/a)", "See /proc/cmdline, a/usr/b.", root
    )
    found = str(edge.located(problem, Host(root)))
    assert found == (
        f"{root}/var/lib/gpudirect/owned.json: is none: {root}/sys/x: Permission denied ({root}/etc/a) (found {root}). "
        f"See {root}/proc/cmdline, a/usr/b."
    )
    assert edge.located(problem, Host()) is problem


def test_every_module_names_a_damaged_record_in_its_tree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    record = tmp_path / "var/lib/gpudirect/owned.json"
    record.parent.mkdir(parents=True)
    record.write_text("{")
    given = {"intent": json.dumps({"gpudirect_root": str(tmp_path), "guest_shapes": []})}
    for module in (host_plan, guest_placement):
        with patch_module_args(given), pytest.raises(SystemExit):
            module.main()
        result = json.loads(capsys.readouterr().out)
        assert result["problems"][0].startswith(f"{record}: "), module.__name__
        assert result["msg"] == "\n".join(result["problems"])
    intent = tmp_path / "intent.json"
    intent.write_text(json.dumps({"version": 1, "options": {"kernel_hugepages": [{"size": "2M", "per_node": 1}]}}))
    command_line.main(["plan", "--root", str(tmp_path), "--intent", str(intent)])
    assert f"\n{record}: " in f"\n{capsys.readouterr().out}"
    intent.write_text("{")
    command_line.main(["plan", "--root", str(tmp_path), "--intent", str(intent)])
    assert f"{tmp_path}{tmp_path}" not in capsys.readouterr().out
