"""The command of a host: what it says at the end of a boot, its exit status, and the watch's file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.at_boot import intent
from ansible_collections.vela.gpudirect.plugins.module_utils.at_boot.command_line import main
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host

from tests.fixtures.fake_host import FakeHost
from tests.fixtures.runs import settle
from tests.unit.host_boot.conftest import PAGES

NODE = "/sys/devices/system/node/node1/hugepages/hugepages-1048576kB"


@pytest.fixture
def installed(debian: FakeHost) -> FakeHost:
    settle(PAGES, debian)
    return debian.boot()


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_a_boot_that_finds_all_well_says_so_and_writes_nothing(
    installed: FakeHost, capsys: pytest.CaptureFixture[str]
) -> None:
    before = installed.disk()
    assert main(["boot", "--allow", "link"], installed) == 0
    assert said(capsys) == ["This host is ready for its guests: hugepages as wanted."]
    assert installed.disk() == before


def test_a_boot_brings_back_what_is_missing(installed: FakeHost, capsys: pytest.CaptureFixture[str]) -> None:
    installed.put(f"{NODE}/nr_hugepages", "1\n")
    assert main(["boot", "--allow", "link", "--device-timeout-s", "60"], installed) == 0
    assert installed.pages("1G") == {0: 4, 1: 4}
    assert said(capsys) == [
        "hugepages: 1 changes made: hugepages[1G].node1",
        "This host is ready for its guests: hugepages as wanted.",
    ]


def test_a_host_that_is_not_ready_says_why_at_the_end(installed: FakeHost, capsys: pytest.CaptureFixture[str]) -> None:
    installed.nodes = {0: 65536, 1: 2048}
    installed.put("/sys/devices/system/node/node1/meminfo", "Node 1 MemTotal:  2097152 kB\n")
    assert main(["boot", "--device-timeout-s", "30"], installed) == 1
    lines = said(capsys)
    assert installed.clock_s == 30
    assert lines[0].startswith("not yet: kernel_hugepages: node 1 is smaller than its pages ")
    assert lines[1] == lines[0].replace("not yet:", "not ready:")
    assert lines[2] == (
        "This host is not ready for its guests: hugepages not as wanted. "
        "Mend the causes, then run site.yml or systemctl restart gpudirect-boot.service."
    )


def test_a_boot_without_the_record_takes_no_device(installed: FakeHost, capsys: pytest.CaptureFixture[str]) -> None:
    installed.path("/var/lib/gpudirect/owned.json").unlink()
    installed.put(f"{NODE}/nr_hugepages", "1\n")
    with installed.only_read():
        assert main(["boot"], installed) == 2
    assert "the record of what this product changed is gone" in said(capsys)[0]


def test_a_boot_can_answer_with_one_document(installed: FakeHost, capsys: pytest.CaptureFixture[str]) -> None:
    installed.put(f"{NODE}/nr_hugepages", "1\n")
    assert main(["boot", "--json"], installed) == 0
    document = json.loads(capsys.readouterr().out)
    resource = {"verdict": "as wanted", "paths": ["hugepages[1G].node1"], "mended": [], "reasons": []}
    assert document == {"verdict": "as wanted", "problems": [], "resources": {"hugepages": resource}}


@pytest.mark.parametrize("verb", ["drift", "plan"])
def test_looking_changes_nothing(verb: str, installed: FakeHost, capsys: pytest.CaptureFixture[str]) -> None:
    installed.put(f"{NODE}/nr_hugepages", "1\n")
    with installed.only_read():
        assert main([verb], installed) == 1
    assert said(capsys)[-1] == "This host is not as its intent says: hugepages not as wanted."


def test_the_watch_leaves_its_metrics(installed: FakeHost) -> None:
    path = "/var/lib/node_exporter/gpudirect.prom"
    assert main(["drift", "--metrics", path], installed) == 0
    assert 'gpudirect_as_wanted{resource="hugepages"} 1\n' in installed.text(path)
    installed.put(f"{NODE}/nr_hugepages", "1\n")
    assert main(["drift", "--metrics", path], installed) == 1
    assert 'gpudirect_drift{resource="hugepages",path="hugepages[1G].node1"} 1\n' in installed.text(path)
    assert installed.acts[-1] == f"write {path}"
    installed.path(intent.PATH).unlink()
    assert main(["drift", "--metrics", path], installed) == 2
    assert "gpudirect_intent_usable 0\n" in installed.text(path)


def test_what_cannot_be_judged_has_a_status_of_its_own(installed: FakeHost, capsys: pytest.CaptureFixture[str]) -> None:
    with installed.exclusive():
        assert main(["drift"], installed) == 2
    assert said(capsys)[-1] == "This host is not fully judged: hugepages unknown."


def test_an_intent_that_asks_for_nothing_is_met(installed: FakeHost, capsys: pytest.CaptureFixture[str]) -> None:
    installed.put(intent.PATH, intent.render({}))
    assert main(["boot"], installed) == 0
    assert said(capsys) == ["This host is ready for its guests: nothing is asked for."]


def test_without_a_host_the_command_is_about_the_one_it_runs_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    roots: list[str] = []

    def load(host: Host, path: str = intent.PATH) -> dict[str, Any]:
        roots.append(host.root)
        return {}

    monkeypatch.setattr(intent, "load", load)
    assert main(["plan"]) == main(["plan", "--root", str(tmp_path)]) == main(["plan", "--intent", "/x"]) == 0
    assert roots == ["/", str(tmp_path), "/"]


@pytest.mark.parametrize("fact", ["is not there", "is no folder", "has no captured /sys in it"])
def test_a_root_that_is_no_captured_machine_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fact: str
) -> None:
    made = {"is no folder": (tmp_path / "a").touch, "has no captured /sys in it": (tmp_path / "a").mkdir}
    made.get(fact, tmp_path.exists)()
    assert main(["plan", "--root", str(tmp_path / "a")]) == 2
    assert said(capsys)[0].startswith(
        f"--root: {fact} (found {tmp_path / 'a'}, wanted a folder with sys/bus/pci/devices)"
    )


@pytest.mark.parametrize("option", ["--root", "--intent"])
def test_an_empty_path_is_not_taken_for_none(capsys: pytest.CaptureFixture[str], option: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["plan", option, ""])
    assert f"argument {option}: is empty, wanted a path" in capsys.readouterr().err
