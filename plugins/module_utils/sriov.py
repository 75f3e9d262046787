# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VFs of SR-IOV ports: their number and attributes, and the MTU, eswitch and driver binding of the port.

All of it is live state that a boot takes away; ``host_boot`` runs this same code at boot. Rules of the kernel's
interface: Linux Documentation/ABI/testing/sysfs-bus-pci (sriov_*), net/core/rtnetlink.c and the drivers named in
``vf/drivers.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Union

from .core.change import ABSENT, Change, Deferred, Plan, Text, Unreadable
from .core.errors import GpudirectError, IntentError, Problem, UnreadableState
from .core.host import Host
from .core.owned import Owned
from .core.schema import Schema
from .pci import sysfs
from .pci.address import Address
from .pci.identity import differences, identity
from .pci.replaced import REPLACED_FIELD
from .pci.select import chosen, matches
from .pci.tree import Function, Sriov, Tree
from .vf.changes import PortChanges, forgetting
from .vf.checks import problems_of, shared_identifiers
from .vf.drivers import NO_ESWITCH
from .vf.goal import Intent, Record, by_address, path_of, sorted_out
from .vf.intent import PORTS_FIELD, STABLE, Entry, entries_of
from .vf.links import SHOW, Links, parse_eswitch, uses
from .vf.mac import stable_mac
from .vf.port import Port, held_vfs, netdev_of, used_vfs
from .vf.reach import network_devices
from .vf.reach import protected as protected_devices
from .vf.steps import DEVICES, NETDEVS, carry_out

SCHEMA = Schema(
    "sriov",
    "sriov_",
    (
        PORTS_FIELD,
        REPLACED_FIELD,
    ),
)


@dataclass(frozen=True)
class Desired:
    """What the inventory asks for; ``replaced`` are addresses whose device was replaced on purpose."""

    entries: tuple[Entry, ...] = ()
    replaced: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Current:
    """The host's PCI tree, its network devices, and the ports that are selected or were changed by us."""

    tree: Tree = field(default_factory=Tree)
    links: Links = field(default_factory=dict)
    ports: Mapping[Address, Port] = field(default_factory=dict)
    boot: str = ""
    live: bool = True  # False: a captured tree, which has no kernel to be asked


# parse -----------------------------------------------------------------------------------


def parse(params: Mapping[str, Any]) -> Desired:
    """Wanted ports from options; IntentError with every mistake."""
    values, problems = SCHEMA.parse_all(params)
    given = params.get("sriov_ports")
    try:
        # One by one and as they were given: what is wrong in one entry hides nothing of the others.
        entries = entries_of(given if isinstance(given, (list, tuple)) else [])
    except IntentError as error:
        problems.extend(error.problems)
    if problems:
        raise IntentError(problems)
    return Desired(entries, frozenset(values[REPLACED_FIELD.name]))


def lost_at_boot(desired: Desired) -> bool:
    """All of it is, the VFs and what was set on them and on their ports."""
    return bool(desired.entries)


# read ------------------------------------------------------------------------------------


def read(host: Host, desired: Desired) -> Current:
    """The ports that matter; nothing is read where nothing is asked for and nothing was changed."""
    recorded = by_address(Owned.load(host).of(SCHEMA.name))
    if not desired.entries and not recorded:
        return Current()
    tree = sysfs.read(host)
    if host.captured:
        return Current(tree, live=False)
    links = network_devices(host)
    protected = protected_devices(host, links)
    wanted = {one.address for entry in desired.entries for one in matches(entry.selector, tree)}
    switched = {one.address for entry in desired.entries if entry.eswitch for one in matches(entry.selector, tree)} | {
        address for address, records in recorded.items() if "eswitch" in records
    }
    ports = {}
    for address in sorted(wanted | set(recorded)):
        function = tree.get(address)
        if function is not None and isinstance(function.sriov, Sriov):
            port = _port(host, tree, links, function, function.sriov)
            eswitch = _eswitch(host, port) if address in switched else ABSENT
            ports[address] = replace(port, eswitch=eswitch, protected=_why_protected(tree, function, protected))
    return Current(tree, links, _with_guests(host, tree, ports), host.boot_id())


def _port(host: Host, tree: Tree, links: Links, function: Function, side: Sriov) -> Port:
    name = netdev_of(function)
    link = links.get(name) if name is not None else None
    if link is None:
        return Port(function, side, None, vf_uses=used_vfs(tree.vfs(function), links))
    text = host.read_text(f"{NETDEVS}/{link.name}/speed") if link.carrier else ""
    speed = int(text) if isinstance(text, str) and text.strip().isdigit() else None
    vf_uses = used_vfs(tree.vfs(function), links)
    return Port(function, side, link, speed=speed or None, uses=uses(links, link.name), vf_uses=vf_uses)


def _eswitch(host: Host, port: Port) -> Text:
    """The eswitch mode; ABSENT where the device has no eswitch that could be switched."""
    if port.driver in NO_ESWITCH or not port.driver:
        return ABSENT
    command = ["devlink", "-j", "dev", "eswitch", "show", f"pci/{port.address}"]
    done = host.look(command, expect=tuple(range(256)))
    if not done.status:
        return parse_eswitch(command, done.out) or ABSENT
    said = " ".join(done.err.split())
    # No devlink instance; one without an eswitch; a kernel without devlink.
    none = ("No such device", "Operation not supported", "Failed to connect to devlink")
    return ABSENT if any(words in said for words in none) else Unreadable(said or f"devlink ended with {done.status}")


def _with_guests(host: Host, tree: Tree, ports: Mapping[Address, Port]) -> dict[Address, Port]:
    """The ports with those of their VFs that some process has open through vfio."""
    vfs = {address: tree.vfs(port.function) for address, port in ports.items()}
    on_vfio = [vf for those in vfs.values() for vf in those if isinstance(vf.driver, str) and "vfio" in vf.driver]
    if not on_vfio:
        return dict(ports)
    held = host.held("/vfio/")
    names = {vf.address: host.names(f"{DEVICES}/{vf.address}/vfio-dev") for vf in on_vfio}
    devices = {address: one for address, one in names.items() if isinstance(one, tuple)}
    return {address: replace(port, guests=held_vfs(vfs[address], held, devices)) for address, port in ports.items()}


def _why_protected(tree: Tree, function: Function, protected: Mapping[str, str]) -> str:
    """Why a PF must not be touched: for the sake of its own network devices or of those of its VFs."""
    for one in (function, *tree.vfs(function)):
        for netdev in one.netdevs:
            if netdev.name in protected:
                return f"{netdev.name}: {protected[netdev.name]}"
    return ""


# plan ------------------------------------------------------------------------------------


def plan(desired: Desired, current: Current, owned: Mapping[str, Any]) -> Plan:
    """The changes of every port that is selected, and the way back for what no entry selects any more."""
    recorded = by_address(owned)
    selected, refused = _selected(desired, current.tree)
    if not current.live:
        why = "VFs, their attributes and routes are told by the running kernel only; this is a captured tree"
        deferred = (Deferred(SCHEMA.name, "the running host", why),) if selected or recorded else ()
        return Plan(deferred=deferred, refused=tuple(refused))
    # Where it is not clear which ports are meant, nothing goes back: it may be what is still wanted.
    clear = not refused
    absent = {address for address in recorded if current.tree.get(address) is None}
    gone = {address for address in absent if str(address) not in desired.replaced}
    left = {address for address in recorded if clear and not (address in gone and desired.entries)}
    paths = {**dict.fromkeys(left, ""), **{address: f"{entry.path}.select" for address, entry in selected.items()}}
    unreadable = [problem for address, path in paths.items() for problem in _unread(address, path, current)]
    if unreadable:
        raise UnreadableState(unreadable)
    intents = {address: _intent(entry, current.ports[address]) for address, entry in selected.items()}
    shared = shared_identifiers(intents, _other_macs(current, intents))
    changes: list[Change] = []
    for address in sorted({*intents, *left}):
        port = _Port(address, intents.get(address), recorded.get(address, {}), desired, current)
        problems = [*shared.get(address, ()), *port.problems()]
        refused.extend(problems)
        if not problems:
            changes.extend(one if address in intents else replace(one, undo=True) for one in port.changes())
    return Plan(tuple(changes), refused=tuple(refused))


@dataclass(frozen=True)
class _Port:
    """One address of the plan, which an entry selects, or which has records, or both."""

    address: Address
    intent: Union[Intent, None]
    recorded: Mapping[str, Record]
    desired: Desired
    current: Current

    def problems(self) -> Iterator[Problem]:
        """What the port cannot be, another device than the recorded one, or one that must not be touched and would be."""
        if self.intent is not None:
            yield from problems_of(self.intent, self.current.ports[self.address], self.current.links)
        differing = self._differences()
        if self.intent is not None and differing and str(self.address) not in self.desired.replaced:
            yield Problem(
                f"{self.intent.path}.select",
                f"the device at {self.address} is not the one that was set up there: {'; '.join(differing)}",
                f"See which device is where; where it was replaced on purpose, put {self.address} into gpudirect_replaced.",
            )
            return
        port = self.current.ports.get(self.address)
        if port is None:
            return
        if self.intent is None and not differing and port.link is None and not self._without_driver(port):
            yield Problem(
                f"sriov[{self.address}]",
                f"what was changed there cannot be given back: {port.driver} has it, and no network device is seen here",
                "Bring its network device back from the container that has it, and run again.",
            )
        if port.protected and port.link is not None:
            touching = [change for change in self.changes() if change.step is not None]
            if touching:
                yield Problem(
                    touching[0].path,
                    f"{self.address} must not be touched: {port.protected}",
                    "Select other ports, or move the route or the connection to another one first.",
                )

    def changes(self) -> tuple[Change, ...]:
        """In order; only the dropping of records where nothing can be given back."""
        port = self.current.ports.get(self.address)
        same = not self._differences()
        if port is None or port.link is None or (self.intent is None and not same):
            names = sorted(self.recorded)
            return (forgetting(str(self.address), names, tuple(path_of(self.address, name) for name in names)),)
        records = sorted_out(self.recorded, self.current.boot, same)
        known = {**identity(port.function, self.current.tree), **_own_mac(port)}
        return PortChanges(port, port.link, self.intent, records, known, same).ordered()

    @staticmethod
    def _without_driver(port: Port) -> bool:
        """Whether the network driver is gone, and with it all that was set through it."""
        return not port.driver or "vfio" in port.driver

    def _differences(self) -> list[str]:
        function = self.current.tree.get(self.address)
        if function is None:
            return []
        kept = [one.get("identity", {}) for one in self.recorded.values()]
        said = [differences(one, function, self.current.tree) + self._other_mac(one) for one in kept]
        return next((one for one in said if one), [])

    def _other_mac(self, kept: Mapping[str, Any]) -> list[str]:
        port = self.current.ports.get(self.address)
        now = _own_mac(port).get("mac") if port is not None else None
        before = kept.get("mac")
        return [] if None in (now, before) or now == before else [f"its own MAC is {now}, recorded is {before}"]


def _own_mac(port: Port) -> dict[str, str]:
    """The address that a NIC was made with: it tells cards apart that have no serial number (igb under QEMU has none)."""
    link = port.link
    return {} if link is None or link.link_type != "ether" else {"mac": link.permanent}


def _selected(desired: Desired, tree: Tree) -> tuple[dict[Address, Entry], list[Problem]]:
    """The ports by address with the entry that selects each, and what is wrong with the selection of others."""
    problems: list[Problem] = []
    claims: dict[Address, list[Entry]] = {}
    for entry in desired.entries:
        try:
            for function in chosen(f"{entry.path}.select", entry.selector, tree, only=_no_pf):
                claims.setdefault(function.address, []).append(entry)
        except GpudirectError as error:
            problems.extend(error.problems)
    for address, entries in claims.items():
        for entry in entries[1:]:
            fact = f"{address} is selected by {entries[0].path} too"
            problems.append(Problem(f"{entry.path}.select", fact, "Narrow one of them: a port is wanted one way."))
    return {address: entries[0] for address, entries in claims.items() if len(entries) == 1}, problems


def _no_pf(function: Function) -> str:
    if function.is_pf:
        return ""
    if function.vendor == 0x15B3:
        return "it has no SR-IOV (SRIOV_EN in its firmware may be off)"
    return "it is a VF" if function.is_vf else "it has no SR-IOV"


def _unread(address: Address, path: str, current: Current) -> Iterator[Problem]:
    """What would have to be known of a port that is selected or was changed by us, and is not."""
    function, port = current.tree.get(address), current.ports.get(address)
    cause = current.tree.unread.get(address, "")
    if function is not None and isinstance(function.sriov, Unreadable):
        cause = function.sriov.cause
    if cause:
        fact = f"the SR-IOV side of {address} cannot be read: {cause}"
        yield Problem(path or f"sriov[{address}]", fact, "Run as root on the host, and run again.")
    elif port is not None and port.link is not None and len(port.link.vfs) < port.sriov.enabled:
        found, wanted = f"{len(port.link.vfs)} VFs", f"{port.sriov.enabled}"
        advice = "Update iproute2 and the kernel: older ones cut the list of many VFs."
        yield Problem(" ".join(SHOW), f"tells not all VFs of {port.link.name}", advice, found, wanted)


def _intent(entry: Entry, port: Port) -> Intent:
    """An entry's wishes for one port, with the MAC addresses that are made from the port's own."""
    attributes: dict[int, dict[str, Any]] = {}
    for number, one in enumerate(entry.attributes):
        attributes[number] = dict(one)
        if one.get("mac") == STABLE:
            if port.link is not None and port.link.link_type == "ether":
                attributes[number]["mac"] = stable_mac(port.link.permanent, number)
            else:
                del attributes[number]["mac"]
    return Intent(entry.path, entry.eswitch, entry.autoprobe, entry.mtu, entry.vfs, attributes)


def _other_macs(current: Current, managed: Iterable[Address]) -> dict[str, str]:
    """Who has an address already: network devices with hardware of their own and VFs, but for the VFs of these ports."""
    own = {
        netdev.name
        for address in managed
        for vf in current.tree.vfs(current.ports[address].function)
        for netdev in vf.netdevs
    }
    ports = {port.link.name for address in managed if (port := current.ports[address]).link is not None}
    found: dict[str, str] = {}
    for link in current.links.values():
        if link.kind or link.link_type != "ether":
            continue
        if link.name not in own:
            found.update({link.address: link.name, link.permanent: link.name})
        if link.name not in ports:
            found.update({str(one["mac"]): f"VF {n} of {link.name}" for n, one in link.vfs.items() if "mac" in one})
    found.pop("00:00:00:00:00:00", None)
    return found


# apply -----------------------------------------------------------------------------------


def apply(change: Change, host: Host) -> Union[Mapping[str, Mapping[str, Any]], None]:
    """Make one change of a port."""
    return carry_out(change.step, host)
