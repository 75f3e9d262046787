# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose a local TCP port for a host's ssh and keep it as long as nobody else takes it."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable, Collection
from pathlib import Path

from sim.errors import RackError

# Below the kernel's ephemeral range, so that no outgoing connection takes one by chance.
FIRST, LAST = 20000, 29999


def is_free(port: int) -> bool:
    """Say whether this port of 127.0.0.1 can be bound now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As QEMU does: connections that only linger from an earlier boot do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def choose_port(seed: str, taken: Collection[int] = (), free: Callable[[int], bool] = is_free) -> int:
    """Return a free port; other seeds start to look elsewhere, so racks side by side rarely meet."""
    span = LAST - FIRST + 1
    start = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big") % span
    for step in range(span):
        port = FIRST + (start + step) % span
        if port not in taken and free(port):
            return port
    raise RackError(f"ports: none is free (wanted one of {FIRST}-{LAST}). Stop what holds them.")


def kept_port(file: Path, seed: str, taken: Collection[int], free: Callable[[int], bool] = is_free) -> int:
    """Return the port written in the file while it is free, else choose and write another."""
    try:
        port = int(file.read_text())
    except (FileNotFoundError, ValueError):
        port = 0
    if not (FIRST <= port <= LAST and port not in taken and free(port)):
        port = choose_port(seed, taken, free)
        file.write_text(f"{port}\n")
    return port


def read_port(file: Path) -> int | None:
    """Return the port that a host has, None before its first start."""
    try:
        return int(file.read_text())
    except (FileNotFoundError, ValueError):
        return None
