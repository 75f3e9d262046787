"""A run without changes on hosts with guests, for any number of them, and what it takes to define one.

A captured tree, by which the loopback hosts are judged, has no libvirt to ask: there the resources of guests say that they
wait for the running host. So the whole look, and defining, are measured besides, in this process, on fake hosts that answer.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from ansible_collections.vela.gpudirect.plugins.module_utils.pci import sysfs

from tests.benchmark.converged import converged_tree
from tests.benchmark.guest_machines import (
    KINDS,
    Hypervisor,
    checked,
    define,
    define_s,
    forget_guests,
    guest_variables,
    host_with,
)
from tests.benchmark.loopback import farm
from tests.benchmark.machines import look
from tests.benchmark.reading import in_turns
from tests.benchmark.suite import Bench, Result, Sizes, Tell
from tests.integration.runs import play

SIZES = (0, 1, 4, 8)
TOLD = (1, 8)  # those that have rows of their own
LOOK = "whole look in the engine alone, guests"
DEFINE = "define, start and verify in the engine alone"
WHAT = "run without changes, guests"
PLAYBOOKS = ("site.yml", "playbooks/guests.yml")
# What of an inventory with guests a captured tree cannot tell.
DEFERRED = ["guest_image", "libvirt_guest", "libvirt_network", "libvirt_pool"]
READING = "reading its PCI functions"
SLOPE = 1.25  # how much more a later guest may take than an earlier one: were it n times as much, this would be seen


def guest_results(sizes: Sizes, tell: Tell) -> list[Result]:
    """Everything about guests that needs no rack."""
    with tempfile.TemporaryDirectory(prefix="gpudirect-bench-") as scratch, mock.patch.object(os, "fsync"):
        folder = Path(scratch)
        hosts = {}
        for guests in SIZES:
            tell(f"making a host with {guests} guests")
            hosts[guests] = host_with(folder / f"host-{guests}", guests)
        turns = (
            8 * sizes.rounds + 1
        )  # slopes are differences: they want many turns, which take a quarter of a second each
        looks = look_results(hosts, turns, tell)
        defined = define_results(hosts[SIZES[-1]], turns, tell)
        counts = count_results(folder, sizes.few, tell)
    return [*counts, *looks, *defined]


# The engine alone ------------------------------------------------------------------------


def look_results(hosts: Mapping[int, Hypervisor], turns: int, tell: Tell) -> list[Result]:
    """Reading and planning all resources of hosts that are as wanted."""
    wanted = {guests: checked(guests) for guests in hosts}
    seen = {guests: counted_look(host, wanted[guests]) for guests, host in hosts.items()}
    work: dict[str, Any] = {
        str(guests): (lambda guests=guests: look(hosts[guests], wanted[guests])) for guests in hosts
    }
    spent = _by_guests(in_turns({**work, "read": lambda: sysfs.read(hosts[SIZES[-1]])}, turns))
    tell(f"whole look: {', '.join(f'{guests} {1000 * one:.1f} ms' for guests, one in spent.items())}")
    none, _one, _some, most = SIZES
    return [
        Result("guest-left", f"{LOOK}: hosts that are not as wanted", "", sum(not one["verified"] for one in seen.values()), 0, count=True),
        Result("guest-changes", f"{LOOK}: changes", "", sum(one["changes"] for one in seen.values()), 0, count=True),
        Result("guest-programs", f"{LOOK}: programs run on a host, {_at(TOLD)} more", "no guests",
               _spread([one["programs"] for one in seen.values()]), 0, count=True),
        Result("guest-lists", f"{LOOK}: lists and connections asked of libvirt", "",
               max(one["asked"] for one in seen.values()), len(KINDS) + 1, count=True),
        *(Result(f"guest-look-{guests}", f"{LOOK}: CPU {_at([guests])}", "no guests", spent[guests] / spent[none], None)
          for guests in TOLD),
        Result("guest-look-slope", f"{LOOK}: CPU for one more guest, 4 to 8", "one more, 1 to 4", slopes(spent), SLOPE),
        Result("guest-look-read", f"{LOOK}: CPU for one more guest, 1 to 8", READING, per_guest(spent, 1, most) / spent["read"], None),
    ]  # fmt: skip


def counted_look(host: Hypervisor, wanted: dict[str, Any]) -> dict[str, Any]:
    """What a look finds, and how often it asks programs and libvirt."""
    host.answer()
    host.commands.clear()
    host.asked.clear()
    found = look(host, wanted)
    return {
        "verified": found["verified"],
        "changes": len(found["plan"]),
        "programs": len(host.commands),
        "asked": sum(host.asked.values()),
    }


def define_results(host: Hypervisor, turns: int, tell: Tell) -> list[Result]:
    """What the module of libvirt_guest does on a host that has everything but its guests."""
    few, some, most = SIZES[1:]
    counts = {guests: counted_define(host, guests) for guests in (few, most)}
    measured: dict[Any, list[float]] = {guests: [] for guests in (few, some, most)}
    read = []
    for turn in range(turns + 1):
        for guests, times in measured.items():
            times.append(define_s(host, guests))
        read.append(in_turns({"read": lambda: sysfs.read(host)}, 1)["read"])
        if not turn:  # the first turn warms
            read.clear()
            for times in measured.values():
                times.clear()
    spent = {guests: statistics.median(times) for guests, times in {**measured, "read": read}.items()}
    tell(f"define, start and verify: {', '.join(f'{guests} {1000 * one:.1f} ms' for guests, one in spent.items())}")
    more = {name: counts[most][name] - counts[few][name] for name in counts[few]}
    return [
        Result("define-programs", f"{DEFINE}: programs run on a host, {_at([most])} more", _at([few]), more["programs"], 0, count=True),
        Result("define-lists", f"{DEFINE}: lists asked of libvirt, {_at([most])} more", _at([few]), more["lists"], 0, count=True),
        Result("define-changes", f"{DEFINE}: changes for one more guest", "", more["changes"] / (most - few), 2, count=True),
        Result("define-each", f"{DEFINE}: CPU for each of 8 guests", "the only one", spent[most] / most / spent[few], SLOPE),
        Result("define-slope", f"{DEFINE}: CPU for one more guest, 4 to 8", "one more, 1 to 4", slopes(spent), SLOPE),
        Result("define-read", f"{DEFINE}: CPU for one more guest, 1 to 8", READING, per_guest(spent, few, most) / spent["read"], None),
    ]  # fmt: skip


def counted_define(host: Hypervisor, guests: int) -> dict[str, int]:
    """Changes, programs and lists of libvirt, of a run that defines as many guests."""
    forget_guests(host)
    host.commands.clear()
    host.asked.clear()
    report = define(host, guests)
    lists = sum(host.asked[name] for name in KINDS)
    return {"changes": len(report.plan.changes), "programs": len(host.commands), "lists": lists}


def per_guest(spent: Mapping[Any, float], few: int, many: int) -> float:
    """What one more guest takes."""
    return (spent[many] - spent[few]) / (many - few)


def slopes(spent: Mapping[Any, float]) -> float:
    """What one more of many guests takes, against one more of a few."""
    few, some, most = SIZES[1:]
    return per_guest(spent, some, most) / per_guest(spent, few, some)


def _by_guests(spent: Mapping[str, float]) -> dict[Any, float]:
    return {int(name) if name.isdigit() else name: one for name, one in spent.items()}


def _spread(counts: list[int]) -> int:
    return max(counts) - min(counts)


def _at(some: tuple[int, ...] | list[int]) -> str:
    return f"at {' and '.join(map(str, some))} guest{'' if list(some) == [1] else 's'}"


# Loopback hosts --------------------------------------------------------------------------


def count_results(folder: Path, count: int, tell: Tell) -> list[Result]:
    """Tasks and commands of both playbooks, with guests in the inventory and without."""
    trees = {guests: converged_tree(folder / f"tree-{guests}", inventory_of(guests)) for guests in (0, *TOLD)}
    found: list[Result] = []
    with farm(folder / "farm", count) as hosts:
        for playbook in PLAYBOOKS:
            seen = {}
            for guests, variables in trees.items():
                tell(f"counting {playbook} with {guests} guests on {count} hosts")
                seen[guests] = counted(Bench(hosts, folder, variables), count, playbook, DEFERRED if guests else [])
            found += _count_results(Path(playbook).name, seen)
    return found


def inventory_of(guests: int) -> dict[str, Any]:
    """Variables of a host with guests; none at all without."""
    return guest_variables(guests) if guests else {}


def _count_results(name: str, seen: Mapping[int, tuple[int, int]]) -> list[Result]:
    tasks, commands = ({guests: one[part] for guests, one in seen.items()} for part in (0, 1))
    what = f"{WHAT}, {name}"
    key = f"guest-{Path(name).stem}"
    return [
        Result(f"{key}-tasks", f"{what}: tasks that a host sees", "", max(tasks.values()), 3, count=True),
        Result(f"{key}-executions", f"{what}: commands sent to a host", "", max(commands.values()), 1, count=True),
        Result(f"{key}-more", f"{what}: tasks and commands, {_at(TOLD)} more", "no guests",
               max(_spread([*tasks.values()]), _spread([*commands.values()])), 0, count=True),
    ]  # fmt: skip


def counted(made: Bench, count: int, playbook: str, deferred: list[str]) -> tuple[int, int]:
    """Tasks and commands of a run on every host, of which nothing may be left but what a captured tree cannot tell."""
    inventory = made.inventory(count)
    names = list(json.loads(inventory.read_text())["gpudirect_hosts"]["hosts"])
    run = play(playbook, inventory, names, addresses=made.farm.addresses)
    wrong = [name for name in names if not run.ok or left(run.host(name).last_plan) != deferred]
    if wrong or any(run.host(name).changed for name in names):
        raise RuntimeError(f"the loopback hosts are not as wanted: {wrong}\n{run.text[-3000:]}")
    return max(len(run.host(name).tasks) for name in names), max(run.commands.values())


def left(plan: Mapping[str, Any]) -> list[str]:
    """What a plan leaves open: paths of changes, and the resources that wait."""
    changes = [one["path"] for part in ("plan", "blocked", "awaiting_reboot") for one in plan[part]]
    return [*changes, *plan["todo"], *sorted(one["resource"] for one in plan["deferred"])]
