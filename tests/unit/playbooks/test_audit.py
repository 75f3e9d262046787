"""playbooks/audit.yml and the gate by real runs of Ansible: captured trees stand for hosts, and nothing is written to them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.p2p_hosts import built

ROOT = Path(__file__).resolve().parents[3]
REPORTS = ROOT / "reports/audit"


def inventory(folder: Path, **hosts: dict[str, Any]) -> Path:
    common = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    known = {name: {**common, **variables} for name, variables in hosts.items()}
    path = folder / "inventory.json"
    path.write_text(json.dumps({"gpudirect_hosts": {"hosts": known}}))
    return path


def played(folder: Path, playbook: Path, *arguments: str) -> tuple[int, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    done = subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), "-i", folder / "inventory.json", *arguments, playbook],
        env={**kept, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "HOME": str(folder), "COLUMNS": "1000"},
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def tree(folder: Path, name: str) -> str:
    return str(built(name, {}, {}, []).write(folder / name))


def listed(folder: str) -> list[tuple[str, int]]:
    return sorted((str(path), path.lstat().st_mtime_ns) for path in Path(folder).rglob("*"))


def test_hosts_are_judged_each_and_those_that_do_not_answer_are_named(tmp_path: Path) -> None:
    good, bad = tree(tmp_path, "vela"), tree(tmp_path, "bare")
    before = listed(good), listed(bad)
    inventory(
        tmp_path,
        **{
            "t-good": {"gpudirect_root": good},
            "t-bad": {"gpudirect_root": bad},
            "t-bare": {"gpudirect_root": bad, "gpudirect_mode": "bare_metal"},
            "t-gone": {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1},
        },
    )
    code, text = played(tmp_path, ROOT / "playbooks/audit.yml", "-e", "ansible_become=false")
    assert code != 0
    assert "t-good: OK (passthrough_vm)" in text
    assert "t-bare: OK (bare_metal)" in text
    assert "t-bad: FAIL (passthrough_vm)" in text
    assert "t-gone: not audited" in text
    assert "1 of 4 hosts FAIL" in text
    assert "paths.ats_present: FAIL at 0000:24:00.0, 0000:64:00.0" in text
    assert (listed(good), listed(bad)) == before
    try:
        for name, verdict in (("t-good", "OK"), ("t-bad", "FAIL"), ("t-bare", "OK")):
            assert json.loads((REPORTS / f"{name}.json").read_text())["verdict"] == verdict
            assert (REPORTS / f"{name}.txt").read_text().startswith(verdict)
            assert (REPORTS / f"{name}.svg").read_text().startswith("<")
    finally:
        for path in REPORTS.glob("t-*"):
            path.unlink()
    code, text = played(tmp_path, ROOT / "playbooks/audit.yml", "-e", "ansible_become=false", "--limit", "t-good")
    assert (code, "t-bad" in text) == (0, False)
    for path in REPORTS.glob("t-*"):
        path.unlink()


def test_a_file_is_judged_on_the_control_node(tmp_path: Path) -> None:
    inventory(tmp_path)
    bundle = tmp_path / "t-bundle"
    shutil.move(tree(tmp_path, "vela"), bundle)
    code, text = played(
        tmp_path, ROOT / "playbooks/audit.yml", "-e", f"audit_file={bundle}", "-e", "gpudirect_mode=passthrough_vm"
    )
    assert code == 0, text
    assert "localhost: OK (passthrough_vm)" in text
    for path in REPORTS.glob("t-*"):
        path.unlink()


@pytest.mark.parametrize(("name", "stopped"), [("vela", False), ("bare", True)])
def test_the_gate_stops_a_host_before_guests(tmp_path: Path, name: str, stopped: bool) -> None:
    inventory(tmp_path, here={"gpudirect_root": tree(tmp_path, name), "gpudirect_mode": "passthrough_vm"})
    play = tmp_path / "play.json"
    tasks = [{"vela.gpudirect.p2p_topology": {}}, {"ansible.builtin.debug": {"msg": "guests are made"}}]
    play.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    code, text = played(tmp_path, play)
    assert (code != 0, "guests are made" in text) == (stopped, not stopped)
    assert ("No guest is made on this host" in text) == stopped
