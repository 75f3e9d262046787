# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The network devices of a host, and those that it is reached through, which nothing may take down."""

from __future__ import annotations

from collections.abc import Iterator

from ..core.host import Connection, Host
from ..core.once import once
from .links import SHOW, Links, carriers, holder, parse_links, parse_routes


def network_devices(host: Host) -> Links:
    """All network devices, asked for once in a look."""
    return once(host, " ".join(SHOW), lambda: parse_links(SHOW, host.look([*SHOW]).out))


def protected(host: Host, links: Links) -> dict[str, str]:
    """The devices that carry a default route or the connection to this host, with why, whatever lies between.

    Asked for once in a look, as the network devices are.
    """
    return once(host, "protected network devices", lambda: _protected(host, links))


def _protected(host: Host, links: Links) -> dict[str, str]:
    found: dict[str, str] = {}

    def protect(device: str, why: str) -> None:
        for name in carriers(links, device):
            via = "" if name == device else f" (through {device})"
            found.setdefault(name, f"{why}{via}")

    for family in ("-4", "-6") if host.exists("/proc/net/if_inet6") else ("-4",):
        command = ["ip", "-json", family, "route", "show", "default"]
        for device in parse_routes(command, host.look(command).out):
            protect(device, "it carries the default route")
    connection = host.connection()
    if connection is not None:
        for device in _of_connection(host, links, connection):
            protect(device, f"the connection from {connection.client} comes through it")
    return found


def _of_connection(host: Host, links: Links, connection: Connection) -> Iterator[str]:
    """The device that has this end's address, and the one through which the way back goes."""
    own = holder(links, connection.local.partition("%")[0])
    if own is not None:
        yield own
    command = ["ip", "-json", "route", "get", connection.client.partition("%")[0]]
    done = host.look(command, expect=tuple(range(256)))
    if not done.status:
        yield from parse_routes(command, done.out)
