# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read host descriptions: strict, every mistake at once, each with its place."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sim.errors import DescriptionError

DEVICE_KINDS = ("igb", "virtio-net", "nvme", "testdev", "empty")
NIC_KINDS = ("igb", "virtio-net")
# pci-testdev is no PCI Express device and has no link.
LINKED_KINDS = ("igb", "virtio-net", "nvme")
IOMMUS = ("intel", "amd", "none")
BOOT_DISKS = ("virtio", "nvme")
LANES = (1, 2, 4, 8, 12, 16)
MAX_BUS = 255


@dataclass(frozen=True)
class Device:
    """One PCI device below a switch port, or the empty port.

    ``serial`` is the drive's, and gives a NIC its MAC; empty: the device's name. ``lanes`` is what the device and its
    port are made for; the link itself always has one. ``slot_of`` names the device in whose slot this one is a further
    function; empty: it has a port of its own.
    """

    kind: str
    name: str
    mib: int = 16
    bar_mib: int = 256
    acs: bool = True
    serial: str = ""
    lanes: int = 1
    slot_of: str = ""


@dataclass(frozen=True)
class Switch:
    """An expander bus on a NUMA node with one root port and one PCIe switch below it."""

    numa_node: int
    bus: int
    devices: tuple[Device, ...]
    acs: bool = True

    @property
    def slots(self) -> list[tuple[Device, ...]]:
        """The functions in the slot of each port, in the order of ports."""
        first = [one for one in self.devices if not one.slot_of]
        return [(one, *(other for other in self.devices if other.slot_of == one.name)) for one in first]


@dataclass(frozen=True)
class Filesystem:
    """An extra disk with a file system that the host mounts at boot."""

    label: str
    mount: str
    mib: int = 64
    content: str = "empty"
    full: bool = False


@dataclass(frozen=True)
class Host:
    """A simulated host as described, with everything it inherits."""

    name: str
    about: str = ""
    default: bool = False
    peer: str | None = None
    ssh_user: str = "root"
    cpus: int = 2
    memory_mib: tuple[int, ...] = (3072, 2048)
    iommu: str = "intel"
    boot_disk: str = "virtio"
    switches: tuple[Switch, ...] = ()
    filesystems: tuple[Filesystem, ...] = ()
    tmpfiles: tuple[str, ...] = ()


class _Mistakes(list[str]):
    def note(self, path: str, what: str, advice: str) -> None:
        self.append(f"{path}: {what}. {advice}" + ("" if advice.endswith("?") else "."))


Check = Callable[[Any], bool]


@dataclass(frozen=True)
class _Key:
    check: Check
    wanted: str


def _is_int(least: int, most: int) -> _Key:
    def check(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most

    return _Key(check, f"a whole number from {least} to {most}")


def _is_one_of(*words: str) -> _Key:
    return _Key(lambda value: value in words, "one of " + ", ".join(words))


def _is_count_of(*numbers: int) -> _Key:
    # A flag is not a number here, though Python has True equal 1.
    wanted = "one of " + ", ".join(map(str, numbers))
    return _Key(lambda value: type(value) is int and value in numbers, wanted)


def _matches(pattern: str, wanted: str) -> _Key:
    return _Key(lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None, wanted)


def _is_table_of_tables(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(item, dict) for item in value.values())


def _is_list_of(kind: type, wanted: str) -> _Key:
    return _Key(lambda value: isinstance(value, list) and all(type(item) is kind for item in value), wanted)


NAME = _matches(r"[a-z][a-z0-9-]{0,29}", "a name of a-z, 0-9 and dashes, at most 30 long")
TEXT = _Key(lambda value: isinstance(value, str), "text")
FLAG = _Key(lambda value: isinstance(value, bool), "true or false")

HOST_KEYS: Mapping[str, _Key] = {
    "like": NAME,
    "about": TEXT,
    "default": FLAG,
    "peer": _Key(lambda value: value is None or NAME.check(value), "the name of a host, or null"),
    "ssh_user": NAME,
    "cpus": _is_int(1, 64),
    "memory_mib": _is_list_of(int, "a list of MiB, one for each NUMA node"),
    "iommu": _is_one_of(*IOMMUS),
    "boot_disk": _is_one_of(*BOOT_DISKS),
    "switches": _is_list_of(dict, "a list of switches"),
    "devices": _Key(_is_table_of_tables, "devices by name, each with the keys that differ"),
    "filesystems": _is_list_of(dict, "a list of file systems"),
    "tmpfiles": _is_list_of(str, "a list of tmpfiles.d lines"),
}
SWITCH_KEYS: Mapping[str, _Key] = {
    "numa_node": _is_int(0, 7),
    "bus": _is_int(8, MAX_BUS),
    "devices": _is_list_of(dict, "a list of devices"),
    "acs": FLAG,
}
DEVICE_KEYS: Mapping[str, _Key] = {
    "kind": _is_one_of(*DEVICE_KINDS),
    "name": NAME,
    "mib": _is_int(1, 65536),
    "bar_mib": _is_int(1, 65536),
    "acs": FLAG,
    "serial": _matches(r"[a-z0-9-]{1,20}", "a-z, 0-9 and dashes, at most 20"),
    "lanes": _is_count_of(*LANES),
    "slot_of": NAME,
}
FILESYSTEM_KEYS: Mapping[str, _Key] = {
    "label": _matches(r"[A-Za-z0-9]{1,16}", "letters and digits, at most 16"),
    "mount": _matches(r"/\S+", "an absolute path"),
    "mib": _is_int(4, 65536),
    "content": _is_one_of("empty", "boot"),
    "full": FLAG,
}
# What ``devices`` may say of a device that a switch has: everything but its name.
CHANGE_KEYS = {name: key for name, key in DEVICE_KEYS.items() if name != "name"}
REQUIRED = {
    "switch": ("numa_node", "bus", "devices"),
    "device": ("kind", "name"),
    "file system": ("label", "mount"),
}


def read_hosts(folder: Path) -> dict[str, Host]:
    """Return all described hosts by name; raise one DescriptionError with every mistake."""
    mistakes = _Mistakes()
    raw = {path.stem: _load(path, mistakes) for path in sorted(folder.glob("*.yml"))}
    merged = {name: _inherit(name, raw, folder, mistakes) for name in raw}
    hosts = {}
    for name, table in merged.items():
        before = len(mistakes)
        _check_table(f"{folder.name}/{name}.yml", raw[name], HOST_KEYS, mistakes)
        _check_parts(f"{folder.name}/{name}.yml", raw[name], mistakes)
        _check_changes(f"{folder.name}/{name}.yml", raw[name], table, mistakes)
        if len(mistakes) == before:
            hosts[name] = _host(name, table)
    if not mistakes:
        for host in hosts.values():
            _check_sense(f"{folder.name}/{host.name}.yml", host, hosts, mistakes)
    if mistakes:
        raise DescriptionError(list(mistakes))
    return hosts


def _load(path: Path, mistakes: _Mistakes) -> dict[str, Any]:
    where = f"{path.parent.name}/{path.name}"
    if not NAME.check(path.stem):
        mistakes.note(where, f"the file name is no host name (wanted {NAME.wanted})", "Rename it")
    try:
        table = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" at line {mark.line + 1}" if mark else ""
        mistakes.note(where, f"not YAML{line}", "Correct the syntax")
        return {}
    if not isinstance(table, dict):
        mistakes.note(where, "no table of keys (wanted a mapping)", "Write 'key: value' lines")
        return {}
    return table


def _inherit(name: str, raw: Mapping[str, dict[str, Any]], folder: Path, mistakes: _Mistakes) -> dict[str, Any]:
    chain, merged = [name], dict(raw[name])
    while isinstance(parent := raw[chain[-1]].get("like"), str):
        where = f"{folder.name}/{chain[-1]}.yml: like"
        if parent in chain:
            mistakes.note(where, f"{parent} inherits from itself", "Break the circle")
            break
        if parent not in raw:
            near = _nearest(parent, raw)
            mistakes.note(where, f"no host {parent} is described", near or "Name another host")
            break
        chain.append(parent)
        merged = {**raw[parent], **merged}
    return merged


def _at(path: str, key: object) -> str:
    return f"{path}{': ' if path.endswith('.yml') else '.'}{key}"


def _nearest(word: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"Did you mean {close[0]}?" if close else ""


def _check_table(path: str, table: Mapping[str, Any], keys: Mapping[str, _Key], mistakes: _Mistakes) -> None:
    for key, value in table.items():
        if key not in keys:
            near = _nearest(str(key), keys) or "Known keys: " + ", ".join(keys)
            mistakes.note(_at(path, key), "unknown key", near)
        elif not keys[key].check(value):
            what = f"wrong value (found {value!r}, wanted {keys[key].wanted})"
            mistakes.note(_at(path, key), what, "Correct it")


def _check_required(path: str, table: Mapping[str, Any], kind: str, mistakes: _Mistakes) -> None:
    for key in REQUIRED[kind]:
        if key not in table:
            mistakes.note(_at(path, key), f"missing in this {kind}", "Add it")


def _check_parts(path: str, table: Mapping[str, Any], mistakes: _Mistakes) -> None:
    for where, switch in _tables(path, table, "switches"):
        _check_table(where, switch, SWITCH_KEYS, mistakes)
        _check_required(where, switch, "switch", mistakes)
        for place, device in _tables(where, switch, "devices"):
            _check_table(place, device, DEVICE_KEYS, mistakes)
            _check_required(place, device, "device", mistakes)
    for name, changes in _changes(table):
        _check_table(_at(_at(path, "devices"), name), changes, CHANGE_KEYS, mistakes)
    for where, filesystem in _tables(path, table, "filesystems"):
        _check_table(where, filesystem, FILESYSTEM_KEYS, mistakes)
        _check_required(where, filesystem, "file system", mistakes)


def _tables(path: str, table: Mapping[str, Any], key: str) -> list[tuple[str, dict[str, Any]]]:
    items = table.get(key)
    if not isinstance(items, list):
        return []
    return [(f"{_at(path, key)}[{index}]", item) for index, item in enumerate(items) if isinstance(item, dict)]


def _changes(table: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    changes = table.get("devices")
    return list(changes.items()) if _is_table_of_tables(changes) and changes else []


def _check_changes(path: str, raw: Mapping[str, Any], merged: Mapping[str, Any], mistakes: _Mistakes) -> None:
    named = [
        str(device.get("name"))
        for where, switch in _tables(path, merged, "switches")
        for _place, device in _tables(where, switch, "devices")
    ]
    for name, _keys in _changes(raw):
        if name not in named:
            near = _nearest(str(name), dict.fromkeys(named)) or "Name a device of a switch"
            mistakes.note(_at(_at(path, "devices"), name), "no such device", near)


def _host(name: str, table: Mapping[str, Any]) -> Host:
    plain = {key: value for key, value in table.items() if key not in ("like", "devices")}
    plain["memory_mib"] = tuple(table.get("memory_mib", Host.memory_mib))
    plain["tmpfiles"] = tuple(table.get("tmpfiles", ()))
    plain["filesystems"] = tuple(Filesystem(**item) for item in table.get("filesystems", ()))
    changes = dict(_changes(table))
    plain["switches"] = tuple(_switch(item, changes) for item in table.get("switches", ()))
    return Host(name=name, **plain)


def _switch(table: Mapping[str, Any], changes: Mapping[str, dict[str, Any]]) -> Switch:
    devices = tuple(Device(**{**item, **changes.get(item["name"], {})}) for item in table["devices"])
    return Switch(**{**table, "devices": devices})


def _check_sense(path: str, host: Host, hosts: Mapping[str, Host], mistakes: _Mistakes) -> None:
    nodes = len(host.memory_mib)
    for index, switch in enumerate(host.switches):
        if switch.numa_node >= nodes:
            what = f"NUMA node {switch.numa_node} has no memory (found {nodes} nodes)"
            mistakes.note(f"{path}: switches[{index}].numa_node", what, "Extend memory_mib")
        for device in switch.devices:
            if device.lanes > 1 and (device.kind not in LINKED_KINDS or not switch.acs):
                what = f"this {device.kind} has no link to be wider (found lanes {device.lanes})"
                mistakes.note(f"{path}: {device.name}", what, "Take lanes away")
            if device.slot_of not in ("", *(one.name for one in switch.devices if not one.slot_of)):
                what = f"its switch has no slot of that name (found slot_of {device.slot_of!r})"
                mistakes.note(f"{path}: {device.name}", what, "Name a device of the switch that has a port of its own")
    names = [device.name for switch in host.switches for device in switch.devices]
    for name in sorted({name for name in names if names.count(name) > 1}):
        mistakes.note(f"{path}: switches", f"two devices are called {name}", "Rename one")
    if host.cpus % nodes:
        what = f"the NUMA nodes cannot share them evenly (found {host.cpus} CPUs, {nodes} nodes)"
        mistakes.note(f"{path}: cpus", what, f"Take a multiple of {nodes}")
    if host.peer is not None and host.peer not in hosts:
        near = _nearest(host.peer, hosts) or "Name a described host"
        mistakes.note(f"{path}: peer", f"no host {host.peer} is described", near)
