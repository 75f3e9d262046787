"""A domain's XML as the guest will see it, made without the engine: what firmware does with libvirt's controllers."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass, field

BRIDGES = ("pcie-root-port", "pcie-switch-upstream-port", "pcie-switch-downstream-port")


@dataclass
class Seen:
    """Addresses in the guest: of bridges by controller, of passed-through devices by address on the host, and who is above."""

    bridges: dict[int, str] = field(default_factory=dict)
    models: dict[int, str] = field(default_factory=dict)
    above: dict[int, int] = field(default_factory=dict)
    devices: dict[str, str] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    nodes: dict[int, int] = field(default_factory=dict)  # of root buses, by controller
    buses: list[int] = field(default_factory=list)

    def uppers(self, host: str) -> list[int]:
        """The upper ends of switches above a device, nearest first."""
        found, at = [], self.ports[host]
        while at in self.above:
            if self.models[at] == "pcie-switch-upstream-port":
                found.append(at)
            at = self.above[at]
        return found

    def root(self, host: str) -> int:
        """The controller of the root bus of a device."""
        at = self.ports[host]
        while at in self.above:
            at = self.above[at]
        return at


def seen(text: str) -> Seen:
    """Number the buses of a domain depth first, each root bus from the number of its expander."""
    root = ET.fromstring(text)
    found = Seen()
    children: dict[int, list[tuple[int, int]]] = {}
    roots = {0: 0}
    for one in root.findall("devices/controller[@type='pci']"):
        index, model, address = int(one.get("index", "")), one.get("model", ""), one.find("address")
        found.models[index] = model
        if model == "pcie-expander-bus":
            target = one.find("target")
            assert target is not None
            roots[index] = int(target.get("busNr", ""))
            node = target.findtext("node")
            if node is not None:
                found.nodes[index] = int(node)
        elif model in BRIDGES:
            assert address is not None
            parent, slot = int(address.get("bus", ""), 16), int(address.get("slot", ""), 16)
            found.above[index] = parent
            children.setdefault(parent, []).append((slot, index))
    numbers: dict[int, int] = {}

    def number(controller: int, bus: int) -> int:
        numbers[controller], last = bus, bus
        found.buses.append(bus)
        for slot, index in sorted(children.get(controller, [])):
            found.bridges[index] = f"0000:{bus:02x}:{slot:02x}.0"
            last = number(index, last + 1)
        return last

    for index, bus in sorted(roots.items(), key=lambda one: one[1]):
        assert bus not in found.buses, "an expander begins in the buses of another root"
        number(index, bus)
    for one in root.findall("devices/hostdev"):
        source, address = one.find("source/address"), one.find("address")
        assert source is not None
        assert address is not None
        host = "{}:{}:{}.{}".format(*(source.get(name, "")[2:] for name in ("domain", "bus", "slot", "function")))
        found.ports[host] = int(address.get("bus", ""), 16)
        found.devices[host] = f"0000:{numbers[found.ports[host]]:02x}:{int(address.get('slot', ''), 16):02x}.0"
    return found
