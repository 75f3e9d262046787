# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is found about the way between GPUs and NICs, as data. Made by ``p2p``, shown by reports and pictures."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..pci.address import Address


class Verdict(enum.IntEnum):
    """How good a thing is, so that the greatest of several is the verdict of all of them.

    UNKNOWN is above WARN: what was not seen may be a failure. It is below FAIL, which was seen.
    """

    OK = 0
    DEFERRED = 1  # this run will still set it
    WARN = 2
    UNKNOWN = 3
    FAIL = 4


class Kind(enum.IntEnum):
    """How far apart two functions are, in the words of nvidia-smi and NCCL, nearest first."""

    PIX = 0  # below one switch, or one bridge
    PXB = 1  # several switches, and not the root complex
    PHB = 2  # through the root complex, below one host bridge
    NODE = 3  # several host bridges of one NUMA node
    SYS = 4  # between NUMA nodes
    UNKNOWN = 5  # the input does not tell


@dataclass(frozen=True)
class Finding:
    """One verdict by one rule.

    ``pair`` is empty for what concerns the machine or one device; ``path`` are the functions that it is about, from the GPU to the
    NIC. ``relaxed`` is the site's reason where it has relaxed the rule; the verdict is then OK and ``found`` says what is so.
    A port may be on the way of many pairs: ``pairs`` has all, ``pair`` the one where there is only one. What is as wanted is one
    finding for each rule, whose ``count`` says how many things were looked at.
    """

    rule: str
    verdict: Verdict
    found: str
    wanted: str
    why: str = ""
    remedy: str = ""
    pair: tuple[Address, ...] = ()
    path: tuple[Address, ...] = ()
    relaxed: str = ""
    pairs: tuple[tuple[Address, Address], ...] = ()
    count: int = 1


@dataclass(frozen=True)
class Pair:
    """A GPU and a NIC: how far apart, and the bridges on the way, from the GPU up to the one in common and down to the NIC.

    ``verdict`` is the greatest of the findings about the two and the ports between them; rules about the whole machine stand
    for themselves. A pair that is not ``judged`` (there is a nearer NIC) has UNKNOWN.
    """

    gpu: Address
    nic: Address
    kind: Kind
    up: tuple[Address, ...] = ()  # bridges above the GPU and below what is in common, nearest to the GPU first
    common: tuple[Address, ...] = ()  # the bridge in common and all above it; empty: none below the root complex
    down: tuple[Address, ...] = ()  # bridges above the NIC and below what is in common, nearest to the NIC last
    verdict: Verdict = Verdict.OK
    judged: bool = True


@dataclass(frozen=True)
class Relaxed:
    """A rule that the site has relaxed, with its reason and how many findings that took out of the verdict."""

    rule: str
    reason: str
    findings: int = 0


@dataclass(frozen=True)
class Report:
    """All that is found about one machine. ``best`` are the nearest NICs of each GPU; only they are judged as pairs."""

    name: str
    mode: str
    gpus: tuple[Address, ...] = ()
    nics: tuple[Address, ...] = ()
    pairs: tuple[Pair, ...] = ()  # every GPU with every NIC
    best: Mapping[Address, tuple[Address, ...]] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    missing: tuple[str, ...] = ()  # what the input does not have, in sentences
    relaxed: tuple[Relaxed, ...] = ()
    source: str = ""  # the kind of input

    @property
    def verdict(self) -> Verdict:
        """The greatest of all findings; UNKNOWN where nothing was there to be judged."""
        return worst(one.verdict for one in self.findings) if self.findings else Verdict.UNKNOWN


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The greatest verdict; OK of none."""
    return max(verdicts, default=Verdict.OK)
