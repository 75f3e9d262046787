"""The results as a table for a terminal and as a page for the documentation."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import date

from tests.benchmark.suite import Result

PAGE = """\
# Benchmarks

Written by `python -m tests.benchmark` on {today}, on a machine with {cpus} cores and {gib} GiB. Every ratio is of two things
measured in the same run on the same machine, in turns, medians of {rounds}. Seconds are not given: they would be those
of that machine. A row that the last run did not measure stays as it was, with the day of its measurement.

{table}

How it is measured:

* The hosts of all rows without "engine alone", "reading" or "rack" are `sshd` processes on loopback addresses, so controller
  and hosts share the same cores and the network's round trips are missing. Each host judges the same converged tree
  through `gpudirect_root`.
* Tasks are counted from ansible-runner's events, commands sent to a host by a wrapper around `ssh`, both in a run that is
  not timed. Memory is sampled in a run that is not timed either.
* Devices: two NICs that share the VFs, each VF with attributes of its own and on vfio-pci, and two devices that play GPUs.
  A captured tree tells what is in sysfs. The attributes of VFs, routes, and what devices are used for are told by a
  running kernel only, so on the loopback hosts `sriov` and `pci_driver` read all functions and choose the devices, then
  say that they wait for the running host. Such a run is not `verified`: it shows what a run costs, not that VFs are as
  wanted. What is missing in it (links and eswitch by `ip` and `devlink`, uses, images and modules, and the comparison)
  is in the rows of the engine alone: reading and planning of all resources, `verified`, on fake hosts that answer.
  Their programs' answers are at hand there, so the time of `ip` itself is in neither.
* The role of small tasks is a play of `stat` and `command` tasks that only look at the same host: a loop over the VFs for each
  of 10 questions (is it there, driver, override, group, MAC, VLAN, spoofchk, trust, link state, rates), loops over ports, GPUs,
  pages, arguments and files. The words of `ip` are in a file, which it searches. At several hosts it runs once.
  Processor time is that of the command and of the `sshd` processes with all they have started, without the kept ssh
  masters. Our run is charged with one more look of the engine alone on each host, for what a tree cannot tell.
* Guests: a host with eight GPUs and eight NICs with a VF each, all on vfio-pci, a managed host for guests, a network, a pool, an
  image, and as many guests with a GPU, the VF beside it, a disk and a seed. Only the list of guests differs. Answers of programs
  and the lists of libvirt are at hand: the time of libvirt itself is in no row. It is asked over its socket and runs no program;
  what tells a list's things one by one (some calls for each) is counted as one list. Defining is the module of `libvirt_guest` on
  a host that has all but its guests, without the processor time of the fake libvirt. A slope is the difference of medians.
* Tasks and commands with guests are those of loopback hosts, too. A captured tree has no libvirt and no systemd to ask: networks,
  pools, images and guests say that they wait for the running host, and the host for guests itself is not in that inventory. That
  runs of both playbooks beside a running guest cost one look as well is shown on the simulated rack
  (`tests/integration/test_guests.py::test_a_second_run_changes_nothing_and_costs_one_look`).
* Reading is of a generated tree, which answers faster than sysfs, with the processor time of this process.
* Audits are of generated `lspci -vvv` texts of about 150 functions in one compressed archive, one host in ten of them with a port that
  fails; guests are of three kinds of hosts with eight GPUs, two guests each. Memory is the largest of the process.
* The first apply is measured on a host of the simulated rack, reboots aside. A round of site.yml sends one module for each
  resource that changes, and a look at its end, where a run without changes sends one in all: that is by design, since all
  hosts are looked at before the first one is written to. The role called alone sends the same modules both times: that
  ratio is what writing costs against looking, with the distribution's generator of boot entries taken off.
* The first guest on the rack: guests.yml on a host that has all but its guest, and the same run once the guest has booted. The
  first sends a module for each resource that changes, one for its disk, one for the guest, one for what a boot brings back.
"""

# Rows with these words need VMs, which not every run has.
RACK = "on the simulated rack"
# What people add to the page is below this line and stays.
REMARKS = "\nRemarks:\n"
HEAD = ("measured", "against", "found", "target", "stretch", "", "on")
Row = tuple[str, ...]


def rows_of(results: Sequence[Result], today: str) -> list[Row]:
    """A row of words for each result."""
    return [
        (
            one.what,
            one.against or "-",
            _number(one.found, one),
            f"<= {_number(one.target, one)}" if one.target is not None else "-",
            f"<= {_number(one.stretch, one)}" if one.stretch is not None else "-",
            "" if one.good else "MISSED",
            today,
        )
        for one in results
    ]


def table(results: Sequence[Result]) -> list[str]:
    """Markdown, padded so that it also reads as plain text."""
    return lines_of(rows_of(results, date.today().isoformat()))


def lines_of(body: Sequence[Row]) -> list[str]:
    """Rows below the head, as Markdown."""
    rows = [HEAD, *body]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return lines


def _number(value: float, result: Result) -> str:
    if result.count:
        return f"{value:.0f}"
    return f"{value:.2f}" if value >= 0.1 else f"1/{1 / value:.0f}"


def rows_on(before: str) -> list[Row]:
    """The rows of an earlier page, each with the day of its measurement."""
    written = re.search(r"on (\d{4}-\d\d-\d\d)", before)
    day = written[1] if written else "-"
    lines = [line for line in before.partition(REMARKS)[0].splitlines() if line.startswith("| ")]
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]
    return [row if len(row) == len(HEAD) else (*row, day) for row in rows if row[0] != HEAD[0]]


def kept_rows(before: str, results: Sequence[Result]) -> list[Row]:
    """The rows of the rack on an earlier page, where these results have none."""
    if any(RACK in one.what for one in results):
        return []
    return [row for row in rows_on(before) if RACK in row[0]]


def merged_rows(before: str, results: Sequence[Result]) -> list[Row]:
    """All rows of an earlier page, with those of a run of some measurements in their places; new ones before the rack's."""
    new = {row[:2]: row for row in rows_of(results, date.today().isoformat())}
    old = [new.pop(row[:2], row) for row in rows_on(before)]
    return [*(row for row in old if RACK not in row[0]), *new.values(), *(row for row in old if RACK in row[0])]


def page(results: Sequence[Result], rounds: int, before: str = "", *, whole: bool = True) -> str:
    """The page of the documentation. ``before`` is the page that it replaces, of which all rows stay unless it is the ``whole``."""
    today = date.today().isoformat()
    rows = [*rows_of(results, today), *kept_rows(before, results)] if whole else merged_rows(before, results)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    text = PAGE.format(
        today=today,
        cpus=os.cpu_count(),
        gib=round(memory / (1 << 30)),
        rounds=rounds,
        table="\n".join(lines_of(rows)),
    )
    _, heading, remarks = before.partition(REMARKS)
    return text + heading + remarks
