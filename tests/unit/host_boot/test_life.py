"""host_boot from the first run to the last: installed, booted, changed, cut off anywhere, and gone without a trace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import host_boot, hugepages, kernel_args, site
from ansible_collections.vela.gpudirect.plugins.module_utils.at_boot import units
from ansible_collections.vela.gpudirect.plugins.module_utils.at_boot.command_line import main
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import ApplyFailed, HostRefused, IntentError
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host

from tests.fixtures import hosts, runs
from tests.fixtures.fake_host import FakeHost, KilledHere
from tests.fixtures.runs import changed, one, settle
from tests.unit.host_boot.conftest import PAGES

METRICS = "/var/lib/prometheus/node-exporter"
OTHER: dict[str, Any] = {
    "kernel_hugepages": [{"size": "1G", "nodes": {"0": 2, "1": 6}}],
    "host_boot_drift_interval": "never",
}
MOVED: dict[str, Any] = {**PAGES, "host_boot_metrics_path": "/srv/m/x.prom", "host_boot_device_timeout_s": 5}
STORIES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "install": ([], PAGES),
    "change": ([PAGES], OTHER),
    "move": ([PAGES], MOVED),
    "watch_again": ([OTHER], PAGES),
    "undo": ([PAGES], {}),
    "undo_of_a_move": ([PAGES, MOVED], {}),
}


@pytest.fixture
def found(root: Path) -> FakeHost:
    host = hosts.build(root / "found", "debian_12")
    for folder in (METRICS, "/srv/m"):
        host.path(folder).mkdir(parents=True)
    return host


def apply(host: FakeHost, intent: dict[str, Any]) -> None:
    one(host_boot, intent, host)


def live_on(host: FakeHost) -> FakeHost:
    """What the units do meanwhile: a watch writes its metrics where its unit says, and it may end badly."""
    words = host.text(f"{host_boot.unit_path(units.WATCH)}").split() if has_watch(host) else []
    if "--metrics" in words:
        host.put(words[words.index("--metrics") + 1], "metrics\n")
        host.systemd.fail(Path(host.root), units.WATCH)
    return host


def has_watch(host: FakeHost) -> bool:
    return host.path(host_boot.unit_path(units.WATCH)).exists()


def state(host: FakeHost) -> tuple[Any, Any]:
    """What is on the disk, and what systemd holds, but for what a failed watch leaves until its next run."""
    states = {unit: one for unit, one in host.systemd.states.items() if unit != units.WATCH}
    return {path: one for path, one in host.disk().items() if not path.endswith((".json", ".prom"))}, states


@pytest.mark.parametrize("story", STORIES)
def test_cut_off_anywhere_the_next_run_completes_it_and_undo_leaves_nothing(
    story: str, found: FakeHost, root: Path
) -> None:
    before, intent = STORIES[story]
    prepared = found.clone(root / "prepared")
    for settled in before:
        apply(prepared, settled)
        live_on(prepared)
    whole = prepared.clone(root / "whole")
    apply(whole, intent)
    counted = 0
    for host in cuts(prepared, intent, root):
        counted += 1
        apply(live_on(host), intent)
        assert state(host) == state(whole)
        assert not one(host_boot, intent, host, check=True).plan.changes
        apply(live_on(host), {})
        assert host.disk() == found.disk()
        assert (host.systemd.states, host.systemd.kept) == ({}, {})
    assert counted > 5


def cuts(prepared: FakeHost, intent: dict[str, Any], root: Path) -> Iterator[FakeHost]:
    counted = prepared.clone(root / "counted").revive()
    apply(counted, intent)
    total = len(counted.acts)
    for number in range(1, total + 2):
        host = prepared.clone(root / str(number))
        host = host.die_before(number) if number <= total else host.die_after(total)
        with pytest.raises(KilledHere):
            apply(host, intent)
        yield host.revive()


def test_a_folder_that_a_cut_removal_left_goes_with_the_next_run(found: FakeHost) -> None:
    before = found.disk()
    apply(found, PAGES)
    found.path(units.ENGINE).unlink()
    found.path("/etc/gpudirect/intent.json").unlink()
    apply(found, {})
    assert found.disk() == before


def test_the_record_is_on_disk_before_the_first_file(found: FakeHost) -> None:
    apply(found.revive(), PAGES)
    assert found.acts[:2] == ["write /var/lib/gpudirect/owned.json", f"write {units.ENGINE}"]


def test_installing_runs_nothing_of_it_and_a_boot_does(found: FakeHost) -> None:
    apply(found, PAGES)
    assert list(found.systemd.states) == [units.TIMER]
    found.boot()
    assert set(found.systemd.states) == {units.BOOT, units.READY, units.TIMER}
    assert not one(host_boot, PAGES, found, check=True).plan.changes


def test_a_host_that_was_not_ready_is_not_ready(found: FakeHost) -> None:
    apply(found, PAGES)
    found.systemd.failing = frozenset({units.BOOT})
    found.boot()
    assert found.systemd.states[units.BOOT][0] == "failed"
    assert units.READY not in found.systemd.states
    assert not one(host_boot, PAGES, found, check=True).plan.changes  # its own files are right; why it failed is told


def test_pages_that_a_boot_did_not_give_are_asked_for_again_by_the_boot_run(found: FakeHost) -> None:
    settle(PAGES, found)
    found.boot_room = {(1, "1G"): 2}
    assert found.boot().pages("1G") == {0: 4, 1: 2}
    assert main(["boot", "--allow", "link"], found) == 0
    assert found.pages("1G") == {0: 4, 1: 4}
    # Another kernel with an initramfs of its own: nothing of this lies in either.
    found.put("/boot/vmlinuz-6.1.0-29-amd64", "")
    found.run(["update-grub"])
    assert found.boot().pages("1G") == {0: 4, 1: 2}
    assert main(["boot", "--allow", "link"], found) == 0
    assert found.pages("1G") == {0: 4, 1: 4}
    assert not changed(runs.run(PAGES, found, check=True))


def test_it_is_the_last_resource_so_that_it_installs_what_the_round_has_proven() -> None:
    assert site.RESOURCES[-1] is host_boot
    losing = [resource for resource in site.RESOURCES if hasattr(resource, "lost_at_boot")]
    assert hugepages in losing
    assert kernel_args not in losing
    assert host_boot not in losing


def test_an_engine_that_was_not_handed_over_or_is_another_one_is_refused(found: FakeHost) -> None:
    options = runs.options_of(host_boot, PAGES, found)
    with found.only_read(), pytest.raises(HostRefused, match="host_boot_engine: the engine was not handed over"):
        runs.converge(host_boot, {**options, host_boot.ENGINE: None}, found, allow=0, check=False)  # type: ignore[arg-type]
    for wrong in ({host_boot.ARCHIVE: ""}, {host_boot.ARCHIVE: "/run/none"}, {host_boot.ENGINE: "0" * 64}):
        with pytest.raises(ApplyFailed, match="is not the one that was announced"):
            runs.converge(host_boot, {**options, **wrong}, found, allow=0, check=False)  # type: ignore[arg-type]
        assert not found.path(units.ENGINE).exists()


def test_names_that_are_handed_over_are_no_variables() -> None:
    with pytest.raises(IntentError, match="host_boot_engine: is not a known name"):
        site.intent_of({"host_boot_engine": "0" * 64})
    assert not {host_boot.LOST, host_boot.ENGINE, host_boot.ARCHIVE} & site.known_variables()


def test_a_captured_tree_is_judged_by_its_files(found: FakeHost) -> None:
    apply(found, PAGES)
    captured = Host(found.root)
    options = runs.options_of(host_boot, PAGES, found)
    report = runs.converge(host_boot, options, captured, allow=0, check=True)  # type: ignore[arg-type]
    assert report.plan.changes == ()
    found.put(host_boot.unit_path(units.BOOT), f"{units.MARK}[Unit]\n")
    report = runs.converge(host_boot, options, captured, allow=0, check=True)  # type: ignore[arg-type]
    assert [change.path for change in report.plan.changes] == [f"host_boot.unit[{units.BOOT}]", "host_boot.loaded"]


def test_text_of_the_intent_does_not_depend_on_which_defaults_were_spelt_out(found: FakeHost) -> None:
    """In site.yml the defaults of every role are variables; in a play of this role alone they are not."""
    defaults = {entry.name: entry.default for schema in site.SCHEMAS for entry in schema.fields}
    apply(found, PAGES)
    spelt = {name: value for name, value in {**defaults, **PAGES}.items() if not name.startswith("gpudirect_")}
    assert not one(host_boot, spelt, found, check=True).plan.changes
