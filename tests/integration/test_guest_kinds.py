"""Other guests of node-a than the inventory's: two at once, one over all of the host, on other networks, and the baseline without VFs.

What a guest says of itself comes from its own kernel. The tests are in the order in which the host lives through them.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from typing import Any

import pytest
import yaml

from tests.integration.conftest import Node
from tests.integration.guests import (
    GUESTS,
    OF_SWITCHES,
    VF,
    above,
    assert_topology,
    domains,
    given,
    inside,
    kind,
    macs,
    seen,
    shape,
    stamp,
    state,
)
from tests.integration.runs import ROOT

pytestmark = pytest.mark.slow

PORTS = ("0000:24:00.0", "0000:44:00.0")
PORTS_WANTED = yaml.safe_load(
    (ROOT / "inventories/sim/group_vars/gpudirect_hosts/sriov.yml").read_text(encoding="utf-8")
)["sriov_ports"]
PLAIN: dict[str, Any] = {"gpus": 0, "vfs_per_gpu": None, "rails": None, "mtu": None}
BRIDGE, SWITCH = "br-lab", "ovs-lab"
MAKE = f"""
ip link show {BRIDGE} >/dev/null 2>&1 || ip link add {BRIDGE} type bridge
ip link set {BRIDGE} up
systemctl start openvswitch-switch
ovs-vsctl --may-exist add-br {SWITCH}
"""


def pairs(node: Node, name: str, boots: int) -> dict[str, Counter[tuple[str, str]]]:
    """For each switch of the guest the kinds of devices below it; every one of them is on the switch's node."""
    report = inside(node, boots, name)
    devices = report.devices
    found: dict[str, Counter[tuple[str, str]]] = {}
    for one in given(report).values():
        switch = above(one["path"])[-2]
        assert devices[switch]["vendor"] == OF_SWITCHES
        assert one["numa_node"] == devices[switch]["numa_node"] != "-1"
        found.setdefault(switch, Counter())[kind(one)] += 1
    return found


def test_two_guests_are_stamped_at_once_each_on_a_node_of_its_own(converged: Node) -> None:
    shapes = [shape(), shape(name="g2", gpus=1, vfs_per_gpu=2, rails=None, mtu=None)]
    run = stamp(converged, guest_shapes=shapes)
    assert run.ok, run.text[-4000:]
    assert [state(converged, name) for name in ("g1", "g2")] == ["running"] * 2
    (first,), (second,) = pairs(converged, "g1", 1).values(), pairs(converged, "g2", 1).values()
    assert first[VF] == 2
    assert sum(first.values()) == 4
    assert second[VF] == 2
    assert sum(second.values()) == 3
    for name, port in zip(("g1", "g2"), PORTS):
        report = inside(converged, 1, name)
        vfs = [address for address, one in given(report).items() if kind(one) == VF]
        assert {one["mac"] for one in report.of("net") if one["pci"] in vfs} <= {*macs(converged, port)}
    nodes = [converged.sh(f"virsh numatune {name} | grep nodeset").split()[-1] for name in ("g1", "g2")]
    assert nodes == ["0", "1"]
    assert stamp(converged, guest_shapes=shapes).host(converged.name).changed == 0
    converged.state = "converged"


def test_one_guest_over_both_nodes_keeps_the_host_apart_inside(converged: Node) -> None:
    wide = [shape(name="wide", gpus=4, vcpus=2, memory_gib=2, rails=None, mtu=None)]
    refused = stamp(converged, guest_shapes=wide, gpudirect_allow="nothing")
    assert domains(converged) == ["g1", "g2"], refused.text[-4000:]
    assert [state(converged, name) for name in ("g1", "g2")] == ["running"] * 2
    run = stamp(converged, guest_shapes=wide, gpudirect_allow="guest")
    assert run.ok, run.text[-4000:]
    assert domains(converged) == ["wide"]
    found = pairs(converged, "wide", 1)
    report = inside(converged, 1, "wide")
    assert sorted(report.devices[switch]["numa_node"] for switch in found) == ["0", "1"]
    assert [sum(one.values()) for one in found.values()] == [4, 4]
    assert [one[VF] for one in found.values()] == [2, 2]
    assert len({above(report.devices[switch]["path"])[0] for switch in found}) == 2
    nodes = report.of("node")
    assert [one["id"] for one in nodes] == ["0", "1"]
    assert all(700 * 1024 < int(one["memory_kib"]) < 1024 * 1024 for one in nodes)
    assert stamp(converged, guest_shapes=wide).host(converged.name).changed == 0
    assert stamp(converged, guest_shapes=[], gpudirect_allow="guest").ok
    assert domains(converged) == []
    converged.state = "converged"


def test_guests_are_on_a_bridge_and_on_open_vswitch(converged: Node) -> None:
    converged.sh(MAKE)
    networks = [
        {"name": "lab", "mode": "bridge", "bridge": BRIDGE},
        {"name": "sw", "mode": "ovs", "bridge": SWITCH, "vlan": 12},
    ]
    shapes = [shape(name="b1", network="lab", **PLAIN), shape(name="o1", network="sw", **PLAIN)]
    wrong = [{**networks[0], "bridge": SWITCH}, {**networks[1], "bridge": BRIDGE}]
    refused = stamp(converged, guest_networks=wrong, guest_shapes=shapes)
    assert not refused.ok
    for word in (
        f"guest_networks[0].bridge: {SWITCH} is no bridge of this kind",
        f"guest_networks[1].bridge: {BRIDGE} is no",
    ):
        assert word in refused.host(converged.name).message, refused.host(converged.name).message
    run = stamp(converged, guest_networks=networks, guest_shapes=shapes)
    assert run.ok, run.text[-4000:]
    for name in ("b1", "o1"):
        assert [one["name"] for one in inside(converged, 1, name).of("net")] == ["eth0"]
    assert converged.sh(f"ls /sys/class/net/{BRIDGE}/brif").split() != []
    (port,) = converged.sh(f"ovs-vsctl list-ports {SWITCH}").split()
    assert converged.sh(f"ovs-vsctl get port {port} tag").strip() == "12"
    assert stamp(converged, guest_networks=networks, guest_shapes=shapes).host(converged.name).changed == 0
    converged.state = "converged"


def test_a_changed_network_is_told_while_a_guest_is_on_it_and_applied_without(converged: Node) -> None:
    networks = [{"name": "sw", "mode": "ovs", "bridge": SWITCH, "vlan": 13}]
    shapes = [shape(name="o1", network="sw", **PLAIN)]
    waits = stamp(converged, guest_networks=networks, guest_shapes=shapes, gpudirect_allow="guest")
    assert waits.ok, waits.text[-4000:]
    assert "sw: it runs as it was defined before" in waits.text
    assert "these guests are on it: o1" in waits.text
    assert "id='12'" in converged.sh("virsh net-dumpxml sw")
    assert state(converged, "o1") == "running"
    run = stamp(converged, guest_networks=networks, guest_shapes=[], gpudirect_allow="guest")
    assert run.ok, run.text[-4000:]
    again = stamp(converged, guest_networks=networks, guest_shapes=[])
    assert again.ok
    assert "id='13'" in converged.sh("virsh net-dumpxml sw")
    assert stamp(converged, guest_networks=networks, guest_shapes=[]).host(converged.name).changed == 0
    converged.state = "converged"


def test_a_guest_gets_a_vf_from_a_pool_and_a_pool_of_disks_is_there(converged: Node) -> None:
    (pf,) = converged.sh(f"ls /sys/bus/pci/devices/{PORTS[1]}/net").split()
    (managing,) = converged.sh(
        'ip -j route show default | grep -o \'"dev":"[^"]*\' | cut -d\'"\' -f4 | sort -u'
    ).split()
    shapes = [shape(name="p1", network="pool", **PLAIN)]
    wanted: dict[str, Any] = {
        "guest_networks": [{"name": "pool", "mode": "hostdev", "pf": pf}],
        "guest_pools": [{"name": "fast", "path": "/srv/fast"}],
        "guest_shapes": shapes,
    }
    for device, said in (
        (managing, "must not be touched"),
        (pf, "is a port of sriov_ports[1], which sets mac and vlan"),
    ):
        wrong = {**wanted, "guest_networks": [{"name": "pool", "mode": "hostdev", "pf": device}]}
        refused = stamp(converged, **wrong)
        assert not refused.ok
        assert f"guest_networks[0].pf: {device} {said}" in refused.host(converged.name).message
        assert refused.done(converged.name) == []
    # The VFs of this port get their addresses from libvirt then.
    (first, second) = PORTS_WANTED
    wanted["sriov_ports"] = [first, {**second, "vf_defaults": {"mac": "kept", "trust": False}, "vf": {}}]
    assert converged.site(**{**GUESTS, **wanted, "guest_shapes": [], "guest_networks": []}).ok
    run = stamp(converged, **wanted)
    assert run.ok, run.text[-4000:]
    report = inside(converged, 1, "p1")
    (vf,) = [address for address, one in report.devices.items() if kind(one) == VF]
    assert [one["mac"] for one in report.of("net") if one["pci"] == vf] != []
    assert "active" in converged.sh("virsh pool-list | grep fast")
    assert stamp(converged, **wanted).host(converged.name).changed == 0
    converged.state = "converged"


def test_nothing_is_left_of_networks_and_pools(converged: Node) -> None:
    # The whole host: the port of the VF pool is to be as all ports are, too.
    without = {**GUESTS, "guest_networks": [], "guest_shapes": [], "guest_pools": [], "gpudirect_allow": "guest"}
    run = converged.site(**without)
    assert run.ok, run.text[-4000:]
    assert domains(converged) == []
    # Debian's package brings a network of its own.
    assert {*converged.sh("virsh net-list --all --name; virsh pool-list --all --name").split()} <= {"default"}
    assert converged.sh("ls -d /srv/fast 2>/dev/null || true") == ""
    # The bridges are somebody else's.
    assert converged.sh(f"ls -d /sys/class/net/{BRIDGE}; ovs-vsctl list-br").split() == [
        f"/sys/class/net/{BRIDGE}",
        SWITCH,
    ]
    converged.sh(f"ip link delete {BRIDGE}; ovs-vsctl del-br {SWITCH}; systemctl stop openvswitch-switch")
    assert converged.site().ok
    converged.state = "converged"


def by_emulation(xml: str) -> str:
    """The same guest without KVM: its processor is emulated inside the emulated host, which takes minutes and does not end the host."""
    root = ET.fromstring(xml)
    root.set("type", "qemu")
    cpu, features = root.find("cpu"), root.find("features")
    assert cpu is not None
    assert features is not None
    cpu.set("mode", "maximum")
    for parent, tag in ((cpu, "cache"), (cpu, "maxphysaddr"), (features, "ioapic")):
        for one in parent.findall(tag):
            parent.remove(one)
    return ET.tostring(root, encoding="unicode")


def test_ovmf_numbers_the_buses_as_the_topology_file_has_them(converged: Node) -> None:
    """With KVM, OVMF would end the emulated host (sim/README.md); the firmware and the tree are those of a real guest."""
    efi = [shape(name="efi", firmware="efi", state="defined")]
    run = stamp(converged, guest_shapes=efi)
    assert run.ok, run.text[-4000:]
    xml = by_emulation(converged.sh("virsh dumpxml --inactive efi"))
    assert "OVMF" in xml
    converged.sh(f"cat > /run/efi.xml <<'END'\n{xml}\nEND\nvirsh create /run/efi.xml")
    report = inside(converged, 1, "efi", limit_s=1500)
    assert_topology(converged, "efi", report)
    assert {one["numa_node"] for one in given(report).values()} == {"0"}
    converged.sh("virsh destroy efi")
    assert stamp(converged, guest_shapes=[], gpudirect_allow="guest").ok
    assert domains(converged) == []
    converged.state = "converged"


def test_the_baseline_has_gpus_and_no_direct_path(converged: Node) -> None:
    """The paper's naive virtualization: GPUs passed through to a flat guest, its network emulated, no rule about paths."""
    variables = {
        **GUESTS,
        "gpudirect_mode": "virtio_vm",
        "guest_shapes": [shape(vfs_per_gpu=0, topology="flat", rails=None, mtu=None)],
    }
    boots = len(seen(converged))
    run = converged.site(**variables)
    assert run.ok, run.text[-4000:]
    report = inside(converged, boots + 1)
    assert sorted(kind(one) for one in given(report).values()) == [("0x1b36", "0x0005"), ("0x1b36", "0x0010")]
    assert not [one for one in report.devices.values() if one["vendor"] == OF_SWITCHES]
    assert [one["name"] for one in report.of("net")] == ["eth0"]
    again = converged.site(**variables)
    assert again.host(converged.name).changed == 0
    found = again.host(converged.name).last_plan["paths"]
    assert "not judged" in found["text"] or found["verdict"] == "OK", found
    back = converged.site(gpudirect_allow="host")
    assert back.ok, back.text[-4000:]
    # Libvirt does not run any more; it keeps a file for each guest that it has.
    assert converged.sh("cd /etc/libvirt/qemu && ls *.xml 2>/dev/null || true") == ""
    assert converged.site().host(converged.name).changed == 0
    converged.state = "converged"
