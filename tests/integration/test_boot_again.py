"""node-a through boots that lose something: it comes back without Ansible, or the host says why it does not.

The tests are in the order in which the host lives through them.
"""

from __future__ import annotations

import time

import pytest

from tests.integration.booting import BOOT, READY, WATCH, ended, said, shown
from tests.integration.conftest import Node

pytestmark = pytest.mark.slow

WANTED = {
    "kernel_hugepages": [{"size": "2M", "nodes": {"0": 64, "1": 64}}],
    "kernel_hugepages_default_size": "kernel",
    "sriov_ports": [{"select": {"device": "10c9", "numa_node": 1}, "vfs": 2, "mtu": 9000}],
    "pci_driver_devices": [],
    "pci_driver_blacklist": [],
    "host_boot_device_timeout_s": 60,
}
COUNTS = "cat /sys/devices/system/node/node[01]/hugepages/hugepages-2048kB/nr_hugepages"
NIC = "0000:44:00.0"
VFS = f"cat /sys/bus/pci/devices/{NIC}/sriov_numvfs"
INTENT = "/etc/gpudirect/intent.json"
DEVICE_TIMEOUT_S = 60
TRACES = "ls -d /etc/gpudirect /usr/local/lib/gpudirect /etc/systemd/system/gpudirect-* 2>/dev/null || true"


@pytest.fixture
def paged(stock: Node) -> Node:
    """node-a with small pages on both nodes, which a running kernel finds room for, VFs, and the boot that it took."""
    run = stock.site(**WANTED)
    assert run.ok, run.text[-4000:]
    assert run.host(stock.name).last_plan["verified"] is True
    return stock


def test_life_of_what_a_boot_loses(paged: Node) -> None:
    """One host and its boots; each step begins where the last one has left it."""
    what_the_first_run_installed_has_run_in_its_reboot(paged)
    a_boot_that_gives_no_pages_is_made_good(paged)
    a_rebuilt_initramfs_changes_nothing(paged)
    a_device_that_never_appears_delays_no_login(paged)
    the_watch_tells_drift(paged)
    removal_leaves_nothing(paged)


def what_the_first_run_installed_has_run_in_its_reboot(node: Node) -> None:
    assert ended(node) == {"ActiveState": "active", "Result": "success", "SubState": "exited"}
    assert shown(node, READY)["ActiveState"] == "active"
    assert "This host is ready for its guests: hugepages as wanted" in said(node)
    assert node.sh(VFS).strip() == "2"
    assert node.sh(f"stat -c '%a %U' {INTENT}").split() == ["600", "root"]
    again = node.site(**WANTED)
    assert (again.host(node.name).changed, again.commands[node.name]) == (0, 1)


def a_boot_that_gives_no_pages_is_made_good(node: Node) -> None:
    node.sh("cp -a /boot/grub/grub.cfg /root/; sed -i 's/ hugepages=[^ ]*//g' /boot/grub/grub.cfg; sync")
    node.boot()
    assert ended(node)["Result"] == "success"
    assert "hugepages=" not in node.sh("cat /proc/cmdline")
    assert node.sh(COUNTS).split() == ["64", "64"]
    assert "hugepages: 2 changes made" in said(node)
    node.sh("cp -a /root/grub.cfg /boot/grub/grub.cfg; rm /root/grub.cfg; sync")


def a_rebuilt_initramfs_changes_nothing(node: Node) -> None:
    node.sh("update-initramfs -u -k all; sync")
    node.boot()
    assert ended(node)["Result"] == "success"
    assert node.sh(COUNTS).split() == ["64", "64"]
    assert node.site(**WANTED).host(node.name).changed == 0


def a_device_that_never_appears_delays_no_login(node: Node) -> None:
    """ssh answers while the NIC is waited for, and what does not need it is brought back all the same."""
    node.boot({"nic1": {"kind": "empty"}})
    assert shown(node, BOOT)["ActiveState"] == "activating", "ssh came only after the boot run"
    began = time.monotonic()
    state = ended(node)
    assert (state["ActiveState"], state["Result"]) == ("failed", "exit-code")
    assert time.monotonic() - began < DEVICE_TIMEOUT_S + 60
    assert shown(node, READY)["ActiveState"] == "inactive"
    status = node.sh(f"systemctl status --no-pager {BOOT} || true")
    assert NIC in status, status
    assert "This host is not ready for its guests" in status
    assert node.sh(COUNTS).split() == ["64", "64"]
    node.boot()
    assert ended(node)["Result"] == "success"
    assert shown(node, READY)["ActiveState"] == "active"
    assert node.sh(VFS).strip() == "2"
    assert node.site(**WANTED).host(node.name).changed == 0


def the_watch_tells_drift(node: Node) -> None:
    node.boot()
    ended(node)
    node.sh("echo 60 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages")
    node.sh(f"systemctl start {WATCH} || true")
    assert shown(node, WATCH)["Result"] == "exit-code"
    assert "hugepages[2M].node1: " in said(node, WATCH)
    assert node.sh(COUNTS).split() == ["64", "60"]  # it looks and does not touch
    assert node.site(**WANTED).ok
    node.sh(f"systemctl start {WATCH}")
    assert shown(node, WATCH)["Result"] == "success"


def removal_leaves_nothing(node: Node) -> None:
    run = node.site(name="playbooks/rollback.yml")
    assert run.ok, run.text[-4000:]
    assert node.fingerprint() == node.found
    assert node.sh(TRACES) == ""
    assert node.sh("systemctl list-units --all --no-legend 'gpudirect*'") == ""
    assert node.sh("systemctl list-unit-files --no-legend 'gpudirect*' || true") == ""
    node.state = "stock"
