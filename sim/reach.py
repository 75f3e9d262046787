# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reach the hosts: the ssh configuration that the rack writes, and whether a host answers."""

from __future__ import annotations

import select
import socket
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from sim.describe import Host
from sim.identity import known_hosts_line
from sim.places import Rack
from sim.ports import read_port

LOGIN_LIMIT_S = 60.0


def write_ssh_config(rack: Rack, hosts: Iterable[Host]) -> None:
    """Describe every host that has a port to ssh, and pin its host key."""
    ports = {host: read_port(rack.host(host.name) / "port") for host in hosts}
    ready = {host: port for host, port in ports.items() if port is not None}
    _replace(rack.known_hosts, "".join(known_hosts_line(rack, host.name) for host in ready))
    _replace(rack.ssh_config, "\n".join(_block(rack, host, port) for host, port in ready.items()))


def ssh_command(rack: Rack, name: str, remote: Iterable[str] = ()) -> list[str]:
    """Return the words that run a command on a host, or open a shell there."""
    return ["ssh", "-F", str(rack.ssh_config), name, *remote]


class Doorbell:
    """One patient attempt to hear an ssh server introduce itself.

    User networking accepts connections before there is a server, and each attempt costs the host
    a process; so an attempt is held until it is answered, refused or too old.
    """

    PATIENCE_S = 6.0

    def __init__(self, port: int) -> None:
        """Ring at a port of this machine."""
        self.limit = time.monotonic() + self.PATIENCE_S
        self.line = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.line.setblocking(False)
        self.line.connect_ex(("127.0.0.1", port))

    def answered(self, patience_s: float) -> bool | None:
        """Return True or False once it is decided, None while it is open."""
        readable, _, _ = select.select([self.line], [], [], patience_s)
        if not readable:
            return None if time.monotonic() < self.limit else False
        try:
            return self.line.recv(4) == b"SSH-"
        except OSError:
            return False

    def close(self) -> None:
        """Hang up."""
        self.line.close()


def greets(port: int, patience_s: float) -> bool:
    """Say whether an ssh server introduces itself within some seconds."""
    bell = Doorbell(port)
    try:
        return bool(bell.answered(patience_s))
    finally:
        bell.close()


def start_login(rack: Rack, name: str) -> subprocess.Popen[bytes]:
    """Start one login that runs `true`; its exit code says whether the host is usable."""
    alone = ["-o", "ControlMaster=no", "-o", "ControlPath=none", "-o", "BatchMode=yes"]
    return subprocess.Popen(
        ["ssh", "-F", str(rack.ssh_config), *alone, name, "true"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _block(rack: Rack, host: Host, port: int) -> str:
    options = {
        "HostName": "127.0.0.1",
        "Port": str(port),
        "User": host.ssh_user,
        "IdentityFile": _quoted(rack.key),
        "IdentitiesOnly": "yes",
        # By name, not by port: the port may change, the key does not.
        "HostKeyAlias": host.name,
        "UserKnownHostsFile": _quoted(rack.known_hosts),
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        # The default exchange is post-quantum: half a second of an emulated CPU at each login.
        "KexAlgorithms": "curve25519-sha256",
        "ControlMaster": "auto",
        "ControlPersist": "60s",
        "ControlPath": _quoted(rack.sockets / "ssh-%n"),
        "ServerAliveInterval": "15",
        "ServerAliveCountMax": "8",
        "LogLevel": "ERROR",
    }
    lines = [f"    {key} {value}" for key, value in options.items()]
    return "\n".join([f"Host {host.name}", *lines, ""])


def _quoted(path: Path) -> str:
    # A percent sign starts a token in ssh's paths, except in the ControlPath's own last part.
    folder = str(path.parent).replace("%", "%%")
    return f'"{folder}/{path.name}"'


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(path.name + ".new")
    draft.write_text(text)
    draft.replace(path)
