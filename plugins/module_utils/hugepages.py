# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Huge pages per NUMA node: reserved at boot by kernel arguments, live through sysfs where the kernel can.

The counts per node in sysfs are the only truth: a node short of whole pages gets fewer, and the kernel's own
message may name another node. The boot half is written by ``kernel_args``; this resource judges what is live.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .boot.cmdline import split
from .boot.pages import (
    BOOT_NAMES,
    BY_NODE_SINCE,
    KIB,
    ByNode,
    Count,
    Desired,
    Node,
    Pages,
    boot_arguments,
    refusals,
)
from .core.change import ABSENT, Awaiting, Change, Disruption, Plan, Unreadable
from .core.errors import GpudirectError, HostRefused, IntentError, Problem, UnreadableState, VerificationFailed
from .core.host import Host
from .core.schema import Field, Schema, wrong_type

NODES = "/sys/devices/system/node"
RELEASE = "/proc/sys/kernel/osrelease"

_PAGES_FIELDS = (
    Field("size", "str", ("Page size.",), choices=tuple(KIB), required=True),
    Field(
        "per_node",
        "int",
        ("Pages on every NUMA node that has memory. Give this or O(kernel_hugepages[].nodes).",),
        minimum=0,
    ),
    Field(
        "nodes",
        "dict",
        ("Pages by NUMA node number, such as V({0: 600, 1: 600}); a node that is not named gets none.",),
    ),
)

PAGES_FIELD = Field(
    "kernel_hugepages",
    "list",
    (
        "Huge pages to reserve, one entry per page size.",
        "They are reserved at the next boot and, where the kernel finds the room, at once.",
        "Empty or omitted: huge pages are not managed.",
    ),
    default=[],
    elements="dict",
    fields=_PAGES_FIELDS,
)
DEFAULT_SIZE_FIELD = Field(
    "kernel_hugepages_default_size",
    "str",
    ("Page size of C(/dev/hugepages) and of requests that name none; V(kernel) leaves it to the kernel.",),
    default="kernel",
    choices=(*KIB, "kernel"),
)
KEEP_FIELD = Field(
    "kernel_hugepages_keep_mib",
    "int",
    (
        "Memory in MiB, over all NUMA nodes, that must stay outside huge pages for the host itself.",
        "A reservation that would leave less is refused.",
    ),
    default=16384,
    minimum=512,
)

SCHEMA = Schema("hugepages", "kernel_", (PAGES_FIELD, DEFAULT_SIZE_FIELD, KEEP_FIELD))


@dataclass(frozen=True)
class Current:
    """What the running kernel has: nodes, the default page size in KiB, and the line it was started with."""

    nodes: Mapping[int, Node]
    default_kib: int | None
    line: tuple[str, ...]
    boot: str
    by_node: ByNode


@dataclass(frozen=True)
class SetPages:
    """Step: ask the kernel for a number of pages on a node, at once."""

    node: int
    size: str
    count: int


# parse -----------------------------------------------------------------------------------


def parse(params: Mapping[str, Any]) -> Desired:
    """Wanted reservation from checked options."""
    values, problems = SCHEMA.parse_all(params)
    try:
        desired = desired_of(values)
    except IntentError as error:
        problems.extend(error.problems)
    if problems:
        raise IntentError(problems)
    return desired


def desired_of(values: Mapping[str, Any]) -> Desired:
    """Wanted reservation from options whose types were checked already; finds contradictions."""
    problems: list[Problem] = []
    pages: list[Pages] = []
    for index, entry in enumerate(values["kernel_hugepages"] or []):
        path = f"kernel_hugepages[{index}]"
        if entry is None:  # its type is wrong, which is said already
            continue
        try:
            one = _pages(path, entry)
        except IntentError as error:
            problems.extend(error.problems)
            continue
        twin = next((other for other in pages if other.size == one.size), None)
        if twin:
            problems.append(
                Problem(
                    path,
                    f"asks for {one.size} pages a second time, after {twin.path}",
                    "Give each page size one entry.",
                )
            )
        pages.append(one)
    if problems:
        raise IntentError(problems)
    return Desired(
        tuple(sorted(pages, key=lambda one: -KIB[one.size])),
        None if values["kernel_hugepages_default_size"] == "kernel" else values["kernel_hugepages_default_size"],
        values.get("kernel_hugepages_keep_mib") or 0,
    )


def _pages(path: str, entry: Mapping[str, Any]) -> Pages:
    per_node, nodes = entry["per_node"], entry["nodes"]
    if (per_node is None) == (nodes is None):
        raise IntentError(
            [
                Problem(
                    path,
                    "names the pages " + ("not at all" if nodes is None else "twice"),
                    "Give either per_node or nodes.",
                    found="neither" if nodes is None else "both",
                    wanted="one",
                )
            ]
        )
    return Pages(path, entry["size"], per_node, _node_counts(f"{path}.nodes", nodes or {}))


def _node_counts(path: str, nodes: Mapping[Any, Any]) -> tuple[tuple[int, int], ...]:
    counts: dict[int, int] = {}
    problems: list[Problem] = []
    for key, value in nodes.items():
        named = re.fullmatch(r"\d{1,4}", str(key)) is not None
        if not named:
            problems += wrong_type(path, key, "NUMA node numbers as keys").problems
        if isinstance(value, bool) or not re.fullmatch(r"\d{1,7}", str(value)):
            problems += wrong_type(f"{path}[{key}]", value, "a number of pages").problems
        elif named:
            counts[int(key)] = int(value)
    if problems:
        raise IntentError(problems)
    return tuple(sorted(counts.items()))


def lost_at_boot(desired: Desired) -> bool:
    """A boot may find less room than the intent asks for; what it gave is known, and asked for again, only after it."""
    return bool(desired.pages)


# read ------------------------------------------------------------------------------------


def read(host: Host, desired: Desired) -> Current:
    """Pages and memory by node, and how the running kernel was started."""
    meminfo = host.read_text("/proc/meminfo")
    default = re.search(r"^Hugepagesize:\s+(\d+) kB", meminfo if isinstance(meminfo, str) else "", re.MULTILINE)
    line = host.read_text("/proc/cmdline")
    managed = bool(desired.pages or desired.default_size)
    return Current(
        read_nodes(host) if managed else {},
        int(default[1]) if default else None,
        split(line) if isinstance(line, str) else (),
        host.boot_id(),
        read_by_node(host),
    )


def read_by_node(host: Host) -> ByNode:
    """Whether the running kernel reads page counts by node on its command line."""
    release = host.read_text(RELEASE)
    match = re.match(r"(\d+)\.(\d+)", release if isinstance(release, str) else "")
    if match is None:
        return ByNode.PERHAPS
    if (int(match[1]), int(match[2])) >= BY_NODE_SINCE:
        return ByNode.YES
    return ByNode.PERHAPS if ".el" in str(release) else ByNode.NO


def read_nodes(host: Host) -> dict[int, Node]:
    """The NUMA nodes that have memory."""
    names = host.names(NODES)
    if isinstance(names, Unreadable):
        raise UnreadableState([Problem(NODES, f"cannot be read: {names.cause}", "Run as root on the host.")])
    if names is ABSENT:
        return {}
    nodes = {int(name[4:]): _node(host, name) for name in tuple(names) if re.fullmatch(r"node\d+", name)}  # type: ignore[arg-type]
    return {number: node for number, node in nodes.items() if node.memory_mib}


def _node(host: Host, name: str) -> Node:
    text = host.read_text(f"{NODES}/{name}/meminfo")
    total = re.search(r"MemTotal:\s+(\d+) kB", text if isinstance(text, str) else "")
    if total is None:
        raise UnreadableState(
            [
                Problem(
                    f"{NODES}/{name}/meminfo",
                    "does not tell the node's memory",
                    "See whether sysfs is mounted and readable.",
                )
            ]
        )
    return Node(int(total[1]) // 1024, {size: count for size in KIB if (count := _count(host, name, size)) is not None})


def _count(host: Host, name: str, size: str) -> Count | None:
    folder = f"{NODES}/{name}/hugepages/hugepages-{KIB[size]}kB"
    total, free = host.read_text(f"{folder}/nr_hugepages"), host.read_text(f"{folder}/free_hugepages")
    if total is ABSENT:
        return None
    try:
        return Count(int(str(total)), int(str(free)))
    except ValueError as error:
        raise UnreadableState(
            [
                Problem(
                    folder,
                    f"does not hold page counts (found {total!r} and {free!r})",
                    "See whether sysfs is mounted and readable.",
                )
            ]
        ) from error


# plan ------------------------------------------------------------------------------------


def plan(desired: Desired, current: Current, owned: Mapping[str, Any]) -> Plan:
    """Live changes by node; what the kernel could not find room for waits for a boot."""
    refused = refusals(desired, current.nodes, current.by_node)
    if refused:
        raise HostRefused(refused)
    booted = _started_with(desired, current)
    wanted: set[str] = set()
    verdicts: list[Change | Awaiting | Problem] = list(_default_size(desired, current, booted))
    for pages in desired.pages:
        for node, count in pages.by_node(current.nodes).items():
            path = f"hugepages[{pages.size}].node{node}"
            wanted.add(path)
            have = current.nodes[node].pages.get(pages.size, Count(0, 0))
            if have.total != count:
                verdicts.append(
                    _verdict(
                        path,
                        have,
                        SetPages(node, pages.size, count),
                        tried=_tried(owned.get(path), current.boot, count),
                        booted=booted,
                    )
                )
    failed = [one for one in verdicts if isinstance(one, Problem)]
    if failed:
        raise VerificationFailed(failed)
    changes = [one for one in verdicts if isinstance(one, Change)] + _undone(owned, wanted, current)
    return Plan(tuple(changes), (), tuple(one for one in verdicts if isinstance(one, Awaiting)))


def _tried(record: Any, boot: str, count: int) -> bool:
    """True when the kernel was asked for this very count in this boot already."""
    return record is not None and record["boot"] == boot and record.get("asked") == count


def _verdict(path: str, have: Count, step: SetPages, *, tried: bool, booted: bool) -> Change | Awaiting | Problem:
    """What to do about a count that is not as wanted: ask once a boot, then wait for a boot, then give up by name."""
    if not tried:
        remember = {path: {"before": {"total": have.total, "node": step.node, "size": step.size}}}
        disrupts = Disruption.GUEST if step.count < have.total - have.free else Disruption.NOTHING
        why = (
            f"the reservation is live at once where node {step.node} has the room"
            if step.count > have.total
            else "pages that are not wanted go back to the host"
        )
        # Asking is only known to have happened after it: a run may be cut short in between.
        return Change(path, have.total, step.count, why, disrupts, step, remember, {path: {"asked": step.count}})
    if have.total > step.count:
        return Problem(
            path,
            f"{have.total - have.free} pages are in use and do not go back to the host",
            "Stop the guest that uses them.",
            found=str(have.total),
            wanted=str(step.count),
        )
    if booted:
        advice = f"Node {step.node} has too little unbroken memory: ask for fewer {step.size} pages there or for smaller ones."
        return Problem(
            path,
            "the kernel was started with the reservation and gave fewer pages",
            advice,
            found=str(have.total),
            wanted=str(step.count),
        )
    return Awaiting(
        path, have.total, step.count, f"node {step.node} has no room for more {step.size} pages while running"
    )


def _started_with(desired: Desired, current: Current) -> bool:
    live = tuple(word for word in current.line if word.split("=", 1)[0] in BOOT_NAMES)
    return live == boot_arguments(desired, current.nodes, current.by_node)


def _default_size(desired: Desired, current: Current, booted: bool) -> list[Awaiting | Problem]:
    if desired.default_size is None or current.default_kib == KIB[desired.default_size]:
        return []
    path = "hugepages.default_size"
    if booted:
        return [
            Problem(
                path,
                "the kernel was started with the default page size and does not use it",
                "See whether the processor has pages of this size (flag pdpe1gb for 1G).",
                found=f"{current.default_kib} KiB",
                wanted=desired.default_size,
            )
        ]
    return [
        Awaiting(
            path, current.default_kib, KIB[desired.default_size], "the default page size is set when the kernel starts"
        )
    ]


def _undone(owned: Mapping[str, Any], wanted: set[str], current: Current) -> list[Change]:
    """Give back what intent no longer names: the count of before our first live change, if this is still that boot."""
    changes: list[Change] = []
    for path, record in sorted(owned.items()):
        if path in wanted:
            continue
        before = record["before"]
        same_boot = record["boot"] == current.boot
        step = SetPages(before["node"], before["size"], before["total"]) if same_boot else None
        why = (
            "no longer wanted; the count of before is put back"
            if same_boot
            else "no longer wanted; what a boot reserved goes back with the next one"
        )
        changes.append(
            Change(
                path,
                record.get("asked"),
                before["total"] if same_boot else None,
                why,
                Disruption.NOTHING,
                step,
                forget=(path,),
                undo=True,
            )
        )
    return changes


# apply -----------------------------------------------------------------------------------


def apply(change: Change, host: Host) -> None:
    """Ask the kernel for the pages. It may give fewer: that is read back, not an error here."""
    step = change.step
    if step is None:
        return
    path = f"{NODES}/node{step.node}/hugepages/hugepages-{KIB[step.size]}kB/nr_hugepages"
    try:
        host.write_attribute(path, str(step.count))
    except OSError as error:
        raise GpudirectError(
            [
                Problem(
                    path, f"the kernel refused {step.count} pages: {error.strerror}", "See the kernel log of the host."
                )
            ]
        ) from error
