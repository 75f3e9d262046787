# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A report as plain data in a stable order, and as lines for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .finding import Finding, Kind, Report, Verdict
from .rules import RULES

_WORST_FIRST = sorted(Verdict, reverse=True)


def plain(report: Report) -> dict[str, Any]:
    """The report as JSON has it. ``kinds`` has a row for each GPU and a column for each NIC, in the order of these lists."""
    kinds = {(pair.gpu, pair.nic): pair.kind.name for pair in report.pairs}
    return {
        "name": report.name,
        "source": report.source,
        "mode": report.mode,
        "verdict": report.verdict.name,
        "gpus": [str(one) for one in report.gpus],
        "nics": [str(one) for one in report.nics],
        "kinds": [[kinds[gpu, nic] for nic in report.nics] for gpu in report.gpus],
        "best": {str(gpu): [str(nic) for nic in report.best.get(gpu, ())] for gpu in report.gpus},
        "pairs": [
            {
                "gpu": str(pair.gpu),
                "nic": str(pair.nic),
                "kind": pair.kind.name,
                "up": [str(one) for one in pair.up],
                "common": [str(one) for one in pair.common],
                "down": [str(one) for one in pair.down],
                "verdict": pair.verdict.name,
            }
            for pair in report.pairs
            if pair.judged
        ],
        "findings": [_plain(one) for one in ordered(report)],
        "relaxed": [{"rule": one.rule, "reason": one.reason, "findings": one.findings} for one in report.relaxed],
        "missing": list(report.missing),
    }


def ordered(report: Report) -> list[Finding]:
    """The findings, worst first, and among equals in the order of the rules and of the paths."""
    places = {name: place for place, name in enumerate(RULES)}
    return sorted(report.findings, key=lambda one: (-one.verdict, places.get(one.rule, len(places)), one.path))


def _plain(finding: Finding) -> dict[str, Any]:
    """One finding; what is empty is left out."""
    found: dict[str, Any] = {"rule": finding.rule, "verdict": finding.verdict.name, "found": finding.found}
    texts = {name: getattr(finding, name) for name in ("wanted", "why", "remedy", "relaxed")}
    found.update({name: text for name, text in texts.items() if text})
    if finding.path:
        found["path"] = [str(one) for one in finding.path]
    if finding.pairs:
        found["pairs"] = [f"{gpu} {nic}" for gpu, nic in finding.pairs]
    if finding.count > 1:
        found["count"] = finding.count
    return found


# For people ------------------------------------------------------------------------------


def text(report: Report) -> list[str]:
    """Lines for people: the verdict, what is not as wanted and what to do, what was relaxed, what was missing.

    What is as wanted is a number. Findings of one rule that differ in nothing but where they are share their lines.
    """
    name = f"{report.name}: " if report.name else ""
    lines = [f"{name}{report.verdict.name} ({report.mode}; {_numbers(report)})"]
    lines += [one.found for one in report.findings if one.rule == "not_applicable"]
    lines += distances(report)
    lines += _failing(report)
    for one in report.findings:
        if one.relaxed:
            lines.append(f"relaxed {one.rule}{_where(one)}: {one.found}. Reason: {one.relaxed}")
    lines += [f"not in the input: {one}" for one in report.missing]
    return lines


def _numbers(report: Report) -> str:
    fine = sum(one.count for one in report.findings if one.verdict == Verdict.OK and not one.relaxed)
    counts = _counted(len(report.gpus), "GPU"), _counted(len(report.nics), "NIC"), _counted(fine, "check")
    return f"{counts[0]}, {counts[1]}; {counts[2]} as wanted"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def distances(report: Report) -> Iterator[str]:
    """How many GPUs have their nearest NIC how far away."""
    kinds: dict[Kind, int] = {}
    for gpu in report.gpus:
        near = [pair.kind for pair in report.pairs if pair.gpu == gpu and pair.judged]
        if near:
            kinds[min(near)] = kinds.get(min(near), 0) + 1
    if kinds:
        yield "nearest NIC: " + ", ".join(f"{kind.name} of {_counted(kinds[kind], 'GPU')}" for kind in sorted(kinds))


def ways(report: Report) -> Iterator[str]:
    """How many of these ways are how good; what concerns the machine as a whole is not in them."""
    found = [pair.verdict for pair in report.pairs if pair.judged]
    if found:
        by_verdict = ((one.name, found.count(one)) for one in _WORST_FIRST if one in found)
        yield "ways to them: " + ", ".join(f"{number} {name}" for name, number in by_verdict)


def _failing(report: Report) -> Iterator[str]:
    """A line for each thing that is not as wanted; what to do comes after all lines in a row that it mends."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for one in ordered(report):
        if one.verdict != Verdict.OK:
            key = (one.verdict.name, one.rule, one.found, one.wanted, one.remedy)
            groups.setdefault(key, []).append(one)
    last = ""
    for (verdict, rule, found, wanted, remedy), findings in groups.items():
        if last and remedy != last:
            yield f"    {last}"
        last = remedy
        where = "; ".join(_where(one).strip() for one in findings if one.path)
        yield f"{verdict} {rule}{f' {where}' if where else ''}: found {found}{f', wanted {wanted}' if wanted else ''}"
    if last:
        yield f"    {last}"


def _where(finding: Finding) -> str:
    """The functions that it is about, and where that is something between, which GPU and NIC."""
    if not finding.path:
        return ""
    place = " > ".join(str(one) for one in finding.path)
    if len(finding.path) > 1 or finding.path[0] in {one for pair in finding.pairs for one in pair}:
        return f" {place}"
    if len(finding.pairs) == 1:
        return f" {place} (between {finding.pairs[0][0]} and {finding.pairs[0][1]})"
    return f" {place} (between {len(finding.pairs)} pairs)" if finding.pairs else f" {place}"
