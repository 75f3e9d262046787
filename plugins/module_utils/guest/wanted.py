# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of the resource ``libvirt_guest``: their table, and what they ask for. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from ..assign.intent import DEVICES_FIELD
from ..assign.intent import Entry as DriverEntry
from ..assign.intent import entries_of as drivers_of
from ..boot.arguments import ARGS_FIELD
from ..boot.pages import Pages
from ..core.errors import IntentError, Problem
from ..core.schema import Field, Schema, right_entries
from ..hugepages import DEFAULT_SIZE_FIELD, PAGES_FIELD, desired_of
from ..iommu import IOMMU_FIELD
from ..path import intent as path_intent
from ..path.intent import GPUS_FIELD, MODE_FIELD, NICS_FIELD, PathIntent
from ..path.policy import BARE_METAL, PASSTHROUGH, VIRTIO
from ..pci.replaced import REPLACED_FIELD
from ..vf.intent import PORTS_FIELD
from ..vf.intent import Entry as PortEntry
from ..vf.intent import entries_of as ports_of
from . import intent
from .intent import GuestIntent, Wish
from .networks import HOSTDEV, NETWORKS_FIELD, unwanted

RUNNING, DEFINED, GONE = "running", "defined", intent.GONE
GRACEFUL, FORCE = "graceful", "force"


def absolute(path: str, text: str) -> str:
    """A path below / without signs that libvirt, QEMU or a shell would take for something else."""
    whole = re.match(r"/[^/]", text) is not None and posixpath.normpath(text) == text
    if not whole or not text.isprintable() or re.search(r"[\s,:]", text):
        wanted = "one from / on, without .., blanks, commas, colons and control characters"
        raise IntentError([Problem(path, "is no plain absolute path", "Correct it.", repr(text), wanted)])
    return text


FOLDER_FIELD = Field(
    "guest_image_folder",
    "str",
    (
        "Folder of the host with the disk of each guest (C(NAME.qcow2)), its seed (C(NAME-seed.iso)) and base images.",
        "QEMU's own user has to be able to enter it.",
    ),
    default="/var/lib/libvirt/images",
    check=absolute,
)
_STOP_FIELDS = (
    Field(
        "guest_stop",
        "str",
        (
            "How a guest is stopped where that is due and O(gpudirect_allow) covers it: V(graceful) asks it and stops the run when it",
            "has not ended in time; V(force) then ends it as a power cut would.",
        ),
        default=GRACEFUL,
        choices=(GRACEFUL, FORCE),
    ),
    Field(
        "guest_drain",
        "bool",
        (
            "Whether the host is drained: every guest that was made here is wanted not running, now and after a boot, whatever",
            "O(guest_shapes) says. Definitions, disks, placements and networks stay, and no definition is changed meanwhile.",
            "C(playbooks/drain.yml) sets it for its run; the next run without it brings the guests back.",
        ),
        default=False,
    ),
    Field("guest_stop_timeout_s", "int", ("How long a guest may take to end.",), default=300, minimum=1),
)
_EMULATOR_FIELD = Field(
    "guest_emulator", "str", ("Path of the QEMU that runs the guests. Omitted: libvirt's choice.",), check=absolute
)
# Those of other resources tell which devices are meant, and what earlier roles of the same run still bring.
_OTHERS = (
    MODE_FIELD,
    GPUS_FIELD,
    NICS_FIELD,
    PORTS_FIELD,
    DEVICES_FIELD,
    PAGES_FIELD,
    ARGS_FIELD,
    IOMMU_FIELD,
    REPLACED_FIELD,
)
# What tells which guests a host has and what each of them gets; ``guest_image`` has to know the same.
PLACING_FIELDS = (*intent.FIELDS, FOLDER_FIELD, _EMULATOR_FIELD, NETWORKS_FIELD, *_OTHERS)
SCHEMA = Schema("libvirt_guest", "guest_", (*_STOP_FIELDS, *PLACING_FIELDS))


@dataclass(frozen=True)
class Desired:
    """What the inventory asks for. ``ports``, ``drivers``, ``pages``, ``arguments`` and ``iommu`` are what other resources will bring."""

    guests: GuestIntent = GuestIntent()
    stop: str = GRACEFUL
    stop_timeout_s: int = 300
    folder: str = "/var/lib/libvirt/images"
    emulator: str = ""
    networks: frozenset[str] = frozenset()  # those that libvirt_network makes
    pools: frozenset[str] = frozenset()  # PFs, by network device, whose VFs libvirt gives out
    paths: PathIntent = PathIntent()
    ports: tuple[PortEntry, ...] = ()
    drivers: tuple[DriverEntry, ...] = ()
    pages: tuple[Pages, ...] = ()
    arguments: tuple[str, ...] = ()  # of the kernel
    iommu: bool = False
    replaced: frozenset[str] = frozenset()
    drain: bool = False

    @property
    def present(self) -> tuple[Wish, ...]:
        """The guests that are to be there."""
        return tuple(wish for wish in self.guests.wishes if wish.rest["state"] != GONE)

    def files_of(self, wish: Wish) -> Files:
        """Where the files of a guest are. Without an image its disk is made by somebody else, and nobody makes a seed."""
        both = files_in(self.folder, wish.shape.name)
        return both if wish.rest["image"] else Files(both.disk)


@dataclass(frozen=True)
class Files:
    """What is on disk of one guest; ``seed`` empty: it has none."""

    disk: str
    seed: str = ""

    @property
    def all(self) -> tuple[str, ...]:
        """Those that it has."""
        return tuple(path for path in (self.disk, self.seed) if path)


def files_in(folder: str, name: str) -> Files:
    """The files of a guest that has all."""
    return Files(f"{folder}/{name}.qcow2", f"{folder}/{name}-seed.iso")


@dataclass
class _Parsed:
    """Values of options that have tables elsewhere; each mistake is kept, and hides nothing of the others."""

    problems: list[Problem] = field(default_factory=list)

    def of(self, made: Any, *given: Any) -> Any:
        """What ``made`` makes of checked values, or nothing."""
        try:
            return made(*given)
        except IntentError as error:
            self.problems += error.problems
            return None


def parse(params: Mapping[str, Any]) -> Desired:
    """What the options ask for; IntentError with every mistake."""
    values, problems = SCHEMA.parse_all(params)
    problems += unwanted(right_entries(NETWORKS_FIELD, params), right_entries(intent.FIELDS[0], params))
    parsed = _Parsed(problems)
    own = {name: one for name, one in params.items() if name in intent.SCHEMA.variables()}
    guests: Union[GuestIntent, None] = parsed.of(intent.parse, own)
    # As they were given: a mistake is then told in the words of those who own the option, and once.
    paths = parsed.of(path_intent.parse, {name: params[name] for name in _PATHS if params.get(name) is not None})
    given = params.get(PORTS_FIELD.name)
    ports = parsed.of(ports_of, given if isinstance(given, (list, tuple)) else [])
    drivers = parsed.of(drivers_of, values[DEVICES_FIELD.name])
    pages = parsed.of(_pages, values[PAGES_FIELD.name])
    parsed.problems += _against_mode(values[MODE_FIELD.name], right_entries(intent.FIELDS[0], params))
    if parsed.problems:
        raise IntentError(dict.fromkeys(parsed.problems))
    if guests is None:
        raise AssertionError
    networks = [one for one in values[NETWORKS_FIELD.name] or () if one["state"] != GONE]
    return Desired(
        guests,
        values["guest_stop"],
        values["guest_stop_timeout_s"],
        values["guest_image_folder"],
        values["guest_emulator"] or "",
        frozenset(one["name"] for one in networks),
        frozenset(one["pf"] for one in networks if one["mode"] == HOSTDEV),
        paths,
        ports or (),
        drivers or (),
        pages or (),
        tuple(values[ARGS_FIELD.name]),
        values[IOMMU_FIELD.name] != "unmanaged",
        frozenset(values[REPLACED_FIELD.name]),
        values["guest_drain"],
    )


def _against_mode(mode: str, shapes: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    """Guests that a host of this class does not have. Each shape has only the options that are right by themselves."""
    other = f"take {MODE_FIELD.name}: {PASSTHROUGH}."
    for index, one in enumerate(shapes):
        path, state = f"guest_shapes[{index}]", one.get("state", GONE)
        if mode == BARE_METAL and state != GONE:
            fact = f"is to be there, and a host of {MODE_FIELD.name}: {mode} runs no guests"
            yield Problem(path, fact, f"Leave it out, give it state: {GONE}, or {other}", state, GONE)
        if mode == VIRTIO and state != GONE and one.get("gpus") and one.get("vfs_per_gpu"):
            fact = f"asks for direct paths, which guests of {MODE_FIELD.name}: {mode} do not have"
            advice = f"Set it to 0 (without it there is one), or {other}"
            yield Problem(f"{path}.vfs_per_gpu", fact, advice, str(one["vfs_per_gpu"]), "0")


def _pages(given: Any) -> tuple[Pages, ...]:
    return desired_of({PAGES_FIELD.name: given, DEFAULT_SIZE_FIELD.name: DEFAULT_SIZE_FIELD.default}).pages


_PATHS = (MODE_FIELD.name, GPUS_FIELD.name, NICS_FIELD.name)
