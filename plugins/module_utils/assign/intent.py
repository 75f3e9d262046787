# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the inventory asks for: entries of devices with a driver each, and modules that must not be loaded. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from ..core.errors import IntentError, Problem
from ..core.schema import Field
from ..early.files import is_vfio, module_of, with_followers
from ..pci.select import SELECT_FIELDS, Selector, check_some, selector

VFIO_PCI = "vfio-pci"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,55}")
_LONGEST_LABEL = 64
# What a VFIO driver cannot be loaded without.
_UNDER_VFIO = frozenset(
    {"vfio", "vfio_pci", "vfio_pci_core", "vfio_iommu_type1", "vfio_virqfd", "irqbypass", "iommufd"}
)


def _check_name(path: str, text: str) -> str:
    """A name that the kernel could have given to a driver or a module."""
    if _NAME.fullmatch(text) is None:
        wanted = "letters, digits, - and _"
        raise IntentError([Problem(path, "is not a name", "Correct the inventory.", found=repr(text), wanted=wanted)])
    return text


def _check_label(path: str, text: str) -> str:
    """What messages can call an entry: a part of one line."""
    if text.strip() and text.isprintable() and len(text) <= _LONGEST_LABEL:
        return text
    wanted = f"1 to {_LONGEST_LABEL} printable characters in one line"
    raise IntentError([Problem(path, "is not a name", "Correct the inventory.", found=repr(text), wanted=wanted)])


def _check_names(path: str, texts: Sequence[str]) -> list[str]:
    problems: list[Problem] = []
    for index, text in enumerate(texts):
        try:
            _check_name(f"{path}[{index}]", text)
        except IntentError as error:
            problems.extend(error.problems)
    if problems:
        raise IntentError(problems)
    return [*texts]


def _check_select(path: str, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    if mapping.get("netdev") is not None:
        advice = "Select by address, port, serial or ids; host_topology_info tells them."
        raise IntentError([Problem(f"{path}.netdev", "names what goes away with the driver", advice)])
    return check_some(path, mapping)


DEVICES_FIELD = Field(
    "pci_driver_devices",
    "list",
    (
        "PCI devices that get a driver of your choice instead of the kernel's: GPUs, NVSwitches, VFs, drives.",
        "Each is taken at its address, at once where it is idle, and at every boot before any driver is loaded for it;",
        "VFs, which a boot does not have yet, when they are made. An entry that goes gives its devices back to the kernel.",
        "Whole IOMMU groups only: a group with a device that no entry selects and that another driver has is refused.",
    ),
    default=[],
    elements="dict",
    fields=(
        Field("name", "str", ("What the entry is called in messages.",), required=True, check=_check_label),
        Field(
            "select",
            "dict",
            (
                "Which devices: those that meet every condition given here.",
                "A network device's name goes with its driver, so O(pci_driver_devices[].select.netdev) cannot be used",
                "but for the PFs in O(pci_driver_devices[].select.vfs_of).",
            ),
            required=True,
            fields=SELECT_FIELDS,
            check=_check_select,
        ),
        Field("expect", "int", ("How many devices the entry must match. Omitted: at least one.",), minimum=1),
        Field(
            "driver",
            "str",
            ("Name of the driver, as in C(/sys/bus/pci/drivers).",),
            default=VFIO_PCI,
            check=_check_name,
        ),
    ),
)
BLACKLIST_FIELD = Field(
    "pci_driver_blacklist",
    "list",
    (
        "Kernel modules that must never be loaded on the host: not for a device, not by name, not as a dependency.",
        "V(nvidia) also means the modules that only work on top of it.",
        "Omitted: V(nouveau), V(nvidia), V(nvidiafb), V(nova_core) and V(nova_drm) where an entry selects devices of NVIDIA,",
        "else none. V([]) is none in any case.",
    ),
    elements="str",
    check=_check_names,
)


@dataclass(frozen=True)
class Entry:
    """One entry of ``pci_driver_devices``."""

    path: str
    name: str
    selector: Selector
    expect: Union[int, None]
    driver: str


def entries_of(given: Sequence[Union[Mapping[str, Any], None]]) -> tuple[Entry, ...]:
    """What checked entries ask for; IntentError with all contradictions at once. None stands for one that is wrong."""
    problems: list[Problem] = []
    entries: list[Entry] = []
    for index, values in enumerate(given):
        path = f"pci_driver_devices[{index}]"
        if values is None:
            continue
        twin = next((one for one in entries if one.name == values["name"]), None)
        if twin:
            fact = f"has the name of {twin.path}"
            problems.append(Problem(f"{path}.name", fact, "Give each entry its own.", found=repr(twin.name)))
        chosen = selector(f"{path}.select", values["select"])
        entries.append(Entry(path, values["name"], chosen, values["expect"], values["driver"]))
    if problems:
        raise IntentError(problems)
    return tuple(entries)


def blacklist_problems(modules: Sequence[str], entries: Sequence[Entry]) -> list[Problem]:
    """Modules that must not be loaded although an entry needs them."""
    barred = {
        module: f"pci_driver_blacklist[{index}]"
        for index, name in enumerate(modules)
        for module in with_followers([name])
    }
    needed = {module_of(entry.driver): entry for entry in entries}
    for entry in entries:
        if is_vfio(entry.driver):
            needed.update(dict.fromkeys(_UNDER_VFIO, entry))
    return [
        Problem(
            path, f"{module} is what {needed[module].path} needs", "Take it out of the list, or choose another driver."
        )
        for module, path in barred.items()
        if module in needed
    ]
