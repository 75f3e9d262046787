# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that decide, before any other driver is loaded, whose a device is: their paths and texts. Pure.

Two udev rules a device, with everything that identifies it as a condition; what takes the rule into the initramfs;
and modprobe's settings for modules that must not be loaded. All of them are wholly ours and are replaced whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

RULES = "/etc/udev/rules.d/10-gpudirect.rules"
HOOK = "/etc/initramfs-tools/hooks/gpudirect"
DRACUT = "/etc/dracut.conf.d/gpudirect.conf"
BLACKLIST = "/etc/modprobe.d/gpudirect.conf"

# In the order in which they are written: the rule is there before what copies it.
PATHS = (RULES, BLACKLIST, HOOK, DRACUT)
MODES = {HOOK: 0o755}

_HEAD = "# Written by vela.gpudirect (pci_driver) and replaced whole by its next run.\n"

_ADDED = ('ACTION=="add"', 'SUBSYSTEM=="pci"')

# The dependents of a module that only work on top of it.
FOLLOWERS: Mapping[str, tuple[str, ...]] = {"nvidia": ("nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia_peermem")}
# What would take an NVIDIA device on a host that passes it through.
OF_NVIDIA = ("nouveau", "nvidia", "nvidiafb", "nova_core", "nova_drm")

_HOOK = """\
#!/bin/sh
{head}# Takes the udev rules of devices that are passed through, and the modules that they load, into the initramfs.
PREREQ="udev"
case "${{1:-}}" in
prereqs)
    echo "$PREREQ"
    exit 0
    ;;
esac
. /usr/share/initramfs-tools/hook-functions
[ -e {rules} ] || exit 0
manual_add_modules {modules}
mkdir -p "${{DESTDIR}}/usr/lib/udev/rules.d"
cp -p {rules} "${{DESTDIR}}/usr/lib/udev/rules.d/"
"""


@dataclass(frozen=True, order=True)
class Guard:
    """One device and everything that must be true of it before it is taken.

    ``path`` is the way down to it from its root bus: ``pci0000:20``, the bridges, the device itself.
    """

    address: str
    path: tuple[str, ...]
    vendor: int
    device: int
    subsystem_vendor: int
    subsystem_device: int
    driver: str

    @property
    def _ids(self) -> dict[str, str]:
        names = ("vendor", "device", "subsystem_vendor", "subsystem_device")
        return {name: f"0x{getattr(self, name):04x}" for name in names}

    @property
    def claim(self) -> str:
        """The line by which the device is claimed, whatever PCI device is added first.

        Devices are added at the same time, and the module that one needs takes all others that it can have. So the
        override must be there before any module is loaded: each event sets it, before what the event loads.
        """
        there = f"[pci/{self.address}]"
        _root, *bridges, own = self.path
        below = [f'TEST=="[pci/{bridges[0]}]{"/".join([*bridges[1:], own])}/vendor"'] if bridges else []
        return ", ".join(
            [
                *_ADDED,
                f'ATTR{{{there}driver_override}}!="{self.driver}"',
                *(f'ATTR{{{there}{name}}}=="{value}"' for name, value in self._ids.items()),
                *below,
                f'ATTR{{{there}driver_override}}="{self.driver}"',
            ]
        )

    @property
    def rule(self) -> str:
        """The device's own line.

        The override is written first. Then either the driver is there already (built in, or loaded for another device),
        and the probe binds the device to it, or it comes with the module, which binds what asks for it. Both may happen
        at once; nothing is bound twice.
        """
        return ", ".join(
            [
                *_ADDED,
                f'KERNEL=="{self.address}"',
                f'DEVPATH=="*/{"/".join(self.path)}"',
                *(f'ATTR{{{name}}}=="{value}"' for name, value in self._ids.items()),
                f'ATTR{{driver_override}}="{self.driver}"',
                'ATTR{subsystem/drivers_probe}="$kernel"',
                f'RUN{{builtin}}+="kmod load {module_of(self.driver)}"',
            ]
        )


def module_of(driver: str) -> str:
    """The kernel module of a driver, in the kernel's own spelling."""
    return driver.replace("-", "_")


def is_vfio(driver: str) -> bool:
    """True for vfio-pci and the variants of it that know one kind of device (mlx5_vfio_pci)."""
    return module_of(driver).endswith("vfio_pci")


def modules_of(drivers: Iterable[str]) -> tuple[str, ...]:
    """The modules that an initramfs needs for these drivers.

    vfio loads its IOMMU backend once, when it is loaded itself; where the initramfs lacks it, it never comes.
    """
    wanted = {module_of(driver) for driver in drivers}
    if any(is_vfio(driver) for driver in wanted):
        wanted.add("vfio_iommu_type1")
    return tuple(sorted(wanted))


def rules_text(guards: Iterable[Guard]) -> str:
    """The rule file; the order of the guards does not matter. Empty for none."""
    inner = sorted(guards)
    lines = [*(guard.claim for guard in inner), *(guard.rule for guard in inner)]
    return "".join((_HEAD, *(f"{line}\n" for line in lines))) if lines else ""


def hook_text(drivers: Iterable[str]) -> str:
    """The hook of initramfs-tools; without a rule file it has nothing to do, and is no reason for an update to fail."""
    return _HOOK.format(head=_HEAD, rules=RULES, modules=" ".join(modules_of(drivers)))


def dracut_text(drivers: Iterable[str], paths: Sequence[str]) -> str:
    """Settings of dracut. Its lists are extended, and every value stands between blanks, as it wants them."""
    modules = modules_of(drivers)
    lines = [f'add_drivers+=" {" ".join(modules)} "'] if modules else []
    return "".join((_HEAD, *(f"{line}\n" for line in (*lines, f'install_items+=" {" ".join(paths)} "'))))


def blacklist_text(modules: Iterable[str]) -> str:
    """Settings of modprobe.

    ``blacklist`` keeps a module from being loaded for a device, quietly; ``install`` also keeps it from being loaded by
    name, and as a dependency of another, which then is not loaded either (tried with kmod 30).
    """
    lines = [f"blacklist {name}\ninstall {name} /bin/false\n" for name in sorted(set(modules))]
    return "".join((_HEAD, *lines)) if lines else ""


def with_followers(modules: Iterable[str]) -> tuple[str, ...]:
    """The modules and those that only work on top of them, sorted, in the kernel's spelling."""
    named = [module_of(name) for name in modules]
    return tuple(sorted({*named, *(follower for name in named for follower in FOLLOWERS.get(name, ()))}))


def texts(builder: str, guards: Sequence[Guard], modules: Sequence[str]) -> dict[str, str]:
    """Every file of the early part by path, for the builder of a host's initramfs images.

    initramfs-tools takes modprobe's settings along by itself; dracut only into images for one host.
    """
    drivers = {guard.driver for guard in guards}
    wanted = {RULES: rules_text(guards), BLACKLIST: blacklist_text(modules)}
    if guards and builder == "initramfs-tools":
        wanted[HOOK] = hook_text(drivers)
    kept = {path: text for path, text in wanted.items() if text}
    if kept and builder == "dracut":
        kept[DRACUT] = dracut_text(drivers, sorted(kept))
    return kept


def fingerprint(wanted: Mapping[str, str]) -> str:
    """What an image was built with, in a few signs; empty when it was built with nothing of ours."""
    return hashlib.sha256(json.dumps(wanted, sort_keys=True).encode("utf-8")).hexdigest()[:16] if wanted else ""
