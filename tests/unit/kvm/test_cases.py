"""Every folder below tests/cases/kvm is one behaviour: a host and its history, an intent, and the plan or error that follows."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import kvm
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Disruption
from ansible_collections.vela.gpudirect.plugins.module_utils.core.converge import converge

from tests.fixtures import golden, kvm_hosts

FOLDERS = sorted(path.parent for path in golden.CASES.glob("kvm/*/intent.yml"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_case(folder: Path, tmp_path: Path) -> None:
    described = golden.loaded(folder, "host.yml")
    host = kvm_hosts.build(tmp_path / "root", described["like"], described.get("files"))
    for path in described.get("removed", ()):
        host.path(path).unlink()
    for step in described.get("history", ()):
        if step == "boot":
            host.boot()
        elif "write" in step:
            for path, text in step["write"].items():
                host.put(path, text)
        elif "run" in step:
            host.run(step["run"])
        else:
            converge(kvm, step["intent"], host, allow=Disruption.HOST, check=False)
    name, found = golden.outcome(kvm, golden.loaded(folder, "intent.yml") or {}, host)
    golden.compare(folder, name, found)
