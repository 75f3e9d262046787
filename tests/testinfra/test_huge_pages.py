"""H27: huge pages by NUMA node are as declared; only the counts in sysfs tell."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.testinfra.conftest import NODES, Check
from tests.testinfra.intent import PAGE_KIB, Intent


def _count(read: Callable[[str], str | None], node: int, size: str, name: str) -> int:
    text = read(f"{NODES}/node{node}/hugepages/hugepages-{PAGE_KIB[size]}kB/{name}")
    return int(text) if text is not None else 0


def test_h27_pages_per_node(intent: Intent, read: Callable[[str], str | None], check: Check) -> None:
    if not intent.pages:
        check.does_not_apply("kernel_hugepages is empty")
    wanted = {(size, node): count for size, nodes in intent.pages.items() for node, count in nodes.items()}
    found = {(size, node): _count(read, node, size, "nr_hugepages") for size, node in wanted}
    shown = ", ".join(
        f"node {node}: {count} x {size} ({_count(read, node, size, 'free_hugepages')} free)"
        for (size, node), count in sorted(found.items())
    )
    if found != wanted:
        check.fails(
            wanted=", ".join(f"node {node}: {count} x {size}" for (size, node), count in sorted(wanted.items())),
            found=", ".join(f"node {node}: {found[size, node]} x {size}" for size, node in sorted(wanted)),
            evidence=f"{NODES}/node*/hugepages: {shown}",
        )
    check.passes(shown)


def test_h27_default_page_size(intent: Intent, read: Callable[[str], str | None], check: Check) -> None:
    if not intent.default_size:
        check.does_not_apply("kernel_hugepages_default_size is the kernel's own")
    found = re.search(r"^Hugepagesize:\s+(\d+) kB", read("/proc/meminfo") or "", re.MULTILINE)
    if found is None:
        check.unknown("/proc/meminfo names no huge page size")
    if int(found[1]) != PAGE_KIB[intent.default_size]:
        check.fails(wanted=f"{PAGE_KIB[intent.default_size]} kB", found=f"{found[1]} kB", evidence="/proc/meminfo")
    check.passes(f"/proc/meminfo: {found[0]}")
