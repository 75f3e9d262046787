# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The option ``sriov_ports``: its table, and what it asks for, VF by VF. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from ..core.errors import IntentError, Problem
from ..core.schema import Field, parse_fields, wrong_type
from ..pci.select import SELECT_FIELDS, Selector, selector
from .attributes import GUIDS, Value
from .mac import canonical_guid, canonical_mac

UNMANAGED = "unmanaged"
STABLE, KEPT = "stable", "kept"
_MOST_VFS = 0xFFFF  # NumVFs of the capability has 16 bits
_NUMBER = re.compile(r"0|[1-9][0-9]{0,4}")


def _check_mac(path: str, text: str) -> str:
    return text if text in (STABLE, KEPT) else canonical_mac(path, text)


_VF_FIELDS = (
    Field("trust", "bool", ("Whether the VF may change its address and filters (C(trust)). Omitted: left.",)),
    Field("spoofchk", "bool", ("Whether frames with another source address are dropped. Omitted: left.",)),
    Field(
        "link_state",
        "str",
        ("What link the VF sees: the port's (V(auto)), always one, or none. Omitted: left.",),
        choices=("auto", "enable", "disable"),
    ),
    Field(
        "vlan",
        "int",
        ("VLAN that the port puts the VF's frames into; V(0) is none. Omitted: left.",),
        minimum=0,
        maximum=4094,
    ),
    Field(
        "qos",
        "int",
        ("Priority of these frames in the VLAN tag; needs a VLAN. Omitted: left.",),
        minimum=0,
        maximum=7,
    ),
    Field(
        "vlan_protocol",
        "str",
        ("Protocol of that tag; not every driver takes V(802.1ad). Omitted: left.",),
        choices=("802.1q", "802.1ad"),
    ),
    Field("min_tx_rate", "int", ("Rate in Mb/s that the VF is guaranteed; V(0) is none. Omitted: left.",), minimum=0),
    Field("max_tx_rate", "int", ("Rate in Mb/s that the VF may send at; V(0) is any. Omitted: left.",), minimum=0),
)
_DEFAULTS_FIELDS = (
    *_VF_FIELDS,
    Field(
        "mac",
        "str",
        (
            "MAC addresses of VFs that have none of their own in O(sriov_ports[].vf): V(stable) derives them from the port's",
            "permanent address and the number of the VF, the same at every boot; V(kept) leaves what the driver gives.",
        ),
        default=STABLE,
        choices=(STABLE, KEPT),
    ),
)
_ONE_FIELDS = (
    *_VF_FIELDS,
    Field("mac", "str", ("MAC address of this VF, V(stable) or V(kept).",), check=_check_mac),
    Field("node_guid", "str", ("Node GUID, where the port is an InfiniBand one.",), check=canonical_guid),
    Field("port_guid", "str", ("Port GUID, where the port is an InfiniBand one.",), check=canonical_guid),
)


def _check_numbered(path: str, mapping: Mapping[Any, Any]) -> dict[int, dict[str, Any]]:
    """Options by VF number. JSON and INI know numbers as keys only as text, so text is fine."""
    problems: list[Problem] = []
    numbered: dict[int, dict[str, Any]] = {}
    for key, value in mapping.items():
        here = f"{path}[{key}]"
        try:
            number = _number(path, key)
            if number in numbered:
                raise IntentError([Problem(here, f"VF {number} is named twice", "Give each VF one entry.")])
            if not isinstance(value, Mapping):
                raise wrong_type(here, value, "a mapping")
            numbered[number] = parse_fields(_ONE_FIELDS, value, f"{here}.")
        except IntentError as error:
            problems.extend(error.problems)
    if problems:
        raise IntentError(problems)
    return numbered


def _number(path: str, key: Any) -> int:
    if isinstance(key, bool) or not _NUMBER.fullmatch(str(key)):
        raise wrong_type(path, key, "VF numbers as keys, from 0")
    return int(key)


# A port is a PF.
_PF_FIELDS = tuple(one for one in SELECT_FIELDS if one.name != "vfs_of")


def _check_select(path: str, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    if all(value is None for value in mapping.values()):
        names = ", ".join(entry.name for entry in _PF_FIELDS)
        raise IntentError([Problem(path, "selects nothing in particular", f"Give at least one of {names}.")])
    return mapping


PORT_FIELDS = (
    Field(
        "select",
        "dict",
        ("Which ports: PFs that meet every condition given here. Each that is matched gets the same.",),
        required=True,
        fields=_PF_FIELDS,
        check=_check_select,
    ),
    Field(
        "vfs",
        "int",
        ("Number of VFs on each of these ports.",),
        required=True,
        minimum=0,
        maximum=_MOST_VFS,
    ),
    Field(
        "mtu",
        "int",
        ("MTU of the port itself, which those of its VFs cannot exceed. Omitted: left.",),
        minimum=68,
        maximum=65535,
    ),
    Field(
        "autoprobe",
        "bool",
        (
            "Whether the kernel binds new VFs to their network driver.",
            "V(false) leaves them unbound for vfio-pci. VFs that are there already stay as they are.",
        ),
        default=False,
    ),
    Field(
        "eswitch",
        "str",
        ("Mode of the embedded switch. It is changed while there are no VFs, so those that are there are made anew.",),
        default=UNMANAGED,
        choices=("legacy", "switchdev", UNMANAGED),
    ),
    Field(
        "vf_defaults",
        "dict",
        ("Attributes of every VF of these ports.",),
        default={},
        fields=_DEFAULTS_FIELDS,
    ),
    Field(
        "vf",
        "dict",
        (
            "Attributes by VF number, such as V({0: {vlan: 100, qos: 3}}); they come before O(sriov_ports[].vf_defaults).",
            "Besides the options there, a VF may have its C(mac) as an address, and C(node_guid) and C(port_guid).",
        ),
        default={},
        check=_check_numbered,
    ),
)


# Also an option of what has to know which VFs are still to come.
PORTS_FIELD = Field(
    "sriov_ports",
    "list",
    (
        "SR-IOV ports and their VFs, one entry for all ports that are to be alike.",
        "Ports that no entry selects are not managed; what was changed on them before goes back.",
    ),
    default=[],
    elements="dict",
    fields=PORT_FIELDS,
)


@dataclass(frozen=True)
class Entry:
    """One entry of ``sriov_ports``. ``attributes`` are those of each VF; ``mac`` may still be ``stable``."""

    path: str
    selector: Selector
    vfs: int
    mtu: Union[int, None]
    autoprobe: bool
    eswitch: Union[str, None]
    attributes: tuple[dict[str, Value], ...]
    own_macs: frozenset[int]  # VFs whose MAC stands in their own entry


def entries_of(given: Sequence[Any]) -> tuple[Entry, ...]:
    """What the entries ask for; IntentError with all mistakes of all entries at once."""
    problems: list[Problem] = []
    entries: list[Entry] = []
    checked: list[tuple[str, Mapping[str, Any]]] = []
    for index, one in enumerate(given):
        path = f"sriov_ports[{index}]"
        if one is None:  # wrong by itself, which is said already
            continue
        try:
            if not isinstance(one, Mapping):
                raise wrong_type(path, one, "a mapping")
            values = parse_fields(PORT_FIELDS, one, f"{path}.")
            checked.append((path, values))
            problems.extend(_contradictions(path, values))
            entries.append(_entry(path, values))
        except IntentError as error:
            problems.extend(error.problems)
    problems.extend(_duplicates(checked))
    if problems:
        raise IntentError(problems)
    return tuple(entries)


def _entry(path: str, values: Mapping[str, Any]) -> Entry:
    own = values["vf"]
    attributes = tuple(_merged(values, number) for number in range(values["vfs"]))
    return Entry(
        path,
        selector(f"{path}.select", values["select"]),
        values["vfs"],
        values["mtu"],
        values["autoprobe"],
        None if values["eswitch"] == UNMANAGED else values["eswitch"],
        attributes,
        frozenset(number for number, one in own.items() if one["mac"] not in (None, KEPT)),
    )


def _merged(values: Mapping[str, Any], number: int) -> dict[str, Value]:
    """The attributes of one VF: its own before those of all; without those that are left."""
    both = {**_given({"mac": STABLE, **values["vf_defaults"]}), **_given(values["vf"].get(number, {}))}
    if both.get("mac") == KEPT:
        del both["mac"]
    return both


def _given(values: Mapping[str, Any]) -> dict[str, Value]:
    return {name: value for name, value in values.items() if value is not None}


def _contradictions(path: str, values: Mapping[str, Any]) -> Iterator[Problem]:
    yield from _at_odds(f"{path}.vf_defaults", _given(values["vf_defaults"]))
    for number in sorted(values["vf"]):
        here = f"{path}.vf[{number}]"
        if number >= values["vfs"]:
            wanted = f"0 to {values['vfs'] - 1}" if values["vfs"] else "no VF, since vfs is 0"
            yield Problem(here, "there is no such VF", "Raise vfs or take the entry out.", str(number), wanted)
        if _given(values["vf"][number]):
            inherited = list(_at_odds(here, _given(values["vf_defaults"])))
            yield from (one for one in _at_odds(here, _merged(values, number)) if one not in inherited)


def _at_odds(path: str, one: Mapping[str, Any]) -> Iterator[Problem]:
    """What cannot be meant together."""
    if one.get("qos") and not one.get("vlan"):
        yield Problem(f"{path}.qos", "there is no VLAN tag for the priority to be in", "Give a vlan, or drop qos.")
    if one.get("vlan_protocol") == "802.1ad" and not one.get("vlan"):
        yield Problem(
            f"{path}.vlan_protocol", "there is no VLAN for the protocol", "Give a vlan, or drop the protocol."
        )
    low, high = one.get("min_tx_rate", 0), one.get("max_tx_rate", 0)
    if high and low > high:
        advice = "Correct one of them."
        yield Problem(f"{path}.min_tx_rate", "is above max_tx_rate", advice, found=str(low), wanted=f"at most {high}")


def _duplicates(checked: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[Problem]:
    """The same address or GUID for two VFs, in one entry or in two."""
    for name in ("mac", *GUIDS):
        seen: dict[str, str] = {}
        for entry, values in checked:
            for number, one in sorted(values["vf"].items()):
                value, path = one[name], f"{entry}.vf[{number}].{name}"
                if value in (None, STABLE, KEPT):
                    continue
                if value in seen:
                    yield Problem(path, f"{value} is that of {seen[value]} too", "Give each VF its own.")
                seen.setdefault(value, path)
