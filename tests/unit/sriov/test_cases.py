"""Every folder below tests/cases/sriov is one behaviour: a host with ports, an intent, and the plan or the error that follows.

``host.yml`` names a machine of tests/fixtures/sriov_hosts.py, what is different about its ports, and its ``history``.
``plan.yml`` also holds the acts of the run and the ports as they are afterwards; GPUDIRECT_REGENERATE=1 rewrites it,
for a review by a person.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import GpudirectError
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Connection

from tests.fixtures.fake_nic import Nic, Upper, Vf
from tests.fixtures.fake_sriov import FakeSriov
from tests.fixtures.sriov_hosts import built, disown, look, run

CASES = Path(__file__).resolve().parents[2] / "cases" / "sriov"
FOLDERS = sorted(folder.parent for folder in CASES.glob("*/intent.yml"))
REGENERATE = os.environ.get("GPUDIRECT_REGENERATE") == "1"


class _Readable(yaml.SafeDumper):
    """Lists inside mappings are indented."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def loaded(folder: Path, name: str) -> Any:
    return yaml.safe_load((folder / name).read_text(encoding="utf-8"))


def port(host: FakeSriov, name: str) -> Nic:
    return next(nic for nic in host.nics.values() if nic.name == name)


def swap(host: FakeSriov, name: str) -> None:
    """Another card of the same kind is in the slot at the next boot."""
    assert host.at_boot is not None
    machine, nics = host.at_boot
    address = port(host, name).address
    machine[address].serial = "52-54-00-ff-ff-00-00-01"
    nics[address].mac = machine[address].nets[0].mac = "52:54:00:00:00:01"


def hold(host: FakeSriov, value: dict[str, Any]) -> None:
    vfs = host.pf(port(host, value["port"]).address).vfs
    assert vfs is not None
    host.hold(vfs.functions[value["vf"]].address)


STEPS: dict[str, Callable[[FakeSriov, Any], object]] = {
    "intent": lambda host, value: run(value, host),
    "others": lambda host, value: [run(value, host), disown(host)],
    "swap": swap,
    "hold": hold,
    "blind": lambda host, value: setattr(host, "blind", value),
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
    description = loaded(folder, "host.yml")
    history = description.pop("history", [])
    uppers = [Upper(**one) for one in description.pop("uppers", [])]
    ssh = description.pop("ssh", None)
    more = {"ssh": Connection(**ssh)} if ssh else {}
    host = built(root, description.pop("like"), description.pop("nics", {}), uppers=uppers, **more, **description)
    return live_through(host, history)


def outcome(host: FakeSriov, intent: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """What check mode says, and what the real run then did."""
    try:
        predicted = look(intent, host).as_result()["plan"]
    except GpudirectError as error:
        return "error.yml", failed(error)
    try:
        real = run(intent, host)
    except GpudirectError as error:
        return "error.yml", {**failed(error), "done": [*error.done], "ports": ports_of(host)}
    assert real.as_result()["plan"] == predicted
    if not predicted:
        assert not host.acts
        return "plan.yml", {"plan": []}
    acts = [act for act in host.acts if "owned.json" not in act]
    return "plan.yml", {"plan": predicted, "acts": acts, "ports": ports_of(host)}


def failed(error: GpudirectError) -> dict[str, Any]:
    return {"kind": type(error).__name__, "problems": [str(problem) for problem in error.problems]}


def ports_of(host: FakeSriov) -> dict[str, Any]:
    """Each port in short: its own values, and of each VF what is not as a new one."""
    found = {}
    for nic in host.nics.values():
        mode = {"eswitch": nic.mode} if nic.mode else {}
        vfs = [" ".join(words(vf, nic.fresh())) or "new" for vf in nic.vfs]
        found[nic.name] = {"mtu": nic.mtu, "up": nic.up, **mode, **({"vfs": vfs} if vfs else {})}
    return found


def words(vf: Vf, fresh: Vf) -> list[str]:
    return [f"{name}={value}" for name, value in vars(vf).items() if value != getattr(fresh, name)]


def test_there_are_cases() -> None:
    assert len(FOLDERS) > 20


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_case(folder: Path, tmp_path: Path) -> None:
    name, found = outcome(host_of(folder, tmp_path / "root"), loaded(folder, "intent.yml") or {})
    other = folder / ("plan.yml" if name == "error.yml" else "error.yml")
    if REGENERATE:
        other.unlink(missing_ok=True)
        text = yaml.dump(found, Dumper=_Readable, sort_keys=False, width=90, allow_unicode=True)
        (folder / name).write_text(f"---\n{text}", encoding="utf-8")
    assert not other.exists(), f"{folder.name} gave {found}"
    assert found == loaded(folder, name)
