# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The systemd units that run the engine on a host without Ansible. Pure.

The boot unit is ordered by sysinit.target (the default of every service), which comes after local file systems,
systemd-modules-load and udev's first announcement of all devices. It is not ordered before the network or ssh: whatever
it waits for, a login is possible. What starts guests, or needs what it brings, comes after it or after the target.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from ..core.owned import PATH as RECORD
from . import intent

ENGINE = "/usr/local/lib/gpudirect/gpudirect.pyz"
BOOT = "gpudirect-boot.service"
READY = "gpudirect-ready.target"
WATCH = "gpudirect-drift.service"
TIMER = "gpudirect-drift.timer"
# libvirt comes after the boot run, so what starts guests cannot be part of that run.
STARTER = "gpudirect-guests.service"
UNITS = (BOOT, READY, WATCH, TIMER, STARTER)
# The target that starts each of those that are enabled.
WANTED_BY = {BOOT: "multi-user.target", TIMER: "timers.target", STARTER: "multi-user.target"}
MARK = "# Installed by vela.gpudirect (host_boot), which replaces changes that are made here.\n"
# Who may start a guest or hand out a VF. libvirt's sockets are open earlier; who connects to one waits for the daemon.
GUESTS = ("libvirtd.service", "virtqemud.service", "virtnetworkd.service", "libvirt-guests.service")
# It loads, and may reload, the drivers of MLNX_OFED and DOCA-OFED hosts, which takes their VFs away.
DRIVERS = ("openibd.service",)


@dataclass(frozen=True)
class Settings:
    """``interval`` is a time span of systemd, empty for no watch; ``metrics`` a path, empty for no metrics.

    ``mends`` is whether the watch puts registers right, ``guests`` whether there are guests that a boot starts.
    """

    timeout_s: int
    device_timeout_s: int
    interval: str
    metrics: str
    mends: bool = False
    guests: bool = False


def render(settings: Settings) -> dict[str, str]:
    """The texts of the units by name; without an interval there is no watch."""
    units = {BOOT: _boot(settings), READY: _ready()}
    if settings.guests:
        units |= {STARTER: _starter(settings)}
    if settings.interval:
        units |= {WATCH: _watch(settings), TIMER: _timer(settings)}
    return {name: MARK + text for name, text in units.items()}


def _boot(settings: Settings) -> str:
    folders = " ".join(dict.fromkeys(posixpath.dirname(path) for path in (ENGINE, intent.PATH, RECORD)))
    return f"""\
[Unit]
Description=Bring back what a boot loses of this host's GPUDirect settings
RequiresMountsFor={folders}
After={" ".join(DRIVERS)}
Before={" ".join((READY, *GUESTS))}
Wants={" ".join([READY, *([STARTER] if settings.guests else [])])}

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/python3 -I {ENGINE} boot --allow link --device-timeout-s {settings.device_timeout_s}
TimeoutStartSec={settings.timeout_s}

[Install]
WantedBy={WANTED_BY[BOOT]}
"""


def _ready() -> str:
    return f"""\
[Unit]
Description=This host is ready for its GPUDirect guests
Requires={BOOT}
After={BOOT}
"""


def _starter(settings: Settings) -> str:
    return f"""\
[Unit]
Description=Start the GPUDirect guests of this host
Requires={READY}
After={" ".join((READY, *GUESTS))}

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/python3 -I {ENGINE} guests --device-timeout-s {settings.device_timeout_s}
TimeoutStartSec={settings.timeout_s}

[Install]
WantedBy={WANTED_BY[STARTER]}
"""


def _watch(settings: Settings) -> str:
    metrics = f" \\\n    --metrics {settings.metrics}" if settings.metrics else ""
    mend = " --mend" if settings.mends else ""
    does = "mend registers alone" if settings.mends else "change nothing"
    # Registers are written through /sys/devices; all other settings of the kernel stay out of reach.
    barred = (
        "ReadOnlyPaths=/sys /proc/sys\nReadWritePaths=/sys/devices" if settings.mends else "ProtectKernelTunables=yes"
    )
    return f"""\
[Unit]
Description=Compare this host with its GPUDirect intent and {does}
After={BOOT}

[Service]
Type=oneshot
ExecStart=/usr/bin/python3 -I {ENGINE} drift{mend}{metrics}
TimeoutStartSec={settings.timeout_s}
Nice=19
IOSchedulingClass=idle
{barred}
"""


def _timer(settings: Settings) -> str:
    return f"""\
[Unit]
Description=Compare this host with its GPUDirect intent every {settings.interval}

[Timer]
OnActiveSec={settings.interval}
OnUnitInactiveSec={settings.interval}

[Install]
WantedBy={WANTED_BY[TIMER]}
"""
