# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The boot half of huge pages: what is wanted by node, whether the host can have it, and the kernel arguments. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..core.errors import Problem

KIB = {"2M": 2048, "1G": 1048576}
BOOT_NAMES = frozenset({"hugepages", "hugepagesz", "default_hugepagesz"})
# The first kernel that reads hugepages=NODE:COUNT (mm/hugetlb.c, commit b5389086ad7b); an older one takes the first
# node's number for the count. RHEL 9 carries newer memory management under an older number.
BY_NODE_SINCE = (5, 16)


@dataclass(frozen=True)
class Pages:
    """Wanted pages of one size: the same on every node (``per_node``), or by node."""

    path: str
    size: str
    per_node: int | None
    nodes: tuple[tuple[int, int], ...]

    def by_node(self, nodes: Mapping[int, Node]) -> dict[int, int]:
        """Pages for each node of a host that has memory."""
        if self.per_node is not None:
            return dict.fromkeys(sorted(nodes), self.per_node)
        return {**dict.fromkeys(sorted(nodes), 0), **{node: count for node, count in self.nodes if node in nodes}}


@dataclass(frozen=True)
class Desired:
    """Wanted reservation of a host."""

    pages: tuple[Pages, ...] = ()
    default_size: str | None = None
    keep_mib: int = 0


@dataclass(frozen=True)
class Count:
    """Pages of one size on one node."""

    total: int
    free: int


@dataclass(frozen=True)
class Node:
    """One NUMA node with memory: its size in MiB and its pages by size."""

    memory_mib: int
    pages: Mapping[str, Count]


class ByNode(enum.Enum):
    """Whether the kernel can reserve pages by node at boot."""

    NO = "no"
    PERHAPS = "perhaps"
    YES = "yes"


def boot_arguments(desired: Desired, nodes: Mapping[int, Node], by_node: ByNode = ByNode.YES) -> tuple[str, ...]:
    """The kernel arguments that reserve the pages at boot, the largest size first.

    A kernel that may not know nodes gets the sum where all nodes have the same: it spreads it evenly.

    >>> boot_arguments(Desired((Pages("", "1G", 4, ()),), "1G"), {0: Node(65536, {}), 1: Node(65536, {})})
    ('default_hugepagesz=1G', 'hugepagesz=1G', 'hugepages=0:4,1:4')
    """
    words = [f"default_hugepagesz={desired.default_size}"] if desired.default_size else []
    for pages in desired.pages:
        counts = pages.by_node(nodes)
        even = len(set(counts.values())) == 1
        each = ",".join(f"{node}:{count}" for node, count in sorted(counts.items()))
        text = f"{sum(counts.values())}" if even and by_node is not ByNode.YES else each
        words += [f"hugepagesz={pages.size}", f"hugepages={text}"]
    return tuple(words)


def absent_problems(desired: Desired, absent: Sequence[str]) -> list[Problem]:
    """The entries of kernel_args_absent that a wanted reservation needs."""
    wanted = bool(desired.pages or desired.default_size)
    return [
        Problem(
            f"kernel_args_absent[{index}]",
            "contradicts kernel_hugepages, which owns this name",
            "Give one of the two.",
            found=one,
        )
        for index, one in enumerate(absent)
        if wanted and one in BOOT_NAMES
    ]


def refusals(desired: Desired, nodes: Mapping[int, Node], by_node: ByNode) -> list[Problem]:
    """Why the host cannot have such a reservation, be it at once or at a boot."""
    problems = [problem for pages in desired.pages for problem in _unknown_nodes(pages, nodes)]
    if by_node is ByNode.NO:
        problems += [_uneven(pages) for pages in desired.pages if len(set(pages.by_node(nodes).values())) > 1]
    if not desired.pages:
        return problems
    total = sum(node.memory_mib for node in nodes.values())
    taken = {number: 0 for number in nodes}
    for pages in desired.pages:
        for number, count in pages.by_node(nodes).items():
            if number in taken:  # one that is not there is named above
                taken[number] += count * KIB[pages.size] // 1024
    for number, mib in taken.items():
        if mib > nodes[number].memory_mib:
            problems.append(
                Problem(
                    "kernel_hugepages",
                    f"node {number} is smaller than its pages",
                    "Ask for fewer pages on it.",
                    found=f"{nodes[number].memory_mib} MiB of memory",
                    wanted=f"{mib} MiB of pages",
                )
            )
    left = total - sum(taken.values())
    if left < desired.keep_mib and not problems:
        advice = "Ask for fewer pages, or lower kernel_hugepages_keep_mib if the host can live with less."
        problems.append(
            Problem(
                "kernel_hugepages",
                f"would leave the host {left} MiB of its {total} MiB",
                advice,
                found=f"{sum(taken.values())} MiB of pages",
                wanted=f"at least {desired.keep_mib} MiB left",
            )
        )
    return problems


def _uneven(pages: Pages) -> Problem:
    return Problem(
        pages.path,
        "the running kernel cannot reserve different numbers of pages by node at boot",
        f"Give per_node, or boot a kernel from {'.'.join(map(str, BY_NODE_SINCE))} on first.",
    )


def _unknown_nodes(pages: Pages, nodes: Mapping[int, Node]) -> list[Problem]:
    strange = [number for number, count in pages.nodes if number not in nodes and count]
    known = ", ".join(map(str, sorted(nodes))) or "none"
    return [
        Problem(
            f"{pages.path}.nodes[{number}]",
            "the host has no such NUMA node with memory",
            "Name a node of this host.",
            found=f"nodes {known}",
            wanted=f"node {number}",
        )
        for number in strange
    ]
