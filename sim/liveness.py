# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is the process that a file speaks of still that process? Ids are reused and machines reboot."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import asdict, dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class ProcessMark:
    """A process id with what makes it unmistakable."""

    pid: int
    start_ticks: int
    boot_id: str

    def is_alive(self, proc: Path = PROC) -> bool:
        """Say whether this very process still runs (a zombie does not)."""
        return self.pid > 0 and mark_of(self.pid, proc) == self

    def kill(self, sent: signal.Signals) -> None:
        """Signal this very process; silently nothing when it is gone."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            # The handle pins the id, so the check and the signal speak of the same process.
            if self.is_alive():
                signal.pidfd_send_signal(handle, sent)
        except ProcessLookupError:
            return
        finally:
            os.close(handle)


def mark_of(pid: int, proc: Path = PROC) -> ProcessMark | None:
    """Return the mark of a running process, None when there is no such process."""
    try:
        text = (proc / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name may contain spaces and brackets; the fields count from the last bracket.
    fields = text.rpartition(")")[2].split()
    if fields[0] in "ZX":
        return None
    return ProcessMark(pid, int(fields[19]), boot_id(proc))


def boot_id(proc: Path = PROC) -> str:
    """Return the id of the machine's current boot."""
    return (proc / "sys/kernel/random/boot_id").read_text().strip()


def write_mark(path: Path, mark: ProcessMark) -> None:
    """Store a mark, whole or not at all."""
    draft = path.with_name(path.name + ".new")
    draft.write_text(json.dumps(asdict(mark)))
    draft.replace(path)


def read_mark(path: Path) -> ProcessMark | None:
    """Return the stored mark; None when there is none or the file is damaged."""
    try:
        return ProcessMark(**json.loads(path.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None
