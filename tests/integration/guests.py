"""Guests of node-a as tests see them: stamped by the product, looked at through libvirt and through what they say themselves."""

from __future__ import annotations

import json
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from typing import Any

import yaml

from sim.guest_report import Report, reports
from tests.integration.conftest import Node
from tests.integration.runs import ROOT, Run

GUESTS: dict[str, Any] = yaml.safe_load(
    (ROOT / "inventories/sim-guests/host_vars/node-a.yml").read_text(encoding="utf-8")
)
CONSOLE = "/var/log/libvirt/qemu/{}-console.log"
TOPOLOGY = "/etc/gpudirect/virtualTopology.xml"
SEED = "mkdir -p /run/seed; mount -o ro,loop /var/lib/libvirt/images/{}-seed.iso /run/seed; cat /run/seed/user-data; umount /run/seed"
OF_SWITCHES = "0x104c"  # the vendor of QEMU's switches
STAND_INS, VF = {("0x1b36", "0x0010"), ("0x1b36", "0x0005")}, ("0x8086", "0x10ca")


def shape(**changes: Any) -> dict[str, Any]:
    """The guest of the inventory, otherwise; what is None is left out."""
    changed = {**GUESTS["guest_shapes"][0], **changes}
    return {name: value for name, value in changed.items() if value is not None}


def stamp(node: Node, *arguments: str, **variables: Any) -> Run:
    """guests.yml with the guest of the inventory."""
    return node.site(*arguments, name="playbooks/guests.yml", **{**GUESTS, **variables})


def state(node: Node, name: str = "g1") -> str:
    """What libvirt says of a guest."""
    return node.sh(f"virsh domstate {name} 2>&1 || true").strip()


def domains(node: Node) -> list[str]:
    """Every domain that libvirt knows."""
    return sorted(node.sh("virsh list --all --name").split())


def seen(node: Node, name: str = "g1") -> list[Report]:
    """What the guest has seen at each of its boots."""
    return reports(node.sh(f"cat {CONSOLE.format(name)} 2>/dev/null | tr -d '\\r' || true"))


def inside(node: Node, boots: int, name: str = "g1", limit_s: float = 480) -> Report:
    """What the guest saw at one of its boots, counted from 1; waited for."""
    end = time.monotonic() + limit_s
    while len(found := seen(node, name)) < boots:
        assert time.monotonic() < end, f"the guest {name} has not reported {boots} times within {limit_s:.0f} s"
        time.sleep(2)
    return found[boots - 1]


def kind(device: Mapping[str, str]) -> tuple[str, str]:
    """Vendor and device of a line about a device."""
    return device["vendor"], device["device"]


def given(report: Report) -> dict[str, Mapping[str, str]]:
    """The stand-ins and VFs of the guest by address."""
    return {address: one for address, one in report.devices.items() if kind(one) in {*STAND_INS, VF}}


def above(path: str) -> list[str]:
    """The addresses on the way from the root to a device of the guest, without its own."""
    return [word for word in path.split("/")[4:-1] if word.count(":") == 2]


def macs(node: Node, port: str = "0000:24:00.0") -> list[str]:
    """The addresses that a port of the host has given its VFs."""
    name = node.sh(f"ls /sys/bus/pci/devices/{port}/net").strip()
    (link,) = json.loads(node.sh(f"ip -j -d link show {name}"))
    return [vf["address"] for vf in link["vfinfo_list"]]


def assert_topology(node: Node, name: str, report: Report) -> None:
    """The file for NCCL, as the guest's seed has it, names switch and devices by the addresses that the guest has them at."""
    files = json.loads(node.sh(SEED.format(name)).partition("\n")[2])["write_files"]
    root = ET.fromstring(next(one["content"] for one in files if one["path"] == TOPOLOGY))
    assert set(report.written) >= {TOPOLOGY}
    (switch,) = [one for one in root.iter("pci") if one.find("pci") is not None]
    assert report.devices[str(switch.get("busid"))]["vendor"] == OF_SWITCHES
    below = {str(one.get("busid")): one for one in switch.iterfind("pci")}
    assert len(below) == 4
    assert {*below} == {*given(report)}
    for busid in below:
        assert str(switch.get("busid")) in above(report.devices[busid]["path"])
    assert {report.devices[one]["vendor"] for one in below} == {"0x1b36", "0x8086"}
