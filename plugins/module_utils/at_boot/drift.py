# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The look at a host: what differs from its intent, resource by resource.

Nothing is written, but for one thing where that is asked for: a resource that says ``MENDS`` has what disrupts nothing put right
at once, such as a register that a device's reset has undone. Nothing is given up, and nothing is written for later boots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..core.change import Change, Disruption
from ..core.converge import Resource, bring
from ..core.errors import GpudirectError
from ..core.host import Host
from ..core.owned import Owned
from . import devices, finding
from .finding import Finding


def look(wanted: Sequence[tuple[Resource, Any]], host: Host, *, mend: bool = False) -> list[Finding]:
    """A finding for each resource; what one cannot tell does not keep the others from being judged."""
    return [_judged(resource, desired, host, mend and mends(resource)) for resource, desired in wanted]


def mends(resource: Resource) -> bool:
    """Whether a resource lets the watch make those of its changes that disrupt nothing."""
    return getattr(resource, "MENDS", False) is True


def _judged(resource: Resource, desired: Any, host: Host, mend: bool) -> Finding:
    name = resource.SCHEMA.name
    mended: tuple[str, ...] = ()
    try:
        # Under the lock, so that a run that is half-way through its changes is not taken for drift.
        with host.exclusive():
            if mend:
                done = bring(
                    resource, desired, host, allow=Disruption.NOTHING, check=False, partial=True, only=_harmless
                )
                mended = tuple(change.path for change in done.plan.changes)
            missing = devices.absent(name, Owned.load(host).of(name), host)
            report = bring(resource, desired, host, allow=Disruption.HOST, check=True, partial=True, only=_of_the_host)
    except GpudirectError as error:
        return replace(finding.of_error(name, error), mended=mended)
    except Exception as error:  # the other resources are judged all the same
        return finding.of_fault(name, error)
    reasons = (*missing, *finding.differing(report.plan.changes), *finding.left_over(name, report.plan))
    return Finding(name, not reasons, tuple(dict.fromkeys(one.path for one in reasons)), reasons, mended=mended)


def _harmless(change: Change) -> bool:
    """Whether the watch may make a change: one of what is live, that gives nothing up and disrupts nothing."""
    return change.disrupts == Disruption.NOTHING and not (change.undo or change.next_boot)


def _of_the_host(change: Change) -> bool:
    """Whether a change is more than the dropping of a record."""
    return change.step is not None or not change.undo
