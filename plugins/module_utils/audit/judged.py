# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One input judged, whatever kind it is: a machine, a topology file of NCCL, or a table of nvidia-smi. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Union

from .. import p2p
from ..core.errors import IntentError, Problem
from ..path import compare, guest, smi_matrix, topology_file
from ..path.finding import Finding, Kind, Report
from ..path.intent import PathIntent
from ..path.policy import TOPOLOGY
from ..path.routes import Routes
from ..path.shown import relaxed
from ..pci.address import Address
from ..pci.machine import Machine
from ..pci.matrix import Matrix
from ..pci.nccl import NcclTopology
from ..pci.source import Read

# What a topology file says better than the flat guest that it is for.
_OF_PLACES = ("same_switch", "numa_same", "guest_view", "guest_numa", "gpus_found", "nics_found")


@dataclass(frozen=True)
class Audit:
    """A report and what it is about; ``machine`` is None of a table, and ``table`` of all others."""

    report: Report
    machine: Union[Machine, None]
    table: Union[dict[str, dict[str, Kind]], None] = None

    @property
    def gpu_kinds(self) -> dict[Address, dict[Address, Kind]]:
        """How far GPUs are from each other."""
        if self.machine is None:
            return {}
        routes, functions = Routes(self.machine), self.machine.tree.functions
        gpus = self.report.gpus
        return {
            one: {two: routes.between(functions[one], functions[two]).kind for two in gpus if two != one}
            for one in gpus
        }


def judge(read: Read, intent: PathIntent, mode: str = "", other: Union[Read, None] = None) -> Audit:
    """The audit of an input. ``mode`` is empty where it follows from the input: a guest is judged by its topology.

    ``other`` is what it is compared with; IntentError where the two cannot be compared.
    """
    if other is not None:
        return _compared(read, other, intent, mode)
    if isinstance(read, NcclTopology):
        return Audit(topology_file.judge(read, intent), read.machine)
    if isinstance(read, Matrix):
        return Audit(smi_matrix.judge(read, intent), None, smi_matrix.kinds_of(read))
    return Audit(p2p.judge(read, _with_mode(read, intent, mode)), read)


def _with_mode(machine: Machine, intent: PathIntent, mode: str) -> PathIntent:
    """The intent with the mode that counts."""
    if mode:
        return replace(intent, mode=mode)
    return replace(intent, mode=TOPOLOGY) if guest.is_audited_as_guest(machine) else intent


def _compared(read: Read, other: Read, intent: PathIntent, mode: str) -> Audit:
    machine, said = (read, other) if isinstance(read, Machine) else (other, read)
    if not isinstance(machine, Machine) or isinstance(said, Machine):
        advice = "Give lspci -nn, a captured /sys or the like as the one, and an NCCL topology file or nvidia-smi topo as the other."
        raise IntentError([Problem("--compare", "takes one machine and one topology file or table", advice)])
    own = judge(machine, intent, mode)
    if isinstance(said, Matrix):
        found = compare.with_matrix(machine, said, intent)
        return replace(own, report=_with(own.report, found, intent))
    found = compare.with_topology(machine, said, intent)
    if own.report.mode != TOPOLOGY:
        return replace(own, report=_with(own.report, found, intent))
    # The file is what the flat guest lacks: distances are the file's, all else is the guest's.
    rest = [one for one in own.report.findings if one.rule not in _OF_PLACES]
    told = topology_file.judge(said, intent)
    report = replace(told, name=own.report.name, source=f"{machine.source} and {said.machine.source}")
    return Audit(_with(report, [*rest, *found], intent), said.machine)


def _with(report: Report, found: Union[list[Finding], Iterator[Finding]], intent: PathIntent) -> Report:
    return replace(report, findings=(*report.findings, *relaxed(found, intent)))
