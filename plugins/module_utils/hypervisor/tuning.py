# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What keeps a host from moving memory and work of its guests: kernel attributes, and the files with which a boot sets them.

Which ones, and why: gpudirect.md F.2 (KSM, automatic NUMA balancing, CPU frequencies, CPUs of the host itself). Guests have huge
pages, which neither KSM nor transparent huge pages touch; KSM is off for the processor time that it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..boot.pages import KIB
from ..core.change import Absent
from ..core.errors import Problem, UnreadableState
from ..core.host import Host
from ..core.ranges import ranges
from ..guest.resources import cpus_of
from . import system

MARK = "# Written by vela.gpudirect; changes are lost."
KSM = "/sys/kernel/mm/ksm/run"  # Linux Documentation/admin-guide/mm/ksm.rst
BALANCING = "/proc/sys/kernel/numa_balancing"
POLICIES = "/sys/devices/system/cpu/cpufreq"
GOVERNOR = "performance"
# Sorted after files of others, which then do not set the value anew (sysctl.d(5)).
SYSCTL = "/etc/sysctl.d/zz-gpudirect.conf"
TMPFILES = "/etc/tmpfiles.d/gpudirect.conf"
MOUNTS = "/proc/mounts"
CGROUPS = "/sys/fs/cgroup"
# What the host's own work is in: services, logins, and systemd itself. Guests are in machine.slice.
HOUSEKEEPING = ("init.scope", "system.slice", "user.slice")


def governors(host: Host) -> dict[str, str]:
    """Governors by attribute, of the policies whose driver offers the wanted one."""
    names = host.names(POLICIES)
    folders = [f"{POLICIES}/{name}" for name in names if name.startswith("policy")] if isinstance(names, tuple) else []
    found = {}
    for folder in folders:
        offered = host.read_text(f"{folder}/scaling_available_governors")
        value = host.read_text(f"{folder}/scaling_governor")
        if isinstance(offered, str) and GOVERNOR in offered.split() and isinstance(value, str):
            found[f"{folder}/scaling_governor"] = value.strip()
    return found


def attribute(host: Host, path: str) -> dict[str, str]:
    """An attribute with its text; nothing where the kernel has none."""
    text = host.read_text(path)
    if isinstance(text, Absent):
        return {}
    if not isinstance(text, str):
        raise UnreadableState([Problem(path, f"cannot be read: {text.cause}", "Run as root on the host.")])
    return {path: text.strip()}


def boot_files(*, balancing: bool, governor: bool) -> dict[str, str]:
    """The files with which a boot sets the values that this host has."""
    lines = [f"w {KSM} - - - - 0"]
    if governor:
        lines.append(f"w {POLICIES}/policy*/scaling_governor - - - - {GOVERNOR}")
    files = {TMPFILES: "\n".join((MARK, *lines)) + "\n"}
    if balancing:
        files[SYSCTL] = f"{MARK}\nkernel.numa_balancing = 0\n"
    return files


def drop_in(unit: str) -> str:
    """Where our settings of a unit lie; sorted after what ``systemctl set-property`` writes."""
    return f"/etc/systemd/system/{unit}.d/gpudirect.conf"


def drop_in_text(unit: str, cpus: Iterable[int]) -> str:
    """The CPUs of a unit; an empty assignment first, since assignments add up (systemd.resource-control(5))."""
    section = "Scope" if unit.endswith(".scope") else "Slice"
    return f"{MARK}\n[{section}]\nAllowedCPUs=\nAllowedCPUs={ranges(cpus)}\n"


def allowed(host: Host) -> dict[str, str | None]:
    """The CPUs that each of the host's units may use, as the kernel was told; None: all."""
    found: dict[str, str | None] = {}
    for unit in HOUSEKEEPING:
        text = host.read_text(f"{CGROUPS}/{unit}/cpuset.cpus")
        found[unit] = ranges(cpus_of(text)) if isinstance(text, str) and text.strip() else None
    return found


def mount_unit(size: str) -> str:
    """Name of the unit that mounts pages of a size; systemd wants it to follow from the folder."""
    return f"dev-hugepages{size}.mount"


def mount_folder(size: str) -> str:
    """Where pages of a size are mounted."""
    return f"/dev/hugepages{size}"


def mount_path(size: str) -> str:
    """Where the unit's file lies."""
    return f"/etc/systemd/system/{mount_unit(size)}"


def mount_text(size: str) -> str:
    """The unit; early and without the usual dependencies, as systemd's own for /dev/hugepages."""
    return (
        f"{MARK}\n[Unit]\nDescription=Huge pages of {size} for guests\n"
        "DefaultDependencies=no\nBefore=sysinit.target\n"
        f"ConditionPathExists=/sys/kernel/mm/hugepages/hugepages-{KIB[size]}kB\n\n"
        f"[Mount]\nWhat=hugetlbfs\nWhere={mount_folder(size)}\nType=hugetlbfs\nOptions=nosuid,nodev,pagesize={size}\n\n"
        "[Install]\nWantedBy=sysinit.target\n"
    )


def mounted(host: Host) -> dict[str, int]:
    """Page size in KiB by folder, of the file systems of huge pages."""
    text = host.read_text(MOUNTS)
    found = {}
    for line in text.splitlines() if isinstance(text, str) else ():
        words = line.split()
        if len(words) > 3 and words[2] == "hugetlbfs":
            sizes = [word[9:] for word in words[3].split(",") if word.startswith("pagesize=")]
            found[words[1]] = _kib(sizes[0]) if sizes else 0
    return found


def _kib(size: str) -> int:
    """A size as the kernel prints it: 2M, 1024M."""
    factor = {"K": 1, "M": 1024, "G": 1048576}.get(size[-1:], 0)
    return int(size[:-1]) * factor if size[:-1].isdigit() else 0


def own_files(sizes: Iterable[str] = tuple(KIB)) -> tuple[str, ...]:
    """Every file that may be ours."""
    return (SYSCTL, TMPFILES, *map(drop_in, HOUSEKEEPING), *map(mount_path, sizes))


def foreign(texts: Mapping[str, str | None], wanted: Iterable[str]) -> list[str]:
    """The wanted files that somebody else has written."""
    return [path for path in wanted if (text := texts.get(path)) is not None and not text.startswith(MARK)]


def all_units() -> tuple[str, ...]:
    """Every unit that may matter here."""
    daemons = [name.removesuffix(".socket") for name in (*system.SOCKETS, system.LOG_SOCKET)]
    both = [f"{name}.{kind}" for name in daemons for kind in ("socket", "service")]
    return (*system.MONOLITHIC, *both, *system.MOVERS)
