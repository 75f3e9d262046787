# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A function of which a reader knows little: whatever its input has no word for is Unreadable with the cause, never a value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from ..core.change import Unreadable
from .address import Address
from .capabilities import Capabilities
from .config_space import ConfigSpace
from .tree import Function, Link, Tree

_BY_WORD = (
    *("numa_node", "iommu_group", "driver", "driver_override", "sriov", "serial"),
    *("vendor", "device", "class_code", "subsystem_vendor", "subsystem_device", "revision"),
)
# What is no number and has no place for a cause is in ``unread`` where the reader does not give it.
_LISTS = ("bars", "physfn", "netdevs", "rdma", "disks")
_IDS = ("vendor", "device", "class_code", "subsystem_vendor", "subsystem_device", "revision")


def function(address: Address, cause: str, **known: Any) -> Function:
    """A function with these fields; the cause says why the others are not known.

    An id that is not given is 0: the model has no other word for it, and no device has such a vendor.
    """
    untold = Unreadable(cause)
    values: dict[str, Any] = {
        **{name: untold for name in _BY_WORD if name not in _IDS},
        **dict.fromkeys(_IDS, 0),
        "parent": None,
        "root_bus": "",
        "link": Link(untold, untold, untold, untold),
        "bars": (),
        "config": ConfigSpace(),
        "told": Capabilities(untold, untold, untold),
        "unread": {name: cause for name in _LISTS if name not in known},
        **known,
    }
    return Function(address=address, **values)


def tree(functions: Iterable[Function]) -> Tree:
    """The tree of these functions."""
    return Tree({one.address: one for one in functions})


assert {*_BY_WORD, *_LISTS} <= {one.name for one in fields(Function)}, "a field of Function was renamed"
