"""A guest on node-a with what plays two GPUs and a VF beside each: stamped, looked at from inside, drained, and taken back.

What the guest says of itself comes from its own kernel over its console (sim/guest_report.py). The tests are in the order in
which the host lives through them.
"""

from __future__ import annotations

import json
import time
from functools import partial
from typing import Any

import pytest

from tests.integration.booting import ended, said
from tests.integration.conftest import Node
from tests.integration.guests import (
    GUESTS,
    OF_SWITCHES,
    above,
    assert_topology,
    domains,
    inside,
    macs,
    seen,
    shape,
    stamp,
    state,
)
from tests.integration.runs import play
from tests.integration.verdicts import checks_in, checks_of

pytestmark = pytest.mark.slow

CUTS = 6
RECORDS = "/var/lib/gpudirect/owned.json"
# The folder that libvirt makes for the first network of a host, and keeps.
OF_THE_FIRST_NETWORK = "755 0:0 d var/lib/libvirt/dnsmasq "


@pytest.fixture(scope="module", autouse=True)
def before(node_a: Node) -> frozenset[str]:
    """What the host keeps over a boot, before it had a guest.

    Its libvirt has run once by then: at its first start the daemon writes its own filters and folders, which stay with its packages.
    """
    node_a.be_converged()
    node_a.sh("systemctl start libvirtd && virsh list && systemctl stop libvirtd 'libvirtd*' 'virtlog*'")
    found = kept(node_a)
    node_a.state = "converged"
    return found


def kept(node: Node) -> frozenset[str]:
    """What a boot leaves, but for the boot that each record was made in: a boot sets VFs and drivers up anew."""
    files = {one for one in node.fingerprint() if not one.endswith(f"  {RECORDS.lstrip('/')}")}
    records = json.loads(node.sh(f"cat {RECORDS}"))["records"]
    return frozenset(files) | {
        f"{path} {json.dumps({**record, 'boot': ''}, sort_keys=True)}" for path, record in records.items()
    }


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
    assert_topology(stamped, "g1", inside(stamped, 1))
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
    ("changes", "words"),
    [
        ({"vcpus": 9}, ("guest_shapes[1]", "has too few CPUs", "wanted 9", "Lower vcpus")),
        ({"gpus": 4}, ("guest_shapes[1]", "GPUs", "g1")),
        ({"memory_gib": 2}, ("guest_shapes[1]", "does not fit this host", "pages of 1024 MiB")),
        ({"vfs_per_gpu": 2}, ("guest_shapes[1]", "does not fit this host", "VFs")),
        ({"image": "none"}, ("guest_shapes[1].image", "guest_images")),
        ({"name": "G1"}, ("guest_shapes[1].name", "is the name of guest_shapes[0]", "alike")),
    ],
    ids=["cpus", "taken", "memory", "vfs", "image", "name"],
)
def test_a_guest_that_cannot_be_is_named_and_the_other_runs_on(
    stamped: Node, changes: dict[str, Any], words: tuple[str, ...]
) -> None:
    number = stamped.sh("virsh domid g1").strip()
    other = shape(**{"name": "g2", "rails": None, "mtu": None, **changes})
    run = stamp(stamped, guest_shapes=[shape(), other])
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


def test_an_image_that_is_another_than_it_should_be_is_no_guests(stamped: Node) -> None:
    number = stamped.sh("virsh domid g1").strip()
    (image,) = GUESTS["guest_images"]
    run = stamp(stamped, guest_images=[{**image, "sha256": "0" * 64}])
    assert not run.ok
    message = run.host(stamped.name).message
    for word in ("/srv/guest/base.qcow2: is another file than the wanted one", f"wanted sha256:{'0' * 64}"):
        assert word in message, message
    assert domains(stamped) == ["g1"]
    assert stamped.sh("virsh domid g1").strip() == number
    assert stamp(stamped).ok
    assert stamp(stamped).host(stamped.name).changed == 0
    stamped.state = "converged"


def test_a_host_that_is_down_holds_up_no_other(stamped: Node) -> None:
    """node-b has no power; node-a gets its guest back."""
    stamped.sh("virsh destroy g1")
    boots = len(seen(stamped))
    hosts = [stamped.name, "node-b"]
    run = play("playbooks/guests.yml", stamped.inventory, hosts, variables=GUESTS, tell=stamped.tell)
    assert not run.ok
    assert run.host("node-b").unreachable
    assert run.host(stamped.name).ok
    assert state(stamped) == "running"
    inside(stamped, boots + 1)
    stamped.state = "converged"


def test_a_boot_without_one_of_its_devices_starts_no_guest(stamped: Node) -> None:
    boots = len(seen(stamped))
    stamped.boot({"gpu1": {"kind": "empty"}})
    assert ended(stamped)["Result"] == "exit-code"
    assert "not ready for its guests" in said(stamped)
    assert state(stamped) == "shut off"
    run = stamped.site(**GUESTS)
    assert not run.ok
    message = run.host(stamped.name).message
    assert "0000:25:00.0" in message, message
    assert state(stamped) == "shut off"
    stamped.boot()
    assert ended(stamped)["Result"] == "success"
    inside(stamped, boots + 1)
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


def test_power_cuts_leave_no_half_made_guest(stamped: Node) -> None:
    """From one guest to two and back, the power taken away a little later each time."""
    one, two = shape(gpus=1, rails=None, mtu=None), shape(name="g2", gpus=1, rails=None, mtu=None)
    wishes = ([one, two], [shape()])
    began = time.monotonic()
    assert stamp(stamped, guest_shapes=wishes[0], gpudirect_allow="guest").ok
    whole = time.monotonic() - began
    for cut in range(CUTS):
        shapes = wishes[(cut + 1) % 2]
        stamped.cut_during(
            partial(stamp, stamped, guest_shapes=shapes, gpudirect_allow="guest"), whole * (cut + 0.5) / CUTS
        )
        assert {*domains(stamped)} <= {"g1", "g2"}
        run = stamp(stamped, guest_shapes=shapes, gpudirect_allow="guest")
        assert run.ok, run.text[-4000:]
        assert run.host(stamped.name).last_plan["verified"] is True
        names = [one["name"] for one in shapes]
        assert domains(stamped) == names
        assert [state(stamped, name) for name in names] == ["running"] * len(names)
        files = stamped.sh("ls /var/lib/libvirt/images").split()
        assert sorted(one for one in files if one.startswith("g")) == [
            f"{name}{end}" for name in names for end in ("-seed.iso", ".qcow2")
        ]
    assert stamp(stamped, gpudirect_allow="guest").ok
    assert stamp(stamped).host(stamped.name).changed == 0
    stamped.state = "converged"


def test_without_guests_in_the_inventory_the_host_is_as_before(before: frozenset[str], stamped: Node) -> None:
    run = stamped.site()
    assert run.ok, run.text[-4000:]
    assert stamped.sh("virsh list --all --name 2>/dev/null || true").strip() == ""
    assert stamped.sh("ls /var/lib/libvirt/images /var/lib/libvirt/qemu/nvram 2>/dev/null | grep g1 || true") == ""
    assert "gd-mgmt" not in stamped.sh("ls /etc/libvirt/qemu/networks 2>/dev/null || true")
    stamped.sh("cd /srv/guest && sha256sum --check --quiet --strict base.qcow2.sha256")
    assert stamped.site().host(stamped.name).changed == 0
    after = kept(stamped) - {OF_THE_FIRST_NETWORK}
    assert after == before, sorted(after ^ before)
    stamped.state = "converged"
