"""Reach the hosts: the ssh configuration that the rack writes, and whether a host answers."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from sim.describe import Host
from sim.identity import known_hosts_line
from sim.places import Rack
from sim.ports import read_port

CONNECT_TIMEOUT_S = 4


def write_ssh_config(rack: Rack, hosts: Iterable[Host]) -> None:
    """Describe every host that has a port to ssh, and pin its host key."""
    ready = [host for host in hosts if read_port(rack.host(host.name) / "port")]
    _replace(rack.known_hosts, "".join(known_hosts_line(rack, host.name) for host in ready))
    blocks = [_block(rack, host, read_port(rack.host(host.name) / "port") or 0) for host in ready]
    _replace(rack.ssh_config, "\n".join(blocks))


def ssh_command(rack: Rack, name: str, remote: Iterable[str] = ()) -> list[str]:
    """Return the words that run a command on a host, or open a shell there."""
    return ["ssh", "-F", str(rack.ssh_config), name, *remote]


def start_probe(rack: Rack, name: str) -> subprocess.Popen[bytes]:
    """Start one attempt to run `true` on the host; its exit code says whether ssh answers."""
    alone = ["-o", "ControlMaster=no", "-o", "ControlPath=none", "-o", "BatchMode=yes"]
    limit = ["-o", f"ConnectTimeout={CONNECT_TIMEOUT_S}"]
    argv = ["ssh", "-F", str(rack.ssh_config), *alone, *limit, name, "true"]
    return subprocess.Popen(  # noqa: S603 - argument lists only, never a shell
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
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
    return f'"{path}"'


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(path.name + ".new")
    draft.write_text(text)
    draft.replace(path)
