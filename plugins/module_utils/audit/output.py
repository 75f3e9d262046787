# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Audits as text for people and as data for programs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..path import terminal
from ..path.finding import Verdict
from ..path.labels import cells, clean
from ..path.plain import plain
from ..path.rules import RULES
from ..path.shown import nearest
from .judged import Audit

UNUSABLE = "UNUSABLE"
_GRAVEST_FIRST = ("FAIL", UNUSABLE, "UNKNOWN", "WARN", "DEFERRED", "OK")
Row = tuple[str, ...]


def text(audit: Audit, width: int, *, colour: bool, ascii_only: bool) -> str:
    """The picture in lines, with what else is known about distances."""
    page = terminal.text(
        audit.machine, audit.report, width, colour, plain_ascii=ascii_only, table=audit.table, more=list(_peers(audit))
    )
    return page if not ascii_only else page.encode("ascii", "replace").decode("ascii")


def _peers(audit: Audit) -> Iterator[str]:
    """How far GPUs are from each other, as numbers of pairs."""
    kinds = Counter(kind for one, row in audit.gpu_kinds.items() for two, kind in row.items() if one < two)
    if kinds:
        yield "GPU and GPU: " + ", ".join(f"{kind.name} of {kinds[kind]} pairs" for kind in sorted(kinds))


def data(audit: Audit) -> dict[str, Any]:
    """The audit as JSON has it: the report, and the distances of GPUs among each other."""
    found = plain(audit.report)
    if audit.table is not None:
        found.update(_table(audit.table))
    kinds = audit.gpu_kinds
    found["gpu_kinds"] = [[kinds[one][two].name if one != two else "X" for two in kinds] for one in kinds]
    return found


def _table(table: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Distances of devices that have labels and no addresses."""
    nics = list(next(iter(table.values()), {}))
    return {
        "gpus": list(table),
        "nics": nics,
        "kinds": [[row[nic].name for nic in nics] for row in table.values()],
        "best": {gpu: list(nearest(row)[1]) for gpu, row in table.items()},
    }


# Several at once -------------------------------------------------------------------------


def row(name: str, one: Audit | str) -> Row:
    """The line of an input: verdict, name, devices, nearest NICs, and the rules that are not fine; a string is unusable."""
    if isinstance(one, str):
        return (UNUSABLE, clean(name), "", "", "", "", "")
    report = one.report
    if one.table is not None:
        found = _table(one.table)
        gpus, nics, best = len(found["gpus"]), len(found["nics"]), Counter(_nearest(found))
    else:
        kinds = {(pair.gpu, pair.nic): pair.kind.name for pair in report.pairs}
        gpus, nics = len(report.gpus), len(report.nics)
        best = Counter(kinds[gpu, report.best[gpu][0]] for gpu in report.gpus if report.best.get(gpu))
    nearest_nics = " ".join(f"{kind} {number}" for kind, number in sorted(best.items()))
    return (report.verdict.name, clean(name), report.mode, str(gpus), str(nics), nearest_nics, _bad(one))


def summary(found: Sequence[Row]) -> str:
    """How many inputs have which verdict, and the lines of all."""
    verdicts = Counter(one[0] for one in found)
    gpus = sum(int(one[3] or 0) for one in found)
    counts = ", ".join(f"{verdicts[word]} {word}" for word in _GRAVEST_FIRST if verdicts[word])
    rows = [("verdict", "input", "mode", "GPUs", "NICs", "nearest", "not as wanted"), *found]
    widths = [max(cells(row[column]) for row in rows) for column in range(len(rows[0]))]
    return f"{counts} of {len(found)} inputs with {gpus} GPUs\n" + "".join(
        "  ".join(f"{word}{' ' * (widths[at] - cells(word))}" for at, word in enumerate(row)).rstrip() + "\n"
        for row in rows
    )


def _nearest(found: Mapping[str, Any]) -> Iterator[str]:
    """The kind of each GPU's nearest NIC."""
    for gpu, row in zip(found["gpus"], found["kinds"]):
        at = [found["nics"].index(nic) for nic in found["best"].get(gpu, ())]
        if at:
            yield row[at[0]]


def _bad(audit: Audit) -> str:
    """The rules of the gravest verdict."""
    worst = audit.report.verdict
    if worst == Verdict.OK:
        return ""
    names = list(dict.fromkeys(one.rule for one in audit.report.findings if one.verdict == worst))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


# The rules -------------------------------------------------------------------------------


def rules_text() -> str:
    """The table of rules for people."""
    lines = []
    for rule in RULES.values():
        lines += [
            f"{rule.name} ({', '.join(rule.modes)}): {rule.title}",
            f"    {rule.why}",
            f"    To do: {rule.remedy}",
        ]
        lines += [f"    Source: {rule.source}"] if rule.source else []
    return "\n".join(lines) + "\n"


def rules_data() -> list[dict[str, Any]]:
    """The table of rules for programs."""
    return [
        {
            "name": rule.name, "title": rule.title, "modes": list(rule.modes), "why": rule.why,
            "remedy": rule.remedy, "if_unknown": rule.if_unknown, "source": rule.source,
        }
        for rule in RULES.values()
    ]  # fmt: skip
