# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From entries to the devices of one host: each device once, and each the one that it was when it was recorded. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ..core.change import Absent, Deferred
from ..core.errors import GpudirectError, Problem, UnreadableState
from ..pci.address import Address
from ..pci.identity import differences, identity
from ..pci.select import chosen, matches
from ..pci.tree import Function, Tree
from ..vf.intent import Entry as Port
from .coming import problems_of, selected_vfs
from .intent import Entry

_DEVICE = "pci_driver["
_IDS = ("vendor", "device", "subsystem_vendor", "subsystem_device")


@dataclass(frozen=True)
class Device:
    """One device and the entry that it belongs to. ``anew``: another device was recorded at its address, and that is meant."""

    entry: Entry
    function: Function
    anew: bool = False

    @property
    def address(self) -> str:
        """Its address as text."""
        return str(self.function.address)

    @property
    def driver(self) -> str:
        """The driver that it is to have."""
        return self.entry.driver


@dataclass(frozen=True)
class Choice:
    """The devices by address, what waits for VFs, the PFs whose VFs are about to be made anew, and what cannot be meant.

    Devices that something speaks against are left out.
    """

    devices: tuple[Device, ...] = ()
    deferred: tuple[Deferred, ...] = ()
    remade: frozenset[str] = frozenset()
    problems: tuple[Problem, ...] = ()

    @cached_property
    def _by_address(self) -> dict[Address, Device]:
        return {one.function.address: one for one in self.devices}

    def of(self, address: Address) -> Device | None:
        """The device at an address, if an entry selects it."""
        return self._by_address.get(address)


def record_of(address: Address | str) -> str:
    """The change and record path of a device."""
    return f"{_DEVICE}{address}]"


def recorded(owned: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The records of devices by address."""
    return {
        path[len(_DEVICE) : -1]: record
        for path, record in owned.items()
        if path.startswith(_DEVICE) and "identity" in record
    }


def with_known_serials(tree: Tree, owned: Mapping[str, Any]) -> Tree:
    """The tree with the serial numbers of drives that the driver they have now does not tell.

    The rest of what is known of such a device is still compared.
    """
    functions = dict(tree.functions)
    for text, record in recorded(owned).items():
        function, serial = functions.get(Address.parse(text)), record["identity"].get("serial")
        if function is not None and serial and isinstance(function.serial, Absent) and not function.is_vf:
            told = replace(function, serial=serial)
            if not differences(record["identity"], told, tree):
                functions[function.address] = told
    return replace(tree, functions=functions)


def candidates(entries: Sequence[Entry], tree: Tree) -> dict[Address, str]:
    """What the entries match, whether or not that can be meant: wanted driver by address. For readers."""
    return {one.address: entry.driver for entry in entries for one in matches(entry.selector, tree)}


def choose(
    entries: Sequence[Entry],
    ports: Sequence[Port],
    replaced: Sequence[str],
    tree: Tree,
    owned: Mapping[str, Any],
    *,
    passing: frozenset[int],
) -> Choice:
    """The devices of every entry, and all that speaks against any of them.

    ``passing`` are the IOMMU groups that the next boot does not form again.
    """
    problems: list[Problem] = []
    kinds: set[type[GpudirectError]] = set()
    records = recorded(owned)
    devices: dict[Address, Device] = {}
    deferred: list[Deferred] = []
    remade: set[str] = set()
    for entry in entries:
        vfs = selected_vfs(entry, ports, tree)
        refused, made = [*problems_of(entry, vfs, tree, passing)], [one for one in vfs if one.made]
        problems += refused
        remade |= {str(one.pf.address) for one in made}
        if made:
            why = f"{entry.path} ({entry.name}): {'; '.join(one.why for one in made)}"
            deferred.append(Deferred("pci_driver", "sriov", why))
        try:
            if made or refused:  # what there will be is not there yet
                found = tuple(one for one in matches(entry.selector, tree) if str(one.physfn) not in remade)
            else:
                found = chosen(f"{entry.path}.select", entry.selector, tree, entry.expect)
        except GpudirectError as error:
            problems.extend(error.problems)
            kinds.add(type(error))
            # One that is missing, or one too many, says nothing against those that were set up here before.
            found = tuple(one for one in matches(entry.selector, tree) if str(one.address) in records)
        for function in found:
            other = devices.get(function.address)
            if other:
                fact = f"selects {function.address}, which {other.entry.path} selects too"
                problems.append(Problem(f"{entry.path}.select", fact, "Narrow one of the two."))
                continue
            wrong, anew = _judged(entry, function, replaced, tree, records)
            problems.extend(wrong)
            if not wrong:
                devices[function.address] = Device(entry, function, anew)
    if kinds == {UnreadableState}:
        raise UnreadableState(problems)
    chosen_ones = tuple(devices[address] for address in sorted(devices))
    return Choice(chosen_ones, tuple(deferred), frozenset(remade), tuple(problems))


def _judged(
    entry: Entry, function: Function, replaced: Sequence[str], tree: Tree, records: Mapping[str, Mapping[str, Any]]
) -> tuple[list[Problem], bool]:
    """Whether it is the device that it is taken for. Second value: it is another one, on purpose."""
    if function.is_bridge:
        fact = f"selects {function.address}, a bridge, which carries others"
        return [Problem(f"{entry.path}.select", fact, "Select what is below it.")], False
    meant = {str(function.address), str(function.physfn)} & set(replaced)
    record = records.get(str(function.address))
    if record is not None:
        found = differences(record["identity"], function, tree)
        if not found:
            return [], False
        fact = f"{function.address} is not the device that was recorded there: {' and '.join(found)}"
    else:
        before = _elsewhere(function, tree, records)
        if before is None:
            return [], False
        meant |= {before} & set(replaced)
        fact = f"{function.address} is the device that was recorded at {before}"
    if meant:
        return [], True
    advice = "See what was replaced, plugged elsewhere or renumbered. Put the address into gpudirect_replaced when it is meant."
    return [Problem(f"{entry.path}.select", fact, advice)], False


def _elsewhere(function: Function, tree: Tree, records: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The address at which this very device is on record, where it is no longer: plugged elsewhere, or renumbered."""
    now = identity(function, tree)
    for text, record in sorted(records.items()):
        kept, address = record["identity"], Address.parse(text)
        there = tree.get(address)
        if there is not None and not differences(kept, there, tree):
            continue
        renumbered = "port" in kept and not differences(kept, function, tree)
        # All functions of a card have its serial number, and so have its VFs.
        alike = not function.is_vf and address.function == function.address.function
        serial = kept.get("serial")
        moved = alike and serial is not None and all(now.get(name) == kept[name] for name in (*_IDS, "serial"))
        if renumbered or moved:
            return text
    return None
