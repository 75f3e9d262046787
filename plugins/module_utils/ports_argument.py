# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of the kernel command line that sets ACS words of ports: one member of ``pci=``, for ``kernel_args``.

Whether the words are live is told by the registers, which ``pci_path`` looks at, and not by the running kernel's line: what
could be set at once needs no boot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from . import p2p
from .boot.cmdline import Group, name_of, value_of
from .core.errors import Problem
from .core.host import Host
from .core.owned import Owned
from .path import acs, facts
from .path.intent import UNMANAGED, PathIntent
from .path.policy import ISOLATES
from .pci.address import Address
from .pci_path import SCHEMA, paths_problems

NAME = "pci"
WRITTEN = "config_acs"  # in the record of kernel_args: the members that it has written
_OWNER = "pci_path_acs"


@dataclass(frozen=True)
class Ports:
    """The member that the machine's ports want, and what keeps it from being said.

    ``apart`` are the ports that keep devices apart from the next boot on and do not yet: IOMMU groups that they are in now are
    not those that the boot will form. A port that cannot is not among them.
    """

    by_argument: bool = False
    member: str = ""
    apart: frozenset[Address] = frozenset()
    problems: tuple[Problem, ...] = ()


def read(host: Host, intent: Union[PathIntent, None]) -> Ports:
    """The member for this machine; the machine is read only where one may be wanted."""
    if intent is None:
        return Ports()
    machine = facts.machine_of(host)
    if not acs.method_of(intent, machine.platform.kernel).by_argument:
        return Ports()
    problems = paths_problems(machine, intent)
    wants = p2p.wanted_words(machine, intent)
    records = Owned.load(host).of(SCHEMA.name)
    ports = acs.ports_of(machine.tree, wants, records, host.boot_id())
    member, others = acs.member_of(ports, intent, machine.tree)
    started = acs.is_live(member, machine.platform.arguments)
    apart = frozenset(port.address for port in ports if member and not started and _is_opened(port))
    return Ports(True, member, apart, (*problems, *others))


def _is_opened(port: acs.Port) -> bool:
    # Bits that were set in this boot came after its groups were formed.
    formed = int(port.record["before"]) if port.set_in_this_boot else port.acs.control
    wanted = port.want.set_bits & ISOLATES
    return bool(wanted & ~formed) and not wanted & ~port.acs.capability


def groups(
    intent: Union[PathIntent, None], ports: Ports, given: Sequence[Group], record: Mapping[str, Any]
) -> Iterator[Group]:
    """The group of ``pci``: with the member, and without those that were written before it.

    Where nothing else of the name is wanted, the former members go with the name itself.
    """
    member = ports.member if intent is not None else ""
    former = tuple(one for one in record.get(WRITTEN, ()) if one != member)
    if member:
        yield Group(_OWNER, frozenset({NAME}), adds=(member,), drops=former, spelling=NAME, told_by_others=(member,))
    elif former and any(NAME in one.names and one.adds for one in given):
        yield Group(_OWNER, frozenset({NAME}), drops=former, spelling=NAME)


def written(groups_of_host: Sequence[Group], record: Mapping[str, Any]) -> list[str]:
    """All members that were written, with those that are about to be: a run may be cut short between two entries."""
    now = [one for group in groups_of_host for one in group.told_by_others]
    return sorted({*record.get(WRITTEN, ()), *now})


def contradictions(wanted: str, arguments: Sequence[str], absent: Sequence[str]) -> Iterator[Problem]:
    """Options of ``kernel_args`` that would take the member away again."""
    if wanted == UNMANAGED:
        return
    for index, argument in enumerate(arguments):
        members = (value_of(argument) or "").split(",") if name_of(argument) == NAME else []
        if any(one.startswith((f"{acs.OPTION}=", "disable_acs_redir=")) for one in members):
            fact = f"contradicts {_OWNER}, which owns the ACS words of ports"
            yield Problem(f"kernel_args[{index}]", fact, "Give one of the two.", found=argument)
    for index, one in enumerate(absent):
        if name_of(one) == NAME:
            fact = f"contradicts {_OWNER}, which may need this name"
            yield Problem(f"kernel_args_absent[{index}]", fact, "Give one of the two.", found=one)
