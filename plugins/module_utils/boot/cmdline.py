# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel command lines as data: arguments, and groups of arguments that belong together. Pure.

Rules of the kernel that everything here follows: arguments are separated by white space that is not
between double quotes (``lib/cmdline.c: next_arg``); a dash and an underscore in a name are the same
(``kernel/params.c: parameq``); for most names the last one wins, so an owned name appears only as wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from .words import BLANKS

# Names whose value is a comma-separated set that several owners add to. ``pci`` and the IOMMU
# switches carry named sub-options; a later sub-option of the same name replaces the earlier one.
MERGING = frozenset(
    {
        "vfio_pci.ids",
        "pci",
        "intel_iommu",
        "amd_iommu",
        "modprobe.blacklist",
        "module_blacklist",
        "rd.driver.blacklist",
        "rd.driver.pre",
        "pci_stub.ids",
    }
)

# The kernel keeps at most this many bytes of the line on x86 (COMMAND_LINE_SIZE, with its end mark).
LIMIT_BYTES = 2047


def name_of(argument: str) -> str:
    """The name of an argument as the kernel compares it: ``vfio-pci.ids=x`` -> ``vfio_pci.ids``.

    GRUB hands on an argument with white space as ``"name=a b"``, and the kernel takes those quotes off first.
    """
    return argument.split("=", 1)[0].lstrip('"').replace("-", "_")


def value_of(argument: str) -> str | None:
    """The value of an argument, None for a bare word."""
    return argument.split("=", 1)[1] if "=" in argument else None


def split(line: str) -> tuple[str, ...]:
    """Arguments of a command line; double quotes keep white space together and stay in the argument."""
    words: list[str] = []
    word = ""
    quoted = False
    for sign in line:
        if sign in BLANKS and not quoted:
            if word:
                words.append(word)
            word = ""
            continue
        quoted ^= sign == '"'
        word += sign
    return tuple([*words, word] if word else words)


@dataclass(frozen=True)
class Group:
    """Arguments that are owned together: exactly these, in this order, and no other of these names.

    ``adds`` are set members that must be in a merging argument (the rest of its value is foreign);
    ``drops`` are members that must not be in it. A group without arguments wants its names absent.
    ``live_by`` names the resource that judges whether the group is live, when it is not the command line;
    ``told_by_others`` are the members of ``adds`` of which another resource judges that.
    """

    path: str
    names: frozenset[str]
    arguments: tuple[str, ...] = ()
    adds: tuple[str, ...] = ()
    drops: tuple[str, ...] = ()
    spelling: str = ""
    live_by: str = ""
    told_by_others: tuple[str, ...] = ()

    @property
    def on_the_line(self) -> Group:
        """The part of the group that the running kernel's command line tells."""
        adds = tuple(one for one in self.adds if one not in self.told_by_others)
        if adds == self.adds:
            return self
        return replace(self, adds=adds, drops=(), told_by_others=(), live_by=self.live_by or ("" if adds else "others"))

    def of(self, arguments: Iterable[str]) -> tuple[str, ...]:
        """The arguments of a line that belong to this group."""
        return tuple(one for one in arguments if name_of(one) in self.names)

    def wanted(self, foreign: Iterable[str]) -> tuple[str, ...]:
        """The arguments that a line should have for this group, given what others put there.

        >>> ids = Group("x", frozenset({"vfio_pci.ids"}), adds=("10de:2330",), spelling="vfio-pci.ids")
        >>> ids.wanted(["vfio-pci.ids=10de:1af1"])
        ('vfio-pci.ids=10de:1af1,10de:2330',)
        """
        if not self.merges:
            return self.arguments
        members: list[str] = []
        for argument in self.of(foreign):
            members.extend(one for one in (value_of(argument) or "").split(",") if one)
        for member in self.adds:
            members = [one for one in members if not _same_option(one, member)]
            members.append(member)
        kept = [one for one in dict.fromkeys(members) if one not in self.drops]
        return (f"{self.spelling}={','.join(kept)}",) if kept else ()

    @property
    def merges(self) -> bool:
        """True when the group adds to, or takes from, a value that others share."""
        return bool(self.adds or self.drops)

    def met_by(self, arguments: Iterable[str]) -> bool:
        """True when a line has this group as wanted: nothing missing, nothing twice, nothing contrary."""
        found = self.of(arguments)
        if not self.merges:
            return tuple(map(_comparable, found)) == tuple(map(_comparable, self.arguments))
        wanted = self.wanted(found)
        return len(found) == len(wanted) and [_members(one) for one in found] == [_members(one) for one in wanted]


def _members(argument: str) -> frozenset[str]:
    return frozenset((value_of(argument) or "").split(","))


def _comparable(argument: str) -> tuple[str, str | None]:
    value = value_of(argument)
    return name_of(argument), value.strip('"') if value else value


def _same_option(one: str, other: str) -> bool:
    """True for two spellings of one sub-option: ``realloc`` and ``realloc=on``; never for plain ids."""
    named = "=" in one or "=" in other
    return one == other or (named and one.split("=", 1)[0] == other.split("=", 1)[0])


@dataclass(frozen=True)
class Line:
    """The command line that one boot entry gives to its kernel."""

    label: str
    arguments: tuple[str, ...]
    fallback: bool = False
    length: int = field(default=0)


def without(arguments: Sequence[str], names: Iterable[str]) -> tuple[str, ...]:
    """A line without the arguments of the given names; the rest keeps order and repeats."""
    gone = frozenset(names)
    return tuple(one for one in arguments if name_of(one) not in gone)
