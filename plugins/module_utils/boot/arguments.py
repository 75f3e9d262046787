# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules for kernel arguments that an inventory gives one by one. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..core.errors import Problem
from ..core.schema import Field
from .cmdline import MERGING, Group, name_of, value_of
from .pages import BOOT_NAMES
from .words import FORBIDDEN

# Also an option of what has to know which CPUs the next boot may leave out.
ARGS_FIELD = Field(
    "kernel_args",
    "list",
    (
        "Kernel arguments as they stand on the command line, such as V(mitigations=off), V(nosmt) or V(console=ttyS0).",
        "A name that is given is owned: other values of it are taken out. Names that are not given stay as they are.",
        "Values of C(pci), C(vfio-pci.ids), C(modprobe.blacklist) and the like are sets: they are added to what is there.",
    ),
    default=[],
    elements="str",
)
# Names that the kernel or its drivers read as often as they are given.
REPEATABLE = frozenset(
    {
        "console",
        "earlycon",
        "ip",
        "netconsole",
        "memmap",
        "video",
        "rd.lvm.lv",
        "rd.luks.uuid",
        "rd.md.uuid",
        "systemd.mask",
        "systemd.wants",
        "systemd.setenv",
    }
)
# Names whose loss keeps a host from finding its root file system.
REFUSED = frozenset({"root", "ro", "rw", "rootflags", "BOOT_IMAGE", "initrd"})


# Each rule: when it applies to (argument, IOMMU mode), what is wrong, what to do. The first that applies speaks.
_RULES: tuple[tuple[Callable[[str, str], bool], str, str], ...] = (
    (lambda argument, _mode: not name_of(argument), "is empty", "Give NAME or NAME=VALUE."),
    (
        lambda argument, _mode: bool(FORBIDDEN.search(argument)),
        "has a sign that boot loader or kernel would take apart",
        "Give one argument per entry, without quotes, white space, backslash, ` or $.",
    ),
    (
        lambda argument, _mode: argument == "--",
        "ends the kernel's own arguments: the rest goes to the first process",
        "Leave it out.",
    ),
    (
        lambda argument, _mode: name_of(argument) in REFUSED,
        "is the installer's: without it the host does not boot",
        "Leave it out.",
    ),
    (
        lambda argument, _mode: name_of(argument) in BOOT_NAMES,
        "reserves huge pages",
        "Use kernel_hugepages, which checks them per NUMA node.",
    ),
    (
        lambda argument, _mode: name_of(argument) == "amd_iommu" and "on" in _members(argument),
        "is not a value the kernel knows: the AMD IOMMU is on unless switched off",
        "Leave it out, or set kernel_iommu.",
    ),
    (
        lambda argument, mode: mode != "unmanaged" and name_of(argument) in ("iommu", "iommu.passthrough"),
        "contradicts kernel_iommu, which owns this name",
        "Give one of the two.",
    ),
    (
        lambda argument, mode: (
            mode != "unmanaged" and name_of(argument) in ("intel_iommu", "amd_iommu") and "off" in _members(argument)
        ),
        "switches off the IOMMU that kernel_iommu switches on",
        "Give one of the two.",
    ),
)


def argument_problems(path: str, argument: str, mode: str) -> list[Problem]:
    """Why an entry of kernel_args cannot be meant, given the value of kernel_iommu."""
    for applies, fact, advice in _RULES:
        if applies(argument, mode):
            return [Problem(path, fact, advice, found=repr(argument))]
    return []


def _members(argument: str) -> list[str]:
    return (value_of(argument) or "").split(",")


def absent_problems(path: str, name: str) -> list[Problem]:
    """Why an entry of kernel_args_absent cannot be meant."""
    if not name or "=" in name or FORBIDDEN.search(name):
        return [
            Problem(
                path, "is not the name of a kernel argument", "Give the name alone, without a value.", found=repr(name)
            )
        ]
    if name_of(name) in REFUSED:
        return [
            Problem(
                path,
                "is the installer's: without it the host does not boot",
                "Leave it out.",
                found=name,
            )
        ]
    return []


def contradictions(arguments: Sequence[str], absent: Sequence[str], mode: str) -> list[Problem]:
    """What the two lists and the IOMMU mode say against each other."""
    problems: list[Problem] = []
    gone = {name_of(one) for one in absent}
    seen: dict[str, str] = {}
    for index, argument in enumerate(arguments):
        name, path = name_of(argument), f"kernel_args[{index}]"
        if name in gone:
            problems.append(
                Problem(path, "is also in kernel_args_absent", "Take it out of one of the two.", found=argument)
            )
        if seen.get(name) == argument:
            problems.append(Problem(path, "is given twice", "Give it once.", found=argument))
        elif name in seen and name not in MERGING and name not in REPEATABLE:
            problems.append(
                Problem(
                    path,
                    "contradicts another entry of the list",
                    "The kernel takes one value; give one.",
                    found=argument,
                    wanted=seen[name],
                )
            )
        seen[name] = argument
    owned = {"intel_iommu", "amd_iommu", "iommu"} if mode != "unmanaged" else set()
    problems += [
        Problem(
            f"kernel_args_absent[{index}]",
            "contradicts kernel_iommu, which owns this name",
            "Give one of the two.",
            found=one,
        )
        for index, one in enumerate(absent)
        if name_of(one) in owned
    ]
    return problems


def groups_of(arguments: Sequence[str]) -> tuple[Group, ...]:
    """The groups of given arguments: one per name, in the order of first appearance."""
    by_name: dict[str, list[tuple[str, str]]] = {}
    for index, argument in enumerate(arguments):
        by_name.setdefault(name_of(argument), []).append((f"kernel_args[{index}]", argument))
    groups = []
    for name, members in by_name.items():
        path, first = members[0]
        if name in MERGING:
            adds = tuple(one for _path, argument in members for one in (value_of(argument) or "").split(",") if one)
            groups.append(Group(path, frozenset({name}), adds=adds, spelling=first.split("=", 1)[0]))
        else:
            groups.append(Group(path, frozenset({name}), tuple(argument for _path, argument in members)))
    return tuple(groups)
