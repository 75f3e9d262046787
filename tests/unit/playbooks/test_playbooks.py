"""What the playbooks promise, read from their text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from ansible_collections.vela.gpudirect.plugins.module_utils import site

PLAYBOOKS = Path(__file__).resolve().parents[3] / "playbooks"


def play(name: str) -> dict[str, Any]:
    document = yaml.safe_load((PLAYBOOKS / name).read_text(encoding="utf-8"))
    assert isinstance(document, list)
    first = document[0]
    assert isinstance(first, dict)
    return first


def test_rollback_wants_nothing_of_any_resource() -> None:
    variables = play("rollback.yml")["vars"]
    for resource in site.RESOURCES:
        wanted = resource.parse(resource.SCHEMA.from_variables(variables))
        assert wanted == resource.parse({}), resource.SCHEMA.name


def test_rollback_overrides_every_variable_that_can_ask_for_something() -> None:
    """A variable left out would keep the inventory's value; thresholds and ways of doing ask for nothing."""
    ways = {"kernel_iommu_without_table", "kernel_boot_loader", "kernel_hugepages_keep_mib", "gpudirect_replaced"}
    asking = {name for resource in site.RESOURCES for name in resource.SCHEMA.variables()} - ways
    assert set(play("rollback.yml")["vars"]) == asking


def test_site_and_rollback_are_the_same_tasks() -> None:
    imported = [play(name)["tasks"][0]["ansible.builtin.import_tasks"] for name in ("site.yml", "rollback.yml")]
    assert imported == ["tasks/host.yml", "tasks/host.yml"]


def test_every_resource_is_in_the_round() -> None:
    imported = yaml.safe_load((PLAYBOOKS / "tasks/round.yml").read_text(encoding="utf-8"))
    roles = [task["ansible.builtin.import_role"]["name"] for task in imported if "ansible.builtin.import_role" in task]
    modules: set[str] = set()
    for role in roles:
        path = PLAYBOOKS.parent / f"roles/{role.removeprefix('vela.gpudirect.')}/tasks/main.yml"
        tasks = yaml.safe_load(path.read_text(encoding="utf-8"))
        modules |= {key for task in tasks for key in task if key.startswith("vela.gpudirect.")}
    modules -= {"vela.gpudirect.host_plan", "vela.gpudirect.console"}  # of the reboot
    assert modules == {f"vela.gpudirect.{resource.SCHEMA.name}" for resource in site.RESOURCES}
