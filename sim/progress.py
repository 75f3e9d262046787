# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Say what each host is doing: lines that redraw on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

REMINDER_S = 30.0


class Progress:
    """One line for each host, with the seconds since the start."""

    def __init__(self, names: list[str], out: TextIO = sys.stderr) -> None:
        """Start the clock."""
        self.out = out
        self.began = time.monotonic()
        self.phases = dict.fromkeys(names, "waiting")
        self.spoken = {name: 0.0 for name in names}
        self.width = max((len(name) for name in names), default=0)
        self.live = out.isatty()
        self.drawn = 0

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began

    def set(self, name: str, phase: str) -> None:
        """Enter a phase; on a plain output a phase that lasts is said again now and then."""
        changed = self.phases[name] != phase
        self.phases[name] = phase
        if self.live:
            self._draw()
        elif changed or self.elapsed_s - self.spoken[name] > REMINDER_S:
            self.spoken[name] = self.elapsed_s
            print(self._line(name), file=self.out, flush=True)

    def set_all(self, phase: str) -> None:
        """Enter a phase that all hosts share."""
        for name in self.phases:
            self.set(name, phase)

    def _line(self, name: str) -> str:
        return f"{name:{self.width}}  {self.elapsed_s:4.0f} s  {self.phases[name]}"

    def _draw(self) -> None:
        up = f"\x1b[{self.drawn}A" if self.drawn else ""
        lines = [f"\x1b[2K{self._line(name)}\n" for name in self.phases]
        self.out.write(up + "".join(lines))
        self.out.flush()
        self.drawn = len(lines)
