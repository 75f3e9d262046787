# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of nvidia-smi judged: how far each GPU is from its nearest NIC. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ..pci.matrix import WORDS, Matrix
from . import shown
from .finding import Finding, Kind, Report, Verdict
from .intent import PathIntent
from .policy import TOPOLOGY
from .shown import finding

SOURCE = "nvidia-smi topo"
MISSING = (
    "addresses, ACS and ATS words, IOMMU groups and host bridges: nvidia-smi topo has only distances; "
    "run lspci -vvv as root, or host_topology_info",
)


def kinds_of(matrix: Matrix) -> dict[str, dict[str, Kind]]:
    """The kind of each GPU and NIC, by label and device name."""
    gpus = [label for label in matrix.labels if label.startswith("GPU")]
    nics = [label for label in matrix.labels if label not in gpus]
    return {gpu: {matrix.named(nic): _kind(matrix, gpu, nic) for nic in nics} for gpu in gpus}


def _kind(matrix: Matrix, gpu: str, nic: str) -> Kind:
    word = matrix.kinds.get((gpu, nic)) or matrix.kinds.get((nic, gpu), "")
    return Kind[word] if word in WORDS else Kind.UNKNOWN


def judge(matrix: Matrix, intent: PathIntent) -> Report:
    """The report about a table. Its GPUs have numbers and no addresses, so it has no pairs; ``kinds_of`` has them."""
    findings = tuple(shown.relaxed(_findings(matrix, intent), intent))
    return Report(name=matrix.name, mode=TOPOLOGY, findings=findings, missing=MISSING, source=SOURCE)


def _findings(matrix: Matrix, intent: PathIntent) -> Iterator[Finding]:
    kinds = kinds_of(matrix)
    yield finding("gpus_found", Verdict.OK, "as wanted")
    if not any(kinds.values()):
        found = "no RDMA NIC in the table: nvidia-smi shows those whose driver is loaded"
        yield finding("nics_found", Verdict.FAIL, found, "at least one RDMA NIC")
        return
    yield finding("nics_found", Verdict.OK, "as wanted")
    yield from shown.distances(kinds, intent)
    yield from shown.sharing(kinds)
    odd = [f"{one} and {other}" for one, other in matrix.kinds if _differs(matrix, one, other)]
    if odd:
        found = f"the two entries of {', '.join(odd[:4])} differ: the table is not symmetric"
        yield finding("consistent", Verdict.FAIL, found, "one distance for each pair")


def _differs(matrix: Matrix, one: str, other: str) -> bool:
    back = matrix.kinds.get((other, one))
    return one < other and back is not None and back != matrix.kinds[one, other]
