"""node-a's devices through runs, boots and faults: VFs and stand-ins are with vfio-pci, and come back without Ansible.

The tests are in the order in which the host lives through them.
"""

from __future__ import annotations

import json
import time
from functools import partial
from typing import Any

import pytest

from tests.integration.booting import READY, ended, said, seconds, shown
from tests.integration.conftest import Node

# By the description of node-a; the firmware numbers buses in the order of ports.
DISKS, BARS, PORTS = (
    ("0000:23:00.0", "0000:43:00.0"),
    ("0000:25:00.0", "0000:45:00.0"),
    ("0000:24:00.0", "0000:44:00.0"),
)
OTHERS = ("0000:26:00.0", "0000:46:00.0", "0000:00:03.0", "0000:00:04.0")
VFS = {PORTS[0]: ("0000:24:10.0", "0000:24:10.2"), PORTS[1]: ("0000:44:10.0", "0000:44:10.2", "0000:44:10.4")}
ALL_VFS = [vf for vfs in VFS.values() for vf in vfs]
DEVICE_TIMEOUT_S = 30  # inventories/sim
DRIVERS = (
    "find /sys/bus/pci/devices/*/ -maxdepth 1 -name driver -printf '%h %l\\n'"
    " | sed 's,^/sys/bus/pci/devices/,,; s,/* .*/, ,'"
)
KERNEL_LOG = "journalctl --boot={boot} --dmesg --output=cat --no-pager"


def drivers(node: Node) -> dict[str, str]:
    """The driver of each device that has one."""
    return dict(line.split() for line in node.sh(DRIVERS).splitlines())


def vfs(node: Node) -> dict[str, list[dict[str, Any]]]:
    """VFs of each port as the kernel tells them."""
    names = {port: node.sh(f"ls /sys/bus/pci/devices/{port}/net").strip() for port in PORTS}
    links = {one["ifname"]: one for one in json.loads(node.sh("ip -j -d link show"))}
    return {port: links[name]["vfinfo_list"] for port, name in names.items()}


def seen_by(log: str, driver: str, address: str) -> list[str]:
    """Lines of a kernel log in which a driver speaks of a device."""
    return [line for line in log.splitlines() if address in line and line.startswith(driver)]


def assert_all_is_there(node: Node) -> None:
    """The devices of both nodes are as the inventory wants them, and the others are with their own drivers."""
    found = drivers(node)
    assert {one: found.get(one) for one in (*DISKS, *BARS, *ALL_VFS)} == dict.fromkeys(
        (*DISKS, *BARS, *ALL_VFS), "vfio-pci"
    )
    assert {one: found.get(one) for one in PORTS} == dict.fromkeys(PORTS, "igb")
    assert {one: found.get(one) for one in OTHERS} == dict.fromkeys(OTHERS, "virtio-pci")


def assert_never_seen(node: Node) -> None:
    """In this boot, no driver but vfio-pci has had the disks that play GPUs."""
    log = node.sh(KERNEL_LOG.format(boot=0))
    assert "Linux version" in log
    assert not [line for address in DISKS for line in seen_by(log, "nvme", address)]
    assert not node.sh("ls /dev/nvme* /sys/class/nvme/* 2>/dev/null || true")


# A run and its reboot --------------------------------------------------------------------------------


def test_devices_are_as_wanted_after_the_run_and_its_reboot(converged: Node) -> None:
    assert_all_is_there(converged)
    told = vfs(converged)
    assert [len(told[port]) for port in PORTS] == [2, 3]
    assert [(one["trust"], one["spoofchk"]) for one in told[PORTS[0]]] == [(True, False)] * 2
    assert [one["vlan_list"] for one in told[PORTS[0]]] == [[{"vlan": 100, "qos": 3}], [{}]]
    assert [one["spoofchk"] for one in told[PORTS[1]]] == [True, True, False]
    assert told[PORTS[1]][2]["address"] == "02:5e:11:00:00:02"
    # The management NIC still has its route, which nothing of this may touch.
    assert "dev mgmt0" in converged.sh("ip route show default")
    converged.state = "converged"


def test_no_other_driver_has_seen_the_stand_ins_in_this_boot(converged: Node) -> None:
    # The boot before is the installer's: there nvme had both disks, so the lines that are looked for would be found.
    before = converged.sh(KERNEL_LOG.format(boot=-1))
    assert all(seen_by(before, "nvme", address) for address in DISKS)
    assert_never_seen(converged)
    converged.state = "converged"


# Boots without Ansible --------------------------------------------------------------------------------


def test_a_power_cut_and_a_rebuilt_initramfs_lose_nothing(converged: Node) -> None:
    """What a kernel's update does to its image, then a boot that nobody helps."""
    told = vfs(converged)
    converged.sh("update-initramfs -u -k all; sync")
    converged.boot()
    assert ended(converged) == {"ActiveState": "active", "Result": "success", "SubState": "exited"}
    assert shown(converged, READY)["ActiveState"] == "active"
    assert_all_is_there(converged)
    assert_never_seen(converged)
    assert vfs(converged) == told  # MAC addresses too
    converged.tell(f"    boot run: {seconds(converged):.1f} s; {said(converged).splitlines()[-1]}")
    converged.state = "converged"


def test_a_run_after_boots_changes_nothing(converged: Node) -> None:
    boot = converged.boot_id
    run = converged.site()
    host = run.host(converged.name)
    assert run.ok, run.text[-4000:]
    assert (host.changed, run.commands[converged.name]) == (0, 1)
    assert len(host.tasks) <= 3
    assert converged.boot_id == boot
    converged.state = "converged"


def test_a_missing_nic_and_a_swapped_drive_hold_nothing_up_and_are_named(converged: Node) -> None:
    """One boot with an empty slot and another model in a second one: neither delays a login, and the rest is set up."""
    converged.boot({"nic1": {"kind": "empty"}, "gpu2": {"kind": "testdev"}})
    # ssh answers while the boot run still waits for the NIC.
    assert shown(converged)["ActiveState"] == "activating"
    assert ended(converged) == {"ActiveState": "failed", "Result": "exit-code", "SubState": "failed"}
    taken = seconds(converged)
    assert DEVICE_TIMEOUT_S <= taken < DEVICE_TIMEOUT_S + 60, taken
    assert shown(converged, READY)["ActiveState"] == "inactive"
    text = said(converged)
    for words in (
        f"are not there: {PORTS[1]}",
        "pci_driver_devices[0].select: matches only 1",
        "not ready for its guests",
    ):
        assert words in text, text
    found = drivers(converged)
    assert [found.get(one) for one in (DISKS[0], BARS[0], *VFS[PORTS[0]])] == ["vfio-pci"] * 4
    # Another device at the address of a wanted one is not taken for it.
    assert found.get(DISKS[1]) is None
    run = converged.site()
    assert not run.ok
    for words in ("sriov_ports[1].select: matches no device", "pci_driver_devices[0].select: matches only 1 device"):
        assert words in run.host(converged.name).message
    assert run.done(converged.name) == []
    converged.boot()
    assert ended(converged)["Result"] == "success"
    assert_all_is_there(converged)
    assert converged.site().host(converged.name).changed == 0
    converged.state = "converged"


# Power cuts while a run is at work ----------------------------------------------------------------------

CUTS = 20
# Another intent than the inventory's in every respect but the kernel's, so that each run has something to do and undo.
OTHERWISE: dict[str, Any] = {
    "sriov_ports": [
        {
            "select": {"vendor": "8086", "device": "10c9"},
            "vfs": 1,
            "mtu": 4000,
            "vf_defaults": {"vlan": 300, "qos": 1, "trust": False, "mac": "kept"},
        }
    ],
    "pci_driver_devices": [
        {"name": "gpu", "select": {"vendor": "1b36", "device": "0005", "numa_node": 1}, "expect": 1},
        {"name": "vf", "select": {"vfs_of": {"vendor": "8086", "device": "10c9", "numa_node": 0}}, "expect": 1},
    ],
    "pci_driver_blacklist": ["nova_core"],
    "pci_path_relax": [
        {"rule": "ats_present", "reason": "the emulated 82576 has no ATS"},
        {"rule": "relaxed_ordering", "reason": "QEMU does not let it be set"},
        {"rule": "groups_viable", "reason": "two of the stand-ins go back to the host here"},
    ],
    "host_boot_drift_interval": "1h",
}


@pytest.mark.slow
def test_a_power_cut_at_any_moment_is_made_good_by_the_next_run(converged: Node) -> None:
    """From one intent to the other and back, the power taken away a little later each time."""
    wishes: tuple[dict[str, Any], ...] = (OTHERWISE, {})
    began = time.monotonic()
    assert converged.site(**wishes[0]).ok
    whole = time.monotonic() - began
    for cut in range(CUTS):
        variables = wishes[(cut + 1) % 2]
        converged.cut_during(partial(converged.site, **variables), whole * (cut + 0.5) / CUTS)
        run = converged.site(**variables)
        assert run.ok, run.text[-4000:]
        assert run.host(converged.name).last_plan["verified"] is True
    assert converged.site(**wishes[CUTS % 2]).host(converged.name).changed == 0
    assert converged.site().ok
    converged.sh("systemctl is-enabled gpudirect-boot.service")
    assert_all_is_there(converged)
    converged.state = "converged"
