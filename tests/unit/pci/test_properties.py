"""What holds on every machine: it is read as it was built, whatever the order, and gaps are never filled."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import ABSENT, Absent, Unreadable
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import GpudirectError, UnreadableState
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host
from ansible_collections.vela.gpudirect.plugins.module_utils.pci import capabilities, sysfs
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.address import Address
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.identity import differences, identity
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.select import Selector, chosen, matches, selector
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.topology import topology
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.tree import Bar, Function, Link, Netdev, Sriov, Tree
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.fake_devices import Device, Root, configuration
from tests.fixtures.fake_pci import Machine
from tests.unit.pci.machines import read
from tests.unit.pci.random_machines import machines

SPEEDS = {"2.5 GT/s": 25, "2.5 GT/s PCIe": 25, "8.0 GT/s PCIe": 80, "16.0 GT/s PCIe": 160}


class Unknown:
    """Stands for a value that must not be known, whatever the reason that is given."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unreadable)

    __hash__ = None  # type: ignore[assignment]


UNKNOWN: Any = Unknown()


@contextmanager
def on_disk(machine: Machine) -> Iterator[Machine]:
    with tempfile.TemporaryDirectory() as folder:
        yield machine.write(Path(folder))


# What a reader has to find, said once more and differently ---------------------------------


def of_list(device: Device, value: Any) -> Any:
    """A value of the extended capabilities: known only where they can be read."""
    if device.link is None:
        return ABSENT if device.readable >= 256 else UNKNOWN
    return (ABSENT if value is None else value) if device.readable == 4096 else UNKNOWN


def link_of(device: Device) -> Link:
    if device.link is None:
        return Link()
    speed, best, width, widest = device.link
    return Link(
        *(SPEEDS.get(one, UNKNOWN) for one in (speed, best)),
        *(UNKNOWN if one in ("0", "255") else int(one) for one in (width, widest)),
    )


def serial_of(device: Device) -> Any:
    own = of_list(device, device.serial or None)
    drives = [disk.serial for disk in device.disks if device.awake and disk.serial]
    return drives[0] if own is ABSENT and drives else own


def sriov_of(device: Device) -> Any:
    if device.vfs is None:
        return ABSENT
    vfs = device.vfs
    addresses = tuple(Address.parse(one.address) for one in vfs.functions)
    register = of_list(device, vfs.total)
    return Sriov(device.totalvfs, vfs.enabled, True, vfs.offset, vfs.stride, vfs.vf_device, register, addresses)


def nets_of(device: Device) -> list[Netdev]:
    return [
        Netdev(
            net.name, net.mac, net.mtu, net.operstate, ABSENT if net.port_name is None else net.port_name, ABSENT, ""
        )
        for net in device.nets
        if device.awake
    ]


def root_of(device: Device) -> Root:
    above = device.above
    return above if isinstance(above, Root) else root_of(above)


def check(device: Device, one: Function) -> None:
    """Every field of a function against what the machine was built of."""
    assert (one.vendor, one.device, one.class_code) == (device.vendor, device.device, device.class_code)
    assert (one.subsystem_vendor, one.subsystem_device, one.revision) == (*device.subsystem, device.revision)
    assert str(one.parent) == (device.above.address if isinstance(device.above, Device) else "None")
    assert one.root_bus == root_of(device).name
    assert one.numa_node == (ABSENT if device.numa < 0 else device.numa)
    assert one.iommu_group == (ABSENT if device.group is None else device.group)
    assert one.driver == (device.driver or ABSENT)
    assert one.driver_override == (device.override or ABSENT)
    assert link_of(device) == one.link
    assert list(one.bars) == [
        Bar(index, start, end - start + 1, flags) for index, (start, end, flags) in sorted(device.regions.items())
    ]
    assert configuration(device).startswith(one.config.data)
    assert of_list(device, device.acs and capabilities.Words(*device.acs)) == capabilities.acs(one.config)
    assert of_list(device, device.ats and capabilities.Ats(*device.ats)) == capabilities.ats(one.config)
    assert (one.secondary_bus, one.subordinate_bus) == (
        (device.secondary, device.subordinate) if device.is_bridge else (None, None)
    )
    assert sriov_of(device) == one.sriov
    assert str(one.physfn) == (device.pf.address if device.pf else "None")
    assert serial_of(device) == one.serial
    assert list(one.netdevs) == nets_of(device)
    assert list(one.rdma) == (device.rdma if device.awake else [])
    assert list(one.disks) == [disk.name for disk in device.disks if device.awake]
    assert one.boot_vga == (device.boot_vga and device.class_code >> 16 == 3)
    assert not one.unread


# Properties ------------------------------------------------------------------------------


@settings(max_examples=120)
@given(machines())
def test_a_machine_is_read_as_it_was_built(machine: Machine) -> None:
    with on_disk(machine):
        tree = read(machine)
    assert [str(one.address) for one in tree] == [one.address for one in machine.by_address()]
    for device, one in zip(machine.by_address(), tree):
        check(device, one)
    assert set(tree.group_types.values()) <= {machine.iommu}
    assert set(tree.group_types) == {one.group for one in machine.devices if one.group is not None}
    assert not tree.unread


@given(machines(), st.integers(0, 99))
def test_the_order_of_folders_changes_nothing(machine: Machine, seed: int) -> None:
    listed = os.listdir

    def shuffled(path: Any) -> list[str]:
        names = listed(path)
        random.Random(seed).shuffle(names)
        return names

    with on_disk(machine):
        tree = read(machine)
        with mock.patch.object(os, "listdir", shuffled):
            again = read(machine)
    assert again == tree
    assert topology(again) == topology(tree)


@given(machines())
def test_a_live_machine_and_its_capture_are_read_alike(machine: Machine) -> None:
    class Live(Host):
        @property
        def captured(self) -> bool:
            return False

    with on_disk(machine):
        assert sysfs.read(Live(str(machine.folder))) == read(machine)


def is_less(less: Any, more: Any) -> bool:
    """Whether a value says nothing that the other one does not say."""
    if isinstance(less, (Absent, Unreadable)) or less is None:
        return True
    if isinstance(less, tuple):
        return not less or (isinstance(more, tuple) and len(less) <= len(more))
    return bool(less == more)


def never_invents(less: Tree, more: Tree) -> None:
    """Each function of the first tree is one of the second, with the same values or fewer."""
    assert set(less.functions) <= set(more.functions)
    for one in less:
        full = more.functions[one.address]
        for name in ("vendor", "device", "class_code", "subsystem_vendor", "subsystem_device", "revision"):
            assert getattr(one, name) == getattr(full, name)
        assert (one.parent, one.root_bus) == (full.parent, full.root_bus)
        for name in (
            "numa_node",
            "iommu_group",
            "driver",
            "driver_override",
            "secondary_bus",
            "subordinate_bus",
            "physfn",
        ):
            assert is_less(getattr(one, name), getattr(full, name))
        for name in ("speed", "speed_max", "width", "width_max"):
            assert is_less(getattr(one.link, name), getattr(full.link, name))
        for reader in (capabilities.acs, capabilities.ats, capabilities.device_serial, capabilities.total_vfs):
            assert isinstance(reader(one.config), Unreadable) or reader(one.config) == reader(full.config)
        assert is_less(one.serial, full.serial)
        assert one.bars == full.bars or "bars" in one.unread
        assert set(one.rdma) <= set(full.rdma)
        assert set(one.disks) <= set(full.disks)
        nets_fit(one, full)
        sriov_fits(one.sriov, full.sriov)
        place, whole = less.port(one).split("/"), more.port(full).split("/")
        nothing_tells = full.is_vf and not one.config.data and "physfn" not in one.unread
        assert place == whole or "?" in less.port(one) or nothing_tells


def nets_fit(one: Function, full: Function) -> None:
    known = {net.name: net for net in full.netdevs}
    for net in one.netdevs:
        for name in ("mac", "mtu", "operstate", "port_name", "switch_id"):
            assert is_less(getattr(net, name), getattr(known[net.name], name))


def sriov_fits(less: Any, more: Any) -> None:
    if isinstance(less, Sriov):
        for name in ("total", "enabled", "vfs"):
            assert getattr(less, name) == getattr(more, name)
        for name in ("autoprobe", "offset", "stride", "vf_device", "register"):
            assert is_less(getattr(less, name), getattr(more, name))


@settings(max_examples=150)
@given(machines(), st.randoms(use_true_random=False), st.sampled_from([0.01, 0.1, 0.4]))
def test_what_is_taken_away_is_never_made_up_for(machine: Machine, chance: random.Random, share: float) -> None:
    with on_disk(machine):
        full = read(machine)
        everything = sorted(path for path in machine.at("/sys").rglob("*") if path.is_symlink() or path.is_file())
        for path in everything:
            if chance.random() < share:
                path.unlink()
        less = read(machine)
        there = {one for one in full.functions if machine.at(f"/sys/bus/pci/devices/{one}").is_symlink()}
        never_invents(less, full)
    assert set(less.functions) | set(less.unread) == there or not there


class Refusing(Host):
    """A host that refuses some of what is asked."""

    chance = random.Random(0)
    share = 0.0

    def refused(self, path: str) -> bool:
        return path != sysfs.DEVICES and self.chance.random() < self.share

    def read_bytes(self, path: str, size: int = 4096, start: int = 0) -> Any:
        return Unreadable(f"{path}: refused") if self.refused(path) else super().read_bytes(path, size, start)

    def link(self, path: str) -> Any:
        return Unreadable(f"{path}: refused") if self.refused(path) else super().link(path)

    def names(self, path: str) -> Any:
        return Unreadable(f"{path}: refused") if self.refused(path) else super().names(path)


@settings(max_examples=150)
@given(machines(), st.integers(0, 9999), st.sampled_from([0.02, 0.2, 0.6]))
def test_what_is_refused_is_unknown(machine: Machine, seed: int, share: float) -> None:
    with on_disk(machine):
        full = read(machine)
        host = Refusing(str(machine.folder))
        host.chance, host.share = random.Random(seed), share
        less = sysfs.read(host)
    never_invents(less, full)
    assert set(less.functions) | set(less.unread) == set(full.functions)
    for one in less:
        if one.netdevs != full.functions[one.address].netdevs:
            assert one.unread.get("netdevs") or any(
                isinstance(getattr(net, name), Unreadable) or net.master == ""
                for net in one.netdevs
                for name in ("mac", "mtu", "operstate", "port_name", "switch_id")
            )


@given(machines())
def test_every_device_can_be_selected_by_what_is_shown_of_it(machine: Machine) -> None:
    with on_disk(machine):
        tree = read(machine)
    for one in tree:
        for name, value in (("address", str(one.address)), ("port", tree.port(one))):
            asked = selector("s", {name: value})
            assert one in matches(asked, tree)
            if name == "address":
                assert chosen("s", asked, tree, 1) == (one,)
        for net in one.ports:
            assert matches(selector("s", {"netdev": net.name}), tree) == (one,)
        kept = identity(one, tree)
        assert differences(kept, one, tree) == []
    assert len({tree.port(one) for one in tree if not one.is_vf}) == len([one for one in tree if not one.is_vf])


conditions = st.fixed_dictionaries(
    {},
    optional={
        "vendor": st.sampled_from(["8086", "15b3", "1b36"]),
        "class": st.sampled_from(["0200", "010802", "0604"]),
        "numa_node": st.integers(0, 3),
        "serial": st.sampled_from(["S1", "94-6d-ae-ff-fe-12-34-56"]),
        "netdev": st.sampled_from(["eth1", "eth2"]),
    },
)


def outcome(wanted: Selector, tree: Tree, expect: int | None) -> Any:
    try:
        return chosen("s", wanted, tree, expect)
    except GpudirectError as error:
        return error


@settings(max_examples=100)
@given(machines(), conditions, st.one_of(st.none(), conditions), st.one_of(st.none(), st.integers(0, 3)))
def test_a_selector_is_met_in_number_and_kind_or_refused(
    machine: Machine, own: Any, pfs: Any, expect: int | None
) -> None:
    asked = {**own, **({"vfs_of": pfs} if pfs else {})}
    if not asked:
        return
    with on_disk(machine):
        tree = read(machine)
    wanted = selector("s", asked)
    found = outcome(wanted, tree, expect)
    if isinstance(found, GpudirectError):
        assert all(str(problem).startswith("s") and problem.advice for problem in found.problems)
        number = len(matches(wanted, tree))
        assert isinstance(found, UnreadableState) or number != expect or (expect is None and number == 0)
        return
    assert found == matches(wanted, tree)
    assert len(found) == expect or (expect is None and found)
    for one in found:
        assert one.is_vf == (bool(pfs) or (one.is_vf and "netdev" in own))
        assert own.get("vendor") in (None, f"{one.vendor:04x}")
        assert f"{one.class_code:06x}".startswith(own.get("class", ""))
        assert own.get("numa_node") in (None, one.numa_node)
