# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A function of which a reader knows little: whatever its input has no word for is Unreadable with the cause, never a value."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core.change import Unreadable
from .address import Address
from .capabilities import Capabilities
from .config_space import ConfigSpace
from .tree import Function, Link, Tree

_BY_WORD = ("numa_node", "iommu_group", "driver", "driver_override", "sriov", "serial")
# Those that are 0 where they are not known, by the names under which ``unread`` has the cause.
_IDS = {
    **{name: (name,) for name in ("vendor", "device", "class_code", "revision")},
    "subsystem": ("subsystem_vendor", "subsystem_device"),
}
_OTHERS = ("bars", "physfn", "netdevs", "rdma", "disks", "boot_vga")


def function(address: Address, cause: str, **known: Any) -> Function:
    """A function with these fields; the cause says why the others are not known.

    What has no word for "not known" is in ``unread``: ids, which are 0 then, lists, and the place of a function whose
    ``root_bus`` is not given.
    """
    untold = Unreadable(cause)
    unread = [name for name in _OTHERS if name not in known]
    unread += [name for name, fields in _IDS.items() if not all(one in known for one in fields)]
    unread += [] if known.get("root_bus") or known.get("parent") is not None else ["parent"]
    values: dict[str, Any] = {
        **dict.fromkeys(_BY_WORD, untold),
        **{one: 0 for fields in _IDS.values() for one in fields},
        "parent": None,
        "root_bus": "",
        "link": Link(untold, untold, untold, untold),
        "bars": (),
        "config": ConfigSpace(),
        "told": Capabilities(untold, untold, untold),
        **known,
        "unread": {**dict.fromkeys(unread, cause), **known.get("unread", {})},
    }
    return Function(address=address, **values)


def tree(functions: Iterable[Function]) -> Tree:
    """The tree of these functions."""
    return Tree({one.address: one for one in functions})
