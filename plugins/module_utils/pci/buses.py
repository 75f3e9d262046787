# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where functions sit, told by the bus numbers of bridges. For inputs that say it in no other way.

A bridge leads to its secondary bus; numbers grow on the way down, so a bridge that leads to its own bus or to a lower one is
nonsense and leads nowhere, and no loop can come about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Union

from .address import Address

Bus = tuple[int, int]  # domain and number
_Place = tuple[Union[Address, str, None], Union[Address, None]]
_BLIND = "the input does not say which bridge leads to bus {}"
_NONE = "no bridge of the input leads to bus {}, and nothing shows that it is a root bus"


@dataclass
class Positions:
    """Where each function sits. One whose position is not known is in ``unknown`` and has no parent."""

    parents: dict[Address, Address] = field(default_factory=dict)
    roots: dict[Address, str] = field(default_factory=dict)  # as the kernel calls root buses; missing: not known
    unknown: dict[Address, str] = field(default_factory=dict)
    nonsense: list[str] = field(default_factory=list)  # sentences


def positions(
    functions: Iterable[Address],
    bridges: Mapping[Address, Union[tuple[int, int], None]],
    root_buses: Iterable[Bus],
    pf_of: Mapping[Address, Address],
) -> Positions:
    """Where functions sit.

    ``bridges`` are those of them that are bridges, with secondary and subordinate bus (None: not known); ``root_buses`` those
    that are known to be root buses; ``pf_of`` the PFs of VFs, which may be on a bus that no bridge has as its secondary.
    """
    found, roots = Positions(), set(root_buses)
    sound = _sound(bridges, found)
    leads: dict[Bus, list[Address]] = {}
    for bridge, (secondary, _subordinate) in sound.items():
        leads.setdefault((bridge.domain, secondary), []).append(bridge)
    blind = {bridge.domain for bridge, numbers in bridges.items() if numbers is None}
    inside: dict[int, dict[Address, tuple[int, int]]] = {}
    for bridge, numbers in sound.items():
        inside.setdefault(bridge.domain, {})[bridge] = numbers
    # Parents have lower bus numbers than what is below them, so their own roots are known first.
    places: dict[Bus, _Place] = {}
    for one in sorted(functions):
        if one in pf_of:
            continue
        bus = (one.domain, one.bus)
        if bus not in places:
            around = _around(one.bus, inside.get(one.domain, {}))
            dark = one.domain in blind  # any bridge that does not say where it leads may lead there
            is_root = one.bus == 0 or (bus in roots and not dark)
            blank = _BLIND if dark else _NONE
            places[bus] = _place(bus, leads.get(bus, []), around, is_root=is_root, blank=blank)
        _settle(found, one, *places[bus])
    for vf, pf in pf_of.items():
        for values in (found.parents, found.roots, found.unknown):
            if pf in values:
                values[vf] = values[pf]  # type: ignore[assignment]
    return found


def _sound(bridges: Mapping[Address, Union[tuple[int, int], None]], found: Positions) -> dict[Address, tuple[int, int]]:
    """The bridges whose numbers make sense. Secondary bus 0 is that of a bridge that nobody has set up."""
    sound: dict[Address, tuple[int, int]] = {}
    for bridge, numbers in sorted(bridges.items()):
        if numbers is None or numbers[0] == 0:
            continue
        secondary, subordinate = numbers
        if bridge.bus < secondary <= subordinate <= 0xFF:
            sound[bridge] = numbers
        else:
            found.nonsense.append(
                f"{bridge} says that buses {secondary:02x} to {subordinate:02x} are below it, which cannot be; it is taken for a"
                " bridge that leads nowhere"
            )
    spans = sorted((one.domain, one.bus, secondary, last, one) for one, (secondary, last) in sound.items())
    for first, second in zip(spans, spans[1:]):
        if first[:2] == second[:2] and second[2] <= first[3]:
            found.nonsense.append(
                f"{first[4]} and {second[4]} both say that bus {second[2]:02x} is below them, which cannot be"
            )
    return sound


def _place(bus: Bus, leads: list[Address], around: Union[Address, None], *, is_root: bool, blank: str) -> _Place:
    """The bridge that leads to a bus, None for a root bus, or why it is not known; and the innermost bridge above."""
    number = f"{bus[1]:02x}"
    if len(leads) == 1:
        return leads[0], leads[0]
    if leads:
        return f"{' and '.join(map(str, leads[:4]))} say that they lead to bus {number}", None
    if around is not None:
        return f"the bridge that leads to bus {number} is not in the input", around
    return (None if is_root else blank.format(number)), None


def _around(bus: int, bridges: Mapping[Address, tuple[int, int]]) -> Union[Address, None]:
    """The innermost bridge below which a bus is."""
    found = [
        (last - first, bridge) for bridge, (first, last) in bridges.items() if bridge.bus < bus and first <= bus <= last
    ]
    return min(found)[1] if found else None


def _settle(found: Positions, one: Address, place: Union[Address, str, None], above: Union[Address, None]) -> None:
    if place is None:
        found.roots[one] = f"pci{one.domain:04x}:{one.bus:02x}"
    elif isinstance(place, str):
        found.unknown[one] = place
    else:
        found.parents[one] = place
    if above is not None and above in found.roots:
        found.roots[one] = found.roots[above]
