"""Fake hosts lie in memory where they can, and nobody waits for their disks."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = "/dev/shm"


@pytest.fixture(autouse=True)
def in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees that are thrown away lie where they cost least, and nobody waits for disks."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    if os.access(MEMORY, os.W_OK):
        monkeypatch.setattr(tempfile, "tempdir", MEMORY)


@pytest.fixture
def tmp_path(in_memory: None) -> Iterator[Path]:
    """A folder of that kind."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)
