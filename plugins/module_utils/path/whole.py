# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about the machine as a whole, and about which GPUs and NICs it has. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Union

from ..core.change import Absent, Unreadable
from ..pci.select import described
from .devices import is_data_direct_nic
from .finding import Kind, Verdict
from .policy import BARE_METAL
from .view import Looks, View

_OK = (Verdict.OK, None, "", "")
_PATIENT = "vfio_iommu_type1.allow_unsafe_interrupts"
_FAR = {
    Kind.PHB: "through the root complex, below one host bridge",
    Kind.NODE: "through several host bridges of one NUMA node",
    Kind.SYS: "through the link between processors",
}


def _untold(value: object, what: str, wanted: str) -> Looks:
    """The finding of a value that is not known."""
    cause = f": {value.cause}" if isinstance(value, Unreadable) else ""
    yield Verdict.UNKNOWN, None, f"{what} is not known{cause}", wanted


def platform_supported(view: View) -> Looks:
    """x86 only."""
    found = view.platform.architecture
    if not isinstance(found, str):
        yield from _untold(found, "the architecture", "x86_64")
    elif found != "x86_64":
        verdict = Verdict.WARN if view.intent.mode == BARE_METAL else Verdict.FAIL
        yield verdict, None, f"the architecture is {found}", "x86_64"
    else:
        yield _OK


def not_applicable(view: View) -> Looks:
    """Tells only."""
    yield Verdict.OK, None, f"{view.intent.mode}: rules about direct paths do not apply, nothing was judged", ""


def iommu_on(view: View) -> Looks:
    """The kernel registers each IOMMU that it uses in /sys/class/iommu."""
    found = view.platform.iommus
    if isinstance(found, Unreadable):
        yield from _untold(found, "whether there is an IOMMU", "an IOMMU")
    elif isinstance(found, Absent) or not found:
        yield Verdict.FAIL, None, "the kernel uses no IOMMU", "an IOMMU"
    else:
        yield _OK


def _words(view: View) -> Union[list[str], None]:
    arguments = view.platform.arguments
    return arguments.split() if isinstance(arguments, str) else None


def no_acs_override(view: View) -> Looks:
    """A parameter of kernels with a patch that mainline never took."""
    words = _words(view)
    if words is None:
        yield from _untold(view.platform.arguments, "the kernel command line", "no pcie_acs_override")
        return
    found = next((word for word in words if word.split("=")[0] == "pcie_acs_override"), "")
    yield (Verdict.FAIL, None, f"{found} is on the kernel command line", "not there") if found else _OK


def no_noats(view: View) -> Looks:
    """One of the options in ``pci=``."""
    words = _words(view)
    if words is None:
        yield from _untold(view.platform.arguments, "the kernel command line", "no pci=noats")
        return
    found = any(word.startswith("pci=") and "noats" in word[4:].split(",") for word in words)
    yield (Verdict.FAIL, None, "pci=noats is on the kernel command line", "not there") if found else _OK


def no_unsafe_interrupts(view: View) -> Looks:
    """The parameter as it is, and what the command line gives a module that is loaded later."""
    found, words = view.platform.unsafe_interrupts, _words(view)
    asked = any(word.lower() in (f"{_PATIENT}={yes}" for yes in ("1", "y", "on")) for word in words or ())
    if found is True or (asked and not isinstance(found, bool)):
        yield Verdict.FAIL, None, "allow_unsafe_interrupts is on", "off"
    elif isinstance(found, Unreadable) or (isinstance(found, Absent) and words is None):
        yield from _untold(found, "allow_unsafe_interrupts of vfio_iommu_type1", "off")
    else:
        yield _OK


def memory_encryption(view: View) -> Looks:
    """What is active, not what the processor could do."""
    found = view.platform.memory_encryption
    if isinstance(found, Unreadable):
        yield from _untold(found, "whether memory encryption is active", "none active")
    elif isinstance(found, str):
        verdict = Verdict.WARN if found == "sme" else Verdict.FAIL
        yield verdict, None, f"{found} is active", "none active"
    else:
        yield _OK


def iommufd(view: View) -> Looks:
    """A setting of guests. Where none is known (ABSENT) there is nothing to judge."""
    found = view.platform.iommufd
    if isinstance(found, Unreadable):
        yield from _untold(found, "the VFIO backend of the guests", "the type1 container")
    elif found is True:
        yield Verdict.FAIL, None, "a guest uses iommufd", "the type1 container"
    elif found is False:
        yield _OK


# Devices ---------------------------------------------------------------------------------


def gpus_found(view: View) -> Looks:
    """At least one; not known while a function does not tell what it is."""
    yield from _some(view, bool(view.devices.gpus), "no GPU", "at least one GPU")


def nics_found(view: View) -> Looks:
    """At least one, and one whose RDMA devices are not known may be one."""
    if view.devices.untold:
        names = ", ".join(str(one.address) for one in view.devices.untold)
        found = f"whether these have RDMA devices cannot be read: {names}"
        yield Verdict.UNKNOWN, None, found, "known RDMA devices"
        return
    yield from _some(view, bool(view.devices.nics), "no RDMA NIC", "at least one RDMA NIC")


def _some(view: View, there: bool, none: str, wanted: str) -> Looks:
    unread = view.machine.tree.unread
    if unread:
        names = ", ".join(sorted(map(str, unread)))
        yield Verdict.UNKNOWN, None, f"what these functions are cannot be read: {names}", wanted
    elif there:
        yield _OK
    elif view.machine.partial:
        yield Verdict.UNKNOWN, None, f"{none} in this input, which has not all of the machine", wanted
    else:
        yield Verdict.FAIL, None, none, wanted


def nic_supported(view: View) -> Looks:
    """A card that is selected, or the only one, fails; one that lies beside others is named."""
    verdict = Verdict.FAIL if view.intent.nics or not view.devices.nics else Verdict.WARN
    if not view.devices.unsupported:
        yield _OK
    for one in view.devices.unsupported:
        yield verdict, one.address, f"mlx4 family: {described(one)}", "ConnectX-6 or newer"


def data_direct(view: View) -> Looks:
    """Not judged, which is said."""
    machine = view.machine
    for nic in view.nics:
        if nic.address in view.unjudged:
            found = "ConnectX-8 with a data-direct function: not judged"
            yield Verdict.UNKNOWN, nic.address, found, "a NIC without one"
        elif is_data_direct_nic(nic) and (machine.partial or machine.tree.unread):
            found = "whether this ConnectX-8 has a data-direct function is not in the input"
            yield Verdict.UNKNOWN, nic.address, found, "a NIC without one"
        else:
            yield _OK


def same_switch(view: View) -> Looks:
    """The distance of each GPU and its nearest NICs."""
    most = view.intent.max_distance
    for pair in view.pairs:
        kind = view.ways[pair].kind
        wanted = f"PIX or PXB, at most {most.name}"
        if kind > most and kind != Kind.UNKNOWN:
            yield Verdict.FAIL, pair, f"{kind.name}: {_FAR.get(kind, 'below several switches')}", wanted
        elif kind in _FAR:
            yield Verdict.WARN, pair, f"{kind.name}: {_FAR[kind]}", wanted
        elif kind == Kind.UNKNOWN:
            yield Verdict.UNKNOWN, pair, "how the two are connected is not known to its end", wanted
        else:
            yield _OK


LOOKS: Mapping[str, Callable[[View], Looks]] = {
    "platform_supported": platform_supported,
    "not_applicable": not_applicable,
    "gpus_found": gpus_found,
    "nics_found": nics_found,
    "nic_supported": nic_supported,
    "iommu_on": iommu_on,
    "no_acs_override": no_acs_override,
    "no_noats": no_noats,
    "no_unsafe_interrupts": no_unsafe_interrupts,
    "memory_encryption": memory_encryption,
    "iommufd": iommufd,
    "same_switch": same_switch,
    "data_direct": data_direct,
}
