# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far devices are apart, as a table of words, and where two such tables differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .address import Address
from .tree import Function, Tree

# The words of nvidia-smi for the PCI way between two devices, nearest first. Others (X, NV12) hide that way.
WORDS = ("PIX", "PXB", "PHB", "NODE", "SYS")


@dataclass(frozen=True)
class Matrix:
    """Labels in the order of the input, and the word of each pair in both directions.

    ``legend`` gives the device names of labels that stand for one (NIC0: mlx5_0); ``addresses`` those that are known.
    """

    labels: tuple[str, ...]
    kinds: Mapping[tuple[str, str], str]
    legend: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[str, Address] = field(default_factory=dict)
    numa: Mapping[str, str] = field(default_factory=dict)  # NUMA Affinity of a row, as printed
    name: str = ""

    def named(self, label: str) -> str:
        """What a label stands for: the device name where the legend has one."""
        return self.legend.get(label, label)


@dataclass(frozen=True)
class Difference:
    """A pair for which two tables have different words."""

    pair: tuple[str, str]
    one: str
    other: str


@dataclass(frozen=True)
class Comparison:
    """Where two tables differ, how many pairs were compared, and the names that only one of them has."""

    differing: tuple[Difference, ...]
    compared: int
    unmatched: tuple[str, ...]


def computed(tree: Tree, gpus: Mapping[Address, Function], kind: Callable[[Function, Function], str]) -> Matrix:
    """The table of a machine's GPUs and RDMA devices, with the labels that nvidia-smi would give.

    GPUs are numbered by their addresses, as nvidia-smi numbers them; RDMA devices have their own names. ``kind`` is the
    policy's word for two functions.
    """
    found = {f"GPU{number}": gpus[address] for number, address in enumerate(sorted(gpus))}
    found.update({name: one for one in tree for name in one.rdma})
    pairs = {
        (first, second): "X" if first == second else kind(found[first], found[second])
        for first in found
        for second in found
    }
    return Matrix(tuple(found), pairs, addresses={label: one.address for label, one in found.items()}, name="computed")


def differences(matrix: Matrix, other: Matrix) -> Comparison:
    """Where two tables differ. Pairs for which one of them has no PCI word, such as NV12, are not compared."""
    mine = {matrix.named(label): label for label in matrix.labels}
    theirs = {other.named(label): label for label in other.labels}
    shared = [name for name in mine if name in theirs]
    differing: list[Difference] = []
    compared = 0
    for at, first in enumerate(shared):
        for second in shared[at + 1 :]:
            words = (
                _word(matrix, mine[first], mine[second]),
                _word(other, theirs[first], theirs[second]),
            )
            if all(word in WORDS for word in words):
                compared += 1
                if words[0] != words[1]:
                    differing.append(Difference((first, second), *words))
    unmatched = tuple(name for name in (*mine, *theirs) if name not in mine or name not in theirs)
    return Comparison(tuple(differing), compared, unmatched)


def _word(matrix: Matrix, first: str, second: str) -> str:
    """The word of a pair, of whose two rows one may be missing."""
    return matrix.kinds.get((first, second)) or matrix.kinds.get((second, first), "")
