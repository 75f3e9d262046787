"""Engine tests run on fake hosts in temporary folders, which need not survive a power cut."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "engine", deadline=None, max_examples=40, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("engine")


@pytest.fixture(autouse=True)
def no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of writes to folders that are thrown away are not waited for."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
