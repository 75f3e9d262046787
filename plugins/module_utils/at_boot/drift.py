# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The look at a host: what differs from its intent, resource by resource. Nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.change import Change, Disruption
from ..core.converge import Resource, bring
from ..core.errors import GpudirectError
from ..core.host import Host
from ..core.owned import Owned
from . import devices, finding
from .finding import Finding


def look(wanted: Sequence[tuple[Resource, Any]], host: Host) -> list[Finding]:
    """A finding for each resource; what one cannot tell does not keep the others from being judged."""
    return [_judged(resource, desired, host) for resource, desired in wanted]


def _judged(resource: Resource, desired: Any, host: Host) -> Finding:
    name = resource.SCHEMA.name
    try:
        # Under the lock, so that a run that is half-way through its changes is not taken for drift.
        with host.exclusive():
            missing = devices.absent(name, Owned.load(host).of(name), host)
            report = bring(resource, desired, host, allow=Disruption.HOST, check=True, partial=True, only=_of_the_host)
    except GpudirectError as error:
        return finding.of_error(name, error)
    except Exception as error:  # the other resources are judged all the same
        return finding.of_fault(name, error)
    reasons = (*missing, *finding.differing(report.plan.changes), *finding.left_over(name, report.plan))
    return Finding(name, not reasons, tuple(dict.fromkeys(one.path for one in reasons)), reasons)


def _of_the_host(change: Change) -> bool:
    """Whether a change is more than the dropping of a record."""
    return change.step is not None or not change.undo
