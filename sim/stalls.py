# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell from a host's console that one of its emulated CPUs gets no timer interrupts any more.

On a busy machine QEMU's TCG now and then loses the local timer of the first CPU while the kernel starts. The host then
hangs for ever, and its kernel says so again and again. A server has a hardware watchdog for such cases.
"""

from __future__ import annotations

from pathlib import Path

# Linux kernel/rcu/tree_stall.h. A machine that is only slow does not say it, and once may be an accident.
COMPLAINT = b"kthread timer wakeup didn't happen"
ENOUGH = 2


class Watchdog:
    """Counts complaints in what a console says from now on."""

    def __init__(self, console: Path) -> None:
        """Begin at the console's end: what earlier boots have said is past."""
        self._console = console
        self._at = _size(console)
        self._rest = b""
        self._complaints = 0

    def bites(self) -> bool:
        """Whether the CPU is given up; reads what has come since the last call."""
        if _size(self._console) > self._at:
            with self._console.open("rb") as stream:
                stream.seek(self._at)
                text = self._rest + stream.read()
                self._at = stream.tell()
            self._complaints += text.count(COMPLAINT)
            # A complaint may come in two pieces; the part that is kept is too short to hold a whole one.
            self._rest = text[-(len(COMPLAINT) - 1) :]
        return self._complaints >= ENOUGH


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
