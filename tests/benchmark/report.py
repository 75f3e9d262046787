"""The results as a table for a terminal and as a page for the documentation."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import date

from tests.benchmark.suite import Result

PAGE = """\
# Benchmarks

Written by `python -m tests.benchmark` on {today}, on a machine with {cpus} cores and {gib} GiB. Every ratio is of two things
measured in the same run on the same machine, in turns, medians of {rounds}. Seconds are not given: they would be those
of that machine.

{table}

How it is measured:

* The hosts of the first table rows are `sshd` processes on loopback addresses, so controller and hosts share the same
  cores and the network's round trips are missing. Each host judges the same converged tree through `gpudirect_root`.
* Tasks are counted from ansible-runner's events, commands sent to a host by a wrapper around `ssh`, both in a run that is
  not timed. Memory is sampled in a run that is not timed either.
* The first apply is measured on a host of the simulated rack, reboots aside. A round of site.yml sends one module for each
  resource that changes, and a look at its end, where a run without changes sends one in all: that is by design, since all
  hosts are looked at before the first one is written to. The role called alone sends the same modules both times: that
  ratio is what writing costs against looking, with the distribution's generator of boot entries taken off.
"""


def table(results: Sequence[Result]) -> list[str]:
    """Markdown, padded so that it also reads as plain text."""
    rows = [("measured", "against", "found", "target", "stretch", "")]
    rows += [
        (
            one.what,
            one.against or "-",
            _number(one.found, one),
            f"<= {_number(one.target, one)}" if one.target is not None else "-",
            f"<= {_number(one.stretch, one)}" if one.stretch is not None else "-",
            "" if one.good else "MISSED",
        )
        for one in results
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return lines


def _number(value: float, result: Result) -> str:
    if result.count:
        return f"{value:.0f}"
    return f"{value:.2f}" if value >= 0.1 else f"1/{1 / value:.0f}"


def page(results: Sequence[Result], rounds: int) -> str:
    """The page of the documentation."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return PAGE.format(
        today=date.today().isoformat(),
        cpus=os.cpu_count(),
        gib=round(memory / (1 << 30)),
        rounds=rounds,
        table="\n".join(table(results)),
    )
