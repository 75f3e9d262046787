# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists of IOMMU groups as the usual loop over /sys/kernel/iommu_groups prints them with ``lspci -nns``.

Two spellings: the group before each function (``IOMMU Group 14: 05:00.0 Bridge [0680]: ...``), or as a line of its own
with the functions indented below it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..core.change import ABSENT, Unreadable
from ..core.errors import Problem, UnreadableState
from . import untold
from .address import Address
from .machine import Machine
from .tree import Function

SOURCE = "list of IOMMU groups"
ASK = "a list of IOMMU groups does not tell it; run lspci -vvv as root, or host_topology_info, on the machine"

_GROUP = re.compile(r"\s*IOMMU Group (?P<number>[0-9]{1,6}):?(?P<rest>.*)", re.IGNORECASE)
_FUNCTION = re.compile(r"\s*(?P<address>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (?P<rest>.*)")
_KIND = re.compile(r"[^\[]*\[([0-9a-f]{4})\]:")
_IDS = re.compile(r".*\[([0-9a-f]{4}):([0-9a-f]{4})\]")
_REVISION = re.compile(r".*\(rev ([0-9a-f]{2})\)")
_DRIVER = re.compile(r".*\(driver: ([^)]+)\)")
_NO_DRIVER = ("none", "-")
_LONGEST = 2000  # characters of a line


def looks_like(text: str) -> bool:
    """Whether the first line that is not empty names a group."""
    return _GROUP.match(text.lstrip()[:200]) is not None


def read(text: str, name: str = "") -> Machine:
    """The functions and their groups; where they are plugged is not in such a list."""
    functions = list(_functions(text))
    if not functions:
        advice = "Print each group with lspci -nns for its functions."
        raise UnreadableState([Problem(name, "has no function in its IOMMU groups", advice)])
    missing = (
        "no places of functions, ACS and ATS words, regions or NUMA nodes: run host_topology_info on the machine",
        "it may not have all functions of the machine",
    )
    return Machine(untold.tree(functions), name=name, source=SOURCE, missing=missing, partial=True)


def _functions(text: str) -> Iterator[Function]:
    group = -1
    for line in text.splitlines():
        match = _GROUP.fullmatch(line[:_LONGEST])
        if match:
            group = int(match["number"])
        function = _FUNCTION.fullmatch(match["rest"] if match else line[:_LONGEST])
        if function and group >= 0:
            yield untold.function(
                Address.parse(function["address"]), ASK, iommu_group=group, **_fields(function["rest"])
            )


def _fields(text: str) -> dict[str, Any]:
    """Class, ids, revision and driver, as far as the line has them."""
    kind, ids, revision, driver = (one.match(text) for one in (_KIND, _IDS, _REVISION, _DRIVER))
    found: dict[str, Any] = {}
    if kind:  # without its last two digits
        found.update(class_code=int(kind[1], 16) << 8, unread={"class_code": ASK})
    if ids:
        found.update(vendor=int(ids[1], 16), device=int(ids[2], 16))
    if revision:
        found["revision"] = int(revision[1], 16)
    if driver:
        found["driver"] = ABSENT if driver[1] in _NO_DRIVER else driver[1]
    is_bridge = found.get("class_code", 0) >> 8 in (0x0604, 0x0609)
    return {**found, "sriov": ABSENT if is_bridge else Unreadable(ASK)}
