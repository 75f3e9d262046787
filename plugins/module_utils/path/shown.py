# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings about distances and shared NICs of devices that have any kind of name, for files and tables. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .finding import Finding, Kind, Verdict
from .intent import PathIntent
from .rules import RULES

# More than these share a NIC where that is a usual design (DGX-1, HGX boards with four NICs).
USUAL_SHARE = 2
_FAR = {Kind.PHB: "through one host bridge", Kind.NODE: "through several host bridges", Kind.SYS: "between processors"}

Kinds = Mapping[Any, Mapping[Any, Kind]]  # by GPU and NIC


def finding(rule: str, verdict: Verdict, found: str, wanted: str = "", **more: Any) -> Finding:
    """A finding with the texts of its rule."""
    texts = RULES[rule]
    if verdict == Verdict.OK:
        return Finding(rule, verdict, found, wanted, **more)
    remedy = texts.if_unknown if verdict == Verdict.UNKNOWN else texts.remedy
    return Finding(rule, verdict, found, wanted, texts.why, remedy, **more)


def nearest(kinds: Mapping[Any, Kind]) -> tuple[Kind, tuple[Any, ...]]:
    """The least distance of a GPU, and all NICs that are as near."""
    least = min(kinds.values(), default=Kind.UNKNOWN)
    return least, tuple(nic for nic, kind in kinds.items() if kind == least)


def distances(kinds: Kinds, intent: PathIntent) -> Iterator[Finding]:
    """Of each GPU its nearest NICs: what is not near has a finding of its own, all others together one."""
    near = 0
    for gpu, row in kinds.items():
        kind, nics = nearest(row)
        if kind <= min(Kind.PXB, intent.max_distance):
            near += 1
            continue
        names = ", ".join(map(str, nics))
        wanted = f"PIX or PXB, at most {intent.max_distance.name}"
        if kind == Kind.UNKNOWN:
            yield finding("same_switch", Verdict.UNKNOWN, f"how far {gpu} is from {names} is not told", wanted)
        else:
            verdict = Verdict.FAIL if kind > intent.max_distance else Verdict.WARN
            yield finding(
                "same_switch",
                verdict,
                f"{gpu} has {names} at best by {kind.name}: {_FAR.get(kind, 'below several switches')}",
                wanted,
            )
    if near:
        found = f"{near}/{len(kinds)} GPUs have a NIC on the same switch"
        yield finding("same_switch", Verdict.OK, found, count=near)


def sharing(kinds: Kinds) -> Iterator[Finding]:
    """NICs that are the nearest of more GPUs than there are of them."""
    served: dict[tuple[Any, ...], list[Any]] = {}
    for gpu, row in kinds.items():
        kind, nics = nearest(row)
        if kind <= Kind.PXB:
            served.setdefault(nics, []).append(gpu)
    for nics, gpus in served.items():
        if len(gpus) <= len(nics):
            continue
        names = ", ".join(map(str, nics))
        several = "one NIC is" if len(nics) == 1 else f"{len(nics)} NICs are"
        found = f"{names}: {several} shared by {len(gpus)} GPUs ({', '.join(map(str, gpus))})"
        verdict = Verdict.WARN if len(gpus) > USUAL_SHARE * len(nics) else Verdict.OK
        yield finding("shared_nics", verdict, found, f"at most {USUAL_SHARE} GPUs for each NIC")


def relaxed(findings: Iterable[Finding], intent: PathIntent) -> Iterator[Finding]:
    """The findings, those of relaxed rules out of the verdict. Names here select no devices, so a selector covers nothing."""
    reasons = {one.rule: one.reason for one in intent.relax if one.selector is None}
    for one in findings:
        if one.verdict != Verdict.OK and one.rule in reasons:
            yield Finding(
                one.rule, Verdict.OK, one.found, one.wanted, one.why, one.remedy, one.pair, one.path,
                relaxed=reasons[one.rule], pairs=one.pairs,
            )  # fmt: skip
        else:
            yield one
