# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``apply`` carries out for images, disks and seeds: data, and the one place that does it. Every step may be repeated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.change import ABSENT
from ..core.errors import HostRefused, Problem, UnreadableState
from ..core.host import STATE, Host, Status
from . import seed

# Of one family, with the same options; xorriso's is the one that is kept up (docs/decisions/0013).
ISO_TOOLS = ("xorrisofs", "genisoimage", "mkisofs")
FORMATS = ("qcow2", "raw")
_COPY_TIMEOUT_S = 1800


@dataclass(frozen=True)
class Obtain:
    """Have a base image: fetched where it has a URL, with its digest where that is told, and of a kind that may be used."""

    record: str
    path: str
    url: str = ""
    sha256: str = ""


@dataclass(frozen=True)
class Layer:
    """Make a disk over a base image."""

    name: str
    path: str
    base: str
    size: int | None = None


@dataclass(frozen=True)
class WriteSeed:
    """Make the image that cloud-init reads."""

    name: str
    path: str
    texts: Mapping[str, str] = field(hash=False, repr=False)


@dataclass(frozen=True)
class Remove:
    """Remove files of ours, and what is left of the making of a guest's seed.

    ``unmade`` is a disk whose making was cut off: it may be somebody's who came first.
    """

    paths: tuple[str, ...]
    seed_of: str = ""
    unmade: str = ""


def temporary(path: str) -> str:
    """Where a file is made that then gets its name."""
    folder, _slash, name = path.rpartition("/")
    return f"{folder}/.gpudirect.{name}.new"


def partial(path: str) -> str:
    """Where a file is fetched to (core/download.py)."""
    folder, _slash, name = path.rpartition("/")
    return f"{folder}/.gpudirect.{name}.part"


def carry_out(step: Any, host: Host) -> dict[str, dict[str, Any]] | None:
    """Do one step; what an image turned out to be is for its record."""
    if isinstance(step, Obtain):
        return {step.record: _obtain(step, host)}
    if isinstance(step, Layer):
        _layer(step, host)
    elif isinstance(step, WriteSeed):
        _write_seed(step, host)
    elif isinstance(step, Remove):
        foreign = step.unmade if _is_foreign(step.unmade, host) else ""
        for path in step.paths:
            if path != foreign:
                host.remove(path)
        if step.seed_of:
            _clear(step.seed_of, host)
    return None


# Base images -----------------------------------------------------------------------------


def _obtain(step: Obtain, host: Host) -> dict[str, Any]:
    fetched = bool(step.url) and not host.exists(step.path)
    if fetched:
        host.fetch(step.url, step.path, step.sha256)
    elif step.sha256:
        _require_digest(step, host)
    try:
        known = inspected(host, step.path)
    except (HostRefused, UnreadableState):
        if fetched:  # nothing may come to rest on it
            host.remove(step.path)
        raise
    status = host.status(step.path)
    if not isinstance(status, Status):
        raise HostRefused([Problem(step.path, "is not there", "Put the image there, or give its URL.")])
    checked = {"sha256": step.sha256} if step.sha256 else {}
    return {**known, **checked, "size": status.size, "mtime_ns": status.mtime_ns}


def _require_digest(step: Obtain, host: Host) -> None:
    if not host.exists(step.path):
        raise HostRefused([Problem(step.path, "is not there", "Put the image there, or give its URL.")])
    found = host.run(["sha256sum", step.path], timeout_s=_COPY_TIMEOUT_S).out.lstrip("\\").split(maxsplit=1)[0]
    if found != step.sha256:
        advice = "Remove the file where no guest needs it, or correct the digest of the inventory."
        wanted = f"sha256:{step.sha256}"
        raise HostRefused(
            [Problem(step.path, "is another file than the wanted one", advice, f"sha256:{found}", wanted)]
        )


def inspected(host: Host, path: str) -> dict[str, Any]:
    """Format and virtual size of a base image; HostRefused for one that would have QEMU open other files of the host.

    An image names its backing and data files itself, so whoever made it could name any (QEMU documentation, "Security",
    qcow2 header extensions). ``info`` reads the names and opens none.
    """
    done = host.look(["qemu-img", "info", "--output=json", "-U", path], expect=(0, 1))
    try:
        told = json.loads(done.out) if done.status == 0 else {}
        form, size = str(told["format"]), int(told["virtual-size"])
    except (ValueError, KeyError, TypeError) as error:
        cause = (done.err.strip() or "no format").splitlines()[-1]
        raise UnreadableState(
            [Problem(path, f"is no image that qemu-img can read: {cause}", "Check the file.")]
        ) from error
    extra = (told.get("format-specific") or {}).get("data") or {}
    for name in ("backing-filename", "data-file"):
        other = told.get(name) or extra.get(name)
        if other:
            advice = "Take an image that stands alone (qemu-img convert makes one)."
            raise HostRefused([Problem(path, f"rests on another file ({name})", advice, found=repr(other))])
    if form not in FORMATS:
        advice = "Convert it with qemu-img convert."
        raise HostRefused([Problem(path, "has a format that guests do not get", advice, form, " or ".join(FORMATS))])
    return {"format": form, "virtual_size": size}


# Disks and seeds -------------------------------------------------------------------------


def _is_foreign(path: str, host: Host) -> bool:
    """Whether a disk that is not known to be finished is another file than the one that was to get its name."""
    new = temporary(path) if path else ""
    return bool(new) and host.exists(new) and host.exists(path) and host.status(new) != host.status(path)


def _layer(step: Layer, host: Host) -> None:
    if _is_foreign(step.path, host):
        advice = "Move it away where nothing needs it, or rename the guest."
        raise HostRefused([Problem(step.path, "is there and is not ours; it is not overwritten", advice)])
    if host.exists(step.path):  # cut off after it had got its name
        host.remove(temporary(step.path))
        return
    base = inspected(host, step.base)
    if step.size is not None and step.size < base["virtual_size"]:
        raise HostRefused([too_small(step.name, step.size, base["virtual_size"])])
    new = temporary(step.path)
    host.remove(new)
    size = [str(step.size)] if step.size is not None else []
    host.run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", step.base, "-F", base["format"], new, *size])
    host.run(["chmod", "0600", new])
    host.sync()
    # A link fails where a file has come to be meanwhile; a rename would put ours in the place of somebody's disk.
    host.run(["ln", "-T", new, step.path])
    host.remove(new)


def too_small(name: str, size: int, least: int) -> Problem:
    """The problem of a disk that cannot hold its image."""
    found, wanted = f"{size >> 30} GiB", f"at least {-(-least >> 30)} GiB"
    return Problem(f"guest_shapes[{name}].disk_gib", "is less than the image has", "Raise it.", found, wanted)


def _write_seed(step: WriteSeed, host: Host) -> None:
    """In a folder that is root's alone, since what a guest is told is not for every user of the host."""
    work, new = _work(step.name), temporary(step.path)
    for name, text in step.texts.items():
        host.write_text(f"{work}/{name}", text, 0o600)
    tool = next((name for name in ISO_TOOLS if host.program(name) is not ABSENT), ISO_TOOLS[0])
    names = [f"{work}/{name}" for name in sorted(step.texts)]
    made = f"{work}/seed.iso"
    host.run([tool, "-quiet", "-output", made, "-volid", seed.LABEL, "-joliet", "-rock", *names])
    host.run(["install", "-m", "0600", made, new])
    host.sync()
    host.run(["mv", "-T", new, step.path])
    _clear(step.name, host)


def _clear(name: str, host: Host) -> None:
    for part in (*seed.NAMES, "seed.iso"):
        host.remove(f"{_work(name)}/{part}", with_folder=True)


def _work(name: str) -> str:
    return f"{STATE}/seed-{name}"
