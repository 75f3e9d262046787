# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the rack keeps things: the checkout's state folder, short socket paths, the shared cache."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from sim.errors import RackError

# sun_path holds 108 bytes with its closing zero.
SOCKET_PATH_LIMIT = 107
# The longest name below the socket folder: "<host of 30>.<device of 30>", or ssh's control socket,
# which ssh binds under a temporary name that is 17 bytes longer.
LONGEST_SOCKET_NAME = 64


@dataclass(frozen=True)
class Rack:
    """The paths of one checkout's rack."""

    checkout: Path

    @property
    def state(self) -> Path:
        """The folder that everything but the image lives in."""
        return self.checkout / ".rack"

    @property
    def descriptions(self) -> Path:
        """The folder of host descriptions."""
        return self.checkout / "sim" / "hosts"

    @property
    def recipe(self) -> Path:
        """The folder that says what the image is made of."""
        return self.checkout / "sim" / "recipe"

    @property
    def packages(self) -> Path:
        """The list of packages that this machine needs."""
        return self.checkout / "sim" / "packages.txt"

    @property
    def sockets(self) -> Path:
        """The folder of unix sockets: below the state, or a short one when that is too deep."""
        return socket_folder(self.checkout, os.getuid())

    @property
    def ssh_config(self) -> Path:
        """The ssh configuration that names every host that was ever up."""
        return self.state / "ssh_config"

    @property
    def known_hosts(self) -> Path:
        """The host keys, written by the rack itself."""
        return self.state / "known_hosts"

    @property
    def key(self) -> Path:
        """The rack's own ssh key."""
        return self.state / "key"

    def host(self, name: str) -> Path:
        """Return the folder of one host."""
        return self.state / name


def socket_folder(checkout: Path, uid: int) -> Path:
    """Return a folder whose sockets fit into sun_path, the same one for the same checkout."""
    near = checkout / ".rack" / "run"
    if len(os.fsencode(near)) + 1 + LONGEST_SOCKET_NAME <= SOCKET_PATH_LIMIT:
        return near
    digest = hashlib.sha256(os.fsencode(checkout)).hexdigest()[:12]
    return Path(f"/tmp/vela-rack-{uid}-{digest}")  # noqa: S108 - see make_private


def make_private(folder: Path) -> None:
    """Create a folder that only this user can enter, or refuse one that somebody else made."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise RackError(f"{folder}: not a folder of this user. Remove it.")
    folder.chmod(0o700)


def cache_folder() -> Path:
    """Return the cache that all checkouts of this user share."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "vela.gpudirect"
