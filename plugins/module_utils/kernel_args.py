# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel command line: what every next boot will use, and what the running kernel was started with.

Only owned names are touched; arguments of others keep their order and repeats. The next boot is judged from what
the boot loader will really read (grub.cfg, BLS entries), the running kernel from ``/proc/cmdline`` and its IOMMU groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Union

from . import hugepages, iommu, ports_argument
from .boot import bls_store, grub, grub_store, pages
from .boot.arguments import ARGS_FIELD, absent_problems, argument_problems, contradictions, groups_of
from .boot.cmdline import LIMIT_BYTES, Group, name_of, split, value_of
from .boot.edited import NAMES, Regenerate, Remove, WriteText
from .core.change import Absent, Awaiting, Change, Plan, Unreadable
from .core.errors import HostRefused, IntentError, Problem, UnreadableState, VerificationFailed
from .core.host import Host, Space
from .core.schema import Field, Schema
from .path import intent as path_intent
from .ports_argument import Ports

SCHEMA = Schema(
    "kernel_args",
    "kernel_",
    (
        ARGS_FIELD,
        Field(
            "kernel_args_absent",
            "list",
            ("Names of kernel arguments that must not be there, such as V(pcie_acs_override).",),
            default=[],
            elements="str",
        ),
        iommu.IOMMU_FIELD,
        Field(
            "kernel_iommu_without_table",
            "str",
            (
                "What to do where the firmware describes no IOMMU yet: V(refuse), or go V(by_cpu_vendor) because a later step turns it on in the BIOS.",
            ),
            default="refuse",
            choices=("refuse", "by_cpu_vendor"),
        ),
        Field(
            "kernel_boot_loader",
            "str",
            ("How the next boot gets its arguments; V(auto) looks.",),
            default="auto",
            choices=("auto", "grub", "bls"),
        ),
        hugepages.PAGES_FIELD,
        hugepages.DEFAULT_SIZE_FIELD,
        hugepages.KEEP_FIELD,
        *path_intent.BOOT_FIELDS,
    ),
)

BootStore = Union[grub_store.Store, bls_store.Store]


@dataclass(frozen=True)
class Desired:
    """Wanted arguments: those given one by one, the IOMMU mode and the huge page reservation."""

    given: tuple[Group, ...] = ()
    iommu: str = "unmanaged"
    without_table: str = "refuse"
    boot_loader: str = "auto"
    hugepages: pages.Desired = field(default_factory=pages.Desired)
    path: Union[path_intent.PathIntent, None] = None  # where ACS words of ports are wanted by a boot argument

    @property
    def empty(self) -> bool:
        """True when nothing at all is asked for."""
        return (
            not self.given
            and self.iommu == "unmanaged"
            and not self.hugepages.pages
            and not self.hugepages.default_size
            and self.path is None
        )


@dataclass(frozen=True)
class Current:
    """The boot loader's store, the running kernel's line, the IOMMU, the nodes, and what would refuse a write."""

    store: BootStore | None
    system: str
    live: tuple[str, ...]
    iommu: iommu.Iommu
    nodes: Mapping[int, pages.Node]
    by_node: pages.ByNode
    refusals: Mapping[str, str]
    space: Space | None
    ports: Ports = field(default_factory=Ports)


# parse -----------------------------------------------------------------------------------


def parse(params: Mapping[str, Any]) -> Desired:
    """Wanted command line; finds typos and contradictions over all its options."""
    values, problems = SCHEMA.parse_all(params)
    reserved = pages.Desired()
    try:
        reserved = hugepages.desired_of(values)
    except IntentError as error:
        problems.extend(error.problems)
    arguments, absent = values["kernel_args"], values["kernel_args_absent"]
    problems += [
        problem
        for index, one in enumerate(arguments)
        for problem in argument_problems(f"kernel_args[{index}]", one, values["kernel_iommu"])
    ]
    problems += [
        problem for index, one in enumerate(absent) for problem in absent_problems(f"kernel_args_absent[{index}]", one)
    ]
    problems += contradictions(arguments, absent, values["kernel_iommu"])
    problems += pages.absent_problems(reserved, absent)
    path: path_intent.PathIntent | None = None
    try:
        path = path_intent.boot_intent(values)
    except IntentError as error:
        problems.extend(error.problems)
    problems += ports_argument.contradictions(values["pci_path_acs"], arguments, absent)
    if problems:
        raise IntentError(problems)
    groups = groups_of(arguments) + tuple(
        Group(f"kernel_args_absent[{index}]", frozenset({name_of(one)})) for index, one in enumerate(absent)
    )
    return Desired(
        groups,
        values["kernel_iommu"],
        values["kernel_iommu_without_table"],
        values["kernel_boot_loader"],
        reserved,
        path if path is not None and path.acs in (path_intent.AUTO, path_intent.BOOT_ARGUMENT) else None,
    )


# read ------------------------------------------------------------------------------------


def read(host: Host, desired: Desired) -> Current:
    """Boot loader store, running line, IOMMU and nodes of a host."""
    line = host.read_text("/proc/cmdline")
    if not isinstance(line, str):
        cause = line.cause if isinstance(line, Unreadable) else "it is not there"
        raise UnreadableState(
            [
                Problem(
                    "/proc/cmdline", f"cannot be read: {cause}", "Run against a running host, or a capture that has it."
                )
            ]
        )
    store = _read_store(host, desired.boot_loader)
    writes = store.writes if store else ()
    space = host.space("/boot")
    return Current(
        store,
        _system(host),
        split(line),
        iommu.read(host),
        hugepages.read_nodes(host) if desired.hugepages.pages else {},
        hugepages.read_by_node(host),
        {path: cause for path in writes if (cause := host.refuses_write(path))},
        space if isinstance(space, Space) else None,
        ports_argument.read(host, desired.path),
    )


def _read_store(host: Host, wanted: str) -> BootStore | None:
    """The store of the boot loader that this host has: BLS where grubby and entries are, else GRUB with update-grub."""
    if wanted in ("auto", "bls") and not isinstance(host.program("grubby"), Absent):
        store = bls_store.read(host)
        if store.entries:
            return store
    if (
        wanted in ("auto", "grub")
        and not isinstance(host.program("update-grub"), Absent)
        and host.exists(grub.GENERATED)
    ):
        return grub_store.read(host)
    return None


def _system(host: Host) -> str:
    """What the host calls itself, for messages."""
    text = host.read_text("/etc/os-release")
    lines = text.splitlines() if isinstance(text, str) else []
    return next(
        (line.split("=", 1)[1].strip('"') for line in lines if line.startswith("PRETTY_NAME=")), "an unnamed system"
    )


# plan ------------------------------------------------------------------------------------


def plan(desired: Desired, current: Current, owned: Mapping[str, Any]) -> Plan:
    """Changes of the next boot, and what the running kernel still lacks of it."""
    if desired.path is not None and not current.ports.by_argument:
        desired = replace(desired, path=None)  # registers do it
    if desired.empty and not owned:
        return Plan()
    if current.ports.problems:
        raise HostRefused(current.ports.problems)
    if current.store is None:
        raise HostRefused([_no_loader(desired, current)])
    absent_table = (
        iommu.missing_table(current.iommu, desired.without_table == "by_cpu_vendor")
        if desired.iommu != "unmanaged"
        else []
    )
    groups = _groups(desired, current, owned)
    former = frozenset(owned.get(NAMES, {}).get("names", ())) - frozenset(
        name for group in groups for name in group.names
    )
    changes = _next_boot(groups, current.store, owned, former)
    refusals = absent_table + pages.refusals(desired.hugepages, current.nodes, current.by_node)
    refusals += _refusals(changes, groups, former, current, owned)
    if refusals:
        raise HostRefused(refusals)
    awaiting = _awaiting(groups, former, current, owned, bool(changes))
    if not awaiting and desired.iommu != "unmanaged" and iommu.not_working(current.iommu):
        raise VerificationFailed(iommu.not_working(current.iommu))
    changes = _with_names(changes, groups, current, owned)
    if not awaiting:
        changes += _forgotten(desired, owned, former, changes)
    return Plan(tuple(changes), (), tuple(awaiting), _notes(current))


def _next_boot(
    groups: Sequence[Group], store: BootStore, owned: Mapping[str, Any], former: frozenset[str]
) -> list[Change]:
    if isinstance(store, grub_store.Store):
        return grub_store.plan(groups, store, owned, former)
    return bls_store.plan(groups, store, owned, former)


def _groups(desired: Desired, current: Current, owned: Mapping[str, Any]) -> tuple[Group, ...]:
    """Every owned group of this host; set members for one name from two options are joined."""
    groups = list(desired.given)
    ports = ports_argument.groups(desired.path, current.ports, groups, owned.get(NAMES, {}))
    for switch in (*iommu.groups(desired.iommu, current.iommu), *ports):
        twin = next((one for one in groups if one.names == switch.names), None)
        if twin is None:
            groups.append(switch)
        else:
            groups[groups.index(twin)] = Group(
                twin.path,
                twin.names,
                adds=tuple(dict.fromkeys((*switch.adds, *twin.adds))),
                drops=switch.drops,
                spelling=twin.spelling,
                told_by_others=switch.told_by_others,
            )
    if desired.hugepages.pages or desired.hugepages.default_size:
        arguments = pages.boot_arguments(desired.hugepages, current.nodes, current.by_node)
        groups.append(Group("kernel_hugepages", pages.BOOT_NAMES, arguments, live_by="hugepages"))
    return tuple(groups)


def _awaiting(
    groups: Sequence[Group], former: frozenset[str], current: Current, owned: Mapping[str, Any], rewriting: bool
) -> list[Awaiting]:
    """What the running kernel lacks, or still has; a boot since the entries were written makes it a failure."""
    written = "" if rewriting else str(owned.get(NAMES, {}).get("boot", ""))
    waiting = [
        _waiting(_spelling(group), group.of(current.live), group.wanted(group.of(current.live)), written)
        for group in (one.on_the_line for one in groups)
        if not group.live_by and not group.met_by(current.live)
    ]
    expected = _expected(groups, current.store, owned)
    for name in sorted(former):
        live, *wanted = ([one for one in line if name_of(one) == name] for line in (current.live, *expected))
        if wanted and live not in wanted:
            waiting.append(_waiting(name, tuple(live), tuple(wanted[-1]), written))
    return waiting


def _waiting(name: str, live: tuple[str, ...], wanted: tuple[str, ...], written: str) -> Awaiting:
    until, then = (" ".join(words) or "absent" for words in (live, wanted))
    why = f"{until} until the reboot, then {then}"
    return Awaiting(f"kernel_args.live[{name}]", list(live), list(wanted), why, written)


def _expected(groups: Sequence[Group], store: BootStore | None, owned: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """What a running kernel may have been started with once the plan is carried out and the host has booted."""
    if isinstance(store, grub_store.Store):
        return grub_store.expected(groups, store, owned)
    return bls_store.expected(groups, store, owned) if store else []


def _spelling(group: Group) -> str:
    return (group.spelling or (group.arguments[0] if group.arguments else min(group.names))).split("=", 1)[0]


def _with_names(
    changes: list[Change], groups: Sequence[Group], current: Current, owned: Mapping[str, Any]
) -> list[Change]:
    """The changes, each noting all names that are ours, so that a run that is cut short can still be undone.

    The last one also drops the records of files that are no longer there.
    """
    if not changes:
        return []
    store = current.store
    if store is None:
        raise AssertionError
    known = owned.get(NAMES, {"names": (), "entries": _entries(store)})
    names = sorted({*known["names"], *(name for group in groups for name in group.names)})
    record: dict[str, dict[str, Any]] = {NAMES: {"before": None, "names": names, "entries": known.get("entries", [])}}
    written = ports_argument.written(groups, known)
    if written:
        record[NAMES][ports_argument.WRITTEN] = written
    changes = [replace(one, remember={**one.remember, **record}) for one in changes]
    there = {NAMES, *(f"kernel_args[{path}]" for path in store.writes)}
    gone = tuple(sorted(owned.keys() - there))
    return [*changes[:-1], replace(changes[-1], forget=(*changes[-1].forget, *gone))]


def _entries(store: BootStore) -> list[str]:
    """The boot entries that were there before us; those of later kernels inherit our arguments."""
    return sorted(store.entries) if isinstance(store, bls_store.Store) else []


def _forgotten(
    desired: Desired, owned: Mapping[str, Any], former: frozenset[str], changes: Sequence[Change]
) -> list[Change]:
    """Drop the records of names that are neither wanted nor left anywhere once ``changes`` are made."""
    why = "nothing of them is left on the host"
    if desired.empty:
        records = {*owned, *(path for change in changes for path in change.remember)}
        return [Change(NAMES, sorted(former) or None, None, why, forget=tuple(sorted(records)))]
    if not former:
        return []
    left = {NAMES: {**owned[NAMES], "names": sorted(frozenset(owned[NAMES]["names"]) - former)}}
    return [Change(NAMES, sorted(former), None, why, remember=left)]


def _notes(current: Current) -> tuple[str, ...]:
    if any(name_of(one) == "amd_iommu" and "on" in (value_of(one) or "").split(",") for one in current.live):
        return (
            "kernel_args: the running kernel has amd_iommu=on, which is not a value it knows; a harmless leftover of somebody else",
        )
    return ()


def _no_loader(desired: Desired, current: Current) -> Problem:
    wanted = {
        "auto": "GRUB with update-grub (Debian, Ubuntu), or BLS entries with grubby (RHEL, Rocky 9 and 10)",
        "grub": "GRUB with update-grub",
        "bls": "BLS entries with grubby",
    }
    return Problem(
        "kernel_boot_loader",
        f"no supported boot loader on {current.system}",
        "Use a supported system, or leave the kernel options out of this host's inventory.",
        found="none",
        wanted=wanted[desired.boot_loader],
    )


def _refusals(
    changes: Sequence[Change],
    groups: Sequence[Group],
    former: frozenset[str],
    current: Current,
    owned: Mapping[str, Any],
) -> list[Problem]:
    """What would stop one of the writes half-way or make it useless, found before the first."""
    problems: list[Problem] = []
    if not changes:
        return problems
    for change in changes:
        path = change.path[len("kernel_args[") : -1]
        if path in current.refusals:
            problems.append(
                Problem(
                    path,
                    f"cannot be written: {current.refusals[path]}",
                    "Make it writable, or leave the kernel options out of this host's inventory.",
                )
            )
    problems += _no_room(current)
    return problems + _too_long(groups, former, current, owned) + _unheard(groups, current, owned)


def _no_room(current: Current) -> list[Problem]:
    """Boot entries are written next to the old ones before they replace them, so /boot needs room for both."""
    if current.space is None:
        return []
    need = 65536 + (
        2 * len(current.store.generated.encode("utf-8", "surrogateescape"))
        if isinstance(current.store, grub_store.Store)
        else 0
    )
    if current.space.free_bytes >= need and current.space.free_inodes >= 4:
        return []
    found = f"{current.space.free_bytes // 1024} KiB and {current.space.free_inodes} inodes free"
    return [
        Problem(
            "/boot",
            "has no room for new boot entries",
            "Remove old kernels (apt autoremove, dnf remove --oldinstallonly).",
            found=found,
            wanted=f"{need // 1024} KiB and 4 inodes",
        )
    ]


def _too_long(
    groups: Sequence[Group], former: frozenset[str], current: Current, owned: Mapping[str, Any]
) -> list[Problem]:
    """The kernel cuts a line that is too long without a word."""
    if isinstance(current.store, grub_store.Store):
        longest = grub_store.longest(groups, current.store, owned, former)
    else:
        longest = bls_store.longest(groups, current.store, owned) if current.store else 0
    if longest <= LIMIT_BYTES or not groups:
        return []
    return [
        Problem(
            "kernel_args",
            "makes the kernel's command line too long, and the kernel would cut it",
            "Give fewer arguments.",
            found=f"{longest} bytes",
            wanted=f"at most {LIMIT_BYTES}",
        )
    ]


def _unheard(groups: Sequence[Group], current: Current, owned: Mapping[str, Any]) -> list[Problem]:
    """The kernel hands everything behind a ``--`` to the first process."""
    ours = {name for group in groups for name in group.names}
    behind = [line[line.index("--") :] for line in _expected(groups, current.store, owned) if "--" in line]
    lost = sorted({one for line in behind for one in line if name_of(one) in ours})
    if not lost:
        return []
    return [
        Problem(
            "kernel_args",
            "somebody's -- ends the kernel's arguments before ours",
            "Take the -- out of the boot loader's configuration, or move it to the end.",
            found=f"-- before {' '.join(lost)}",
        )
    ]


# apply -----------------------------------------------------------------------------------


def apply(change: Change, host: Host) -> None:
    """Make one change of the boot loader's store, durably."""
    step = change.step
    if isinstance(step, WriteText):
        host.write_text(step.path, step.text)
    elif isinstance(step, Remove):
        host.remove(step.path, with_folder=step.with_folder)
    elif isinstance(step, Regenerate):
        host.run(list(step.argv), timeout_s=600)
        host.sync()
