# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a host's serial log."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

from sim.places import Rack

POLL_S = 0.3
# Cursor moves and colours of firmware and boot loader; they would garble what is printed after them.
CONTROL_SEQUENCES = re.compile(r"\x1b(\[[0-9;?!=]*[A-Za-z]|[()][0-9A-B]|[=>c78])|[\x00-\x08\x0b-\x1a\x1c-\x1f]")


def tail(path: Path, lines: int) -> list[str]:
    """Return the last lines of a serial log that say something."""
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        return []
    plain = (CONTROL_SEQUENCES.sub("", line) for line in text.splitlines())
    return [line for line in plain if line.strip()][-lines:]


def follow(path: Path, lines: int) -> None:
    """Print the last lines and whatever comes, until interrupted."""
    print("\n".join(tail(path, lines)), flush=True)
    with path.open(errors="replace") as stream:
        stream.seek(0, 2)
        while True:
            chunk = stream.read()
            sys.stdout.write(CONTROL_SEQUENCES.sub("", chunk))
            sys.stdout.flush()
            if not chunk:
                time.sleep(POLL_S)


def last_words(rack: Rack, name: str, lines: int = 12) -> str:
    """Return the end of a host's console, and where to read on."""
    folder = rack.host(name)
    shown = [f"    {line}" for line in tail(folder / "console.log", lines)]
    return "\n".join([*shown, f"Read console.log, qemu.log and supervisor.log in {folder}."])
