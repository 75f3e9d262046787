# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a driver is known not to do for its VFs, so that it is said before the first write. Pure.

A driver that is not in the table is asked; what it refuses is told with its own words. Each row was read in the
driver's source (Linux, drivers/net/ethernet/...) or tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ..core.errors import Problem
from .attributes import GUIDS, Attributes, Value

_Test = Callable[[Value], bool]


@dataclass(frozen=True)
class Limit:
    """A value of an attribute that a driver does not take, and how that is known. ``mode``: only in this eswitch mode."""

    name: str
    refused: _Test
    why: str
    source: str
    mode: str = ""


def _set(value: Value) -> bool:
    return bool(value)


def _outer(value: Value) -> bool:
    return value == "802.1ad"


_NO_MINIMUM = "guarantees no rate"
_NO_OUTER = "takes no other tag than 802.1q"
_SWITCHDEV = "does it in legacy mode only"
LIMITS: Mapping[str, tuple[Limit, ...]] = {
    "igb": (
        # Tried on the emulated 82576: EOPNOTSUPP. ``auto`` is what it tells and does.
        Limit(
            "link_state", lambda value: value != "auto", "has no link state of VFs", "intel/igb/igb_main.c: no such ndo"
        ),
        Limit("min_tx_rate", _set, _NO_MINIMUM, "intel/igb/igb_main.c igb_ndo_set_vf_bw"),
        Limit("vlan_protocol", _outer, _NO_OUTER, "intel/igb/igb_main.c igb_ndo_set_vf_vlan"),
    ),
    "ixgbe": (
        Limit("min_tx_rate", _set, _NO_MINIMUM, "intel/ixgbe/ixgbe_sriov.c ixgbe_ndo_set_vf_bw"),
        Limit("vlan_protocol", _outer, _NO_OUTER, "intel/ixgbe/ixgbe_sriov.c ixgbe_ndo_set_vf_vlan"),
        # It answers "done" and does nothing.
        Limit(
            "link_state",
            lambda value: value == "enable",
            "forces no link up",
            "intel/ixgbe/ixgbe_sriov.c ixgbe_ndo_set_vf_link_state",
        ),
    ),
    "i40e": (Limit("min_tx_rate", _set, _NO_MINIMUM, "intel/i40e/i40e_virtchnl_pf.c i40e_ndo_set_vf_bw"),),
    "mlx5_core": (
        Limit("vlan", _set, _SWITCHDEV, "mellanox/mlx5/core/esw/legacy.c mlx5_eswitch_set_vport_vlan", "switchdev"),
        Limit(
            "spoofchk", _set, _SWITCHDEV, "mellanox/mlx5/core/esw/legacy.c mlx5_eswitch_set_vport_spoofchk", "switchdev"
        ),
        Limit("trust", _set, _SWITCHDEV, "mellanox/mlx5/core/esw/legacy.c mlx5_eswitch_set_vport_trust", "switchdev"),
    ),
}
# Drivers that set rates only while the port has a link (igb_ndo_set_vf_bw: tried; ixgbe_ndo_set_vf_bw).
RATES_NEED_CARRIER = frozenset({"igb", "ixgbe"})
# Drivers that never ask for one (mellanox/mlx5/core/esw/legacy.c mlx5_eswitch_set_vport_rate), so nobody need wait.
RATES_WITHOUT_CARRIER = frozenset({"mlx5_core"})
# Drivers without an embedded switch that could be switched: igb has no devlink instance at all (tried).
NO_ESWITCH = frozenset({"igb"})


def refusals(path: str, driver: str, mode: str, link_type: str, wanted: Attributes) -> Iterator[Problem]:
    """What of the wanted attributes of one VF the driver is known to refuse."""
    for limit in LIMITS.get(driver, ()):
        value = wanted.get(limit.name)
        if value is not None and limit.mode in ("", mode) and limit.refused(value):
            where = f" ({limit.mode} mode)" if limit.mode else ""
            yield Problem(
                f"{path}.{limit.name}",
                f"the driver {driver}{where} {limit.why}",
                "Take it out for this port.",
                found=_shown(value),
            )
    if link_type != "infiniband":
        # Linux net/core/rtnetlink.c handle_vf_guid: for ARPHRD_INFINIBAND only.
        for name in GUIDS:
            if name in wanted:
                fact = f"the port is {link_type or 'no InfiniBand one'}, and only VFs of InfiniBand ports have GUIDs"
                yield Problem(f"{path}.{name}", fact, "Take it out; a RoCE VF makes its GUID from its MAC.")
    elif "mac" in wanted:
        yield Problem(f"{path}.mac", "VFs of InfiniBand ports have GUIDs, not MAC addresses", "Give GUIDs instead.")


def _shown(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
