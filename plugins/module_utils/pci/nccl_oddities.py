# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is odd about an NCCL topology file, in sentences that begin with the field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Union

from ..core.ranges import ranges
from .address import Address

if TYPE_CHECKING:
    from .nccl import Cpu, NcclTopology

_NUMBERED = ("GenuineIntel", "CentaurHauls", "  Shanghai  ")  # NCCL src/graph/topo.cc, ncclTopoAddCpu


def oddities(topology: NcclTopology) -> Iterator[str]:
    """All of them but those of single elements, which the reader tells while it reads."""
    yield from _nodes(topology.cpus)
    yield from _masks(topology.cpus)
    yield from _processors(topology.cpus)
    yield from _gpus(topology)
    yield from _nics(topology)
    yield from _shared(topology)


def _nodes(cpus: Iterable[Cpu]) -> Iterator[str]:
    counted = Counter(one.numaid for one in cpus)
    for one in cpus:
        if one.numaid == -1:
            yield "cpu numaid=-1: the guest has no NUMA affinity of its PCI devices, so NCCL cannot tell near from far"
        elif not one.below:
            yield f"cpu numaid={one.numaid}: has no PCI device; pin what uses the GPUs to other nodes"
    for numaid, times in sorted(counted.items()):
        if times > 1 and numaid != -1:
            yield f"cpu numaid={numaid}: is in the file {times} times"


def _masks(cpus: Iterable[Cpu]) -> Iterator[str]:
    of: dict[int, int] = {}
    twice: dict[tuple[int, int], set[int]] = {}
    for one in cpus:
        if not one.affinity:
            yield f"cpu numaid={one.numaid} affinity: is missing; NCCL pins its threads to no processors"
        elif not one.cpus:
            yield f"cpu numaid={one.numaid} affinity={one.affinity}: names no processor"
        for cpu in one.cpus:
            if cpu in of:
                twice.setdefault((of[cpu], one.numaid), set()).add(cpu)
            of.setdefault(cpu, one.numaid)
    for (first, second), shared in sorted(twice.items()):
        yield f"cpu numaid={second} affinity: has processors {ranges(shared)}, which numaid={first} has too"
    left = set(range(max(of, default=-1) + 1)) - set(of)
    if left:
        yield f"cpu affinity: processors {ranges(left)} are in no mask; a NUMA node without devices may have them"


def _processors(cpus: Sequence[Cpu]) -> Iterator[str]:
    """NCCL fills these in only for nodes with a GPU or NIC that it uses, and a socket may hold another one in the file."""
    lack = [one.numaid for one in cpus if not one.arch or (one.arch == "x86_64" and lacking(one.vendor, one.numbers))]
    if lack and len(cpus) > 1:
        nodes = ", ".join(map(str, lack))
        yield f"cpu processor: numaid {nodes} lack words that NCCL needs; it fails in a job that uses no GPU of such a node"


def lacking(vendor: str, numbers: Iterable[Union[int, None]]) -> bool:
    """Whether NCCL cannot do with what is told of an x86 processor: it wants family and model of some makers."""
    return not vendor or (vendor in _NUMBERED and None in numbers)


def _gpus(topology: NcclTopology) -> Iterator[str]:
    if not topology.gpus:
        yield "gpu: there is none in this file"
    refused = [str(one.address) for one in topology.gpus if one.gdr is False]
    if refused:
        yield f"gpu gdr=0: {', '.join(refused)} cannot be reached by a NIC directly (nvidia-peermem or dma-buf is missing)"


def _nics(topology: NcclTopology) -> Iterator[str]:
    sockets = [one for one in topology.nets if not one.rdma]
    if any(one.rdma for one in topology.nets):
        for one in topology.nets:
            if one.rdma and one.gdr is False:
                yield f"net {one.name} gdr=0: NCCL copies through host memory for this NIC"
        return
    names = ", ".join(f"{one.name} gdr=0" for one in sockets)
    yield f"net: no RDMA NIC in guest; {f'only sockets ({names})' if sockets else 'there is no NIC at all'}"


def _shared(topology: NcclTopology) -> Iterator[str]:
    """NICs that are nearest to more GPUs than there are of them."""
    tree = topology.machine.tree
    below: dict[Address, list[Address]] = {}
    for nic in sorted({one.address for one in topology.nets if one.address is not None and one.rdma}):
        for bridge in tree.above(tree.functions[nic]):
            below.setdefault(bridge.address, []).append(nic)
    served: dict[tuple[Address, ...], list[Address]] = {}
    for gpu in topology.gpus:
        bridges = (one.address for one in tree.above(tree.functions[gpu.address]))
        lowest = next((bridge for bridge in bridges if bridge in below), None)
        if lowest is not None:
            served.setdefault(tuple(below[lowest]), []).append(gpu.address)
    for nearest, gpus in sorted(served.items()):
        if len(gpus) > len(nearest):
            several = "one NIC is" if len(nearest) == 1 else f"{len(nearest)} NICs are"
            yield f"pci {', '.join(map(str, nearest))}: {several} shared by {len(gpus)} GPUs ({', '.join(map(str, gpus))})"
