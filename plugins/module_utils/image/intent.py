# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of guest images: base images, the disks made from them, and what each guest is told. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..core.errors import IntentError, Problem
from ..core.schema import Field, Schema
from ..vf.mac import canonical_mac
from .seed import Interface, Seed

GIB = 1 << 30
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def _named(path: str, text: str) -> str:
    if _NAME.fullmatch(text) is None:
        wanted = "at most 63 letters, digits, dots, dashes and underscores, the first a letter or digit"
        raise IntentError([Problem(path, "cannot be the name of a file", "Rename it.", repr(text), wanted)])
    return text


def _url(path: str, text: str) -> str:
    if re.fullmatch(r"https?://[^\s/@]+/\S*[^\s/]", text) is None:
        wanted = "https:// or http://, a host and a file, without a password"
        raise IntentError([Problem(path, "is no address of a file", "Correct it.", repr(text), wanted)])
    return text


def _absolute(path: str, text: str) -> str:
    if not text.startswith("/") or posixpath.normpath(text) != text or re.search(r"[\s,:]", text):
        raise IntentError([Problem(path, "is no plain absolute path", "Correct it.", found=repr(text))])
    return text


def _sha256(path: str, text: str) -> str:
    if re.fullmatch(r"[0-9a-fA-F]{64}", text) is None:
        raise IntentError(
            [Problem(path, "is no SHA-256", "Take it from who publishes the image.", text, "64 hex digits")]
        )
    return text.lower()


_IMAGE = (
    Field("name", "str", ("What guests call the image.",), required=True, check=_named),
    Field("url", "str", ("Where the host fetches it. Give this or O(guest_images[].path).",), check=_url),
    Field("path", "str", ("Where it lies on the host already; it is used there, and never removed.",), check=_absolute),
    Field("sha256", "str", ("Its SHA-256; an image from a URL has to have one.",), check=_sha256),
)
_INTERFACE = (
    Field("name", "str", ("What the guest's network settings call it.",), required=True, check=_named),
    Field("mac", "str", ("Its MAC address.",), required=True, check=canonical_mac),
    Field("addresses", "list", ("Addresses with their prefix length.",), default=[], elements="str"),
    Field("gateway", "str", ("Address of the default gateway.",)),
    Field("mtu", "int", ("MTU.",), minimum=68),
    Field("dhcp", "bool", ("Whether it asks for an address.",), default=False),
)
_DISK = (
    Field("name", "str", ("Name of the guest.",), required=True, check=_named),
    Field("image", "str", ("Name of the image in O(guest_images).",), required=True),
    Field("size_gib", "int", ("Size of the disk in GiB. Omitted: that of the image.",), minimum=1),
    Field("user", "str", ("User that may become root; has keys and no password.",)),
    Field("ssh_keys", "list", ("Public keys of that user.",), default=[], elements="str", public=True),
    Field("interfaces", "list", ("Network interfaces.",), default=[], elements="dict", fields=_INTERFACE),
    Field("topology", "str", ("Text of the topology file for NCCL.",)),
)
SCHEMA = Schema(
    "guest_image",
    "guest_",
    (
        Field("guest_images", "list", ("Base images.",), default=[], elements="dict", fields=_IMAGE),
        Field(
            "guest_disks",
            "list",
            (
                "Disks of the guests of this host, each a layer over its base image, and what cloud-init tells the guest.",
                "A disk that is there is never made again. One that leaves the list is removed, which disrupts the V(guest).",
            ),
            default=[],
            elements="dict",
            fields=_DISK,
        ),
        Field(
            "guest_image_folder",
            "str",
            ("Folder of base images, disks and seeds; QEMU's own user has to be able to enter it.",),
            default="/var/lib/libvirt/images",
            check=_absolute,
        ),
    ),
)


@dataclass(frozen=True)
class Image:
    """A base image. ``path`` is where it lies, or will: the digest is in the name, so another image never takes its place."""

    name: str
    path: str
    url: str = ""
    sha256: str = ""


@dataclass(frozen=True)
class Disk:
    """A guest's disk and seed."""

    name: str
    image: Image
    path: str
    seed_path: str
    seed: Seed
    size: int | None = None


@dataclass(frozen=True)
class Desired:
    """The images that disks use, and the disks."""

    images: tuple[Image, ...] = ()
    disks: tuple[Disk, ...] = ()
    folder: str = ""


def parse(params: Mapping[str, Any]) -> Desired:
    """What the options ask for; IntentError with every problem at once. Images that no disk uses are not fetched."""
    values, problems = SCHEMA.parse_all(params)
    folder = values["guest_image_folder"]
    images: dict[str, Image] = {}
    for index, one in enumerate(values["guest_images"]):
        if one is not None:
            problems += _image(f"guest_images[{index}]", one, folder, images)
    disks: dict[str, Disk] = {}
    for index, one in enumerate(values["guest_disks"]):
        if one is not None:
            problems += _disk(f"guest_disks[{index}]", one, folder, images, disks)
    if problems:
        raise IntentError(problems)
    used = {disk.image.name for disk in disks.values()}
    kept = tuple(image for name, image in sorted(images.items()) if name in used)
    return Desired(kept, tuple(disks[name] for name in sorted(disks)), folder)


def _image(path: str, one: Mapping[str, Any], folder: str, images: dict[str, Image]) -> list[Problem]:
    name, sha256 = one["name"], one["sha256"] or ""
    if (one["url"] is None) == (one["path"] is None):
        found = "neither" if one["url"] is None else "both"
        return [Problem(path, "is from a URL or at a path", "Give url or path.", found, "one of them")]
    if one["url"] and not sha256:
        return [Problem(f"{path}.sha256", "is missing", "Give the digest that its publisher tells.")]
    if name in images:
        return [Problem(f"{path}.name", "is that of another image", "Rename one.", found=repr(name))]
    place = one["path"] or f"{folder}/gpudirect-{name}-{sha256[:16]}.img"
    images[name] = Image(name, place, one["url"] or "", sha256)
    return []


def _disk(
    path: str, one: Mapping[str, Any], folder: str, images: Mapping[str, Image], disks: dict[str, Disk]
) -> list[Problem]:
    name, image = one["name"], images.get(one["image"])
    if image is None:
        known = ", ".join(sorted(images)) or "none"
        return [Problem(f"{path}.image", "names no image of guest_images", "Correct it.", repr(one["image"]), known)]
    if name.lower() in {other.lower() for other in disks}:
        return [Problem(f"{path}.name", "is that of another guest", "Rename one.", found=repr(name))]
    if one["ssh_keys"] and not one["user"]:
        return [Problem(f"{path}.user", "is missing", "Name the user who has the keys.")]
    interfaces = tuple(
        Interface(each["name"], each["mac"], tuple(each["addresses"]), each["gateway"] or "", each["mtu"], each["dhcp"])
        for each in one["interfaces"]
    )
    twins = {one.mac for one in interfaces if [other.mac for other in interfaces].count(one.mac) > 1}
    if twins or len({each.name for each in interfaces}) != len(interfaces):
        return [
            Problem(f"{path}.interfaces", "has a name or MAC address twice", "Correct it.", ", ".join(sorted(twins)))
        ]
    seed = Seed(name, one["user"] or "", tuple(one["ssh_keys"]), interfaces, one["topology"] or "")
    size = one["size_gib"] * GIB if one["size_gib"] else None
    disks[name] = Disk(name, image, f"{folder}/{name}.qcow2", f"{folder}/{name}-seed.iso", seed, size)
    return []
