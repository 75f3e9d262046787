"""First apply on a host of the simulated rack against the same run when there is nothing left to do.

Twice: the whole of site.yml, whose first run sends one module for each resource that changes where the daily run sends
one in all; and the role called alone, which sends the same modules both times, so that the ratio is what writing costs
against looking. The distribution's generator of boot entries is timed on the host and taken off the latter.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.benchmark.loopback import ROOT
from tests.benchmark.measuring import timed
from tests.benchmark.report import RACK
from tests.benchmark.suite import Result, Tell
from tests.integration.booting import BOOT, seconds
from tests.integration.rack import Rack

HOST = "node-a"
GENERATOR = "update-grub"
USERSPACE = "systemctl show --property=UserspaceTimestampMonotonic,FinishTimestampMonotonic"
ROLE = """\
- name: The kernel role alone
  hosts: gpudirect_hosts
  gather_facts: false
  become: true
  roles: [vela.gpudirect.kernel]
"""


@dataclass(frozen=True)
class Runs:
    """Runs of playbooks against one host, in seconds."""

    rack: Rack
    folder: Path
    tell: Tell

    def play(self, playbook: Path, *arguments: str) -> float:
        program = str(Path(sys.executable).parent / "ansible-playbook")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
        environment = {**kept, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
        argv = [program, "-i", str(self.rack.inventory), "--limit", HOST, *arguments, str(playbook)]
        cost = timed(argv, environment, self.folder)
        self.tell(f"{playbook.name} {' '.join(arguments)}: {cost.wall_s:.1f} s")
        return cost.wall_s

    def generator(self) -> float:
        """Seconds of one call of the distribution's generator, by the host's own clock."""
        clock = "date +%s%N"
        text = self.rack.run(HOST, f"a=$({clock}); {GENERATOR} >/dev/null 2>&1; b=$({clock}); echo $((b - a))")
        seconds = int(text) / 1e9
        self.tell(f"{GENERATOR}: {seconds:.1f} s")
        return seconds


@contextmanager
def fresh(rack: Rack, tell: Tell) -> Iterator[Runs]:
    """A host from a fresh disk with a warm connection, as it stands after its first minutes."""
    with tempfile.TemporaryDirectory(prefix="gpudirect-bench-") as scratch:
        rack.up(HOST, fresh=True)
        runs = Runs(rack, Path(scratch), tell)
        for _turn in range(2):
            runs.play(ROOT / "site.yml", "--check")
        yield runs


def first_apply_results(rounds: int, tell: Tell) -> list[Result]:
    """Everything is written and the reboot left for later, then done, then nothing is left; and what a boot takes."""
    rack = Rack("benchmark", tell)
    try:
        with fresh(rack, tell) as runs:
            site = _against(runs, ROOT / "site.yml", rounds, generator=False)
            boot = boot_result(rack, tell)
        with fresh(rack, tell) as runs:
            role = runs.folder / "role.yml"
            role.write_text(ROLE)
            alone = _against(runs, role, rounds, generator=True)
    finally:
        rack.down()
    first, again = f"first apply, reboot aside, {RACK}", "run without changes"
    return [
        Result("first-site", f"{first}: site.yml, an execution for each resource", again, site, None),
        Result("first-role", f"{first}: the role alone, {GENERATOR} aside", again, alone, 1.5, 1.2),
        boot,
    ]


def boot_result(rack: Rack, tell: Tell) -> Result:
    """The seconds of our boot unit against those that the host's user space took to start, which it is a part of."""
    rack.run(HOST, "timeout 300 systemctl is-system-running --wait || true")
    unit, whole = seconds(Shell(rack, HOST)), userspace_s(rack.run(HOST, USERSPACE))
    tell(f"the last boot: {BOOT} {unit:.1f} s of {whole:.1f} s of user space")
    return Result("boot-unit", f"boot {RACK}: {BOOT}", "start of user space", unit / whole, None)


@dataclass(frozen=True)
class Shell:
    """A host of a rack as the tests of a boot ask it."""

    rack: Rack
    name: str

    def sh(self, script: str) -> str:
        return self.rack.run(self.name, script)


def userspace_s(shown: str) -> float:
    """What ``systemd-analyze`` calls userspace, from the same times of systemd."""
    times = {name: int(value) for name, value in (line.split("=", 1) for line in shown.splitlines())}
    started, finished = times["UserspaceTimestampMonotonic"], times["FinishTimestampMonotonic"]
    if finished <= started:
        raise RuntimeError(f"{HOST}: its boot has not finished: {shown!r}")
    return (finished - started) / 1e6


def _against(runs: Runs, playbook: Path, rounds: int, *, generator: bool) -> float:
    first = runs.play(playbook, "-e", "gpudirect_allow=nothing")
    programs = statistics.median(runs.generator() for _round in range(rounds)) if generator else 0.0
    runs.play(ROOT / "site.yml")  # the reboot, which is not measured
    runs.play(playbook)  # warms the connection again
    return (first - programs) / statistics.median(runs.play(playbook) for _round in range(rounds))
