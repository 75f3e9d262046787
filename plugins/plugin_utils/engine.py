# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine as one file, for hosts that run it without Ansible: the same bytes from every checkout and control node.

The files are stored, not compressed: what deflate makes of a text differs between releases of zlib, and a host would get
a new engine from every other control node.
"""

from __future__ import annotations

import functools
import hashlib
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "module_utils"
PACKAGE = "gpudirect"
_MAIN = f"from {PACKAGE}.at_boot.command_line import main\n\nraise SystemExit(main())\n"
# The oldest time that the format knows; a file's own time would differ by checkout.
_TIME = (1980, 1, 1, 0, 0, 0)
_UNIX, _FILE = 3, 0o100644


@dataclass(frozen=True)
class Engine:
    """The archive, and its SHA-256 in hex."""

    content: bytes
    digest: str


def built(sources: Path = SOURCES) -> Engine:
    """The archive of the engine whose sources lie in a folder."""
    content = archive(files(sources))
    return Engine(content, hashlib.sha256(content).hexdigest())


@functools.cache
def own() -> Engine:
    """The archive of this collection's engine, built once in a process."""
    return built()


def files(sources: Path) -> dict[str, bytes]:
    """What goes into the archive, by name: the sources as a package whose folders all are packages."""
    found = {f"{PACKAGE}/{path.relative_to(sources).as_posix()}": path.read_bytes() for path in sources.rglob("*.py")}
    folders = {name.rpartition("/")[0] for name in found}
    return {"__main__.py": _MAIN.encode(), **{f"{folder}/__init__.py": b"" for folder in folders}, **found}


def archive(contents: dict[str, bytes]) -> bytes:
    """A zip file whose bytes depend on names and contents alone."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as packed:
        for name in sorted(contents):
            entry = zipfile.ZipInfo(name, _TIME)
            entry.create_system = _UNIX
            entry.external_attr = _FILE << 16
            packed.writestr(entry, contents[name])
    return stream.getvalue()
