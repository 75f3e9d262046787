# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VFs that ``sriov_ports`` makes later in the run: whose they are, and what can be said against them beforehand. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..core.errors import Problem
from ..early.files import is_vfio
from ..pci.select import described, matches
from ..pci.tree import Function, Sriov, Tree
from ..vf.intent import Entry as Port
from .intent import Entry


@dataclass(frozen=True)
class Vfs:
    """The VFs of a PF that an entry selects: how many there are now, and the entry of ``sriov_ports`` that manages them."""

    pf: Function
    there: int
    port: Port | None

    @property
    def count(self) -> int:
        """How many there will be."""
        return self.there if self.port is None else self.port.vfs

    @property
    def made(self) -> bool:
        """Whether they are made, or made anew, later in the run."""
        return self.count not in (0, self.there)

    @property
    def why(self) -> str:
        """What is waited for."""
        return f"{self.pf.address} has {self.there} VFs and gets {self.count}"


def selected_vfs(entry: Entry, ports: Sequence[Port], tree: Tree) -> tuple[Vfs, ...]:
    """What an entry that selects VFs by their PFs will find; nothing for another entry."""
    if entry.selector.vfs_of is None:
        return ()
    wanted = {one.address: port for port in ports for one in matches(port.selector, tree) if one.is_pf}
    return tuple(
        Vfs(pf, pf.sriov.enabled if isinstance(pf.sriov, Sriov) else 0, wanted.get(pf.address))
        for pf in matches(entry.selector.vfs_of, tree)
        if pf.is_pf
    )


def problems_of(entry: Entry, found: Sequence[Vfs], tree: Tree, passing: frozenset[int]) -> Iterator[Problem]:
    """Why VFs that come could not be had, or others go: said before the first of them is made.

    Nothing is said of groups that are ``passing``: the next boot does not form them again.
    """
    for one in found:
        if one.port is not None and one.there and not one.count:
            fact = f"selects VFs of {one.pf.address}, and {one.port.path} asks for none there"
            yield Problem(f"{entry.path}.select.vfs_of", fact, "Correct one of the two.", f"{one.there} VFs now")
    total = sum(one.count for one in found)
    if any(one.made for one in found) and entry.expect not in (None, total) and not entry.selector.conditions:
        said = ", ".join(f"{one.count} on {one.pf.address}" for one in found)
        fact = f"there will be another number of VFs ({said})"
        yield Problem(f"{entry.path}.expect", fact, "Correct it, or sriov_ports.", str(total), str(entry.expect))
    for one in found:
        bridge = _shared(one.pf, tree) if one.made and is_vfio(entry.driver) else None
        if bridge is not None and one.pf.iommu_group not in passing:
            group = f"IOMMU group {one.pf.iommu_group}"
            fact = f"VFs of {described(one.pf)} will share {group} with it: the bridge {bridge.address} has no ACS"
            advice = "Turn ACS on in the BIOS, plug the NIC elsewhere, or leave its VFs out."
            yield Problem(f"{entry.path}.select", fact, advice)


def _shared(pf: Function, tree: Tree) -> Function | None:
    """The nearest bridge in the group of a PF.

    A group has a bridge in it where the bridge lets pass between what is below it without the IOMMU (Linux
    drivers/iommu/iommu.c pci_device_group), and then everything below is in the group, VFs that come too.
    """
    if not isinstance(pf.iommu_group, int):
        return None
    return next((one for one in tree.above(pf) if one.iommu_group == pf.iommu_group), None)
