"""Every folder below tests/cases/pci_driver is one behaviour: a host, an intent, and the plan or the error that follows.

``host.yml`` names a machine of tests/fixtures/driver_hosts.py, a system, what is different about them, and the ``history``.
``plan.yml`` also holds the acts of the run, the files of /etc that it wrote, what it brought into the images, and the
drivers afterwards; GPUDIRECT_REGENERATE=1 rewrites it, for a review by a person.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import GpudirectError

from tests.fixtures.driver_hosts import MACHINES, built, look, run
from tests.fixtures.fake_drivers import FakeDrivers, Module, catalog

CASES = Path(__file__).resolve().parents[2] / "cases" / "pci_driver"
FOLDERS = sorted(folder.parent for folder in CASES.glob("*/intent.yml"))
REGENERATE = os.environ.get("GPUDIRECT_REGENERATE") == "1"


class _Readable(yaml.SafeDumper):
    """Lists inside mappings are indented."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def loaded(folder: Path, name: str) -> Any:
    return yaml.safe_load((folder / name).read_text(encoding="utf-8"))


def swap(host: FakeDrivers, value: dict[str, Any]) -> None:
    """Another device is at an address at the next boot."""
    assert host.at_boot is not None
    device = host.at_boot[0][value.pop("address")]
    for name, one in value.items():
        setattr(device, name, tuple(one) if isinstance(one, list) else one)


def use(host: FakeDrivers, value: dict[str, Any]) -> None:
    """A program has a device file open."""
    host.put(f"/proc/{value['process']}/comm", f"{value['name']}\n")
    host.processes.setdefault(value["process"], []).append(value["path"])


STEPS: dict[str, Callable[[FakeDrivers, Any], object]] = {
    "intent": lambda host, value: run(value, host),
    "mount": lambda host, value: host.mount(value["disk"], value["place"]),
    "write": lambda host, value: [host.put(path, text) for path, text in value.items()],
    "address": lambda host, value: setattr(host.nics[value], "addresses", ["198.51.100.7"]),
    "guest": lambda host, value: host.guest(value),
    "use": use,
    "swap": swap,
    "vanish": lambda host, value: host.machine.vanish(value),
    "bind": lambda host, value: [host.machine.bind(address, driver) for address, driver in value.items()],
    "vfs": lambda host, value: [host._set_count(host.machine[address], count) for address, count in value.items()],
    "install": lambda host, value: host.install(value),
    "modprobe": lambda host, value: host.run(["modprobe", value]),
    "update_image": lambda host, value: host.run(["update-initramfs", "-u", "-k", value]),
}


def live_through(host: FakeDrivers, history: list[Any]) -> FakeDrivers:
    """Carry out what happened to the host before."""
    for step in history:
        if step == "boot":
            host.boot()
            continue
        for word, value in step.items():
            STEPS[word](host, value)
    return host.revive()


def host_of(folder: Path, root: Path) -> FakeDrivers:
    description = loaded(folder, "host.yml")
    history = description.pop("history", [])
    machine = MACHINES[description.pop("machine")]()
    machine.iommu = description.pop("iommu", machine.iommu)
    for address, other in description.pop("share_group", {}).items():
        machine[address].shares_with = machine[other]
    if "builtin" in description:
        usual = catalog()
        more = [usual.get(name, Module(name)) for name in description.pop("builtin")]
        description["modules"] = catalog(*(Module(one.name, one.drivers, builtin=True) for one in more))
    return live_through(built(root, machine, description.pop("like"), **description), history)


def outcome(host: FakeDrivers, intent: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """What check mode says, and what the real run then did."""
    try:
        predicted = look(intent, host).as_result()["plan"]
    except GpudirectError as error:
        return "error.yml", failed(error)
    before, drivers = host.disk(), host.drivers()
    images = {kernel: host.image(kernel) for kernel in host.kernels()}
    real = run(intent, host).as_result()
    assert real["plan"] == predicted
    assert host.lost == []
    told = {key: real[key] for key in ("deferred", "awaiting_reboot", "notes") if real[key]}
    acts = [act for act in host.acts if "owned.json" not in act]
    files = {
        path: host.text(path).splitlines() if path in host.disk() else "removed" for path in _changed(before, host)
    }
    now = {address: driver or "none" for address, driver in host.drivers().items() if drivers.get(address) != driver}
    left = {"acts": acts, "files": files, "images": _brought(images, host), "drivers": now}
    return "plan.yml", {"plan": predicted, **told, **{name: value for name, value in left.items() if value}}


def _changed(before: dict[str, tuple[int, bytes]], host: FakeDrivers) -> list[str]:
    after = host.disk()
    return [
        path for path in sorted({*before, *after}) if path.startswith("/etc/") and before.get(path) != after.get(path)
    ]


def _brought(before: dict[str, Any], host: FakeDrivers) -> dict[str, Any]:
    """What came into each image and went from it."""
    found = {}
    for kernel, image in before.items():
        now = host.image(kernel)
        marks = [f"+{one}" for one in (*sorted(now.files), *now.modules) if one not in (*image.files, *image.modules)]
        marks += [f"-{one}" for one in (*sorted(image.files), *image.modules) if one not in (*now.files, *now.modules)]
        if marks:
            found[kernel] = marks
    return found


def failed(error: GpudirectError) -> dict[str, Any]:
    return {"kind": type(error).__name__, "problems": [str(problem) for problem in error.problems]}


def test_there_are_cases() -> None:
    assert len(FOLDERS) > 20


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_case(folder: Path, tmp_path: Path) -> None:
    name, found = outcome(host_of(folder, tmp_path / "root"), loaded(folder, "intent.yml") or {})
    other = folder / ("plan.yml" if name == "error.yml" else "error.yml")
    if REGENERATE:
        other.unlink(missing_ok=True)
        text = yaml.dump(found, Dumper=_Readable, sort_keys=False, width=40, allow_unicode=True)
        (folder / name).write_text(f"---\n{text}", encoding="utf-8")
    assert not other.exists(), f"{folder.name} gave {found}"
    assert found == loaded(folder, name)
