# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options ``kvm_*``: their table, and what they ask for. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.errors import IntentError, Problem
from ..core.schema import Field, Schema
from ..guest.intent import SCHEMA as GUEST
from ..hugepages import DEFAULT_SIZE_FIELD, PAGES_FIELD

# What would take the confinement of guests away (libvirt src/qemu/qemu.conf.in, "security_driver"): never written.
UNCONFINED: Mapping[str, tuple[Any, ...]] = {
    "security_driver": ("none", ["none"], ("none",)),
    "security_default_confined": (0, False),
}
# The page size that /dev/hugepages has where nothing else is asked for: that of x86_64.
USUAL_SIZE = "2M"


def _check_conf(path: str, mapping: Mapping[Any, Any]) -> dict[str, Any]:
    """Settings of qemu.conf: names as libvirt has them, values that its syntax can hold (libvirt src/util/virconf.c)."""
    problems = [problem for key, value in mapping.items() for problem in _setting(f"{path}.{key}", key, value)]
    if problems:
        raise IntentError(problems)
    return dict(mapping)


def _setting(path: str, key: Any, value: Any) -> list[Problem]:
    if not isinstance(key, str) or re.fullmatch(r"[a-z][a-z0-9_]*", key) is None:
        return [Problem(path, "is no name of a setting", "Take one of those in qemu.conf.", found=repr(key))]
    items = value if isinstance(value, (list, tuple)) else [value]
    texts = [one for one in items if isinstance(one, str)]
    if not all(isinstance(one, (str, int)) for one in items) or (items is value and len(texts) != len(items)):
        wanted = "text, a whole number, true or false, or a list of texts"
        return [Problem(path, "has a value that qemu.conf cannot hold", "Correct it.", repr(value), wanted)]
    if any(re.search(r'["\x00-\x1f]', one) for one in texts):
        return [Problem(path, "has a quote or a control character in it", "Write it without.", found=repr(value))]
    if isinstance(value, int) and value < 0:
        return [Problem(path, "is negative", "Give zero or more.", found=str(value))]
    if value in UNCONFINED.get(key, ()):
        advice = "Leave it out: AppArmor or SELinux stays on, and passthrough works with it."
        return [Problem(path, "would take the confinement of guests away", advice, found=repr(value))]
    return []


RESERVED_FIELD = next(one for one in GUEST.fields if one.name == "guest_reserved_cpus")
SCHEMA = Schema(
    "kvm",
    "kvm_",
    (
        Field(
            "kvm_host",
            "str",
            (
                "V(managed) makes the host one for guests: packages and daemons of libvirt and QEMU, a file system for each size of huge pages",
                "that C(/dev/hugepages) does not have, and off what moves memory and work of guests (KSM, automatic NUMA balancing, numad).",
                "V(unmanaged) leaves all of it, and gives back what was changed before; packages stay.",
            ),
            default="unmanaged",
            choices=("managed", "unmanaged"),
        ),
        Field(
            "kvm_governor",
            "str",
            (
                "Governor of CPU frequencies on a managed host; V(unmanaged) leaves it.",
                "Where the driver does not offer it, or there is none, there is nothing to set.",
            ),
            default="performance",
            choices=("performance", "unmanaged"),
        ),
        Field(
            "kvm_isolate_cpus",
            "bool",
            (
                "Whether services, logins and the init process of a managed host keep to the CPUs that C(guest_reserved_cpus) leaves to it.",
                "Guests are not affected. Needs the unified hierarchy of control groups and systemd-machined, which keeps guests apart.",
            ),
            default=False,
        ),
        Field(
            "kvm_qemu_conf",
            "dict",
            (
                "Settings of libvirt's C(qemu.conf) on a managed host, by name. Passthrough needs none: libvirt itself opens devices to the",
                "guest that has them and raises its limit of locked memory. What would take confinement away is refused.",
            ),
            default={},
            check=_check_conf,
        ),
        RESERVED_FIELD,
        PAGES_FIELD,
        DEFAULT_SIZE_FIELD,
    ),
)


@dataclass(frozen=True)
class Desired:
    """What is asked of the host. ``mounts`` are the page sizes that need a file system of their own.

    ``reserved`` are the CPUs that the host itself keeps to; None: the first core of each NUMA node.
    """

    managed: bool = False
    governor: bool = False
    isolate: bool = False
    reserved: tuple[int, ...] | None = None
    mounts: tuple[str, ...] = ()
    conf: Mapping[str, Any] = field(default_factory=dict, hash=False)


def parse(params: Mapping[str, Any]) -> Desired:
    """What the options ask for; IntentError with every problem at once."""
    values, problems = SCHEMA.parse_all(params)
    managed = values["kvm_host"] == "managed"
    if values["kvm_isolate_cpus"] and not managed:
        problems.append(Problem("kvm_isolate_cpus", "is asked for on an unmanaged host", "Set kvm_host: managed."))
    if values["kvm_qemu_conf"] and not managed:
        problems.append(Problem("kvm_qemu_conf", "is given for an unmanaged host", "Set kvm_host: managed."))
    if problems:
        raise IntentError(problems)
    if not managed:
        return Desired()
    default = values["kernel_hugepages_default_size"]
    usual = USUAL_SIZE if default == "kernel" else default
    sizes = {entry["size"] for entry in values["kernel_hugepages"] or ()} - {usual}
    return Desired(
        True,
        values["kvm_governor"] == "performance",
        values["kvm_isolate_cpus"],
        values["guest_reserved_cpus"],
        tuple(sorted(sizes)),
        values["kvm_qemu_conf"],
    )
