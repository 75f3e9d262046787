"""Guests of a host as virsh and /proc tell them, and what an inventory asks of them.

A second reading of the documented variables and of libvirt's XML (libvirt.org/formatdomain.html). It shares no code with the engine,
so that a mistake there is not repeated here. Each function that judges gives one sentence for each thing that is not as declared.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.testinfra.pci import Function
from tests.testinfra.wishes import NVIDIA

_VIRSH = "LC_ALL=C virsh --connect qemu:///system"
# All domains of a host by one command: a name, what virsh says of it, its definition, and what runs.
DOMAINS = (
    f'{_VIRSH} list --all --name </dev/null | while IFS= read -r one; do [ -n "$one" ] || continue; echo "@name $one";'
    f' {_VIRSH} dominfo "$one" </dev/null; echo @inactive; {_VIRSH} dumpxml --inactive "$one" </dev/null 2>/dev/null;'
    f' echo @live; {_VIRSH} dumpxml "$one" </dev/null 2>/dev/null; done'
)
NETWORKS = f"{_VIRSH} net-list --name"
POOLS = f"{_VIRSH} pool-list --name"
LOGS = "/var/log/libvirt/qemu"
PIDS = "/run/libvirt/qemu"
PAGE_KIB = {"2M": 2048, "1G": 1048576}
_UNITS_KIB = {"KiB": 1, "k": 1, "MiB": 1024, "M": 1024, "GiB": 1048576, "G": 1048576}
_OFF = ("shut off", "crashed")
_NVSWITCH = "0680"
_START = re.compile(r"^\d{4}-\d\d-\d\d .*: starting up\b")
# H31: what QEMU writes when a device of the guest cannot reach another one.
BAD_WORDS = (
    "IOMMU_IOAS_MAP failed",
    "vfio_container_dma_map",
    "peer-to-peer transactions on BARs are not supported",
)


# What is asked for -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wish:
    """One guest of the inventory."""

    name: str
    state: str = "running"
    gpus: int = 0
    vfs: int = 0
    nvswitches: str = "none"
    vcpus: int = 1
    memory_kib: int = 0
    page_kib: int = 1048576
    topology: str = "switches"
    autostart: bool = True

    @property
    def devices(self) -> bool:
        return bool(self.gpus)


def wishes_of(variables: Mapping[str, Any]) -> list[Wish]:
    """The guests of an inventory; those of a drained host are not to run."""
    drained = str(variables.get("guest_drain", False)).lower() in ("true", "yes")
    return [_wish(one, drained) for one in variables.get("guest_shapes") or ()]


def _wish(one: Mapping[str, Any], drained: bool) -> Wish:
    state, gpus = one.get("state") or "running", int(one.get("gpus") or 0)
    each = one.get("vfs_per_gpu")
    return Wish(
        str(one["name"]),
        "drained" if drained else state,
        gpus,
        gpus * (1 if each is None else int(each)),
        str(one.get("nvswitches", "none")),
        int(one.get("vcpus") or 0),
        int(one.get("memory_gib") or 0) << 20,
        PAGE_KIB[one.get("page_size") or "1G"],
        one.get("topology") or "switches",
        str(one.get("autostart", True)).lower() not in ("false", "no"),
    )


# What is there -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Domain:
    """One domain of libvirt: what dominfo says, its definition, and the one that it runs with."""

    name: str
    info: Mapping[str, str] = field(default_factory=dict)
    inactive: ET.Element | None = None
    live: ET.Element | None = None

    @property
    def state(self) -> str:
        return self.info.get("State", "unknown")

    @property
    def runs(self) -> bool:
        return self.state not in (*_OFF, "unknown")

    @property
    def documents(self) -> list[tuple[str, ET.Element]]:
        """Its definition, and what it runs with, each with a word for it."""
        both = (("as defined", self.inactive), ("as it runs", self.live if self.runs else None))
        return [(word, root) for word, root in both if root is not None]


def domains_of(text: str) -> dict[str, Domain]:
    """All domains by name from what the command printed."""
    found = {}
    for block in re.split(r"^@name ", text, flags=re.MULTILINE)[1:]:
        name, _, rest = block.partition("\n")
        info, _, xml = rest.partition("@inactive\n")
        inactive, _, live = xml.partition("@live\n")
        pairs = (line.split(":", 1) for line in info.splitlines() if ":" in line)
        found[name] = Domain(name, {key.strip(): value.strip() for key, value in pairs}, _root(inactive), _root(live))
    return found


def _root(text: str) -> ET.Element | None:
    return ET.fromstring(text) if text.strip() else None


@dataclass(frozen=True)
class Passed:
    """A device of the host that a guest has, and the bus of the guest (libvirt's index) that it is on."""

    address: str
    bus: int | None
    managed: bool
    iommufd: bool


def passed(root: ET.Element) -> list[Passed]:
    """The PCI devices that a domain gets."""
    found = []
    for one in root.iterfind("devices/hostdev[@type='pci']"):
        source, own, driver = one.find("source/address"), one.find("address"), one.find("driver")
        numbers = [int((source.get(name) if source is not None else "") or "0", 16) for name in _PLACE]
        bus = None if own is None else int(own.get("bus", "0"), 16)
        iommufd = driver is not None and driver.get("iommufd") == "yes"
        found.append(Passed("{:04x}:{:02x}:{:02x}.{:x}".format(*numbers), bus, one.get("managed") == "yes", iommufd))
    return found


_PLACE = ("domain", "bus", "slot", "function")


def _kib(one: ET.Element | None, value: str | None) -> int:
    unit = "KiB" if one is None else one.get("unit", "KiB")
    return int(value or 0) * _UNITS_KIB.get(unit, 1)


def numbers_of(text: str) -> list[int]:
    """The numbers of a list such as 0-3,8."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return sorted(found)


def cells(root: ET.Element) -> dict[int, tuple[list[int], int]]:
    """vCPUs and KiB of each NUMA cell of a guest."""
    return {
        int(one.get("id", "0")): (numbers_of(one.get("cpus", "")), _kib(one, one.get("memory")))
        for one in root.iterfind("cpu/numa/cell")
    }


def host_nodes(root: ET.Element) -> dict[int, tuple[str, list[int]]]:
    """Mode, and nodes of the host, of each cell of a guest."""
    return {
        int(one.get("cellid", "0")): (one.get("mode", "strict"), numbers_of(one.get("nodeset", "")))
        for one in root.iterfind("numatune/memnode")
    }


# What is wrong -----------------------------------------------------------------------------------


def wrong_states(wishes: Sequence[Wish], domains: Mapping[str, Domain]) -> list[str]:
    """Guests that are not there, or there, or run, or not, against what is declared."""
    wrong = []
    for wish in wishes:
        there = domains.get(wish.name)
        found = "not there" if there is None else there.state
        good = {
            "running": there is not None and there.state == "running",
            "defined": there is not None and not there.runs,
            "drained": there is None or not there.runs,
            "absent": there is None,
        }[wish.state]
        wrong += [] if good else [f"{wish.name}: {found} (wanted {wish.state})"]
    return wrong


def passing(wish: Wish, root: ET.Element, functions: Mapping[str, Function]) -> list[str]:
    """Devices that are not there, are of another number than declared, or are handed over in another way."""
    given = passed(root)
    wrong = [f"{one.address} is not in this host" for one in given if one.address not in functions]
    there = [functions[one.address] for one in given if one.address in functions]
    switches = [one for one in functions.values() if _is_switch(one)]
    counts = {
        "VFs": (sum(bool(one.pf) for one in there), wish.vfs),
        "NVSwitches": (sum(_is_switch(one) for one in there), len(switches) if wish.nvswitches == "all" else 0),
        "GPUs": (sum(not one.pf and not _is_switch(one) for one in there), wish.gpus),
    }
    wrong += [f"{found} {noun} (wanted {wanted})" for noun, (found, wanted) in counts.items() if found != wanted]
    wrong += [f"{one.address} goes through iommufd, which maps no regions of devices" for one in given if one.iommufd]
    return wrong + [f"{one.address} is managed by libvirt, which takes its driver away" for one in given if one.managed]


def _is_switch(one: Function) -> bool:
    return one.ids.startswith(NVIDIA) and one.kind.startswith(_NVSWITCH)


def without_vfio(root: ET.Element, functions: Mapping[str, Function]) -> list[str]:
    """Devices of a guest that are not on a vfio driver."""
    there = [functions[one.address] for one in passed(root) if one.address in functions]
    return [f"{one.shown()}: {one.driver or 'no driver'}" for one in there if "vfio" not in one.driver]


def twice(domains: Mapping[str, Domain], names: Sequence[str]) -> list[str]:
    """Devices and CPUs of these guests that another guest has too, by its definition or as it runs."""
    wrong = []
    for what, of in (("device", _addresses), ("CPU", _pinned)):
        users: dict[str, set[str]] = {}
        for one in domains.values():
            for _word, root in one.documents:
                for each in of(root):
                    users.setdefault(each, set()).add(one.name)
        wrong += [
            f"{what} {each} is with {' and '.join(sorted(who))}"
            for each, who in sorted(users.items())
            if len(who) > 1 and who & set(names)
        ]
    return wrong


def _addresses(root: ET.Element) -> list[str]:
    return [one.address for one in passed(root)]


def _pinned(root: ET.Element) -> list[str]:
    return [str(cpu) for cpus in pins(root).values() for cpu in cpus]


def pins(root: ET.Element) -> dict[int, list[int]]:
    """The host's CPUs of each vCPU that is pinned."""
    return {int(one.get("vcpu", "0")): numbers_of(one.get("cpuset", "")) for one in root.iterfind("cputune/vcpupin")}


def misplaced(root: ET.Element, functions: Mapping[str, Function]) -> list[str]:
    """Devices that are on another node in the guest than on the host, where the guest has memory of that node."""
    wrong, bound = [], host_nodes(root)
    for one in passed(root):
        node = functions[one.address].node if one.address in functions else None
        cell_of = {nodes[0]: cell for cell, (_mode, nodes) in bound.items() if len(nodes) == 1}
        if node is None or node not in cell_of:
            continue
        found = _cell_of_bus(root, one.bus)
        if found != cell_of[node]:
            shown = "no node" if found is None else f"cell {found}"
            wrong.append(f"{one.address} of node {node} is on {shown} of the guest (wanted cell {cell_of[node]})")
    return wrong


def _cell_of_bus(root: ET.Element, bus: int | None) -> int | None:
    """The cell that the expander above a bus is told to be on; None: it hangs on the root, which is on none."""
    controllers = {int(one.get("index", "-1")): one for one in root.iterfind("devices/controller[@type='pci']")}
    for _step in range(len(controllers)):
        one = controllers.get(-1 if bus is None else bus)
        if one is None:
            return None
        if one.get("model") == "pcie-expander-bus":
            text = one.findtext("target/node")
            return None if text is None else int(text)
        above = one.find("address")
        bus = None if above is None else int(above.get("bus", "0"), 16)
    return None


def other_memory(wish: Wish, root: ET.Element) -> list[str]:
    """Memory of another size, not in the declared pages, or that a balloon can take."""
    memory = root.find("memory")
    found = _kib(memory, None if memory is None else memory.text)
    wrong = [] if found == wish.memory_kib else [f"{found} KiB of memory (wanted {wish.memory_kib})"]
    pages = [_kib(one, one.get("size")) for one in root.iterfind("memoryBacking/hugepages/page")]
    if pages != [wish.page_kib]:
        wrong.append(f"huge pages of {pages or 'no size'} KiB (wanted {wish.page_kib})")
    balloon = root.find("devices/memballoon")
    if balloon is None or balloon.get("model") != "none":
        wrong.append("it has a memory balloon")
    if root.find("cpu/maxphysaddr") is None and wish.devices:
        wrong.append("its addresses are not as wide as the host's (no maxphysaddr)")
    return wrong


def unbound(root: ET.Element, nodes: Sequence[int]) -> list[str]:
    """Cells whose memory may come from another node than one that the host has."""
    bound = host_nodes(root)
    wrong = [] if cells(root) else ["it has no NUMA cell"]
    whole = root.find("numatune/memory")
    if whole is None or whole.get("mode") != "strict":
        wrong.append(f"memory is {'not bound' if whole is None else whole.get('mode')} (wanted strict)")
    for cell in cells(root):
        mode, on = bound.get(cell, ("not bound", []))
        if mode != "strict" or len(on) != 1 or on[0] not in nodes:
            where = ",".join(map(str, on)) or "any"
            wrong.append(f"cell {cell} is {mode} on node {where} (wanted strict on one of {','.join(map(str, nodes))})")
    return wrong


def unpinned(wish: Wish, root: ET.Element, cpus: Mapping[int, Sequence[int]], reserved: Sequence[int]) -> list[str]:
    """vCPUs of another number than declared, without a CPU of their own, or with one of another node or of the host itself."""
    count, pinned, bound = int(root.findtext("vcpu") or 0), pins(root), host_nodes(root)
    wrong = [] if count == wish.vcpus else [f"{count} vCPUs (wanted {wish.vcpus})"]
    wrong += [
        f"vCPU {one} is on {len(pinned.get(one, ())) or 'all'} CPUs (wanted one)"
        for one in range(count)
        if len(pinned.get(one, ())) != 1
    ]
    every = [cpu for each in pinned.values() for cpu in each]
    wrong += [f"CPU {one} has {every.count(one)} vCPUs" for one in sorted(set(every)) if every.count(one) > 1]
    wrong += [f"CPU {one} stays with the host" for one in sorted({*every} & {*reserved})]
    for cell, (own, _memory) in cells(root).items():
        _mode, nodes = bound.get(cell, ("", []))
        near = {cpu for node in nodes for cpu in cpus.get(node, ())}
        far = sorted({cpu for one in own for cpu in pinned.get(one, ()) if cpu not in near})
        wrong += [f"CPU {one} is not of the node of cell {cell}" for one in far]
    return wrong


def without_files(wish: Wish, root: ET.Element, folder: str, size: Callable[[str], int]) -> list[str]:
    """Disk and seed that are not there, are empty, or are not the guest's."""
    wrong = []
    used = {one.get("file", "") for one in root.iterfind("devices/disk/source")}
    for path in (f"{folder}/{wish.name}.qcow2", f"{folder}/{wish.name}-seed.iso"):
        if path not in used:
            wrong.append(f"{path} is no disk of it")
        elif size(path) <= 0:
            wrong.append(f"{path} is {'not there' if size(path) < 0 else 'empty'}")
    return wrong


def resident(text: str) -> dict[int, int]:
    """KiB in huge pages by node from the lines of /proc/PID/numa_maps."""
    found: dict[int, int] = {}
    for line in text.splitlines():
        words = line.split()
        size = next((int(word[18:]) for word in words if word.startswith("kernelpagesize_kB=")), 0)
        if "huge" not in words or not size:
            continue
        for node, pages in re.findall(r"\bN(\d+)=(\d+)", line):
            found[int(node)] = found.get(int(node), 0) + int(pages) * size
    return found


def elsewhere(root: ET.Element, found: Mapping[int, int]) -> list[str]:
    """Memory of a running guest on a node that none of its cells is bound to."""
    mine = {node for _mode, nodes in host_nodes(root).values() for node in nodes}
    return [f"{kib} KiB on node {node}" for node, kib in sorted(found.items()) if kib and node not in mine]


def complaints(text: str) -> list[str]:
    """Lines of a log, since the guest's last start, that tell of devices which cannot reach each other."""
    lines = text.splitlines()
    first = max((at for at, line in enumerate(lines) if _START.match(line)), default=0)
    return [line.strip() for line in lines[first:] if any(word in line for word in BAD_WORDS)]


def judged(
    wishes: Sequence[Wish], domains: Mapping[str, Domain], one: Callable[[Wish, ET.Element], list[str]]
) -> Iterator[str]:
    """What a function finds in each document of each guest that is there."""
    for wish in wishes:
        for word, root in domains[wish.name].documents if wish.name in domains else ():
            yield from (f"{wish.name} {word}: {said}" for said in one(wish, root))
