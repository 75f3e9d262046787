"""A guest on node-a with what plays two GPUs and a VF beside each: stamped, looked at from inside, drained, and taken back.

What the guest says of itself comes from its own kernel over its console (sim/guest_report.py). The tests are in the order in
which the host lives through them.
"""

from __future__ import annotations

import json
import time
import xml.etree.ElementTree as ET
from typing import Any

import pytest
import yaml

from sim.guest_report import Report, reports
from tests.integration.booting import ended
from tests.integration.conftest import Node
from tests.integration.runs import ROOT, Run
from tests.integration.verdicts import checks_in, checks_of

pytestmark = pytest.mark.slow

GUESTS: dict[str, Any] = yaml.safe_load(
    (ROOT / "inventories/sim-guests/host_vars/node-a.yml").read_text(encoding="utf-8")
)
CONSOLE = "/var/log/libvirt/qemu/g1-console.log"
# On the host: the switch of node 0 with two stand-ins and the first VF of each of two; what the shape g1 is to get of it.
DISK, BAR, VFS = "0000:23:00.0", "0000:25:00.0", ("0000:24:10.0", "0000:24:10.2")
TOPOLOGY = "/etc/gpudirect/virtualTopology.xml"
SEED = "mkdir -p /run/seed; mount -o ro,loop /var/lib/libvirt/images/g1-seed.iso /run/seed; cat /run/seed/user-data; umount /run/seed"
OF_SWITCHES = "0x104c"  # the vendor of QEMU's switches


def stamp(node: Node, *arguments: str, **variables: Any) -> Run:
    """guests.yml with the guest of the inventory."""
    return node.site(*arguments, name="playbooks/guests.yml", **{**GUESTS, **variables})


def state(node: Node, name: str = "g1") -> str:
    """What libvirt says of a guest."""
    return node.sh(f"virsh domstate {name} 2>&1 || true").strip()


def seen(node: Node) -> list[Report]:
    """What the guest has seen at each of its boots."""
    return reports(node.sh(f"cat {CONSOLE} 2>/dev/null | tr -d '\\r' || true"))


def inside(node: Node, boots: int, limit_s: float = 240) -> Report:
    """What the guest saw at one of its boots, counted from 1; waited for."""
    end = time.monotonic() + limit_s
    while len(found := seen(node)) < boots:
        assert time.monotonic() < end, f"the guest has not reported {boots} times within {limit_s:.0f} s"
        time.sleep(2)
    return found[boots - 1]


def macs(node: Node) -> list[str]:
    """The addresses that node 0's port has given its VFs."""
    name = node.sh("ls /sys/bus/pci/devices/0000:24:00.0/net").strip()
    (link,) = json.loads(node.sh(f"ip -j -d link show {name}"))
    return [vf["address"] for vf in link["vfinfo_list"]]


def topology(node: Node) -> str:
    """The file for NCCL, as the guest's seed has it."""
    files = json.loads(node.sh(SEED).partition("\n")[2])["write_files"]
    return str(next(one["content"] for one in files if one["path"] == TOPOLOGY))


def above(path: str) -> list[str]:
    """The addresses on the way from the root to a device of the guest, without its own."""
    return [word for word in path.split("/")[4:-1] if word.count(":") == 2]


@pytest.fixture
def stamped(converged: Node) -> Node:
    """node-a with its guest; a test that leaves it so says ``node.state = "converged"`` at its end."""
    if state(converged) != "running":
        run = stamp(converged)
        assert run.ok, run.text[-4000:]
    return converged


def test_a_guest_is_stamped_and_sees_what_it_was_to_have(converged: Node) -> None:
    run = stamp(converged)
    assert run.ok, run.text[-4000:]
    assert run.reboots(converged.name) == 0
    assert state(converged) == "running"
    report = inside(converged, 1)
    assert report.host_name == "g1"
    (disk,), devices = report.of("nvme"), report.devices
    assert disk["serial"] == "gpu0"
    (bar,) = [one for one in devices.values() if (one["vendor"], one["device"]) == ("0x1b36", "0x0005")]
    vfs = [one for one in devices.values() if (one["vendor"], one["device"]) == ("0x8086", "0x10ca")]
    ways = [above(one["path"]) for one in (devices[disk["pci"]], bar, *vfs)]
    assert len(ways) == 4
    # One mirrored switch: the upstream port is the same for all, the downstream port is each one's own.
    assert {devices[way[-1]]["vendor"] for way in ways} == {devices[way[-2]]["vendor"] for way in ways} == {OF_SWITCHES}
    assert len({way[-2] for way in ways}) == 1
    assert len({way[-1] for way in ways}) == 4
    assert {devices[one]["numa_node"] for way in ways for one in way} == {"0"}
    of_vfs = [one["address"] for one in vfs]
    assert sorted(one["mac"] for one in report.of("net") if one["pci"] in of_vfs) == sorted(macs(converged))
    (node,) = report.of("node")
    assert 900 * 1024 < int(node["memory_kib"]) < 1024 * 1024
    converged.state = "converged"


def test_the_topology_file_names_devices_as_the_guest_has_them(stamped: Node) -> None:
    report, text = inside(stamped, 1), topology(stamped)
    assert set(report.written) >= {TOPOLOGY}
    root = ET.fromstring(text)
    (switch,) = [one for one in root.iter("pci") if one.find("pci") is not None]
    assert report.devices[str(switch.get("busid"))]["vendor"] == OF_SWITCHES
    below = {str(one.get("busid")): one for one in switch.iterfind("pci")}
    assert len(below) == 4
    for busid in below:
        assert str(switch.get("busid")) in above(report.devices[busid]["path"])
    assert {report.devices[one]["vendor"] for one in below} == {"0x1b36", "0x8086"}
    stamped.state = "converged"


def test_a_second_run_changes_nothing_and_costs_one_look(stamped: Node) -> None:
    run = stamp(stamped)
    assert run.ok
    assert run.host(stamped.name).changed == 0
    assert len([task for task in run.host(stamped.name).tasks if task.ending != "skipped"]) <= 3
    assert run.commands[stamped.name] == 1
    whole = stamped.site(**GUESTS)
    assert whole.ok
    assert whole.host(stamped.name).changed == 0
    assert whole.commands[stamped.name] == 1
    stamped.state = "converged"


def test_verification_passes_with_a_guest(stamped: Node) -> None:
    run = stamped.site(name="playbooks/verify.yml", **GUESTS)
    verdicts = checks_of(stamped)
    assert run.ok, {name: verdict for name, verdict in verdicts.items() if verdict not in ("passed", "skipped")}
    of_guests = checks_in("test_guests.py") | checks_in("test_kvm.py")
    assert {verdicts[check] for check in of_guests if check in verdicts} <= {"passed", "skipped"}
    assert sum(verdicts[check] == "passed" for check in of_guests if check in verdicts) > 10
    stamped.state = "converged"


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ({"vcpus": 9}, ("guest_shapes[1]", "has too few CPUs", "wanted 9", "Lower vcpus")),
        ({"gpus": 4}, ("guest_shapes[1]", "GPUs", "g1")),
        ({"image": "none"}, ("guest_shapes[1].image", "guest_images")),
        ({"name": "G1"}, ("guest_shapes[1].name", "is the name of guest_shapes[0]", "alike")),
    ],
    ids=["cpus", "taken", "image", "name"],
)
def test_a_guest_that_cannot_be_is_named_and_the_other_runs_on(
    stamped: Node, shape: dict[str, Any], words: tuple[str, ...]
) -> None:
    number = stamped.sh("virsh domid g1").strip()
    other = {**GUESTS["guest_shapes"][0], "name": "g2", "rails": [], "mtu": None, **shape}
    other = {name: value for name, value in other.items() if value is not None}
    run = stamp(stamped, guest_shapes=[*GUESTS["guest_shapes"], other])
    assert not run.ok
    for word in words:
        assert word in run.host(stamped.name).message, run.host(stamped.name).message
    assert run.done(stamped.name) == []
    assert stamped.sh("virsh domid g1").strip() == number
    stamped.state = "converged"


def test_a_boot_starts_the_guest_again(stamped: Node) -> None:
    boots = len(seen(stamped))
    stamped.boot()
    assert ended(stamped)["Result"] == "success"
    inside(stamped, boots + 1)
    assert state(stamped) == "running"
    assert stamped.site(**GUESTS).host(stamped.name).changed == 0
    stamped.state = "converged"


def test_a_drained_host_has_no_guest_and_gets_it_back(stamped: Node) -> None:
    boots = len(seen(stamped))
    refused = stamped.site(name="playbooks/drain.yml", **GUESTS, gpudirect_allow="nothing")
    assert not refused.ok
    assert state(stamped) == "running"
    run = stamped.site(name="playbooks/drain.yml", **GUESTS, gpudirect_allow="guest")
    assert run.ok, run.text[-4000:]
    assert state(stamped) == "shut off"
    again = stamped.site(name="playbooks/drain.yml", **GUESTS, gpudirect_allow="guest")
    assert again.ok
    assert again.host(stamped.name).changed == 0
    assert stamp(stamped).ok
    assert state(stamped) == "running"
    inside(stamped, boots + 1)
    stamped.state = "converged"


def test_without_guests_in_the_inventory_nothing_is_left_of_them(stamped: Node) -> None:
    run = stamped.site()
    assert run.ok, run.text[-4000:]
    assert stamped.sh("virsh list --all --name 2>/dev/null || true").strip() == ""
    assert stamped.sh("ls /var/lib/libvirt/images /var/lib/libvirt/qemu/nvram 2>/dev/null | grep g1 || true") == ""
    assert "gd-mgmt" not in stamped.sh("ls /etc/libvirt/qemu/networks 2>/dev/null || true")
    assert (
        stamped.sh("sha256sum --check --quiet --strict /srv/guest/base.qcow2.sha256 --ignore-missing || echo changed")
        == ""
    )
    assert stamped.site().host(stamped.name).changed == 0
    stamped.state = "converged"
