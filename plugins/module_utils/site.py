# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All resources of a host in the order in which a round applies them, and the inventory variables they read."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

from . import (
    guest_image,
    host_boot,
    hugepages,
    kernel_args,
    kvm,
    libvirt_guest,
    libvirt_network,
    libvirt_pool,
    pci_driver,
    pci_path,
    reboot,
    scope,
    sriov,
)
from .core.change import Disruption, Unreadable
from .core.converge import Report, consent_problem, plan_all
from .core.errors import ConsentRequired, IntentError, Problem, UnreadableState, VerificationFailed
from .core.host import Host
from .core.once import looking
from .core.schema import Field, Schema, unknown
from .path import gate
from .path.intent import MODE_FIELD
from .pci import sysfs
from .pci.replaced import REPLACED_FIELD


def _absolute(path: str, folder: str) -> str:
    """A path from the root on, without signs that change nothing: any way to write ``/`` is the host itself."""
    if not folder.startswith("/"):
        raise IntentError(
            [Problem(path, "is not an absolute path", "Give the whole path of the tree.", found=repr(folder))]
        )
    return f"/{posixpath.normpath(folder).lstrip('/')}"


ALLOW_FIELD = Field(
    "gpudirect_allow",
    "str",
    (
        "How far a run may disrupt: V(nothing), a V(link), a running V(guest), or the V(host) itself by a reboot.",
        "A change that disrupts more is shown as blocked in check mode and stops the run before its first write otherwise;",
        "a reboot that is not allowed is left for later and named.",
    ),
    default="nothing",
    choices=("nothing", "link", "guest", "host"),
)
ROOT_FIELD = Field(
    "gpudirect_root",
    "str",
    ("Judge a captured tree at this path of the host instead of the host itself; it is only read.",),
    default="/",
    check=_absolute,
)

SERIAL_FIELD = Field(
    "gpudirect_serial",
    "raw",
    (
        "Hosts that are worked on at a time, as Ansible's C(serial) takes them: a number, a percentage, or a list of both.",
    ),
    default="100%",
)
MAX_FAIL_FIELD = Field(
    "gpudirect_max_fail_percentage",
    "int",
    ("The share of failed hosts, in percent of a batch, beyond which the run stops.",),
    default=100,
    minimum=0,
)

SCHEMA = Schema(
    "site",
    "gpudirect_",
    (ALLOW_FIELD, MODE_FIELD, ROOT_FIELD, scope.ONLY_FIELD, SERIAL_FIELD, MAX_FAIL_FIELD, REPLACED_FIELD),
)

RESOURCES: tuple[ModuleType, ...] = (
    *(kernel_args, hugepages, pci_path, sriov, pci_driver),
    *(kvm, libvirt_network, libvirt_pool, guest_image, libvirt_guest, host_boot),
)
# Those whose variables guest_placement takes; images and pools do not matter to where a guest is placed.
OF_PLACEMENT: tuple[ModuleType, ...] = (kernel_args, hugepages, sriov, pci_driver, libvirt_network, libvirt_guest)
SCHEMAS: tuple[Schema, ...] = (SCHEMA, *(resource.SCHEMA for resource in RESOURCES), reboot.SCHEMA)

# Names under our prefixes that the playbooks themselves set.
RESULTS = frozenset({"gpudirect_plan", "gpudirect_hosts", "gpudirect_guests", "gpudirect_reboot"})


def argument_spec(schema: Schema) -> dict[str, Any]:
    """The argument spec of a resource's module: its own options and the consent."""
    return {**schema.argument_spec(), ALLOW_FIELD.name: SCHEMA.argument_spec()[ALLOW_FIELD.name]}


def known_variables() -> frozenset[str]:
    """Every inventory variable that some schema knows."""
    return frozenset(name for schema in SCHEMAS for name in schema.variables())


def intent_of(variables: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a host's variables that is ours, checked by every resource; all problems in one error.

    Variables whose name begins with one of our prefixes and that no schema knows are errors, since a typo in a
    name would otherwise silently switch a setting off.
    """
    problems = [*unknown_variables(variables), *scope.problems_of(variables)]
    problems += mistakes(variables, SCHEMAS, RESOURCES)
    if problems:
        raise IntentError(problems)
    return {name: value for schema in SCHEMAS for name, value in schema.from_variables(variables).items()}


def mistakes(
    variables: Mapping[str, Any], schemas: Iterable[Schema], resources: Iterable[ModuleType]
) -> Iterator[Problem]:
    """All that some tables and resources say against their part of a host's variables."""
    for schema, parse in [(one, one.parse) for one in schemas] + [(one.SCHEMA, one.parse) for one in resources]:
        try:
            parse(schema.from_variables(variables))
        except IntentError as error:
            yield from error.problems


def lost_at_boot(intent: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a checked intent that a boot loses: the options, but for defaults, of the resources that say so.

    The word that a device was replaced on purpose is for the run that it is given to: what that run has put on record
    holds at every boot, and a boot takes no other device for the one that was.
    """
    lost: dict[str, Any] = {}
    for resource in RESOURCES:
        given = resource.SCHEMA.from_variables(intent)
        loses = getattr(resource, "lost_at_boot", None)
        if loses is not None and loses(resource.parse(given)):
            usual = {entry.name: entry.default for entry in resource.SCHEMA.fields}
            kept = {name: value for name, value in given.items() if name != REPLACED_FIELD.name}
            lost.update({name: value for name, value in kept.items() if value not in (None, usual[name])})
    return lost


def brought_back(options: Mapping[str, Any]) -> list[tuple[ModuleType, Any]]:
    """Resources and desired states of what ``lost_at_boot`` gave, in the order of a round; all problems in one error."""
    problems: list[Problem] = []
    desired: list[tuple[ModuleType, Any]] = []
    losing = [resource for resource in RESOURCES if hasattr(resource, "lost_at_boot")]
    known = {name for resource in losing for name in resource.SCHEMA.variables()}
    problems += [unknown(name, name, known) for name in sorted(options.keys() - known)]
    for resource in losing:
        try:
            desired.append((resource, resource.parse(resource.SCHEMA.from_variables(options))))
        except IntentError as error:
            problems.extend(error.problems)
    if problems:
        raise IntentError(problems)
    return [(resource, wanted) for resource, wanted in desired if resource.lost_at_boot(wanted)]


def options_of(resource: ModuleType, intent: Mapping[str, Any]) -> dict[str, Any]:
    """What a resource's ``parse`` takes: its part of a checked intent and, for ``host_boot``, what a boot loses."""
    own: dict[str, Any] = resource.SCHEMA.from_variables(intent)
    if resource is host_boot:
        own |= {host_boot.LOST: lost_at_boot(intent), host_boot.ENGINE: intent.get(host_boot.ENGINE)}
        own |= {host_boot.DRAINS: intent.get(scope.ONLY_FIELD.name) == scope.DRAIN}
    return own


def unknown_variables(variables: Mapping[str, Any]) -> list[Problem]:
    """Variables with one of our prefixes that no table has."""
    prefixes = tuple({schema.prefix for schema in SCHEMAS})
    known = known_variables()
    strange = [
        name for name in variables if str(name).startswith(prefixes) and name not in known and name not in RESULTS
    ]
    return [unknown(str(name), str(name), known) for name in sorted(strange)]


def require_capture(host: Host, name: str = ROOT_FIELD.name) -> None:
    """UnreadableState where a root leads to no captured machine: once, and not by what is first missed in it."""
    devices = host.names(sysfs.DEVICES) if host.captured else ()
    if isinstance(devices, tuple):
        return
    names = Host().names(host.root)
    unread = next((one for one in (devices, names) if isinstance(one, Unreadable)), None)
    advice = "Unpack the archive first, or give it to ./gpudirect audit."
    if unread is not None:
        fact, advice = f"cannot be read: {unread.cause}", "See who may read it."
    elif isinstance(names, tuple):
        fact = "has no captured /sys in it"
    else:
        fact = "is no folder" if Host().exists(host.root) else "is not there"
    wanted = f"a folder with {sysfs.DEVICES.lstrip('/')}"
    raise UnreadableState([Problem(name, fact, advice, found=host.root, wanted=wanted)])


# The longest way seen takes four: a daemon is started, guests go, their networks, then what was for them; and a reboot may be left.
MAX_ROUNDS = 6


def look(intent: Mapping[str, Any], host: Host, *, check: bool, previous: Mapping[str, Any]) -> dict[str, Any]:
    """Read the host once and plan every resource: what a round has to do.

    ``intent`` is that of ``intent_of`` and, by the name ``host_boot_engine``, the digest of the control node's engine.
    ``previous`` is the ``next`` of the last round's result, empty in the first. Raises when a change lacks consent
    (unless ``check``), when a reboot did not bring what it was for, and when the rounds do not come to an end.
    """
    with looking(host):
        return _look(intent, host, check=check, previous=previous)


def _look(intent: Mapping[str, Any], host: Host, *, check: bool, previous: Mapping[str, Any]) -> dict[str, Any]:
    own = SCHEMA.parse(SCHEMA.from_variables(intent))
    allow, only = Disruption.named(own[ALLOW_FIELD.name]), own[scope.ONLY_FIELD.name]
    resources = scope.planned(only, RESOURCES)
    desired = [(resource, resource.parse(options_of(resource, intent))) for resource in resources]
    reports = plan_all(desired, host, allow=allow, waiting=previous.get("waiting", {}))
    at_work = [one.resource for one in reports if one.plan.changes or one.plan.deferred or one.plan.awaiting_reboot]
    paths = gate.paths(intent, host, at_work) if only != scope.DRAIN else {}
    scope.require_ready(only, reports, paths.get("paths", {}))
    scope.require_libvirt(intent, reports)
    result = {**_summary(reports, allow), **paths}
    result["msg"] += scope.sentence(only)
    if result["blocked"] and not check:
        raise ConsentRequired(
            consent_problem(change, allow) for report in reports for change in report.plan.blocked_by(allow)
        )
    boot = host.boot_id()
    number = int(previous.get("round", 0)) + 1
    if result["todo"] == ["reboot"] and previous.get("rebooting_from") == boot:
        result["todo"] = []  # the last round left the reboot out (--skip-tags reboot), so this one does too
    if host.captured:
        result["todo"] = []  # a captured tree is judged, never changed
    if number > MAX_ROUNDS and result["todo"]:
        raise VerificationFailed(
            [
                Problem(
                    "site",
                    f"does not settle in {MAX_ROUNDS} rounds; left are {', '.join(result['todo'])}",
                    "See which of two owners keeps changing the same value.",
                )
            ]
        )
    # What waited in an earlier boot has failed above, so all that waits now is due with the next one.
    waiting = {entry.path: boot for report in reports for entry in report.plan.awaiting_reboot}
    result["next"] = {"round": number, "waiting": waiting, "rebooting_from": boot if "reboot" in result["todo"] else ""}
    return result


def _summary(reports: list[Report], allow: Disruption) -> dict[str, Any]:
    results = {report.resource: report.as_result() for report in reports}
    merged: dict[str, Any] = {
        key: [one for result in results.values() for one in result[key]]
        for key in (
            *("plan", "blocked", "deferred", "awaiting_reboot"),
            *("awaiting_consent", "reboot_reasons", "notes"),
        )
    }
    merged["reboot_required"] = bool(merged["reboot_reasons"])
    merged["reboot_allowed"] = allow >= Disruption.HOST
    merged["todo"] = [report.resource for report in reports if report.plan.changes]
    if merged["reboot_required"] and merged["reboot_allowed"]:
        merged["todo"].append("reboot")
    merged["verified"] = all(report.plan.empty for report in reports)
    merged["diff"] = {
        side: "".join(result["diff"][side] for result in results.values()) for side in ("before", "after")
    }
    merged["msg"] = _sentence(merged)
    return merged


def _deferral(one: Mapping[str, str], in_full: bool) -> str:
    return f"{one['resource']} waits for {one['waits_for']}" + (f" ({one['why']})" if in_full else "")


def _sentence(merged: Mapping[str, Any]) -> str:
    if merged["verified"]:
        return "as wanted"
    parts = [f"{len(merged['plan'])} changes to make"] if merged["plan"] else []
    if merged["blocked"]:
        parts.append(
            f"{len(merged['blocked'])} of them blocked: " + "; ".join(one["path"] for one in merged["blocked"])
        )
    if merged["deferred"]:
        # While rounds go on the next one does it; what is left for another run is told in full.
        last = not merged["todo"]
        parts.append("deferred: " + "; ".join(_deferral(one, last) for one in merged["deferred"]))
    if merged["awaiting_consent"]:
        parts.append(
            "left for a run that may disrupt guests: " + "; ".join(one["path"] for one in merged["awaiting_consent"])
        )
    if merged["reboot_required"]:
        how = (
            "a reboot" if merged["reboot_allowed"] else "a reboot that gpudirect_allow does not cover, left for later,"
        )
        parts.append(f"{how} is needed for " + "; ".join(merged["reboot_reasons"]))
    return ", ".join(parts)
