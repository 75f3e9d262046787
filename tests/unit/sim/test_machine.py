from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sim.describe import Device, Host, Switch, read_hosts
from sim.machine import Placement, credential_names, mac_address, qemu_arguments, socket_paths, wide_links

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = Path(__file__).with_name("golden")
PLACE = Placement(Path("/rack/node-a"), Path("/rack/run"), Path("/image/share"), ssh_port=22001, accelerator="tcg")


@pytest.fixture(scope="module")
def node_a() -> Host:
    return read_hosts(ROOT / "sim" / "hosts")["node-a"]


def lines_of(arguments: list[str]) -> str:
    text = ""
    for word in arguments:
        text += ("\n" if word.startswith("-") and text else " " if text else "") + word
    return text + "\n"


def test_arguments_of_node_a_equal_the_golden_file(node_a: Host) -> None:
    # After a wanted change: write lines_of(...) into the file and explain it in the commit.
    assert lines_of(qemu_arguments(node_a, PLACE)) == (GOLDEN / "node-a.txt").read_text()


def test_kernel_and_command_line_come_from_the_disk_only(node_a: Host) -> None:
    assert not {"-kernel", "-initrd", "-append"} & set(qemu_arguments(node_a, PLACE))


def test_guest_reset_ends_the_process(node_a: Host) -> None:
    assert "-no-reboot" in qemu_arguments(node_a, PLACE)


@pytest.mark.parametrize(
    ("iommu", "wanted"), [("intel", ["intel-iommu"]), ("amd", ["amd-iommu"]), ("none", [])], ids=str
)
def test_iommu_is_the_described_one(node_a: Host, iommu: str, wanted: list[str]) -> None:
    words = qemu_arguments(replace(node_a, iommu=iommu), PLACE)
    assert [word.split(",")[0] for word in words if "-iommu," in word] == wanted


def test_switch_without_acs_has_plain_downstream_ports(node_a: Host) -> None:
    switch = Switch(0, 32, (Device("igb", "nic0"),), acs=False)
    text = " ".join(qemu_arguments(replace(node_a, switches=(switch,)), PLACE))
    assert "xio3130-downstream,id=sw0p0,bus=sw0," in text


def test_single_port_can_lose_its_acs(node_a: Host) -> None:
    switch = Switch(0, 32, (Device("igb", "nic0", acs=False), Device("nvme", "gpu0")))
    ports = [word for word in qemu_arguments(replace(node_a, switches=(switch,)), PLACE) if "id=sw0p" in word]
    assert [word.endswith(",disable-acs=on") for word in ports] == [True, False]


def words_with(host: Host, *devices: Device) -> list[str]:
    return qemu_arguments(replace(host, switches=(Switch(0, 32, devices),)), PLACE)


def test_empty_slot_has_its_port_and_nothing_below(node_a: Host) -> None:
    words = words_with(node_a, Device("empty", "nic0"), Device("nvme", "gpu0"))
    assert [word.split(",")[0] for word in words if "id=sw0p" in word] == ["pcie-root-port", "pcie-root-port"]
    assert not [word for word in words if "bus=sw0p0" in word or "nic0" in word]


def test_functions_of_one_slot_share_its_port() -> None:
    arguments = qemu_arguments(read_hosts(ROOT / "sim" / "hosts")["bad-one-group"], PLACE)
    card = [one for one in arguments if "bus=sw0p3,addr=0." in one]
    assert [one.partition(",")[0] for one in card] == ["virtio-net-pci", "nvme"]
    assert all(f"addr=0.{function},multifunction=on" in one for function, one in enumerate(card))
    assert len([one for one in arguments if "id=sw0p" in one]) == 4


def test_serial_names_the_drive_and_changes_the_mac_of_a_nic(node_a: Host) -> None:
    text = " ".join(words_with(node_a, Device("nvme", "gpu0", serial="other"), Device("igb", "nic0", serial="other")))
    assert "nvme,id=gpu0,serial=other,drive=gpu0-disk" in text
    assert f"igb,id=nic0,netdev=nic0-cable,bus=sw0p1,romfile=,mac={mac_address('node-a', 'other')}" in text


def test_disk_to_boot_from_can_be_an_nvme(node_a: Host) -> None:
    words = qemu_arguments(replace(node_a, boot_disk="nvme"), PLACE)
    assert "nvme,serial=boot,drive=disk,bus=pcie.0,addr=0x4,bootindex=1" in words
    assert not [word for word in words if word.startswith("virtio-blk-pci,drive=disk")]


def test_wide_link_widens_the_port_and_names_the_place_of_its_device(node_a: Host) -> None:
    wide = replace(node_a, switches=(Switch(0, 32, (Device("nvme", "gpu0"), Device("igb", "nic0", lanes=16))),))
    ports = [word for word in qemu_arguments(wide, PLACE) if "id=sw0p" in word]
    assert [word.endswith(",x-width=16") for word in ports] == [False, True]
    place = "/sys/devices/pci0000:20/0000:20:00.0/0000:21:00.0/0000:22:01.0/0000:24:00.0"
    assert wide_links(wide) == {place: 16}
    assert "fstab.extra" in credential_names(wide)
    assert not wide_links(node_a)


def test_cables_of_peers_end_at_each_other() -> None:
    hosts = read_hosts(ROOT / "sim" / "hosts")

    def ends(name: str) -> set[tuple[str, str]]:
        words = [word for word in qemu_arguments(hosts[name], PLACE) if word.startswith("dgram,")]
        options = [dict(part.split("=", 1) for part in word.split(",")[1:]) for word in words]
        return {(option["local.path"], option["remote.path"]) for option in options}

    assert len(ends("node-a")) == 4
    assert ends("node-a") == {(far, near) for near, far in ends("node-b")}


def test_macs_differ_by_host_and_device_and_stay() -> None:
    macs = {mac_address(host, device) for host in ("node-a", "node-b") for device in ("mgmt", "nic0", "nic1")}
    assert len(macs) == 6
    assert mac_address("node-a", "nic0") == "52:54:00:85:66:a4"


def test_comma_in_a_path_does_not_end_an_option(node_a: Host) -> None:
    place = replace(PLACE, folder=Path("/a,b"))
    disk = next(word for word in qemu_arguments(node_a, place) if "id=disk" in word)
    assert disk.endswith("file=/a,,b/disk.qcow2")


def test_credential_names_fit_into_fw_cfg(node_a: Host) -> None:
    everything = replace(node_a, ssh_user="oper", filesystems=())
    names = {*credential_names(node_a), *credential_names(everything)}
    assert all(len(f"opt/io.systemd.credentials/{name}") <= 55 for name in names)


def test_socket_paths_are_those_in_the_arguments(node_a: Host) -> None:
    text = " ".join(qemu_arguments(node_a, PLACE))
    assert all(str(path) in text for path in socket_paths(node_a, PLACE))
