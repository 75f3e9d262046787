"""Every folder below tests/cases/guest is one guest: a host and what the guest gets of it, and its domain, NCCL file and map.

``guest.yml`` names a host of tests/fixtures/guest_hosts.py. GPUDIRECT_REGENERATE=1 rewrites the others, for a review by a person.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import IntentError
from ansible_collections.vela.gpudirect.plugins.module_utils.guest import device_map, domain_xml, nccl_xml
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.model import Guest, model_of

from tests.unit.guest.guests import host, options, placed

CASES = Path(__file__).resolve().parents[2] / "cases" / "guest"
FOLDERS = sorted(folder.parent for folder in CASES.glob("*/guest.yml"))
GOOD = [folder for folder in FOLDERS if not folder.name.startswith("error")]
REGENERATE = os.environ.get("GPUDIRECT_REGENERATE") == "1"


def told_in(folder: Path) -> Any:
    return yaml.safe_load((folder / "guest.yml").read_text(encoding="utf-8"))


def guest_of(folder: Path) -> Guest:
    told = told_in(folder)
    machine, names = host(told["like"])
    return model_of(machine, placed(told, names, machine), options(told.get("options", {}), names))


def outcome(folder: Path) -> dict[str, str]:
    try:
        guest = guest_of(folder)
    except IntentError as error:
        return {"error.txt": "".join(f"{problem}\n" for problem in error.problems)}
    return {
        "domain.xml": domain_xml.render(guest),
        "nccl.xml": nccl_xml.render(guest),
        "map.json": device_map.text(guest),
    }


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_case(folder: Path) -> None:
    found = outcome(folder)
    assert folder.name.startswith("error") == ("error.txt" in found), found
    if REGENERATE:
        for name, content in found.items():
            (folder / name).write_text(content, encoding="utf-8")
    assert {one.name for one in folder.iterdir()} == {"guest.yml", *found}
    for name, content in found.items():
        assert content == (folder / name).read_text(encoding="utf-8"), name
