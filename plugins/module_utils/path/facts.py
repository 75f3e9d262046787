# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host says of itself as a whole, live or captured, for rules about paths.

A file that a capture left out looks like one that the kernel does not have, so in a captured tree what is not there is not known
unless its folder is.
"""

from __future__ import annotations

import re
from typing import Union

from ..core.change import ABSENT, Absent, Text, Unreadable
from ..core.host import Host
from ..core.once import once
from ..pci import sysfs
from ..pci.machine import NOT_TOLD, Atsr, Flag, Machine, Names, Numbers, Platform
from ..pci.tree import Number

DMAR = "/sys/firmware/acpi/tables/DMAR"
IOMMUS = "/sys/class/iommu"
LOCKDOWN = "/sys/kernel/security/lockdown"
UNSAFE = "/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts"
NODES = "/sys/devices/system/node"

# DMAR: a header of 48 bytes, then structures that begin with type and length, 16 bits each (Intel VT-d specification, chapter 8;
# Linux include/acpi/actbl1.h).
_DMAR_HEADER, _ATSR = 48, 2
_ALL_PORTS = 1  # flag of an ATSR structure
_SCOPES_AT = 8
_LARGEST_TABLE = 1 << 20
_ENCRYPTS = {"sme", "sev", "tdx_host_platform"}  # flags of processors that can, in /proc/cpuinfo


def machine_of(host: Host, name: str = "", source: str = "sysfs") -> Machine:
    """The whole machine as rules see it: its PCI tree and its facts; UnreadableState without a PCI bus to list."""
    tree = sysfs.read(host)
    missing = [f"{address}: {cause}" for address, cause in sorted(tree.unread.items())]
    short = [one for one in tree.functions.values() if len(one.config.data) <= 64]
    if short:
        missing.append(
            f"{len(short)} of {len(tree.functions)} functions have 64 bytes of configuration space or none: "
            "root is needed for their capabilities"
        )
    return Machine(tree, once(host, "platform", lambda: read(host)), name, source, tuple(missing))


def name_of(host: Host) -> str:
    """What a host calls itself; empty where a capture does not have it."""
    text = host.read_text("/proc/sys/kernel/hostname")
    return text.strip() if isinstance(text, str) else ""


def read(host: Host) -> Platform:
    """What the host tells; what it does not tell says why."""
    cpuinfo = host.read_text("/proc/cpuinfo")
    arguments = _line(host, "/proc/cmdline")
    vendor = _word(cpuinfo, "vendor_id")
    flags = _word(cpuinfo, "flags")
    return Platform(
        arguments=arguments,
        kernel=_line(host, "/proc/sys/kernel/osrelease"),
        cpu_vendor=vendor,
        cpu_family=_number(_word(cpuinfo, "cpu family")),
        cpu_model=_number(_word(cpuinfo, "model")),
        architecture=_architecture(host, vendor),
        iommus=_iommus(host),
        atsr=_atsr_of(host, vendor),
        lockdown=_lockdown(host),
        memory_encryption=_encryption(host, flags, arguments),
        unsafe_interrupts=_flag(host, UNSAFE, "/sys/module"),
        is_guest=_is_guest(flags),
        numa_nodes=_nodes(host),
    )


# Texts -----------------------------------------------------------------------------------


def _line(host: Host, path: str) -> Text:
    text = host.read_text(path)
    return text.strip() if isinstance(text, str) else Unreadable(f"{path}: is not there") if text is ABSENT else text


def _word(cpuinfo: Text, name: str) -> Text:
    """What /proc/cpuinfo says of the first processor."""
    if not isinstance(cpuinfo, str):
        return cpuinfo if isinstance(cpuinfo, Unreadable) else Unreadable("/proc/cpuinfo: is not there")
    found = re.search(rf"^{name}[ \t]*:[ \t]*(.*)$", cpuinfo, re.MULTILINE)
    return found[1].strip() if found else Unreadable(f"/proc/cpuinfo: has no {name}")


def _number(word: Text) -> Number:
    if not isinstance(word, str):
        return word
    return int(word) if word.isdecimal() else Unreadable(f"/proc/cpuinfo: {word!r} is no number")


def _architecture(host: Host, vendor: Text) -> Text:
    """Of a captured tree the kernel's own word (Linux 6.1 and newer), or what the maker of the processor tells."""
    if not host.captured:
        return host.architecture()
    told = host.read_text("/proc/sys/kernel/arch")
    if isinstance(told, str):
        return told.strip()
    return "x86_64" if vendor in ("GenuineIntel", "AuthenticAMD", "HygonGenuine") else NOT_TOLD


def _gone(host: Host, path: str, folder: str) -> Union[Absent, Unreadable]:
    """What a missing file means: nothing there, or left out of a capture together with its folder."""
    left_out = host.captured and not host.exists(folder)
    return Unreadable(f"{path}: the capture does not have it") if left_out else ABSENT


def _flag(host: Host, path: str, folder: str) -> Flag:
    text = host.read_text(path)
    if not isinstance(text, str):
        return text if isinstance(text, Unreadable) else _gone(host, path, folder)
    return text.strip() in ("Y", "y", "1")


def _iommus(host: Host) -> Names:
    names = host.names(IOMMUS)
    return _gone(host, IOMMUS, IOMMUS) if isinstance(names, Absent) else names


def _lockdown(host: Host) -> Text:
    """The word in brackets; the others are what could be chosen."""
    text = host.read_text(LOCKDOWN)
    if not isinstance(text, str):
        return text if isinstance(text, Unreadable) else _gone(host, LOCKDOWN, "/sys/kernel/security")
    chosen = re.search(r"\[(\w+)\]", text)
    return chosen[1] if chosen else Unreadable(f"{LOCKDOWN}: {text.strip()!r} names no state")


def _nodes(host: Host) -> Numbers:
    names = host.names(NODES)
    if not isinstance(names, tuple):
        return names if isinstance(names, Unreadable) else _gone(host, NODES, NODES)
    return tuple(sorted(int(name[4:]) for name in names if re.fullmatch(r"node[0-9]+", name)))


def _is_guest(flags: Text) -> Flag:
    """The flag that hypervisors show their guests (CPUID 1, ECX bit 31)."""
    return "hypervisor" in flags.split() if isinstance(flags, str) else NOT_TOLD


# Memory encryption -----------------------------------------------------------------------


def _encryption(host: Host, flags: Text, arguments: Text) -> Text:
    """What is known to be active. A flag of the processor says that it could be, not that it is.

    ``mem_encrypt=`` decides about SME (Linux kernel-parameters.txt); without it the build of the kernel does, which is not told.
    That KVM could start encrypted guests does not say whether one with these devices is.
    """
    if not isinstance(flags, str):
        return Unreadable("the flags of the processor are not known")
    has = set(flags.split())
    if "tdx_guest" in has:
        return "tdx"
    if not has & _ENCRYPTS:
        return ABSENT
    words = arguments.split() if isinstance(arguments, str) else []
    if "sme" in has and "mem_encrypt=on" in words:
        return "sme"
    doubts = [
        f"KVM may start {name} guests" for name in ("sev", "sev_es", "sev_snp") if _allowed(host, "kvm_amd", name)
    ]
    doubts += ["KVM may start tdx guests"] * _allowed(host, "kvm_intel", "tdx")
    doubts += ["the kernel may use sme, since mem_encrypt= is not set"] * (
        "sme" in has and "mem_encrypt=off" not in words
    )
    return Unreadable("; ".join(doubts)) if doubts else ABSENT


def _allowed(host: Host, module: str, parameter: str) -> bool:
    return _flag(host, f"/sys/module/{module}/parameters/{parameter}", "/sys/module") is True


# ATSR ------------------------------------------------------------------------------------


def _atsr_of(host: Host, vendor: Text) -> Union[Atsr, Absent, Unreadable]:
    if isinstance(vendor, str) and vendor != "GenuineIntel":
        return ABSENT
    table = host.read_bytes(DMAR, _LARGEST_TABLE)
    if isinstance(table, Absent):
        return _gone(host, DMAR, "/sys/firmware/acpi/tables")
    return table if isinstance(table, Unreadable) else atsr(table)


def atsr(table: bytes) -> Union[Atsr, Absent, Unreadable]:
    """The structures of type 2 in the bytes of a DMAR table; ABSENT where it has none."""
    if table[:4] != b"DMAR" or len(table) < _DMAR_HEADER:
        return Unreadable(f"{DMAR}: is no DMAR table")
    end = min(len(table), int.from_bytes(table[4:8], "little"))
    cut = end < int.from_bytes(table[4:8], "little")
    at, there = _DMAR_HEADER, False
    everywhere: list[int] = []
    ports: list[str] = []
    while at + 4 <= end:
        kind, length = int.from_bytes(table[at : at + 2], "little"), int.from_bytes(table[at + 2 : at + 4], "little")
        if length < 4 or at + length > end:
            return Unreadable(f"{DMAR}: the structure at {at} goes beyond the table")
        if kind == _ATSR and length >= _SCOPES_AT:
            there = True
            one = table[at : at + length]
            segment = int.from_bytes(one[6:8], "little")
            if one[4] & _ALL_PORTS:
                everywhere.append(segment)
            else:
                ports += _scopes(one, segment)
        at += length
    if cut:
        return Unreadable(f"{DMAR}: is cut off after {end} bytes")
    return Atsr(tuple(sorted(set(everywhere))), tuple(ports)) if there else ABSENT


def _scopes(structure: bytes, segment: int) -> list[str]:
    """The devices that a structure names: type, length, four bytes, then bus, and device and function of each step down."""
    found, at = [], _SCOPES_AT
    while at + 8 <= len(structure):
        length = structure[at + 1]
        if length < 8:
            break
        found.append(f"{segment:04x}:{structure[at + 5]:02x}:{structure[at + 6]:02x}.{structure[at + 7] & 7:x}")
        at += length
    return found
