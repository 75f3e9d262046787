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
from tests.benchmark.suite import Result, Tell
from tests.integration.rack import Rack

HOST = "node-a"
GENERATOR = "update-grub"
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
    """Everything is written and the reboot left for later, then done, then nothing is left."""
    rack = Rack("benchmark", tell)
    try:
        with fresh(rack, tell) as runs:
            site = _against(runs, ROOT / "site.yml", rounds, generator=False)
        with fresh(rack, tell) as runs:
            role = runs.folder / "role.yml"
            role.write_text(ROLE)
            alone = _against(runs, role, rounds, generator=True)
    finally:
        rack.down()
    first, again = "first apply, reboot aside, on the simulated rack", "run without changes"
    return [
        Result("first-site", f"{first}: site.yml, an execution for each resource", again, site, None),
        Result("first-role", f"{first}: the role alone, {GENERATOR} aside", again, alone, 1.5, 1.2),
    ]


def _against(runs: Runs, playbook: Path, rounds: int, *, generator: bool) -> float:
    first = runs.play(playbook, "-e", "gpudirect_allow=nothing")
    programs = statistics.median(runs.generator() for _round in range(rounds)) if generator else 0.0
    runs.play(ROOT / "site.yml")  # the reboot, which is not measured
    runs.play(playbook)  # warms the connection again
    return (first - programs) / statistics.median(runs.play(playbook) for _round in range(rounds))
