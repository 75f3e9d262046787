# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine compared with what a topology file or a table of nvidia-smi says about it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ..pci import matrix as tables
from ..pci.address import Address
from ..pci.machine import Machine
from ..pci.matrix import Matrix
from ..pci.nccl import NcclTopology
from ..pci.tree import Function
from .devices import devices_of
from .finding import Finding, Kind, Verdict
from .guest import some
from .intent import PathIntent
from .routes import Routes
from .shown import finding

_NEAR = (Kind.PIX, Kind.PXB)


def with_topology(machine: Machine, topology: NcclTopology, intent: PathIntent) -> Iterator[Finding]:
    """Whether a file names the devices that the machine has, as what they are, and as near as they are."""
    wrong = [*_ids(machine, topology, intent), *_distances(machine, topology)]
    yield from wrong
    if not wrong:
        devices = _devices(topology)
        found = f"CONSISTENT: all {len(devices)} bus ids of the topology file are in {machine.source}, as what they are"
        yield finding("consistent", Verdict.OK, found, count=len(devices))


def _devices(topology: NcclTopology) -> dict[Address, str]:
    """The devices of a file; its bridges may have addresses that are made up."""
    found = {one.address: "GPU" for one in topology.gpus}
    found.update({one.address: "NIC" for one in topology.nets if one.address is not None})
    return found


def _ids(machine: Machine, topology: NcclTopology, intent: PathIntent) -> Iterator[Finding]:
    told = _devices(topology)
    real = devices_of(machine, intent)
    kinds = {**{one.address: "GPU" for one in real.gpus}, **{one.address: "NIC" for one in (*real.nics, *real.untold)}}
    wrong = [address for address in told if address in machine.tree.functions and kinds.get(address) != told[address]]
    for address in sorted(wrong):
        one = machine.tree.functions[address]
        found = f"{address} is a {told[address]} in the file and {_what(one, kinds)} in the machine"
        others = [other for other in sorted(wrong) if other != address and told[other] == kinds.get(address)]
        if others:
            found += f"; it may have changed places with {some(others)}"
        yield finding("consistent", Verdict.FAIL, found, "the same device", path=(address,))
    lost = sorted(address for address in told if address not in machine.tree.functions)
    spare = sorted(address for address in kinds if address not in told and _counts(address, real.nics, topology))
    if lost:
        verdict = Verdict.UNKNOWN if machine.partial else Verdict.FAIL
        found = f"{some(lost)} of the topology file {'is' if len(lost) == 1 else 'are'} not in the machine"
        if spare:
            found += f", which has {some(spare)} instead"
        yield finding("consistent", verdict, found, "only devices that are there", path=tuple(lost))
    elif spare:
        found = f"{some(spare)} of the machine {'is' if len(spare) == 1 else 'are'} not in the topology file"
        yield finding("consistent", Verdict.FAIL, found, "all GPUs and their NICs", path=tuple(spare))


def _counts(address: Address, nics: tuple[Function, ...], topology: NcclTopology) -> bool:
    """Whether a device has to be in a file: GPUs, and NICs of the class that the file has; a management NIC need not be."""
    one = next((nic for nic in nics if nic.address == address), None)
    if one is None:
        return True
    functions = topology.machine.tree.functions
    classes = {functions[net.address].class_code >> 8 for net in topology.nets if net.address is not None}
    return one.class_code >> 8 in classes


def _what(one: Function, kinds: dict[Address, str]) -> str:
    kind = kinds.get(one.address)
    return f"a {kind} ({one.ids})" if kind else f"{one.ids} of class {one.class_code >> 8:04x}"


def _distances(machine: Machine, topology: NcclTopology) -> Iterator[Finding]:
    """Pairs that are near in one and far in the other. A flat guest tells no distance, and none is compared."""
    routes, said = Routes(machine), Routes(topology.machine)
    real, told = machine.tree.functions, topology.machine.tree.functions
    nics = [one.address for one in topology.nets if one.address in real]
    for gpu in (one.address for one in topology.gpus if one.address in real):
        for nic in nics:
            if nic is None or not any(len(routes.above(real[one])) > 1 for one in (gpu, nic)):
                continue
            kind, other = routes.between(real[gpu], real[nic]).kind, said.between(told[gpu], told[nic]).kind
            if Kind.UNKNOWN not in (kind, other) and (kind in _NEAR) != (other in _NEAR):
                found = f"{gpu} and {nic} are {other.name} in the file and {kind.name} in the machine"
                yield finding("consistent", Verdict.FAIL, found, "the same distance", path=(gpu, nic))


def with_matrix(machine: Machine, matrix: Matrix, intent: PathIntent) -> Iterator[Finding]:
    """Whether the distances that nvidia-smi prints are those of the machine's tree."""
    routes = Routes(machine)
    gpus = {one.address: one for one in devices_of(machine, intent).gpus}
    own = tables.computed(machine.tree, gpus, lambda one, other: routes.between(one, other).kind.name)
    compared = tables.differences(own, matrix)
    for one in compared.differing:
        found = f"{' and '.join(one.pair)} are {one.other} in the table and {one.one} in the machine"
        yield finding("consistent", Verdict.FAIL, found, "the same distance")
    if not compared.compared:
        found = f"nothing could be compared: {_unmatched(compared.unmatched)}"
        yield finding("consistent", Verdict.UNKNOWN, found, "GPUs and RDMA devices of the same names")
    elif compared.unmatched:
        found = f"only one of the two has {', '.join(compared.unmatched[:8])}"
        yield finding("consistent", Verdict.WARN, found, "the same devices")
    elif not compared.differing:
        found = f"CONSISTENT: {compared.compared} pairs are as far apart as nvidia-smi says"
        yield finding("consistent", Verdict.OK, found, count=compared.compared)


def _unmatched(names: tuple[str, ...]) -> str:
    return f"only one of the two has {', '.join(names[:8])}" if names else "no pair has a PCI word"
