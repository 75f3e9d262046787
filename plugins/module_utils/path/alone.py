# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is told of machines without a pair of GPU and NIC, and what is told without being judged. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..pci import capabilities
from ..pci.address import Address
from ..pci.capabilities import Words, acs_names
from ..pci.tree import Function
from .devices import NVIDIA
from .finding import Verdict
from .guest import some
from .policy import CR, RR, TB, UF
from .view import Looks, View

_NVSWITCH = 0x0680
_REDIRECTS = RR | CR | UF


def _acs(function: Function) -> object:
    return capabilities.acs(function.config) if function.told is None else function.told.acs


def nic_port_redirects(view: View) -> Looks:
    """The ports above NICs of an excerpt that has no GPU, NICs of unsupported makes too."""
    if not view.machine.partial or view.devices.gpus:
        return
    nics = dict.fromkeys((*view.devices.nics, *view.devices.unsupported))
    for port in dict.fromkeys(one for nic in nics for one in view.routes.above(nic)):
        acs = _acs(view.get(port))
        if not isinstance(acs, Words) or not acs.control & (_REDIRECTS | TB):
            continue
        words = f"0x{acs.control:02x} ({' '.join(acs_names(acs.control))})"
        found = f"{words}: any peer traffic goes through the root complex and its IOMMU"
        if acs.control & TB:
            found += (
                "; TransBlk+ is unusual and refuses translated requests, so that direct P2P with ATS would fail as well"
            )
        yield Verdict.WARN, port, found, "ports that let peers reach each other"


def acs_empty(view: View) -> Looks:
    """Of all functions of an excerpt in which there is nothing else to judge."""
    if not view.machine.partial or view.devices.gpus or view.devices.nics:
        return
    empty = []
    for one in view.machine.tree.functions.values():
        acs = _acs(one)
        if isinstance(acs, Words) and not acs.capability:
            empty.append(one.address)
    if empty:
        found = f"the ACS capability of {some(empty)} can do nothing: nothing can be enabled there"
        yield Verdict.OK, None, found, ""


def bars_resizable(view: View) -> Looks:
    """Regions of GPUs that are smaller than they could be, where the bytes tell it."""
    for gpu in view.devices.gpus:
        for index, now, most in capabilities.resizable(gpu.config):
            if now < most:
                found = f"region {index} has {_size(now)} and could have {_size(most)}"
                yield Verdict.OK, gpu.address, found, ""


def nvswitches_together(view: View) -> Looks:
    """NVSwitches that share a group; the GPUs' own groups are judged by ``groups_distinct``."""
    groups: dict[int, list[Address]] = {}
    for one in view.machine.tree.functions.values():
        if one.vendor == NVIDIA and one.class_code >> 8 == _NVSWITCH and isinstance(one.iommu_group, int):
            groups.setdefault(one.iommu_group, []).append(one.address)
    for group, members in sorted(groups.items()):
        if len(members) > 1:
            found = (
                f"NVSwitches {', '.join(map(str, sorted(members)))} share IOMMU group {group}: they go to one guest only together, "
                "or stay on the host (shared NVSwitch mode)"
            )
            yield Verdict.OK, None, found, ""


def _size(mib: int) -> str:
    return f"{mib >> 10} GiB" if mib >= 1024 else f"{mib} MiB"


LOOKS: Mapping[str, Callable[[View], Looks]] = {
    "nic_port_redirects": nic_port_redirects,
    "acs_empty": acs_empty,
    "bars_resizable": bars_resizable,
    "nvswitches_together": nvswitches_together,
}
