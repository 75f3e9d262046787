"""Every folder below tests/cases/pci_path is one behaviour: a host, an intent, and the plan or the error that follows.

``host.yml`` names a machine and a system of tests/fixtures/path_hosts.py, what is different about them, and its ``history``.
``plan.yml`` holds what the registers' module says and does, the boot argument that kernel_args writes beside it, and the words
afterwards; GPUDIRECT_REGENERATE=1 rewrites it, for a review by a person.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.vela.gpudirect.plugins.module_utils import kernel_args, pci_path
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Disruption
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import GpudirectError

from tests.fixtures import fake_registers
from tests.fixtures.fake_sriov import FakeSriov
from tests.fixtures.path_hosts import built, one, requests, run, words

CASES = Path(__file__).resolve().parents[2] / "cases" / "pci_path"
FOLDERS = sorted(folder.parent for folder in CASES.glob("*/host.yml"))
REGENERATE = os.environ.get("GPUDIRECT_REGENERATE") == "1"


class _Readable(yaml.SafeDumper):
    """Lists inside mappings are indented."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def loaded(folder: Path, name: str) -> Any:
    path = folder / name
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else None


STEPS: dict[str, Callable[[FakeSriov, Any], object]] = {
    "intent": lambda host, value: run(value, host),
    "reset": lambda host, value: fake_registers.reset(host.machine, value),
    "lock": lambda host, value: host.put("/sys/kernel/security/lockdown", f"none [{value}]\n"),
}


def live_through(host: FakeSriov, history: list[Any]) -> FakeSriov:
    """Carry out what happened to the host before."""
    for step in history:
        if step == "boot":
            host.boot()
            continue
        for word, value in step.items():
            STEPS[word](host, value)
    host.revive()
    return host


def host_of(folder: Path, root: Path) -> FakeSriov:
    description = dict(loaded(folder, "host.yml"))
    history = description.pop("history", [])
    host = built(root, description.pop("machine", "one"), description.pop("like", "debian_13"), **description)
    return live_through(host, history)


def outcome(host: FakeSriov, intent: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """What check mode says, and what the real run then did."""
    try:
        with host.only_read():
            predicted = one(pci_path, intent, host, True, Disruption.NOTHING).as_result()
        argument = kernel_args.read(host, kernel_args.parse(kernel_args.SCHEMA.from_variables(intent))).ports.member
        real = one(pci_path, intent, host, False, Disruption.NOTHING).as_result()
    except GpudirectError as error:
        found = {"kind": type(error).__name__, "problems": [str(problem) for problem in error.problems]}
        return "error.yml", {**found, "acts": acts_of(host)} if host.acts else found
    assert real["plan"] == predicted["plan"]
    told: dict[str, Any] = {key: real[key] for key in ("plan", "awaiting_reboot", "notes") if real[key]}
    told |= {"argument": argument.split(";")} if argument else {}
    return "plan.yml", {**told, "acts": acts_of(host), "words": shown(host)}


def acts_of(host: FakeSriov) -> list[str]:
    """What was written, but for records."""
    return [act.replace("/sys/bus/pci/devices/", "") for act in host.acts if "owned.json" not in act]


def shown(host: FakeSriov) -> dict[str, str]:
    """Words of ports, and of what is below the read requests that are not as after a boot."""
    asked = {address: f"{size} bytes" for address, size in requests(host).items() if size != 128}
    return {**{address: f"0x{word:02x}" for address, word in words(host).items()}, **asked}


def test_there_are_cases() -> None:
    assert len(FOLDERS) > 20


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_case(folder: Path, tmp_path: Path) -> None:
    try:
        host = host_of(folder, tmp_path / "root")
        name, found = outcome(host, loaded(folder, "intent.yml") or {})
    except GpudirectError as error:
        raise AssertionError(f"the history fails: {error}") from error
    other = folder / ("plan.yml" if name == "error.yml" else "error.yml")
    if REGENERATE:
        other.unlink(missing_ok=True)
        text = yaml.dump(found, Dumper=_Readable, sort_keys=False, width=110, allow_unicode=True)
        (folder / name).write_text(f"---\n{text}", encoding="utf-8")
    assert not other.exists(), f"{folder.name} gave {found}"
    assert found == loaded(folder, name)
