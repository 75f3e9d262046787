# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What cloud-init of a guest reads at its first boot: the three files of its NoCloud data source. Pure.

Written as JSON, which is YAML too. The instance id is the guest's name: with another one cloud-init would take the guest for a new
machine, and give it new host keys (cloud-init documentation, "NoCloud", "Boot stages").
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LABEL = "cidata"  # the name by which cloud-init finds the volume
NAMES = ("meta-data", "network-config", "user-data")
TOPOLOGY = "/etc/gpudirect/virtualTopology.xml"
# Where NCCL looks without being told (gpudirect.md G.2); /run is empty after every boot.
NCCL_PATH = "/run/nvidia-topologyd/virtualTopology.xml"
NCCL_TMPFILES = "/etc/tmpfiles.d/gpudirect-nccl.conf"


@dataclass(frozen=True)
class Interface:
    """A network interface of a guest by its MAC address; ``dhcp`` where it has no addresses of its own."""

    name: str
    mac: str
    addresses: tuple[str, ...] = ()
    gateway: str = ""
    mtu: int | None = None
    dhcp: bool = False


@dataclass(frozen=True)
class Seed:
    """What a guest is told about itself."""

    name: str
    user: str = ""
    ssh_keys: tuple[str, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    topology: str = ""


def files(seed: Seed) -> dict[str, str]:
    """The files of the data source by name."""
    return {
        "meta-data": _json({"instance-id": seed.name, "local-hostname": seed.name}),
        "network-config": _json({"version": 2, "ethernets": {one.name: _ethernet(one) for one in seed.interfaces}}),
        "user-data": "#cloud-config\n" + _json(_user_data(seed)),
    }


def digest(texts: Mapping[str, str]) -> str:
    """SHA-256 over the files, by which a change is noticed without reading the image."""
    known = hashlib.sha256()
    for name, text in sorted(texts.items()):
        data = text.encode("utf-8", "surrogateescape")
        known.update(f"{name} {len(data)}\n".encode() + data)
    return known.hexdigest()


def _user_data(seed: Seed) -> dict[str, Any]:
    data: dict[str, Any] = {"hostname": seed.name, "preserve_hostname": False}
    if seed.user:
        data["users"] = [
            {
                "name": seed.user,
                "lock_passwd": True,
                "shell": "/bin/bash",
                "sudo": "ALL=(ALL) NOPASSWD:ALL",
                "ssh_authorized_keys": list(seed.ssh_keys),
            }
        ]
    if seed.topology:
        folder = NCCL_PATH.rpartition("/")[0]
        link = f"d {folder} 0755 root root -\nL+ {NCCL_PATH} - - - - {TOPOLOGY}\n"
        data["write_files"] = [_file(TOPOLOGY, seed.topology), _file(NCCL_TMPFILES, link)]
        # systemd-tmpfiles has run before the file came; from the next boot on it needs nobody.
        data["runcmd"] = [["systemd-tmpfiles", "--create", NCCL_TMPFILES]]
    return data


def _file(path: str, text: str) -> dict[str, str]:
    return {"path": path, "permissions": "0644", "owner": "root:root", "content": text}


def _ethernet(one: Interface) -> dict[str, Any]:
    known: dict[str, Any] = {"match": {"macaddress": one.mac}, "dhcp4": one.dhcp}
    if one.addresses:
        known["addresses"] = list(one.addresses)
    if one.gateway:
        known["routes"] = [{"to": "default", "via": one.gateway}]
    if one.mtu is not None:
        known["mtu"] = one.mtu
    if not one.dhcp:  # a rail must not hold up the boot of a guest whose switch is away
        known["optional"] = True
    return known


def _json(value: Mapping[str, Any] | Sequence[Any]) -> str:
    return json.dumps(value, indent=1, sort_keys=True) + "\n"
