"""What the controller's side says before and after a host is looked at, by real runs of Ansible without a host."""

from __future__ import annotations

import configparser
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.action import host_plan

from tests.benchmark.converged import converged_tree

ROOT = Path(__file__).resolve().parents[3]


def played(folder: Path, variables: dict[str, Any], *arguments: str) -> str:
    """The text of a run of host_plan on this machine, in check mode; a captured tree stands for the host."""
    tree = folder / "tree"
    (tree / "proc").mkdir(parents=True, exist_ok=True)
    (tree / "sys/bus/pci/devices").mkdir(parents=True, exist_ok=True)
    if not (tree / "proc/cmdline").exists():
        (tree / "proc/cmdline").write_text("ro quiet\n")
    host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "gpudirect_root": str(tree)}
    inventory = folder / "inventory.json"
    inventory.write_text(json.dumps({"all": {"hosts": {"here": {**host, **variables}}}}))
    playbook = folder / "play.json"
    tasks = [{"vela.gpudirect.host_plan": {}}]
    playbook.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    done = subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), "-i", inventory, "--check", *arguments, playbook],
        env={**kept, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "HOME": str(folder), "COLUMNS": "1000"},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", ["gpudirect_serial", "gpudirect_max_fail_percentage"])
def test_a_setting_of_the_play_in_the_inventory_is_refused_since_it_would_do_nothing(tmp_path: Path, name: str) -> None:
    text = played(tmp_path, {name: 1, "kernel_iommu": "on"})
    assert f"{name}: stands in the inventory" in text
    assert "kernel_iommu: is not one of the choices" in text  # together with all others


def test_a_setting_of_the_play_on_the_command_line_is_fine(tmp_path: Path) -> None:
    text = played(tmp_path, {}, "-e", "gpudirect_serial=1", "-e", "gpudirect_max_fail_percentage=10")
    assert "stands in the inventory" not in text
    assert "failed=0" in text, text


ODD = """\
guest_partitions: {1: ["0000:12:00.0"], "2": ["0000:13:00.0"]}
guest_gpu_modules: {1: "0000:12:00.0", "1": "0000:13:00.0"}
kernel_hugepages: [{size: 2M, nodes: {0: 1, "1": 1}}]
sriov_ports: [{select: {vendor: "15b3"}, vfs: 2, vf: {0: {vlan: 100}, "0": {vlan: 101}}}]
"""


def test_keys_that_are_numbers_and_keys_that_are_texts_are_of_one_kind(tmp_path: Path) -> None:
    (tmp_path / "odd.yml").write_text(ODD)
    text = played(tmp_path, {}, "-e", f"@{tmp_path / 'odd.yml'}")
    assert "guest_gpu_modules[1]: stands there as a number and as a text" in text
    assert "sriov_ports[0].vf[0]: stands there as a number and as a text" in text
    assert text.count("stands there as a number and as a text") == 2 * text.count("guest_gpu_modules[1]: stands")
    (tmp_path / "odd.yml").write_text(ODD.splitlines()[2])
    text = played(tmp_path, {}, "-e", f"@{tmp_path / 'odd.yml'}")
    assert "kernel_hugepages[0].nodes[0]: the host has no such NUMA node" in text
    assert "kernel_hugepages[0].nodes[1]: the host has no such NUMA node" in text


@pytest.mark.parametrize("key", ["true", "1.5", "null", "2026-01-01"])
def test_a_key_of_another_kind_is_told_by_its_name(tmp_path: Path, key: str) -> None:
    (tmp_path / "odd.yml").write_text(f'guest_partitions: {{{key}: ["0000:12:00.0"], "2": ["0000:13:00.0"]}}\n')
    text = played(tmp_path, {}, "-e", f"@{tmp_path / 'odd.yml'}")
    assert "not supported between" not in text
    assert "guest_partitions" in text
    assert "failed=1" in text, text


def test_a_reboot_that_is_left_for_later_is_seen_without_asking_for_details(tmp_path: Path) -> None:
    variables = {**converged_tree(tmp_path / "tree"), "gpudirect_allow": "nothing"}
    assert "WARNING" not in played(tmp_path, variables)
    # As in the boot in which it was written.
    tree = tmp_path / "tree"
    (tree / "proc/cmdline").write_text("ro\n")
    records = json.loads((tree / "var/lib/gpudirect/owned.json").read_text())["records"]
    written = next(record["boot"] for path, record in records.items() if path.startswith("kernel_args"))
    (tree / "proc/sys/kernel/random/boot_id").write_text(f"{written}\n")
    text = played(tmp_path, variables)
    assert (
        "[WARNING]: here: a reboot that gpudirect_allow does not cover, left for later, is needed for kernel_args.live"
        in text
    )
    assert "failed=0" in text, text
    assert "WARNING" not in played(tmp_path, {**variables, "gpudirect_allow": "host"})  # where the run makes it itself


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ({"todo": [], "deferred": []}, False),
        ({"todo": [], "deferred": [{"waits_for": "the end of its guests"}]}, True),
        ({"todo": ["kvm"], "deferred": [{"waits_for": "sriov"}]}, False),  # a round of this run comes back to it
        ({"todo": [], "deferred": [{"waits_for": "the running host"}]}, False),  # a captured tree
        ({"todo": [], "deferred": [], "awaiting_consent": [{"path": "libvirt_guest[g1].restart"}]}, True),
        ({"todo": [], "reboot_required": True, "reboot_allowed": False}, True),
        ({"todo": ["reboot"], "reboot_required": True, "reboot_allowed": True}, False),
    ],
)
def test_what_is_left_for_another_run_is_a_warning(result: dict[str, Any], told: bool) -> None:
    assert host_plan.leaves_something(result) == told


def test_hosts_of_one_name_in_two_inventories_never_share_a_connection() -> None:
    """A connection that is kept open is found by its path, and the host key is not looked at again."""
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(ROOT / "ansible.cfg")
    asked = ["-o", f"ControlPath={settings['ssh_connection']['control_path'] % {'directory': '/d'}}"]
    paths = set()
    for port in ("2201", "2202"):
        told = subprocess.run(
            ["ssh", "-G", *asked, "-p", port, "node-a"],
            capture_output=True,
            text=True,
            check=True,
            stdin=subprocess.DEVNULL,
        ).stdout
        paths |= {line for line in told.splitlines() if line.startswith("controlpath ")}
    assert len(paths) == 2
