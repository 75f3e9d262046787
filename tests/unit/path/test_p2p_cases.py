"""Every folder below tests/cases/p2p is one behaviour: a host, an intent, and the report (or the error of the intent) that follows.

``host.yml`` names a host of tests/fixtures/p2p_hosts.py and what is different about it; ``alone`` names the rule that alone is not as
wanted. ``report.yml`` has what is not as wanted, and the lines for people; GPUDIRECT_REGENERATE=1 rewrites it, for a review by a person.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.vela.gpudirect.plugins.module_utils import p2p
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import IntentError
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host
from ansible_collections.vela.gpudirect.plugins.module_utils.path.facts import machine_of
from ansible_collections.vela.gpudirect.plugins.module_utils.path.finding import Report, Verdict
from ansible_collections.vela.gpudirect.plugins.module_utils.path.plain import plain, text
from ansible_collections.vela.gpudirect.plugins.module_utils.path.policy import TOPOLOGY
from ansible_collections.vela.gpudirect.plugins.module_utils.path.rules import RULES

from tests.fixtures.p2p_hosts import built

CASES = Path(__file__).resolve().parents[2] / "cases" / "p2p"
FOLDERS = sorted(folder.parent for folder in CASES.glob("*/host.yml"))
REGENERATE = os.environ.get("GPUDIRECT_REGENERATE") == "1"
# Tells that nothing was judged, and so has no bad side.
ONLY_TELLS = {"not_applicable"}
# Judged of guests, which no file of a host's sysfs tells: tests/unit/path/test_rules.py has both sides.
# Of guests, topology files and excerpts: tests/unit/audit has these.
NOT_OF_HOSTS = {name for name, rule in RULES.items() if rule.modes == (TOPOLOGY,)}
NOT_IN_SYSFS = {
    "iommufd",
    "domain_assignable",
    "nic_port_redirects",
    "acs_empty",
    "bars_resizable",
    "nvswitches_together",
    *NOT_OF_HOSTS,
}


class _Readable(yaml.SafeDumper):
    """Lists inside mappings are indented."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def loaded(folder: Path, name: str) -> Any:
    path = folder / name
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else None


def judged(folder: Path, root: Path) -> Report:
    told = loaded(folder, "host.yml")
    host = built(told["like"], told.get("edits", {}), told.get("files", {}), told.get("unplug", []))
    machine = machine_of(Host(str(host.write(root))), "host")
    coming = {(one["rule"], None): one["by"] for one in told.get("coming", [])}
    return p2p.judge(machine, p2p.parse(loaded(folder, "intent.yml") or {}), coming)


def shown(report: Report) -> dict[str, Any]:
    """What a person reviews: all but what is as wanted, and the reasons that stand in the table of rules."""
    everything = plain(report)
    findings = [
        {key: value for key, value in one.items() if key not in ("why", "remedy", "pairs")}
        for one in everything["findings"]
        if one["verdict"] != "OK" or "relaxed" in one
    ]
    names = ("verdict", "kinds", "best")
    return {**{name: everything[name] for name in names}, "findings": findings, "text": text(report)}


def outcome(folder: Path, root: Path) -> tuple[str, Any]:
    try:
        return "report.yml", shown(judged(folder, root))
    except IntentError as error:
        return "error.yml", {"problems": [str(problem) for problem in error.problems]}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_case(folder: Path, tmp_path: Path) -> None:
    name, found = outcome(folder, tmp_path)
    other = folder / ("report.yml" if name == "error.yml" else "error.yml")
    if REGENERATE:
        other.unlink(missing_ok=True)
        lines = yaml.dump(found, Dumper=_Readable, sort_keys=False, width=110, allow_unicode=True)
        (folder / name).write_text(f"---\n{lines}", encoding="utf-8")
    assert not other.exists(), f"{folder.name} gave {found}"
    assert found == loaded(folder, name)
    alone = loaded(folder, "host.yml").get("alone")
    if alone:
        assert {one["rule"] for one in found["findings"] if "relaxed" not in one} == {alone}


def test_every_rule_is_shown_failing_alone() -> None:
    shown_failing = {loaded(folder, "host.yml").get("alone") for folder in FOLDERS} - {None}
    assert shown_failing == set(RULES) - ONLY_TELLS - NOT_IN_SYSFS


def test_every_rule_is_shown_passing(tmp_path: Path) -> None:
    passing: set[str] = set()
    for folder in FOLDERS:
        if folder.name.startswith("good"):
            report = judged(folder, tmp_path / folder.name)
            passing |= {one.rule for one in report.findings if one.verdict == Verdict.OK and not one.relaxed}
            assert report.verdict == Verdict.OK, folder.name
    assert passing == set(RULES) - NOT_IN_SYSFS
