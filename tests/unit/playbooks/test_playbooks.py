"""What the playbooks promise, read from their text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.vela.gpudirect.plugins.module_utils import site

from tests.testinfra import conftest

PLAYBOOKS = Path(__file__).resolve().parents[3] / "playbooks"


def play(name: str) -> dict[str, Any]:
    document = yaml.safe_load((PLAYBOOKS / name).read_text(encoding="utf-8"))
    assert isinstance(document, list)
    first = document[0]
    assert isinstance(first, dict)
    return first


def test_verification_is_told_the_variables_of_every_resource() -> None:
    """Of one that is left out each check would find that it does not apply."""
    pattern = re.compile(play("verify.yml")["vars"]["verify_pattern"])
    for name in site.known_variables():
        assert pattern.match(name), name
        assert name.startswith(conftest.PREFIXES), name


def test_rollback_wants_nothing_of_any_resource() -> None:
    variables = play("rollback.yml")["vars"]
    for resource in site.RESOURCES:
        wanted = resource.parse(resource.SCHEMA.from_variables(variables))
        assert wanted == resource.parse({}), resource.SCHEMA.name


def test_rollback_overrides_every_variable_that_can_ask_for_something() -> None:
    """A variable left out would keep the inventory's value; thresholds and ways of doing ask for nothing."""
    ways = {"kernel_iommu_without_table", "kernel_boot_loader", "kernel_hugepages_keep_mib", "gpudirect_replaced"}
    ways |= {"host_boot_timeout_s", "host_boot_device_timeout_s", "host_boot_drift_interval", "host_boot_metrics_path"}
    ways |= {"gpudirect_mode", "pci_path_acs_form"}
    ways |= {"pci_path_max_distance", "pci_path_min_bar_mib", "kvm_governor"}
    ways |= {"guest_reserved_cpus", "guest_max_distance", "guest_partitions", "guest_gpu_modules"}
    ways |= {"guest_stop", "guest_stop_timeout_s", "guest_image_folder", "guest_emulator"}
    asking = {name for resource in site.RESOURCES for name in resource.SCHEMA.variables()} - ways
    assert set(play("rollback.yml")["vars"]) == asking


def test_site_and_rollback_are_the_same_tasks() -> None:
    imported = [play(name)["tasks"][0]["ansible.builtin.import_tasks"] for name in ("site.yml", "rollback.yml")]
    assert imported == ["tasks/host.yml", "tasks/host.yml"]


def test_every_resource_is_in_the_round_in_its_order() -> None:
    tasks = yaml.safe_load((PLAYBOOKS / "tasks/round.yml").read_text(encoding="utf-8"))
    roles = [task["ansible.builtin.import_role"]["name"] for task in tasks if "ansible.builtin.import_role" in task]
    files = [PLAYBOOKS.parent / "roles" / role.rpartition(".")[2] / "tasks/main.yml" for role in roles]
    steps = [task for file in files for task in yaml.safe_load(file.read_text(encoding="utf-8"))]
    resources = [f"vela.gpudirect.{resource.SCHEMA.name}" for resource in site.RESOURCES]
    assert [key for task in steps for key in task if key in resources] == resources
