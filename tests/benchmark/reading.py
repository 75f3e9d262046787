"""What it takes to read a host with many PCI functions from its sysfs."""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Absent, Bytes, Text, Unreadable
from ansible_collections.vela.gpudirect.plugins.module_utils.pci import sysfs
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.topology import topology

from tests.benchmark.suite import Result, Tell
from tests.fixtures import fake_machines
from tests.fixtures.fake_host import FakeHost


@dataclass
class Counting(FakeHost):
    """A host that is read as a live one is, and counts the files and folders that are opened, by function."""

    opened: Counter[str] = field(default_factory=Counter)

    def read_text(self, path: str) -> Text:
        self._note(path)
        return super().read_text(path)

    def read_bytes(self, path: str, size: int = 4096, start: int = 0) -> Bytes:
        self._note(path)
        return super().read_bytes(path, size, start)

    def names(self, path: str) -> tuple[str, ...] | Absent | Unreadable:
        self._note(path)
        return super().names(path)

    def _note(self, path: str) -> None:
        steps = [step for step in path.split("/") if step.count(":") == 2]
        self.opened[steps[-1] if steps else ""] += 1


def opened(folder: Path, vfs: int) -> Counter[str]:
    """Opens for each function of a machine with 8 GPUs and 8 NICs that have as many VFs each."""
    host = Counting(str(folder))
    fake_machines.large(vfs=vfs).write(folder)
    sysfs.read(host)
    return host.opened


def reading_results(folder: Path, rounds: int, tell: Tell) -> list[Result]:
    """Time against two yardsticks, and opens for one function, which more VFs do not add to."""
    many, none = opened(folder / "large", 16), opened(folder / "none", 0)
    host = FakeHost(str(folder / "large"))
    tree = sysfs.read(host)
    functions = sum(1 for _one in tree)
    text = yaml.dump(topology(tree), Dumper=yaml.CSafeDumper)
    spent = in_turns(
        {
            "read": lambda: sysfs.read(host),
            "yaml": lambda: yaml.load(text, Loader=yaml.CSafeLoader),  # noqa: S506
            "walk": lambda: _walk(folder / "large" / "sys" / "devices"),
        },
        2 * rounds + 1,
    )
    tell(f"{functions} functions: {', '.join(f'{name} {1000 * one:.1f} ms' for name, one in spent.items())}")
    most = max(count for name, count in many.items() if name)
    more = most - max(count for name, count in none.items() if name)
    what = f"reading a host of {functions} PCI functions"
    return [
        Result("read-yaml", what, "YAML of the same tree, C loader", spent["read"] / spent["yaml"], None),
        Result("read-walk", what, "walking its sysfs, reading every file", spent["read"] / spent["walk"], None),
        Result("read-opens", f"{what}: files opened for one function, at most", "", most, OPENS, count=True),
        Result("read-more", f"{what}: more of them for 16 VFs on its port", "no VFs", more, 0, count=True),
    ]


OPENS = 32  # attributes that a function can have for us, and its configuration space in a few pieces


def in_turns(work: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median processor seconds of each; the first turn warms and is left out."""
    spent: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(rounds + 1):
        for name, one in work.items():
            began = time.process_time()
            one()
            if turn:
                spent[name].append(time.process_time() - began)
    return {name: statistics.median(times) for name, times in spent.items()}


def _walk(top: Path) -> int:
    """As ``ls -lR`` and reading what it shows: every entry's status, every file's text, where every link leads."""
    size = 0
    for folder, folders, files in os.walk(top):
        for name in (*folders, *files):
            path = os.path.join(folder, name)  # noqa: PTH118
            os.lstat(path)
            if os.path.islink(path):  # noqa: PTH114
                os.readlink(path)  # noqa: PTH115
            elif name in files:
                with open(path, "rb") as stream:  # noqa: PTH123
                    size += len(stream.read())
    return size
