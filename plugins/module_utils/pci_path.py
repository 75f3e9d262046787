# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Registers on the paths between GPUs and NICs: ACS words of ports and read requests of NICs, as ``p2p`` judges them.

They are live state, which a boot and a reset take away. The boot half of ACS is an argument that ``kernel_args`` writes
from the same policy; this resource judges and sets what is live. Isolation is never taken from a running kernel whose IOMMU
groups rest on it: that is left to a boot.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Union

from . import p2p
from .core.change import Absent, Awaiting, Change, Plan, Unreadable
from .core.errors import Problem, UnreadableState
from .core.host import Host
from .core.owned import Owned
from .path import acs, facts
from .path.acs import Method, Port, as_plain, shown
from .path.finding import Finding, Report, Verdict
from .path.intent import SCHEMA, PathIntent, parse
from .path.policy import DT, ISOLATES, TB, VIRTIO
from .path.view import View
from .path.writing import SetWord, carry_out
from .pci.address import Address
from .pci.capabilities import Words
from .pci.config_space import ACS, EXPRESS
from .pci.identity import differences, identity
from .pci.machine import Machine
from .pci.tree import Function, Tree

__all__ = ["MENDS", "SCHEMA", "apply", "lost_at_boot", "parse", "plan", "read"]

# The drift watch may make changes of this resource that disrupt nothing: a reset of a device undoes registers.
MENDS = True

_RECORD = re.compile(r"pci_path\[(?P<address>[0-9a-f:.]+)\]\.(?P<name>acs|max_read_request)")
_READ_REQUEST = 0x7000  # bits 14:12 of the device control word (Linux pci_regs.h PCI_EXP_DEVCTL_READRQ)
_STARTS_RESET = 0x8000  # of the same word: a function-level reset begins where it is written as one
# The bits that a port has to be able to, by the rule that says so.
_DECIDED_BY = {"acs_dt_capable": DT, "acs_redirect": ISOLATES}
_DEVICE_CONTROL = 8  # where the word is in its capability
_ACS_CONTROL = 6


@dataclass(frozen=True)
class Current:
    """The machine as rules see it; None where nothing is asked for and nothing is on record."""

    machine: Union[Machine, None] = None
    boot: str = ""


def lost_at_boot(desired: PathIntent) -> bool:
    """Registers are; where the boot argument brings them, a reset may still undo them."""
    return desired.sets_anything


# read ------------------------------------------------------------------------------------


def read(host: Host, desired: PathIntent) -> Current:
    """The PCI tree and what the platform says; nothing is read where nothing matters."""
    if not desired.sets_anything and not Owned.load(host).of(SCHEMA.name):
        return Current()
    return Current(facts.machine_of(host), host.boot_id())


# plan ------------------------------------------------------------------------------------


def plan(desired: PathIntent, current: Current, owned: Mapping[str, Any]) -> Plan:
    """The registers that are not as wanted, and the way back for those that nobody wants any more."""
    if current.machine is None:
        return Plan()
    planner = _Planner(desired, current.machine, current.boot, owned)
    if desired.sets_anything:
        planner.wanted()
    # Where it is not clear which paths are meant, nothing goes back: it may be what is still wanted.
    if not planner.pathless:
        planner.unwanted()
    return Plan(
        tuple(planner.changes), (), tuple(planner.awaiting), tuple(planner.notes), tuple(dict.fromkeys(planner.refused))
    )


@dataclass
class _Planner:
    """A plan in the making."""

    intent: PathIntent
    machine: Machine
    boot: str
    owned: Mapping[str, Any]
    changes: list[Change] = field(default_factory=list)
    awaiting: list[Awaiting] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: list[Problem] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)  # paths that are wanted
    pathless: bool = False

    @property
    def tree(self) -> Tree:
        """The machine's functions."""
        return self.machine.tree

    @property
    def locked(self) -> str:
        """What keeps user space from writing configuration space; empty: nothing (Linux security/lockdown, pci-sysfs.c)."""
        word = self.machine.platform.lockdown
        return f"the kernel is locked down ({word})" if isinstance(word, str) and word != "none" else ""

    @property
    def grouped(self) -> bool:
        """Whether IOMMU groups were formed, or that cannot be told."""
        return any(not isinstance(one.iommu_group, Absent) for one in self.tree.functions.values())

    def wanted(self) -> None:
        """All that the intent asks for."""
        report = p2p.judge(self.machine, self.intent)
        self.refused += paths_problems(self.machine, self.intent)
        self.pathless = bool(self.refused)
        if self.pathless:
            return
        if self.intent.sets_acs:
            self._wanted_words(report)
        if self.intent.max_read_request is not None:
            for address, size in p2p.wanted_read_requests(self.machine, self.intent).items():
                self._wanted_request(self.tree.functions[address], size)

    # ACS words -----------------------------------------------------------------------------

    def _wanted_words(self, report: Report) -> None:
        wants = p2p.wanted_words(self.machine, self.intent)
        ports = acs.ports_of(self.tree, wants, self.owned, self.boot)
        self.kept |= {port.path for port in ports}
        self._incapable(report, {port.address: port for port in ports})
        method = acs.method_of(self.intent, self.machine.platform.kernel)
        member = ""
        if method.by_argument:
            member, problems = acs.member_of(ports, self.intent, self.tree)
            self.refused += problems
        elif self.intent.acs == "auto":
            self.notes.append(f"pci_path: registers are set at each boot, since {method.why}")
        started = acs.is_live(member, self.machine.platform.arguments)
        for port in ports:
            self._wanted_word(port, method, started)
        if not started:
            self._regrouped(report, ports, method)

    def _incapable(self, report: Report, ports: Mapping[Address, Port]) -> None:
        """Ports that cannot have the word: refused by name, or left out where the site has relaxed the rule."""
        view = View(self.machine, self.intent)
        for finding in report.findings:
            bits = _DECIDED_BY.get(finding.rule, 0)
            if not bits or len(finding.path) != 1:
                continue
            address = finding.path[0]
            port, place = ports.get(address), view.ports[address]
            lacking = place.bits.wanted & bits & ~(port.acs.capability if port else 0)
            # Upper ends of switches need none, and for some root ports the kernel knows another way: groups tell.
            if not lacking or place.is_upper or place.is_root:
                continue
            if finding.relaxed:
                self.notes.append(f"{acs.path_of(address)}: {finding.found}; left so, since {finding.relaxed}")
            elif finding.verdict == Verdict.FAIL:
                self.refused.append(_cannot(finding, address))

    def _wanted_word(self, port: Port, method: Method, started: bool) -> None:
        now, wanted = port.acs.control, port.live_word
        opened = now & ~wanted & ISOLATES if self.grouped else 0
        if opened:
            self._opened(port, opened, method, started)
        live = wanted | opened
        if live == now:
            return
        if self.locked and method.by_argument and not started:
            why = f"{shown(live)} with the boot argument, since {self.locked}"
            self.awaiting.append(Awaiting(port.path, as_plain(now), as_plain(live), why))
        elif self.locked:
            advice = _REBOOT_ADVICE if method.by_argument else _ARGUMENT_ADVICE
            self.refused.append(self._barred(port.path, as_plain(now), as_plain(live), advice))
        else:
            self.changes.append(self._set_word(port, live, started))

    def _opened(self, port: Port, bits: int, method: Method, started: bool) -> None:
        """Bits that keep devices apart and have to go: only a boot may take them, before groups are formed."""
        now, wanted = as_plain(port.acs.control), as_plain(port.acs.control & ~bits)
        if not method.by_argument:
            fact = (
                f"{shown(bits)} cannot be taken from a running kernel: IOMMU groups that were formed at boot rest on it"
            )
            advice = "Set pci_path_acs: boot_argument, on a kernel that takes lists in pci=config_acs."
            found = f"{now}, and {method.why}"
            self.refused.append(Problem(port.path, fact, advice, found, str(wanted)))
        elif started:
            fact = "the running kernel was started with the boot argument, and the port has another word"
            advice = "See config_acs in the kernel's log: the kernel may be too old for lists. Where a reset undid it, boot again."
            self.refused.append(Problem(port.path, fact, advice, str(now), str(wanted)))
        else:
            why = f"{shown(bits)} goes with a boot, before IOMMU groups are formed"
            self.awaiting.append(Awaiting(port.path, now, wanted, why))

    def _set_word(self, port: Port, word: int, started: bool) -> Change:
        now = port.acs.control
        at = port.function.config.extended(ACS)
        if not isinstance(at, int):  # it has words
            raise AssertionError
        step = SetWord(
            str(port.address), port.function.ids, at, ACS, at + _ACS_CONTROL, mask=now ^ word, value=word & (now ^ word)
        )
        why = f"{port.want.why}: {shown(word)}"
        if started or port.record.get("word") == word:
            why += ", which a boot or a reset has undone"
        bits = port.managed | (int(port.record["bits"]) if port.set_in_this_boot else 0)
        found = port.record.get("found", now)
        remember = {port.path: self._record(port.path, port.function, now, bits=bits, found=found, word=word)}
        return Change(port.path, as_plain(now), as_plain(word), why, step=step, remember=remember)

    def _regrouped(self, report: Report, ports: list[Port], method: Method) -> None:
        """Groups that were formed before the ports kept devices apart stay as they are until a boot.

        Only the boot argument comes before they are formed: registers are set when it is too late for that boot as well.
        """
        shared = [one for one in report.findings if one.rule == "groups_distinct" and one.verdict == Verdict.FAIL]
        late = [
            port
            for port in ports
            if port.live_word & ISOLATES & ~(int(port.record["before"]) if port.set_in_this_boot else port.acs.control)
        ]
        if not (shared and late and self.grouped):
            return
        names = ", ".join(str(port.address) for port in late)
        why = f"IOMMU groups were formed before {names} kept devices apart"
        if not method.by_argument:
            self.notes.append(f"pci_path.groups: {why}, and stay so: only the boot argument is earlier")
            return
        why += ", and a boot forms them anew"
        self.awaiting.append(Awaiting("pci_path.groups", shared[0].found, shared[0].wanted, why))

    # Read requests -------------------------------------------------------------------------

    def _wanted_request(self, nic: Function, size: int) -> None:
        path = _request_path(nic.address)
        self.kept.add(path)
        express = nic.capabilities.express
        found = express if isinstance(express, (Absent, Unreadable)) else express.max_read_request
        if isinstance(found, Unreadable) and nic.config.data and not nic.config.answers:
            # Nothing is hidden from us, so what else is wanted is not held up by it.
            advice = "See the kernel's log: a reset of a switch takes what is below it away until the next boot."
            self.refused.append(Problem(path, "the NIC does not answer", advice))
        elif isinstance(found, Unreadable):
            raise UnreadableState([Problem(path, f"its device control cannot be read: {found.cause}", _ROOT)])
        elif isinstance(found, Absent):
            advice = "Leave it out of pci_path_nics, or leave pci_path_max_read_request out."
            self.refused.append(Problem(path, "the NIC is no PCI Express function", advice))
        elif found != size and self.locked:
            self.refused.append(self._barred(path, f"{found} bytes", f"{size} bytes", _BIOS_ADVICE))
        elif found != size:
            remember = {path: self._record(path, nic, found)}
            why = "how much the NIC may ask for in one read, in bytes"
            self.changes.append(Change(path, found, size, why, step=_request_step(nic, size), remember=remember))

    # What nobody wants any more ------------------------------------------------------------

    def unwanted(self) -> None:
        """Values of this boot go back; those of an earlier one are gone already, and only their record is dropped."""
        for path in sorted(self.owned.keys() - self.kept):
            match = _RECORD.fullmatch(path)
            function = self.tree.get(Address.parse(match["address"])) if match else None
            record = self.owned[path]
            lasts = bool(self.boot) and record["boot"] == self.boot
            known = record.get("identity", {})
            if match is None or function is None or not lasts or differences(known, function, self.tree):
                self.changes.append(_dropped(path))
            elif match["name"] == "acs":
                self._word_back(path, function, record)
            else:
                self._request_back(path, function, record)

    def _word_back(self, path: str, function: Function, record: Mapping[str, Any]) -> None:
        words = function.capabilities.acs
        at = function.config.extended(ACS)
        if isinstance(words, Unreadable):
            raise UnreadableState([Problem(path, f"its ACS words cannot be read: {words.cause}", _ROOT)])
        if not isinstance(words, Words) or not isinstance(at, int):
            self.changes.append(_dropped(path))
            return
        bits = int(record["bits"])
        target = (words.control & ~bits) | (int(record["before"]) & bits)
        # Not from a running kernel: what groups may rest on by now, and what would refuse translated requests under way.
        later = (words.control & ~target & ISOLATES if self.grouped else 0) | (target & ~words.control & TB)
        later = words.control ^ target if self.locked else later
        live = target ^ later
        forget = () if later else (path,)
        if live != words.control:
            changed = live ^ words.control
            step = SetWord(str(function.address), function.ids, at, ACS, at + _ACS_CONTROL, changed, live & changed)
            why = "no path needs it any more, and this was there before"
            self.changes.append(
                Change(path, as_plain(words.control), as_plain(live), why, step=step, forget=forget, undo=True)
            )
        elif not later:
            self.changes.append(_dropped(path))
        if later:
            why = f"{shown(target)} was there before, and comes with a boot"
            self.awaiting.append(Awaiting(path, as_plain(live), as_plain(target), why))

    def _request_back(self, path: str, nic: Function, record: Mapping[str, Any]) -> None:
        express = nic.capabilities.express
        found = express if isinstance(express, (Absent, Unreadable)) else express.max_read_request
        if isinstance(found, Unreadable):
            raise UnreadableState([Problem(path, f"its device control cannot be read: {found.cause}", _ROOT)])
        if isinstance(found, Absent) or found == record["before"]:
            self.changes.append(_dropped(path))
        elif self.locked:
            why = f"{record['before']} bytes were there before, and come with a boot"
            self.awaiting.append(Awaiting(path, found, record["before"], why))
        else:
            why = "nobody asks for it any more, and this was there before"
            step = _request_step(nic, int(record["before"]))
            self.changes.append(Change(path, found, record["before"], why, step=step, forget=(path,), undo=True))

    # Both ----------------------------------------------------------------------------------

    def _record(self, path: str, function: Function, before: int, **more: Any) -> dict[str, Any]:
        """What undo needs. What another boot, or another device, had before means nothing any more."""
        kept = self.owned.get(path)
        known = identity(function, self.tree)
        record: dict[str, Any] = {"before": before, "identity": known, **more}
        if kept and (kept["boot"] != self.boot or differences(kept.get("identity", {}), function, self.tree)):
            record["rebased"] = True
        return record

    def _barred(self, path: str, found: str | None, wanted: str | None, advice: str) -> Problem:
        fact = f"cannot be written: {self.locked}, and refuses writes to configuration space"
        return Problem(path, fact, advice, str(found), str(wanted))


_ROOT = "Run as root on the host: only root may read more than 64 bytes of configuration space."
_ARGUMENT_ADVICE = (
    "Set pci_path_acs: boot_argument where the kernel takes lists in pci=config_acs, or lift the lockdown."
)
_REBOOT_ADVICE = (
    "Start the host again, where a reset has undone what its boot argument set; see config_acs in the kernel's log."
)
_BIOS_ADVICE = "Set the read request size in the BIOS and leave pci_path_max_read_request out, or lift the lockdown."


def paths_problems(machine: Machine, intent: PathIntent) -> list[Problem]:
    """Why it is not known which ports are meant: no path at all, or one that is not known to its end."""
    if intent.mode == VIRTIO:
        return []
    view = View(machine, intent)
    if not view.pairs:
        found = f"{len(view.devices.gpus)} GPUs and {len(view.devices.nics)} NICs"
        advice = "See whether they are in their slots, correct pci_path_gpus and pci_path_nics, or leave this host out."
        return [Problem("pci_path", "there is no path between a GPU and a NIC", advice, found=found)]
    lost = [(gpu, nic) for gpu, nic in view.pairs if view.ways[gpu, nic].may_be_near]
    advice = "Run as root on the host itself."
    return [
        Problem("pci_path", f"how {gpu} and {nic} are connected is not known to its end", advice) for gpu, nic in lost
    ]


def _cannot(finding: Finding, address: Address) -> Problem:
    advice = f"Plug the devices elsewhere, or relax {finding.rule} with the reason in pci_path_relax."
    return Problem(acs.path_of(address), "the port cannot be set as wanted", advice, finding.found, finding.wanted)


def _request_path(address: Address) -> str:
    return f"pci_path[{address}].max_read_request"


def _request_step(nic: Function, size: int) -> SetWord:
    at = nic.config.capability(EXPRESS)
    if not isinstance(at, int):  # it has a device control word
        raise AssertionError
    value = (size // 128).bit_length() - 1 << 12
    return SetWord(str(nic.address), nic.ids, at, EXPRESS, at + _DEVICE_CONTROL, _READ_REQUEST, value, _STARTS_RESET)


def _dropped(path: str) -> Change:
    return Change(path, True, None, "what was there before is gone or there again", forget=(path,), undo=True)


# apply -----------------------------------------------------------------------------------


def apply(change: Change, host: Host) -> None:
    """Write one register and read it back."""
    if isinstance(change.step, SetWord):
        carry_out(change.path, change.step, host)
