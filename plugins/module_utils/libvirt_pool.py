# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Storage pools of libvirt: folders of the host that disks of guests are in. What is in a folder is never removed with its pool."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from .core.change import Change, Deferred, Plan
from .core.errors import IntentError, Problem
from .core.host import Host
from .core.owned import Owned
from .core.schema import Field, Schema, right_entries
from .guest import libvirt, things
from .guest.libvirt import Thing
from .guest.networks import ACTIVE, GONE, check_name, told_once
from .guest.owned_xml import parse_xml
from .guest.things import Things, Wanted
from .guest.xml_output import tag, text_of


def _check_folder(path: str, folder: str) -> str:
    """An absolute path, written in the one way in which it is compared and told to libvirt."""
    if not folder.startswith("/"):
        fact, advice = "is not an absolute path", "Give the whole path."
    elif not folder.isprintable():  # XML has no control characters
        fact, advice = "has a character in it that cannot be printed", "Take it out."
    elif ".." in folder.split("/"):
        fact, advice = "has .. in it", "Give the path that is meant."
    elif _plain(folder) == "/":
        fact, advice = "is the root folder itself", "Give a folder below it."
    else:
        return _plain(folder)
    raise IntentError([Problem(path, fact, advice, found=repr(folder))])


def _plain(folder: str) -> str:
    """A path without what changes nothing in it."""
    return "/" + posixpath.normpath(folder).lstrip("/")


POOLS_FIELD = Field(
    "guest_pools",
    "list",
    (
        "Storage pools of libvirt, each a folder of the host. Those that are left out and were made before are removed;",
        "what is in their folders stays.",
    ),
    default=[],
    elements="dict",
    fields=(
        Field("name", "str", ("Name of the pool.",), required=True, check=check_name),
        Field(
            "path",
            "str",
            ("Its folder, by an absolute path without C(..), which is made where it is not there.",),
            required=True,
            check=_check_folder,
        ),
        Field("state", "str", ("Whether it is there.",), default=ACTIVE, choices=(ACTIVE, GONE)),
    ),
)
SCHEMA = Schema("libvirt_pool", "guest_pools", (POOLS_FIELD,))


@dataclass(frozen=True)
class Pool:
    """One pool as the inventory asks for it."""

    path: str
    name: str
    folder: str
    state: str = ACTIVE


@dataclass(frozen=True)
class Desired:
    """The pools that are to be there."""

    pools: tuple[Pool, ...] = ()


@dataclass(frozen=True)
class Current:
    """Pools and domains of a host, and those of the wanted folders that are there."""

    pools: Mapping[str, Thing] = field(default_factory=dict)
    domains: Mapping[str, Thing] = field(default_factory=dict)
    folders: frozenset[str] = frozenset()
    without: str = ""
    live: bool = True


def parse(params: Mapping[str, Any]) -> Desired:
    """Wanted pools from options; IntentError with every mistake."""
    problems = SCHEMA.parse_all(params)[1]
    pools: list[Pool] = []
    for index, one in enumerate(right_entries(POOLS_FIELD, params)):
        pool = Pool(f"guest_pools[{index}]", *(one.get(name, "") for name in ("name", "path", "state")))
        problems += told_once(problem for twin in pools for problem in _of_twin(pool, twin))
        pools.append(pool)
    if problems:
        raise IntentError(problems)
    return Desired(tuple(one for one in pools if one.state == ACTIVE))


def _of_twin(one: Pool, twin: Pool) -> Iterator[Problem]:
    """What two pools of a host must not both have. Empty: wrong by itself, which is said already."""
    fact, advice = f"is that of {twin.path} too", "Give each its own."
    if one.name and one.name == twin.name:
        yield Problem(f"{one.path}.name", fact, advice, found=repr(one.name))
    elif one.folder and one.folder == twin.folder and GONE not in (one.state, twin.state):
        yield Problem(f"{one.path}.path", fact, advice, found=repr(one.folder))


def read(host: Host, desired: Desired) -> Current:
    """Nothing is read where no pool is asked for and none was made."""
    if not desired.pools and not Owned.load(host).of(SCHEMA.name):
        return Current()
    if host.captured:
        return Current(live=False)
    try:
        pools, domains = libvirt.told(host, libvirt.POOLS), libvirt.told(host, libvirt.DOMAINS)
    except libvirt.NotThere as error:
        return Current(without=error.problems[0].fact)
    folders = frozenset(one.folder for one in desired.pools if host.exists(one.folder))
    return Current(pools, domains, folders)


def plan(desired: Desired, current: Current, owned: Mapping[str, Any]) -> Plan:
    """The changes of all pools."""
    if not desired.pools and not owned:
        return Plan()
    if not current.live or current.without:
        waits = "the running host" if not current.live else "kvm"
        why = current.without or "pools are told by the running libvirt only; this is a captured tree"
        return Plan(deferred=(Deferred(SCHEMA.name, waits, why),))
    every = Things(SCHEMA.name, "pools", current.pools, owned, _users_of(current.pools, current.domains), ())
    wanted = [Wanted(one.path, one.name, render(one), {"made": _made(one, current.folders)}) for one in desired.pools]
    return every.plan(wanted, _taken(desired.pools, current.pools))


def apply(change: Change, host: Host) -> None:
    """Make one change of a pool."""
    if change.step is not None:
        things.carry_out(change.step, host)


def render(one: Pool) -> str:
    """The pool's XML."""
    return text_of(
        tag("pool", {"type": "dir"}, tag("name", None, one.name), tag("target", None, tag("path", None, one.folder)))
    )


def _made(one: Pool, folders: frozenset[str]) -> Union[str, None]:
    """The folder where this run makes it, so that an empty one goes with the pool."""
    return None if one.folder in folders else one.folder


def _folder(thing: Thing) -> str:
    xml = thing.live or thing.inactive
    return parse_xml(thing.name, xml).findtext("target/path") or ""


def _taken(pools: Sequence[Pool], there: Mapping[str, Thing]) -> list[Problem]:
    """Folders that another pool of the host has; libvirt refuses two pools of one folder only once both are to start."""
    owners = {_plain(_folder(thing)): name for name, thing in there.items()}
    advice = "Name that pool's folder nowhere, or take another."
    return [
        Problem(f"{one.path}.path", f"{one.folder} is the folder of the pool {owners[one.folder]}", advice)
        for one in pools
        if owners.get(one.folder, one.name) not in {one.name, *(other.name for other in pools)}
    ]


def _users_of(pools: Mapping[str, Thing], domains: Mapping[str, Thing]) -> dict[str, list[str]]:
    """The running guests by the pool that a disk of theirs is in."""
    found: dict[str, list[str]] = {}
    folders = {name: _folder(thing) for name, thing in pools.items() if thing.active}
    for guest, thing in sorted(domains.items()):
        for source in parse_xml(guest, thing.live).iterfind("devices/disk/source") if thing.live else ():
            for name, folder in folders.items():
                if source.get("pool") == name or source.get("file", "").startswith(f"{folder}/"):
                    found.setdefault(name, [])
                    found[name] += [] if guest in found[name] else [guest]
    return found
