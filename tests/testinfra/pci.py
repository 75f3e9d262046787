"""The PCI devices of a host as its kernel shows them, and what an inventory's selectors mean among them.

A second reading of sysfs and of the documented selectors. It shares no code with the engine, so that a mistake there
is not repeated here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

DEVICES = "/sys/bus/pci/devices"
GROUPS = "/sys/kernel/iommu_groups"
_ATTRIBUTES = (
    *("vendor", "device", "subsystem_vendor", "subsystem_device", "class", "numa_node", "resource"),
    *("current_link_width", "max_link_width", "current_link_speed", "max_link_speed"),
    *("sriov_numvfs", "sriov_totalvfs", "sriov_drivers_autoprobe"),
    "nvme/*/serial",
)
# Three commands for all devices of a host: values, links, names.
VALUES = f"cd {DEVICES} && grep -sH '' " + " ".join(f"*/{name}" for name in _ATTRIBUTES)
LINKS = (
    f"find {DEVICES}/ -maxdepth 1 -type l -printf '%f=%l\\n';"
    f" find {DEVICES}/*/ -maxdepth 1 -type l -printf '%p=%l\\n' | sed 's,^{DEVICES}/,,'"
)
NAMES = f"ls -1d {DEVICES}/*/net/* {GROUPS}/*/devices/* 2>/dev/null"
SERIALS = "lspci -D -vv"

_ADDRESS = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([01]?[0-9a-f])\.([0-7])")
_BRIDGE, _DISPLAY = "06", "03"


@dataclass(frozen=True)
class Function:
    """One PCI function: texts of its attributes, targets of its links, names of its network devices.

    ``steps`` lead to it from its root bus: ``pci0000:20``, the bridges by address, the function itself.
    """

    address: str
    steps: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    netdevs: tuple[str, ...] = ()
    serial: str = ""

    def _id(self, name: str) -> str:
        return self.values.get(name, "").removeprefix("0x")

    @property
    def ids(self) -> str:
        """Vendor and device."""
        return f"{self._id('vendor')}:{self._id('device')}"

    @property
    def kind(self) -> str:
        """Class code, six digits."""
        return self._id("class")

    @property
    def is_bridge(self) -> bool:
        return self.kind.startswith(_BRIDGE)

    @property
    def is_display(self) -> bool:
        """A GPU, whose link slows down when it idles."""
        return self.kind.startswith(_DISPLAY)

    @property
    def is_pf(self) -> bool:
        return "sriov_totalvfs" in self.values

    @property
    def pf(self) -> str:
        """Address of a VF's PF; empty for another function."""
        return self._target("physfn")

    @property
    def driver(self) -> str:
        return self._target("driver")

    @property
    def group(self) -> str:
        """Number of its IOMMU group; empty without."""
        return self._target("iommu_group")

    def _target(self, name: str) -> str:
        return self.links.get(name, "").rpartition("/")[2]

    @property
    def vfs(self) -> list[str]:
        """Addresses of a PF's VFs by number."""
        numbers = sorted(int(name[6:]) for name in self.links if re.fullmatch(r"virtfn\d+", name))
        return [self._target(f"virtfn{number}") for number in numbers]

    @property
    def node(self) -> int | None:
        """NUMA node; None where the kernel knows none."""
        text = self.values.get("numa_node", "-1")
        return int(text) if int(text) >= 0 else None

    @property
    def regions(self) -> list[tuple[int, int, int]]:
        """Index, start and size of every region in use: 0-5 are BARs, 7-12 those of the VFs."""
        lines = [[int(word, 16) for word in line.split()] for line in self.values.get("resource", "").splitlines()]
        return [(at, start, end - start + 1) for at, (start, end, flags) in enumerate(lines) if flags]

    def shown(self) -> str:
        """One function in a sentence."""
        return f"{self.address} ({self.ids})"


def functions_of(values: str, links: str, names: str, serials: str = "") -> dict[str, Function]:
    """All functions by address from what the commands of this module printed."""
    texts: dict[str, dict[str, str]] = {}
    for line in values.splitlines():
        place, text = _split(line)
        address, _, name = place.partition("/")
        known = texts.setdefault(address, {})
        known[name] = f"{known[name]}\n{text}" if name in known else text
    targets: dict[str, dict[str, str]] = {}
    for line in links.splitlines():
        place, _, target = line.partition("=")
        address, _, name = place.partition("/")
        targets.setdefault(address, {})[name] = target
    nets: dict[str, list[str]] = {}
    for line in names.splitlines():
        if line.startswith(f"{DEVICES}/"):
            address, _, name = line.removeprefix(f"{DEVICES}/").partition("/net/")
            nets.setdefault(address, []).append(name)
    numbers = _serials(serials)
    return {
        address: Function(
            address,
            tuple(own.pop("", "").partition("/devices/")[2].split("/")),
            texts.get(address, {}),
            own,
            tuple(sorted(nets.get(address, ()))),
            numbers.get(address) or _drive(texts.get(address, {})),
        )
        for address, own in sorted(targets.items())
    }


def _split(line: str) -> tuple[str, str]:
    # 0000:23:00.0/vendor:0x1b36: the address has colons too.
    address, _, rest = line.partition("/")
    name, _, text = rest.partition(":")
    return f"{address}/{name}", text


def _serials(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    address = ""
    for line in text.splitlines():
        if line[:1].strip():
            address = line.split()[0]
        elif "Device Serial Number" in line:
            found[address] = line.rpartition(" ")[2]
    return found


def _drive(values: Mapping[str, str]) -> str:
    return next((text.strip() for name, text in values.items() if name.startswith("nvme/")), "")


def groups_of(names: str) -> dict[str, list[str]]:
    """The members of each IOMMU group."""
    groups: dict[str, list[str]] = {}
    for line in names.splitlines():
        if line.startswith(f"{GROUPS}/"):
            number, _, address = line.removeprefix(f"{GROUPS}/").partition("/devices/")
            groups.setdefault(number, []).append(address)
    return groups


# Selectors ---------------------------------------------------------------------------------------


def canonical(address: str) -> str:
    """An address as the kernel writes it."""
    match = _ADDRESS.fullmatch(address.strip().lower())
    if match is None:
        return address
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{function}"


def place_of(function: Function, functions: Mapping[str, Function]) -> str:
    """Where a function is plugged, as ``port`` in an inventory has it."""
    if function.pf:
        pf = functions[function.pf]
        return f"{place_of(pf, functions)}/vf{pf.vfs.index(function.address)}"
    root, *steps = function.steps
    return "/".join([root, *(step.rpartition(":")[2] for step in steps)])


def _hex(value: Any) -> str:
    return str(value).strip().lower().removeprefix("0x")


def _plain(serial: Any) -> str:
    return re.sub(r"[\s:-]", "", str(serial)).lower()


def _place(text: Any) -> str:
    return str(text).strip().lower().removeprefix("pci")


Test = Callable[[Any, Function, Mapping[str, Function]], bool]


def _id(name: str) -> Test:
    return lambda wanted, one, _all: _hex(one.values.get(name, "")) == _hex(wanted)


_MEETS: Mapping[str, Test] = {
    **{name: _id(name) for name in ("vendor", "device", "subsystem_vendor", "subsystem_device")},
    "class": lambda wanted, one, _all: one.kind.startswith(_hex(wanted)),
    "address": lambda wanted, one, _all: one.address == canonical(str(wanted)),
    "serial": lambda wanted, one, _all: bool(one.serial) and _plain(one.serial) == _plain(wanted),
    "port": lambda wanted, one, everyone: place_of(one, everyone).removeprefix("pci") == _place(wanted),
    "numa_node": lambda wanted, one, _all: one.node == int(wanted),
    "netdev": lambda wanted, one, _all: str(wanted) in one.netdevs,
}
# Conditions by which a VF is meant without its PF.
_NAMES_ONE = ("address", "port", "netdev")


def selected(select: Mapping[str, Any], functions: Mapping[str, Function]) -> list[Function]:
    """The functions that a selector of the inventory means: VFs by PF and number, others by address."""
    given = {name: value for name, value in select.items() if value is not None}
    pool: Iterable[Function] = functions.values()
    if "vfs_of" in given:
        pfs = selected(given.pop("vfs_of"), functions)
        pool = [functions[vf] for pf in pfs for vf in pf.vfs if vf in functions]
    elif not any(name in given for name in _NAMES_ONE):
        pool = [one for one in functions.values() if not one.pf]
    return [one for one in pool if all(_MEETS[name](value, one, functions) for name, value in given.items())]


def asks_for(name: str, entries: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a selector of these entries has a condition of this name."""
    selects = [entry.get("select") or {} for entry in entries]
    return any(one.get(name) is not None or (one.get("vfs_of") or {}).get(name) is not None for one in selects)


# ACPI --------------------------------------------------------------------------------------------


def ats_root_ports(table: bytes) -> tuple[bool, list[str]]:
    """What the ATSR structures of a DMAR table say: all root ports, and those that are named.

    Layout: "Intel Virtualization Technology for Directed I/O", 8.5: header of 48 bytes, then type and length of each
    structure, two bytes each. ATSR is type 2: flags, reserved, segment (2), scopes of six bytes and a path.
    """
    every, named, at = False, [], 48
    while at + 4 <= len(table):
        kind, length = int.from_bytes(table[at : at + 2], "little"), int.from_bytes(table[at + 2 : at + 4], "little")
        if length < 4:
            break
        if kind == 2:
            every = every or bool(table[at + 4] & 1)
            segment = int.from_bytes(table[at + 6 : at + 8], "little")
            named += _scopes(table[at + 8 : at + length], segment)
        at += length
    return every, named


def _scopes(data: bytes, segment: int) -> Sequence[str]:
    ports, at = [], 0
    while at + 8 <= len(data) and data[at + 1] >= 8:
        bus, device, function = data[at + 5], data[at + 6], data[at + 7]
        ports.append(f"{segment:04x}:{bus:02x}:{device:02x}.{function}")
        at += data[at + 1]
    return ports
