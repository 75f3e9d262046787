"""The texts of the early part, as udev, the shell and modprobe read them; and what the inventory may say."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import pci_driver
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import IntentError
from ansible_collections.vela.gpudirect.plugins.module_utils.early import files, images, modules
from ansible_collections.vela.gpudirect.plugins.module_utils.early.files import Guard

from tests.fixtures import fake_udev
from tests.fixtures.driver_hosts import BOTH, NVMES, VELA, built, devices, run
from tests.fixtures.fake_drivers import FakeDrivers

GPU = Guard("0000:22:00.0", ("pci0000:20", "0000:20:00.0", "0000:21:01.0", "0000:22:00.0"), 0x10DE, 0x20B2, 0x10DE, 0x1463, "vfio-pci")  # fmt: skip
ALONE = Guard("10000:00:05.0", ("pci10000:00", "10000:00:05.0"), 0x1B36, 5, 0x1AF4, 0x1100, "mlx5_vfio_pci")


def test_a_device_is_claimed_by_everything_that_tells_who_it_is() -> None:
    assert GPU.claim == (
        'ACTION=="add", SUBSYSTEM=="pci", ATTR{[pci/0000:22:00.0]driver_override}!="vfio-pci", '
        'ATTR{[pci/0000:22:00.0]vendor}=="0x10de", ATTR{[pci/0000:22:00.0]device}=="0x20b2", '
        'ATTR{[pci/0000:22:00.0]subsystem_vendor}=="0x10de", ATTR{[pci/0000:22:00.0]subsystem_device}=="0x1463", '
        'TEST=="[pci/0000:20:00.0]0000:21:01.0/0000:22:00.0/vendor", '
        'ATTR{[pci/0000:22:00.0]driver_override}="vfio-pci"'
    )
    assert GPU.rule == (
        'ACTION=="add", SUBSYSTEM=="pci", KERNEL=="0000:22:00.0", '
        'DEVPATH=="*/pci0000:20/0000:20:00.0/0000:21:01.0/0000:22:00.0", ATTR{vendor}=="0x10de", '
        'ATTR{device}=="0x20b2", ATTR{subsystem_vendor}=="0x10de", ATTR{subsystem_device}=="0x1463", '
        'ATTR{driver_override}="vfio-pci", ATTR{subsystem/drivers_probe}="$kernel", RUN{builtin}+="kmod load vfio_pci"'
    )


def test_a_device_on_a_root_bus_has_no_bridge_to_be_looked_below() -> None:
    assert "TEST" not in ALONE.claim
    assert 'DEVPATH=="*/pci10000:00/10000:00:05.0"' in ALONE.rule
    assert 'RUN{builtin}+="kmod load mlx5_vfio_pci"' in ALONE.rule


def test_the_order_of_devices_does_not_matter() -> None:
    texts = {files.rules_text(order) for order in itertools.permutations([GPU, ALONE])}
    assert len(texts) == 1
    lines = [line for line in texts.pop().splitlines() if not line.startswith("#")]
    assert lines == [GPU.claim, ALONE.claim, GPU.rule, ALONE.rule]
    assert all(fake_udev.tokens(line) for line in lines)


def test_nothing_wanted_is_no_file() -> None:
    for builder in ("initramfs-tools", "dracut", ""):
        assert files.texts(builder, [], []) == {}
    assert files.fingerprint({}) == ""


def test_each_builder_has_its_files() -> None:
    tools, dracut = (files.texts(one, [GPU], ["nouveau"]) for one in ("initramfs-tools", "dracut"))
    assert set(tools) == {files.RULES, files.BLACKLIST, files.HOOK}
    assert set(dracut) == {files.RULES, files.BLACKLIST, files.DRACUT}
    assert 'add_drivers+=" vfio_iommu_type1 vfio_pci "\n' in dracut[files.DRACUT]
    assert f'install_items+=" {files.BLACKLIST} {files.RULES} "\n' in dracut[files.DRACUT]
    assert set(files.texts("initramfs-tools", [], ["nouveau"])) == {files.BLACKLIST}
    assert set(files.texts("dracut", [], ["nouveau"])) == {files.BLACKLIST, files.DRACUT}
    assert "add_drivers" not in files.texts("dracut", [], ["nouveau"])[files.DRACUT]


def test_fingerprints_tell_contents_apart() -> None:
    ways = itertools.product(("initramfs-tools", "dracut"), ([GPU], [ALONE], [GPU, ALONE]), ([], ["x"]))
    texts = [files.texts(builder, guards, bar) for builder, guards, bar in ways]
    assert len({files.fingerprint(one) for one in texts}) == len(texts)


def test_followers_of_a_module_are_barred_with_it() -> None:
    assert files.with_followers(["nvidia", "nova-core"]) == (
        "nova_core", "nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_peermem", "nvidia_uvm",
    )  # fmt: skip


def test_the_devices_own_line_alone_loses_a_race(tmp_path: Path) -> None:
    """Why a device is claimed at every device's event: the module that one needs takes the others first."""
    host = built(tmp_path / "root")
    run(BOTH, host)
    for kernel in host.kernels():
        lines = host.text(files.RULES).splitlines(keepends=True)
        host.put(files.RULES, "".join(line for line in lines if "[pci/" not in line))
        host.run(["update-initramfs", "-u", "-k", kernel])
    seen: set[str] = set()
    for seed in range(12):
        host.seed = seed
        host.boot()
        seen |= {driver for address in ("0000:23:00.0", "0000:43:00.0") for driver in host.seen[address]}
    assert seen == {"nvme", "vfio-pci"}


# What is at the address at a boot ---------------------------------------------------------


def booted_with(host: FakeDrivers, **changes: Any) -> str:
    """The driver of the device at the first drive's address when another machine is booted."""
    assert host.at_boot is not None
    for name, value in changes.items():
        setattr(host.at_boot[0]["0000:23:00.0"], name, value)
    host.boot()
    return host.drivers()["0000:23:00.0"]


@pytest.fixture
def settled(tmp_path: Path) -> FakeDrivers:
    host = built(tmp_path / "root")
    run(NVMES, host)
    return host


@pytest.mark.parametrize(
    "changes",
    [{"vendor": 0x144D}, {"device": 0x0011}, {"subsystem": (0x1AF4, 0x1101)}, {"subsystem": (0x1AF5, 0x1100)}],
)
def test_another_device_at_the_address_is_not_taken(settled: FakeDrivers, changes: dict[str, Any]) -> None:
    assert booted_with(settled, **changes) == "nvme"
    assert "0000:23:00.0" not in settled.overrides()


def test_the_same_device_behind_another_port_is_not_taken(settled: FakeDrivers) -> None:
    assert settled.at_boot is not None
    machine = settled.at_boot[0]
    drive = machine["0000:23:00.0"]
    above = machine["0000:22:00.0"]
    assert drive.above is above
    above.slot = "04.0"  # the port is another one, and the bus below it got the same number
    machine._number()
    moved = drive.address
    settled.boot()
    assert settled.drivers()[moved] == "nvme"


# Modules ---------------------------------------------------------------------------------


def test_modules_are_read_as_the_kernel_tells_them() -> None:
    text = (
        "nvidia_uvm 4718592 0 - Live 0x0 (POE)\nnvidia 56823808 30 nvidia_uvm,nvidia_modeset, Live 0x0 (POE)\n"
        "ext4 1 2 - Live 0x0\nstuck 1 1 [permanent], Live 0x0\nshort 1\n"
    )
    loaded = modules.parse_loaded(text)
    assert loaded["nvidia"] == modules.Loaded(30, ("nvidia_uvm", "nvidia_modeset"))
    assert loaded["nvidia"].others == 28
    assert loaded["nvidia_uvm"].others == 0
    assert loaded["stuck"].others == 1
    assert "short" not in loaded
    assert modules.Modules(loaded).beneath(["nvidia_uvm"]) == {"nvidia_uvm", "nvidia"}


def test_modules_are_found_however_they_are_spelled(settled: FakeDrivers) -> None:
    kernel = settled.kernels()[0]
    settled.put(f"/lib/modules/{kernel}/modules.dep", "kernel/a/mlx5-vfio-pci.ko.zst: kernel/b/vfio_pci_core.ko.zst\n")
    settled.put(f"/lib/modules/{kernel}/modules.builtin", "kernel/c/pci-stub.ko\n")
    found = modules.read(settled, ["mlx5_vfio_pci", "pci-stub", "vfio-pci", "pci"], [kernel])
    assert {name: kernel in kernels for name, kernels in found.lacking.items()} == {
        "mlx5_vfio_pci": False, "pci_stub": False, "vfio_pci": True, "pci": True,
    }  # fmt: skip


def test_places_of_images(tmp_path: Path) -> None:
    host = built(tmp_path / "root", like="rhel_9")
    kernel = host.kernels()[0]
    host.put("/etc/machine-id", "0a1b\n")
    host.put(f"/boot/0a1b/{kernel}/initrd", "x")
    host.put(f"/boot/initramfs-{kernel}kdump.img", "x")
    host.put("/boot/initramfs-0-rescue-0a1b.img", "x")
    found = [image.path for image in images.read(host).images if image.kernel == kernel]
    assert found == [f"/boot/initramfs-{kernel}.img", f"/boot/0a1b/{kernel}/initrd"]


# What the inventory may say --------------------------------------------------------------


@pytest.mark.parametrize(
    ("intent", "said"),
    [
        ({"pci_driver_devices": [{"select": {"vendor": "10de"}}]}, "pci_driver_devices[0].name: is missing"),
        ({"pci_driver_devices": [{"name": "a"}]}, "pci_driver_devices[0].select: is missing"),
        (devices(("a", {})), "pci_driver_devices[0].select: selects nothing in particular"),
        (devices(("a", {"vendor": "10de"}), ("a", {"vendor": "15b3"})), "pci_driver_devices[1].name: has the name of pci_driver_devices[0]"),
        (devices(("a", {"address": "0000:82.0.0"})), "Did you mean 0000:82:00.0?"),
        (devices(("a", {"netdev": "ens1"})), "pci_driver_devices[0].select.netdev: names what goes away with the driver"),
        (devices({"name": "a", "select": {"vendor": "10de"}, "driver": "vfio pci"}), "pci_driver_devices[0].driver: is not a name"),
        (devices({"name": "a", "select": {"vendor": "10de"}, "expect": 0}), "pci_driver_devices[0].expect: is too small"),
        (devices({"name": "a", "select": {"vendor": "10de"}, "drivr": "x"}), "Did you mean driver?"),
        (devices(("a", {"vendor": "10de"}), pci_driver_blacklist=["vfio_pci"]), "pci_driver_blacklist[0]: vfio_pci is what pci_driver_devices[0] needs"),
        (devices(("a", {"vendor": "10de"}), pci_driver_blacklist=["nouveau", "vfio"]), "pci_driver_blacklist[1]: vfio is what"),
        (devices({"name": "a", "select": {"vendor": "10de"}, "driver": "nvidia-uvm"}, pci_driver_blacklist=["nvidia"]), "nvidia_uvm is what"),
        ({"pci_driver_blacklist": ["../x"]}, "pci_driver_blacklist[0]: is not a name"),
        ({"pci_driver_blacklist": "nouveau"}, "pci_driver_blacklist: has the wrong type"),
        ({"sriov_ports": [{"select": {"vendor": "15b3"}}]}, "sriov_ports[0].vfs: is missing"),
        ({"gpudirect_replaced": ["3b"]}, "gpudirect_replaced[0]: is not a PCI address"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant(intent: dict[str, Any], said: str) -> None:
    with pytest.raises(IntentError) as raised:
        pci_driver.parse(intent)
    assert said in str(raised.value)


def test_all_mistakes_come_at_once() -> None:
    intent = devices(("a", {"vendor": "10d"}), ("b", {"netdev": "x"}), pci_driver_blacklist=["a b"], sriov_ports=[{"vfs": 1}])  # fmt: skip
    with pytest.raises(IntentError) as raised:
        pci_driver.parse(intent)
    assert len(raised.value.problems) >= 3


def test_vfs_may_be_selected_by_the_name_of_their_ports_network_device() -> None:
    assert pci_driver.parse(devices(("vf", {"vfs_of": {"netdev": "ens1"}}))).entries


def test_nothing_asked_for_is_nothing_wanted() -> None:
    nothing = pci_driver.parse({})
    assert nothing.empty
    ports = [{"select": {"vendor": "15b3"}, "vfs": 2}]
    others = {"sriov_ports": ports, "kernel_iommu": "passthrough", "gpudirect_replaced": ["3b:00.0"]}
    for params in ({"pci_driver_blacklist": []}, others):
        assert pci_driver.parse(params) == nothing
    assert not pci_driver.parse(VELA).empty
