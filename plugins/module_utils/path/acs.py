# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ACS words of ports as they are written: which word, by which way, and the boot argument that says them. Pure.

What a port shall have comes from the policy (``p2p.wanted_words``). Bits that the policy leaves alone, such as the egress
control of a firmware, stay what they were: the boot argument writes all seven, so it says them as they were found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from ..core.change import Absent, Text, Unreadable
from ..core.errors import Problem, UnreadableState
from ..pci import capabilities
from ..pci.address import Address
from ..pci.capabilities import Words
from ..pci.identity import differences
from ..pci.tree import Function, Tree
from .intent import AUTO, BOOT_ARGUMENT, BY_ID, PathIntent
from .policy import AcsWant

OPTION = "config_acs"
_ROOT = "Run as root on the host: only root may read more than 64 bytes of configuration space."
_SEVEN = 0x7F


@dataclass(frozen=True)
class Port:
    """A port on a judged path with its ACS words, what the policy wants there, and our record of it (empty: none)."""

    function: Function
    acs: Words
    want: AcsWant
    record: Mapping[str, Any]
    boot: str = ""  # of the running kernel

    @property
    def address(self) -> Address:
        """Where it is."""
        return self.function.address

    @property
    def path(self) -> str:
        """Its place in plans and records."""
        return path_of(self.address)

    @property
    def managed(self) -> int:
        """The bits that the policy decides about."""
        return self.want.set_bits | self.want.clear_bits

    @property
    def live_word(self) -> int:
        """The control word that the running kernel's port shall have.

        Bits that we set in this boot for an earlier intent, and that this one does not decide about, go back.
        """
        former = int(self.record.get("bits", 0)) & ~self.managed if self.set_in_this_boot else 0
        kept = (self.acs.control & ~former) | (int(self.record.get("before", 0)) & former)
        return self._with_policy(kept)

    @property
    def boot_word(self) -> int:
        """The control word that a boot shall give: in bits that are not ours, what was there when we came."""
        return self._with_policy(int(self.record.get("found", self.acs.control)))

    @property
    def set_in_this_boot(self) -> bool:
        """Whether we have written it since the last boot."""
        return bool(self.record) and self.record["boot"] == self.boot

    def _with_policy(self, word: int) -> int:
        # A bit that the port cannot have reads as zero whatever is written (PCI Express, ACS control register).
        return (word & ~self.managed) | (self.want.set_bits & self.acs.capability)


def path_of(address: Address) -> str:
    """The path of a port's ACS word in plans and records."""
    return f"pci_path[{address}].acs"


def shown(word: int) -> str:
    """An ACS word as setpci and lspci write it."""
    return f"0x{word:02x} ({' '.join(capabilities.acs_names(word)) or 'nothing'})"


def ports_of(tree: Tree, wants: Mapping[Address, AcsWant], owned: Mapping[str, Any], boot: str) -> list[Port]:
    """The ports that have a word to be written; UnreadableState where that is not known of one.

    Those without the capability are left out: they cannot be set, and rules judge them.
    """
    found: list[Port] = []
    unread: list[Problem] = []
    for address, want in wants.items():
        function = tree.functions[address]
        acs = function.capabilities.acs
        if isinstance(acs, Unreadable):
            unread.append(Problem(path_of(address), f"the ACS words of {want.why} cannot be read: {acs.cause}", _ROOT))
        elif isinstance(acs, Words):
            found.append(Port(function, acs, want, record_of(owned, function, tree), boot))
    if unread:
        raise UnreadableState(unread)
    return found


def record_of(owned: Mapping[str, Any], function: Function, tree: Tree) -> Mapping[str, Any]:
    """Our record of a port, if it is about this very port and not about one that had its address before."""
    record: Mapping[str, Any] = owned.get(path_of(function.address), {})
    return {} if differences(record.get("identity", {}), function, tree) else record


# By which way ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Method:
    """How words are set: by the boot argument (and live, where that is safe), or by registers alone; and why."""

    by_argument: bool
    why: str


def method_of(intent: PathIntent, kernel: Text) -> Method:
    """The way that an intent takes on a kernel, whose release is that of the running one.

    ``config_acs`` came with Linux 6.11; lists of several devices are right from 6.12.23 on in 6.12, and in 6.14 and
    newer (kernel.org change logs). Of other series, and of what distributions took over, nothing is known.
    """
    if intent.acs != AUTO:
        return Method(intent.acs == BOOT_ARGUMENT, f"pci_path_acs is {intent.acs}")
    if not isinstance(kernel, str):
        return Method(False, "the release of the kernel is not known")
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", kernel)
    version = tuple(int(part or 0) for part in match.groups()) if match else (0, 0, 0)
    if version >= (6, 14, 0) or (6, 12, 23) <= version < (6, 13, 0):
        return Method(True, f"kernel {kernel} takes lists in pci={OPTION}")
    return Method(
        False, f"kernel {kernel} is not known to take lists in pci={OPTION} (6.12.23 and later of 6.12, 6.14)"
    )


# The boot argument -----------------------------------------------------------------------


def member_of(ports: Sequence[Port], intent: PathIntent, tree: Tree) -> tuple[str, list[Problem]]:
    """The member of ``pci=`` that sets all ports, empty without any; and why it cannot be said in the wanted form.

    Flags have the highest bit first (Linux Documentation/admin-guide/kernel-parameters.txt, config_acs).
    """
    problems: list[Problem] = []
    if intent.acs_form == BY_ID:
        words, problems = _by_id(ports, tree)
    else:
        words = {str(port.address): port.boot_word for port in ports}
    said = ";".join(f"{word:07b}@{name}" for name, word in words.items())
    return (f"{OPTION}={said}" if said and not problems else ""), problems


def _by_id(ports: Sequence[Port], tree: Tree) -> tuple[dict[str, int], list[Problem]]:
    """A word for each kind of port, which every port of that kind in the machine may have."""
    kinds: dict[str, list[Port]] = {}
    for port in ports:
        kinds.setdefault(port.function.ids, []).append(port)
    words: dict[str, int] = {}
    problems: list[Problem] = []
    for ids, those in kinds.items():
        word = 0
        for port in those:
            word |= port.boot_word
        words[f"pci:{ids}"] = word
        against = [*_barring(word, those), *_others(word, those, ids, tree)]
        if against:
            fact = f"one word for all ports {ids} ({shown(word)}) is not what each of them may have"
            advice = f"Set it to address: {'; '.join(against)}."
            problems.append(Problem("pci_path_acs_form", fact, advice, found="id"))
    return words, problems


def _barring(word: int, ports: Iterable[Port]) -> list[str]:
    """The ports on judged paths whose policy does not let them have a word, or whose other bits it would change."""
    found = []
    for port in ports:
        left = _SEVEN & ~port.managed & port.acs.capability
        # Direct translation where the policy leaves it alone changes no untranslated request.
        if word & port.want.clear_bits or (word ^ port.boot_word) & left & ~0x40:
            found.append(f"{port.address} ({port.want.why}) is to have {shown(port.boot_word)}")
    return found


def _others(word: int, ports: Sequence[Port], ids: str, tree: Tree) -> list[str]:
    """The ports on no judged path: they keep what they have."""
    ours = {port.address for port in ports}
    found = []
    for one in tree:
        if one.address in ours or one.ids != ids:
            continue
        acs = one.capabilities.acs
        if isinstance(acs, Unreadable):
            found.append(f"what {one.address} has, which is on no judged path, cannot be read")
        elif not isinstance(acs, Absent) and acs.control != word & acs.capability:
            found.append(f"{one.address} is on no judged path and has {shown(acs.control)}")
    return found


def is_live(member: str, arguments: Text) -> bool:
    """Whether the running kernel was started with a member of ``pci=``."""
    if not member or not isinstance(arguments, str):
        return False
    words = [word.strip('"') for word in arguments.split()]
    return any(member in word[4:].strip('"').split(",") for word in words if word.startswith("pci="))


def as_plain(word: Union[int, None]) -> Union[str, None]:
    """A word in a plan."""
    return None if word is None else f"0x{word:02x}"
