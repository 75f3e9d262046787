# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the devices of a machine can talk to each other directly: a machine and an intent give a report. Pure.

Only what lies between a GPU and its nearest NICs counts. What the input does not tell is UNKNOWN, never good or bad. The rules stand
in ``path/rules.py``, the bits that are wanted in ``path/policy.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Union

from .path import alone, guest, parts, registers, whole
from .path.finding import Finding, Pair, Relaxed, Report, Verdict
from .path.intent import PathIntent, Relaxation, parse
from .path.policy import VIRTIO, AcsWant
from .path.rules import RULES
from .path.view import Looks, Seen, Subject, View
from .pci.address import Address
from .pci.machine import Machine
from .pci.select import matches

__all__ = ["AcsWant", "Coming", "judge", "parse", "wanted_read_requests", "wanted_words"]

# What this run will still set: rule and function (None: whatever the rule is about) to what will set it, in words.
Coming = Mapping[tuple[str, Union[Address, None]], str]

_LOOKS: Mapping[str, Callable[[View], Looks]] = {
    **guest.LOOKS,
    **whole.LOOKS,
    **registers.LOOKS,
    **parts.LOOKS,
    **alone.LOOKS,
}
_BAD = (Verdict.WARN, Verdict.UNKNOWN, Verdict.FAIL)
_BY_SITE = "relaxation_unused"


def judge(machine: Machine, intent: PathIntent, coming: Coming | None = None) -> Report:
    """The report about a machine; ``coming`` is what an earlier step of the same run will set, and gives DEFERRED."""
    view = View(machine, intent)
    relaxing = _Relaxing(view)
    findings: list[Finding] = []
    judged: list[tuple[Subject, Verdict]] = []
    for name, rule in RULES.items():
        if intent.mode in rule.modes and name in _LOOKS:
            findings += _of_rule(view, name, relaxing, coming or {}, judged)
    if intent.mode != VIRTIO:
        findings += relaxing.unused()
    return Report(
        name=machine.name,
        mode=intent.mode,
        gpus=tuple(one.address for one in view.devices.gpus),
        nics=tuple(one.address for one in view.devices.nics),
        pairs=tuple(_pairs(view, judged)),
        best=view.best,
        findings=tuple(findings),
        missing=machine.missing,
        relaxed=tuple(Relaxed(one.rule, one.reason, count) for one, count in relaxing.counts()),
        source=machine.source,
    )


def wanted_words(machine: Machine, intent: PathIntent) -> dict[Address, AcsWant]:
    """What the policy wants of the ACS control word of each port on a judged path, by address.

    A port need not be able to do it, nor have the capability: that is for rules, and for who writes.
    """
    ports = View(machine, intent).ports.values()
    wanted = {
        port.function.address: AcsWant(port.bits.wanted, port.bits.barred, port.words)
        for port in ports
        if port.bits.wanted or port.bits.barred
    }
    return {address: wanted[address] for address in sorted(wanted)}


def wanted_read_requests(machine: Machine, intent: PathIntent) -> dict[Address, int]:
    """Bytes of a read request that each nearest NIC shall be allowed, by address."""
    size = intent.read_request
    return {} if size is None else {one.address: size for one in View(machine, intent).judged_nics}


# One rule --------------------------------------------------------------------------------


def _of_rule(
    view: View, name: str, relaxing: _Relaxing, coming: Coming, judged: list[tuple[Subject, Verdict]]
) -> Iterator[Finding]:
    """Its findings: one for each thing that is not as wanted, and one for all that are."""
    fine, notes = 0, []
    for verdict, subject, found, wanted in _LOOKS[name](view):
        if verdict == Verdict.OK:
            fine += 1
            if found:
                notes.append(found if subject is None else f"{subject}: {found}")
            continue
        finding = _finding(view, name, (verdict, subject, found, wanted))
        setter = coming.get((name, subject if isinstance(subject, Address) else None), coming.get((name, None)))
        if setter and verdict != Verdict.UNKNOWN:
            finding = replace(finding, verdict=Verdict.DEFERRED, remedy=f"This run will set it: {setter}")
        else:
            finding = relaxing.applied(finding)
        judged.append((subject, finding.verdict))
        yield finding
    if fine:
        yield Finding(name, Verdict.OK, "; ".join(notes) or "as wanted", "", count=fine)


def _finding(view: View, name: str, seen: Seen) -> Finding:
    rule = RULES[name]
    verdict, subject, found, wanted = seen
    pairs: tuple[tuple[Address, Address], ...] = ()
    path: tuple[Address, ...] = ()
    if isinstance(subject, Address):
        path = (subject,)
        pairs = tuple(_pairs_of(view, subject))
    elif subject is not None:
        pairs = (subject,)
        way = view.ways[subject]
        path = (subject[0], *way.up, *way.common[:1], *way.down, subject[1])
    pair = pairs[0] if len(pairs) == 1 else ()
    remedy = rule.if_unknown if verdict == Verdict.UNKNOWN else rule.remedy
    return Finding(name, verdict, found, wanted, rule.why, remedy, pair, path, pairs=pairs)


def _pairs_of(view: View, one: Address) -> Iterator[tuple[Address, Address]]:
    """The judged pairs that a function is part of or between."""
    port = view.ports.get(one)
    if port is not None:
        yield from port.pairs
        return
    function = view.get(one)
    owner = one if function.physfn is None else function.physfn
    yield from (pair for pair in view.pairs if owner in pair)


# Pairs -----------------------------------------------------------------------------------


def _pairs(view: View, judged: list[tuple[Subject, Verdict]]) -> Iterator[Pair]:
    worst: dict[Subject, Verdict] = {}
    for subject, verdict in judged:
        if subject is not None:
            pf = view.get(subject).physfn if isinstance(subject, Address) else None
            about = subject if pf is None else pf
            worst[about] = max(verdict, worst.get(about, Verdict.OK))
    best = set(view.pairs)
    for pair, way in view.ways.items():
        if pair not in best:
            yield Pair(*pair, way.kind, way.up, way.common, way.down, Verdict.UNKNOWN, judged=False)
            continue
        verdict = worst.get(pair, Verdict.OK)
        if worst:
            on_path = (*pair, *way.up, *way.common, *way.down)
            verdict = max(verdict, *(worst.get(one, Verdict.OK) for one in on_path))
        yield Pair(*pair, way.kind, way.up, way.common, way.down, verdict)


# What the site has relaxed ---------------------------------------------------------------


class _Relaxing:
    """The relaxations of an intent, and what each has been good for."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._given = view.intent.relax
        self._used = dict.fromkeys(range(len(self._given)), 0)
        self._devices = [self._chosen(one) for one in self._given]

    def counts(self) -> Iterator[tuple[Relaxation, int]]:
        """Each relaxation and how many findings it took out of the verdict."""
        yield from ((one, self._used[index]) for index, one in enumerate(self._given))

    def applied(self, finding: Finding) -> Finding:
        """The finding, or the same one relaxed by the first relaxation that covers it."""
        for index, one in enumerate(self._given):
            if one.rule == finding.rule and self._covers(self._devices[index], finding):
                self._used[index] += 1
                return replace(finding, verdict=Verdict.OK, relaxed=one.reason)
        return finding

    def unused(self) -> Iterator[Finding]:
        """A warning for each that was good for nothing, or that all are needed."""
        rule = RULES[_BY_SITE]
        idle = [one for index, one in enumerate(self._given) if not self._used[index]]
        for one in idle:
            found = f"{one.path} relaxes {one.rule} ({one.reason}), and no finding of this host needs it"
            yield Finding(_BY_SITE, Verdict.WARN, found, "a finding that it covers", rule.why, rule.remedy)
        if len(idle) < len(self._given):
            yield Finding(_BY_SITE, Verdict.OK, "as wanted", "", count=len(self._given) - len(idle))

    def _chosen(self, one: Relaxation) -> frozenset[Address] | None:
        if one.selector is None:
            return None
        return frozenset(function.address for function in matches(one.selector, self._view.machine.tree))

    @staticmethod
    def _covers(chosen: frozenset[Address] | None, finding: Finding) -> bool:
        """Whether it is about the chosen devices alone: itself, or one of each pair that it concerns."""
        if chosen is None or any(one in chosen for one in finding.path):
            return True
        return bool(finding.pairs) and all(chosen.intersection(pair) for pair in finding.pairs)
