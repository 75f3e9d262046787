# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options about paths between GPUs and NICs: their table, and what they ask for. Pure.

What is judged (``p2p``) and what is written (``pci_path``, and for its boot argument ``kernel_args``) is one intent.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Union

from ..core.errors import IntentError, Problem
from ..core.schema import Field, Schema
from ..pci.select import SELECT_FIELDS, Selector, check_some, selector
from .finding import Kind
from .policy import MODES, PASSTHROUGH, POLICIES
from .rules import RELAXABLE

UNMANAGED, AUTO, BOOT_ARGUMENT, REGISTER = "unmanaged", "auto", "boot_argument", "register"
BY_ADDRESS, BY_ID = "address", "id"
READ_REQUESTS = (128, 256, 512, 1024, 2048, 4096)  # bytes; what the field of PCI Express can say
_DISTANCES = {kind.name.lower(): kind for kind in Kind if kind is not Kind.UNKNOWN}


def _check_rule(path: str, name: str) -> str:
    if name in RELAXABLE:
        return name
    near = difflib.get_close_matches(name, RELAXABLE, n=1, cutoff=0.5)
    advice = f"Did you mean {near[0]}?" if near else f"Rules are: {', '.join(sorted(RELAXABLE))}."
    raise IntentError([Problem(path, "is no rule that can be relaxed", advice, found=repr(name))])


def _check_reason(path: str, text: str) -> str:
    if text.strip():
        return text.strip()
    advice = "Say why the rule does not count here; reports repeat it."
    raise IntentError([Problem(path, "is empty", advice)])


def _check_read_request(path: str, value: int) -> int:
    if value in READ_REQUESTS:
        return value
    wanted = ", ".join(map(str, READ_REQUESTS))
    raise IntentError([Problem(path, "is no read request size", "Take one of them.", found=str(value), wanted=wanted)])


MODE_FIELD = Field(
    "gpudirect_mode",
    "str",
    (
        "The class of the host: V(passthrough_vm) runs guests with GPUs and VFs passed through, V(bare_metal) runs no guests,",
        "V(virtio_vm) runs guests without direct paths. The first two want opposite values of the registers on the path.",
    ),
    default=PASSTHROUGH,
    choices=MODES,
)
GPUS_FIELD = Field(
    "pci_path_gpus",
    "list",
    (
        "Which devices are the GPUs. Omitted: display and 3D controllers and accelerators of NVIDIA, AMD and Intel (data center),",
        "without the one that shows the console.",
    ),
    elements="dict",
    fields=SELECT_FIELDS,
)
NICS_FIELD = Field(
    "pci_path_nics",
    "list",
    (
        "Which devices are the NICs; a VF stands for its PF, and of that PF only selected VFs are judged.",
        "Omitted: Ethernet and InfiniBand functions that are made by NVIDIA (Mellanox) or have an RDMA device.",
    ),
    elements="dict",
    fields=SELECT_FIELDS,
)
ACS_FIELD = Field(
    "pci_path_acs",
    "str",
    (
        "How the ports between GPUs and NICs get the ACS words that O(gpudirect_mode) wants; V(unmanaged) writes nothing.",
        "V(boot_argument) has the kernel set them before it forms IOMMU groups (C(pci=config_acs=)), and writes what can be",
        "written into the running kernel's ports at once. V(register) writes the registers only, at each boot again.",
        "V(auto) is the boot argument on kernels that are known to take lists (6.12.23 and later of 6.12, 6.14 and later), else",
        "V(register). A kernel of a distribution that has the fix by another number is told by naming V(boot_argument).",
    ),
    default=UNMANAGED,
    choices=(UNMANAGED, AUTO, BOOT_ARGUMENT, REGISTER),
)
FORM_FIELD = Field(
    "pci_path_acs_form",
    "str",
    (
        "How the boot argument names ports: by V(address), or by V(id) (C(pci:vendor:device)), which outlives other bus numbers.",
        "V(id) is refused where the machine has a port with these ids that must not have the word.",
    ),
    default=BY_ADDRESS,
    choices=(BY_ADDRESS, BY_ID),
)
# What decides about the boot argument, which is written by kernel_args.
BOOT_FIELDS = (MODE_FIELD, GPUS_FIELD, NICS_FIELD, ACS_FIELD, FORM_FIELD)
FIELDS: tuple[Field, ...] = (
    *BOOT_FIELDS,
    Field(
        "pci_path_relax",
        "list",
        ("Rules that do not count on this host. Reports name each with its reason, and one that relaxes nothing.",),
        elements="dict",
        fields=(
            Field("rule", "str", ("Name of the rule.",), required=True, check=_check_rule),
            Field("reason", "str", ("Why it does not count.",), required=True, check=_check_reason),
            Field(
                "select",
                "dict",
                ("The devices for which it does not count. Omitted: all of the host.",),
                fields=SELECT_FIELDS,
                check=check_some,
            ),
        ),
    ),
    Field(
        "pci_path_max_distance",
        "str",
        (
            "How far a GPU may be from its nearest NIC; farther is a failure, and what goes through the root complex a warning.",
            "V(phb) is one host bridge, V(node) one NUMA node, V(sys) anywhere.",
        ),
        default="node",
        choices=tuple(_DISTANCES),
    ),
    Field(
        "pci_path_max_read_request",
        "int",
        (
            "Bytes that a NIC may ask for in one read: set in the nearest NICs of each GPU where it is given, now and at each boot.",
            "Omitted: nothing is written; V(4096) is expected in the mode V(passthrough_vm), and nothing in the others.",
        ),
        check=_check_read_request,
    ),
    Field(
        "pci_path_min_bar_mib",
        "int",
        ("Size in MiB that the largest region of each GPU has at least. Omitted: not judged.",),
        minimum=1,
    ),
)
SCHEMA = Schema("pci_path", "pci_path_", FIELDS)


@dataclass(frozen=True)
class Relaxation:
    """A rule that the site does not want to count, and why; ``selector`` is None for all devices."""

    path: str
    rule: str
    reason: str
    selector: Union[Selector, None] = None


@dataclass(frozen=True)
class PathIntent:
    """What a site wants of the paths of one host. No selectors: the devices are told by their class and maker."""

    mode: str = PASSTHROUGH
    gpus: tuple[Selector, ...] = ()
    nics: tuple[Selector, ...] = ()
    relax: tuple[Relaxation, ...] = ()
    max_distance: Kind = Kind.NODE
    max_read_request: Union[int, None] = None
    min_bar_mib: Union[int, None] = None
    acs: str = UNMANAGED
    acs_form: str = BY_ADDRESS

    @property
    def sets_acs(self) -> bool:
        """Whether the ACS words of ports are written."""
        return self.acs != UNMANAGED

    @property
    def sets_anything(self) -> bool:
        """Whether anything is written at all."""
        return self.sets_acs or self.max_read_request is not None

    @property
    def read_request(self) -> Union[int, None]:
        """Bytes of a read request that NICs shall be allowed; None: nobody asks."""
        return self.max_read_request or POLICIES[self.mode].read_request


def parse(params: Mapping[str, Any]) -> PathIntent:
    """What the options ask for; IntentError with every problem at once."""
    values = SCHEMA.parse(params)
    return replace(
        boot_intent(values),
        relax=_relaxations(values["pci_path_relax"] or ()),
        max_distance=_DISTANCES[values["pci_path_max_distance"]],
        max_read_request=values["pci_path_max_read_request"],
        min_bar_mib=values["pci_path_min_bar_mib"],
    )


def boot_intent(values: Mapping[str, Any]) -> PathIntent:
    """What the checked options of BOOT_FIELDS ask for: all that decides about the boot argument."""
    return PathIntent(
        mode=values["gpudirect_mode"],
        gpus=_selectors("pci_path_gpus", values["pci_path_gpus"]),
        nics=_selectors("pci_path_nics", values["pci_path_nics"]),
        acs=values["pci_path_acs"],
        acs_form=values["pci_path_acs_form"],
    )


def _selectors(path: str, given: Any) -> tuple[Selector, ...]:
    # None stands for an entry that is wrong by itself, which is told already.
    return tuple(selector(f"{path}[{index}]", one) for index, one in enumerate(given or ()) if one is not None)


def _relaxations(given: Any) -> tuple[Relaxation, ...]:
    found: list[Relaxation] = []
    problems: list[Problem] = []
    for index, one in enumerate(given):
        path = f"pci_path_relax[{index}]"
        chosen = None if one["select"] is None else selector(f"{path}.select", one["select"])
        twin = next((other for other in found if (other.rule, other.selector) == (one["rule"], chosen)), None)
        if twin is not None:
            problems.append(Problem(path, f"relaxes the same as {twin.path}", "Give each rule one reason."))
        found.append(Relaxation(path, one["rule"], one["reason"], chosen))
    if problems:
        raise IntentError(problems)
    return tuple(found)
