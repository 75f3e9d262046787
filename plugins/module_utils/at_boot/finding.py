# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was found out about one resource, by a boot run or by a look: a verdict, and the sentences that it rests on."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass

from ..core.change import Change, Plan
from ..core.errors import CommandFailed, GpudirectError, HostBusy, Problem, UnreadableState

_RUN = "Run site.yml for this host."


@dataclass(frozen=True)
class Finding:
    """``as_wanted`` is None where it could not be judged.

    ``paths`` are those that a boot run changed, or that a look found to differ. ``may_pass`` says that the reasons may
    go by themselves, as when a device appears. ``postponed`` are paths of changes for later boots, ``mended`` of
    those that a watch found to differ and put right.
    """

    resource: str
    as_wanted: bool | None
    paths: tuple[str, ...] = ()
    reasons: tuple[Problem, ...] = ()
    may_pass: bool = False
    postponed: tuple[str, ...] = ()
    mended: tuple[str, ...] = ()


def of_error(resource: str, error: GpudirectError) -> Finding:
    """What an error says of its resource; what could not be read, or is being changed, is neither as wanted nor not."""
    unknown = isinstance(error, (UnreadableState, CommandFailed, HostBusy))
    return Finding(resource, None if unknown else False, error.done, error.problems)


def of_fault(resource: str, error: Exception) -> Finding:
    """What a fault of the engine itself leaves to say, so that one resource's fault does not end the run."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    fact = f"the engine fails: {type(error).__name__}: {error} ({place.filename}, line {place.lineno})"
    problem = Problem(resource, fact.rstrip("."), "Report this as a fault of vela.gpudirect.")
    return Finding(resource, None, (), (problem,))


def left_over(resource: str, plan: Plan) -> list[Problem]:
    """Why a resource is not as wanted beside the changes that it would take: refused, deferred, due with a boot, or left for consent."""
    return [
        *plan.refused,
        *(Problem(resource, f"waits for {one.waits_for}: {one.why}", _RUN) for one in plan.deferred),
        *(
            Problem(one.path, f"awaits a reboot: {one.why}", "Reboot the host.", repr(one.live), repr(one.wanted))
            for one in plan.awaiting_reboot
        ),
        *(
            Problem(one.path, one.why, f"Run site.yml for this host with gpudirect_allow: {one.disrupts.label}.")
            for one in plan.awaiting_consent
        ),
    ]


def differing(changes: Sequence[Change]) -> list[Problem]:
    """Values that are not as the intent says."""
    return [Problem(one.path, one.why, _RUN, repr(one.before), repr(one.after)) for one in changes]


def verdict_of(findings: Sequence[Finding]) -> bool | None:
    """All as wanted, some not, or none found wrong and some not judged."""
    if any(one.as_wanted is False for one in findings):
        return False
    return None if any(one.as_wanted is None for one in findings) else True
