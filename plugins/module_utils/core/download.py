# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file of the network, under its name only when its digest is the wanted one; a part of the door to the host.

Proxies are those of the environment (``https_proxy``, ``no_proxy``), as urllib reads them. What has come is kept under a private name
and gone on with by a range request (RFC 9110, 14.2); a server that knows no ranges sends all of it again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import IO, Any

from .errors import CommandFailed, HostRefused, Problem

TIMEOUT_S = 60.0  # without a byte, not in all
_PIECE = 1 << 20


def fetch(url: str, target: str, sha256: str) -> None:
    """Have the file at ``target``: what is there already with that digest is left. The caller makes its name durable."""
    if os.path.isfile(target) and _digest_of(target).hexdigest() == sha256:
        return
    part = os.path.join(os.path.dirname(target), f".gpudirect.{os.path.basename(target)}.part")
    try:
        found = _complete(url, part, sha256)
        if found != sha256:
            os.unlink(part)
            advice = "Correct the digest of the inventory, or the URL; what came was thrown away."
            raise HostRefused(
                [Problem(url, "is another file than the wanted one", advice, f"sha256:{found}", f"sha256:{sha256}")]
            )
        os.chmod(part, 0o644)
        os.replace(part, target)
    except urllib.error.HTTPError as error:
        raise _unreachable(url, f"the server answers {error.code} {error.reason}") from error
    except (urllib.error.URLError, TimeoutError, ConnectionError, HTTPException) as error:
        raise _unreachable(url, str(getattr(error, "reason", "") or error or type(error).__name__)) from error
    except OSError as error:
        if error.errno == errno.ENOSPC:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)
        raise


def _complete(url: str, part: str, sha256: str) -> str:
    """Write the rest of the part, and give the digest of all of it."""
    handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "r+b") as stream:
        known = _digest(stream)
        if known.hexdigest() == sha256:  # cut off before it got its name
            return sha256
        start = stream.tell()
        with _opened(url, start) as answer:
            if answer.status != 206:  # noqa: PLR2004 - partial content; anything else is the whole
                start, known = 0, hashlib.sha256()
                stream.seek(0)
                stream.truncate()
            length = answer.headers.get("Content-Length") or ""
            left = int(length) if length.isdigit() else 0
            _require_room(url, part, left)
            while piece := answer.read(_PIECE):
                known.update(piece)
                stream.write(piece)
                left -= len(piece)
        if left > 0:  # reads of a given size end quietly where the server has hung up
            raise ConnectionError(f"the connection ended {left} bytes early")
        stream.flush()
        os.fsync(stream.fileno())
    return str(known.hexdigest())


def _opened(url: str, start: int) -> Any:
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})  # noqa: S310
    try:
        return urllib.request.urlopen(request, timeout=TIMEOUT_S)  # noqa: S310 - http and https only (image/intent.py)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not start:  # noqa: PLR2004 - the part is longer than the file: begin again
            raise
    return urllib.request.urlopen(url, timeout=TIMEOUT_S)  # noqa: S310


def _require_room(url: str, part: str, length: int) -> None:
    info = os.statvfs(os.path.dirname(part))
    free = info.f_bavail * info.f_frsize
    if length > free:
        found, wanted = f"{free >> 20} MiB", f"{-(-length >> 20)} MiB"
        raise HostRefused([Problem(os.path.dirname(part), f"has no room for {url}", "Make room.", found, wanted)])


def _digest_of(path: str) -> Any:
    with open(path, "rb") as stream:
        return _digest(stream)


def _digest(stream: IO[bytes]) -> Any:
    known = hashlib.sha256()
    while piece := stream.read(_PIECE):
        known.update(piece)
    return known


def _unreachable(url: str, cause: str) -> CommandFailed:
    advice = "See whether the host reaches it (https_proxy); a run goes on where this one stopped."
    return CommandFailed([Problem(url, f"cannot be fetched: {cause}", advice)])
