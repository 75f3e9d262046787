"""A host on which what a boot loses is installed, and resources that know no domain to go through its boots."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import ABSENT, Change, Deferred, Plan
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import Problem
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host
from ansible_collections.vela.gpudirect.plugins.module_utils.core.schema import Field, Schema

from tests.fixtures import hosts
from tests.fixtures.fake_host import FakeHost

PAGES = {"kernel_hugepages": [{"size": "1G", "per_node": 4}]}


@pytest.fixture(autouse=True)
def no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes to folders that are thrown away are not waited for."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder where trees that are thrown away cost least."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.fixture
def debian(root: Path) -> FakeHost:
    return hosts.build(root / "debian", "debian_12")


@dataclass
class Ports:
    """A resource whose devices are folders ``/sys/<port>``, each with a count that should be 4.

    A port that is not there is refused, and the others do not depend on it. ``waits`` names a port of another
    resource: while that has no count, everything here is deferred.
    """

    name: str
    ports: tuple[str, ...]
    waits: str = ""
    disrupts: Any = 0
    stubborn: tuple[str, ...] = ()
    refuses_from: int = 0
    applied: list[str] = field(default_factory=list)

    @property
    def SCHEMA(self) -> Schema:  # noqa: N802
        return Schema(self.name, f"{self.name}_", (Field(f"{self.name}_on", "bool", ("Whether.",), default=False),))

    def parse(self, params: Mapping[str, Any]) -> bool:
        return bool(self.SCHEMA.parse(params)[f"{self.name}_on"])

    def lost_at_boot(self, desired: bool) -> bool:
        return desired

    def read(self, host: Host, desired: bool) -> dict[str, Any]:
        return {port: host.read_text(f"/sys/{port}/count") for port in (*self.ports, self.waits) if port}

    def plan(self, desired: bool, current: Mapping[str, Any], owned: Mapping[str, Any]) -> Plan:
        if self.waits and current[self.waits] != "4":
            return Plan(deferred=(Deferred(self.name, "the other", f"{self.waits} is not set up"),))
        missing = [port for port in self.ports if current[port] is ABSENT]
        changes = [
            Change(f"{self.name}[{port}]", current[port], "4", f"{port} has another count", self.disrupts, port)
            for port in self.ports
            if current[port] not in ("4", ABSENT)
        ]
        refused = [Problem(f"{self.name}[{port}]", "is not there", "See the kernel's log.") for port in missing]
        return Plan(tuple(changes), refused=tuple(refused))

    def apply(self, change: Change, host: Host) -> None:
        self.applied.append(change.step)
        if self.refuses_from and len(self.applied) >= self.refuses_from:
            raise OSError(5, "Input/output error")
        if change.step not in self.stubborn:
            Path(host.at(f"/sys/{change.step}/count")).write_text("4", encoding="ascii")


def appears(port: str) -> Any:
    """What plugs a port in."""
    return lambda host: host.put(f"/sys/{port}/count", "0")
