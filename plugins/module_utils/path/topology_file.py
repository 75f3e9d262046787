# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An NCCL topology file judged by what NCCL will make of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..core.ranges import ranges
from ..pci.address import Address
from ..pci.machine import Machine
from ..pci.nccl import NcclTopology
from . import shown
from .devices import MELLANOX
from .finding import Finding, Kind, Pair, Relaxed, Report, Verdict
from .intent import PathIntent
from .policy import TOPOLOGY
from .routes import Route, Routes
from .shown import finding

_LONGEST = 300  # of a sentence, since it repeats what the file says
# The rule of an oddity, by how its sentence begins; what is told of masks alone is no fault where several nodes have devices.
_RULES = (
    (r"system version", "file_version", Verdict.WARN),
    (r"pci busid", "file_bus_ids", Verdict.WARN),
    (r"pci \S+ link_", "file_links", Verdict.WARN),
    (r"cpu numaid=\S+ affinity", "file_masks", Verdict.WARN),
    (r"cpu affinity", "file_masks", Verdict.WARN),
    (r"cpu numaid", "file_numa", Verdict.WARN),
    (r"cpu processor:", "file_processors", Verdict.WARN),
    (r"gpu gdr=|net \S* gdr=", "file_gdr", Verdict.WARN),
)


def judge(topology: NcclTopology, intent: PathIntent) -> Report:
    """The report about a topology file: devices, distances, and each oddity by a rule."""
    ways = _ways(topology)
    gpus, nics = _gpus(topology), _nics(topology)
    kinds = {gpu: {nic: ways[gpu, nic].kind for nic in nics} for gpu in gpus}
    best = {gpu: shown.nearest(kinds[gpu])[1] if nics else () for gpu in gpus}
    findings = tuple(shown.relaxed(_findings(topology, kinds, intent), intent))
    machine: Machine = topology.machine
    return Report(
        name=machine.name,
        mode=TOPOLOGY,
        gpus=gpus,
        nics=nics,
        pairs=tuple(_pair(gpu, nic, way, nic in best[gpu], intent) for (gpu, nic), way in ways.items()),
        best=best,
        findings=findings,
        missing=machine.missing,
        relaxed=tuple(
            Relaxed(one.rule, one.reason, sum(each.rule == one.rule and bool(each.relaxed) for each in findings))
            for one in intent.relax
        ),
        source=machine.source,
    )


def _gpus(topology: NcclTopology) -> tuple[Address, ...]:
    return tuple(sorted({one.address for one in topology.gpus}))


def _nics(topology: NcclTopology) -> tuple[Address, ...]:
    return tuple(sorted({one.address for one in topology.nets if one.address is not None and one.rdma}))


def _ways(topology: NcclTopology) -> dict[tuple[Address, Address], Route]:
    routes, functions = Routes(topology.machine), topology.machine.tree.functions
    nics = _nics(topology)
    return {(gpu, nic): routes.between(functions[gpu], functions[nic]) for gpu in _gpus(topology) for nic in nics}


def _pair(gpu: Address, nic: Address, way: Route, judged: bool, intent: PathIntent) -> Pair:
    verdict = Verdict.UNKNOWN
    if judged and way.kind != Kind.UNKNOWN:
        far = Verdict.FAIL if way.kind > intent.max_distance else Verdict.WARN
        verdict = Verdict.OK if way.kind <= min(Kind.PXB, intent.max_distance) else far
    return Pair(gpu, nic, way.kind, way.up, way.common, way.down, verdict, judged)


def _findings(topology: NcclTopology, kinds: shown.Kinds, intent: PathIntent) -> Iterator[Finding]:
    if topology.gpus:
        yield finding("gpus_found", Verdict.OK, "as wanted")
    else:
        yield finding("gpus_found", Verdict.FAIL, "no GPU in this file", "at least one GPU")
    if any(one.rdma for one in topology.nets):
        yield finding("nics_found", Verdict.OK, "as wanted")
    else:
        sockets = ", ".join(f"{one.name} gdr=0" for one in topology.nets)
        found = f"no RDMA NIC in guest: {f'only sockets ({sockets})' if sockets else 'there is no NIC at all'}"
        yield finding("nics_found", Verdict.FAIL, found, "at least one RDMA NIC")
    if any(kinds.values()):
        yield from shown.distances(kinds, intent)
        yield from shown.sharing(kinds)
    yield from _nodes(topology)
    yield from _vendors(topology)
    yield from _odd(topology)


def _nodes(topology: NcclTopology) -> Iterator[Finding]:
    """Where processors and devices are."""
    with_devices = sorted({one.numaid for one in topology.cpus if one.below and one.numaid >= 0})
    told = [one for one in topology.cpus if one.numaid >= 0 and one.cpus]
    if told:
        masks = "; ".join(f"node {one.numaid}: {len(one.cpus)} processors ({ranges(one.cpus)})" for one in told)
        yield finding("file_masks", Verdict.OK, masks, count=len(told))
    elsewhere = _uncovered(topology)
    if len(with_devices) == 1 and elsewhere:
        node = with_devices[0]
        found = (
            f"node {1 - node if node in (0, 1) else 'of other processors'} has no device: processors {ranges(elsewhere)} "
            f"are in no mask; pin guests to node {node}"
        )
        yield finding("file_numa", Verdict.WARN, found, "devices on each node")


def _uncovered(topology: NcclTopology) -> set[int]:
    """Processors below the highest one that are in no mask."""
    known = {cpu for one in topology.cpus for cpu in one.cpus}
    return set(range(max(known, default=-1) + 1)) - known


def _vendors(topology: NcclTopology) -> Iterator[Finding]:
    """NICs of other makers, where the file tells them."""
    for one in topology.nets:
        function = topology.machine.tree.get(one.address) if one.address is not None else None
        if function is None or not one.rdma or "vendor" in function.unread or function.vendor == MELLANOX:
            continue
        found = f"the NIC's vendor is {function.vendor:04x}: not a Mellanox target"
        yield finding("nic_vendor", Verdict.WARN, found, "15b3", path=(function.address,))


def _odd(topology: NcclTopology) -> Iterator[Finding]:
    """The oddities that the reader tells, each by its rule. What is judged above from the devices themselves is left out."""
    several = len({one.numaid for one in topology.cpus if one.below}) > 1
    for whole in topology.oddities:
        sentence = whole if len(whole) <= _LONGEST else f"{whole[:_LONGEST]}..."
        for pattern, rule, verdict in _RULES:
            if not re.match(pattern, sentence):
                continue
            if sentence.startswith("cpu affinity"):
                if several:
                    yield finding(rule, Verdict.OK, sentence)
            else:
                yield finding(rule, verdict, sentence, "what NCCL can use")
            break
