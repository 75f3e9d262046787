"""Every folder below tests/cases/guest_image is one behaviour: what the network has and happened, an intent, and what follows."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import guest_image
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Disruption
from ansible_collections.vela.gpudirect.plugins.module_utils.core.converge import converge

from tests.fixtures import golden, image_hosts

FOLDERS = sorted(path.parent for path in golden.CASES.glob("guest_image/*/intent.yml"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_case(folder: Path, tmp_path: Path) -> None:
    described = golden.loaded(folder, "host.yml")
    host = image_hosts.build(tmp_path / "root", described.get("network", {}))
    host.open_files = {path: tuple(numbers) for path, numbers in described.get("open", {}).items()}
    for step in described.get("history", ()):
        if "write" in step:
            for path, text in step["write"].items():
                host.put(path, text)
        else:
            converge(guest_image, step["intent"], host, allow=Disruption.HOST, check=False)
    name, found = golden.outcome(guest_image, golden.loaded(folder, "intent.yml") or {}, host)
    golden.compare(folder, name, found)
