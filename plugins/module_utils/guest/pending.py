# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What guests need of a host and other resources of the same run still bring: a guest is placed when all of it is there. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ..assign.choice import candidates
from ..boot.pages import KIB
from ..early.files import is_vfio
from ..pci.select import matches
from ..pci.tree import Function, Sriov
from .converged import pages_by_node
from .found import Current
from .wanted import Desired


def pending(desired: Desired, current: Current) -> list[tuple[str, str]]:
    """Resources that have not done their part yet, with why that is known, in the order of a round."""
    tree, found = current.machine.tree, []
    functions = [one for one in tree.functions.values() if not one.is_bridge]
    if desired.iommu and functions and not any(isinstance(one.iommu_group, int) for one in functions):
        found.append(("kernel_args", "the running kernel has no IOMMU groups"))
    found += [("hugepages", why) for why in _pages(desired, current)]
    for entry in desired.ports:
        others = [one for one in matches(entry.selector, tree) if _enabled(one) != entry.vfs]
        if others:
            each = ", ".join(f"{one.address} has {_enabled(one)}" for one in others)
            found.append(("sriov", f"ports get another number of VFs ({each}, wanted {entry.vfs})"))
    waiting = [
        str(address)
        for address, driver in candidates(desired.drivers, tree).items()
        if tree.functions[address].driver != driver and (is_vfio(driver) or _is_for_guests(tree.functions[address]))
    ]
    if waiting:
        found.append(("pci_driver", f"devices still get their driver ({', '.join(waiting)})"))
    return found


def _pages(desired: Desired, current: Current) -> Iterator[str]:
    """Pages that guests would have and that come or go."""
    sizes = {wish.shape.page_mib for wish in desired.present}
    for pages in desired.pages:
        size, wanted = KIB[pages.size] // 1024, pages_by_node(pages, current.nodes)
        there = {node.number: node.all_pages[size] for node in current.nodes if size in node.all_pages}
        others = [node for node, count in there.items() if count != wanted[node]]
        if size in sizes and others:
            each = ", ".join(f"node {node} has {there[node]}, wanted {wanted[node]}" for node in others)
            yield f"nodes get another number of huge pages of {size} MiB ({each})"
    idle = not any(one.active for one in current.domains.values())
    for size in sorted(sizes if desired.pages and idle else ()):
        if not any(node.pages.get(size) or node.all_pages.get(size) for node in current.nodes):
            yield f"there are no huge pages of {size} MiB"


def _is_for_guests(function: Function) -> bool:
    return isinstance(function.driver, str) and is_vfio(function.driver)


def _enabled(function: Function) -> int:
    return function.sriov.enabled if isinstance(function.sriov, Sriov) else 0
