"""node-a's registers between GPUs and NICs: by the boot argument, by the boot unit, undone by resets, and opened for bare metal.

Words are read by setpci, which shares nothing with the engine. The tests are in the order in which the host lives through them.
"""

from __future__ import annotations

import pytest

from tests.integration.booting import WATCH, ended, said
from tests.integration.conftest import Node

pytestmark = pytest.mark.slow

# By the description of node-a: the switch of node 0, its root port, and what is plugged into its ports.
ROOT, DISK_PORT, NIC_PORT, BAR_PORT, ATS_PORT = "20:00.0", "22:00.0", "22:01.0", "22:02.0", "22:03.0"
UPSTREAM, DISK = "0000:21:00.0", "0000:23:00.0"
DIRECT, REDIRECTED = "005d", "001d"
AS_WANTED = {ROOT: REDIRECTED, DISK_PORT: REDIRECTED, NIC_PORT: DIRECT, BAR_PORT: REDIRECTED, ATS_PORT: DIRECT}
RESET = "echo 1 > /sys/bus/pci/devices/{}/reset"
CONFIGURED = "dmesg | grep -c 'pci 0000:22:01.0: Configured ACS to 0x005d' || true"
NO_DEVICES = {"sriov_ports": [], "pci_driver_devices": [], "pci_driver_blacklist": []}


def words(node: Node) -> dict[str, str]:
    """ACS control words of the ports of node 0."""
    lines = node.sh("; ".join(f"echo {port} $(setpci -s {port} ECAP_ACS+6.w)" for port in AS_WANTED)).splitlines()
    return dict(line.split() for line in lines)


def groups(node: Node, *addresses: str) -> set[str]:
    """IOMMU groups of functions."""
    return {node.sh(f"basename $(readlink /sys/bus/pci/devices/{one}/iommu_group)").strip() for one in addresses}


def test_the_boot_argument_has_set_the_words_before_groups_were_formed(converged: Node) -> None:
    line = converged.sh("cat /proc/cmdline")
    assert "0011101@0000:22:00.0;1011101@0000:22:01.0" in line, line
    assert converged.sh(CONFIGURED).strip() == "1"
    assert words(converged) == AS_WANTED
    run = converged.site()
    assert run.ok
    assert run.host(converged.name).changed == 0
    found = run.host(converged.name).last_plan["paths"]
    assert found["verdict"] == "OK", found["text"]
    # The virtio pair passes in full; of the igb pair the site has relaxed one rule by name, and says so.
    assert {"rule": "ats_present", "reason": "the emulated 82576 has no ATS", "findings": 2} in found["relaxed"]
    converged.state = "converged"


def test_resets_undo_words_and_the_watch_mends_them(converged: Node) -> None:
    """Seen on Linux 6.12: a reset below a port gives it the boot argument's word, one of the switch leaves none at all.

    The latter also takes what is below the switch away: its ports lose the numbers of their buses.
    """
    converged.sh(f"setpci -s {DISK_PORT} ECAP_ACS+6.w={DIRECT}; {RESET.format(DISK)}")
    assert words(converged) == AS_WANTED
    converged.sh(RESET.format(UPSTREAM))
    assert words(converged) == {**dict.fromkeys(AS_WANTED, "0000"), ROOT: REDIRECTED}
    converged.sh(f"systemctl start {WATCH} || true")
    assert words(converged) == AS_WANTED
    text = said(converged, WATCH)
    for port in (DISK_PORT, NIC_PORT, BAR_PORT, ATS_PORT):
        assert f"put right: pci_path[0000:{port}].acs" in text, text
    assert "0000:24:00.0].max_read_request: the NIC does not answer" in text
    converged.boot()
    ended(converged)
    assert words(converged) == AS_WANTED
    assert converged.site().host(converged.name).changed == 0
    converged.state = "converged"


def test_the_watch_mends_a_word_that_somebody_has_written(converged: Node) -> None:
    converged.sh(f"setpci -s {NIC_PORT} ECAP_ACS+6.w=0000")
    converged.sh(f"systemctl start {WATCH}")
    assert words(converged) == AS_WANTED
    text = said(converged, WATCH)
    assert f"put right: pci_path[0000:{NIC_PORT}].acs" in text, text
    assert converged.site().host(converged.name).changed == 0
    converged.state = "converged"


def test_a_failing_path_stops_the_host_by_name(converged: Node) -> None:
    """The reason that the inventory gives for the NIC without ATS is taken away."""
    others = [{"rule": rule, "reason": "emulated"} for rule in ("max_read_request", "relaxed_ordering")]
    run = converged.site(pci_path_relax=others)
    assert not run.ok
    message = run.host(converged.name).message
    for word in ("paths.ats_present: FAIL at 0000:24:00.0, 0000:44:00.0", "ATS_ENABLED"):
        assert word in message, message
    # The boot unit is told of the site's wishes all the same; nothing else is touched.
    assert [change["path"] for change in run.done(converged.name)] == ["host_boot.intent"]
    assert converged.site().ok
    converged.state = "converged"


def test_without_the_argument_the_boot_unit_sets_the_words(converged: Node) -> None:
    run = converged.site(pci_path_acs="register")
    assert run.ok, run.text[-4000:]
    assert "config_acs" not in converged.sh("cat /boot/grub/grub.cfg")
    converged.boot()
    assert ended(converged)["Result"] == "success"
    assert "config_acs" not in converged.sh("cat /proc/cmdline")
    assert converged.sh(CONFIGURED).strip() == "0"
    assert words(converged) == AS_WANTED
    # Without the argument a reset below the port gives it what the kernel does by itself, and the watch what is wanted.
    converged.sh(f"setpci -s {DISK_PORT} ECAP_ACS+6.w=0000; {RESET.format(DISK)}")
    assert words(converged)[DISK_PORT] == REDIRECTED
    assert converged.site(pci_path_acs="register").host(converged.name).changed == 0
    run = converged.site()
    assert run.ok, run.text[-4000:]
    converged.state = "unknown"


def test_bare_metal_opens_the_ports_with_one_reboot_and_back(stock: Node) -> None:
    relax = [{"rule": "relaxed_ordering", "reason": "emulated"}]
    run = stock.site(gpudirect_mode="bare_metal", pci_path_relax=relax, **NO_DEVICES)
    assert run.reboots(stock.name) == 1
    assert words(stock) == {ROOT: "0000", **dict.fromkeys((DISK_PORT, NIC_PORT, BAR_PORT, ATS_PORT), "0000")}
    assert len(groups(stock, DISK, "0000:24:00.0", "0000:26:00.0")) == 1
    # The NICs of node 0 and 1 that have ATS are wrong for bare metal, and are named.
    assert "ats_present" in run.text
    run = stock.site()
    assert run.ok, run.text[-4000:]
    assert words(stock) == AS_WANTED
    assert len(groups(stock, DISK, "0000:24:00.0", "0000:26:00.0")) == 3
    stock.state = "converged"
