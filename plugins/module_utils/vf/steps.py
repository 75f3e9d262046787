# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is done to a port, step by step: the only part that writes. Each step says what refused it, and by what words.

The name of the port's network device is looked up at each step, since switching the eswitch may give it another.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from ..core.errors import GpudirectError, Problem
from ..core.host import Done, Host
from .attributes import RATES, ByNumber, Request, as_text, requests, unreported
from .drivers import RATES_NEED_CARRIER, RATES_WITHOUT_CARRIER
from .links import parse_links
from .port import own_netdev

DEVICES = "/sys/bus/pci/devices"
NETDEVS = "/sys/class/net"
# How long is waited for what the kernel does on its own after a write, at most, in seconds.
VFS_APPEAR_S = 60
CARRIER_S = 30
NETDEV_S = 60


@dataclass(frozen=True)
class SetCount:
    """Make so many VFs; ``clear`` takes away those that are there first. ``learn``: record for what new VFs are like."""

    address: str
    count: int
    clear: bool
    learn: str = ""


@dataclass(frozen=True)
class SetAutoprobe:
    """Say whether the kernel binds new VFs to their network driver."""

    address: str
    value: bool


@dataclass(frozen=True)
class SetEswitch:
    """Switch the embedded switch."""

    address: str
    mode: str


@dataclass(frozen=True)
class SetLink:
    """Set something of the port's own network device: ``mtu 9000``, ``up``, ``down``."""

    address: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class SetAttributes:
    """Give VFs their attributes, as far as they do not have them."""

    address: str
    driver: str
    wanted: ByNumber


Step = Union[SetCount, SetAutoprobe, SetEswitch, SetLink, SetAttributes, None]
Learnt = Mapping[str, Mapping[str, Any]]


def carry_out(step: Step, host: Host) -> Union[Learnt, None]:
    """Do one step; what it brought to light, by record path. GpudirectError tells what was refused."""
    if isinstance(step, SetCount):
        return _count(step, host)
    if isinstance(step, SetAutoprobe):
        path = f"{DEVICES}/{step.address}/sriov_drivers_autoprobe"
        _write(host, path, str(int(step.value)), "See the kernel log of the host.")
    elif isinstance(step, SetEswitch):
        _eswitch(step, host)
    elif isinstance(step, SetLink):
        _ask(host, ["ip", "link", "set", "dev", netdev_now(host, step.address), *step.words])
    elif isinstance(step, SetAttributes):
        _attributes(step, host)
    return None


# The number of VFs -----------------------------------------------------------------------

_ENOMEM = (
    "The firmware gave the device too little room for its VFs: switch SR-IOV and Above 4G Decoding on in the BIOS and "
    "give PCI more MMIO space there, or try the kernel argument pci=realloc. The kernel log says what was missing."
)
_COUNT_ADVICE = {
    errno.ENOMEM: _ENOMEM,
    errno.EBUSY: "Something else made VFs meanwhile: see what, and run again.",
    errno.ERANGE: "Ask for fewer: the driver takes less than the device offers.",
    errno.ENOENT: "Bind the device to a driver that supports SR-IOV.",
    errno.ENODEV: "The device is gone or does not answer: see the kernel log.",
}


def _count(step: SetCount, host: Host) -> Union[Learnt, None]:
    path = f"{DEVICES}/{step.address}/sriov_numvfs"
    for value in ([0] if step.clear else []) + ([step.count] if step.count else []):
        _write(host, path, str(value), _COUNT_ADVICE)
    if step.count:
        _await_vfs(step, host)
    if not step.learn:
        return None
    return {step.learn: {"fresh": as_text(_vfs_now(host, netdev_now(host, step.address))) if step.count else {}}}


def _write(host: Host, path: str, text: str, advice: Union[str, Mapping[int, str]]) -> None:
    try:
        host.write_attribute(path, text)
    except OSError as error:
        hint = advice if isinstance(advice, str) else advice.get(error.errno or 0, "See the kernel log of the host.")
        cause = f"the kernel refused {text}: {error.strerror}"
        raise GpudirectError([Problem(path, cause, hint)]) from error


def _await_vfs(step: SetCount, host: Host) -> None:
    """The VFs are there, in groups where their PF is in one, and those that a network driver has have their device."""
    grouped = host.exists(f"{DEVICES}/{step.address}/iommu_group")

    def missing() -> str:
        for number in range(step.count):
            vf = f"{DEVICES}/{step.address}/virtfn{number}"
            if not host.exists(f"{vf}/vendor"):
                return f"VF {number} is not there"
            if grouped and not host.exists(f"{vf}/iommu_group"):
                return f"VF {number} is in no IOMMU group"
            driver = host.link(f"{vf}/driver")
            if isinstance(driver, str) and "vfio" not in driver and not host.exists(f"{vf}/net"):
                return f"{driver.rpartition('/')[2]} has made no network device for VF {number}"
        return ""

    if not host.wait_until(lambda: not missing(), VFS_APPEAR_S):
        advice = "See the kernel log of the host and run again."
        fact = f"{missing() or 'the VFs'} after {VFS_APPEAR_S} s"
        raise GpudirectError([Problem(f"{DEVICES}/{step.address}", fact, advice, wanted=f"{step.count} VFs")])


# The port and its switch -----------------------------------------------------------------


def netdev_now(host: Host, address: str) -> str:
    """The name that the port's own network device has at this moment."""
    name = _netdev(host, address)
    if name is None:
        advice = "See which driver has the device, and what it made below its net folder."
        raise GpudirectError([Problem(f"{DEVICES}/{address}/net", "does not tell the port's network device", advice)])
    return name


def _netdev(host: Host, address: str) -> Union[str, None]:
    names = host.names(f"{DEVICES}/{address}/net")
    if not isinstance(names, tuple):
        return None
    told = {name: host.read_text(f"{NETDEVS}/{name}/phys_port_name") for name in names}
    return own_netdev({name: text.strip() if isinstance(text, str) else "" for name, text in told.items()})


def _eswitch(step: SetEswitch, host: Host) -> None:
    _ask(host, ["devlink", "dev", "eswitch", "set", f"pci/{step.address}", "mode", step.mode])
    if not host.wait_until(lambda: _netdev(host, step.address) is not None, NETDEV_S):
        netdev_now(host, step.address)


def _ask(host: Host, argv: list[str]) -> None:
    """Run a program whose refusal is the kernel's."""
    done = host.run(argv, expect=tuple(range(256)))
    if done.status:
        advice = "See the kernel log of the host; drivers say more there."
        raise GpudirectError([Problem(" ".join(argv), f"was refused: {_said(done)}", advice)])


def _said(done: Done) -> str:
    """The words with which a program of iproute2 was refused: the driver's own where it has some, else the errno's."""
    lines = [line.strip() for line in (done.err or done.out).splitlines() if not line.startswith("Command failed")]
    words = [re.sub(r"^(RTNETLINK answers|Error|kernel answers): ", "", line).rstrip(".") for line in lines if line]
    return ", ".join(dict.fromkeys(words)) or f"status {done.status}"


# Attributes ------------------------------------------------------------------------------


def _vfs_now(host: Host, netdev: str) -> ByNumber:
    command = ["ip", "-json", "-details", "link", "show", "dev", netdev]
    links = parse_links(command, host.look(command).out)
    return links[netdev].vfs if netdev in links else {}


def _attributes(step: SetAttributes, host: Host) -> None:
    netdev = netdev_now(host, step.address)
    current = _vfs_now(host, netdev)
    untold = [
        Problem(_place(step, number), f"the driver {step.driver} tells nothing of it", "Take it out for this port.")
        for number, wanted in step.wanted.items()
        if unreported(wanted, current.get(number, {}))
    ]
    if untold:
        names = sorted(
            {name for number, one in step.wanted.items() for name in unreported(one, current.get(number, {}))}
        )
        first = Problem(untold[0].path, f"{untold[0].fact} ({', '.join(names)})", untold[0].advice)
        raise GpudirectError([first])
    asked = requests(netdev, step.wanted, current)
    plain = [one for one in asked if one.names != RATES]
    rates = [one for one in asked if one.names == RATES]
    late = _rate_problem(step, host, netdev) if rates else None
    _batch(step, host, plain if late else [*plain, *rates])
    if late:
        raise GpudirectError([late])


def _rate_problem(step: SetAttributes, host: Host, netdev: str) -> Union[Problem, None]:
    """Why rates cannot be set now. They need a link with some drivers, and are below its speed with all."""
    path = f"sriov[{step.address}].vf"
    patience = 0 if step.driver in RATES_WITHOUT_CARRIER else CARRIER_S
    carrier = host.wait_until(lambda: _number(host, netdev, "carrier") == 1, patience)
    if not carrier and step.driver in RATES_NEED_CARRIER:
        fact = f"the driver {step.driver} sets rates only while the port has a link, and {netdev} has none"
        return Problem(path, fact, "Connect the port, or take the rates out.", f"no carrier in {CARRIER_S} s", "a link")
    speed = _number(host, netdev, "speed") if carrier else None
    most = max(int(one.get(name, 0)) for one in step.wanted.values() for name in RATES)
    if speed and most > speed:
        return Problem(path, f"a rate is above the speed of {netdev}", "Ask for less.", f"{most} Mb/s", f"{speed} Mb/s")
    return None


def _number(host: Host, netdev: str, name: str) -> Union[int, None]:
    """A number that the kernel tells of a network device; None where it has none (it refuses while the device is down)."""
    text = host.read_text(f"{NETDEVS}/{netdev}/{name}")
    return int(text) if isinstance(text, str) and text.strip().isdigit() else None


def _batch(step: SetAttributes, host: Host, asked: Sequence[Request]) -> None:
    if not asked:
        return
    text = "".join(f"{one.line}\n" for one in asked)
    done = host.run(["ip", "-batch", "-"], expect=tuple(range(256)), stdin=text)
    if not done.status:
        return
    match = re.search(r"Command failed -:(\d+)", done.err)
    index = int(match[1]) - 1 if match and 0 < int(match[1]) <= len(asked) else None
    if index is None:
        fact, path = f"was refused: {_said(done)}", f"sriov[{step.address}].vf"
        raise GpudirectError([Problem(path, fact, "See the kernel log of the host and run again.")])
    raise GpudirectError([_refused(step, asked, index, _said(done))])


def _refused(step: SetAttributes, asked: Sequence[Request], index: int, words: str) -> Problem:
    one = asked[index]
    return Problem(
        _place(step, one.number),
        f"the driver {step.driver} refused {one.line.split(f'vf {one.number} ')[1]}: {words}",
        f"Of {len(asked)} requests for this port the first {index} were met. Take it out for this port, or see the kernel log.",
    )


def _place(step: SetAttributes, number: int) -> str:
    return f"sriov[{step.address}].vf[{number}]"
