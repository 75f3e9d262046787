# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What shows that a machine is a guest, and rules about what a guest shows of its host. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ..core.change import Absent, Unreadable
from ..pci.address import Address
from ..pci.machine import Machine
from ..pci.tree import Function
from .finding import Verdict
from .policy import PASSTHROUGH
from .view import Looks, View

_OK = (Verdict.OK, None, "", "")
_NAMED = 4  # functions in a sentence
_WIDEST = 0xFFFF  # domain that libvirt can name
# Devices that only hypervisors make (pci.ids). Virtio functions are not among them: DPUs show those to real hosts.
_QEMU, _MICROSOFT, _VMWARE, _XEN = 0x1B36, 0x1414, 0x15AD, 0x5853
_MAKERS = {_QEMU: "QEMU", _MICROSOFT: "Hyper-V", _VMWARE: "VMware", _XEN: "Xen"}
_QEMU_ROOT_PORT = (_QEMU, 0x000C)
_I440FX = (0x8086, 0x1237)  # the host bridge of 1996, which QEMU still shows


def is_guest(machine: Machine) -> bool:
    """True where the processor or a device says so; False means that nothing does."""
    told = machine.platform.is_guest
    return told is True or bool(_signs(machine))


def is_audited_as_guest(machine: Machine) -> bool:
    """True for a guest that gives no devices to guests of its own, as far as the input tells."""
    return is_guest(machine) and not (isinstance(machine.platform.iommus, tuple) and machine.platform.iommus)


def _signs(machine: Machine) -> list[Function]:
    """Functions that only a guest has."""
    return [
        one
        for one in machine.tree.functions.values()
        if one.vendor in _MAKERS or (one.vendor, one.device) == _I440FX or (one.vendor, one.device) == _QEMU_ROOT_PORT
    ]


def _said(machine: Machine) -> str:
    """What shows it, in words."""
    signs = _signs(machine)
    ports = [one for one in signs if (one.vendor, one.device) == _QEMU_ROOT_PORT]
    if ports:
        return f"QEMU's root ports (1b36:000c) at {some(one.address for one in ports)}"
    if signs:
        makers = sorted({_MAKERS.get(one.vendor, "QEMU") for one in signs})
        return f"devices of {' and '.join(makers)} such as {signs[0].ids} at {signs[0].address}"
    return "the processor says that it is a hypervisor's"


def some(addresses: Iterable[Address]) -> str:
    """The first few addresses, and how many more."""
    every = [str(one) for one in sorted(addresses)]
    more = f" and {len(every) - _NAMED} more" if len(every) > _NAMED else ""
    return ", ".join(every[:_NAMED]) + more


def guest_view(view: View) -> Looks:
    """A guest in which no GPU and NIC have a switch above them hides where they are."""
    devices = (*view.devices.gpus, *view.devices.nics)
    if not view.devices.gpus or not is_guest(view.machine):
        return
    if any(len(view.routes.above(one)) > 1 for one in devices):
        yield _OK
        return
    bridges = any(one.is_bridge for one in view.machine.tree.functions.values())
    how = "" if bridges else "; no bridge at all is in the input"
    found = f"flat guest topology: PHB at best, and real locality is not shown ({_said(view.machine)}{how})"
    yield Verdict.UNKNOWN, None, found, "the host's switches above GPUs and NICs"


def guest_numa(view: View) -> Looks:
    """One word about all devices: -1 means that the guest was told nothing, which is no node."""
    if not is_guest(view.machine):
        return
    devices = (*view.devices.gpus, *view.devices.nics) or tuple(view.machine.tree.functions.values())
    nodes = [one.numa_node for one in devices]
    if any(isinstance(node, Unreadable) for node in nodes):
        yield Verdict.UNKNOWN, None, "the NUMA nodes of its devices are not in the input", "NUMA nodes"
    elif all(isinstance(node, Absent) for node in nodes):
        yield Verdict.WARN, None, "guest has no PCI NUMA affinity (numa_node is -1: not told)", "NUMA nodes"
    else:
        yield _OK


def domain_assignable(view: View) -> Looks:
    """GPUs, NICs and VFs; of others it is only told."""
    wide = {address for address in view.machine.tree.functions if address.domain > _WIDEST}
    verdict = Verdict.FAIL if view.intent.mode == PASSTHROUGH else Verdict.WARN
    ours = [one for one in (*view.devices.gpus, *view.devices.nics, *view.vfs()) if one.address in wide]
    for one in ours:
        found = f"domain {one.address.domain:x} has more than 16 bits: not assignable by libvirt"
        yield verdict, one.address, found, "a domain of 16 bits"
    others = wide - {one.address for one in ours}
    if others:
        yield (
            Verdict.OK,
            None,
            f"not assignable by libvirt, since their domain has more than 16 bits: {some(others)}",
            "",
        )


LOOKS: Mapping[str, Callable[[View], Looks]] = {
    "guest_view": guest_view,
    "guest_numa": guest_numa,
    "domain_assignable": domain_assignable,
}
