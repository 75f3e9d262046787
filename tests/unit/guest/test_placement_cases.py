"""Every folder below tests/cases/placement is one behaviour: a host, guests it has, what is asked, and what each guest gets.

``host.yml`` names a host of tests.fixtures.placement_hosts.py and what is different about it; ``existing`` there are shapes that were placed
before on the host as its maker builds it. ``intent.yml`` has the options.
GPUDIRECT_REGENERATE=1 rewrites ``placement.yml`` or ``error.yml``, for a review by a person.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import IntentError
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.intent import GuestIntent, parse
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.placed import Part, Placed, Refused
from ansible_collections.vela.gpudirect.plugins.module_utils.path.labels import some_ranges
from ansible_collections.vela.gpudirect.plugins.module_utils.placement import place

from tests.fixtures.placement_hosts import GuestHost, built

CASES = Path(__file__).resolve().parents[2] / "cases" / "placement"
FOLDERS = sorted(folder.parent for folder in CASES.glob("*/host.yml"))
REGENERATE = os.environ.get("GPUDIRECT_REGENERATE") == "1"


class _Readable(yaml.SafeDumper):
    """Lists inside mappings are indented."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def loaded(folder: Path, name: str) -> Any:
    path = folder / name
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else None


def answered(host: GuestHost, intent: GuestIntent, existing: list[Placed], coming: list[str]) -> tuple[Any, ...]:
    addresses = frozenset(host.named[name] for name in coming)
    selection = host.selection(coming=addresses, partitions=intent.partitions)
    shapes = [wish.shape for wish in intent.wishes]
    return place(
        host.machine(),
        host.nodes,
        shapes,
        existing,
        selection,
        reserved=intent.reserved,
        max_distance=intent.max_distance,
    )


def with_existing(told: dict[str, Any], intent: GuestIntent) -> list[Placed]:
    if not told.get("existing"):
        return []
    before = built(told["like"], {"made": told.get("made", {})})
    shapes = parse({"guest_shapes": told["existing"]})
    found = answered(before, replace(intent, wishes=shapes.wishes), [], [])
    assert all(isinstance(one, Placed) for one in found), found
    return list(found)


def shown(answer: Placed | Refused, host: GuestHost) -> dict[str, Any]:
    """What a person reviews, devices by their names."""
    names = {address: name for name, address in host.named.items()}
    if isinstance(answer, Refused):
        return {"guest": answer.shape.name, "refused": list(answer.reasons)}
    gpus = {
        names[one.address]: [names[vf.address] for vf in answer.devices if vf.beside == one.address]
        for one in answer.devices
        if one.part is Part.GPU
    }
    cells = [f"node {one.node}: CPUs {some_ranges(one.cpus)}; {one.memory_mib} MiB" for one in answer.cells]
    switches = [names[one.address] for one in answer.devices if one.part is Part.NVSWITCH]
    found = {"guest": answer.shape.name, "gpus": gpus, "nvswitches": switches, "cells": cells}
    return {**found, "emulator": some_ranges(answer.emulator), "notes": list(answer.notes)}


def outcome(folder: Path) -> tuple[str, Any]:
    told = loaded(folder, "host.yml")
    try:
        intent = parse(loaded(folder, "intent.yml"))
    except IntentError as error:
        return "error.yml", {"problems": [str(problem) for problem in error.problems]}
    host = built(told["like"], told)
    answers = answered(host, intent, with_existing(told, intent), told.get("coming", []))
    return "placement.yml", [shown(one, host) for one in answers]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_case(folder: Path) -> None:
    name, found = outcome(folder)
    other = folder / ("placement.yml" if name == "error.yml" else "error.yml")
    if REGENERATE:
        other.unlink(missing_ok=True)
        lines = yaml.dump(found, Dumper=_Readable, sort_keys=False, width=110, allow_unicode=True)
        (folder / name).write_text(f"---\n{lines}", encoding="utf-8")
    assert not other.exists(), f"{folder.name} gave {found}"
    assert found == loaded(folder, name)
