# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages a host for guests has, which kind of libvirt daemons, and what systemd holds of units."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Union

from ..core.change import Absent, Unreadable
from ..core.errors import Problem, UnreadableState
from ..core.host import Host

UNIT_FOLDERS = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
# Packages by what they bring, any of which will do: a probe of files costs no program, and packages of other sources count.
# Python's module is looked for in every folder of this form.
Brought = Mapping[str, tuple[str, ...]]
_UNITS = tuple(f"{folder}/{unit}" for folder in UNIT_FOLDERS for unit in ("libvirtd.service", "virtqemud.service"))
_MACHINED = ("/usr/lib/systemd/systemd-machined", "/lib/systemd/systemd-machined")
PACKAGES: Mapping[str, Brought] = {
    "debian": {
        "libvirt-clients": ("/usr/bin/virsh",),
        "libvirt-daemon-system": _UNITS,
        "ovmf": ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_CODE.fd"),
        "python3-libvirt": ("/usr/lib/python3/dist-packages/libvirt.py",),
        "qemu-system-x86": ("/usr/bin/qemu-system-x86_64",),
        "qemu-utils": ("/usr/bin/qemu-img",),
        "systemd-container": _MACHINED,
        "xorriso": ("/usr/bin/xorriso",),
    },
    "redhat": {
        "edk2-ovmf": ("/usr/share/edk2/ovmf",),
        "libvirt-client": ("/usr/bin/virsh",),
        "libvirt-daemon-kvm": _UNITS,
        "python3-libvirt": ("/usr/lib64/python3*/site-packages/libvirt.py",),
        "qemu-img": ("/usr/bin/qemu-img",),
        "qemu-kvm": ("/usr/libexec/qemu-kvm",),
        "systemd-container": _MACHINED,
        "xorriso": ("/usr/bin/xorriso",),
    },
}
_FAMILIES = {"debian": "debian", "ubuntu": "debian", "rhel": "redhat", "fedora": "redhat", "centos": "redhat"}
# libvirt, "Libvirt Daemons" (https://libvirt.org/daemons.html): one process for all drivers, or one for each; never both.
MONOLITHIC = ("libvirtd.socket", "libvirtd.service")
MODULAR = "virtqemud.socket"
# The modular daemons that guests here need; those that are not installed are left out, but for the first.
SOCKETS = (
    MODULAR,
    "virtnetworkd.socket",
    "virtnodedevd.socket",
    "virtnwfilterd.socket",
    "virtsecretd.socket",
    "virtstoraged.socket",
)
LOG_SOCKET = "virtlogd.socket"
# What merges pages, and what moves guests between nodes against their pinning (gpudirect.md F.2).
MOVERS = ("ksm.service", "ksmtuned.service", "numad.service")
_PROPERTIES = ("Id", "LoadState", "ActiveState", "UnitFileState")


@dataclass(frozen=True)
class Unit:
    """What systemd holds of a unit."""

    load: str
    active: str
    file: str

    @property
    def there(self) -> bool:
        """Whether it is installed."""
        return self.load not in ("not-found", "masked")

    @property
    def runs(self) -> bool:
        """Whether it is up, or about to be."""
        return self.active in ("active", "activating", "reloading")

    @property
    def enabled(self) -> bool:
        """Whether a boot starts it by itself."""
        return self.file.startswith("enabled")

    @property
    def masked(self) -> bool:
        """Whether somebody keeps it from being started."""
        return self.load == "masked" or self.file.startswith("masked")


def family(host: Host) -> str:
    """How the host's packages are called: ``debian``, ``redhat``, or empty where that is not known (os-release(5))."""
    text = host.read_text("/etc/os-release")
    values = dict(re.findall(r"^(ID|ID_LIKE)=[\"']?([^\"'\n]*)", text if isinstance(text, str) else "", re.MULTILINE))
    words = [*values.get("ID", "").split(), *values.get("ID_LIKE", "").split()]
    return next((_FAMILIES[word] for word in words if word in _FAMILIES), "")


def missing(host: Host, of: str) -> tuple[str, ...]:
    """The packages of a family that the host lacks."""
    return tuple(
        name for name, paths in sorted(PACKAGES.get(of, {}).items()) if not any(_there(host, path) for path in paths)
    )


def _there(host: Host, path: str) -> bool:
    folder, star, rest = path.partition("*")
    if not star:
        return host.exists(path)
    above, _slash, beginning = folder.rpartition("/")
    names = host.names(above)
    matching = [name for name in names if name.startswith(beginning)] if isinstance(names, tuple) else []
    return any(host.exists(f"{above}/{name}{rest}") for name in matching)


def units(host: Host, names: Sequence[str]) -> dict[str, Unit]:
    """The units by the names that were asked for (an alias answers with another one), in one call.

    A captured tree has no systemd to ask: nothing runs in it.
    """
    if host.captured or isinstance(host.program("systemctl"), Absent):
        return {name: Unit("not-found", "inactive", "") for name in names}
    done = host.look(["systemctl", "show", f"--property={','.join(_PROPERTIES)}", *names])
    blocks = [
        dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in done.out.split("\n\n")
    ]
    blocks = [block for block in blocks if block.keys() >= {"LoadState", "ActiveState"}]
    if len(blocks) != len(names):
        fact = f"systemctl show tells of {len(blocks)} units (wanted {len(names)})"
        raise UnreadableState([Problem("systemd", fact, "See whether systemd answers on the host.")])
    return {
        name: Unit(block["LoadState"], block["ActiveState"], block.get("UnitFileState", ""))
        for name, block in zip(names, blocks)
    }


def texts(host: Host, paths: Iterable[str]) -> dict[str, Union[str, None]]:
    """Texts of files; None for those that are not there."""
    return {path: text_of(host, path) for path in paths}


def text_of(host: Host, path: str) -> str | None:
    """Text of a file, None when it is not there; UnreadableState when it cannot be read."""
    text = host.read_text(path)
    if isinstance(text, Unreadable):
        raise UnreadableState([Problem(path, f"cannot be read: {text.cause}", "Run as root on the host.")])
    return text if isinstance(text, str) else None
