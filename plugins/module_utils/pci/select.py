# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices are selected, not listed: from what the inventory says of a device to the functions of one host. Pure.

Every condition of a selector holds for what it matches. A VF is matched through its PF (``vfs_of``) or when the
selector names it itself (address, port or netdev), never beside its PF: what a selector matches must not change by
making VFs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from ..core.change import Absent, Unreadable
from ..core.errors import HostRefused, IntentError, Problem, UnreadableState
from ..core.schema import Field, parse_fields
from .address import Address, address_in
from .tree import Function, Sriov, Tree

# Why a function cannot be taken; empty: it can.
Only = Callable[[Function], str]

_SHOWN = 8  # candidates in one message


def _check_id(path: str, text: str) -> str:
    """Four hexadecimal digits in lower case, as lspci prints them; 0x in front is fine."""
    digits = text.strip().lower()
    digits = digits[2:] if digits.startswith("0x") else digits
    if re.fullmatch(r"[0-9a-f]{4}", digits) is None:
        raise _wrong(path, "is not a PCI id", text, "four hexadecimal digits, such as 15b3")
    return digits


def _check_class(path: str, text: str) -> str:
    """Four digits (base class and subclass) or six (with the programming interface)."""
    digits = text.strip().lower()
    digits = digits[2:] if digits.startswith("0x") else digits
    if re.fullmatch(r"[0-9a-f]{4}([0-9a-f]{2})?", digits) is None:
        raise _wrong(path, "is not a PCI class", text, "four or six hexadecimal digits, such as 0302")
    return digits


def _check_port(path: str, text: str) -> str:
    """A place as host_topology_info shows it."""
    place = text.strip().lower()
    place = place if place.startswith("pci") else f"pci{place}"
    if re.fullmatch(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}(/[01][0-9a-f]\.[0-7])+(/vf[0-9]+)?", place) is None:
        raise _wrong(
            path, "is not a place", text, "root bus, then device.function of each step, such as pci0000:20/00.0/00.0"
        )
    return place


def _check_address(path: str, text: str) -> str:
    return str(address_in(path, text))


def _check_name(path: str, text: str) -> str:
    if not text.strip():
        raise IntentError([Problem(path, "is empty", "Give a value, or leave the line out.")])
    return text.strip()


def _wrong(path: str, fact: str, found: str, wanted: str) -> IntentError:
    return IntentError([Problem(path, fact, "Correct the inventory.", found=repr(found), wanted=wanted)])


def check_some(path: str, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    """The check of an option that is a selector: an empty one would match every device of the host."""
    if all(value is None for value in mapping.values()):
        raise IntentError(
            [Problem(path, "selects nothing in particular", f"Give at least one of {', '.join(mapping)}.")]
        )
    return mapping


_OWN_FIELDS: tuple[Field, ...] = (
    Field("vendor", "str", ("Vendor id, four hexadecimal digits in quotes, such as V(15b3).",), check=_check_id),
    Field("device", "str", ("Device id, four hexadecimal digits in quotes.",), check=_check_id),
    Field("subsystem_vendor", "str", ("Vendor id of the subsystem.",), check=_check_id),
    Field("subsystem_device", "str", ("Device id of the subsystem.",), check=_check_id),
    Field(
        "class",
        "str",
        ("Class code in quotes: four digits (V(0302) is a 3D controller), or six with the programming interface.",),
        check=_check_class,
    ),
    Field("address", "str", ("PCI address, such as V(0000:3b:00.0).",), check=_check_address),
    Field(
        "serial",
        "str",
        ("Serial number: of the PCI device, as lspci prints it, or the drive's own.",),
        check=_check_name,
    ),
    Field(
        "port",
        "str",
        (
            "Where the device is plugged: its root bus, then device and function of each step down to it,",
            "as M(vela.gpudirect.host_topology_info) shows it. It stays the same when buses are renumbered.",
        ),
        check=_check_port,
    ),
    Field("numa_node", "int", ("NUMA node that the kernel tells of the device.",), minimum=0),
    Field(
        "netdev",
        "str",
        ("Name of its network device. Devices without a network driver have none.",),
        check=_check_name,
    ),
)
SELECT_FIELDS: tuple[Field, ...] = (
    *_OWN_FIELDS,
    Field(
        "vfs_of",
        "dict",
        ("The VFs of the PFs that are selected in here; what stands beside it must hold for the VFs.",),
        fields=_OWN_FIELDS,
        check=check_some,
    ),
)

# Conditions by which a VF is meant itself.
_NAMES_ONE = ("address", "port", "netdev")


@dataclass(frozen=True)
class Selector:
    """A checked selector: the conditions that were given, as canonical text (numbers for NUMA nodes), by field name."""

    conditions: tuple[tuple[str, Union[str, int]], ...] = ()
    vfs_of: Union[Selector, None] = None

    def get(self, name: str) -> Union[str, int, None]:
        """The value that a condition wants, if it was given."""
        return dict(self.conditions).get(name)

    def __str__(self) -> str:
        said = [f"{name} {value}" for name, value in self.conditions]
        return ", ".join([*said, f"VFs of ({self.vfs_of})"] if self.vfs_of else said)


def selector(path: str, mapping: Mapping[str, Any]) -> Selector:
    """The selector that an inventory mapping means; IntentError with every problem at once otherwise."""
    values = parse_fields(SELECT_FIELDS, mapping, f"{path}.")
    check_some(path, values)
    pfs = values.pop("vfs_of")
    own = tuple((name, value) for name, value in values.items() if value is not None)
    return Selector(own, None if pfs is None else selector(f"{path}.vfs_of", pfs))


# Matching --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Miss:
    """Why a function is not matched: it has another value, it has nothing of the kind, or it is unknown what it has."""

    name: str
    why: str
    lacks: bool = False
    unknown: bool = False


_Found = Union[str, tuple[str, ...], Absent, Unreadable]
_LABELS = {"numa_node": "NUMA node", "netdev": "network device", "subsystem_vendor": "subsystem vendor"}


def matches(selector: Selector, tree: Tree) -> tuple[Function, ...]:
    """The functions for which every condition is known to hold, by address; VFs of PFs by PF and VF number."""
    return tuple(one for one, misses in _judged(selector, tree, None) if not misses)


def chosen(
    path: str, selector: Selector, tree: Tree, expect: int | None = None, *, only: Only | None = None
) -> tuple[Function, ...]:
    """The functions that a selector matches, where that is what the inventory can have meant.

    At least one, or exactly ``expect``. ``only`` says why a function is not of the kind that is looked for. Raises
    HostRefused with the candidates, UnreadableState where a condition cannot be decided.
    """
    if selector.vfs_of is not None and expect != 0:
        chosen(f"{path}.vfs_of", selector.vfs_of, tree, only=_no_pf)
    judged = _judged(selector, tree, only)
    found = tuple(one for one, misses in judged if not misses)
    unknown = [(one, misses) for one, misses in judged if misses and all(miss.unknown for miss in misses)]
    if found:  # a serial number is one device's, so that of another need not be known
        unknown = [(one, misses) for one, misses in unknown if any(miss.name != "serial" for miss in misses)]
    if unknown:
        raise UnreadableState([_undecided(path, selector, unknown)])
    if not found and expect != 0:
        raise HostRefused([_none(path, selector, tree, judged, expect)])
    if expect is not None and len(found) != expect:
        raise HostRefused([_other_number(path, selector, judged, expect)])
    return found


def _no_pf(function: Function) -> str:
    return "" if function.is_pf else "it is no PF"


def _judged(selector: Selector, tree: Tree, only: Only | None) -> list[tuple[Function, list[_Miss]]]:
    pfs = [] if selector.vfs_of is None else [one for one in matches(selector.vfs_of, tree) if one.is_pf]
    judged = [(one, list(_misses(selector, one, tree, pfs))) for one in _in_order(tree, pfs)]
    if only is not None:
        for one, misses in judged:
            misses += [_Miss("", why) for why in (only(one),) if why]
    return judged


def _in_order(tree: Tree, pfs: Sequence[Function]) -> Iterator[Function]:
    """All functions, the VFs of these PFs first and by VF number."""
    vfs = [vf for pf in pfs for vf in tree.vfs(pf)]
    yield from vfs
    first = {vf.address for vf in vfs}
    yield from (one for one in tree if one.address not in first)


def _misses(selector: Selector, function: Function, tree: Tree, pfs: Sequence[Function]) -> Iterator[_Miss]:
    wants_any = selector.vfs_of is None and any(selector.get(name) for name in _NAMES_ONE)
    if "physfn" in function.unread and not wants_any:
        yield _Miss("vfs_of", f"its PF cannot be read: {function.unread['physfn']}", unknown=True)
    elif selector.vfs_of is not None and function.physfn not in [pf.address for pf in pfs]:
        yield _Miss("vfs_of", f"its PF is {function.physfn}" if function.is_vf else "it is no VF")
    elif selector.vfs_of is None and function.is_vf and not wants_any:
        yield _Miss("vfs_of", "it is a VF (vfs_of selects those)")
    for name, wanted in selector.conditions:
        found = _LOOK[name](function, tree)
        label = _LABELS.get(name, name.replace("_", " "))
        if isinstance(found, Unreadable):
            yield _Miss(name, f"its {label} cannot be read: {found.cause}", unknown=True)
        elif isinstance(found, Absent) or not found:
            yield _Miss(name, f"it has no {label}", lacks=True)
        elif not _meets(name, wanted, found):
            yield _Miss(name, f"its {label} is {found if isinstance(found, str) else ' and '.join(found)}")


def _netdevs(function: Function, _tree: Tree) -> _Found:
    if "netdevs" in function.unread:
        return Unreadable(function.unread["netdevs"])
    return tuple(one.name for one in function.ports)


def _node(function: Function, _tree: Tree) -> _Found:
    return str(function.numa_node) if isinstance(function.numa_node, int) else function.numa_node


def _port(function: Function, tree: Tree) -> _Found:
    place = tree.port(function)
    return Unreadable(f"all that is known is {place}") if "?" in place else place


# What a function has where a condition looks.
_LOOK: Mapping[str, Callable[[Function, Tree], _Found]] = {
    "vendor": lambda function, _tree: f"{function.vendor:04x}",
    "device": lambda function, _tree: f"{function.device:04x}",
    "subsystem_vendor": lambda function, _tree: f"{function.subsystem_vendor:04x}",
    "subsystem_device": lambda function, _tree: f"{function.subsystem_device:04x}",
    "class": lambda function, _tree: f"{function.class_code:06x}",
    "address": lambda function, _tree: str(function.address),
    "serial": lambda function, _tree: function.serial,
    "port": _port,
    "numa_node": _node,
    "netdev": _netdevs,
}


def _meets(name: str, wanted: Union[str, int], found: Union[str, tuple[str, ...]]) -> bool:
    if isinstance(found, tuple):
        return wanted in found
    if name == "class":
        return found.startswith(str(wanted))
    if name == "serial":
        return _plain(found) == _plain(str(wanted))
    return found == str(wanted)


def _plain(serial: str) -> str:
    """A serial number without what tools and people put between its digits."""
    return re.sub(r"[\s:-]", "", serial).lower()


# What is said when it cannot be meant ----------------------------------------------------


def described(function: Function) -> str:
    """One function in a list of candidates."""
    parts = [function.ids, f"class {function.class_code:06x}"]
    parts.append(f"driver {function.driver}" if isinstance(function.driver, str) else "no driver")
    parts += [f"netdev {one.name}" for one in function.ports]
    parts += [f"serial {function.serial}"] if isinstance(function.serial, str) else []
    return f"{function.address} ({', '.join(parts)})"


def _listed(lines: Sequence[str]) -> str:
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return "; ".join([*lines[:_SHOWN], *more])


def _near(selector: Selector, judged: Sequence[tuple[Function, list[_Miss]]]) -> list[str]:
    """The functions that fail in the fewest conditions, each with what it fails in; first those with another value."""
    looked_at = [
        (one, misses)
        for one, misses in judged
        if misses and (not one.is_bridge or str(selector.get("class") or "").startswith("06"))
    ]
    fewest = min((len(misses) for _one, misses in looked_at), default=0)
    near = [(one, misses) for one, misses in looked_at if len(misses) == fewest]
    near.sort(key=lambda pair: sum(miss.lacks for miss in pair[1]))
    return [f"{described(one)}: {' and '.join(miss.why for miss in misses)}" for one, misses in near]


def _none(
    path: str, selector: Selector, tree: Tree, judged: Sequence[tuple[Function, list[_Miss]]], expect: int | None
) -> Problem:
    wanted = str(selector) if expect is None else f"{expect} with {selector}"
    advice = "Correct the selector, or see whether the device is in its slot and switched on."
    if selector.vfs_of is not None:
        pfs = [one for one in matches(selector.vfs_of, tree) if one.is_pf]
        if not any(tree.vfs(pf) for pf in pfs):
            found = _listed([f"{pf.address} has {_vf_count(pf)}" for pf in pfs])
            return Problem(path, "matches no device: its PFs have no VFs", "Ask for VFs in sriov_ports.", found, wanted)
    near = _near(selector, judged)
    found = f"nearest: {_listed(near)}" if near else "no device to choose from"
    if tree.unread:
        found += f"; not readable: {_listed([f'{address}: {cause}' for address, cause in sorted(tree.unread.items())])}"
    return Problem(path, "matches no device", advice, found, wanted)


def _vf_count(pf: Function) -> str:
    return f"{pf.sriov.enabled} of {pf.sriov.total} VFs" if isinstance(pf.sriov, Sriov) else "unreadable VFs"


def _other_number(
    path: str, selector: Selector, judged: Sequence[tuple[Function, list[_Miss]]], expect: int
) -> Problem:
    matched = [described(one) for one, misses in judged if not misses]
    devices = f"{len(matched)} device{'s' if len(matched) != 1 else ''}"
    found = f"{len(matched)}: {_listed(matched)}"
    if len(matched) < expect:
        near = _near(selector, judged)
        found += f"; nearest others: {_listed(near)}" if near else ""
        advice = "See whether all devices are in their slots and switched on, or correct expect."
        return Problem(path, f"matches only {devices}", advice, found, f"{expect} with {selector}")
    advice = "Narrow the selector, or correct expect."
    return Problem(path, f"matches {devices}", advice, found, f"{expect} with {selector}")


def _undecided(path: str, selector: Selector, unknown: Sequence[tuple[Function, list[_Miss]]]) -> Problem:
    lines = [f"{described(one)}: {' and '.join(miss.why for miss in misses)}" for one, misses in unknown]
    advice = "Run as root, or select by something that can be read."
    return Problem(path, "cannot be decided for every device", advice, _listed(lines), str(selector))


def addresses_in(path: str, texts: Sequence[str]) -> list[str]:
    """The check of an option that is a list of addresses: each in canonical form and once."""
    problems: list[Problem] = []
    addresses: list[Address] = []
    for index, text in enumerate(texts):
        try:
            address = address_in(f"{path}[{index}]", text)
        except IntentError as error:
            problems.extend(error.problems)
            continue
        if address in addresses:
            problems.append(Problem(f"{path}[{index}]", f"{address} is given twice", "Remove one of them."))
        addresses.append(address)
    if problems:
        raise IntentError(problems)
    return [str(address) for address in addresses]
