# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image cache: built once for each recipe, shared by all checkouts, removed only when unused."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sim import build, guest_image, partitions
from sim.build import Say, build_image
from sim.emulator import Emulator
from sim.errors import RackError
from sim.places import Rack, cache_folder
from sim.requirements import debian_mirror, install_missing

KEY_LENGTH = 16
BUILDERS = tuple(Path(str(module.__file__)) for module in (build, guest_image, partitions))


@dataclass(frozen=True)
class Image:
    """A complete image in the cache."""

    folder: Path

    @property
    def key(self) -> str:
        """The hash of the recipe that it was built from."""
        return self.folder.name.removeprefix("image-")

    @property
    def identity(self) -> str:
        """What an overlay belongs to: two builds of one recipe differ in where their blocks lie."""
        return f"{self.key} {(self.folder / 'build-id').read_text().strip()}\n"

    @property
    def disk(self) -> Path:
        """The base of every host's overlay; never written to."""
        return self.folder / "base.img"

    @property
    def boot(self) -> Path:
        """A copy of the image's /boot."""
        return self.folder / "boot"

    @property
    def kernel(self) -> Path:
        """The kernel in the image."""
        (found,) = self.boot.glob("vmlinuz-*")
        return found

    @property
    def emulator(self) -> Emulator:
        """QEMU and its firmware."""
        return Emulator(self.folder / "emulator")

    def hold(self) -> int:
        """Return a shared lock that keeps the image from being pruned while it is in use."""
        lock = os.open(self.folder / "in-use", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_SH)
        return lock


def recipe_key(recipe: Path, builders: Sequence[Path] = BUILDERS) -> str:
    """Return the hash over every file that decides what is in the image."""
    digest = hashlib.sha256()
    files = sorted((path.relative_to(recipe).as_posix(), path) for path in recipe.rglob("*") if path.is_file())
    for name, path in [*files, *((f"/{path.name}", path) for path in builders)]:
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        runs = bool(path.stat().st_mode & stat.S_IXUSR)
        digest.update(f"{name}\0{runs}\0{content}\n".encode())
    return digest.hexdigest()[:KEY_LENGTH]


def find_image(rack: Rack) -> Image | None:
    """Return the image of the current recipe if it is built."""
    folder = cache_folder() / f"image-{recipe_key(rack.recipe)}"
    return Image(folder) if folder.is_dir() else None


def ensure_image(rack: Rack, say: Say) -> Image:
    """Return the image of the current recipe, building it once for all who ask at the same time."""
    if found := find_image(rack):
        return found
    if os.geteuid() != 0:
        raise RackError("image: not built yet, and only root can build it. Run 'sim/rack image' as root.")
    install_missing(rack.packages, say)
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    with _building(cache, say):
        return find_image(rack) or _build(rack, cache, say)


def prune(rack: Rack, say: Say) -> list[Path]:
    """Remove images of other recipes that no running host uses, and return their folders."""
    cache = cache_folder()
    current = f"image-{recipe_key(rack.recipe)}"
    with _building(cache, say):
        unused = [path for path in sorted(cache.glob("image-*")) if path.name != current and _nobody_uses(path)]
        for folder in unused:
            # Out of sight first: a half-removed image must not look like a whole one.
            folder.rename(folder.with_name("removing-" + folder.name))
        _sweep(cache)
    return unused


@contextlib.contextmanager
def _building(cache: Path, say: Say) -> Iterator[None]:
    lock = os.open(cache / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another rack builds an image, waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _build(rack: Rack, cache: Path, say: Say) -> Image:
    _sweep(cache)
    key = recipe_key(rack.recipe)
    work = cache / f"building-{key}"
    work.mkdir()
    try:
        build_image(rack.recipe, work, debian_mirror(), say)
        (work / "build-id").write_text(f"{uuid.uuid4()}\n")
        return Image(work.rename(cache / f"image-{key}"))
    except RackError as error:
        kept = cache / "failed-build.log"
        with contextlib.suppress(FileNotFoundError):
            (work / "build.log").replace(kept)
        raise RackError(f"image: was not built. Read {kept}.\n{error}") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _sweep(cache: Path) -> None:
    # Under the lock nobody else builds or removes: what lies here was left by one that was killed, or is to go.
    for pattern in ("building-*", "removing-*"):
        for left in cache.glob(pattern):
            shutil.rmtree(left)


def _nobody_uses(folder: Path) -> bool:
    lock = os.open(folder / "in-use", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
