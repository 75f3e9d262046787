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
from ansible_collections.vela.gpudirect.plugins.module_utils import host_boot, hugepages, kernel_args
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Disruption
from ansible_collections.vela.gpudirect.plugins.module_utils.core.converge import Report, converge
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import GpudirectError

from tests.fixtures import hosts
from tests.fixtures.fake_boot import default_entry
from tests.fixtures.fake_host import FakeHost
from tests.fixtures.fake_systemd import FakeSystemd
from tests.fixtures.path_hosts import MACHINES
from tests.fixtures.runs import options_of

CASES = Path(__file__).resolve().parents[2] / "cases"
RESOURCES = {"kernel_args": kernel_args, "hugepages": hugepages, "host_boot": host_boot}
# Those of devices have hosts, and tests, of their own.
FOLDERS = sorted(folder.parent for name in RESOURCES for folder in CASES.glob(f"{name}/*/intent.yml"))
REGENERATE = os.environ.get("GPUDIRECT_REGENERATE") == "1"


class _Readable(yaml.SafeDumper):
    """Lists inside mappings are indented."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """Texts of files as they are."""
        style = "|" if data.endswith("\n") else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style)


_Readable.add_representer(str, _Readable.represent_str)


def loaded(folder: Path, name: str) -> Any:
    return yaml.safe_load((folder / name).read_text(encoding="utf-8"))


def given(resource: ModuleType, intent: dict[str, Any], host: FakeHost) -> dict[str, Any]:
    """The options of a case as they are; what the control node hands over to host_boot comes from them."""
    return options_of(resource, intent, host) if resource is host_boot else intent


def live_through(host: FakeHost, resource: ModuleType, history: list[Any]) -> FakeHost:
    """Carry out what happened to the host before."""
    steps: dict[str, Callable[[FakeHost, Any], object]] = {
        "intent": lambda host, value: converge(
            resource, given(resource, value, host), host, allow=Disruption.HOST, check=False
        ),
        "kernel_args": lambda host, value: converge(kernel_args, value, host, allow=Disruption.HOST, check=False),
        "write": lambda host, value: [host.put(path, text) for path, text in value.items()],
        "replace": lambda host, value: host.put(value[0], host.text(value[0]).replace(value[1], value[2])),
        "run": lambda host, value: host.run(value),
        "install_kernel": hosts.install_kernel,
        "remove": lambda host, value: host.path(value).unlink(),
        "link": lambda host, value: [host.path(path).symlink_to(target) for path, target in value.items()],
        "mode": lambda host, value: [host.path(path).chmod(mode) for path, mode in value.items()],
        "folder": lambda host, value: host.path(value).mkdir(parents=True),
        "unit_fails": lambda host, value: host.systemd.fail(Path(host.root), value),
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
    if "systemd" in description:
        description["systemd"] = FakeSystemd(**description["systemd"])
    like = description.pop("like")
    for name in ("room", "boot_room"):
        if name in description:
            description[name] = {(node, size): count for node, size, count in description[name]}
    for name in ("tables", "read_only", "chattr"):
        if name in description:
            description[name] = tuple(description[name])
    machine = description.pop("machine", None)
    host = hosts.build(root, like, description)
    if machine:
        MACHINES[machine]().write(root)
    return live_through(host, resource, history)


def outcome(host: FakeHost, resource: ModuleType, intent: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """What check mode says, and what the real run then left."""
    options = given(resource, intent, host)
    try:
        with host.only_read():
            predicted = converge(resource, options, host, allow=Disruption.HOST, check=True)
    except GpudirectError as error:
        return "error.yml", _failed(error)
    before = host.disk()
    try:
        real = converge(resource, options, host, allow=Disruption.HOST, check=False)
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
    if resource is host_boot:
        return _installed(host)
    _kernel, words = default_entry(Path(host.root), host.loader, host.grubenv)
    after = host.disk()
    changed = [
        path
        for path in sorted(after.keys() | before.keys())
        if after.get(path) != before.get(path) and "/gpudirect" not in path and path != "/boot/grub/grub.cfg"
    ]
    files = {path: _lines_changed(before.get(path), after.get(path)) for path in changed}
    return {"next_boot": words, "files": files}


def _installed(host: FakeHost) -> dict[str, Any]:
    """Files of the product with their modes, and the units that systemd does not hold for inactive."""
    files = {path: f"{mode:o}" for path, (mode, _content) in sorted(host.disk().items()) if "gpudirect" in path}
    return {"files": files, "units": {unit: " ".join(state) for unit, state in sorted(host.systemd.states.items())}}


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
