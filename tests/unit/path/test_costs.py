"""Judging a machine costs less than reading its description: measured side by side, in one run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import yaml
from ansible_collections.vela.gpudirect.plugins.module_utils import p2p
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host
from ansible_collections.vela.gpudirect.plugins.module_utils.path.facts import machine_of
from ansible_collections.vela.gpudirect.plugins.module_utils.path.intent import PathIntent
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.machine import Machine
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.tree import Function

from tests.fixtures.fake_machines import large

MOST = 0.5  # of the C loader's time for the leanest description that has what the rules look at


def lean(one: Function) -> dict[str, object]:
    """What a description needs of a function, in as few words as possible."""
    return {
        "address": str(one.address),
        "parent": str(one.parent or ""),
        "ids": one.ids,
        "class": f"{one.class_code:06x}",
        "numa": one.numa_node if isinstance(one.numa_node, int) else -1,
        "group": one.iommu_group if isinstance(one.iommu_group, int) else -1,
        "link": "16.0x16",
        "acs": 0x1D,
    }


def least(work: Callable[[], object], times: int) -> float:
    """CPU seconds of the fastest of several runs."""
    found = []
    for _run in range(times):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def machine(folder: Path, vfs: int = 16) -> Machine:
    return machine_of(Host(str(large(vfs=vfs).write(folder).folder)))


def test_judging_costs_a_part_of_reading(tmp_path: Path) -> None:
    host = machine(tmp_path)
    text = yaml.dump(json.loads(json.dumps([lean(one) for one in host.tree])), Dumper=yaml.CSafeDumper)
    assert len(host.tree.functions) > 150
    reading = least(lambda: yaml.load(text, Loader=yaml.CSafeLoader), 5)
    judging = least(lambda: p2p.judge(host, PathIntent()), 20)
    assert judging < MOST * reading, f"{judging / reading:.2f}"


def test_vfs_cost_little(tmp_path: Path) -> None:
    """Ways are found by bridge; of a VF only its group is looked at."""
    few, many = machine(tmp_path / "few", 1), machine(tmp_path / "many", 16)
    assert len(many.tree.functions) > 3 * len(few.tree.functions) - 100
    costs = [least(lambda one=one: p2p.judge(one, PathIntent()), 20) for one in (few, many)]  # type: ignore[misc]
    assert costs[1] < 2.5 * costs[0]
