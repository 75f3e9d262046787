"""The first apply on a host of the simulated rack against the same run when there is nothing left to do."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from pathlib import Path

from tests.benchmark.loopback import ROOT
from tests.benchmark.measuring import timed
from tests.benchmark.suite import Result, Tell
from tests.integration.rack import Rack

HOST = "node-a"


def first_apply_results(rounds: int, tell: Tell) -> list[Result]:
    """One fresh host: everything is written and the reboot left for later, then done, then nothing is left."""
    rack = Rack("benchmark", tell)
    with tempfile.TemporaryDirectory(prefix="gpudirect-bench-") as scratch:

        def site(*arguments: str) -> float:
            playbook = [
                str(Path(sys.executable).parent / "ansible-playbook"),
                "-i",
                str(rack.inventory),
                "--limit",
                HOST,
            ]
            kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
            environment = {**kept, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
            cost = timed([*playbook, *arguments, str(ROOT / "site.yml")], environment, Path(scratch))
            tell(f"site.yml {' '.join(arguments)}: {cost.wall_s:.1f} s")
            return cost.wall_s

        rack.up(HOST, fresh=True)
        try:
            site("--check")  # warms the connection
            first = site("-e", "gpudirect_allow=nothing")
            site()  # the reboot, which is not measured
            again = [site() for _round in range(rounds)]
        finally:
            rack.down()
    ratio = first / statistics.median(again)
    return [
        Result(
            "first-apply", "first apply, reboot aside, on the simulated rack", "run without changes", ratio, 1.5, 1.2
        )
    ]
