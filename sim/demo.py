# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The demonstration: stock hosts of the simulated rack become what the inventory says, and it is proven.

Prediction, real run with a real reboot, verification from outside the engine, a second run that changes nothing, and what the
guest on one of the hosts says of itself.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rollout.run import HostOutcome, Outcome, TaskEnd, playbook
from sim import demo_guest

ROOT = Path(__file__).resolve().parents[1]
# The second one asks for a guest on one of the hosts.
INVENTORIES = (ROOT / "inventories" / "sim", ROOT / "inventories" / "sim-guests")
ARTIFACTS = ROOT / ".rack" / "demo"
RACK = ROOT / "sim" / "rack"
HOSTS = ("node-a", "node-b")
INTERRUPTED = 130  # as a shell tells a program that was stopped by SIGINT
# One word for each device that a guest can have: where its driver was bound, the host has nothing more to do with it.
WITH_VFIO = "for one in /sys/bus/pci/drivers/vfio-pci/*:*; do [ -e $one/physfn ] && echo vf || [ ! -e $one ] || echo whole; done"


@dataclass
class Screen:
    """Progress lines with the seconds since the start; a host that is long at one task is named every 20 s."""

    started: float = field(default_factory=time.monotonic)
    doing: dict[str, tuple[str, float]] = field(default_factory=dict)
    predicting: bool = False

    def say(self, text: str) -> None:
        """One line."""
        print(f"[{time.monotonic() - self.started:5.0f} s] {text}", flush=True)

    def begins(self, host: str, task: str) -> None:
        """A task begins on a host."""
        self.doing[host] = (task, time.monotonic())

    def ends(self, ended: TaskEnd) -> None:
        """A task ended on a host; what changed, failed or was looked at gets a line."""
        self.doing.pop(ended.host, None)
        text = _line(ended, "would" if self.predicting else "done")
        if text:
            self.say(f"  {ended.host}: {text}")

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Names what is still being waited for, while the block runs."""
        stop = threading.Event()

        def watch() -> None:
            while not stop.wait(20):
                for host, (task, since) in sorted(dict(self.doing).items()):
                    if time.monotonic() - since > 15:
                        self.say(f"  {host}: still at: {task} ({time.monotonic() - since:.0f} s)")

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def _line(ended: TaskEnd, word: str) -> str:
    if ended.action.endswith("host_plan") and ended.ending == "ok":
        return f"looked: {ended.result.get('msg', '')}"
    if ended.ending in ("failed", "unreachable"):
        return f"{ended.ending}: {ended.task}: {ended.result.get('msg', '')}"
    if ended.changed:
        return f"{word}: {ended.task}"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0 when every host is verified and the second run changed nothing, 130 when interrupted, else 1."""
    options = _options(arguments)
    if options.down:
        status = _rack("down")
        print("the rack is down" if status == 0 else "the rack is not down; the lines above say why")
        return status
    screen = Screen()
    stays = False
    try:
        verdict = _demonstrate(screen, kept=_running())
        stays = options.keep
    except KeyboardInterrupt:
        verdict = Verdict(False, "INTERRUPTED: nothing is proven.", INTERRUPTED)
    finally:
        if not stays:
            screen.say("taking the rack down" + ("" if options.keep else " (--keep leaves it up)"))
            _rack("down")
    print(verdict.text, flush=True)
    return verdict.status


def _rack(*arguments: str) -> int:
    """Run a command of the rack. Interrupted, it is left the time to tidy up, which subprocess.call would not do."""
    with subprocess.Popen([str(RACK), *arguments]) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            process.wait()
            raise


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", action="store_true", help="leave the rack up at the end")
    parser.add_argument("--down", action="store_true", help="only take the rack down")
    return parser.parse_args(arguments)


@dataclass(frozen=True)
class Verdict:
    """The last line of the demonstration."""

    good: bool
    text: str
    failure: int = 1

    @property
    def status(self) -> int:
        """The exit status of the program."""
        return 0 if self.good else self.failure


def _demonstrate(screen: Screen, *, kept: bool) -> Verdict:
    screen.say(
        "the rack: "
        + ("it is up from before and is used as it is" if kept else f"booting {' and '.join(HOSTS)} from fresh disks")
    )
    if _rack("up", *HOSTS, *([] if kept else ["--fresh"])) != 0:
        return Verdict(False, "FAILED: the rack did not come up; the lines above say why.")
    screen.say("1/5 what a run would do (site.yml --check): nothing is written")
    screen.predicting = True
    predicted = _site(screen, "--check")
    screen.predicting = False
    screen.say("2/5 the run (site.yml): changes, one reboot, a fresh look")
    made = _site(screen)
    screen.say("3/5 verification from outside the engine (playbooks/verify.yml)")
    verified = _run(screen, "playbooks/verify.yml")
    screen.say("4/5 the run again (site.yml): nothing may change")
    again = _site(screen)
    screen.say("5/5 what the guest sees from inside, as it says on its console")
    seen = demo_guest.seen(RACK, again)
    return _verdict(predicted, made, verified, again, seen)


def _devices(host: str) -> str:
    """What the host itself says of the devices that are there for guests."""
    argv = [str(RACK), "ssh", host, "--", WITH_VFIO]
    words = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.split()
    return f"{words.count('vf')} VFs and {words.count('whole')} stand-ins with vfio-pci"


def _site(screen: Screen, *arguments: str) -> Outcome:
    return _run(screen, "site.yml", *arguments)


def _run(screen: Screen, name: str, *arguments: str) -> Outcome:
    with screen.watched():
        outcome = playbook(
            name, INVENTORIES, ARTIFACTS, hosts=HOSTS, arguments=arguments, on_task=screen.ends, on_start=screen.begins
        )
    if not outcome.ok:
        screen.say(f"  {name} ended as {outcome.status}; all of its output: {outcome.output}")
    return outcome


def _verdict(
    predicted: Outcome, made: Outcome, verified: Outcome, again: Outcome, guests: Sequence[demo_guest.Seen]
) -> Verdict:
    print(flush=True)
    faults = 0
    for host in HOSTS:
        text, good = _row(predicted.hosts[host], made.hosts[host], again.hosts[host], verified.ok)
        faults += not good
        print(f"{host:<10} {text}" + (f"; {_devices(host)}" if good else ""), flush=True)
    for guest in guests:
        print(f"{guest.name:<10} {guest.text}", flush=True)
    if faults or not verified.ok:
        return Verdict(False, f"FAILED: {faults} of {len(HOSTS)} hosts are not what the inventory says.")
    if not guests or not all(guest.good for guest in guests):
        return Verdict(False, "FAILED: the guest does not see what it was to have.")
    return Verdict(
        True,
        f"VERIFIED: {len(HOSTS)} of {len(HOSTS)} hosts are what the inventory says, and a second run changed nothing.",
    )


def _row(predicted: HostOutcome, made: HostOutcome, again: HostOutcome, verified: bool) -> tuple[str, bool]:
    """The line of one host, and whether it is good."""
    foreseen, done, late = _planned(predicted), *_made(made, predicted)
    if not made.ok:
        return f"FAILED: {made.message}", False
    if foreseen != done:
        return f"FAILED: the check predicted {foreseen} and the run did {done}", False
    if not again.ok or again.changed or not again.last_plan.get("verified"):
        return f"FAILED: the second run was not quiet: {again.message}", False
    if not verified:
        return "FAILED: the verification found a difference", False
    reboots = sum(task.changed for task in made.tasks if task.action.endswith("reboot"))
    quiet = f"{len(again.tasks)} task(s), {again.executions} execution(s), 0 changes"
    made_of = (
        f"{len(done)} changes as predicted and {len(late)} of what they brought"
        if late
        else f"{len(done)} changes as predicted"
    )
    return f"verified: {made_of}, {reboots} reboot(s); second run {quiet}", True


def _first_look(outcome: HostOutcome) -> Mapping[str, Any]:
    plans = [task.result for task in outcome.tasks if task.action.endswith("host_plan") and task.ending == "ok"]
    return plans[0] if plans else {"plan": [], "deferred": []}


def _planned(outcome: HostOutcome) -> list[str]:
    """The changes that the first look foresaw."""
    return _paths(_first_look(outcome)["plan"])


def _made(outcome: HostOutcome, predicted: HostOutcome) -> tuple[list[str], list[str]]:
    """The changes that the modules report to have made; apart, those of what the first look said it cannot see yet."""
    results = [task.result for task in outcome.tasks if task.changed and "plan" in task.result]
    look = _first_look(predicted)
    foreseen = _paths(look["plan"])
    deferred = tuple(f"{one['resource']}{sign}" for one in look["deferred"] for sign in "[.")
    done = [path for result in results for path in _paths(result["plan"])]
    late = [path for path in done if path.startswith(deferred) and path not in foreseen]
    return [path for path in done if path not in late], late


def _paths(plan: Sequence[dict[str, object]]) -> list[str]:
    return [f"{one['path']}: {one['before']} -> {one['after']}" for one in plan]


def _running() -> bool:
    """True when a host of the demonstration is up already, from an earlier --keep."""
    done = subprocess.run([str(RACK), "status", "--json"], capture_output=True, text=True, check=True)
    return any(host["name"] in HOSTS and host["power"] == "on" for host in json.loads(done.stdout))


if __name__ == "__main__":
    sys.exit(main())
