# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices that get a driver of the operator's choice: at every boot before any other is loaded for them, and now.

Two stores. The next boot: udev rules with an identity guard, in the initramfs of every installed kernel (``early``);
VFs are not in them, a boot does not have them yet. Now: ``driver_override`` of each function (``assign``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Union

from . import ports_argument
from .assign import binding
from .assign.choice import Choice, Device, candidates, choose, record_of, recorded, with_known_serials
from .assign.intent import BLACKLIST_FIELD, DEVICES_FIELD, Entry, blacklist_problems, entries_of
from .core.change import ABSENT, Absent, Awaiting, Change, Deferred, Plan, Unreadable
from .core.errors import IntentError, Problem, UnreadableState
from .core.host import Host
from .core.owned import Owned
from .core.schema import Schema, unknown
from .early import barred, files, images, modules, store
from .iommu import IOMMU_FIELD
from .path import intent as path_intent
from .pci import disks, sysfs, uses
from .pci.address import Address
from .pci.replaced import REPLACED_FIELD
from .pci.tree import Function, Tree
from .vf.intent import PORTS_FIELD
from .vf.intent import Entry as Port
from .vf.intent import entries_of as ports_of

NVIDIA = 0x10DE

SCHEMA = Schema(
    "pci_driver",
    "pci_driver_",
    (DEVICES_FIELD, BLACKLIST_FIELD, PORTS_FIELD, IOMMU_FIELD, REPLACED_FIELD, *path_intent.BOOT_FIELDS),
)


@dataclass(frozen=True)
class Desired:
    """Entries of devices, modules to bar (None: by the devices), and what other resources will bring."""

    entries: tuple[Entry, ...] = ()
    blacklist: Union[tuple[str, ...], None] = ()
    ports: tuple[Port, ...] = ()
    iommu: bool = False
    replaced: tuple[str, ...] = ()
    paths: path_intent.PathIntent = path_intent.PathIntent()

    @property
    def empty(self) -> bool:
        """True when nothing at all is asked for."""
        return not self.entries and not self.blacklist


@dataclass(frozen=True)
class Current:
    """The PCI tree, the early part, the kernel's modules, registered drivers with their modules, and what is in use."""

    tree: Tree = field(default_factory=Tree)
    early: images.Store = field(default_factory=images.Store)
    modules: modules.Modules = field(default_factory=modules.Modules)
    drivers: Mapping[str, str] = field(default_factory=dict)
    uses: uses.Uses = field(default_factory=dict)
    mounted: frozenset[str] = frozenset()
    boot: str = ""
    apart: frozenset[Address] = frozenset()  # ports that keep devices apart from the next boot on, and do not yet
    live: bool = True  # False: a captured tree, which has no kernel to be asked


# parse -----------------------------------------------------------------------------------


def parse(params: Mapping[str, Any]) -> Desired:
    """Wanted drivers and barred modules; finds typos and contradictions over all its options."""
    values, problems = SCHEMA.parse_all(params)
    entries: tuple[Entry, ...] = ()
    ports: tuple[Port, ...] = ()
    try:
        entries = entries_of(values["pci_driver_devices"])
    except IntentError as error:
        problems.extend(error.problems)
    try:
        ports = ports_of(values["sriov_ports"])
    except IntentError as error:
        problems.extend(error.problems)
    problems += blacklist_problems(values["pci_driver_blacklist"] or (), entries)
    if problems:
        raise IntentError(problems)
    paths = path_intent.boot_intent(values) if entries else path_intent.PathIntent()
    given = values["pci_driver_blacklist"]
    return Desired(
        entries,
        (None if entries else ()) if given is None else files.with_followers(given),
        # Without devices of its own, nothing waits for what other resources bring.
        ports if entries else (),
        entries != () and values["kernel_iommu"] != "unmanaged",
        tuple(values["gpudirect_replaced"]) if entries else (),
        paths,
    )


def lost_at_boot(desired: Desired) -> bool:
    """The drivers of VFs are; of other devices the boot is asked whether its rules have worked."""
    return bool(desired.entries)


# read ------------------------------------------------------------------------------------


def read(host: Host, desired: Desired) -> Current:
    """The devices and the early part of a host. What they are used for is asked only of those that might be taken."""
    owned = Owned.load(host).of(SCHEMA.name)
    if desired.empty and not owned:
        return Current()
    tree = with_known_serials(sysfs.read(host), owned)
    if host.captured:
        return Current(tree, live=False)
    early = images.read(host)
    wanted = candidates(desired.entries, tree)
    drivers = _drivers(host)
    kernel = modules.read(host, {entry.driver for entry in desired.entries}, {image.kernel for image in early.images})
    barring = _barred(desired, (function for function in tree if function.address in wanted))
    risky = {name for name in {_module(one, drivers) for one in tree} if kernel.beneath([name]).intersection(barring)}
    records = recorded(owned)
    asked = [one for one in tree if _module(one, drivers) in risky or _may_be_taken(one, wanted, records)]
    mounts = disks.read(host, ()).mounts if barring else ()
    return Current(
        tree,
        early,
        kernel,
        drivers,
        uses.read(host, tree, asked),
        frozenset(mount.kind for mount in mounts),
        host.boot_id(),
        # A port lets devices see each other where it is in a group with them.
        ports_argument.read(host, desired.paths if desired.paths.sets_acs and _joined(tree) else None).apart,
    )


def _joined(tree: Tree) -> bool:
    """Whether any group has a bridge in it and what is below the bridge."""
    bridged = {one.iommu_group for one in tree if one.is_bridge}
    return any(isinstance(one.iommu_group, int) and one.iommu_group in bridged for one in tree if not one.is_bridge)


def _drivers(host: Host) -> dict[str, str]:
    """Registered drivers and the modules that they are of; empty for a driver that is part of the kernel."""
    names = host.names(binding.DRIVERS)
    links = {name: host.link(f"{binding.DRIVERS}/{name}/module") for name in names} if isinstance(names, tuple) else {}
    return {name: link.rpartition("/")[2] if isinstance(link, str) else "" for name, link in links.items()}


def _module(function: Function, drivers: Mapping[str, str]) -> str:
    """The module of a function's driver."""
    driver = function.driver if isinstance(function.driver, str) else ""
    return drivers.get(driver) or files.module_of(driver)


def _barred(desired: Desired, functions: Iterable[Function]) -> tuple[str, ...]:
    """The modules that must not be loaded; by default those that would take the NVIDIA devices that are selected."""
    if desired.blacklist is not None:
        return desired.blacklist
    needed = {files.module_of(entry.driver) for entry in desired.entries}
    named = any(function.vendor == NVIDIA for function in functions)
    return tuple(one for one in files.with_followers(files.OF_NVIDIA) if one not in needed) if named else ()


def _may_be_taken(function: Function, wanted: Mapping[Address, str], records: Mapping[str, Any]) -> bool:
    """Whether a plan may take a function from the driver that it has."""
    if not isinstance(function.driver, str):
        return False
    if function.address in wanted:
        return function.driver != wanted[function.address]
    return str(function.address) in records


# plan ------------------------------------------------------------------------------------


def plan(desired: Desired, current: Current, owned: Mapping[str, Any]) -> Plan:
    """The files of the next boot, the drivers of now, the images, and last the way back of what is no longer wanted."""
    if desired.empty and not owned:
        return Plan()
    coming = _apart(current)
    choice = choose(desired.entries, desired.ports, desired.replaced, current.tree, owned, passing=coming)
    together = binding.group_problems(choice, current.tree, owned)
    shared = {address: one for address, one in together.items() if _group(current.tree, address) not in coming}
    if not current.live:
        why = "what the devices are used for, and what the next boot has, is told by the running host only"
        return Plan(
            deferred=(Deferred(SCHEMA.name, "the running host", why),), refused=(*choice.problems, *shared.values())
        )
    barring = _barred(desired, (device.function for device in choice.devices))
    early = store.plan(files.texts(current.early.builder, _guards(choice, current.tree), barring), current.early, owned)
    written = _written(early, owned)
    unknown_drivers = _unknown_drivers(desired, current)
    fit = [one for one in choice.devices if one.address not in together and one.entry.path not in unknown_drivers]
    binds = _binds(fit, desired, current, owned, written)
    releases = [*binding.plan_release(choice, current.tree, current.uses, owned)]
    refused = [
        *(*choice.problems, *shared.values(), *unknown_drivers.values(), *_vital(desired, barring, choice, current)),
        *(*store.refusals(early, current.early), *(one for one in (*binds, *releases) if isinstance(one, Problem))),
    ]
    deferred = (
        *(*choice.deferred, *(one for one in binds if isinstance(one, Deferred))),
        *_with_others(sorted(together.keys() - shared.keys())),
    )
    waiting = [one for one in binds if isinstance(one, Awaiting)]
    changes = [one for one in binds if isinstance(one, Change)]
    if refused:
        # The files and what goes back depend on all that is asked for; a device that nothing speaks against does not.
        changes = _on_record(changes, fit, current.tree, owned)
        return Plan(tuple(changes), deferred, tuple(waiting), refused=tuple(refused))
    unloading = _unloading(barring, choice, changes, current, written)
    waiting += [one for one in unloading if isinstance(one, Awaiting)]
    changes += [one for one in unloading if isinstance(one, Change)]
    back = [one for one in releases if isinstance(one, Change)]
    back += barred.plan_undo(barring, current.modules, owned, current.boot)
    back = [replace(one, undo=True) for one in back]
    return Plan(
        tuple(_on_record(_ordered(early, changes, back), choice.devices, current.tree, owned)),
        deferred,
        tuple(waiting),
        tuple(_notes(early, barring, choice, current, owned)),
    )


def _ordered(early: Sequence[Change], live: Sequence[Change], back: Sequence[Change]) -> list[Change]:
    """Files, what is done at once, the images, which take a minute each, and last what goes back to the kernel.

    What goes back is on record until no image is left that would take it again at a boot.
    """
    first = [one for one in early if not isinstance(one.step, images.Build)]
    return [*first, *live, *early[len(first) :], *back]


_Verdict = Union[Change, Awaiting, Deferred, Problem]


def _guards(choice: Choice, tree: Tree) -> list[files.Guard]:
    """The guards of the devices that a boot has from the beginning."""
    return [
        files.Guard(
            device.address,
            (one.root_bus, *(str(bridge.address) for bridge in reversed([*tree.above(one)])), device.address),
            one.vendor,
            one.device,
            one.subsystem_vendor,
            one.subsystem_device,
            device.driver,
        )
        for device in choice.devices
        if not (one := device.function).is_vf
    ]


def _written(early: Sequence[Change], owned: Mapping[str, Any]) -> str:
    """The boot in which the early part was written; empty while it is still to be written."""
    return "" if early else str(owned.get(store.EARLY, {}).get("boot", ""))


def _binds(
    devices: Iterable[Device], desired: Desired, current: Current, owned: Mapping[str, Any], written: str
) -> list[_Verdict]:
    """What it takes for each device to be with its driver now."""
    verdicts: list[_Verdict] = []
    coming = desired.iommu and not any(isinstance(one.iommu_group, int) for one in current.tree)
    for device in devices:
        group = device.function.iommu_group
        if isinstance(group, Unreadable):
            fact = f"its IOMMU group cannot be read: {group.cause}"
            raise UnreadableState([Problem(device.address, fact, "Run as root on the host.")])
        found: list[_Verdict] = [*binding.plan_bind(device, current.uses, owned, written)]
        if found and files.is_vfio(device.driver) and isinstance(group, Absent):
            # What the host needs is refused all the same: the next boot would take it.
            found = [one for one in found if isinstance(one, Problem)] or [_without_group(device, coming)]
        verdicts += found
    return verdicts


def _without_group(device: Device, coming: bool) -> Deferred | Problem:
    """VFIO takes no device that the IOMMU does not know. ``coming``: it is off, and an earlier resource turns it on."""
    if coming:
        why = f"{device.address} has no IOMMU group until the boot that turns the IOMMU on"
        return Deferred(SCHEMA.name, "kernel_args", why)
    fact = f"{device.address} has no IOMMU group, which {device.driver} needs"
    advice = "Set kernel_iommu: passthrough, and see whether the IOMMU is on in the BIOS."
    return Problem(f"{device.entry.path}.driver", fact, advice)


def _group(tree: Tree, address: str) -> int | None:
    """The number of a function's IOMMU group, if it is told."""
    number = tree.functions[Address.parse(address)].iommu_group
    return number if isinstance(number, int) else None


def _apart(current: Current) -> frozenset[int]:
    """The groups that the next boot does not form again, since a port in them then keeps devices apart."""
    numbers = (current.tree.functions[address].iommu_group for address in current.apart)
    return frozenset(number for number in numbers if isinstance(number, int))


def _with_others(addresses: Sequence[str]) -> Iterator[Deferred]:
    if addresses:
        why = f"IOMMU groups have others in them until the boot that keeps them apart: {', '.join(addresses)}"
        yield Deferred(SCHEMA.name, "kernel_args", why)


def _unknown_drivers(desired: Desired, current: Current) -> dict[str, Problem]:
    """Entries whose driver the running kernel does not have; a driver is spelled as it spells itself, unlike a module."""
    here = current.modules.here
    known = {*current.drivers, *(name for name in ("vfio-pci", "pci-stub") if here(files.module_of(name)))}
    problems = {}
    for entry in desired.entries:
        spelled = [name for name in known if files.module_of(name) == files.module_of(entry.driver)]
        if entry.driver not in known and (spelled or not here(files.module_of(entry.driver))):
            found = unknown(f"{entry.path}.driver", entry.driver, known)
            fact = f"{entry.driver} is no driver of the running kernel {current.modules.running}"
            problems[entry.path] = replace(found, fact=fact)
    return problems


def _vital(desired: Desired, barring: Sequence[str], choice: Choice, current: Current) -> list[Problem]:
    """Barred modules without which the host does not boot or cannot be reached, or that the default bars for others too."""
    vital: dict[str, str] = {}
    for kind in sorted(current.mounted):
        for name in current.modules.beneath([files.module_of(kind)] if kind in current.modules.loaded else []):
            vital.setdefault(name, f"file systems of type {kind} are mounted")
    for function in current.tree:
        if choice.of(function.address) is not None:
            continue
        against = [use.what for use in current.uses.get(function.address, ()) if use.kind is uses.Kind.HOST]
        if desired.blacklist is None and _module(function, current.drivers) in barring:
            against.append("no entry selects it")
        if against:
            for name in current.modules.beneath([_module(function, current.drivers)]):
                vital.setdefault(name, f"it is needed by {function.address}: {against[0]}")
    advice = "List in pci_driver_blacklist only what the host can do without ([] for nothing), or select that device."
    return [
        Problem("pci_driver_blacklist", f"{name} cannot be done without: {vital[name]}", advice)
        for name in barring
        if name in vital
    ]


def _unloading(
    barring: Sequence[str], choice: Choice, binds: Sequence[Change], current: Current, written: str
) -> list[Change | Awaiting]:
    """Loaded modules that are barred, seen as they will be when the devices have moved."""
    moving = {one.path for one in binds}
    driving: dict[str, list[str]] = {}
    for function in current.tree:
        device = choice.of(function.address)
        moved = device is not None and record_of(device.address) in moving
        if isinstance(function.driver, str) and not moved:
            driving.setdefault(_module(function, current.drivers), []).append(str(function.address))
    return barred.plan(barring, current.modules, driving, written)


def _on_record(changes: list[Change], devices: Sequence[Device], tree: Tree, owned: Mapping[str, Any]) -> list[Change]:
    """The changes, with a note of what every device had ahead of the first: a boot in between would bring ours already.

    A boot leaves out what serves later boots only, so the note stands ahead of the first of the others too.
    """
    kept = {record_of(device.address): binding.kept_of(device, tree, owned) for device in devices}
    first = {0, next((number for number, one in enumerate(changes) if not one.next_boot), 0)}
    return [
        replace(one, remember={**kept, **one.remember}) if number in first else one
        for number, one in enumerate(changes)
    ]


def _notes(
    early: Sequence[Change], barring: Sequence[str], choice: Choice, current: Current, owned: Mapping[str, Any]
) -> list[str]:
    notes = store.notes(early, current.early) + barred.notes(barring, current.modules)
    for device in choice.devices:
        if device.function.is_vf:
            continue
        record = owned.get(record_of(device.address), {"before": None})
        own = (record["before"] or {}).get("driver") or binding.word(device.function, "driver")
        if own != device.driver and files.module_of(own) in current.modules.builtin:
            notes.append(
                f"pci_driver: {own} is part of the kernel and takes {device.address} at each boot before any rule; "
                "it is moved when the host is up"
            )
    for driver in sorted({device.driver for device in choice.devices if not device.function.is_vf}):
        for kernel in current.modules.lacking.get(files.module_of(driver), ()):
            if kernel != current.modules.running:
                notes.append(
                    f"pci_driver: the kernel {kernel} has no {driver}; booted with it, its devices have no driver"
                )
    taken = [
        str(one.address)
        for one in current.tree
        if choice.of(one.address) is None and one.driver == "vfio-pci" and one.driver_override is ABSENT
    ]
    if taken:
        notes.append(f"pci_driver: vfio-pci also has {', '.join(taken)}, by ids that somebody else gave it")
    return notes


# apply -----------------------------------------------------------------------------------


def apply(change: Change, host: Host) -> Mapping[str, Mapping[str, Any]] | None:
    """Make one change, durably where it is for the next boot; what an image is like afterwards goes on record."""
    step = change.step
    if isinstance(step, (binding.Bind, binding.Release)):
        binding.apply(step, host)
    elif isinstance(step, (barred.Unload, barred.Load)):
        barred.apply(step, host)
    else:
        return store.apply(step, host)
    return None
