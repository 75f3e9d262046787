"""What an inventory asks of a host's PCI devices: ports with VFs, devices with a driver, modules that stay out.

A second reading of the documented variables, resolved to the functions of the host; see intent.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.testinfra.pci import Function, asks_for, selected

# What the documentation of pci_driver names: barred where an entry takes a device of NVIDIA and no list is given.
NVIDIA, OF_NVIDIA = "10de", ("nouveau", "nvidia", "nvidiafb", "nova_core", "nova_drm")
FOLLOWERS = {"nvidia": ("nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia_peermem")}
MEANINGS = {"mac": "stable"}


@dataclass(frozen=True)
class Port:
    """A PF and what its entry asks for."""

    path: str
    pf: Function
    vfs: int
    mtu: int | None
    autoprobe: bool
    attributes: Mapping[int, Mapping[str, Any]]


@dataclass(frozen=True)
class Taken:
    """A device and the driver that its entry gives it."""

    path: str
    function: Function
    driver: str
    node: int | None


@dataclass(frozen=True)
class Wishes:
    """Everything that is asked for.

    ``missed`` are entries that do not find what they ask for, ``undecided`` those that ask for the serial number of a
    drive that its driver tells, and another driver has it now.
    """

    ports: tuple[Port, ...] = ()
    taken: tuple[Taken, ...] = ()
    barred: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    functions: Mapping[str, Function] = field(default_factory=dict)

    @property
    def devices(self) -> list[Function]:
        """Every function that is a PF with VFs or is given a driver, once."""
        found = {port.pf.address: port.pf for port in self.ports} | {
            one.function.address: one.function for one in self.taken
        }
        return [found[address] for address in sorted(found)]

    @property
    def physical(self) -> list[Function]:
        """Those that are in a slot: no VFs."""
        return [one for one in self.devices if not one.pf]


def needs_serials(variables: Mapping[str, Any]) -> bool:
    """Whether a selector names a serial number, which takes a command of its own."""
    plain = [*_entries(variables, "pci_path_gpus"), *_entries(variables, "pci_path_nics")]
    selects = [{"select": one} for one in plain]
    entries = [*_entries(variables, "sriov_ports"), *_entries(variables, "pci_driver_devices")]
    return asks_for("serial", [*entries, *selects])


def _entries(variables: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    return list(variables.get(name) or ())


def wishes_of(variables: Mapping[str, Any], functions: Mapping[str, Function]) -> Wishes:
    """The wishes of one host."""
    ports, taken, missed, undecided = [], [], [], []
    for index, entry in enumerate(_entries(variables, "sriov_ports")):
        path = f"sriov_ports[{index}]"
        found = [one for one in selected(entry["select"], functions) if one.is_pf]
        ports += [_port(path, pf, entry) for pf in found]
        missed += [] if found else [f"{path}: no port matches {entry['select']}"]
    for index, entry in enumerate(_entries(variables, "pci_driver_devices")):
        path = f"pci_driver_devices[{index}] ({entry['name']})"
        found, select = selected(entry["select"], functions), entry["select"]
        taken += [_taken(path, one, entry) for one in found]
        wanted = entry.get("expect")
        if (wanted is not None and len(found) != int(wanted)) or not found:
            (undecided if _without_serial(select, functions) else missed).append(
                f"{path}: {len(found)} devices match {select} (wanted {wanted or 'at least one'})"
            )
    return Wishes(tuple(ports), tuple(taken), _barred(variables, taken), tuple(missed), tuple(undecided), functions)


def _without_serial(select: Mapping[str, Any], functions: Mapping[str, Function]) -> bool:
    """Whether devices that tell no serial number meet the other conditions of a selector that has one."""
    if select.get("serial") is None:
        return False
    others = {name: value for name, value in select.items() if name != "serial"}
    return any(not one.serial and not one.is_bridge for one in selected(others, functions))


def _port(path: str, pf: Function, entry: Mapping[str, Any]) -> Port:
    numbered = {int(number): own for number, own in (entry.get("vf") or {}).items()}
    defaults = {**MEANINGS, **(entry.get("vf_defaults") or {})}
    vfs = int(entry["vfs"])
    attributes = {number: {**defaults, **numbered.get(number, {})} for number in range(vfs)}
    mtu = entry.get("mtu")
    return Port(path, pf, vfs, None if mtu is None else int(mtu), bool(entry.get("autoprobe", False)), attributes)


def _taken(path: str, function: Function, entry: Mapping[str, Any]) -> Taken:
    select = entry["select"]
    node = select.get("numa_node", (select.get("vfs_of") or {}).get("numa_node"))
    return Taken(path, function, entry.get("driver") or "vfio-pci", None if node is None else int(node))


def _barred(variables: Mapping[str, Any], taken: list[Taken]) -> tuple[str, ...]:
    given = variables.get("pci_driver_blacklist")
    if given is None:
        given = OF_NVIDIA if any(one.function.ids.startswith(NVIDIA) for one in taken) else ()
    names = [str(name).replace("-", "_") for name in given]
    return tuple(sorted({*names, *(one for name in names for one in FOLLOWERS.get(name, ()))}))


# VFs as the kernel tells them --------------------------------------------------------------------


def vf_differences(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """One sentence for each declared attribute that an entry of ``vfinfo_list`` does not have."""
    tags = [tag for tag in found.get("vlan_list") or [] if tag]
    tag: Mapping[str, Any] = tags[0] if tags else {}
    rate = found.get("rate") or {}
    told = {
        "trust": found.get("trust"),
        "spoofchk": found.get("spoofchk"),
        "link_state": found.get("link_state"),
        "vlan": tag.get("vlan", 0),
        "qos": tag.get("qos", 0),
        "vlan_protocol": str(tag.get("protocol", "802.1q")).lower(),
        "min_tx_rate": rate.get("min_tx", 0),
        "max_tx_rate": rate.get("max_tx", 0),
        "node_guid": found.get("node guid"),
        "port_guid": found.get("port guid"),
    }
    sentences = [
        f"{name} {_shown(told[name])} in the place of {_shown(value)}"
        for name, value in wanted.items()
        if name in told and value is not None and _shown(told[name]) != _shown(value)
    ]
    return sentences + _mac_differences(wanted.get("mac"), str(found.get("address", "")))


def _shown(value: Any) -> str:
    return str(value).lower()


def _mac_differences(wanted: Any, found: str) -> list[str]:
    """``stable`` is any address of one device that is not the zero one, ``kept`` whatever there is."""
    if wanted in ("kept", None):
        return []
    if wanted != "stable":
        same = found == str(wanted).lower().replace("-", ":")
        return [] if same else [f"mac {found} in the place of {wanted}"]
    first = int(found.partition(":")[0] or "0", 16)
    good = first & 3 == 2 and found.strip("0:") != ""
    return [] if good else [f"mac {found} in the place of a stable one (02:...)"]
