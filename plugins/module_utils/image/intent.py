# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of guest images: base images, and the guests whose disks are made from them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core.errors import IntentError, Problem
from ..core.schema import Field, Schema, right_entries
from ..guest import wanted
from ..guest.intent import FIELDS as OF_SHAPES
from ..guest.intent import Wish
from ..guest.wanted import absolute

# The port has digits only: what is before a slash in a password would pass for one.
_URL = re.compile(r"https?://(\[[0-9A-Fa-f:.]+\]|[^\s/@:\[\]]+)(:[0-9]{1,5})?/\S*[^\s/]")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def _named(path: str, text: str) -> str:
    if _NAME.fullmatch(text) is None:
        wanted = "at most 63 letters, digits, dots, dashes and underscores, the first a letter or digit"
        raise IntentError([Problem(path, "cannot be the name of a file", "Rename it.", repr(text), wanted)])
    return text


def _url(path: str, text: str) -> str:
    if _URL.fullmatch(text) is None:
        wanted = "https:// or http://, a host and a file, without a password"
        raise IntentError([Problem(path, "is no address of a file", "Correct it.", repr(_without_user(text)), wanted)])
    return text


def _without_user(text: str) -> str:
    """A URL as it may be told: up to its last @ there may be a password, in which / and @ may be too."""
    return re.sub(r"^([A-Za-z][A-Za-z0-9+.-]*://)?.*@", r"\1***@", text, count=1, flags=re.DOTALL)


def _sha256(path: str, text: str) -> str:
    if re.fullmatch(r"[0-9a-fA-F]{64}", text) is None:
        raise IntentError(
            [Problem(path, "is no SHA-256", "Take it from who publishes the image.", text, "64 hex digits")]
        )
    return text.lower()


_IMAGE = (
    Field("name", "str", ("What guests call the image.",), required=True, check=_named),
    Field("url", "str", ("Where the host fetches it. Give this or O(guest_images[].path).",), check=_url),
    Field("path", "str", ("Where it lies on the host already; it is used there, and never removed.",), check=absolute),
    Field("sha256", "str", ("Its SHA-256; an image from a URL has to have one.",), check=_sha256),
)
IMAGES_FIELD = Field(
    "guest_images",
    "list",
    ("Base images of guests. One that no guest of the host names is not fetched.",),
    default=[],
    elements="dict",
    fields=_IMAGE,
)
SCHEMA = Schema("guest_image", "guest_", (IMAGES_FIELD, *wanted.PLACING_FIELDS))


@dataclass(frozen=True)
class Image:
    """A base image. ``path`` is where it lies, or will: the digest is in the name, so another image never takes its place."""

    name: str
    path: str
    url: str = ""
    sha256: str = ""


@dataclass(frozen=True)
class Desired:
    """The images that guests name, by name, and all guests of the host."""

    images: Mapping[str, Image] = field(default_factory=dict, hash=False)
    guests: wanted.Desired = wanted.Desired()

    @property
    def wishes(self) -> tuple[Wish, ...]:
        """The guests whose disk is made from an image."""
        return tuple(wish for wish in self.guests.present if wish.rest["image"])


def parse(params: Mapping[str, Any]) -> Desired:
    """What the options ask for; IntentError with every problem at once."""
    values, problems = SCHEMA.parse_all(params)
    images: dict[str, Image] = {}
    shapes = right_entries(OF_SHAPES[0], params)
    for index, one in enumerate(right_entries(IMAGES_FIELD, params)):
        problems += _image(f"guest_images[{index}]", one, values[wanted.FOLDER_FIELD.name], images)
        problems += _of_guest(f"guest_images[{index}]", one, values[wanted.FOLDER_FIELD.name], shapes)
    problems += _unknown_images(shapes, _names(params.get(IMAGES_FIELD.name)))
    guests = wanted.Desired()
    try:
        guests = wanted.parse({name: one for name, one in params.items() if name in _OF_GUESTS})
    except IntentError as error:
        problems += error.problems
    if problems:
        raise IntentError(problems)
    used = {wish.rest["image"] for wish in guests.present}
    return Desired({name: image for name, image in sorted(images.items()) if name in used}, guests)


_OF_GUESTS = frozenset(entry.name for entry in wanted.PLACING_FIELDS)


def _names(given: Any) -> set[Any]:
    """The names of all images, of those too that are wrong by themselves, which is said already."""
    entries = given if isinstance(given, (list, tuple)) else ()
    return {str(one["name"]) for one in entries if isinstance(one, Mapping) and one.get("name") is not None}


def _unknown_images(shapes: Sequence[Mapping[str, Any]], known: set[str]) -> Iterator[Problem]:
    """Images that only shapes know; each has only the options that are right by themselves."""
    for index, shape in enumerate(shapes):
        if shape.get("image") and shape.get("state", wanted.GONE) != wanted.GONE and shape["image"] not in known:
            path, found = f"guest_shapes[{index}].image", repr(shape["image"])
            names = ", ".join(sorted(known)) or "a name out of guest_images, which has none"
            yield Problem(path, "names no image of guest_images", "Correct it.", found, names)


def _of_guest(
    path: str, image: Mapping[str, Any], folder: str, shapes: Sequence[Mapping[str, Any]]
) -> Iterator[Problem]:
    """A base image that is a guest's disk or seed: the guest writes to it, and it goes with the guest."""
    for index, shape in enumerate(shapes):
        if shape.get("name") and image.get("path") in wanted.files_in(folder, shape["name"]).all:
            fact = f"is a file of guest_shapes[{index}] ({shape['name']})"
            yield Problem(f"{path}.path", fact, "Give the image a path of its own.", repr(image["path"]))


def _image(path: str, one: Mapping[str, Any], folder: str, images: dict[str, Image]) -> list[Problem]:
    """Keep one image, and tell what speaks against it; options that are wrong by themselves are left out of ``one``."""
    problems, name = [], one.get("name", "")
    if one.keys() >= {"url", "path"} and (one["url"] is None) == (one["path"] is None):
        found = "neither" if one["url"] is None else "both"
        problems.append(Problem(path, "is from a URL or at a path", "Give url or path.", found, "one of them"))
    if one.get("url") and "sha256" in one and not one["sha256"]:
        problems.append(Problem(f"{path}.sha256", "is missing", "Give the digest that its publisher tells."))
    if name in images:
        problems.append(Problem(f"{path}.name", "is that of another image", "Rename one.", found=repr(name)))
    elif name:
        sha256 = one.get("sha256") or ""
        place = one.get("path") or f"{folder}/gpudirect-{name}-{sha256[:16]}.img"
        twin = next((other for other in images.values() if other.path == place), None)
        if twin is not None:
            problems.append(
                Problem(f"{path}.path", f"is that of image {twin.name} too", "Name one of them.", repr(place))
            )
        images[name] = Image(name, place, one.get("url") or "", sha256)
    return problems
