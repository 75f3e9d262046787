"""The tree as read from sysfs: what the kernel says, and what it does not say stays unsaid."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import ABSENT, Unreadable
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import UnreadableState
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host
from ansible_collections.vela.gpudirect.plugins.module_utils.pci import capabilities, sysfs
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.address import Address
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.tree import Bar, Link, Netdev, Sriov

from tests.fixtures import fake_machines
from tests.fixtures.fake_pci import Disk, Machine, Net
from tests.unit.pci.machines import at, read

NIC, DRIVE = "0000:24:00.0", "0000:23:00.0"


@pytest.fixture
def rack(tmp_path: Path) -> Machine:
    return fake_machines.rack().write(tmp_path)


# A good machine --------------------------------------------------------------------------


def test_a_nic_of_the_rack_with_all_that_is_known_of_it(rack: Machine) -> None:
    rack["0000:24:00.0"].vfs.autoprobe = False  # type: ignore[union-attr]
    rack.add_vfs(rack[NIC], 3)
    nic = at(read(rack), NIC)
    assert (nic.ids, nic.class_code, nic.revision) == ("8086:10c9", 0x020000, 1)
    assert (nic.subsystem_vendor, nic.subsystem_device) == (0x8086, 0xA03C)
    assert (str(nic.parent), nic.root_bus, nic.numa_node, nic.iommu_group) == ("0000:22:01.0", "pci0000:20", 0, 14)
    assert (nic.driver, nic.driver_override) == ("igb", ABSENT)
    assert nic.link == Link(80, 80, 8, 8)
    assert [(bar.index, bar.size) for bar in nic.bars] == [(0, 0x20000), (3, 0x4000), (7, 0x20000)]
    assert all(bar.assigned for bar in nic.bars)
    assert nic.serial == "52-54-00-ff-ff-85-66-a0"
    assert nic.netdevs == (Netdev("ens1", "52:54:00:85:66:a0", 1500, "up", ABSENT, ABSENT, ""),)
    vfs = tuple(Address.parse(f"0000:24:10.{number}") for number in (0, 2, 4))
    assert nic.sriov == Sriov(7, 3, False, 128, 2, 0x10CA, 8, vfs)
    assert (nic.is_pf, nic.is_vf, nic.is_bridge, nic.boot_vga, nic.disks, nic.rdma) == (
        True,
        False,
        False,
        False,
        (),
        (),
    )


def test_vfs_stand_beside_their_pf_and_know_it(rack: Machine) -> None:
    rack.add_vfs(rack[NIC], 7)
    tree = read(rack)
    vfs = tree.vfs(at(tree, NIC))
    places = ("10.0", "10.2", "10.4", "10.6", "11.0", "11.2", "11.4")
    assert [str(vf.address) for vf in vfs] == [f"0000:24:{place}" for place in places]
    assert {(vf.ids, vf.is_vf, str(vf.physfn), str(vf.parent)) for vf in vfs} == {
        ("8086:10ca", True, NIC, "0000:22:01.0")
    }
    assert len({vf.iommu_group for vf in vfs}) == 7
    assert all(isinstance(vf.link.speed, Unreadable) and isinstance(vf.link.width, Unreadable) for vf in vfs)
    assert vfs[0].link.speed_max == 80
    assert tree.port(vfs[6]) == "pci0000:20/00.0/00.0/01.0/00.0/vf6"


def test_bridges_with_their_buses_and_what_is_below(rack: Machine) -> None:
    tree = read(rack)
    bridges = {str(one.address): (one.secondary_bus, one.subordinate_bus) for one in tree if one.is_bridge}
    assert {address: buses for address, buses in bridges.items() if address < "0000:30"} == {
        "0000:20:00.0": (0x21, 0x26),
        "0000:21:00.0": (0x22, 0x26),
        "0000:22:00.0": (0x23, 0x23),
        "0000:22:01.0": (0x24, 0x24),
        "0000:22:02.0": (0x25, 0x25),
        "0000:22:03.0": (0x26, 0x26),
    }
    assert [str(one.address) for one in tree.above(at(tree, NIC))] == ["0000:22:01.0", "0000:21:00.0", "0000:20:00.0"]
    assert [str(one.address) for one in tree.below(at(tree, "0000:21:00.0"))] == [f"0000:22:0{n}.0" for n in range(4)]
    assert tree.port(at(tree, NIC)) == "pci0000:20/00.0/00.0/01.0/00.0"
    port = at(tree, "0000:22:01.0")
    assert capabilities.acs(port.config) == capabilities.Words(0x5F, 0x1D)
    assert capabilities.acs(at(tree, NIC).config) is ABSENT
    assert capabilities.ats(at(tree, "0000:26:00.0").config) == capabilities.Ats(0x20, 0)


def test_groups_with_their_types_and_members(rack: Machine) -> None:
    rack["0000:40:00.0"].isolated = False
    for device in rack.devices:
        device.group = None
    tree = read(rack.write(rack.folder))  # type: ignore[arg-type]
    group = at(tree, "0000:40:00.0").iommu_group
    assert isinstance(group, int)
    assert [str(one.address) for one in tree.group(group)] == [
        one.address for one in rack.by_address() if one.address.startswith("0000:4")
    ]
    assert set(tree.group_types.values()) == {"identity"}
    assert len(tree.group(at(tree, NIC).iommu_group)) == 1  # type: ignore[arg-type]


def test_drives_and_disks_with_their_serials(rack: Machine) -> None:
    tree = read(rack)
    assert (at(tree, DRIVE).serial, at(tree, DRIVE).disks) == ("gpu0", ("nvme0n1",))
    assert (at(tree, "0000:00:04.0").serial, at(tree, "0000:00:04.0").disks) == (ABSENT, ("vda",))
    rack.bind(DRIVE, "vfio-pci")
    away = at(read(rack), DRIVE)
    assert (away.driver, away.serial, away.disks) == ("vfio-pci", ABSENT, ())


def test_an_nvme_disk_of_several_paths_is_known_by_its_controller(tmp_path: Path) -> None:
    machine = Machine()
    drive = machine.nvme(machine.root(0), "S1", "nvme3n1", "01.0")
    drive.disks[0].shared = True
    drive.disks.append(Disk("nvme3n2"))
    assert at(read(machine.write(tmp_path)), "0000:00:01.0").disks == ("nvme3n1", "nvme3n2")


def test_representors_are_no_ports_of_a_pf(tmp_path: Path) -> None:
    machine = Machine()
    nic = machine.connectx(machine.port(machine.root(0), "01.0"), "ens1f0np0", "94:6d:ae:00:00:00")
    nic.nets.append(Net("ens1f0npf0vf0", "94:6d:ae:00:00:01", port_name="pf0vf0", switch_id="946dae000000"))
    nic.nets.append(Net("enp8s0f0sf88", "94:6d:ae:00:00:02", port_name="c1pf0sf88"))
    nic.nets[0].master = "bond0"
    found = at(read(machine.write(tmp_path)), "0000:01:00.0")
    assert [one.name for one in found.netdevs] == ["enp8s0f0sf88", "ens1f0np0", "ens1f0npf0vf0"]
    assert [(one.name, one.port_name, one.master) for one in found.ports] == [("ens1f0np0", "p0", "bond0")]
    assert found.rdma == ("mlx5_0",)


def test_a_host_of_gpus_and_nics(tmp_path: Path) -> None:
    tree = read(fake_machines.large().write(tmp_path))
    assert len(tree.functions) == 8 * (1 + 1 + 2 + 1 + 1 + 16)
    assert sum(one.is_vf for one in tree) == 128
    gpu = next(one for one in tree if one.vendor == 0x10DE)
    assert Bar(1, gpu.bars[1].start, 64 << 30, 0x14220C) == gpu.bars[1]
    assert sorted({one.numa_node for one in tree if isinstance(one.numa_node, int)}) == [0, 1]
    assert not tree.unread


def test_a_driver_override_is_told(rack: Machine) -> None:
    rack.override(NIC, "vfio-pci")
    assert at(read(rack), NIC).driver_override == "vfio-pci"


def test_functions_can_be_kept_in_sets(rack: Machine) -> None:
    tree = read(rack)
    assert len({*tree, *read(rack)}) == len(tree.functions)


# Odd machines ----------------------------------------------------------------------------


def test_domains_of_32_bits_below_a_function(tmp_path: Path) -> None:
    machine = Machine()
    vmd = machine.plug(machine.root(0x64), "05.5", vendor=0x8086, device=0x201D, class_code=0x010400)
    hidden = machine.root(0, domain=0x10001, under="/sys/devices/pci0000:64/0000:64:05.5")
    machine.nvme(machine.port(hidden, "02.0"), "S1", "nvme0n1")
    tree = read(machine.write(tmp_path))
    drive = at(tree, "10001:01:00.0")
    assert (str(drive.parent), drive.root_bus) == ("10001:00:02.0", "pci10001:00")
    assert tree.port(drive) == "pci10001:00/02.0/00.0"
    assert drive.disks == ("nvme0n1",)
    assert at(tree, vmd.address).disks == ()
    assert [one.address.domain for one in tree] == [0, 0x10001, 0x10001]


def test_no_numa_node_is_not_node_minus_one(tmp_path: Path) -> None:
    machine = Machine()
    machine.testdev(machine.root(0), "01.0")
    tree = read(machine.write(tmp_path))
    assert at(tree, "0000:00:01.0").numa_node is ABSENT


def test_without_privilege_capabilities_are_unknown_and_buses_are_not(rack: Machine) -> None:
    for device in rack.devices:
        device.readable = 64
    tree = read(rack.write(rack.folder))  # type: ignore[arg-type]
    nic, bridge = at(tree, NIC), at(tree, "0000:21:00.0")
    cause = "only 64 bytes of configuration space are readable; root is needed for more"
    assert capabilities.acs(bridge.config) == capabilities.ats(nic.config) == nic.serial == Unreadable(cause)
    assert isinstance(nic.sriov, Sriov)
    assert (nic.sriov.total, nic.sriov.register) == (7, Unreadable(cause))
    assert (bridge.secondary_bus, bridge.subordinate_bus) == (0x22, 0x26)
    assert at(tree, DRIVE).serial == Unreadable(cause)  # a number of the device itself would come first


def test_buses_that_were_added_are_read_as_they_are_now(tmp_path: Path) -> None:
    machine = Machine()
    port = machine.port(machine.root(0), "01.0", spare_buses=4)
    tree = read(machine.write(tmp_path))
    assert (at(tree, "0000:00:01.0").secondary_bus, at(tree, "0000:00:01.0").subordinate_bus) == (1, 5)
    upstream = machine.upstream(port)
    drive = machine.nvme(machine.port(upstream, "03.0"), "S1", "nvme0n1")
    tree = read(machine.write(tmp_path))
    assert [str(one.address) for one in tree.above(at(tree, drive.address))] == [
        "0000:02:03.0",
        "0000:01:00.0",
        "0000:00:01.0",
    ]


@pytest.mark.parametrize("speed", ["Unknown", "Unknown speed"])
def test_a_speed_or_width_that_the_kernel_does_not_know_is_unknown(rack: Machine, speed: str) -> None:
    rack.set_link(NIC, (speed, "8.0 GT/s PCIe", "0", "255"))
    unknown = Unreadable(f"the kernel says {speed!r}")
    none, never = (Unreadable(f"the kernel says {width}, which tells no width") for width in (0, 255))
    assert at(read(rack), NIC).link == Link(unknown, 80, none, never)


@pytest.mark.parametrize(
    ("text", "tenths"), [("2.5 GT/s PCIe", 25), ("5.0 GT/s", 50), ("16.0 GT/s PCIe", 160), ("64.0 GT/s PCIe", 640), ("32 GT/s", 320)]
)  # fmt: skip
def test_speeds_as_kernels_of_all_ages_write_them(rack: Machine, text: str, tenths: int) -> None:
    rack.set_link(NIC, (text, text, "1", "16"))
    assert at(read(rack), NIC).link == Link(tenths, tenths, 1, 16)


def test_a_bridge_is_one_by_its_class_and_place_whatever_its_port_type_says(rack: Machine) -> None:
    tree = read(rack)
    for address in ("0000:20:00.0", "0000:21:00.0", "0000:22:01.0"):
        assert at(tree, address).is_bridge
    host_bridge = at(tree, "0000:00:10.0")
    assert (host_bridge.is_bridge, host_bridge.secondary_bus) == (False, None)
    # Both say that they are root ports; only one of them is on a root bus.
    assert [tree.functions[Address.parse(one)].parent is None for one in ("0000:20:00.0", "0000:22:01.0")] == [
        True,
        False,
    ]


def test_a_nic_at_a_usb_controller_is_not_the_controllers(rack: Machine) -> None:
    folder = rack.path(rack["0000:45:00.0"])
    rack._put(f"{folder}/usb1/1-1/1-1:1.0/net/enx0/address", "02:00:00:00:00:09\n")
    rack._link("/sys/class/net/enx0", f"{folder}/usb1/1-1/1-1:1.0/net/enx0")
    rack._put("/sys/class/net/bonding_masters", "bond0\n")
    function = at(read(rack), "0000:45:00.0")
    assert (function.netdevs, dict(function.unread)) == ((), {})


def test_the_display_that_the_firmware_uses(tmp_path: Path) -> None:
    machine = Machine()
    root = machine.root(0)
    for slot, first in (("02.0", True), ("03.0", False)):
        machine.plug(root, slot, vendor=0x1234, device=0x1111, class_code=0x030000, boot_vga=first)
    assert [one.boot_vga for one in read(machine.write(tmp_path))] == [True, False]


# Machines that change while they are read ------------------------------------------------


class Changing(Host):
    """Something happens to the machine just before a file is read."""

    @property
    def captured(self) -> bool:
        return False

    def __init__(self, machine: Machine, when: str, what: Any) -> None:
        super().__init__(str(machine.folder))
        self.when, self.what = when, what

    def read_bytes(self, path: str, size: int = 4096, start: int = 0) -> Any:
        if self.what and path.endswith(self.when):
            what, self.what = self.what, None
            what()
        return super().read_bytes(path, size, start)


@pytest.mark.parametrize("attribute", ["config", "modalias", "revision", "resource", "numa_node", "sriov_totalvfs"])
def test_a_function_that_goes_while_it_is_read_is_left_out(rack: Machine, attribute: str) -> None:
    before = read(rack)
    host = Changing(rack, f"{NIC}/{attribute}", lambda: rack.vanish(NIC))
    tree = sysfs.read(host)
    assert host.what is None
    assert set(before.functions) - set(tree.functions) == {Address.parse(NIC)}
    assert tree.unread == {}


def test_vfs_that_go_while_their_pf_is_read(rack: Machine) -> None:
    rack.add_vfs(rack[NIC], 7)
    tree = sysfs.read(Changing(rack, f"{NIC}/sriov_offset", lambda: rack.remove_vfs(rack[NIC])))
    assert not any(one.is_vf for one in tree)
    assert tree.vfs(at(tree, NIC)) == ()


def test_a_count_of_vfs_without_the_vfs_is_not_believed(rack: Machine) -> None:
    rack._put(f"{rack.path(rack[NIC])}/sriov_numvfs", "3\n")
    for name in ("offset", "stride"):
        rack.at(f"{rack.path(rack[NIC])}/sriov_{name}").unlink()
    sriov = at(read(rack), NIC).sriov
    assert isinstance(sriov, Unreadable)
    assert sriov.cause.endswith("its virtfn links do not tell 3 VFs; they may be changing")
    rack._put(f"{rack.path(rack[NIC])}/sriov_numvfs", "99999999999\n")
    assert isinstance(at(read(rack), NIC).sriov, Unreadable)


def test_vfs_whose_links_were_lost_are_those_of_offset_and_stride(rack: Machine) -> None:
    rack.add_vfs(rack[NIC], 7)
    before = read(rack)
    for link in rack.at(rack.path(rack[NIC])).glob("virtfn[135]"):
        link.unlink()
    for vf in before.vfs(at(before, NIC)):
        rack.at(f"{rack.path(rack[str(vf.address)])}/physfn").unlink()
    assert read(rack) == before


def test_a_vf_whose_pf_nothing_tells_is_no_plain_function(rack: Machine) -> None:
    (vf,) = rack.add_vfs(rack[NIC], 1)
    for path in (f"{rack.path(vf)}/physfn", f"{rack.path(rack[NIC])}/sriov_totalvfs"):
        rack.at(path).unlink()
    tree = read(rack)
    cause = f"{rack.path(vf)}: is a VF by its configuration space, and nothing tells of which PF"
    assert dict(at(tree, vf.address).unread) == {"physfn": cause}
    assert tree.port(at(tree, vf.address)) == "pci0000:20/?"
    rack._link(f"{rack.path(vf)}/physfn", "/sys/nothing")
    assert at(read(rack), vf.address).unread["physfn"] == f"{rack.path(vf)}/physfn: leads to 'nothing'"
    rack._link(f"{rack.path(vf)}/physfn", rack.path(rack[NIC]))
    assert tree.port(at(tree, NIC)) + "/vf?" == read(rack).port(at(read(rack), vf.address))


# Trees that lack something ---------------------------------------------------------------


def test_ids_are_taken_from_whatever_tells_them(rack: Machine) -> None:
    before = read(rack)
    alone = ("vendor", "device", "subsystem_vendor", "subsystem_device", "class", "revision")
    for device in rack.devices:
        here = rack.at(rack.path(device))
        for name in alone:
            (here / name).unlink()
    assert read(rack) == before
    rack.write(rack.folder)  # type: ignore[arg-type]
    for device in rack.devices:
        rack.at(f"{rack.path(device)}/modalias").unlink()
    assert read(rack) == before
    for device in rack.devices:
        for name in alone:
            rack.at(f"{rack.path(device)}/{name}").unlink()
    assert read(rack) == before  # the header of configuration space


def test_a_function_that_does_not_tell_what_it_is_is_named(rack: Machine) -> None:
    folder = rack.path(rack[NIC])
    for name in ("modalias", "device", "config"):
        rack.at(f"{folder}/{name}").unlink()
    tree = read(rack)
    assert {str(address): cause for address, cause in tree.unread.items()} == {
        NIC: f"{folder}: its device cannot be read"
    }
    assert tree.get(Address.parse(NIC)) is None


def test_a_bridge_that_does_not_tell_what_it_is_leaves_a_gap_in_the_place(rack: Machine) -> None:
    folder = rack.path(rack["0000:21:00.0"])
    for name in ("modalias", "device", "config"):
        rack.at(f"{folder}/{name}").unlink()
    tree = read(rack)
    assert tree.port(at(tree, NIC)) == "pci0000:20/?/01.0/00.0"


def test_what_a_captured_tree_leaves_out_is_named(rack: Machine) -> None:
    for folder in ("class/net", "block"):
        shutil.rmtree(rack.at(f"/sys/{folder}"))
    rack.at(f"{rack.path(rack[NIC])}/resource").unlink()
    tree = read(rack)
    left_out = {"netdevs": "/sys/class/net: is not there", "disks": "/sys/block: is not there"}
    assert dict(at(tree, DRIVE).unread) == left_out
    assert dict(at(tree, NIC).unread) == {**left_out, "bars": "resource is not there"}


@pytest.mark.parametrize(
    ("text", "cause"),
    [("0x0 0x1\n", "resource has a line that is none: '0x0 0x1'"), ("what\n", "resource has a line that is none: 'what'")],
)  # fmt: skip
def test_a_list_of_regions_that_is_none(rack: Machine, text: str, cause: str) -> None:
    rack._put(f"{rack.path(rack[NIC])}/resource", text)
    assert at(read(rack), NIC).unread["bars"] == cause


def test_a_region_without_a_place_is_not_assigned(rack: Machine) -> None:
    rack._put(f"{rack.path(rack[NIC])}/resource", "0x0 0xffff 0x2014220c\n0xfff00000 0xfffff 0x0\n0x0 0x0 0x0\n")
    assert at(read(rack), NIC).bars == (Bar(0, 0, 0x10000, 0x2014220C),)
    assert not at(read(rack), NIC).bars[0].assigned


@pytest.mark.parametrize(
    ("attribute", "field"),
    [("numa_node", "numa_node"), ("sriov_totalvfs", "sriov"), ("sriov_numvfs", "sriov"), ("iommu_group", "iommu_group")],
)  # fmt: skip
def test_nonsense_is_unknown(rack: Machine, attribute: str, field: str) -> None:
    path = rack.at(f"{rack.path(rack[NIC])}/{attribute}")
    path.unlink()
    if attribute == "iommu_group":
        path.symlink_to("../none")
    else:
        path.write_text("x\n")
    assert isinstance(getattr(at(read(rack), NIC), field), Unreadable)


def test_a_host_without_pci_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnreadableState) as caught:
        sysfs.read(Host(str(tmp_path)))
    assert str(caught.value) == (
        "/sys/bus/pci/devices: is not there. See whether the host has a PCI bus and whether its sysfs can be read."
    )
    (tmp_path / "sys/bus/pci").mkdir(parents=True)
    (tmp_path / "sys/bus/pci/devices").symlink_to("devices")
    with pytest.raises(UnreadableState, match="^/sys/bus/pci/devices: Too many levels of symbolic links"):
        sysfs.read(Host(str(tmp_path)))


def test_a_tree_whose_links_became_folders_has_no_places(rack: Machine) -> None:
    link = rack.at(f"/sys/bus/pci/devices/{NIC}")
    link.unlink()
    link.mkdir()
    rack.at("/sys/bus/pci/devices/not-a-function").mkdir()
    tree = read(rack)
    assert {str(one): cause for one, cause in tree.unread.items()} == {NIC: f"/sys/bus/pci/devices/{NIC}: is no link"}


# Cost ------------------------------------------------------------------------------------


class Counting(Host):
    """Counts what is asked of the host."""

    asked = 0

    @property
    def captured(self) -> bool:
        return False

    def read_bytes(self, path: str, size: int = 4096, start: int = 0) -> Any:
        self.asked += 1
        return super().read_bytes(path, size, start)

    def link(self, path: str) -> Any:
        self.asked += 1
        return super().link(path)

    def names(self, path: str) -> Any:
        self.asked += 1
        return super().names(path)


def test_the_cost_of_a_function_is_small_and_the_same_on_every_machine(tmp_path: Path) -> None:
    asked = {}
    for vfs in (1, 16):
        machine = fake_machines.large(vfs=vfs).write(tmp_path / str(vfs))
        host = Counting(str(machine.folder))
        started = time.process_time()
        sysfs.read(host)
        asked[len(machine.devices)] = host.asked
        assert time.process_time() - started < 0.5  # seconds; about 0.03 on the machine it was written on
    (few, less), (many, more) = sorted(asked.items())
    assert more / many <= 22
    assert (more - less) / (many - few) <= 20
