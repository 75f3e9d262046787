"""A run without changes on hosts with devices, for any number of VFs, and against a role of small tasks.

A captured tree, by which the loopback hosts are judged, has no kernel that tells the attributes of VFs or what a device
is used for: there the run reads all of sysfs, chooses the devices and ends with both resources deferred. So the whole
look is measured besides, in this process, on fake hosts that answer.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.benchmark import looped
from tests.benchmark.converged import judged
from tests.benchmark.loopback import farm
from tests.benchmark.machines import SIZES, Answering, checked, converged_host, intent, look
from tests.benchmark.measuring import Cost, timed
from tests.benchmark.reading import in_turns, reading_results
from tests.benchmark.suite import Bench, Result, Sizes, Tell
from tests.integration.runs import play

DEFERRED = ["pci_driver", "sriov"]
WHAT = "run without changes, devices"
LOOK = "whole look in the engine alone, devices"
MANY, FEW = 64, 8
OTHERS = "at 8 VFs"


def device_results(sizes: Sizes, tell: Tell) -> list[Result]:
    """Everything about devices that needs no rack."""
    with tempfile.TemporaryDirectory(prefix="gpudirect-bench-") as scratch:
        folder = Path(scratch)
        hosts = {}
        for vfs in SIZES:
            tell(f"making a host with {vfs} VFs")
            hosts[vfs] = converged_host(folder / f"host-{vfs}", vfs)
        looks = look_results(hosts, sizes.rounds, tell)
        reading = reading_results(folder / "read", sizes.rounds, tell)
        looped.tell(hosts[FEW])
        with benches(folder, hosts, sizes.few) as made:
            counts = _counts(made, sizes.few, tell)
            walls = _wall_results(made, sizes, tell)
            cpus = _cpu_results(made[FEW], hosts[FEW], sizes, tell)
    return [*counts, *walls, *looks, *cpus, *reading]


# The engine alone ------------------------------------------------------------------------


def look_results(hosts: Mapping[int, Answering], rounds: int, tell: Tell) -> list[Result]:
    """Reading and planning all resources of converged hosts that answer everything."""
    wanted = {vfs: checked(vfs) for vfs in hosts}
    programs, left = {}, 0
    for vfs, host in hosts.items():
        host.commands.clear()
        found = look(host, wanted[vfs])
        left += not found["verified"]
        programs[vfs] = len(host.commands)
    work = {str(vfs): (lambda vfs=vfs: look(hosts[vfs], wanted[vfs])) for vfs in hosts}
    spent = in_turns(work, 2 * rounds + 1)
    tell(f"whole look: {', '.join(f'{vfs} VFs {1000 * one:.1f} ms' for vfs, one in spent.items())}")
    first, *others = hosts
    return [
        Result("look-left", f"{LOOK}: hosts that are not as wanted", "", left, 0, count=True),
        Result("look-programs", f"{LOOK}: programs run on a host, {_sizes(others)} more", f"at {first} VFs",
               _spread(programs), 0, count=True),
        *(Result(f"look-{vfs}", f"{LOOK}: CPU at {vfs} VFs", f"at {first} VFs", spent[str(vfs)] / spent[str(first)], None)
          for vfs in others),
    ]  # fmt: skip


def _spread(counts: Mapping[int, int]) -> int:
    return max(counts.values()) - min(counts.values())


def _sizes(some: list[int]) -> str:
    return f"at {' and '.join(map(str, some))} VFs"


# Loopback hosts --------------------------------------------------------------------------


@contextmanager
def benches(folder: Path, hosts: Mapping[int, Answering], count: int) -> Iterator[dict[int, Bench]]:
    """The same loopback hosts, judged by the tree of each size."""
    with farm(folder / "farm", count) as made:
        found = {}
        for vfs, host in hosts.items():
            own = folder / f"bench-{vfs}"
            own.mkdir()
            found[vfs] = Bench(made, own, judged(Path(host.root), intent(vfs)))
        yield found


def _counts(made: Mapping[int, Bench], count: int, tell: Tell) -> list[Result]:
    tasks, commands = {}, {}
    for vfs, one in made.items():
        tell(f"counting at {vfs} VFs on {count} hosts")
        tasks[vfs], commands[vfs] = counted(one, count)
    others = list(made)[1:]
    return [
        Result("vf-tasks", f"{WHAT}: tasks that a host sees", "", max(tasks.values()), 3, count=True),
        Result("vf-executions", f"{WHAT}: commands sent to a host", "", max(commands.values()), 1, count=True),
        Result("vf-tasks-more", f"{WHAT}: tasks, {_sizes(others)} more", OTHERS, _spread(tasks), 0, count=True),
        Result("vf-executions-more", f"{WHAT}: commands, {_sizes(others)} more", OTHERS, _spread(commands), 0, count=True),
    ]  # fmt: skip


def counted(made: Bench, count: int) -> tuple[int, int]:
    """Tasks and commands of a run on every host, of which nothing may be left but what a captured tree cannot tell."""
    inventory = made.inventory(count)
    names = list(json.loads(inventory.read_text())["gpudirect_hosts"]["hosts"])
    run = play("site.yml", inventory, names, addresses=made.farm.addresses)
    wrong = [name for name in names if not run.ok or not _only_deferred(run.host(name).last_plan)]
    if wrong or any(run.host(name).changed for name in names):
        raise RuntimeError(f"the loopback hosts are not as wanted: {wrong}\n{run.text[-3000:]}")
    return max(len(run.host(name).tasks) for name in names), max(run.commands.values())


def _only_deferred(plan: Mapping[str, Any]) -> bool:
    left = [*plan["plan"], *plan["blocked"], *plan["awaiting_reboot"], *plan["todo"]]
    return not left and sorted(one["resource"] for one in plan["deferred"]) == DEFERRED


def _wall_results(made: Mapping[int, Bench], sizes: Sizes, tell: Tell) -> list[Result]:
    walls: dict[int, list[float]] = {vfs: [] for vfs in made}
    for turn in range(sizes.rounds + 1):
        for vfs, one in made.items():
            cost = timed(one.command("site", sizes.few), one.environment, one.folder)
            tell(f"{'warming' if turn == 0 else f'round {turn}'}: {vfs} VFs on {sizes.few} hosts: {cost.wall_s:.2f} s")
            if turn:
                walls[vfs].append(cost.wall_s)
    times = {vfs: statistics.median(some) for vfs, some in walls.items()}
    what = f"{WHAT}: time for {sizes.few} hosts, {{vfs}} VFs"
    return [
        Result(
            f"vf-wall-{vfs}", what.format(vfs=vfs), OTHERS, times[vfs] / times[FEW],
            *((1.6, 1.15) if vfs == MANY else (None, None)),
        )
        for vfs in made if vfs != FEW
    ]  # fmt: skip


def _cpu_results(made: Bench, host: Answering, sizes: Sizes, tell: Tell) -> list[Result]:
    """Processor time of both sides, ours and that of small tasks, on the same hosts."""
    small = replace(made, variables=looped.variables(host))
    rounds = {1: sizes.rounds, sizes.looped: 1}  # a thousand executions are a mean of their own
    found = {count: _cpu_ratio(made, small, count, _unseen_s(host), some, tell) for count, some in rounds.items()}
    what = f"{WHAT}: CPU of both sides at {FEW} VFs, {{hosts}}"
    against = f"role of small tasks, {looped.executions(small.variables)} executions"
    return [
        Result("vf-cpu", what.format(hosts=f"{sizes.looped} hosts"), against, found[sizes.looped], 1 / 30, 1 / 60),
        Result("vf-cpu-1", what.format(hosts="1 host"), against, found[1], None),
    ]


def _unseen_s(host: Answering) -> float:
    """What a look would take more on a live host than on its tree, by the engine alone; at most all of it."""
    wanted = checked(FEW)
    return in_turns({"look": lambda: look(host, wanted)}, 5)["look"]


def _cpu_ratio(ours: Bench, small: Bench, count: int, unseen_s: float, rounds: int, tell: Tell) -> float:
    """In turns; our run is charged with a second look of the engine on each host, for what a tree cannot tell."""
    commands = {"site": ours.command("site", count), "small tasks": looped_command(small, count)}
    costs: dict[str, list[Cost]] = {what: [] for what in commands}
    timed(commands["site"], ours.environment, ours.folder)  # warms connections
    for turn in range(rounds):
        for what, argv in commands.items():
            cost = timed(argv, ours.environment, ours.folder, ours.farm.processes)
            tell(
                f"round {turn + 1}: {what} on {count} hosts: CPU {cost.cpu_s:.2f} s here, {cost.targets_s:.2f} s there"
            )
            costs[what].append(cost)
    _require_no_change((ours.folder / "output").read_text())
    spent = {what: statistics.median(cost.both_s for cost in some) for what, some in costs.items()}
    return (spent["site"] + count * unseen_s) / spent["small tasks"]


def looped_command(small: Bench, count: int) -> list[str]:
    """The role of small tasks, with its inventory beside it."""
    inventory = small.folder / f"looped-{count}.json"
    inventory.write_text(json.dumps(small.farm.inventory(count, small.variables)))
    program = Path(sys.executable).parent / "ansible-playbook"
    return [str(program), "-i", str(inventory), str(looped.write_playbook(small.folder))]


def _require_no_change(output: str) -> None:
    recap = [line for line in output.splitlines() if " changed=" in line]
    if not recap or any(" changed=0 " not in line or " failed=0 " not in line for line in recap):
        raise RuntimeError(f"the role of small tasks does not find what the engine made:\n{output[-3000:]}")
