# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads what a host has for guests besides PCI devices: cores and free huge pages of its NUMA nodes. The only reader of these."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ..core.change import Absent, Unreadable
from ..core.errors import Problem, UnreadableState
from ..core.host import Host
from ..core.ranges import ranges
from .placed import HostNode, Placed

NODES = "/sys/devices/system/node"
CPUS = "/sys/devices/system/cpu"
PAGES = "/sys/kernel/mm/hugepages"
_NODE = re.compile(r"node(\d+)")
_SIZE = re.compile(r"hugepages-(\d+)kB")
_NO_MEMORY = re.compile(r"\bMemTotal:\s+0 kB")
_SPAN = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")
_ADVICE = "See whether sysfs is mounted and readable."


def read(host: Host) -> tuple[HostNode, ...]:
    """The NUMA nodes of a host by number; UnreadableState for what cannot be read.

    A node's list has the CPUs that are online (Linux drivers/base/node.c), so one that is offline is in no core. A kernel without NUMA
    has all in node 0.
    """
    isolated = frozenset(_optional_list(host, f"{CPUS}/isolated"))
    folders = _nodes(host)
    if not folders:
        return (_node(host, 0, f"{CPUS}/online", PAGES, isolated),)
    return tuple(
        replace(
            _node(host, number, f"{folder}/cpulist", f"{folder}/hugepages", isolated),
            all_pages=_all_pages(host, folder),
        )
        for number, folder in folders.items()
    )


def _nodes(host: Host) -> dict[int, str]:
    """The folders of NUMA nodes by number; none where the kernel has no NUMA."""
    names = host.names(NODES)
    if isinstance(names, Unreadable):
        raise _unreadable(NODES, f"cannot be read: {names.cause}")
    numbers = [] if isinstance(names, Absent) else [int(found[1]) for name in names if (found := _NODE.fullmatch(name))]
    return {number: f"{NODES}/node{number}" for number in sorted(numbers)}


def require_pages(host: Host) -> None:
    """UnreadableState where a captured tree does not tell huge pages. A live kernel without these folders has none."""
    folders = [f"{folder}/hugepages" for folder in _nodes(host).values()] or [PAGES]
    lost = [one for one in folders if isinstance(host.names(one), Absent)] if host.captured else ()
    fact = "is not in this tree, so whether the memory of guests suffices cannot be told"
    if lost:
        raise UnreadableState(Problem(one, fact, "Capture it too.") for one in lost)


def all_online(host: Host) -> bool:
    """Whether every CPU that the kernel found is online, so that a boot brings no others; False where that is not told."""
    there = present(host)
    return bool(there) and there == _told(host, "online")


def present(host: Host) -> tuple[int, ...]:
    """The CPUs that the kernel found, those too that are offline; empty where that is not told."""
    return _told(host, "present")


def _told(host: Host, name: str) -> tuple[int, ...]:
    text = host.read_text(f"{CPUS}/{name}")
    try:
        return cpus_of(text) if isinstance(text, str) else ()
    except ValueError:
        return ()


def not_there(reserved: Iterable[int], nodes: Iterable[HostNode], more: Iterable[int] = ()) -> Iterator[Problem]:
    """CPUs that are to stay with the host and that it does not have. ``more`` are some that it may come to have."""
    online = {cpu for node in nodes for core in node.cores for cpu in core}
    lost = set(reserved) - online - {*more}
    if lost and online:
        fact, wanted = "names CPUs that are not online", f"CPUs of {ranges(online)}"
        yield Problem("guest_reserved_cpus", fact, "Correct it.", ranges(lost), wanted)


def given_back(nodes: Sequence[HostNode], guests: Iterable[Placed]) -> tuple[HostNode, ...]:
    """The same nodes with the pages of running guests that are placed anew, as ``placement`` wants them."""
    pages = {node.number: dict(node.pages) for node in nodes}
    for guest in guests:
        size = guest.shape.page_mib
        for cell in guest.cells:
            if cell.node in pages:
                pages[cell.node][size] = pages[cell.node].get(size, 0) + -(-cell.memory_mib // size)
    return tuple(replace(node, pages=pages[node.number]) for node in nodes)


def cpus_of(text: str) -> tuple[int, ...]:
    """The CPUs of a list as the kernel writes it, such as ``0-3,8``; ValueError with one sentence otherwise."""
    found: set[int] = set()
    for part in text.strip().split(",") if text.strip() else ():
        match = _SPAN.fullmatch(part.strip())
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ValueError("is not a list of CPUs such as 0-3,8")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(found))


def _node(host: Host, number: int, cpus: str, pages: str, isolated: frozenset[int]) -> HostNode:
    online = _list(host, cpus)
    cores: dict[tuple[int, ...], None] = {}
    for cpu in online:
        siblings = _siblings(host, cpu)
        cores[tuple(sorted({cpu, *(one for one in siblings if one in online)}))] = None
    return HostNode(
        number, tuple(sorted(cores)), _free_pages(host, pages), tuple(sorted(isolated.intersection(online)))
    )


def _siblings(host: Host, cpu: int) -> tuple[int, ...]:
    """The threads of a CPU's core; the name of the file changed in Linux 5.1, and the old one is kept so far."""
    folder = f"{CPUS}/cpu{cpu}/topology"
    if isinstance(host.read_text(f"{folder}/core_cpus_list"), Absent):
        return _list(host, f"{folder}/thread_siblings_list")
    return _list(host, f"{folder}/core_cpus_list")


def _free_pages(host: Host, folder: str) -> dict[int, int]:
    """Free huge pages by size in MiB; none where the kernel has none."""
    names = host.names(folder)
    if isinstance(names, Unreadable):
        raise _unreadable(folder, f"cannot be read: {names.cause}")
    found: dict[int, int] = {}
    for name in () if isinstance(names, Absent) else names:
        match = _SIZE.fullmatch(name)
        if match and int(match[1]) >= 1024:
            found[int(match[1]) // 1024] = _number(host, f"{folder}/{name}/free_hugepages")
    return found


def _all_pages(host: Host, folder: str) -> dict[int, int]:
    """All huge pages of a node by size in MiB; a node without memory has none, and gets none."""
    about, names = host.read_text(f"{folder}/meminfo"), host.names(f"{folder}/hugepages")
    if isinstance(about, str) and _NO_MEMORY.search(about):
        return {}
    found: dict[int, int] = {}
    for name in names if isinstance(names, tuple) else ():
        match, text = _SIZE.fullmatch(name), host.read_text(f"{folder}/hugepages/{name}/nr_hugepages")
        if match and isinstance(text, str) and text.strip().isdecimal():
            found[int(match[1]) // 1024] = int(text)
    return found


def _number(host: Host, path: str) -> int:
    text = host.read_text(path)
    if not isinstance(text, str) or re.fullmatch(r"\d+", text.strip()) is None:
        raise _unreadable(path, _found(text, "a number of pages"))
    return int(text)


def _list(host: Host, path: str) -> tuple[int, ...]:
    text = host.read_text(path)
    if not isinstance(text, str):
        raise _unreadable(path, _found(text, "a list of CPUs"))
    try:
        return cpus_of(text)
    except ValueError as error:
        raise _unreadable(path, f"{error} (found {text.strip()!r})") from error


def _optional_list(host: Host, path: str) -> tuple[int, ...]:
    """As ``_list``; empty where there is no such file."""
    return () if isinstance(host.read_text(path), Absent) else _list(host, path)


def _found(text: str | Absent | Unreadable, wanted: str) -> str:
    if isinstance(text, Unreadable):
        return f"cannot be read: {text.cause}"
    return f"does not tell (found {text.strip()!r}, wanted {wanted})" if isinstance(text, str) else "is not there"


def _unreadable(path: str, fact: str) -> UnreadableState:
    return UnreadableState([Problem(path, fact, _ADVICE)])
