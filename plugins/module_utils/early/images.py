# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The initramfs images of the installed kernels: which there are, who builds them, and how one is built anew.

initramfs-tools replaces an image atomically by itself. dracut writes over it, and removes it when the room runs out,
so it is given another name to write to, and the image is renamed into place when it is on the disk.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.change import ABSENT, Absent, Unreadable
from ..core.errors import GpudirectError, Problem, UnreadableState
from ..core.host import Host, Space, Status
from . import files

MODULES = "/lib/modules"
UPDATE_CONF = "/etc/initramfs-tools/update-initramfs.conf"
TOOLS = {"initramfs-tools": "update-initramfs", "dracut": "dracut"}
_HOOK_FUNCTIONS = "/usr/share/initramfs-tools/hook-functions"
_BUILD_S = 1800  # one image under emulation takes a minute; a slow disk more


@dataclass(frozen=True)
class Image:
    """One image: where it is, the kernel it is for, its size in bytes and when it was written.

    ``begun`` is true when a build of it was cut off and left its beginning behind.
    """

    path: str
    kernel: str
    size: int
    mtime_ns: int
    begun: bool = False


@dataclass(frozen=True)
class File:
    """One of our files as it is."""

    text: str
    mtime_ns: int
    mode: int


@dataclass(frozen=True)
class Store:
    """The early part of a host: the builder of its images (empty: none that is known), our files, the images."""

    builder: str = ""
    files: Mapping[str, File] = field(default_factory=dict)
    folders: frozenset[str] = frozenset()
    images: tuple[Image, ...] = ()
    kernels: tuple[str, ...] = ()
    updates_off: bool = False
    refusals: Mapping[str, str] = field(default_factory=dict)
    space: Mapping[str, Space] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        """When the last of our files was written; 0 without any."""
        return max((file.mtime_ns for file in self.files.values()), default=0)


@dataclass(frozen=True)
class Build:
    """Step: build an image anew from what is on the host now. ``fingerprint`` is that of our files in it."""

    builder: str
    path: str
    kernel: str
    record: str
    fingerprint: str


def read(host: Host) -> Store:
    """Our files, the images and what would refuse a write."""
    builder = _builder(host)
    kernels = tuple(name for name in _names(host, MODULES) if host.exists(f"{MODULES}/{name}/modules.dep"))
    images = tuple(image for kernel in kernels for image in _images(host, builder, kernel))
    folders = {posixpath.dirname(image.path) for image in images}
    paths = [*files.PATHS, *(image.path for image in images)]
    return Store(
        builder,
        {path: file for path in files.PATHS if (file := _file(host, path)) is not None},
        frozenset(folder for path in files.PATHS if host.exists(folder := posixpath.dirname(path))),
        images,
        kernels,
        builder == "initramfs-tools" and _updates_off(host),
        {path: cause for path in paths if (cause := host.refuses_write(path))},
        {folder: space for folder in sorted(folders) if isinstance(space := host.space(folder), Space)},
    )


def _builder(host: Host) -> str:
    """A system has one builder; Debian's dracut may stand beside initramfs-tools for another purpose."""
    tools = host.exists(_HOOK_FUNCTIONS) and not isinstance(host.program(TOOLS["initramfs-tools"]), Absent)
    if tools:
        return "initramfs-tools"
    return "" if isinstance(host.program(TOOLS["dracut"]), Absent) else "dracut"


def _names(host: Host, folder: str) -> tuple[str, ...]:
    names = host.names(folder)
    if isinstance(names, Unreadable):
        raise UnreadableState([Problem(folder, f"cannot be read: {names.cause}", "Run as root on the host.")])
    return () if isinstance(names, Absent) else names


def _images(host: Host, builder: str, kernel: str) -> list[Image]:
    """The images of a kernel at the places where this system's builder puts them."""
    places = [f"/boot/initrd.img-{kernel}"]
    if builder == "dracut":
        machine = host.read_text("/etc/machine-id")
        places.append(f"/boot/initramfs-{kernel}.img")
        if isinstance(machine, str):
            places.append(f"/boot/{machine.strip()}/{kernel}/initrd")
    found = [(path, host.status(path)) for path in places]
    return [
        Image(path, kernel, status.size, status.mtime_ns, host.exists(_beginning(path)))
        for path, status in found
        if isinstance(status, Status)
    ]


def _beginning(path: str) -> str:
    """Where dracut writes an image before it is renamed into place."""
    return posixpath.join(posixpath.dirname(path), f".gpudirect.{posixpath.basename(path)}")


def _file(host: Host, path: str) -> File | None:
    text, status = host.read_text(path), host.status(path)
    if text is ABSENT:
        return None
    if not isinstance(text, str) or not isinstance(status, Status):
        cause = text.cause if isinstance(text, Unreadable) else "it has gone"
        raise UnreadableState([Problem(path, f"cannot be read: {cause}", "Run as root on the host.")])
    return File(text, status.mtime_ns, status.mode)


def _updates_off(host: Host) -> bool:
    """True where the administrator has switched updates of images off; the program then ends well and does nothing."""
    text = host.read_text(UPDATE_CONF)
    lines = text.splitlines() if isinstance(text, str) else []
    values = [
        line.split("=", 1)[1].strip().strip("\"'") for line in lines if line.strip().startswith("update_initramfs=")
    ]
    return values[-1:] == ["no"]


def build(step: Build, host: Host) -> dict[str, dict[str, Any]]:
    """Build the image; what it is like afterwards, by record path."""
    before = host.status(step.path)
    if step.builder == "dracut":
        beginning = _beginning(step.path)
        host.run(["dracut", "--force", beginning, step.kernel], timeout_s=_BUILD_S)
        host.sync()
        host.run(["mv", "--force", beginning, step.path])
    else:
        host.run(["update-initramfs", "-u", "-k", step.kernel], timeout_s=_BUILD_S)
    host.sync()
    after = host.status(step.path)
    if not isinstance(after, Status) or after == before:
        fact = f"{TOOLS[step.builder]} ended well and did not write it"
        raise GpudirectError([Problem(step.path, fact, "See what keeps it from doing so, and run it by hand.")])
    return {step.record: {"files": step.fingerprint, "size": after.size, "mtime_ns": after.mtime_ns}}
