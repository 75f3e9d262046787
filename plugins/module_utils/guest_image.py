# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Base images, the disks of guests over them, and the seeds from which cloud-init sets guests up.

A guest's disk is data: it is made once, never again while it is there, and removed only when the guest has left the inventory, nobody
has it open, and the run may disrupt guests. A base image stays as long as a disk rests on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Union

from .core.change import Absent, Change, Deferred, Disruption, Plan, Unreadable
from .core.errors import HostRefused, Problem, UnreadableState
from .core.host import Host, Status
from .core.owned import Owned
from .image import seed
from .image.intent import SCHEMA, Desired, Disk, Image, parse
from .image.steps import ISO_TOOLS, Layer, Obtain, Remove, WriteSeed, carry_out, partial, temporary, too_small

__all__ = ["SCHEMA", "Current", "Desired", "apply", "parse", "plan", "read"]

BASE, DISK, SEED = "guest_image.base", "guest_image.disk", "guest_image.seed"


@dataclass(frozen=True)
class Current:
    """Files by path (None: not there), who has them open, and which programs are missing."""

    files: Mapping[str, Union[Status, None]] = field(default_factory=dict, hash=False)
    held: Union[Mapping[str, tuple[int, ...]], Unreadable] = field(default_factory=dict, hash=False)
    missing: tuple[str, ...] = ()
    refusals: Mapping[str, str] = field(default_factory=dict, hash=False)


# read ------------------------------------------------------------------------------------


def read(host: Host, desired: Desired) -> Current:
    """The files that are wanted or on record. No program runs for it: what an image was found to be is on record."""
    records = Owned.load(host).of(SCHEMA.name)
    if not desired.disks and not records:
        return Current()
    wanted = [
        *(image.path for image in desired.images),
        *(path for disk in desired.disks for path in (disk.path, disk.seed_path)),
    ]
    paths = dict.fromkeys((*wanted, *(record["path"] for record in records.values())))
    names = {f"{DISK}[{disk.name}]" for disk in desired.disks}
    going = any(name.startswith(DISK) and name not in names for name in records)
    return Current(
        {path: _status(host, path) for path in paths},
        host.held("/") if going else {},
        tuple(_missing(host)) if desired.disks else (),
        {path: why for path in (*wanted, desired.folder) if path and (why := _refusal(host, path, desired))},
    )


def _status(host: Host, path: str) -> Status | None:
    status = host.status(path)
    if isinstance(status, Unreadable):
        raise UnreadableState([Problem(path, f"cannot be read: {status.cause}", "Run as root on the host.")])
    return None if isinstance(status, Absent) else status


def _missing(host: Host) -> Iterator[str]:
    if isinstance(host.program("qemu-img"), Absent):
        yield "qemu-img"
    if all(isinstance(host.program(name), Absent) for name in ISO_TOOLS):
        yield ISO_TOOLS[0]


def _refusal(host: Host, path: str, desired: Desired) -> str:
    if path == desired.folder:
        return "" if host.exists(path) else "it is not there"
    return host.refuses_write(path) if path.startswith(f"{desired.folder}/") and host.exists(desired.folder) else ""


# plan ------------------------------------------------------------------------------------


def plan(desired: Desired, current: Current, owned: Mapping[str, Any]) -> Plan:
    """Disks that nobody wants go first, with their seeds; then images, disks and seeds come."""
    if current.missing:
        why = "disks of guests are made with it; the role kvm installs it"
        return Plan((), tuple(Deferred(SCHEMA.name, name, why) for name in current.missing))
    refused = [*_refusals(desired, current, owned), *_in_use(desired, current, owned)]
    if refused:
        raise HostRefused(refused)
    changes = [*_removals(desired, owned)]
    needed = _needed(desired, current, owned)
    for image in [one for one in desired.images if one.path in needed]:
        changes += _base(image, current, owned.get(f"{BASE}[{image.path}]"))
    for disk in desired.disks:
        changes += _disk(disk, current, owned.get(f"{DISK}[{disk.name}]"))
        changes += _seed(disk, current, owned.get(f"{SEED}[{disk.name}]"))
    return Plan(tuple(changes), (), (), tuple(_notes(desired, current, owned)))


def _needed(desired: Desired, current: Current, owned: Mapping[str, Any]) -> set[str]:
    """The images that disks rest on or are about to; one that a disk should have had is not fetched for that."""
    found = set()
    for disk in desired.disks:
        record = owned.get(f"{DISK}[{disk.name}]")
        found.add(disk.image.path if current.files[disk.path] is None or record is None else record["base"])
    return found


def _base(image: Image, current: Current, record: Mapping[str, Any] | None) -> list[Change]:
    name = f"{BASE}[{image.path}]"
    if current.files[image.path] is not None and record and "format" in record:
        return []
    why = "guests' disks are layers over it"
    after = image.url or image.path
    remember = {name: {"before": None, "path": image.path, "ours": bool(image.url)}}
    return [Change(name, None, after, why, step=Obtain(name, image.path, image.url, image.sha256), remember=remember)]


def _disk(disk: Disk, current: Current, record: Mapping[str, Any] | None) -> list[Change]:
    if current.files[disk.path] is not None and record and record.get("made"):
        return []
    name = f"{DISK}[{disk.name}]"
    why = "the guest has a disk of its own"
    step = Layer(disk.name, disk.path, disk.image.path, disk.size)
    remember = {name: {"before": None, "path": disk.path, "base": disk.image.path, "size": disk.size}}
    after = f"{disk.path} over {disk.image.path}"
    return [Change(name, None, after, why, step=step, remember=remember, confirm={name: {"made": True}})]


def _seed(disk: Disk, current: Current, record: Mapping[str, Any] | None) -> list[Change]:
    name = f"{SEED}[{disk.name}]"
    texts = seed.files(disk.seed)
    digest = seed.digest(texts)
    known = (record or {}).get("digest") if current.files[disk.seed_path] is not None else None
    if known == digest:
        return []
    why = "cloud-init sets the guest up from it at its first boot"
    before = f"sha256:{known[:12]}" if known else None
    step = WriteSeed(disk.name, disk.seed_path, texts)
    remember = {name: {"before": None, "path": disk.seed_path}}
    return [
        Change(
            name, before, f"sha256:{digest[:12]}", why, step=step, remember=remember, confirm={name: {"digest": digest}}
        )
    ]


def _notes(desired: Desired, current: Current, owned: Mapping[str, Any]) -> Iterator[str]:
    """What is asked of a disk that is there already, and is not done to it."""
    for disk in desired.disks:
        record = owned.get(f"{DISK}[{disk.name}]")
        if current.files[disk.path] is None or record is None:
            continue
        if record["base"] != disk.image.path:
            yield f"guest_disks[{disk.name}]: stays over {record['base']}; {disk.image.path} is for a guest that is made anew"
        if disk.size != record["size"]:
            yield f"guest_disks[{disk.name}]: keeps its size; qemu-img resize changes it while the guest is off"
        known = owned.get(f"{SEED}[{disk.name}]", {}).get("digest")
        if known and known != seed.digest(seed.files(disk.seed)):
            yield f"guest_disks[{disk.name}]: its seed changes, which a guest that has booted before does not take up"


# What a host refuses ---------------------------------------------------------------------


def _refusals(desired: Desired, current: Current, owned: Mapping[str, Any]) -> Iterator[Problem]:
    for path, why in current.refusals.items():
        if path == desired.folder:
            if desired.disks:
                yield Problem("guest_image_folder", "is not there", "Make it, or install libvirt.", found=path)
        elif current.files.get(path) is None:
            yield Problem(path, f"cannot be written: {why}", "Make it writable and run again.")
    yield from _disk_refusals(desired, current, owned)
    yield from _base_refusals(desired, current, owned)


def _disk_refusals(desired: Desired, current: Current, owned: Mapping[str, Any]) -> Iterator[Problem]:
    for disk in desired.disks:
        for name, path in ((f"{DISK}[{disk.name}]", disk.path), (f"{SEED}[{disk.name}]", disk.seed_path)):
            if current.files[path] is not None and name not in owned:
                advice = "Move it away where nothing needs it, or rename the guest."
                yield Problem(path, "is there and is not ours; it is not overwritten", advice)
        least = owned.get(f"{BASE}[{disk.image.path}]", {}).get("virtual_size")
        if least and disk.size and disk.size < least and current.files[disk.path] is None:
            yield too_small(disk.name, disk.size, least)


def _base_refusals(desired: Desired, current: Current, owned: Mapping[str, Any]) -> Iterator[Problem]:
    for image in desired.images:
        record, status = owned.get(f"{BASE}[{image.path}]", {}), current.files[image.path]
        if (
            status is not None
            and "format" in record
            and (status.size, status.mtime_ns) != (record["size"], record["mtime_ns"])
        ):
            advice = "Put back the file of before: disks are layers over it, and any other makes them unreadable."
            yield Problem(image.path, "was written to since it was verified", advice)
        if status is None and not image.url:
            yield Problem(image.path, "is not there", "Put the image there, or give its URL.")


def _going(desired: Desired, owned: Mapping[str, Any], kind: str) -> list[str]:
    kept = {f"{kind}[{disk.name}]" for disk in desired.disks}
    return sorted(name for name in owned if name.startswith(f"{kind}[") and name not in kept)


def _in_use(desired: Desired, current: Current, owned: Mapping[str, Any]) -> Iterator[Problem]:
    for name in _going(desired, owned, DISK):
        path = owned[name]["path"]
        if current.files[path] is None:
            continue
        if isinstance(current.held, Unreadable):
            yield Problem(path, f"may be in use: {current.held.cause}", "Run as root on the host.")
        elif current.held.get(path):
            found = f"process {', '.join(map(str, current.held[path]))}"
            yield Problem(path, "is open, and its guest is to go", "Shut the guest down first.", found=found)


# undo ------------------------------------------------------------------------------------


def _removals(desired: Desired, owned: Mapping[str, Any]) -> Iterator[Change]:
    why = "its guest is not in the inventory any more"
    for kind, disrupts in ((SEED, Disruption.NOTHING), (DISK, Disruption.GUEST)):
        for name in _going(desired, owned, kind):
            path = owned[name]["path"]
            # The disk first: what it was made from tells whether it is ours.
            unmade = path if kind == DISK and not owned[name].get("made") else ""
            guest = name[len(SEED) + 1 : -1] if kind == SEED else ""
            step = Remove((path, temporary(path)), guest, unmade)
            yield Change(name, path, None, why, disrupts, step, forget=(name,), undo=True)
    wanted = {image.path for image in desired.images}
    leaving = _going(desired, owned, DISK)
    used = {record["base"] for name, record in owned.items() if name.startswith(f"{DISK}[") and name not in leaving}
    for name, record in sorted(owned.items()):
        if name.startswith(f"{BASE}[") and record["path"] not in wanted | used:
            path = record["path"]
            step_of = Remove((partial(path), path)) if record["ours"] else None
            yield Change(name, path, None, "no disk rests on it", step=step_of, forget=(name,), undo=True)


# apply -----------------------------------------------------------------------------------


def apply(change: Change, host: Host) -> dict[str, dict[str, Any]] | None:
    """Make one change; the record gets what an image turned out to be."""
    return carry_out(change.step, host)
