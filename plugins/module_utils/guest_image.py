# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Base images, the disks of guests over them, and the seeds from which cloud-init sets guests up.

A guest's disk is data: it is made once, never again while it is there, and removed only when the guest has left the inventory, libvirt
has it no more, nobody has it open, and the run may disrupt guests. A base image stays as long as a disk rests on it.

Which guests there are, and what each is told of itself, is decided by ``guest/placing`` as for their domains: a guest gets its disk in
the round in which it gets its devices, just before ``libvirt_guest`` makes and starts it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Union

from .core.change import Absent, Change, Deferred, Disruption, Plan, Unreadable
from .core.errors import HostRefused, Problem, UnreadableState
from .core.host import Host, Status
from .core.owned import Owned
from .guest.found import Current as Guests
from .guest.found import files_of
from .guest.found import read as read_guests
from .guest.placing import Round, round_of, untold
from .guest.record import RESOURCE as GUESTS
from .guest.record import by_name
from .image import seed
from .image.disks import Disk, disks_of, needs_links
from .image.intent import SCHEMA, Desired, Image, parse
from .image.steps import ISO_TOOLS, Layer, Obtain, Remove, WriteSeed, carry_out, partial, temporary, too_small
from .vf.links import Links
from .vf.reach import network_devices

__all__ = ["SCHEMA", "Current", "Desired", "apply", "parse", "plan", "read"]

BASE, DISK, SEED = "guest_image.base", "guest_image.disk", "guest_image.seed"


@dataclass(frozen=True)
class Current:
    """The host as guests see it with the records of its guests, and network devices where guests are told of VFs.

    Of disks: files by path (None: not there), who has them open, and which programs are missing.
    """

    guests: Guests = field(default_factory=Guests)
    records: Mapping[str, Any] = field(default_factory=dict, hash=False)
    links: Links = field(default_factory=dict, hash=False)
    files: Mapping[str, Union[Status, None]] = field(default_factory=dict, hash=False)
    held: Union[Mapping[str, tuple[int, ...]], Unreadable] = field(default_factory=dict, hash=False)
    missing: tuple[str, ...] = ()
    refusals: Mapping[str, str] = field(default_factory=dict, hash=False)


# read ------------------------------------------------------------------------------------


def read(host: Host, desired: Desired) -> Current:
    """The guests, and the files that are wanted or on record. No program runs for these: what an image was found to be is on record."""
    everything = Owned.load(host)
    records, guests = everything.of(SCHEMA.name), by_name(everything.of(GUESTS))
    if not desired.wishes and not records:
        return Current()
    wanted = [image.path for image in desired.images.values()]
    wanted += [path for wish in desired.wishes for path in desired.guests.files_of(wish).all]
    paths = dict.fromkeys((*wanted, *(record["path"] for record in records.values())))
    folder = desired.guests.folder
    return Current(
        read_guests(host, desired.guests, guests, anyway=True),
        guests,
        network_devices(host) if needs_links(desired) and not host.captured else {},
        {path: _status(host, path) for path in paths},
        host.held("/") if _gone(desired, records) else {},
        tuple(_missing(host)) if desired.wishes else (),
        {path: why for path in (*wanted, folder) if (why := _refusal(host, path, folder))},
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


def _refusal(host: Host, path: str, folder: str) -> str:
    if path == folder:
        return "" if host.exists(path) else "it is not there"
    return host.refuses_write(path) if path.startswith(f"{folder}/") and host.exists(folder) else ""


# plan ------------------------------------------------------------------------------------


def plan(desired: Desired, current: Current, owned: Mapping[str, Any]) -> Plan:
    """Disks that nobody wants go first, with their seeds; then images, disks and seeds come."""
    if not desired.wishes and not owned:
        return Plan()
    lacking = untold(current.guests)
    if lacking is not None and (desired.wishes or not current.guests.live):
        return Plan(deferred=(Deferred(SCHEMA.name, *lacking),))
    if current.missing:
        why = "disks of guests are made with it; the role kvm installs it"
        return Plan((), tuple(Deferred(SCHEMA.name, name, why) for name in current.missing))
    now = Round() if lacking else round_of(desired.guests, current.guests, current.records)
    disks, problems = disks_of(desired, now.guests, current.guests.machine.tree, current.links)
    return _Files(desired, current, owned, disks).plan([*now.refused, *problems], list(_waiting(desired, now)))


def _waiting(desired: Desired, now: Round) -> Iterator[Deferred]:
    """New guests that have no devices yet."""
    names = [wish.shape.name for wish in desired.wishes if wish.shape.name in now.waiting]
    if names:
        why = f"{now.why}; guests whose disks wait for it: {', '.join(sorted(names))}"
        yield Deferred(SCHEMA.name, now.waits_for, why)


@dataclass
class _Files:
    """All images, disks and seeds of a host while they are planned."""

    desired: Desired
    current: Current
    owned: Mapping[str, Any]
    disks: tuple[Disk, ...]

    def plan(self, refused: list[Problem], deferred: list[Deferred]) -> Plan:
        """Everything in order; what a guest that is being removed has goes once it is no more."""
        leaving = _gone(self.desired, self.owned)
        for name in sorted(leaving):
            user = self._user(name)
            if user:
                why = f"the disk and seed of guest {name} go when nobody has them any more"
                deferred.append(Deferred(SCHEMA.name, user, why))
        leaving = {name for name in leaving if not self._user(name)}
        refused = [*refused, *self._refusals(), *self._in_use(leaving)]
        if refused:
            raise HostRefused(refused)
        changes, needed = [*self._removals(leaving)], self._needed()
        for image in self.desired.images.values():
            if image.path in needed:
                changes += _base(image, self.current, self.owned.get(f"{BASE}[{image.path}]"))
        for disk in self.disks:
            changes += _disk(disk, self.current, self.owned.get(f"{DISK}[{disk.name}]"))
            changes += _seed(disk, self.current, self.owned.get(f"{SEED}[{disk.name}]"))
        return Plan(tuple(changes), tuple(deferred), (), tuple(self._notes()))

    def _user(self, name: str) -> str:
        """Who still has the disk or seed of a guest that goes: the resource that removes it, or a domain of others."""
        if name in self.current.records:
            return GUESTS
        paths = {self.owned[one]["path"] for one in (f"{DISK}[{name}]", f"{SEED}[{name}]") if one in self.owned}
        users = (key for key, thing in sorted(self.current.guests.domains.items()) if paths & files_of(thing))
        return next((f"domain {key}" for key in users), "")

    def _needed(self) -> set[str]:
        """The images that disks rest on or are about to; one that a disk should have had is not fetched for that."""
        found = set()
        for disk in self.disks:
            record = self.owned.get(f"{DISK}[{disk.name}]")
            new = self.current.files[disk.path] is None or record is None
            found.add(disk.image.path if new or record is None else record["base"])
        return found

    def _notes(self) -> Iterator[str]:
        """What is asked of a disk that is there already, and is not done to it."""
        for disk in self.disks:
            record = self.owned.get(f"{DISK}[{disk.name}]")
            if self.current.files[disk.path] is None or record is None:
                continue
            if record["base"] != disk.image.path:
                yield f"guest_shapes[{disk.name}]: stays over {record['base']}; {disk.image.path} is for a guest that is made anew"
            if disk.size != record["size"]:
                yield f"guest_shapes[{disk.name}]: keeps its size; qemu-img resize changes it while the guest is off"
            known = self.owned.get(f"{SEED}[{disk.name}]", {}).get("digest")
            if known and known != seed.digest(seed.files(disk.seed)):
                yield f"guest_shapes[{disk.name}]: its seed changes, which a guest that has booted before does not take up"

    # What a host refuses -----------------------------------------------------------------

    def _refusals(self) -> Iterator[Problem]:
        for path, why in self.current.refusals.items():
            if path == self.desired.guests.folder:
                if self.disks:
                    yield Problem("guest_image_folder", "is not there", "Make it, or install libvirt.", found=path)
            elif self.current.files.get(path) is None:
                yield Problem(path, f"cannot be written: {why}", "Make it writable and run again.")
        yield from self._disk_refusals()
        yield from self._base_refusals()

    def _disk_refusals(self) -> Iterator[Problem]:
        for disk in self.disks:
            for name, path in ((f"{DISK}[{disk.name}]", disk.path), (f"{SEED}[{disk.name}]", disk.seed_path)):
                if self.current.files[path] is not None and name not in self.owned:
                    advice = "Move it away where nothing needs it, or rename the guest."
                    yield Problem(path, "is there and is not ours; it is not overwritten", advice)
            least = self.owned.get(f"{BASE}[{disk.image.path}]", {}).get("virtual_size")
            if least and disk.size and disk.size < least and self.current.files[disk.path] is None:
                yield too_small(disk.name, disk.size, least)

    def _base_refusals(self) -> Iterator[Problem]:
        for image in self.desired.images.values():
            record, status = self.owned.get(f"{BASE}[{image.path}]", {}), self.current.files[image.path]
            owner = next((name for name, path in self._of_guests() if path == image.path), None)
            if owner is not None:
                advice = "Give the image a path of its own."
                yield Problem(image.path, f"is a file of guest {owner}, and goes with it", advice)
            if (
                status is not None
                and "format" in record
                and (status.size, status.mtime_ns) != (record["size"], record["mtime_ns"])
            ):
                advice = "Put back the file of before: disks are layers over it, and any other makes them unreadable."
                yield Problem(image.path, "was written to since it was verified", advice)
            elif status is not None and image.sha256 and record.get("sha256", image.sha256) != image.sha256:
                advice = "Correct the digest, or give the new image a path of its own: disks are layers over this file."
                found, asked = f"sha256:{record['sha256']}", f"sha256:{image.sha256}"
                yield Problem(image.path, "is another file than the wanted one", advice, found, asked)
            if status is None and not image.url:
                yield Problem(image.path, "is not there", "Put the image there, or give its URL.")

    def _of_guests(self) -> Iterator[tuple[str, str]]:
        """The files on record of guests, those too that have left the inventory, each with the guest's name."""
        for key, one in self.owned.items():
            name = _guest(DISK, key) or _guest(SEED, key)
            if name is not None:
                yield name, one["path"]

    def _in_use(self, leaving: set[str]) -> Iterator[Problem]:
        for name in sorted(leaving):
            path = self.owned.get(f"{DISK}[{name}]", {}).get("path")
            if path is None or self.current.files[path] is None:
                continue
            if isinstance(self.current.held, Unreadable):
                yield Problem(path, f"may be in use: {self.current.held.cause}", "Run as root on the host.")
            elif self.current.held.get(path):
                found = f"process {', '.join(map(str, self.current.held[path]))}"
                yield Problem(path, "is open, and its guest is to go", "Shut the guest down first.", found=found)

    # undo --------------------------------------------------------------------------------

    def _removals(self, leaving: set[str]) -> Iterator[Change]:
        why = "its guest is not in the inventory any more"
        for kind, disrupts in ((SEED, Disruption.NOTHING), (DISK, Disruption.GUEST)):
            for name in sorted(f"{kind}[{guest}]" for guest in leaving):
                if name not in self.owned:
                    continue
                path = self.owned[name]["path"]
                # The disk first: what it was made from tells whether it is ours.
                unmade = path if kind == DISK and not self.owned[name].get("made") else ""
                guest = _guest(SEED, name) or ""
                step = Remove((path, temporary(path)), guest, unmade)
                yield Change(name, path, None, why, disrupts, step, forget=(name,), undo=True)
        yield from self._bases(leaving)

    def _bases(self, leaving: set[str]) -> Iterator[Change]:
        """Images on which no disk rests any more, and none is to."""
        used = {image.path for image in self.desired.images.values()}
        for name, record in self.owned.items():
            guest = _guest(DISK, name)
            if guest is not None and guest not in leaving:
                used.add(record["base"])
        for name, record in sorted(self.owned.items()):
            if name.startswith(f"{BASE}[") and record["path"] not in used:
                path = record["path"]
                step_of = Remove((partial(path), path)) if record["ours"] else None
                yield Change(name, path, None, "no disk rests on it", step=step_of, forget=(name,), undo=True)


def _guest(kind: str, name: str) -> str | None:
    """The guest whose disk or seed a record is of; None for a record of another kind."""
    return name[len(kind) + 1 : -1] if name.startswith(f"{kind}[") else None


def _gone(desired: Desired, owned: Mapping[str, Any]) -> set[str]:
    """The guests that are not to be there any more and have a disk or seed on record."""
    staying = {wish.shape.name for wish in desired.guests.present}
    found = {_guest(kind, name) for name in owned for kind in (DISK, SEED)}
    return {name for name in found if name is not None} - staying


def _base(image: Image, current: Current, record: Mapping[str, Any] | None) -> list[Change]:
    name = f"{BASE}[{image.path}]"
    known = record if record and current.files[image.path] is not None and "format" in record else None
    if known and image.sha256 in ("", known.get("sha256")):
        return []
    step = Obtain(name, image.path, image.url, image.sha256)
    after = image.url or image.path
    if known:
        # What it was found to be stays on record: a digest that is wrong makes no other file of it.
        kept = {key: value for key, value in known.items() if key not in ("resource", "boot")}
        return [Change(name, "on record", after, "it is to have this digest", step=step, remember={name: kept})]
    remember = {name: {"before": None, "path": image.path, "ours": bool(image.url)}}
    return [Change(name, None, after, "guests' disks are layers over it", step=step, remember=remember)]


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


# apply -----------------------------------------------------------------------------------


def apply(change: Change, host: Host) -> dict[str, dict[str, Any]] | None:
    """Make one change; the record gets what an image turned out to be."""
    return carry_out(change.step, host)
