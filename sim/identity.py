# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who a host is: keys, name and machine-id, handed in as systemd credentials at its boot.

The image is the same for all hosts. QEMU offers the credentials over fw_cfg, systemd reads them,
and the kernel command line stays what the host's own boot loader says.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from sim.commands import run
from sim.describe import Host
from sim.machine import credential_names, wide_links
from sim.places import Rack

ADMIN_UID = 1000
LANES = "/run/rack-lanes"


def ensure_key(path: Path, comment: str) -> None:
    """Make an ed25519 key pair unless it is there."""
    if not path.exists() or not path.with_suffix(".pub").exists():
        path.unlink(missing_ok=True)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)])


def write_credentials(rack: Rack, host: Host) -> None:
    """Write one file for each credential of this host."""
    folder = rack.host(host.name) / "credentials"
    folder.mkdir(mode=0o700, exist_ok=True)
    host_key = rack.host(host.name) / "host_key"
    ensure_key(host_key, host.name)
    texts = credentials(host, rack.state, host_key.read_bytes(), _public(rack.key))
    for name in credential_names(host):
        file = folder / name
        file.touch(mode=0o600)
        file.write_text(texts[name])


def credentials(host: Host, salt: Path, host_key: bytes, login_key: str) -> dict[str, str]:
    """Return the text of every credential that a host may need."""
    return {
        "system.hostname": host.name,
        # Different in each checkout, the same over all boots of one host.
        "system.machine_id": hashlib.sha256(f"{salt}/{host.name}".encode()).hexdigest()[:32],
        "tmpfiles.extra": "\n".join(_tmpfiles(host, host_key, login_key)) + "\n",
        "ssh.authorized_keys.root": login_key,
        "sysusers.extra": f'u {host.ssh_user} {ADMIN_UID} "Operator" /home/{host.ssh_user} /bin/bash\n',
        "fstab.extra": "".join(f"{line}\n" for line in _mounts(host)),
    }


def known_hosts_line(rack: Rack, name: str) -> str:
    """Return the line by which ssh knows a host, whatever port it has."""
    return f"{name} {_public(rack.host(name) / 'host_key')}"


def _mounts(host: Host) -> list[str]:
    # A lane count is a file that tmpfiles makes, and no boot depends on it.
    late = "bind,nofail,x-systemd.after=systemd-tmpfiles-setup.service"
    return [
        *(f"LABEL={extra.label} {extra.mount} ext4 defaults 0 2" for extra in host.filesystems),
        *(f"{LANES}/{lanes} {folder}/max_link_width none {late} 0 0" for folder, lanes in wide_links(host).items()),
    ]


def _tmpfiles(host: Host, host_key: bytes, login_key: str) -> list[str]:
    hosts_file = f"127.0.0.1 localhost\n127.0.1.1 {host.name}\n::1 localhost ip6-localhost ip6-loopback\n"
    lines = [
        f"f /etc/hostname 0644 root root - {host.name}",
        f"f~ /etc/hosts 0644 root root - {_encoded(hosts_file.encode())}",
        f"f+~ /etc/ssh/ssh_host_ed25519_key 0600 root root - {_encoded(host_key)}",
    ]
    if host.ssh_user != "root":
        user, home = host.ssh_user, f"/home/{host.ssh_user}"
        lines += [
            f"d {home} 0755 {user} {user} -",
            f"d {home}/.ssh 0700 {user} {user} -",
            f"f~ {home}/.ssh/authorized_keys 0600 {user} {user} - {_encoded(login_key.encode())}",
        ]
    lanes = sorted(set(wide_links(host).values()))
    return [*lines, *(f"f+ {LANES}/{number} 0444 root root - {number}\\n" for number in lanes), *host.tmpfiles]


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _public(key: Path) -> str:
    return key.with_suffix(".pub").read_text()
