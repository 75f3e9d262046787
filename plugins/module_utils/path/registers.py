# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about the registers of ports and NICs: ACS and ATS. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..core.change import Absent, Unreadable
from ..pci.address import Address
from ..pci.capabilities import Words, acs_names
from ..pci.tree import Function
from .finding import Verdict
from .policy import BARE_METAL, DT, ISOLATES, TB, Position
from .view import Looks, Port, View

_OK = (Verdict.OK, None, "", "")
_UNREAD_PAIR = "how the GPU and the NIC are connected is not known to its end"


def _named(word: int) -> str:
    """An ACS word as setpci and lspci write it."""
    return f"0x{word:02x} ({' '.join(acs_names(word)) or 'nothing'})"


def _unread(port: Port, acs: Unreadable) -> str:
    return f"the ACS words of {port.words} cannot be read: {acs.cause}"


def _direct_ports(view: View) -> list[Port]:
    """The ports that have to let translated requests go directly."""
    return [port for port in view.ports.values() if port.bits.wanted & DT]


def direct_translated(view: View) -> Looks:
    """DT in the control word of the ports towards the NIC; what cannot do it is told by ``acs_dt_capable``."""
    for port in _direct_ports(view):
        acs, subject = port.acs, port.function.address
        if isinstance(acs, Unreadable):
            yield Verdict.UNKNOWN, subject, _unread(port, acs), "DirectTrans+"
        elif isinstance(acs, Absent) or acs.control & DT or not acs.capability & DT:
            yield _OK
        else:
            yield Verdict.FAIL, subject, f"{port.words} has {_named(acs.control)}", "DirectTrans+"
    for gpu, nic in view.pairs:
        way = view.ways[gpu, nic]
        if nic in view.unjudged:
            continue
        if way.may_be_near:
            yield Verdict.UNKNOWN, (gpu, nic), _UNREAD_PAIR, "DirectTrans+"
        elif way.is_near and not any(view.ports[one].bits.wanted & DT for one in way.down):
            found = "no lower port of a switch is known between what they share and the NIC"
            yield Verdict.UNKNOWN, (gpu, nic), found, "DirectTrans+"


def dt_capable(view: View) -> Looks:
    """DT in the capability word of the same ports."""
    for port in _direct_ports(view):
        acs, subject = port.acs, port.function.address
        if isinstance(acs, Unreadable):
            yield Verdict.UNKNOWN, subject, _unread(port, acs), "DirectTrans+ in the capability"
        elif isinstance(acs, Absent):
            yield Verdict.FAIL, subject, f"{port.words} has no ACS", "DirectTrans+ in the capability"
        elif not acs.capability & DT:
            found = f"{port.words} can {_named(acs.capability)}"
            yield Verdict.FAIL, subject, found, "DirectTrans+ in the capability"
        else:
            yield _OK


def redirect(view: View) -> Looks:
    """SV, RR, CR and UF as the policy wants them on every port of a path."""
    for port in view.ports.values():
        wanted, barred = port.bits.wanted & ISOLATES, port.bits.barred & ISOLATES
        if not wanted and not barred:
            continue
        acs, subject = port.acs, port.function.address
        said = " and ".join(
            part for part in (wanted and f"{_named(wanted)} on", barred and f"{_named(barred)} off") if part
        )
        if isinstance(acs, Unreadable) or (isinstance(acs, Absent) and wanted and port.depth is None):
            cause = acs if isinstance(acs, Unreadable) else Unreadable("its place on the path is not known")
            yield Verdict.UNKNOWN, subject, _unread(port, cause), said
        elif isinstance(acs, Absent):
            verdict = _without_acs(port) if wanted else Verdict.OK
            yield (verdict, subject, f"{port.words} has no ACS", said) if verdict else _OK
        else:
            verdict = _redirect_of(port, acs, wanted, barred)
            found = f"{port.words} has {_found(acs)}"
            if verdict == Verdict.FAIL and wanted & acs.capability & ~acs.control and not acs.control & barred:
                verdict, found = _of_this_boot(view, found)
            yield (verdict, subject, found, said) if verdict else _OK


def _found(acs: Words) -> str:
    return _named(acs.control) if acs.capability else "an ACS capability that can do nothing: it cannot be enabled"


def _of_this_boot(view: View, found: str) -> tuple[Verdict, str]:
    """What is off may be so only because that boot had no IOMMU: with one, the kernel sets these bits itself."""
    iommus = view.platform.iommus
    if not isinstance(iommus, Unreadable) or view.has_groups:
        return Verdict.FAIL, found
    return (
        Verdict.UNKNOWN,
        f"{found}, which is the ACS state as of this boot: whether it used an IOMMU is not in the input, "
        "and with one the kernel sets other bits",
    )


def _without_acs(port: Port) -> Verdict:
    """The upper end of a switch needs none. For some root ports the kernel knows another way (Linux drivers/pci/quirks.c)."""
    return Verdict.OK if port.is_upper else Verdict.WARN if port.is_root else Verdict.FAIL


def _redirect_of(port: Port, acs: Words, wanted: int, barred: int) -> Verdict:
    missing = wanted & ~acs.control
    if acs.control & barred or missing & acs.capability:
        return Verdict.FAIL
    return _without_acs(port) if missing else Verdict.OK


def translation_blocking(view: View) -> Looks:
    """TB off on every port of a path."""
    for port in view.ports.values():
        if not port.bits.barred & TB:
            continue
        acs, subject = port.acs, port.function.address
        if isinstance(acs, Unreadable):
            yield Verdict.UNKNOWN, subject, _unread(port, acs), "TransBlk-"
        elif isinstance(acs, Words) and acs.control & TB:
            yield Verdict.FAIL, subject, f"{port.words} has {_named(acs.control)}", "TransBlk-"
        else:
            yield _OK


def stale_groups(view: View) -> Looks:
    """Ports that keep nothing apart, above functions whose groups say that they are apart."""
    for port in view.ports.values():
        if not port.positions & {Position.NIC_PORT, Position.GPU_PORT}:
            continue
        acs, subject = port.acs, port.function.address
        apart = _apart(view, port)
        if apart is False:
            yield _OK
        elif isinstance(acs, Unreadable):
            yield Verdict.UNKNOWN, subject, _unread(port, acs), "groups that follow the registers"
        elif isinstance(acs, Words) and ISOLATES & acs.capability & ~acs.control:
            if apart is None:
                yield Verdict.UNKNOWN, subject, "the IOMMU groups of the devices below cannot be read", "known groups"
            else:
                found = f"{port.words} has {_named(acs.control)}, and the devices below have groups of their own"
                yield Verdict.FAIL, subject, found, "groups that follow the registers"
        else:
            yield _OK


def _apart(view: View, port: Port) -> bool | None:
    """Whether GPU and NIC of a pair through a port are in different groups; None where that is not known."""
    known: bool | None = False
    for gpu, nic in port.pairs:
        groups = view.get(gpu).iommu_group, view.get(nic).iommu_group
        if any(isinstance(group, Unreadable) for group in groups):
            known = None
        elif groups[0] != groups[1] and not any(isinstance(group, Absent) for group in groups):
            return True
    return known


def ats_present(view: View) -> Looks:
    """The capability of the NICs' own functions; a VF has it where its PF has."""
    for nic in view.judged_nics:
        near = nic.address in view.near_nics
        wanted = view.policy.ats_near if near else view.policy.ats_far
        ats = view.ats(nic)
        said = "ATS" if wanted else "no ATS"
        if isinstance(ats, Unreadable):
            yield Verdict.UNKNOWN, nic.address, f"its capabilities cannot be read: {ats.cause}", said
        elif not near and nic.address in view.unsure_nics:
            yield Verdict.UNKNOWN, nic.address, "how far the NIC is from the GPU is not known", "ATS for near NICs"
        elif isinstance(ats, Absent) == bool(wanted):
            serious = near or view.intent.mode == BARE_METAL
            found = "it has no ATS" if wanted else "it has ATS"
            yield Verdict.FAIL if serious else Verdict.WARN, nic.address, found, said
        else:
            yield _OK


def ats_root_port(view: View) -> Looks:
    """Intel's table of root ports below which ATS works; no other maker has one."""
    vendor, atsr = view.platform.cpu_vendor, view.platform.atsr
    for nic in view.judged_nics:
        if nic.address not in view.near_nics:
            continue
        if not isinstance(vendor, str):
            yield Verdict.UNKNOWN, nic.address, "the maker of the processor is not known", "its root port in ATSR"
        elif vendor != "GenuineIntel":
            yield _OK
        elif isinstance(atsr, Unreadable):
            yield Verdict.UNKNOWN, nic.address, f"the DMAR table cannot be read: {atsr.cause}", "its root port in ATSR"
        else:
            yield from _in_table(view, nic)


def _in_table(view: View, nic: Function) -> Looks:
    atsr, root = view.platform.atsr, _root_port(view, nic)
    if isinstance(atsr, (Absent, Unreadable)):
        yield Verdict.FAIL, nic.address, "the DMAR table has no ATSR structure", "its root port in ATSR"
    elif root is None:
        yield Verdict.UNKNOWN, nic.address, _UNREAD_PAIR, "its root port in ATSR"
    elif root.domain in atsr.everywhere or str(root) in atsr.ports:
        yield _OK
    else:
        found = f"no ATSR structure of the DMAR table covers the root port {root}"
        yield Verdict.FAIL, nic.address, found, "its root port in ATSR"


def _root_port(view: View, nic: Function) -> Address | None:
    chain = view.routes.above(nic)
    return chain[-1] if chain and view.routes.is_whole(nic) else None


LOOKS: Mapping[str, Callable[[View], Looks]] = {
    "acs_dt_capable": dt_capable,
    "acs_direct_translated": direct_translated,
    "acs_redirect": redirect,
    "acs_translation_blocking": translation_blocking,
    "stale_groups": stale_groups,
    "ats_present": ats_present,
    "ats_root_port": ats_root_port,
}
