# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is done to a guest, one act at a time. Each can be cut off: the next run sees where it stopped, and goes on."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Union

from ..core.errors import CommandFailed, HostRefused, Problem
from ..core.host import Host
from ..early.files import is_vfio
from . import libvirt
from .libvirt import Libvirt

_DEVICES = "/sys/bus/pci/devices"
# A guest that is still in its firmware or boot loader does not hear that it is to end, and nobody keeps the word for it.
_ASK_AGAIN_S = 20


@dataclass(frozen=True)
class Define:
    """Have libvirt keep a definition."""

    name: str
    xml: str


@dataclass(frozen=True)
class Autostart:
    """Have libvirt not start it by itself: it would not wait for what the guest needs."""

    name: str


@dataclass(frozen=True)
class Stop:
    """Have the guest end. ``others`` are asked and waited for with it; each of them has a step of its own after that, with ``waited``."""

    name: str
    force: bool
    timeout_s: int
    others: tuple[str, ...] = ()
    waited: bool = False


@dataclass(frozen=True)
class Start:
    """Start the guest; ``devices`` are those of the host that it gets."""

    name: str
    devices: tuple[str, ...]


@dataclass(frozen=True)
class Restart:
    """Have the guest end and start as it is defined now: a reboot from inside would keep the old definition."""

    stop: Stop
    start: Start


@dataclass(frozen=True)
class Undefine:
    """Have libvirt forget the guest and what its firmware kept."""

    name: str
    nvram: bool


Step = Union[Define, Autostart, Stop, Start, Restart, Undefine]


def carry_out(step: Step, host: Host) -> None:
    """Do it; what is done already is fine."""
    door = libvirt.reached(host)
    if isinstance(step, Define):
        door.domains.define(step.xml)
    elif isinstance(step, Autostart):
        door.domains.autostart(step.name, False)
    elif isinstance(step, Undefine):
        door.domains.undefine(step.name, nvram=step.nvram)
    elif isinstance(step, Stop):
        _stop(step, door, host)
    elif isinstance(step, Start):
        _start(step, door, host)
    else:
        _stop(step.stop, door, host)
        _start(step.start, door, host)


def _stop(step: Stop, door: Libvirt, host: Host) -> None:
    names = [step.name, *step.others]
    refusal: Union[CommandFailed, None] = None
    for seconds in _turns(0 if step.waited else step.timeout_s):
        refusals = {name: _asked(door, name) for name in names}
        refusal = refusals[step.name]
        if host.wait_until(partial(_ended, door, [name for name in names if refusals[name] is None]), seconds):
            break
    if not door.domains.active(step.name):
        return
    if refusal is not None and not step.force:
        raise refusal
    if not step.force:
        fact = f"does not end though it was asked to for {step.timeout_s} s"
        advice = (
            "See its console; give it more time in guest_stop_timeout_s, or set guest_stop: force to end it at once."
        )
        raise HostRefused([Problem(f"libvirt_guest[{step.name}]", fact, advice)])
    door.domains.destroy(step.name)


def _turns(seconds: int) -> Iterator[int]:
    """How long to wait each time after the guests were asked; once at least."""
    for _turn in range(seconds // _ASK_AGAIN_S):
        yield _ASK_AGAIN_S
    if seconds % _ASK_AGAIN_S or not seconds:
        yield seconds % _ASK_AGAIN_S


def _ended(door: Libvirt, names: Sequence[str]) -> bool:
    return not any(door.domains.active(name) for name in names)


def _asked(door: Libvirt, name: str) -> Union[CommandFailed, None]:
    """Ask a guest to end; why libvirt did not do so, unless it has ended already."""
    try:
        if door.domains.active(name):
            door.domains.shutdown(name)
    except CommandFailed as error:
        return error if door.domains.active(name) else None
    return None


def _start(step: Start, door: Libvirt, host: Host) -> None:
    problems = list(_not_on_vfio(step, host))
    if problems:
        raise HostRefused(problems)
    if not door.domains.active(step.name):
        door.domains.start(step.name)


def _not_on_vfio(step: Start, host: Host) -> list[Problem]:
    """Libvirt is told not to bind devices, so each has its driver already, or the guest would fail half-way through."""
    found = []
    for device in step.devices:
        link = host.link(f"{_DEVICES}/{device}/driver")
        driver = posixpath.basename(link) if isinstance(link, str) else ""
        if not is_vfio(driver):
            advice = "Name it in pci_driver_devices with driver: vfio-pci, and run again."
            fact = f"{device} cannot be given to the guest"
            problem = Problem(f"libvirt_guest[{step.name}]", fact, advice, f"driver {driver or 'none'}", "vfio-pci")
            found.append(problem)
    return found
