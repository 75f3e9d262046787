# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options ``guest_shapes`` and those that say what guests may have of a host: their tables, and what they ask for. Pure."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core.errors import IntentError, Problem
from ..core.schema import Field, Schema, right_entries, wrong_type
from ..path.finding import Kind
from ..pci.address import Address, address_in
from ..vf.mac import canonical_mac
from .access import check_keys, check_user
from .networks import check_name
from .options import Firmware, Topology
from .placed import Shape
from .rails import LEAST_MTU, LEAST_MTU_V6, MOST_MTU, RAILS_FIELD, problems_of, too_many, twins
from .resources import cpus_of

_PAGES_MIB = {"2M": 2, "1G": 1024}
_DISTANCES = {"pix": Kind.PIX, "pxb": Kind.PXB, "phb": Kind.PHB, "node": Kind.NODE, "sys": Kind.SYS}
_LONGEST_NAME = 63  # of a label (RFC 1123, 2.1), and of what names of files are made from
_NAME_FORM = f"letters, digits, dashes and dots, at most {_LONGEST_NAME}, not digits alone"


def _check_name(path: str, text: str) -> str:
    """A name that libvirt and a guest's own host name can have."""
    fault = _fault_of(text)
    if fault:
        fact = f"is no name for a guest: it {fault}"
        raise IntentError([Problem(path, fact, "Correct it.", found=repr(text), wanted=_NAME_FORM)])
    return text


def _fault_of(name: str) -> str:
    labels = name.split(".")
    faults = (
        (not name, "is empty"),
        (len(name) > _LONGEST_NAME, f"is {len(name)} characters long"),
        (re.search(r"[^A-Za-z0-9.-]", name), "has other characters in it"),
        (name.isdecimal(), "is digits alone, which virsh takes for the number of a domain"),
        ("" in labels, "has a dot at an end or beside another"),
        (any(one.startswith("-") or one.endswith("-") for one in labels), "has a dash at an end or beside a dot"),
    )
    return next((text for wrong, text in faults if wrong), "")


def _check_nvswitches(path: str, value: Any) -> str:
    """``all``, ``none``, or the number of a partition; YAML may make a number or, of a bare ``no``, false of it."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return str(value)
    if isinstance(value, str) and (value in ("all", "none") or re.fullmatch(r"0|[1-9]\d{0,5}", value)):
        return value
    wanted = "all, none, or the number of a Fabric Manager partition"
    raise IntentError([Problem(path, "is no choice of NVSwitches", "Correct it.", found=repr(value), wanted=wanted)])


def _check_cpus(path: str, text: str) -> tuple[int, ...]:
    try:
        return cpus_of(text)
    except ValueError as error:
        raise IntentError([Problem(path, str(error), "Correct it.", found=repr(text))]) from None


def _check_partitions(path: str, mapping: Mapping[Any, Any]) -> dict[str, tuple[Any, ...]]:
    """GPUs by partition number, each as an address or as a module number."""
    problems: list[Problem] = []
    found: dict[str, tuple[Any, ...]] = {}
    for key, gpus in mapping.items():
        here = f"{path}[{key}]"
        try:
            if isinstance(key, bool) or re.fullmatch(r"0|[1-9]\d{0,5}", str(key)) is None:
                raise wrong_type(path, key, "partition numbers as keys")
            if not isinstance(gpus, (list, tuple)):
                raise wrong_type(here, gpus, "a list of GPUs")
            if str(key) in found:
                raise IntentError([Problem(here, "is there twice, as a number and as text", "Remove one of them.")])
            found[str(key)] = tuple(_gpu(f"{here}[{index}]", one) for index, one in enumerate(gpus))
        except IntentError as error:
            problems.extend(error.problems)
    if problems:
        raise IntentError(problems)
    return found


def _gpu(path: str, value: Any) -> Any:
    return value if isinstance(value, int) and not isinstance(value, bool) else address_in(path, str(value))


def _check_modules(path: str, mapping: Mapping[Any, Any]) -> dict[int, Address]:
    problems: list[Problem] = []
    found: dict[int, Address] = {}
    for key, value in mapping.items():
        try:
            if isinstance(key, bool) or re.fullmatch(r"\d{1,3}", str(key)) is None:
                raise wrong_type(path, key, "module numbers as keys")
            if int(key) in found:
                raise IntentError([Problem(f"{path}[{key}]", "is there twice", "Remove one of them.")])
            found[int(key)] = address_in(f"{path}[{key}]", str(value))
        except IntentError as error:
            problems.extend(error.problems)
    if problems:
        raise IntentError(problems)
    return found


_UNLESS_GONE = "Needed but for O(guest_shapes[].state=absent)."
SHAPE_FIELDS = (
    Field("name", "str", ("Name of the guest: of its domain and of itself.",), required=True, check=_check_name),
    Field("gpus", "int", ("GPUs that it gets; V(0) is a guest without passthrough.",), default=0, minimum=0),
    Field(
        "vfs_per_gpu",
        "int",
        ("VFs for each GPU, from the nearest NICs. More than V(1) is for a guest with GPUs.",),
        default=1,
        minimum=0,
    ),
    Field(
        "nvswitches",
        "raw",
        (
            "V(all) NVSwitches, for a guest with all GPUs of its host; V(none); or the number of a Fabric Manager partition,",
            "whose NVSwitches stay with the host or a service guest.",
        ),
        default="none",
        check=_check_nvswitches,
    ),
    Field("vcpus", "int", ("CPUs, in whole cores of the host.", _UNLESS_GONE), minimum=1),
    Field("memory_gib", "int", ("Memory in GiB, all of it in huge pages.", _UNLESS_GONE), minimum=1),
    Field("page_size", "str", ("Size of these pages.",), default="1G", choices=tuple(_PAGES_MIB)),
    Field(
        "image",
        "str",
        (
            "Image of C(guest_images) that its disk is made from, with a seed for cloud-init beside it.",
            "Omitted: its disk is C(NAME.qcow2) in O(guest_image_folder), which somebody else puts there, and it is told nothing.",
        ),
        check=check_name,
    ),
    Field("disk_gib", "int", ("Size of its disk in GiB. Omitted: that of the image.",), minimum=1),
    Field(
        "user",
        "str",
        ("User that it is reached as; may become root, and has keys and no password.",),
        check=check_user,
    ),
    Field(
        "ssh_keys",
        "list",
        ("Public keys of that user.",),
        default=[],
        elements="str",
        check=check_keys,
        public=True,
    ),
    Field(
        "network",
        "str",
        (
            "Network of libvirt or bridge of the host that its first interface is on, where it asks for an address by DHCP.",
        ),
        check=check_name,
    ),
    Field(
        "mac",
        "str",
        (
            "MAC address of its first interface, on O(guest_shapes[].network). Omitted: derived from the names of host and guest.",
        ),
        check=canonical_mac,
    ),
    Field(
        "mtu",
        "int",
        (
            f"MTU of those of its rails that have none of their own, from {LEAST_MTU} to {MOST_MTU}; at least {LEAST_MTU_V6} with IPv6 addresses.",
            "A NIC may take less.",
        ),
        minimum=LEAST_MTU,
        maximum=MOST_MTU,
    ),
    RAILS_FIELD,
    Field(
        "state",
        "str",
        (
            "V(running), V(defined) and not running, or V(absent): its definition and NVRAM are removed, and then the disk and seed",
            "that were made for it. A guest that is left out of the list is removed likewise.",
        ),
        default="running",
        choices=("running", "defined", "absent"),
    ),
    Field(
        "autostart", "bool", ("Whether a boot starts it, after all that it needs; libvirt never does.",), default=True
    ),
    Field(
        "topology",
        "str",
        (
            "How its PCI tree is made: with the host's V(switches), with V(root_ports) below a host bridge of each NUMA node,",
            "or V(flat).",
        ),
        default="switches",
        choices=tuple(one.value for one in Topology),
    ),
    Field(
        "firmware",
        "str",
        ("Who starts it. V(bios) has no room for large regions; it is for tests.",),
        default="efi",
        choices=tuple(one.value for one in Firmware),
    ),
)
FIELDS = (
    Field(
        "guest_shapes",
        "list",
        ("Guests of this host.",),
        default=[],
        elements="dict",
        fields=SHAPE_FIELDS,
    ),
    Field(
        "guest_reserved_cpus",
        "str",
        ("CPUs that stay with the host, such as V(0-1,64-65). Omitted: the first core of each NUMA node.",),
        check=_check_cpus,
    ),
    Field(
        "guest_max_distance",
        "str",
        ("How far a VF may be from its GPU; a guest that would get a farther one is refused.",),
        default="sys",
        choices=tuple(_DISTANCES),
    ),
    Field(
        "guest_partitions",
        "dict",
        (
            "Fabric Manager partitions: GPUs by partition number, as addresses or as module numbers of O(guest_gpu_modules),",
            "such as V({3: [1, 2]}). C(fmpm -l) lists them.",
        ),
        default={},
        check=_check_partitions,
    ),
    Field(
        "guest_gpu_modules",
        "dict",
        ("Address of each GPU by the module number that Fabric Manager gives it.",),
        default={},
        check=_check_modules,
    ),
)
SCHEMA = Schema("guest", "guest_", FIELDS)
# What only cloud-init could tell a guest, and only the disk that is made for it could be.
_OF_IMAGE = ("disk_gib", "user", "ssh_keys", "mtu", "rails")
GONE = "absent"
_OF_PLACEMENT = ("name", "gpus", "vfs_per_gpu", "nvswitches", "vcpus", "memory_gib", "page_size")


@dataclass(frozen=True)
class Wish:
    """One guest as the inventory asks for it: what placement reads, and the rest as plain data by option."""

    path: str
    shape: Shape
    rest: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class GuestIntent:
    """The guests of a host, and what they may have of it. ``reserved`` None: the first core of each NUMA node."""

    wishes: tuple[Wish, ...] = ()
    reserved: frozenset[int] | None = None
    max_distance: Kind = Kind.SYS
    partitions: Mapping[str, tuple[Address, ...]] = field(default_factory=dict, hash=False)


def parse(params: Mapping[str, Any]) -> GuestIntent:
    """What the options ask for; IntentError with every problem at once."""
    values, problems = SCHEMA.parse_all(params)
    wishes = _wishes(values["guest_shapes"])
    problems += _contradictions(right_entries(FIELDS[0], params))
    partitions = _partitions(params, problems)
    if problems:
        raise IntentError(problems)
    cpus = values["guest_reserved_cpus"]
    reserved = None if cpus is None else frozenset(cpus)
    return GuestIntent(wishes, reserved, _DISTANCES[values["guest_max_distance"]], partitions)


def _wishes(given: Sequence[Mapping[str, Any] | None]) -> tuple[Wish, ...]:
    """The guests of checked entries; None stands for one that is wrong by itself, which is said already."""
    return tuple(
        Wish(
            f"guest_shapes[{index}]",
            _shape(values),
            {key: one for key, one in values.items() if key not in _OF_PLACEMENT},
        )
        for index, values in enumerate(given)
        if values is not None
    )


def _contradictions(given: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    """What of all shapes cannot be meant together. Each has only the options that are right by themselves."""
    shapes = {f"guest_shapes[{index}]": values for index, values in enumerate(given)}
    for path, values in shapes.items():
        for needs, check in _CHECKS:
            if values.keys() >= needs:
                yield from check(path, values)
    there = {path: values for path, values in shapes.items() if values.get("state") != GONE}
    yield from _alike(shapes, "name", "Give each guest its own; upper and lower case are alike.")
    yield from _alike(there, "mac", "Give each guest its own, or leave it out.")
    yield from twins({path: values for path, values in there.items() if "rails" in values})


def _alike(shapes: Mapping[str, Mapping[str, Any]], option: str, advice: str) -> Iterator[Problem]:
    """Shapes that have what another one has."""
    first: dict[str, str] = {}
    for path, values in shapes.items():
        value = values.get(option)
        if value and first.setdefault(value.lower(), path) != path:
            fact = f"is the {option} of {first[value.lower()]}"
            yield Problem(f"{path}.{option}", fact, advice, found=repr(value))


def _sizes(path: str, values: Mapping[str, Any]) -> Iterator[Problem]:
    """What every guest needs that is to be there."""
    needed = ("vcpus", "memory_gib") if values["state"] != GONE else ()
    for entry in SHAPE_FIELDS:
        if entry.name in needed and entry.name in values and values[entry.name] is None:
            yield Problem(f"{path}.{entry.name}", "is missing", f"Set it: {entry.description[0]}")


def _vfs(path: str, values: Mapping[str, Any]) -> Iterator[Problem]:
    """VFs of no GPU. The default counts as not asked for: a module cannot tell it from the same number written down."""
    if values["vfs_per_gpu"] > 1 and not values["gpus"]:
        found, advice = str(values["vfs_per_gpu"]), "Give it GPUs, or leave this out."
        yield Problem(f"{path}.vfs_per_gpu", "is for GPUs, of which there are none", advice, found)


def _mac(path: str, values: Mapping[str, Any]) -> Iterator[Problem]:
    if values["mac"] and values["network"] is None:
        fact = "is for an interface on a network, which the guest has not"
        yield Problem(f"{path}.mac", fact, "Name the network, or leave this out.", values["mac"])


def _nvswitches(path: str, values: Mapping[str, Any]) -> Iterator[Problem]:
    if values["nvswitches"] != "none" and not values["gpus"]:
        advice = "Give it GPUs, or take nvswitches: none."
        yield Problem(f"{path}.nvswitches", "is asked for without GPUs", advice, values["nvswitches"])


def _without_image(path: str, values: Mapping[str, Any]) -> Iterator[Problem]:
    """What needs an image that is not there."""
    for name in _OF_IMAGE if not values["image"] else ():
        if values.get(name):
            advice = "Name the image, or leave this out."
            yield Problem(f"{path}.{name}", "is for a guest whose disk is made from an image", advice)


def _login(path: str, values: Mapping[str, Any]) -> Iterator[Problem]:
    """Keys without a user, and a user whom nobody could be."""
    if values["ssh_keys"] and not values["user"]:
        yield Problem(f"{path}.user", "is missing", "Name the user who has the keys.")
    if values["user"] and values["image"] and not values["ssh_keys"] and values["state"] != GONE:
        fact = "is missing: without a password or a key nobody could log in"
        yield Problem(f"{path}.ssh_keys", fact, "Give the user a public key, or leave the user out.")


# Checks over several options of a shape, each with those that it needs.
_CHECKS: tuple[tuple[frozenset[str], Callable[[str, Mapping[str, Any]], Iterator[Problem]]], ...] = (
    (frozenset({"state"}), _sizes),
    (frozenset({"gpus", "vfs_per_gpu"}), _vfs),
    (frozenset({"gpus", "nvswitches"}), _nvswitches),
    (frozenset({"mac", "network"}), _mac),
    (frozenset({"image"}), _without_image),
    (frozenset({"user", "ssh_keys", "image", "state"}), _login),
    (frozenset({"rails", "gpus", "vfs_per_gpu"}), too_many),
    (frozenset({"rails"}), problems_of),
)


def _shape(values: Mapping[str, Any]) -> Shape:
    """What placement reads; a guest that is to go may have no sizes."""
    return Shape(
        values["name"],
        values["gpus"],
        values["vfs_per_gpu"],
        values["nvswitches"],
        values["vcpus"] or 0,
        (values["memory_gib"] or 0) * 1024,
        _PAGES_MIB[values["page_size"]],
    )


def _partitions(params: Mapping[str, Any], problems: list[Problem]) -> dict[str, tuple[Address, ...]]:
    """Partitions with addresses for module numbers. No GPU is two modules, nor twice in a partition.

    Entries that are wrong by themselves are left out here, and hide nothing of the others.
    """
    given = params.get("guest_gpu_modules")
    named = {str(key) for key in given} if isinstance(given, Mapping) else set()
    modules: dict[int, Address] = _right(_check_modules, given)
    owners: dict[Address, int] = {}
    for module, gpu in sorted(modules.items()):
        if owners.setdefault(gpu, module) != module:
            fact = f"is the GPU of module {owners[gpu]} too"
            problems.append(Problem(f"guest_gpu_modules[{module}]", fact, "Give each module its own GPU.", str(gpu)))
    found: dict[str, tuple[Address, ...]] = {}
    for number, gpus in _right(_check_partitions, params.get("guest_partitions")).items():
        path = f"guest_partitions[{number}]"
        numbers = [one for one in dict.fromkeys(gpus) if isinstance(one, int)]
        lost = [str(one) for one in numbers if one not in modules and str(one) not in named]
        if lost:
            fact = f"names GPU modules without an address ({', '.join(lost)})"
            problems.append(Problem(path, fact, "Give their addresses in guest_gpu_modules."))
        addresses = [modules.get(one, one) if isinstance(one, int) else one for one in gpus]
        twice = [gpu for index, gpu in enumerate(gpus) if addresses[index] in addresses[:index]]
        problems += [Problem(path, "names a GPU twice", "Remove one of them.", found=str(gpu)) for gpu in twice]
        found[number] = tuple(sorted({one for one in addresses if isinstance(one, Address)}))
    return found


def _right(check: Callable[[str, Mapping[Any, Any]], dict[Any, Any]], given: Any) -> dict[Any, Any]:
    """The checked entries of a mapping, those that are right by themselves."""
    found: dict[Any, Any] = {}
    for key, value in given.items() if isinstance(given, Mapping) else ():
        with contextlib.suppress(IntentError):  # told by the table already
            found.update(check("", {key: value}))
    return found
