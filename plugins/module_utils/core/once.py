# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What several resources need of a host is read once, while nobody writes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

from .host import Host

_Read = TypeVar("_Read")


@contextlib.contextmanager
def looking(host: Host) -> Iterator[None]:
    """A look at a host: until its end, ``once`` reads each thing one time. A write forgets all that was read."""
    before, host.kept = host.kept, {}
    try:
        yield
    finally:
        host.kept = before


def once(host: Host, what: str, read: Callable[[], _Read]) -> _Read:
    """What was read of the host in this look by this name, or a new reading. Errors are not kept."""
    if host.kept is None:
        return read()
    if what not in host.kept:
        host.kept[what] = read()
    found: _Read = host.kept[what]
    return found
