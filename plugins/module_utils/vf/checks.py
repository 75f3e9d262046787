# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a port cannot be made to do, found before the first write. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..core.change import ABSENT, Unreadable
from ..core.errors import Problem
from ..pci.address import Address
from .attributes import GUIDS, RATES
from .drivers import NO_ESWITCH, refusals
from .goal import Intent
from .links import Link, Links
from .port import LEGACY, Port

_SWITCHDEV = "switchdev"


def problems_of(intent: Intent, port: Port, links: Links) -> Iterator[Problem]:
    """Everything that keeps one port from being what the intent asks of it."""
    if port.link is None:
        yield _no_netdev(intent, port)
        return
    yield from _count(intent, port)
    yield from _link(intent, port, port.link, links)
    yield from _eswitch(intent, port)
    mode = intent.eswitch or port.mode
    seen: set[tuple[str, str]] = set()
    for number, wanted in sorted(intent.attributes.items()):
        here = f"{intent.path}.vf[{number}]"
        for problem in refusals(here, port.driver, mode, port.link.link_type, wanted):
            # Said once a port, not once a VF: attributes mostly come from vf_defaults.
            if (problem.fact, problem.found) not in seen:
                seen.add((problem.fact, problem.found))
                yield Problem(
                    problem.path, f"{port.address}: {problem.fact}", problem.advice, problem.found, problem.wanted
                )
    yield from _rates(intent, port)


def _no_netdev(intent: Intent, port: Port) -> Problem:
    path = f"{intent.path}.select"
    if not port.driver:
        advice = "Load its network driver, and see that nothing else (vfio-pci) has it."
        return Problem(path, f"no driver is bound to {port.address}, and only a driver makes VFs", advice)
    names = [one.name for one in port.function.ports]
    if names:
        fact = f"{port.address} has several network devices and none is named as its port (phys_port_name p0)"
        return Problem(path, fact, "See what its driver made of it.", found=", ".join(names))
    advice = "See whether its driver is a network driver, and whether a container has its network device."
    return Problem(path, f"{port.address} has no network device", advice, found=f"driver {port.driver}")


def _count(intent: Intent, port: Port) -> Iterator[Problem]:
    total, register = port.sriov.total, port.sriov.register
    path, wanted = f"{intent.path}.vfs", str(intent.vfs)
    if intent.vfs > total:
        if port.driver == "mlx5_core":
            fact = f"firmware allows {total} VFs on {port.address}, {intent.vfs} asked"
            yield Problem(
                path, fact, f"Set NUM_OF_VFS of the NIC's firmware to {intent.vfs} or more.", str(total), wanted
            )
        elif isinstance(register, int) and register != total:
            fact = f"{port.address} takes fewer VFs than its register says: {register} there, {total} by the driver {port.driver}"
            yield Problem(path, fact, f"Ask for at most {total}.", str(total), wanted)
        else:
            yield Problem(path, f"{port.address} takes fewer VFs", f"Ask for at most {total}.", str(total), wanted)
    if port.sriov.autoprobe is ABSENT and not intent.autoprobe:
        advice = "Update the kernel, or set autoprobe: true."
        yield Problem(f"{intent.path}.autoprobe", "this kernel cannot leave new VFs without a driver", advice)
    elif isinstance(port.sriov.autoprobe, Unreadable):
        fact = f"whether the kernel binds new VFs cannot be read: {port.sriov.autoprobe.cause}"
        yield Problem(f"{intent.path}.autoprobe", fact, "Run as root on the host.")


def _link(intent: Intent, port: Port, link: Link, links: Links) -> Iterator[Problem]:
    low, high = link.mtu_range
    if intent.mtu is not None and not low <= intent.mtu <= (high or intent.mtu):
        fact, wanted = f"{link.name} takes no such MTU", f"{low} to {high}"
        yield Problem(f"{intent.path}.mtu", fact, "Correct it.", str(intent.mtu), wanted)
    master = links.get(link.master)
    if intent.vfs and master is not None and master.kind == "bond" and (intent.eswitch or port.mode) != _SWITCHDEV:
        fact = (
            f"{link.name} is a port of the bond {master.name}: in legacy mode its VFs stay on one port and lose traffic"
        )
        advice = "Take it out of the bond, or ask for eswitch: switchdev (VF LAG; the RDMA device is then mlx5_bond_0)."
        yield Problem(f"{intent.path}.vfs", fact, advice)


def _eswitch(intent: Intent, port: Port) -> Iterator[Problem]:
    if intent.eswitch is None:
        return
    path = f"{intent.path}.eswitch"
    if isinstance(port.eswitch, Unreadable):
        yield Problem(
            path, f"the mode of {port.address} cannot be read: {port.eswitch.cause}", "See devlink on the host."
        )
    elif port.eswitch is ABSENT and intent.eswitch != LEGACY:
        fact = f"{port.address} has no eswitch to be switched"
        known = " (its driver has none)" if port.driver in NO_ESWITCH else ""
        yield Problem(path, fact, "Take it out for this port.", f"driver {port.driver}{known}", intent.eswitch)


def _rates(intent: Intent, port: Port) -> Iterator[Problem]:
    """Rates above the speed of the link, each said once; without a link the speed is not known."""
    above = {
        (name, rate): number
        for number, wanted in sorted(intent.attributes.items(), reverse=True)
        for name in RATES
        if isinstance(rate := wanted.get(name), int) and rate > (port.speed or rate)
    }
    for (name, rate), number in sorted(above.items()):
        fact = f"the rate is above the speed of {port.address}"
        found, most = f"{rate} Mb/s", f"at most {port.speed} Mb/s"
        yield Problem(f"{intent.path}.vf[{number}].{name}", fact, "Ask for less.", found, most)


def shared_identifiers(intents: Mapping[Address, Intent], others: Mapping[str, str]) -> dict[Address, list[Problem]]:
    """Addresses and GUIDs that two VFs would have, or a VF and something else of the host (``others``: who, by address).

    By port: the problem is that of the later one.
    """
    problems: dict[Address, list[Problem]] = {}
    seen: dict[tuple[str, str], str] = {("mac", mac): who for mac, who in others.items()}
    for address, intent in sorted(intents.items()):
        for number, wanted in sorted(intent.attributes.items()):
            for name in ("mac", *GUIDS):
                value = str(wanted.get(name, ""))
                who = seen.setdefault((name, value), f"VF {number} of {address}") if value else ""
                if who and who != f"VF {number} of {address}":
                    fact = f"{value}, for {address}, is that of {who} too"
                    problem = Problem(f"{intent.path}.vf[{number}].{name}", fact, "Give each VF its own, in vf.")
                    problems.setdefault(address, []).append(problem)
    return problems
