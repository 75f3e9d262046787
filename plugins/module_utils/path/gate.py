# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The judged paths of a host as the small part of a result: what stops a host before it gets guests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Union

from .. import p2p
from ..core.host import Host
from ..pci.address import Address
from . import facts
from .finding import Finding, Report, Verdict
from .intent import SCHEMA, parse
from .plain import ordered, plain, text

_MOST = 4  # places or facts in a sentence

# Which rules the changes of a resource are for, in the order of a round. That it is enough shows the look after it.
SETS: Mapping[str, tuple[str, ...]] = {
    "kernel_args": (
        *("iommu_on", "no_acs_override", "no_noats", "no_unsafe_interrupts", "acs_redirect", "acs_direct_translated"),
        *("acs_translation_blocking", "groups_distinct", "stale_groups"),
    ),
    "nic_firmware": ("ats_present",),
    "pci_path": (
        "acs_redirect",
        "acs_direct_translated",
        "acs_translation_blocking",
        "max_read_request",
        "stale_groups",
    ),
    "pci_driver": ("groups_viable", "no_unsafe_interrupts"),
}


def asked_for(variables: Mapping[str, Any]) -> bool:
    """Whether the inventory says anything about paths; without that nothing is judged.

    A value that is the usual one says nothing: after the first role of a round its defaults are variables like any other.
    """
    usual = {entry.name: entry.default for entry in SCHEMA.fields if entry.name.startswith(SCHEMA.prefix)}
    return any(variables.get(name) not in (None, [], default) for name, default in usual.items())


def paths(intent: Mapping[str, Any], host: Host, at_work: Iterable[str]) -> dict[str, Any]:
    """What is found about the paths of a host, by the name ``paths``; nothing where its inventory does not ask.

    ``at_work`` are resources that still have something to do in this run, whose part is DEFERRED and not FAIL.
    """
    if not asked_for(intent):
        return {}
    machine = facts.machine_of(host, facts.name_of(host))
    return {"paths": part(p2p.judge(machine, parse(SCHEMA.from_variables(intent)), coming(at_work)))}


def coming(at_work: Iterable[str]) -> dict[tuple[str, Union[Address, None]], str]:
    """What resources that are at work will still set."""
    names = set(at_work)
    found: dict[tuple[str, Union[Address, None]], str] = {}
    for resource, rules in SETS.items():
        if resource in names:
            for rule in rules:
                found.setdefault((rule, None), resource)
    return found


def part(report: Report) -> dict[str, Any]:
    """Verdict, distances, nearest NICs, and what is not as wanted; no more, since each result of a run is kept."""
    whole = plain(report)
    kept = ("verdict", "mode", "gpus", "nics", "kinds", "best", "relaxed")
    found = {name: whole[name] for name in kept}
    found["findings"] = [one for one in whole["findings"] if one["verdict"] != "OK"]
    for one in found["findings"]:
        one.pop("why", None)
    return {**found, "text": text(report), "problems": sentences(report)}


def sentences(report: Report, at_least: Verdict = Verdict.UNKNOWN) -> list[str]:
    """A sentence for each rule by which something is that grave, in the form of all errors; the worst first."""
    grouped: dict[tuple[Verdict, str], list[Finding]] = {}
    for one in ordered(report):
        if one.verdict >= at_least:
            grouped.setdefault((one.verdict, one.rule), []).append(one)
    return [_sentence(verdict, rule, findings) for (verdict, rule), findings in grouped.items()]


def _sentence(verdict: Verdict, rule: str, findings: list[Finding]) -> str:
    places = dict.fromkeys(_place(one) for one in findings if one.path)
    where = f" at {_some(list(places), ', ')}" if places else ""
    found = _some(list(dict.fromkeys(one.found for one in findings)), "; ")
    wanted = next((f", wanted {one.wanted}" for one in findings if one.wanted), "")
    return f"paths.{rule}: {verdict.name}{where} (found {found}{wanted}). {findings[0].remedy}"


def _place(one: Finding) -> str:
    return str(one.path[0]) if len(one.path) == 1 else f"{one.path[0]} to {one.path[-1]}"


def _some(words: list[str], sign: str) -> str:
    more = f"{sign}and {len(words) - _MOST} more" if len(words) > _MOST else ""
    return sign.join(words[:_MOST]) + more
