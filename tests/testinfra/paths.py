"""The ways between the GPUs and NICs of a host, and the registers on them, read from the bytes of configuration space.

A second reading of the documented variables and of the PCI Express registers; it shares no code with the engine.
Offsets: PCI Express Base Specification, 7.5.3 (capability 0x10), 7.7.11 (ACS, 0x000D), 10.5.1 (ATS, 0x000F).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.testinfra.pci import DEVICES, Function, selected

# The bytes of all functions: an address on a line of its own, then lines of bytes.
BYTES = f'for one in {DEVICES}/*; do echo "@${{one##*/}}"; od -An -v -tx1 "$one/config"; done'
SV, TB, RR, CR, UF, EC, DT = (1 << bit for bit in range(7))
APART = SV | RR | CR | UF
PASSTHROUGH, BARE_METAL = "passthrough_vm", "bare_metal"
_GPU_MAKERS, _MELLANOX = ("10de", "1002"), "15b3"


def bytes_of(text: str) -> dict[str, bytes]:
    """Configuration space by address from what the command printed."""
    found: dict[str, list[str]] = {}
    address = ""
    for line in text.splitlines():
        if line.startswith("@"):
            address = line[1:]
            found[address] = []
        elif address:
            found[address] += line.split()
    return {address: bytes(int(one, 16) for one in words) for address, words in found.items()}


def word(data: bytes, at: int) -> int:
    """A little-endian word."""
    return int.from_bytes(data[at : at + 2], "little")


def standard(data: bytes, identifier: int) -> int:
    """Where a capability of the first 256 bytes is; 0: nowhere."""
    at = data[0x34] & 0xFC if len(data) >= 256 and data[6] & 0x10 else 0
    for _step in range(48):
        if not at or data[at] == identifier:
            return at
        at = data[at + 1] & 0xFC
    return 0


def extended(data: bytes, identifier: int) -> int:
    """Where an extended capability is; 0: nowhere."""
    at = 0x100
    for _step in range(96):
        if at < 0x100 or at + 4 > len(data):
            return 0
        if word(data, at) == identifier:
            return at
        at = word(data, at + 2) >> 4 & 0xFFC
    return 0


@dataclass
class Port:
    """A port on a way: which places it has there, and its two ACS words (None: it has none)."""

    function: Function
    nic_side: bool = False  # below what is shared, towards a NIC that is near
    near: bool = False
    upper: bool = False  # the upper end of a switch
    root: bool = False
    words: tuple[int, int] | None = None
    devices: set[str] = field(default_factory=set)

    def shown(self) -> str:
        """One port in a sentence."""
        said = "no ACS" if self.words is None else f"ACS 0x{self.words[1]:02x} of 0x{self.words[0]:02x}"
        return f"{self.function.shown()}: {said}"


@dataclass
class Paths:
    """The judged ways of a host."""

    mode: str
    ports: dict[str, Port] = field(default_factory=dict)
    nics: dict[str, bool] = field(default_factory=dict)  # by address: whether a GPU is below the same switch
    data: Mapping[str, bytes] = field(default_factory=dict)
    relaxed: Mapping[str, frozenset[str] | None] = field(default_factory=dict)  # devices by rule; None: all

    @property
    def readable(self) -> bool:
        """Whether more than the first 64 bytes are there, which takes root."""
        return all(len(self.data.get(one, b"")) > 64 for one in (*self.ports, *self.nics))

    def excused(self, rule: str, *devices: str) -> bool:
        """Whether the site has relaxed a rule for all of some devices."""
        if rule not in self.relaxed:
            return False
        chosen = self.relaxed[rule]
        return chosen is None or set(devices) <= chosen


def paths_of(variables: Mapping[str, Any], functions: Mapping[str, Function], data: Mapping[str, bytes]) -> Paths:
    """The ways from each GPU to the NICs that are nearest to it."""
    gpus = _chosen(variables.get("pci_path_gpus"), functions, _is_gpu)
    nics = _chosen(variables.get("pci_path_nics"), functions, _is_nic)
    nics = list({one.pf or one.address: functions[one.pf or one.address] for one in nics}.values())
    paths = Paths(variables.get("gpudirect_mode") or PASSTHROUGH, data=data, relaxed=_relaxed(variables, functions))
    for gpu in gpus:
        ranks = {nic.address: _distance(gpu, nic) for nic in nics}
        for address, rank in ranks.items():
            if rank == min(ranks.values()):
                _take(paths, gpu, functions[address], functions)
    return paths


def _chosen(given: Any, functions: Mapping[str, Function], usual: Any) -> list[Function]:
    if given:
        return list({one.address: one for select in given for one in selected(select, functions)}.values())
    return [one for one in functions.values() if usual(one) and not one.pf]


def _is_gpu(one: Function) -> bool:
    return one.ids.startswith(_GPU_MAKERS) and one.kind.startswith(("0300", "0302", "0380", "12"))


def _is_nic(one: Function) -> bool:
    return one.ids.startswith(_MELLANOX) and one.kind.startswith(("0200", "0207"))


def _relaxed(variables: Mapping[str, Any], functions: Mapping[str, Function]) -> dict[str, frozenset[str] | None]:
    found: dict[str, frozenset[str] | None] = {}
    for one in variables.get("pci_path_relax") or ():
        select = one.get("select")
        chosen = None if not select else frozenset(device.address for device in selected(select, functions))
        known = found.get(one["rule"], frozenset())
        found[one["rule"]] = None if chosen is None or known is None else known | chosen
    return found


def _shared(gpu: Function, nic: Function) -> int:
    """How many steps from the root bus on are common to both ways; the root bus itself is one."""
    count = 0
    for one, other in zip(gpu.steps[:-1], nic.steps[:-1], strict=False):
        if one != other:
            break
        count += 1
    return count


def _distance(gpu: Function, nic: Function) -> int:
    """0 below one switch, 1 below several, 2 one host bridge, 3 one NUMA node, 4 anywhere."""
    shared = _shared(gpu, nic)
    if shared > 1:
        below = max(len(gpu.steps), len(nic.steps)) - 1 - shared
        return 0 if below <= 1 else 1
    if shared:
        return 2
    return 3 if gpu.node is not None and gpu.node == nic.node else 4


def _take(paths: Paths, gpu: Function, nic: Function, functions: Mapping[str, Function]) -> None:
    near = _shared(gpu, nic) > 1
    paths.nics[nic.address] = paths.nics.get(nic.address, False) or near
    for device in (gpu, nic):
        for depth, address in enumerate(device.steps[1:-1]):
            port = paths.ports.setdefault(address, Port(functions[address]))
            port.root, port.upper = depth == 0, depth % 2 == 1
            port.near = port.near or near
            below = depth + 1 >= _shared(gpu, nic)
            port.nic_side = port.nic_side or (device is nic and near and below and not port.upper and not port.root)
            port.devices |= {gpu.address, nic.address}
            at = extended(paths.data.get(address, b""), 0x0D)
            port.words = (word(paths.data[address], at + 4), word(paths.data[address], at + 6)) if at else None


# What is wrong -----------------------------------------------------------------------------------


def other_words(paths: Paths) -> list[str]:
    """Ports whose redirecting bits are not those of the mode."""
    wrong = []
    for port in paths.ports.values():
        if port.words is None:
            needs = paths.mode == PASSTHROUGH and not port.upper and not port.root
            if needs and not paths.excused("acs_redirect", *port.devices):
                wrong.append(f"{port.shown()} (wanted 0x1d)")
            continue
        capability, control = port.words
        wanted = APART | (DT if port.nic_side and capability & DT else 0)
        if paths.mode == PASSTHROUGH and control & wanted != wanted:
            wrong.append(f"{port.shown()} (wanted 0x{wanted:02x})")
        elif paths.mode == BARE_METAL and port.near and control & APART:
            wrong.append(f"{port.shown()} (wanted none of 0x1d)")
    return wrong


def blocking(paths: Paths) -> list[str]:
    """Ports that refuse translated requests."""
    return [port.shown() for port in paths.ports.values() if port.words is not None and port.words[1] & TB]


def incapable(paths: Paths) -> list[str]:
    """Ports towards a NIC that cannot let translated requests go directly."""
    return [
        port.shown()
        for port in paths.ports.values()
        if port.nic_side
        and not (port.words and port.words[0] & DT)
        and not paths.excused("acs_dt_capable", *port.devices)
    ]


def ats_differences(paths: Paths) -> list[str]:
    """NICs that have the capability where they should not, or have it not."""
    wrong = []
    for address, near in paths.nics.items():
        has = bool(extended(paths.data.get(address, b""), 0x0F))
        wanted = paths.mode == PASSTHROUGH and near
        if has != wanted and (near or paths.mode == BARE_METAL) and not paths.excused("ats_present", address):
            wrong.append(f"{address} has {'' if has else 'no '}ATS")
    return wrong


def device_control(paths: Paths, address: str) -> tuple[int, bool] | None:
    """Read request in bytes and relaxed ordering of a function; None where it has no PCI Express capability."""
    data = paths.data.get(address, b"")
    at = standard(data, 0x10)
    control = word(data, at + 8)
    return (128 << (control >> 12 & 7), bool(control & 0x10)) if at else None
