"""Seconds, processor time and memory of a command and everything it starts."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SAMPLE_S = 0.1


@dataclass(frozen=True)
class Cost:
    """What one run took: seconds, processor time on the controller, and that of the processes of the targets."""

    wall_s: float
    cpu_s: float
    targets_s: float = 0.0

    @property
    def both_s(self) -> float:
        """Processor time on both sides."""
        return self.cpu_s + self.targets_s


def timed(argv: Sequence[str], environment: Mapping[str, str], folder: Path, targets: Sequence[int] = ()) -> Cost:
    """Run a command to its end; a failure is an error with its last lines. ``targets`` are the servers of its hosts."""
    with (folder / "output").open("w+") as output:
        before = sum(map(family_cpu_s, targets))
        began = time.monotonic()
        process = subprocess.Popen(argv, env=dict(environment), stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        _pid, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        _require_success(process, output.read())
    return Cost(wall, usage.ru_utime + usage.ru_stime, sum(map(family_cpu_s, targets)) - before)


def peak_pss_mib(argv: Sequence[str], environment: Mapping[str, str], folder: Path) -> float:
    """The largest memory of a command and its descendants together, shared pages counted once. Not a timed run."""
    peak = 0
    with (folder / "output").open("w+") as output:
        process = subprocess.Popen(argv, env=dict(environment), stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        while process.poll() is None:
            peak = max(peak, sum(map(_pss_kib, _family(process.pid))))
            time.sleep(SAMPLE_S)
        output.seek(0)
        _require_success(process, output.read())
    return peak / 1024


def _require_success(process: subprocess.Popen[bytes], output: str) -> None:
    if process.returncode:
        tail = "\n".join(output.splitlines()[-25:])
        raise RuntimeError(f"{process.args!r} ended with {process.returncode}:\n{tail}")


def _family(pid: int) -> list[int]:
    """A process and all its descendants."""
    family = [pid]
    for one in family:
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{one}/task").iterdir():
                family += map(int, (thread / "children").read_text().split())
    return family


def family_cpu_s(pid: int) -> float:
    """Processor time of a process, its descendants, and those of them that have ended and were waited for.

    It only grows as long as the processes in between stay, which those of a connection that is kept do.
    """
    return sum(map(_cpu_ticks, _family(pid))) / os.sysconf("SC_CLK_TCK")


def _cpu_ticks(pid: int) -> int:
    with contextlib.suppress(OSError):
        # The program's name stands in brackets; utime, stime, cutime and cstime are the fields 14 to 17 of all.
        return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return 0


def _pss_kib(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


@dataclass(frozen=True)
class Growth:
    """Medians of runs with a few and with many hosts."""

    few: int
    many: int
    few_s: float
    many_s: float

    @property
    def per_host_s(self) -> float:
        """The slope: what one more host takes."""
        return (self.many_s - self.few_s) / (self.many - self.few)


def growth(few: int, many: int, seconds: Mapping[int, Sequence[float]]) -> Growth:
    """The growth between two sizes from the seconds of several runs each."""
    return Growth(few, many, statistics.median(seconds[few]), statistics.median(seconds[many]))
