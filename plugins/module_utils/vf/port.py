# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One port (a PF with its network device) as it is now, and who uses it and its VFs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Union

from ..core.change import ABSENT, Disruption, Text, Unreadable
from ..pci.address import Address
from ..pci.tree import Function, Sriov
from .links import Link, Links, uses

LEGACY = "legacy"
# phys_port_name of a port itself; its representors have pf0vf3 and the like.
_OWN = re.compile(r"p\d+(s\d+)?")


@dataclass(frozen=True)
class Port:
    """What is known of a PF. ``eswitch`` is only read where it is managed."""

    function: Function
    sriov: Sriov
    link: Union[Link, None]  # None: it has no network device of its own, or not one that can be told
    eswitch: Text = ABSENT
    speed: Union[int, None] = None  # Mb/s; None: not known, as without carrier
    protected: str = ""  # why it must not be touched
    uses: tuple[str, ...] = ()  # who else uses the port
    vf_uses: Mapping[int, tuple[str, ...]] = field(default_factory=dict)  # who on the host uses a VF
    guests: Mapping[int, str] = field(default_factory=dict)  # VFs that a guest holds, or might, with what tells it

    @property
    def address(self) -> Address:
        """Where it is."""
        return self.function.address

    @property
    def driver(self) -> str:
        """The driver's name; empty: none, or not known."""
        return self.function.driver if isinstance(self.function.driver, str) else ""

    @property
    def mode(self) -> str:
        """The eswitch mode. What has no eswitch to be switched works as legacy does."""
        return self.eswitch if isinstance(self.eswitch, str) else LEGACY

    def without_vfs(self) -> tuple[Disruption, str]:
        """What it disrupts to take all VFs away, and whom."""
        return self._of_vfs(range(self.sriov.enabled))

    def changing_vfs(self, numbers: Iterable[int]) -> tuple[Disruption, str]:
        """What it disrupts to change attributes of VFs, and whom."""
        return self._of_vfs(numbers)

    def resetting(self) -> tuple[Disruption, str]:
        """What it disrupts when the port's link goes down and comes back, and whom."""
        guest, whom = self._of_vfs(range(self.sriov.enabled))
        if guest is Disruption.GUEST:
            return guest, whom
        return (Disruption.LINK, "; ".join(self.uses)) if self.uses else (guest, whom)

    def _of_vfs(self, numbers: Iterable[int]) -> tuple[Disruption, str]:
        numbers = sorted(numbers)
        guests = [f"VF {number}: {self.guests[number]}" for number in numbers if number in self.guests]
        if guests:
            return Disruption.GUEST, _some(guests)
        others = [use for number in numbers for use in self.vf_uses.get(number, ())]
        return (Disruption.LINK, _some(others)) if others else (Disruption.NOTHING, "")


def own_netdev(port_names: Mapping[str, str]) -> Union[str, None]:
    """The network device that is the port itself, of those below its PCI function (name: phys_port_name).

    In switchdev mode the representors of its VFs are there too, and a rule that takes the first one takes one of them.
    """
    if len(port_names) == 1:
        return next(iter(port_names))
    own = [name for name, port_name in port_names.items() if _OWN.fullmatch(port_name)]
    return own[0] if len(own) == 1 else None


def netdev_of(function: Function) -> Union[str, None]:
    """The name of a PF's own network device."""
    return own_netdev({one.name: one.port_name if isinstance(one.port_name, str) else "" for one in function.ports})


def held_vfs(
    vfs: Sequence[Function],
    held: Union[Mapping[str, tuple[int, ...]], Unreadable],
    devices: Mapping[Address, Sequence[str]],
) -> dict[int, str]:
    """The VFs on a vfio driver that some process has open, by number, with what tells it.

    ``held`` are open files below ``/dev/vfio`` by path, ``devices`` the names of the VFs' own files there, which a
    guest on iommufd opens instead of the group's. What cannot be told counts as held.
    """
    found: dict[int, str] = {}
    for number, vf in enumerate(vfs):
        if not isinstance(vf.driver, str) or "vfio" not in vf.driver:
            continue
        if isinstance(held, Unreadable):
            found[number] = f"it is on {vf.driver}, and whether a guest holds it cannot be told: {held.cause}"
            continue
        ends = [f"/vfio/devices/{name}" for name in devices.get(vf.address, ())]
        ends += [f"/vfio/{vf.iommu_group}", f"/vfio/noiommu-{vf.iommu_group}"]
        processes = sorted({one for path, those in held.items() if path.endswith(tuple(ends)) for one in those})
        if processes:
            found[number] = f"process {', '.join(map(str, processes))} holds {vf.address}"
        elif not isinstance(vf.iommu_group, int):
            found[number] = f"it is on {vf.driver}, and its IOMMU group is not known"
    return found


def used_vfs(vfs: Sequence[Function], links: Links) -> dict[int, tuple[str, ...]]:
    """The VFs that the host itself uses, by number, with what tells it."""
    found: dict[int, tuple[str, ...]] = {}
    for number, vf in enumerate(vfs):
        reasons = [use for netdev in vf.netdevs for use in uses(links, netdev.name)]
        if isinstance(vf.driver, str) and "vfio" not in vf.driver and not vf.netdevs:
            # A network device that was moved to a container's namespace is not seen from here.
            reasons.append(f"VF {number} is on {vf.driver} and has no network device here: a container may have it")
        if reasons:
            found[number] = tuple(reasons)
    return found


def _some(reasons: Sequence[str], shown: int = 4) -> str:
    more = f"; and {len(reasons) - shown} more" if len(reasons) > shown else ""
    return "; ".join(reasons[:shown]) + more
