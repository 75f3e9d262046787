# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Talk to a host's supervisor: one JSON line each way over its control socket."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from sim.errors import RackError

ANSWER_TIMEOUT_S = 10.0


class NobodyAnswers(RackError):
    """There is no supervisor behind this socket."""


def ask(path: Path, request: str) -> dict[str, Any]:
    """Send one request word and return the answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(ANSWER_TIMEOUT_S)
        try:
            line.connect(str(path))
            line.sendall(json.dumps({"do": request}).encode() + b"\n")
            with line.makefile("rb") as stream:
                answer = stream.readline()
        except OSError as error:
            raise NobodyAnswers(f"{path}: no supervisor answers ({error}).") from None
    if not answer:
        raise NobodyAnswers(f"{path}: the supervisor hung up.")
    found: dict[str, Any] = json.loads(answer)
    return found
