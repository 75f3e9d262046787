# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What guests need of a host and other resources of the same run still bring: a guest is placed when all of it is there. Pure."""

from __future__ import annotations

from ..assign.choice import candidates
from ..early.files import is_vfio
from ..pci.select import matches
from ..pci.tree import Function, Sriov
from .found import Current
from .wanted import Desired


def pending(desired: Desired, current: Current) -> list[tuple[str, str]]:
    """Resources that have not done their part yet, with why that is known, in the order of a round."""
    tree, found = current.machine.tree, []
    functions = [one for one in tree.functions.values() if not one.is_bridge]
    if desired.iommu and functions and not any(isinstance(one.iommu_group, int) for one in functions):
        found.append(("kernel_args", "the running kernel has no IOMMU groups"))
    sizes = {wish.shape.page_mib for wish in desired.present}
    for size in sorted(sizes if desired.pages else ()):
        if not any(node.pages.get(size) for node in current.nodes) and not any(
            one.active for one in current.domains.values()
        ):
            found.append(("hugepages", f"there are no huge pages of {size} MiB"))
    for entry in desired.ports:
        few = [str(one.address) for one in matches(entry.selector, tree) if _enabled(one) < entry.vfs]
        if few:
            found.append(("sriov", f"{', '.join(few)} still get VFs"))
    waiting = [
        str(address)
        for address, driver in candidates(desired.drivers, tree).items()
        if is_vfio(driver) and tree.functions[address].driver != driver
    ]
    if waiting:
        found.append(("pci_driver", f"{', '.join(waiting)} still get their driver"))
    return found


def _enabled(function: Function) -> int:
    return function.sriov.enabled if isinstance(function.sriov, Sriov) else 0
