"""Hosts to measure with: sshd processes of this machine on 127.0.0.x, with keys, ports and a home of their own."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "benchmark"
ADDRESSES_PER_SSHD = 16  # sshd listens on no more
# An sshd of root wants an account and a folder, which the machine shall not get from a measurement.
PRIVATE_MOUNTS = (
    *("unshare", "--mount", "sh", "-ec"),
    'mount --bind "$1" /etc/passwd; mount -t tmpfs tmpfs /run; mkdir /run/sshd; shift; exec "$@"',
    "sh",
)
CONFIG = """\
Port {port}
{listen}
HostKey {folder}/host_key
PidFile {folder}/{first}.pid
AuthorizedKeysFile {folder}/login_key.pub
SetEnv HOME={folder}/home
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
MaxStartups 200
UseDNS no
LogLevel ERROR
"""


@dataclass(frozen=True)
class Sshd:
    """An sshd program and what its process needs to start."""

    program: str
    environment: Mapping[str, str]
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Farm:
    """Running loopback hosts."""

    folder: Path
    port: int
    addresses: tuple[str, ...]
    processes: tuple[int, ...] = ()  # one sshd for some of the addresses each

    def inventory(self, count: int, variables: Mapping[str, Any]) -> dict[str, Any]:
        """An inventory of the first hosts, in which no variable is a template."""
        options = (
            f"-F /dev/null -o IdentityFile={self.folder}/login_key -o IdentitiesOnly=yes "
            f"-o UserKnownHostsFile={self.folder}/known_hosts -o StrictHostKeyChecking=yes"
        )
        hosts = {f"host-{number:02d}": {"ansible_host": one} for number, one in enumerate(self.addresses[:count], 1)}
        connection = {
            "ansible_port": self.port,
            "ansible_ssh_common_args": options,
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_become": False,
        }
        return {"gpudirect_hosts": {"hosts": hosts, "vars": {**connection, **variables}}}


def find_sshd() -> Sshd:
    """This machine's sshd; where there is none, the distribution's package is unpacked into the cache, not installed."""
    found = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found:
        return Sshd(found, {})
    tree = CACHE / "sshd"
    program = tree / "usr/sbin/sshd"
    if not program.exists():
        _unpack(("openssh-server", "libwrap0"), tree)
    libraries = ":".join(map(str, sorted(tree.glob("usr/lib/*-linux-gnu*"))))
    session = tree / "usr/lib/openssh/sshd-session"
    lines = (f"SshdSessionPath {session}",) if session.exists() else ()
    return Sshd(str(program), {"LD_LIBRARY_PATH": libraries}, lines)


def _unpack(packages: Sequence[str], tree: Path) -> None:
    downloads = tree.with_name("downloads")
    downloads.mkdir(parents=True, exist_ok=True)
    try:
        for package in packages:
            command = ["apt-get", "download", "-o", "APT::Sandbox::User=root", package]
            subprocess.run(command, cwd=downloads, check=True, capture_output=True, text=True)
        for file in downloads.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(file), str(tree)], check=True, capture_output=True)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        cause = str(getattr(error, "stderr", "") or error).strip()
        raise RuntimeError(
            f"sshd: is not on this machine and cannot be had ({cause}). Install openssh-server."
        ) from error


@contextlib.contextmanager
def farm(folder: Path, count: int) -> Iterator[Farm]:
    """Loopback hosts for the time of the block."""
    sshd = find_sshd()
    (folder / "home").mkdir(parents=True)
    folder.chmod(0o755)  # sshd reads the public key as the user who logs in
    for name in ("host_key", "login_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    addresses = tuple(f"127.0.0.{number}" for number in range(1, count + 1))
    port = _free_port()
    key = " ".join((folder / "host_key.pub").read_text().split()[:2])
    (folder / "known_hosts").write_text("".join(f"[{one}]:{port} {key}\n" for one in addresses))
    _accounts(folder)
    with contextlib.ExitStack() as stack:
        processes = tuple(
            stack.enter_context(_serving(sshd, folder, port, addresses[start : start + ADDRESSES_PER_SSHD]))
            for start in range(0, count, ADDRESSES_PER_SSHD)
        )
        yield Farm(folder, port, addresses, processes)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _accounts(folder: Path) -> Path:
    """This machine's accounts, and the one that an sshd of root wants to have."""
    accounts = folder / "passwd"
    text = Path("/etc/passwd").read_text()
    own = "" if "\nsshd:" in text else "sshd:x:65533:65534::/nonexistent:/bin/false\n"
    accounts.write_text(text + own)
    return accounts


@contextlib.contextmanager
def _serving(sshd: Sshd, folder: Path, port: int, addresses: Sequence[str]) -> Iterator[int]:
    config = folder / f"{addresses[0]}.conf"
    listen = "\n".join(f"ListenAddress {address}" for address in addresses)
    text = CONFIG.format(port=port, listen=listen, folder=folder, first=addresses[0])
    config.write_text("\n".join([text, *sshd.lines, ""]))
    log = (folder / f"{addresses[0]}.log").open("w")
    prefix = (*PRIVATE_MOUNTS, str(folder / "passwd")) if os.geteuid() == 0 else ()
    with (
        log,
        subprocess.Popen(
            [*prefix, sshd.program, "-D", "-e", "-f", str(config)],
            env={**os.environ, **sshd.environment},
            stdin=subprocess.DEVNULL,
            stderr=log,
        ) as process,
    ):
        try:
            _wait_until_it_listens(process, addresses[-1], port, log.name)
            yield process.pid
        finally:
            process.terminate()


def _wait_until_it_listens(process: subprocess.Popen[bytes], address: str, port: int, log: str) -> None:
    limit = time.monotonic() + 20
    while time.monotonic() < limit:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"sshd does not listen on {address}:{port}: {Path(log).read_text().strip()}")
