# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The findings of a report as a picture lists them: one entry a rule, numbered, with the places that it is about. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..pci.address import Address
from .finding import Finding, Kind, Pair, Report, Verdict
from .labels import clean, counted


@dataclass(frozen=True)
class Entry:
    """All findings of one rule with one verdict. Its number stands at the places that it is about."""

    number: int
    verdict: Verdict
    rule: str
    places: tuple[Address, ...]  # empty: the machine as a whole
    details: tuple[tuple[str, str], ...]  # what was found and why, and what to do; without repetitions

    @property
    def label(self) -> str:
        """What stands at each place."""
        return f"{self.number} {self.verdict.name} {self.rule}"


def places(finding: Finding) -> tuple[Address, ...]:
    """The functions that a finding points at: the failing hops, or the pair where it names no hop."""
    return finding.path or finding.pair


def entries(report: Report) -> tuple[Entry, ...]:
    """What is not OK, the gravest first, in an order that does not depend on that of the findings."""
    grouped: dict[tuple[int, str], list[Finding]] = {}
    for finding in ordered(report):
        if finding.verdict is not Verdict.OK:
            grouped.setdefault((-finding.verdict, clean(finding.rule)), []).append(finding)
    found = []
    for number, ((verdict, rule), findings) in enumerate(sorted(grouped.items()), 1):
        where = sorted({address for one in findings for address in places(one)})
        details = tuple(dict.fromkeys(_detail(one) for one in findings))
        found.append(Entry(number, Verdict(-verdict), rule, tuple(where), details))
    return tuple(found)


def ordered(report: Report) -> list[Finding]:
    """The findings in one order."""
    return sorted(
        report.findings,
        key=lambda one: (-one.verdict, one.rule, one.path, one.pair, one.found, one.wanted, one.why, one.remedy),
    )


def _detail(finding: Finding) -> tuple[str, str]:
    facts = f"found {clean(finding.found) or 'nothing'}, wanted {clean(finding.wanted) or 'nothing'}"
    return (f"{facts}. {clean(finding.why)}" if finding.why else f"{facts}."), clean(finding.remedy)


def notes(report: Report) -> list[str]:
    """What is fine and was told all the same, by rule."""
    told = [
        one for one in ordered(report) if one.verdict is Verdict.OK and not one.relaxed and one.found != "as wanted"
    ]
    return [f"{clean(one.rule)}: {clean(one.found)}" for one in told if one.rule != "not_applicable"]


def relaxed(report: Report) -> list[str]:
    """The rules that the site has relaxed, with its reasons."""
    grouped: dict[tuple[str, str], int] = {}
    for finding in ordered(report):
        if finding.relaxed:
            key = (clean(finding.rule), clean(finding.relaxed))
            grouped[key] = grouped.get(key, 0) + 1
    return [f"{rule} ({counted(number, 'finding')}): {reason}" for (rule, reason), number in sorted(grouped.items())]


def counts(report: Report, functions: int, vfs: int) -> str:
    """How many findings of each verdict, and how much was looked at."""
    verdicts = [(verdict, sum(one.verdict is verdict for one in report.findings)) for verdict in reversed(Verdict)]
    words = [f"{number} {verdict.name}" for verdict, number in verdicts if number] or ["no findings"]
    devices = [counted(len(set(report.gpus)), "GPU"), counted(len(set(report.nics)), "NIC"), counted(vfs, "VF")]
    return ", ".join(words) + " | " + ", ".join([*devices, counted(functions, "function")])


def by_ends(report: Report) -> Mapping[tuple[Address, Address], Pair]:
    """The pairs by GPU and NIC."""
    ordered_pairs = sorted(report.pairs, key=lambda one: (one.gpu, one.nic, one.kind, one.verdict))
    return {(one.gpu, one.nic): one for one in ordered_pairs}


def best(report: Report) -> tuple[Pair, ...]:
    """Each GPU with its nearest NICs."""
    known = by_ends(report)
    return tuple(
        known.get((gpu, nic), Pair(gpu, nic, Kind.UNKNOWN))
        for gpu in sorted(report.best)
        for nic in sorted(set(report.best[gpu]))
    )


def way(pair: Pair) -> str:
    """What a GPU's box says of the way to a NIC; a way on which nothing is wrong says only how far it is."""
    bad = "" if pair.verdict is Verdict.OK else f" {pair.verdict.name}"
    return f"{pair.kind.name} to {pair.nic}{bad}"
