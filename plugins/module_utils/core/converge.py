# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The five verbs in their one order: parse, read, plan, apply, verify.

Check mode, consent, the ownership record, progress and verification live here, so that
no resource can forget one of them. This file knows no domain word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from .change import Awaiting, Change, Disruption, Plan
from .errors import ApplyFailed, ConsentRequired, GpudirectError, HostRefused, Problem, VerificationFailed
from .host import Host
from .owned import Owned
from .schema import Schema

# A boot's start of guests has the lock while all of their memory is pinned: half a minute on a small host, minutes for
# terabytes. A run that comes after a reboot waits for that.
PATIENCE_S = 600.0


class Resource(Protocol):
    """What a resource file offers: a schema and the verbs that are its own."""

    SCHEMA: Schema

    def parse(self, params: Mapping[str, Any]) -> Any:
        """Desired state; pure, strict."""

    def read(self, host: Host, desired: Any) -> Any:
        """Current state; the only reader. ``desired`` only narrows what needs reading."""

    def plan(self, desired: Any, current: Any, owned: Mapping[str, Any]) -> Plan:
        """Ordered changes; pure, deterministic. ``owned`` are this resource's records."""

    def apply(self, change: Change, host: Host) -> Mapping[str, Mapping[str, Any]] | None:
        """Make one change; the only writer.

        What the change itself brought to light and undo will need (as what it made was like when it was new) is
        returned by record path, and is added to the records.
        """


class LostAtBoot(Resource, Protocol):
    """A resource with values that a boot loses: it is brought back by the boot run and watched for drift.

    Its module defines this function beside the verbs; a resource without it is not part of the boot run. Its plans mark
    the changes that a boot leaves alone (``Change.next_boot`` and ``Change.undo``).
    """

    def lost_at_boot(self, desired: Any) -> bool:
        """Whether this desired state asks for something that a boot loses; pure."""


@dataclass(frozen=True)
class Report:
    """What happened to one resource, or would happen. ``postponed`` are changes that the caller of ``bring`` left out."""

    resource: str
    plan: Plan
    allow: Disruption
    changed: bool
    verified: bool | None
    left: Plan
    postponed: tuple[Change, ...] = ()

    def as_result(self) -> dict[str, Any]:
        """The result contract: the same keys from every module (docs/contracts.md)."""
        return {
            "changed": self.changed,
            "plan": [change.as_result() for change in self.plan.changes],
            "blocked": [change.as_result() for change in self.plan.blocked_by(self.allow)],
            "deferred": [entry.as_result() for entry in self.left.deferred],
            "awaiting_reboot": [entry.as_result() for entry in self.left.awaiting_reboot],
            "awaiting_consent": [change.as_result() for change in self.left.awaiting_consent],
            "reboot_required": bool(self.left.awaiting_reboot),
            "reboot_reasons": [entry.reason for entry in self.left.awaiting_reboot],
            "notes": list(self.left.notes),
            "verified": self.verified,
            "diff": render_diff(self.plan.changes),
        }


def converge(resource: Resource, params: Mapping[str, Any], host: Host, *, allow: Disruption, check: bool) -> Report:
    """Bring one resource to the wanted state, or say what it would take."""
    desired = resource.parse(params)
    if check:
        return bring(resource, desired, host, allow=allow, check=True)
    with host.exclusive(PATIENCE_S):
        return bring(resource, desired, host, allow=allow, check=False)


def bring(
    resource: Resource,
    desired: Any,
    host: Host,
    *,
    allow: Disruption,
    check: bool,
    waiting: Mapping[str, str] | None = None,
    partial: bool = False,
    only: Callable[[Change], bool] = lambda _change: True,
) -> Report:
    """``converge`` for a desired state that was parsed before.

    ``waiting`` are boot ids, by path, in which an earlier round of this run already saw values await a reboot.
    ``partial`` lets the rest go on where the plan refuses a part of the intent; ``only`` tells the changes to be made.
    """
    name = resource.SCHEMA.name
    owned = Owned.load(host)
    boot = host.boot_id()

    def look() -> tuple[Plan, tuple[Change, ...]]:
        whole = _with_waiting(resource.plan(desired, resource.read(host, desired), owned.of(name)), waiting or {})
        kept = tuple(change for change in whole.changes if only(change))
        others = tuple(change for change in whole.changes if not only(change))
        return replace(whole, changes=kept).within(allow), others

    plan, postponed = look()
    if plan.refused and not partial:
        raise HostRefused(plan.refused)
    if check or not plan.changes:
        _require_live(plan, boot)
        complete = _complete(plan)
        return Report(name, plan, allow, bool(plan.changes), None if plan.changes else complete, plan, postponed)
    _require_consent(plan, allow)
    _apply_all(resource, plan, host, owned, boot)
    try:
        left, postponed = look()
        _require_verified(plan, left)
        _require_live(left, boot)
    except GpudirectError as error:
        raise error.after(change.path for change in plan.changes) from None
    return Report(name, plan, allow, True, _complete(left), left, postponed)


def _complete(plan: Plan) -> bool:
    """Whether a plan without changes leaves nothing open but what waits for a boot."""
    return not (plan.deferred or plan.refused or plan.awaiting_consent)


def plan_all(
    resources: Sequence[tuple[Resource, Any]],
    host: Host,
    *,
    allow: Disruption,
    waiting: Mapping[str, str] | None = None,
) -> list[Report]:
    """``bring`` in check mode for every resource; all problems of all resources in one error."""
    errors: list[GpudirectError] = []
    reports: list[Report] = []
    for resource, desired in resources:
        try:
            reports.append(bring(resource, desired, host, allow=allow, check=True, waiting=waiting))
        except GpudirectError as error:
            errors.append(error)
    if errors:
        kind = type(errors[0]) if len({type(error) for error in errors}) == 1 else GpudirectError
        raise kind(problem for error in errors for problem in error.problems)
    return reports


def _require_consent(plan: Plan, allow: Disruption) -> None:
    blocked = plan.blocked_by(allow)
    if blocked:
        raise ConsentRequired(consent_problem(change, allow) for change in blocked)


def consent_problem(change: Change, allow: Disruption) -> Problem:
    """The sentence for a change that the operator has not agreed to."""
    word = change.disrupts.label
    return Problem(
        change.path,
        f"disrupts the {word}: {change.why}",
        f"Set gpudirect_allow: {word} when that is meant.",
        found=f"gpudirect_allow: {allow.label}",
        wanted=word,
    )


def _apply_all(resource: Resource, plan: Plan, host: Host, owned: Owned, boot: str) -> None:
    name, done = resource.SCHEMA.name, list[str]()
    refused: list[tuple[Change, GpudirectError | OSError]] = []
    for change in plan.changes:
        try:
            owned.remember(host, name, change, boot)
            learnt = resource.apply(change, host)
            owned.confirm(host, change, learnt or {})
        except (GpudirectError, OSError) as error:
            refused.append((change, error))
            if not change.apart:
                break
        else:
            done.append(change.path)
    if refused:
        problems = [_stopped(plan, change, done, error) for change, error in refused]
        raise ApplyFailed(problems, done) from refused[-1][1]


def _stopped(plan: Plan, change: Change, done: Sequence[str], error: GpudirectError | OSError) -> Problem:
    shown = ", ".join(done) or "nothing"
    cause = str(error).rstrip(".") if isinstance(error, GpudirectError) else f"{error.strerror or error}"
    when = "Done all the same" if change.apart else "Done before it"
    return Problem(
        change.path,
        f"the change was refused: {cause}. {when}: {shown} ({len(done)} of {len(plan.changes)} changes)",
        "Mend the cause and run again; the run goes on where it stopped.",
    )


def _require_verified(plan: Plan, left: Plan) -> None:
    if not left.changes:
        return
    raise VerificationFailed(
        [
            Problem(
                change.path,
                f"does not read back after {len(plan.changes)} changes were made: {change.why}",
                "See what else writes this value on the host.",
                found=f"{change.before!r}",
                wanted=f"{change.after!r}",
            )
            for change in left.changes
        ]
    )


def _require_live(plan: Plan, boot: str) -> None:
    """A value that was due with a reboot, and is not live although the host has booted since, is a failure."""
    missed = [entry for entry in plan.awaiting_reboot if entry.written_boot and boot and entry.written_boot != boot]
    if missed:
        raise VerificationFailed(_did_not_take(entry) for entry in missed)


def _did_not_take(entry: Awaiting) -> Problem:
    """The sentence for a value that the reboot did not bring."""
    return Problem(
        entry.path,
        "was written before the last boot and is still not live",
        "See what the boot used instead, and what else sets it.",
        found=f"{entry.live!r}",
        wanted=f"{entry.wanted!r}",
    )


def _with_waiting(plan: Plan, waiting: Mapping[str, str]) -> Plan:
    """The plan with the boot ids in which an earlier round saw the same values waiting."""
    entries = tuple(
        replace(entry, written_boot=entry.written_boot or waiting.get(entry.path, "")) for entry in plan.awaiting_reboot
    )
    return replace(plan, awaiting_reboot=entries)


def render_diff(changes: Sequence[Change]) -> dict[str, str]:
    """Owned values before and after, one line each, for ``--diff``; the latter with why, and what it disrupts."""
    return {
        "before": "".join(f"{change.path}: {_plain(change.before)}\n" for change in changes),
        "after": "".join(
            f"{change.path}: {_plain(change.after)}  # {change.why}; disrupts {change.disrupts.label}\n"
            for change in changes
        ),
    }


def _plain(value: Any) -> str:
    if value is None:
        return "(absent)"
    if isinstance(value, (list, tuple)):
        return " ".join(str(item) for item in value)
    return str(value)
