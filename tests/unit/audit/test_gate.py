"""What a host's paths do to a run: the part of host_plan, what stops a host, and who is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.vela.gpudirect.plugins.module_utils import site
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import IntentError
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host
from ansible_collections.vela.gpudirect.plugins.module_utils.path import gate
from ansible_collections.vela.gpudirect.plugins.module_utils.path.rules import RULES
from ansible_collections.vela.gpudirect.plugins.plugin_utils import paths

from tests.fixtures.p2p_hosts import built

ROOT = Path(__file__).resolve().parents[3]
ASKED = {"pci_path_max_distance": "phb"}


def host(folder: Path, name: str = "vela", **edits: Any) -> Host:
    return Host(str(built(name, edits, {}, []).write(folder / name)))


def test_an_inventory_that_says_nothing_of_paths_is_not_judged(tmp_path: Path) -> None:
    broken = host(tmp_path, "bare")
    assert gate.paths({"gpudirect_mode": "passthrough_vm"}, broken, ()) == {}
    assert "paths" not in site.look({}, broken, check=True, previous={})


def test_defaults_of_a_role_ask_for_nothing(tmp_path: Path) -> None:
    defaults = yaml.safe_load((ROOT / "roles" / "pci_path" / "defaults" / "main.yml").read_text())
    assert defaults
    assert gate.paths(defaults, host(tmp_path, "bare"), ()) == {}


def test_the_look_at_a_host_has_its_paths(tmp_path: Path) -> None:
    found = site.look(ASKED, host(tmp_path), check=True, previous={})["paths"]
    assert found["verdict"] == "OK"
    assert found["kinds"] == [["PIX", "SYS"], ["SYS", "PIX"]]
    assert found["findings"] == found["problems"] == []


def test_a_broken_path_is_said_in_sentences(tmp_path: Path) -> None:
    found = gate.paths(ASKED, host(tmp_path, nic0={"ats": None}), ())["paths"]
    assert found["verdict"] == "FAIL"
    (one,) = found["problems"]
    assert one.startswith("paths.ats_present: FAIL at 0000:24:00.0 (found it has no ATS, wanted ATS). Set ATS_ENABLED")
    assert "why" not in found["findings"][0]


def test_what_the_run_still_sets_is_deferred(tmp_path: Path) -> None:
    broken = host(tmp_path, port0_1={"acs": [0x5F, 0x1D]})
    assert gate.paths(ASKED, broken, ())["paths"]["verdict"] == "FAIL"
    found = gate.paths(ASKED, broken, ["pci_path"])["paths"]
    assert found["verdict"] == "DEFERRED"
    assert "pci_path" in found["findings"][0]["remedy"]


def test_rules_that_resources_set_are_rules() -> None:
    assert {rule for rules in gate.SETS.values() for rule in rules} <= set(RULES)


# The controller's side ---------------------------------------------------------------------


def result(verdict: str, **more: Any) -> dict[str, Any]:
    problems = [f"paths.same_switch: {verdict} (found x). Do y."] if verdict in ("FAIL", "UNKNOWN") else []
    finding = {"rule": "same_switch", "verdict": verdict}
    return {"paths": {"verdict": verdict, "mode": "bare_metal", "problems": problems, "findings": [finding]}, **more}


@pytest.mark.parametrize(
    ("verdict", "stop_at", "stopped"),
    [
        ("FAIL", "fail", True),
        ("FAIL", "unknown", True),
        ("FAIL", "never", False),
        ("UNKNOWN", "unknown", True),
        ("UNKNOWN", "fail", False),
        ("WARN", "unknown", False),
        ("DEFERRED", "unknown", False),
        ("OK", "unknown", False),
    ],
)
def test_what_stops_a_host(verdict: str, stop_at: str, stopped: bool) -> None:
    found = paths.told(result(verdict), "node-a", stop_at)
    assert bool(found.get("failed")) == stopped
    if stopped:
        assert found["problems"] == [f"paths.same_switch: {verdict} (found x). Do y."]
        assert "No guest is made" in found["msg"]
    elif verdict in ("WARN", "UNKNOWN") and stop_at != "never":
        assert found["warnings"][0].startswith("node-a: paths of GPUs and NICs:")


def test_a_look_without_paths_and_a_failed_one_stay_as_they_are() -> None:
    for one in ({"paths": None}, {}, {**result("FAIL"), "failed": True, "msg": "x"}):
        assert paths.told(dict(one), "node-a", "unknown") == one


def test_options_come_from_variables_and_the_task_counts() -> None:
    class Templar:
        def template(self, value: Any) -> Any:
            return value

    variables = {"gpudirect_mode": "bare_metal", "pci_path_max_distance": "sys", "kernel_iommu": "on"}
    found = paths.options(Templar(), variables, {"pci_path_max_distance": "phb"})
    assert found == {"gpudirect_mode": "bare_metal", "pci_path_max_distance": "phb", "gpudirect_root": "/"}
    with pytest.raises(IntentError, match="gpudirect_mode"):
        paths.options(Templar(), {"gpudirect_mode": "metal"}, {})


def test_the_summary_names_hosts_without_an_answer() -> None:
    known = {"a": {"x": result("OK")}, "b": {"x": result("FAIL")}, "c": {}}
    lines = paths.summary(["a", "b", "c", "d"], known, "x")["hosts"]
    assert lines[:2] == ["a: OK (bare_metal): same_switch", "b: FAIL (bare_metal): same_switch"]
    assert lines[2].startswith("c: not audited")
    assert lines[3].startswith("d: not audited")
    assert lines[4] == "1 of 4 hosts FAIL"
