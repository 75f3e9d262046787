"""All measurements, side by side in one run: every result is a ratio of two things measured here and now, or a count."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmark.converged import converged_tree
from tests.benchmark.loopback import ROOT, Farm, farm
from tests.benchmark.measuring import Cost, Growth, growth, peak_pss_mib, timed
from tests.integration.runs import play

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Result:
    """One line of the table.

    ``target`` is what must not be exceeded, None where a figure is only told; ``stretch`` would be better still.
    """

    name: str
    what: str
    against: str
    found: float
    target: float | None
    stretch: float | None = None
    count: bool = False

    @property
    def good(self) -> bool:
        return self.target is None or self.found <= self.target


@dataclass(frozen=True)
class Sizes:
    """How many hosts, and how often."""

    few: int = 10
    many: int = 40
    rounds: int = 3
    looped: int = 10  # hosts that a role of small tasks looks at, which takes minutes
    audited: int = 1000  # hosts of one audit


@dataclass(frozen=True)
class Bench:
    """Loopback hosts with a converged tree, and the two commands that are compared."""

    farm: Farm
    folder: Path
    variables: Mapping[str, Any]

    def inventory(self, count: int) -> Path:
        path = self.folder / f"{count}.json"
        path.write_text(json.dumps(self.farm.inventory(count, self.variables)))
        return path

    def command(self, what: str, count: int) -> list[str]:
        programs = Path(sys.executable).parent
        if what == "ping":
            ad_hoc = ["-m", "ansible.builtin.ping", "gpudirect_hosts"]
            return [str(programs / "ansible"), "-i", str(self.inventory(count)), *ad_hoc]
        return [str(programs / "ansible-playbook"), "-i", str(self.inventory(count)), str(ROOT / "site.yml")]

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
        return {**kept, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "PWD": str(ROOT)}


@contextmanager
def bench(sizes: Sizes) -> Iterator[Bench]:
    """Loopback hosts that are as wanted, for the time of the block."""
    with tempfile.TemporaryDirectory(prefix="gpudirect-bench-") as scratch:
        folder = Path(scratch)
        variables = converged_tree(folder / "host")
        with farm(folder / "farm", sizes.many) as hosts:
            yield Bench(hosts, folder, variables)


def loopback_results(sizes: Sizes, tell: Tell) -> list[Result]:
    """Counts, growth and memory of a run that has nothing to do, against ``ansible -m ping`` on the same hosts."""
    with bench(sizes) as made:
        tell(f"counting on {sizes.few} hosts")
        counts = _counts(made, sizes.few)
        costs = _costs(made, sizes, tell)
        tell(f"memory on {sizes.many} hosts")
        memory = {
            what: peak_pss_mib(made.command(what, sizes.many), made.environment, made.folder) for what in COMPARED
        }
    walls = {what: growth(sizes.few, sizes.many, _seconds(costs[what], "wall_s")) for what in COMPARED}
    cpus = {what: growth(sizes.few, sizes.many, _seconds(costs[what], "cpu_s")) for what in COMPARED}
    return [*counts, *_growth_results(walls, cpus), _memory_result(memory, sizes)]


COMPARED = ("ping", "site")


def _counts(made: Bench, count: int) -> list[Result]:
    inventory = made.inventory(count)
    names = list(json.loads(inventory.read_text())["gpudirect_hosts"]["hosts"])
    run = play("site.yml", inventory, names, addresses=made.farm.addresses)
    wrong = [name for name in names if not run.host(name).last_plan.get("verified")]
    if wrong or not run.ok:
        raise RuntimeError(f"the loopback hosts are not as wanted: {wrong}\n{run.text[-3000:]}")
    tasks = max(len(run.host(name).tasks) for name in names)
    changed = max(run.host(name).changed for name in names)
    commands = max(run.commands.values())
    what = "run without changes"
    return [
        Result("tasks", f"{what}: tasks that a host sees", "", tasks, 3, count=True),
        Result("executions", f"{what}: commands sent to a host", "", commands, 1, count=True),
        Result("changes", f"{what}: changes", "", changed, 0, count=True),
    ]


def _costs(made: Bench, sizes: Sizes, tell: Tell) -> dict[str, dict[int, list[Cost]]]:
    costs: dict[str, dict[int, list[Cost]]] = {what: {sizes.few: [], sizes.many: []} for what in COMPARED}
    for turn in range(sizes.rounds + 1):
        # In turns, so that other work on the machine meets all of them; the first turn warms connections and caches.
        for count in (sizes.few, sizes.many):
            for what in COMPARED:
                cost = timed(made.command(what, count), made.environment, made.folder)
                tell(f"{'warming' if turn == 0 else f'round {turn}'}: {what} on {count} hosts: {cost.wall_s:.2f} s")
                if turn:
                    costs[what][count].append(cost)
    return costs


def _seconds(costs: Mapping[int, list[Cost]], which: str) -> dict[int, list[float]]:
    return {count: [getattr(cost, which) for cost in some] for count, some in costs.items()}


def _growth_results(walls: Mapping[str, Growth], cpus: Mapping[str, Growth]) -> list[Result]:
    few, many = walls["ping"].few, walls["ping"].many
    what, yardstick = "run without changes", "`ansible -m ping`"
    span = f"one more host ({few} to {many})"
    return [
        Result("slope", f"{what}: time for {span}", yardstick, _ratio(walls, "per_host_s"), 3.0, 1.7),
        Result("slope-cpu", f"{what}: controller CPU for {span}", yardstick, _ratio(cpus, "per_host_s"), 3.0, 1.7),
        Result("few", f"{what}: time for {few} hosts", yardstick, _ratio(walls, "few_s"), 3.0, 1.7),
        Result("many", f"{what}: time for {many} hosts", yardstick, _ratio(walls, "many_s"), 3.0, 1.7),
    ]


def _ratio(grown: Mapping[str, Growth], which: str) -> float:
    return float(getattr(grown["site"], which) / getattr(grown["ping"], which))


def _memory_result(memory: Mapping[str, float], sizes: Sizes) -> Result:
    what = f"run without changes: peak controller memory (PSS), {sizes.many} hosts"
    return Result("memory", what, "`ansible -m ping`", memory["site"] / memory["ping"], 1.5, 1.1)
