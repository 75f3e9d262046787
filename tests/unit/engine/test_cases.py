"""Every folder below tests/cases is one behaviour: a host, an intent, and the plan or the error that follows.

``host.yml`` names a builder of tests/fixtures/hosts.py, what is different about this host, and its ``history``.
``plan.yml`` also holds what the next boot will use and the files as they are after the plan was carried out;
GPUDIRECT_REGENERATE=1 rewrites it, for a review by a person.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from ansible_collections.vela.gpudirect.plugins.module_utils import hugepages, kernel_args
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Disruption
from ansible_collections.vela.gpudirect.plugins.module_utils.core.converge import Report, converge
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import GpudirectError

from tests.fixtures import hosts
from tests.fixtures.fake_boot import default_entry
from tests.fixtures.fake_host import FakeHost

CASES = Path(__file__).resolve().parents[2] / "cases"
RESOURCES = {"kernel_args": kernel_args, "hugepages": hugepages}
# Those of devices have hosts, and tests, of their own.
FOLDERS = sorted(folder.parent for name in RESOURCES for folder in CASES.glob(f"{name}/*/intent.yml"))
REGENERATE = os.environ.get("GPUDIRECT_REGENERATE") == "1"


class _Readable(yaml.SafeDumper):
    """Lists inside mappings are indented."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def loaded(folder: Path, name: str) -> Any:
    return yaml.safe_load((folder / name).read_text(encoding="utf-8"))


def live_through(host: FakeHost, resource: ModuleType, history: list[Any]) -> FakeHost:
    """Carry out what happened to the host before."""
    steps: dict[str, Callable[[FakeHost, Any], object]] = {
        "intent": lambda host, value: converge(resource, value, host, allow=Disruption.HOST, check=False),
        "kernel_args": lambda host, value: converge(kernel_args, value, host, allow=Disruption.HOST, check=False),
        "write": lambda host, value: [host.put(path, text) for path, text in value.items()],
        "replace": lambda host, value: host.put(value[0], host.text(value[0]).replace(value[1], value[2])),
        "run": lambda host, value: host.run(value),
        "install_kernel": hosts.install_kernel,
        "remove": lambda host, value: host.path(value).unlink(),
        "use": lambda host, value: host.use(value["node"], value["size"], value["pages"]),
    }
    for step in history:
        if step == "boot":
            host.boot()
            continue
        for word, value in step.items():
            steps[word](host, value)
    return host


def built(folder: Path, resource: ModuleType, root: Path) -> FakeHost:
    description = loaded(folder, "host.yml")
    history = description.pop("history", [])
    like = description.pop("like")
    for name in ("room", "boot_room"):
        if name in description:
            description[name] = {(node, size): count for node, size, count in description[name]}
    for name in ("tables", "read_only", "chattr"):
        if name in description:
            description[name] = tuple(description[name])
    return live_through(hosts.build(root, like, description), resource, history)


def outcome(host: FakeHost, resource: ModuleType, intent: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """What check mode says, and what the real run then left."""
    try:
        with host.only_read():
            predicted = converge(resource, intent, host, allow=Disruption.HOST, check=True)
    except GpudirectError as error:
        return "error.yml", _failed(error)
    before = host.disk()
    try:
        real = converge(resource, intent, host, allow=Disruption.HOST, check=False)
    except GpudirectError as error:
        return "error.yml", {**_failed(error), "predicted": predicted.as_result()["plan"], "done": [*error.done]}
    assert real.as_result()["plan"] == predicted.as_result()["plan"]
    return "plan.yml", {**_told(real), **_left(host, resource, before)}


def _failed(error: GpudirectError) -> dict[str, Any]:
    return {"kind": type(error).__name__, "problems": [str(problem) for problem in error.problems]}


def _told(report: Report) -> dict[str, Any]:
    result = report.as_result()
    return {key: result[key] for key in ("plan", "awaiting_reboot", "notes") if result[key]}


def _left(host: FakeHost, resource: ModuleType, before: dict[str, tuple[int, bytes]]) -> dict[str, Any]:
    if resource is hugepages:
        return {"pages": {size: host.pages(size) for size in hugepages.KIB}}
    _kernel, words = default_entry(Path(host.root), host.loader, host.grubenv)
    after = host.disk()
    changed = [
        path
        for path in sorted(after.keys() | before.keys())
        if after.get(path) != before.get(path) and "/gpudirect" not in path and path != "/boot/grub/grub.cfg"
    ]
    files = {path: _lines_changed(before.get(path), after.get(path)) for path in changed}
    return {"next_boot": words, "files": files}


def _lines_changed(before: tuple[int, bytes] | None, after: tuple[int, bytes] | None) -> list[str]:
    """The lines that went and came, with the ends of lines, as they are and nothing around them."""
    old, new = ((one[1] if one else b"").decode("utf-8", "surrogateescape") for one in (before, after))
    lines = difflib.ndiff(old.splitlines(keepends=True), new.splitlines(keepends=True))
    return [line.removesuffix("\n") for line in lines if line[0] in "+-"]


def test_there_are_cases() -> None:
    assert {folder.parent.name for folder in FOLDERS} == set(RESOURCES)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_case(folder: Path, tmp_path: Path) -> None:
    resource = RESOURCES[folder.parent.name]
    host = built(folder, resource, tmp_path / "root")
    name, found = outcome(host, resource, loaded(folder, "intent.yml") or {})
    other = folder / ("plan.yml" if name == "error.yml" else "error.yml")
    if REGENERATE:
        other.unlink(missing_ok=True)
        text = yaml.dump(found, Dumper=_Readable, sort_keys=False, width=90, allow_unicode=True)
        (folder / name).write_text(f"---\n{text}", encoding="utf-8")
    assert not other.exists(), f"{folder.name} gave {found}"
    assert found == loaded(folder, name)
