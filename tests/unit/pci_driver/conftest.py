"""Fake hosts lie in memory where they can, and nobody waits for their disks."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "pci_driver", deadline=None, max_examples=40, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("pci_driver")

MEMORY = "/dev/shm"


@pytest.fixture(autouse=True)
def no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of writes to folders that are thrown away are not waited for."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    if os.access(MEMORY, os.W_OK):
        monkeypatch.setattr(tempfile, "tempdir", MEMORY)


@pytest.fixture
def tmp_path(no_waiting_for_disks: None) -> Iterator[Path]:
    """A folder of that kind."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)
