# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run may change: all of a host, its guests alone, or nothing but that they run. Pure.

A run for guests changes no resource that comes before them in a round, and stops where one of those is not as wanted: guests on
such a host would be made on devices and paths that are still to change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from .core.converge import Report, Resource
from .core.errors import HostRefused, Problem
from .core.schema import Field

ALL, GUESTS, DRAIN = "all", "guests", "drain"
ONLY_FIELD = Field(
    "gpudirect_only",
    "str",
    (
        "What a run may change: V(all); V(guests), which is the host for guests, networks, pools, images, guests and what a boot brings",
        "back, on a host that is as wanted in all else and is stopped otherwise (C(playbooks/guests.yml)); or V(drain), which is that",
        "guests run and that a boot starts them, and looks at nothing else of the host (C(playbooks/drain.yml)).",
    ),
    default=ALL,
    choices=(ALL, GUESTS, DRAIN),
)
# The first resource of a round that is about guests, and those by which a host is drained.
_FIRST = "kvm"
_OF_DRAIN = ("libvirt_guest", "host_boot")
# What libvirt has to be there for, by the variable that asks for it.
_OF_LIBVIRT = {"libvirt_network": "guest_networks", "libvirt_pool": "guest_pools", "libvirt_guest": "guest_shapes"}
_YES = ("true", "yes")
_SHOWN = 4  # paths in one sentence
_R = TypeVar("_R", bound=Resource)


def planned(only: str, resources: Sequence[_R]) -> list[_R]:
    """The resources that a run looks at, in their order."""
    return [one for one in resources if only != DRAIN or one.SCHEMA.name in _OF_DRAIN]


def problems_of(intent: Mapping[str, Any]) -> list[Problem]:
    """A run that may only drain, and is not told to."""
    if intent.get(ONLY_FIELD.name) != DRAIN or str(intent.get("guest_drain")).lower() in _YES:
        return []
    advice = "Run playbooks/drain.yml, which sets both."
    return [Problem(ONLY_FIELD.name, "is drain, and guest_drain is not true", advice)]


def require_ready(only: str, reports: Iterable[Report], paths: Mapping[str, Any]) -> None:
    """Refuse to make guests on a host that is not as wanted in what comes before them."""
    if only != GUESTS:
        return
    problems = [*_not_as_wanted(reports), *_of_paths(paths)]
    if problems:
        raise HostRefused(problems)


def require_libvirt(intent: Mapping[str, Any], reports: Sequence[Report]) -> None:
    """Refuse what waits for libvirt where nothing of the run brings it: it would wait for ever, in runs that end well."""
    if any(report.resource == _FIRST and not report.plan.empty for report in reports):
        return
    asked = [one for one in reports if intent.get(_OF_LIBVIRT.get(one.resource, ""))]
    waiting = [(one.resource, each.why) for one in asked for each in one.plan.deferred if each.waits_for == _FIRST]
    advice = "Set kvm_host: managed, or install and start libvirt on the host; where it is managed, see the journal of libvirt's daemon."
    problems = [
        Problem(_OF_LIBVIRT[resource], "needs libvirt, and nothing brings it to this host", advice, why)
        for resource, why in waiting
    ]
    if problems:
        raise HostRefused(problems)


def sentence(only: str) -> str:
    """What a narrowed run says besides what it found."""
    said = {GUESTS: "this run is about guests only", DRAIN: "this run only drains"}
    return f" ({said[only]})" if only in said else ""


def _not_as_wanted(reports: Iterable[Report]) -> Iterator[Problem]:
    for report in reports:
        if report.resource == _FIRST:
            return
        left = [*(one.path for one in report.plan.changes), *(one.path for one in report.plan.awaiting_consent)]
        left += [f"{one.path} (awaits a reboot)" for one in report.plan.awaiting_reboot]
        left += [f"waits for {one.waits_for}" for one in report.plan.deferred]
        if left:
            more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
            found = f"{', '.join(left[:_SHOWN])}{more} left"
            advice = "Run site.yml for this host first; no guest was touched."
            yield Problem(report.resource, "is not as wanted, and guests need it", advice, found, "nothing left")


def _of_paths(paths: Mapping[str, Any]) -> Iterator[Problem]:
    if paths.get("verdict") == "FAIL":
        fact = "of GPUs and NICs are broken, and guests need them"
        yield Problem("paths", fact, "See playbooks/audit.yml, mend them, and run again.", "FAIL", "no rule that fails")
