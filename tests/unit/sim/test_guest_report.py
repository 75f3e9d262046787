"""The golden console is of a real boot of the guest's image: QEMU with OVMF, two NUMA nodes, a switch below an expander on node 1."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.guest_report import BEGIN, END, reports

CONSOLE = (Path(__file__).with_name("golden") / "guest-console.txt").read_text()


def test_devices_have_their_place_in_the_tree() -> None:
    (report,) = reports(CONSOLE)
    disk = report.devices["0000:23:00.0"]
    assert (disk["vendor"], disk["device"], disk["class"]) == ("0x1b36", "0x0010", "0x010802")
    assert (disk["numa_node"], disk["driver"]) == ("1", "nvme")
    assert disk["path"] == "/sys/devices/pci0000:20/0000:20:00.0/0000:21:00.0/0000:22:00.0/0000:23:00.0"
    assert report.devices["0000:24:00.0"]["driver"] == ""


def test_nodes_nics_and_disks_are_told() -> None:
    (report,) = reports(CONSOLE)
    assert [(node["id"], node["cpus"], node["distance"]) for node in report.of("node")] == [
        ("0", "0", "10 21"),
        ("1", "1", "21 10"),
    ]
    assert [(nic["mac"], nic["pci"]) for nic in report.of("net")] == [("52:54:00:11:22:33", "0000:02:00.0")]
    assert [(disk["serial"], disk["pci"]) for disk in report.of("nvme")] == [("gpu0", "0000:23:00.0")]


def test_seed_is_taken() -> None:
    (report,) = reports(CONSOLE)
    assert report.host_name == "g1"
    assert set(report.written) == {"/etc/gpudirect/virtualTopology.xml", "/etc/tmpfiles.d/gpudirect-nccl.conf"}
    assert report.cmdline.startswith("BOOT_IMAGE=/vmlinuz console=ttyS0 ")


def test_each_boot_has_its_report_and_an_unfinished_one_has_none() -> None:
    assert len(reports(CONSOLE + CONSOLE)) == 2
    assert reports(CONSOLE.replace(END, "")) == []
    # The power went in the middle of a line; the next boot starts anew.
    cut = CONSOLE[: CONSOLE.index("numa_node")]
    assert len(reports(cut + "\n" + CONSOLE)) == 1


def test_serial_line_ends_as_terminals_do() -> None:
    assert reports(CONSOLE.replace("\n", "\r\n")) == reports(CONSOLE)


def test_foreign_line_is_an_error_and_no_silent_loss() -> None:
    with pytest.raises(ValueError, match="'oops' is no line of it"):
        reports(f"{BEGIN}\noops\n{END}\n")
