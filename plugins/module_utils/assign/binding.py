# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Giving a function to a driver, and back to the kernel, while the host runs.

Always by ``driver_override`` at its address: ids would take every device of a kind. Rules of the driver core: Linux
Documentation/ABI/testing/sysfs-bus-pci. An act that has been done already is not done again, so that a run that was
cut off is continued by the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.change import Absent, Awaiting, Change, Disruption, Text, Unreadable
from ..core.errors import GpudirectError, Problem, UnreadableState
from ..core.host import Host
from ..early.files import is_vfio, module_of
from ..pci.address import Address
from ..pci.identity import differences, identity
from ..pci.select import described
from ..pci.tree import Function, Tree
from ..pci.uses import Kind, Uses
from .choice import Choice, Device, record_of, recorded

DEVICES = "/sys/bus/pci/devices"
DRIVERS = "/sys/bus/pci/drivers"
PROBE = "/sys/bus/pci/drivers_probe"
_BIND_S = 15.0  # probing may go on in the background; a GPU takes a second
# Drivers that a group of VFIO may hold beside its own (Linux drivers/vfio/vfio_main.c).
_BYSTANDERS = frozenset({"pci-stub", "pcieport", "xen-pciback"})


@dataclass(frozen=True)
class Bind:
    """Step: give a function to a driver."""

    address: str
    driver: str


@dataclass(frozen=True)
class Release:
    """Step: take a function from our driver and put back what was there.

    ``driver`` is the one that has it and is ours, ``override`` what it had; both are empty for none. ``before`` is the
    driver that it had: with one, the kernel chooses again.
    """

    address: str
    driver: str
    override: str
    before: str


def word(function: Function, name: str) -> str:
    """The driver or override of a function; empty: none. What could not be read stops the run."""
    value: Text = getattr(function, name)
    if isinstance(value, Unreadable):
        fact = f"its {name.replace('_', ' ')} cannot be read: {value.cause}"
        raise UnreadableState([Problem(str(function.address), fact, "Run as root on the host.")])
    return "" if isinstance(value, Absent) else value


def kept_of(device: Device, tree: Tree, owned: Mapping[str, Any]) -> dict[str, Any]:
    """What goes on record of a device before anything is done that takes it: what it had, and who it is.

    ``drivers`` are all that an entry ever gave it, since a run may be cut off between two of them.
    """
    function, record = device.function, owned.get(record_of(device.address), {})
    have, override = word(function, "driver"), word(function, "driver_override")
    return {
        "before": {"driver": have or None, "override": override or None},
        "driver": device.driver,
        "drivers": sorted({device.driver, *record.get("drivers", ())}),
        "identity": identity(function, tree),
        "pf": str(function.physfn) if function.physfn else None,
        **({"rebased": True} if device.anew else {}),
    }


# Plan ------------------------------------------------------------------------------------


def plan_bind(device: Device, uses: Uses, owned: Mapping[str, Any], written: str) -> list[Change | Awaiting | Problem]:
    """What it takes for a device to be with its driver: nothing, a change, a boot, or what speaks against it.

    The changes bring no record: the whole plan's devices go on record together (``kept_of``), ahead of the first.
    ``written`` is the boot in which the early part was written, as far as it is right.
    """
    function = device.function
    have, override = word(function, "driver"), word(function, "driver_override")
    path, step = record_of(device.address), Bind(device.address, device.driver)
    record = owned.get(path)
    if (have, override) == (device.driver, device.driver):
        if record is not None and not device.anew and record["driver"] == device.driver:
            return []
        return [Change(path, have, device.driver, "it is as wanted; who it is goes on record")]
    if have == device.driver:
        why = f"it has the driver, and keeps it only with an override ({override or 'none'} now)"
        return [Change(path, have, device.driver, why, step=step)]
    found = uses.get(function.address, ()) if have else ()
    against = [use.what for use in found if use.kind in (Kind.HOST, Kind.GUEST)]
    if against:
        advice = "Narrow the selector so that it leaves this device out, or free the device first."
        return [
            Problem(
                f"{device.entry.path}.select", f"{described(function)} cannot be taken: {', '.join(against)}", advice
            )
        ]
    busy = [use.what for use in found if use.kind is Kind.BUSY]
    if busy:
        why = f"{have} cannot be taken from it while it is in use ({', '.join(busy)})"
        return [Awaiting(path, have or None, device.driver, why, written)]
    links = [use.what for use in found if use.kind is Kind.LINK]
    why = f"{device.entry.name}: from {have or 'no driver'} to {device.driver}" + (
        f"; {', '.join(links)}" if links else ""
    )
    disrupts = Disruption.LINK if links else Disruption.NOTHING
    return [Change(path, have or None, device.driver, why, disrupts, step)]


def plan_release(choice: Choice, tree: Tree, uses: Uses, owned: Mapping[str, Any]) -> Iterator[Change | Problem]:
    """The way back for devices on record that no entry selects any more."""
    for text, record in sorted(recorded(owned).items()):
        address = Address.parse(text)
        if choice.of(address) is not None or record.get("pf") in choice.remade:
            continue
        path, function = record_of(text), tree.get(address)
        before, drivers = record["before"] or {}, record["drivers"]
        if address in tree.unread:
            raise UnreadableState([Problem(text, tree.unread[address], "Run as root on the host.")])
        if function is None or differences(record["identity"], function, tree):
            yield Change(
                path, record["driver"], None, "the device is gone, and what was done to it with it", forget=(path,)
            )
            continue
        have, override = word(function, "driver"), word(function, "driver_override")
        ours = override in drivers and override != (before.get("override") or "")
        held = have in drivers and have != (before.get("driver") or "")
        lost = not have and bool(before.get("driver"))
        if not (ours or held or lost):
            yield Change(
                path, record["driver"], have or None, "no longer wanted, and no longer with our driver", forget=(path,)
            )
            continue
        against = [use.what for use in uses.get(address, ()) if use.kind is not Kind.LINK] if held else []
        if against:
            fact = f"cannot be given back: {', '.join(against)}"
            yield Problem(path, fact, "Shut the guest down, or keep the device in pci_driver_devices.")
            continue
        step = Release(text, have if held else "", before.get("override") or "", before.get("driver") or "")
        yield Change(
            path,
            have or None,
            before.get("driver"),
            "no longer wanted; it goes back to the kernel",
            step=step,
            forget=(path,),
        )


def group_problems(choice: Choice, tree: Tree, owned: Mapping[str, Any]) -> dict[str, Problem]:
    """IOMMU groups that a guest could not have whole: with a device that somebody else's driver has. By device.

    Bridges carry the group and are not counted.
    """
    problems = {}
    records = recorded(owned)
    for device in choice.devices:
        number = device.function.iommu_group
        if not is_vfio(device.driver) or not isinstance(number, int):
            continue
        foreign = [
            described(one)
            for one in tree.group(number)
            if not one.is_bridge and one.address != device.function.address and not _harmless(one, choice, records)
        ]
        if foreign:
            fact = (
                f"{device.address} shares IOMMU group {number} with a device that is not selected: {'; '.join(foreign)}"
            )
            advice = "Select that one too, free it from its driver, or give the port above it ACS."
            problems[device.address] = Problem(f"{device.entry.path}.select", fact, advice)
    return problems


def _harmless(function: Function, choice: Choice, records: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the driver that a function will have leaves its group to a guest. One that goes back gets its old one."""
    selected, record = choice.of(function.address), records.get(str(function.address))
    driver = word(function, "driver")
    if selected is not None:
        driver = selected.driver
    elif record is not None:
        driver = (record["before"] or {}).get("driver") or ""
    return not driver or is_vfio(driver) or driver in _BYSTANDERS


# Apply -----------------------------------------------------------------------------------


def apply(step: Bind | Release, host: Host) -> None:
    """Make one change of a function's driver."""
    try:
        _bind(step, host) if isinstance(step, Bind) else _release(step, host)
    except OSError as error:
        fact = f"the kernel refused it: {error.strerror}"
        raise GpudirectError([Problem(step.address, fact, "See the kernel log of the host.")]) from error


def _bind(step: Bind, host: Host) -> None:
    load(step.driver, host)
    _set_override(step.address, step.driver, host)
    if bound(step.address, host) not in ("", step.driver):
        host.write_attribute(f"{DEVICES}/{step.address}/driver/unbind", step.address)
    if not bound(step.address, host):
        host.write_attribute(PROBE, step.address)
    if not host.wait_until(lambda: bound(step.address, host) == step.driver, _BIND_S):
        fact = f"the kernel did not give it to {step.driver} within {_BIND_S:.0f} s"
        found = bound(step.address, host) or "no driver"
        raise GpudirectError([Problem(step.address, fact, "See the kernel log of the host.", found, step.driver)])


def _release(step: Release, host: Host) -> None:
    _set_override(step.address, step.override, host)
    if step.driver and bound(step.address, host) == step.driver:
        host.write_attribute(f"{DEVICES}/{step.address}/driver/unbind", step.address)
    if not step.before or bound(step.address, host):
        return
    alias = host.read_text(f"{DEVICES}/{step.address}/modalias")
    if step.override:
        load(step.override, host)
    elif isinstance(alias, str):
        # The kernel's choice may not be loaded, since nothing needed it. There may be none for it any more.
        host.run(["modprobe", "--quiet", "--use-blacklist", alias.strip()], expect=(0, 1))
    if not bound(step.address, host):
        host.write_attribute(PROBE, step.address)
    if host.exists(f"{DRIVERS}/{step.before}"):
        host.wait_until(lambda: bool(bound(step.address, host)), _BIND_S)


def load(driver: str, host: Host) -> None:
    """Have a driver registered, before anything is done to a device for it."""
    if host.exists(f"{DRIVERS}/{driver}"):
        return
    host.run(["modprobe", module_of(driver)])
    if not host.exists(f"{DRIVERS}/{driver}"):
        fact = f"the module {module_of(driver)} has no PCI driver of this name"
        raise GpudirectError([Problem(f"{DRIVERS}/{driver}", fact, "See what it is called in /sys/bus/pci/drivers.")])


def bound(address: str, host: Host) -> str:
    """The driver that has a function now; empty: none."""
    target = host.link(f"{DEVICES}/{address}/driver")
    return target.rpartition("/")[2] if isinstance(target, str) else ""


def _set_override(address: str, driver: str, host: Host) -> None:
    """An empty line takes an override away; the kernel shows none as (null)."""
    path = f"{DEVICES}/{address}/driver_override"
    text = host.read_text(path)
    if (text.strip() if isinstance(text, str) else "") != (driver or "(null)"):
        host.write_attribute(path, driver or "\n")
