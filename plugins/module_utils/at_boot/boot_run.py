# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run at boot: every resource that a boot loses is brought back, each for itself, within a bound.

The same converge as in any other run, with three things that only a boot has: nothing runs yet, so links may go down;
devices may still be on their way; and nobody is there to decide, so whatever can be set up is, and the rest is told.
A boot gives nothing up: undo, and what serves the boots to come, is left to a run through Ansible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .. import host_boot, site
from ..core.change import Change, Disruption
from ..core.converge import Resource, bring
from ..core.errors import ConsentRequired, GpudirectError, HostRefused, Problem, VerificationFailed
from ..core.host import Host
from ..core.owned import PATH as RECORD
from ..core.owned import Owned
from . import devices, finding
from .finding import Finding

# Waiting does not bring consent, and what was written and reads back otherwise was not early but wrong.
_LASTING = (ConsentRequired, VerificationFailed)
_SHOWN = 8  # paths of changes in one line


def require_record(host: Host) -> None:
    """Refuse to set up devices whose identities are not known any more."""
    if not Owned.load(host).of(host_boot.SCHEMA.name):
        fact = "the record of what this product changed is gone, and with it which device is which"
        raise HostRefused([Problem(RECORD, fact, "Run site.yml for this host, which looks at the devices anew.")])


def made_at_boot(change: Change) -> bool:
    """Whether a boot makes a change: not one that gives something up, as a device that is not there yet, or needs a watcher."""
    return not (change.next_boot or change.undo or change.attended)


def starts_guests(resource: Resource) -> bool:
    """Whether a resource needs all others to be as wanted, and libvirt, which a boot starts after the boot run."""
    return getattr(resource, "STARTS_GUESTS", False) is True


def held_back(resource: Resource, judged: Sequence[Finding]) -> Finding:
    """What is said of guests that are not started, because something that they need is not as wanted."""
    name = resource.SCHEMA.name
    missing = ", ".join(one.resource for one in judged if not one.as_wanted)
    fact = f"no guest is started, since {missing} is not as wanted or could not be judged"
    advice = "Mend that, then run systemctl restart gpudirect-boot.service."
    return Finding(name, False, (), (Problem(name, fact, advice),))


@dataclass
class BootRun:
    """A run under way. ``tell`` gets one line at a time, as things happen."""

    host: Host
    allow: Disruption
    tell: Callable[[str], None]
    findings: dict[str, Finding] = field(default_factory=dict)

    def bring_back(self, wanted: Sequence[tuple[Resource, Any]], *, device_timeout_s: float) -> list[Finding]:
        """Set everything up, and wait up to the bound for what is not there yet."""
        self.host.wait_until(lambda: self._settled(wanted), device_timeout_s)
        return [self.findings[resource.SCHEMA.name] for resource, _desired in wanted]

    def _settled(self, wanted: Sequence[tuple[Resource, Any]]) -> bool:
        """Go through all that is open, again while that brings something for those that wait for it."""
        for _round in range(site.MAX_ROUNDS):
            before = dict(self.findings)
            still = [one for one in wanted if before.get(one[0].SCHEMA.name, _UNTRIED).may_pass]
            for resource, desired in still:
                self._try(resource, desired)
            if all(self.findings[name].paths == before.get(name, _UNTRIED).paths for name in self.findings):
                break
        return not any(one.may_pass for one in self.findings.values())

    def _try(self, resource: Resource, desired: Any) -> None:
        name = resource.SCHEMA.name
        before = self.findings.get(name, _UNTRIED)
        now = self._attempt(resource, desired)
        if now.paths:
            shown = ", ".join([*now.paths[:_SHOWN], *(["..."] if len(now.paths) > _SHOWN else [])])
            self.tell(f"{name}: {len(now.paths)} changes made: {shown}")
        for path in [one for one in now.postponed if one not in before.postponed]:
            self.tell(f"left for a run of site.yml: {path}")
        for problem in [one for one in now.reasons if one not in before.reasons]:
            self.tell(f"{'not yet' if now.may_pass else 'not'}: {problem}")
        self.findings[name] = replace(now, paths=before.paths + now.paths)

    def _attempt(self, resource: Resource, desired: Any) -> Finding:
        name = resource.SCHEMA.name
        try:
            with self.host.exclusive():
                missing = devices.absent(name, Owned.load(self.host).of(name), self.host)
                report = bring(
                    resource, desired, self.host, allow=self.allow, check=False, partial=True, only=made_at_boot
                )
        except GpudirectError as error:
            return replace(finding.of_error(name, error), may_pass=not isinstance(error, _LASTING))
        except Exception as error:  # a fault of one resource is no reason to leave the others undone
            return replace(finding.of_fault(name, error), may_pass=isinstance(error, OSError))
        made = tuple(change.path for change in report.plan.changes)
        reasons = (*missing, *finding.left_over(name, report.left))
        waits = bool(missing or report.left.refused or report.left.deferred)
        later = tuple(change.path for change in report.postponed if change.next_boot)
        return Finding(name, not reasons, made, reasons, waits, later)


_UNTRIED = Finding("", None, may_pass=True)
