# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of the early part: our files, then every image that was not built with them.

Whether an image holds our files is decided by what is on record: of each image that was there when a file changed its
size and time, and of each that we built the fingerprint of the files too. Times are compared only for an image that
somebody else has made since; the hook was there then.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core.change import Change
from ..core.errors import Problem
from ..core.host import Host
from . import files
from .images import Build, Image, Store, build

EARLY = "pci_driver.early"
_MIB = 1 << 20
# Address, ids and driver in the line of a device.
_OWN_RULE = re.compile(
    r'KERNEL=="([^"]*)".*ATTR{vendor}=="0x([^"]*)".*ATTR{device}=="0x([^"]*)"'
    r'.*ATTR{subsystem_vendor}=="0x([^"]*)".*ATTR{subsystem_device}=="0x([^"]*)".*ATTR{driver_override}="([^"]*)"'
)


@dataclass(frozen=True)
class Write:
    """Step: replace one of our files."""

    path: str
    text: str
    mode: int = 0o644
    anew: bool = False  # its mode is wrong and must not be kept


@dataclass(frozen=True)
class Remove:
    """Step: remove one of our files, with the folder that was made for it."""

    path: str
    with_folder: bool


def path_of(path: str) -> str:
    """The change and record path of one of our files."""
    return f"pci_driver[{path}]"


def image_of(path: str) -> str:
    """The change and record path of an image."""
    return f"pci_driver.image[{path}]"


def plan(wanted: Mapping[str, str], store: Store, owned: Mapping[str, Any]) -> list[Change]:
    """Ordered changes. ``wanted`` are our files by path (``files.texts``); none of them: the way back."""
    if not wanted and EARLY not in owned:
        return []
    fingerprint = files.fingerprint(wanted)
    edits = [change for path in files.PATHS if (change := _edit(path, wanted, store, owned))]
    stale = [image for image in store.images if not _holds(image, fingerprint, store, owned, right=not edits)]
    seen = {EARLY: {"before": None, "files": fingerprint}}
    seen.update({image_of(image.path): _as_seen(image, owned) for image in stale})
    changes = [replace(change, remember={**change.remember, **seen}) for change in edits]
    changes += [_rebuild(image, fingerprint, store, owned) for image in stale]
    return [replace(change, next_boot=True) for change in _with_forgotten(changes, wanted, store, owned)]


def _edit(path: str, wanted: Mapping[str, str], store: Store, owned: Mapping[str, Any]) -> Change | None:
    """The change of one file. One that is there and was never ours is replaced, and put back on the way back."""
    there, record = store.files.get(path), owned.get(path_of(path))
    mode = files.MODES.get(path, 0o644)
    text = wanted.get(path, record["before"] if record else there.text if there else None)
    unfit = path in wanted and there is not None and there.mode & 0o111 != mode & 0o111
    if (there.text if there else None) == text and not unfit:
        return None
    forget = () if path in wanted else (path_of(path),)
    folder = posixpath.dirname(path)
    made = (record or {}).get("made_folder", folder not in store.folders)
    kept = {"before": there.text if there else None, "made_folder": made}
    step = Remove(path, made) if text is None else Write(path, text, mode, unfit)
    remember = {path_of(path): kept} if path in wanted else {}
    lines = (_shown(path, there.text) if there else None), (None if text is None else _shown(path, text))
    return Change(path_of(path), *lines, _why(path, wanted), step=step, remember=remember, forget=forget)


def _why(path: str, wanted: Mapping[str, str]) -> str:
    if path not in wanted:
        return "no longer wanted; what was there before is put back"
    return {
        files.RULES: "the devices are taken before any driver is loaded for them",
        files.BLACKLIST: "these modules are never loaded",
        files.HOOK: "every image of initramfs-tools gets the rules and the modules",
        files.DRACUT: "every image of dracut gets the rules and the modules",
    }[path]


def _shown(path: str, text: str) -> list[str]:
    """What a file says about this host, in short."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if path == files.RULES:
        found = [_OWN_RULE.search(line) for line in lines]
        return ["{} {}:{} {}:{} {}".format(*match.groups()) for match in found if match] or lines
    beginning = {files.HOOK: "manual_add_modules", files.BLACKLIST: "blacklist"}.get(path, "")
    return [line for line in lines if line.startswith(beginning)]


def _holds(image: Image, fingerprint: str, store: Store, owned: Mapping[str, Any], *, right: bool) -> bool:
    """Whether an image was built with the wanted files. ``right``: they are as wanted on the host."""
    if image.begun:
        return False
    record = owned.get(image_of(image.path))
    if record and (record["size"], record["mtime_ns"]) == (image.size, image.mtime_ns):
        return bool(record["files"] == fingerprint)
    since = owned.get(EARLY, {}).get("files") == fingerprint and image.mtime_ns >= store.newest
    return right and since


def _as_seen(image: Image, owned: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of an image before a file changes; it holds nothing of ours when nothing was ever ours."""
    record = owned.get(image_of(image.path))
    same = record and (record["size"], record["mtime_ns"]) == (image.size, image.mtime_ns)
    holds = record["files"] if record and same else None if EARLY in owned else ""
    return {"before": None, "files": holds, "size": image.size, "mtime_ns": image.mtime_ns}


def _rebuild(image: Image, fingerprint: str, store: Store, owned: Mapping[str, Any]) -> Change:
    path, seen = image_of(image.path), _as_seen(image, owned)
    return Change(
        path,
        seen["files"] or None,
        fingerprint or None,
        f"the image of {image.kernel} was not built with these files"
        if fingerprint
        else f"the image of {image.kernel} is built without our files",
        step=Build(store.builder, image.path, image.kernel, path, fingerprint),
        remember={EARLY: {"before": None, "files": fingerprint}, path: seen},
    )


def _with_forgotten(
    changes: list[Change], wanted: Mapping[str, str], store: Store, owned: Mapping[str, Any]
) -> list[Change]:
    """Drop the records of images that are gone, and on the way back every other one, once the last change is made."""
    there = {image_of(image.path) for image in store.images}
    gone = {path for path in owned if path.startswith("pci_driver.image[") and path not in there}
    if not wanted:
        gone |= {EARLY, *there, *map(path_of, files.PATHS)}
        if not changes:
            changes = [Change(EARLY, owned[EARLY]["files"] or None, None, "nothing of it is left on the host")]
    if not changes or not gone:
        return changes
    last = changes[-1]
    return [*changes[:-1], replace(last, forget=(*last.forget, *sorted(gone)))]


def refusals(changes: Sequence[Change], store: Store) -> list[Problem]:
    """What would stop one of these changes half-way, found before the first."""
    if not [change for change in changes if change.step is not None]:
        return []
    if not store.builder:
        fact = "nothing is known to build the initramfs of this host"
        advice = "Use a system with initramfs-tools (Debian, Ubuntu) or dracut (RHEL, Rocky)."
        return [Problem("pci_driver.early", fact, advice, found="neither update-initramfs nor dracut")]
    problems = [
        Problem(path, f"cannot be written: {store.refusals[path]}", "Make it writable, or leave pci_driver out.")
        for step in (change.step for change in changes)
        if (path := getattr(step, "path", "")) in store.refusals
    ]
    builds = [change.step for change in changes if isinstance(change.step, Build)]
    if builds and store.updates_off:
        fact, advice = "switches the update of images off", "Set update_initramfs=yes there."
        problems.append(Problem("/etc/initramfs-tools/update-initramfs.conf", fact, advice, "no", "yes"))
    return problems + _no_room(builds, store)


def _no_room(builds: Sequence[Build], store: Store) -> list[Problem]:
    """A new image stands beside the old one until it replaces it; one is built at a time."""
    problems = []
    sizes = {image.path: image.size for image in store.images}
    for folder, space in store.space.items():
        largest = max((sizes[one.path] for one in builds if posixpath.dirname(one.path) == folder), default=0)
        need = largest + largest // 10 + 4 * _MIB
        if largest and (space.free_bytes < need or space.free_inodes < 4):
            found = f"{space.free_bytes // _MIB} MiB and {space.free_inodes} inodes free"
            advice = "Remove old kernels (apt autoremove, dnf remove --oldinstallonly)."
            wanted = f"{-(-need // _MIB)} MiB and 4 inodes"
            problems.append(Problem(folder, "has no room for a new initramfs image", advice, found, wanted))
    return problems


def notes(changes: Sequence[Change], store: Store) -> list[str]:
    """What the operator should know of the images that are built."""
    builds = {change.step.kernel for change in changes if isinstance(change.step, Build)}
    without = [kernel for kernel in store.kernels if kernel not in {image.kernel for image in store.images}]
    if not changes or not (builds or without):
        return []
    return [f"pci_driver: the kernel {kernel} has no initramfs image at the usual place" for kernel in without]


def apply(step: Any, host: Host) -> dict[str, dict[str, Any]] | None:
    """Make one change of the early part."""
    if isinstance(step, Write):
        if step.anew:
            host.remove(step.path)
        host.write_text(step.path, step.text, step.mode)
    elif isinstance(step, Remove):
        host.remove(step.path, with_folder=step.with_folder)
    elif isinstance(step, Build):
        return build(step, host)
    return None
