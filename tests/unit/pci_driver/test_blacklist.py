"""Modules that must not be loaded: for a device, by name, as a dependency; and those that are loaded already."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import (
    ApplyFailed,
    HostRefused,
    VerificationFailed,
)

from tests.fixtures.driver_hosts import NVMES, VELA, built, devices, look, paths, run, settle
from tests.fixtures.fake_drivers import FakeDrivers, Module, catalog


@pytest.fixture
def server(tmp_path: Path) -> FakeDrivers:
    return built(tmp_path / "root", "vela")


@pytest.fixture
def rack(tmp_path: Path) -> FakeDrivers:
    return built(tmp_path / "root")


def test_a_list_alone_needs_no_devices(server: FakeDrivers) -> None:
    found = server.disk()
    intent = {"pci_driver_blacklist": ["mlx5-core"]}
    report = run(intent, server)
    assert "pci_driver[/etc/modprobe.d/gpudirect.conf]" in paths(report)
    assert not server.exists("/etc/udev/rules.d/10-gpudirect.rules")
    assert {entry.path for entry in report.left.awaiting_reboot} == {"pci_driver.module[mlx5_core]"}
    server.boot()
    assert "mlx5_core" not in server.loaded
    assert look(intent, server).plan.empty
    settle({}, server)
    assert server.disk() == found


def test_images_have_the_settings_of_modprobe(server: FakeDrivers) -> None:
    run(VELA, server)
    for kernel in server.kernels():
        assert "install nouveau /bin/false" in server.image(kernel).files["/etc/modprobe.d/gpudirect.conf"]


def test_dracut_takes_them_along_too(tmp_path: Path) -> None:
    host = built(tmp_path / "root", "vela", like="rhel_9")
    run(VELA, host)
    for kernel in host.kernels():
        assert "install nouveau /bin/false" in host.image(kernel).files["/etc/modprobe.d/gpudirect.conf"]
    host.boot()
    assert not {"nouveau", "nvidia"} & set(host.loaded)


def test_what_is_on_top_goes_first_and_comes_back(server: FakeDrivers) -> None:
    for name in ("nvidia_drm", "nvidia_uvm"):
        server.run(["modprobe", name])
    server.acts.clear()
    report = run(VELA, server)
    assert report.verified
    unloaded = [act.split()[1] for act in server.acts if act.startswith("rmmod")]
    assert unloaded.index("nvidia_drm") < unloaded.index("nvidia_modeset") < unloaded.index("nvidia")
    assert unloaded.index("nvidia_uvm") < unloaded.index("nvidia")
    run({}, server)
    assert {"nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nouveau"} <= set(server.loaded)
    assert not server.owned()


def test_what_is_in_use_waits_for_a_boot(server: FakeDrivers) -> None:
    server.loaded["nouveau"] = 2
    server._tell_modules()
    report = run(VELA, server)
    (waiting,) = report.left.awaiting_reboot
    assert waiting.path == "pci_driver.module[nouveau]"
    assert waiting.why == "it is in use (2 times); the next boot does not load it"
    with server.only_read():
        assert not run(VELA, server).changed
    server.boot()
    assert look(VELA, server).plan.empty


def test_what_is_below_something_else_waits_for_a_boot(server: FakeDrivers) -> None:
    server.modules = catalog(Module("gdrdrv", (), ("nvidia",)))
    server.run(["modprobe", "gdrdrv"])
    report = run(VELA, server)
    (waiting,) = report.left.awaiting_reboot
    assert waiting.why.startswith("gdrdrv needs it")


def test_what_is_loaded_again_after_its_boot_is_a_failure_by_name(server: FakeDrivers) -> None:
    server.loaded["nouveau"] = 1
    server._tell_modules()
    run(VELA, server)
    server.boot()
    server.loaded["nouveau"] = 1
    server._tell_modules()
    with pytest.raises(VerificationFailed, match=r"pci_driver.module\[nouveau\]: was written before the last boot"):
        run(VELA, server)


def test_a_module_that_is_taken_up_meanwhile_is_told(server: FakeDrivers) -> None:
    real = server._rmmod
    server._rmmod = lambda argv: server.loaded.update(nouveau=1) or real(argv)  # type: ignore[method-assign,func-returns-value]
    with pytest.raises(ApplyFailed, match="cannot be unloaded"):
        run(VELA, server)


def test_what_is_part_of_the_kernel_is_noted(tmp_path: Path) -> None:
    host = built(tmp_path / "root", modules=catalog(Module("simpledrm", builtin=True)))
    report = run({**NVMES, "pci_driver_blacklist": ["simpledrm"]}, host)
    assert any("simpledrm is part of the kernel" in note for note in report.left.notes)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nvme", "nvme cannot be done without: it is needed by 0000:01:00.0: nvme0n1p2 is mounted at /"),
        ("nvme-core", "nvme_core cannot be done without"),
        ("virtio_pci", "virtio_pci cannot be done without: it is needed by 0000:00:03.0: enp0s3: it carries"),
        ("ext4", "ext4 cannot be done without: file systems of type ext4 are mounted"),
    ],
)
def test_what_the_host_needs_is_refused(server: FakeDrivers, name: str, said: str) -> None:
    before = server.disk()
    with pytest.raises(HostRefused) as raised, server.only_read():
        run({"pci_driver_blacklist": [name]}, server)
    assert said in str(raised.value)
    assert server.disk() == before


def test_data_drives_may_lose_their_driver_only_without_the_boot_drive(rack: FakeDrivers) -> None:
    """Nothing of this host is on NVMe but what guests get."""
    assert run({**NVMES, "pci_driver_blacklist": ["nvme"]}, rack).verified
    assert "nvme" not in rack.loaded
    rack.boot()
    assert "nvme" not in rack.loaded
    settle({}, rack)
    rack.boot()
    assert rack.drivers()["0000:23:00.0"] == "nvme"


def test_none_is_none_also_for_gpus(server: FakeDrivers) -> None:
    report = run({**VELA, "pci_driver_blacklist": []}, server)
    assert report.verified
    assert not server.exists("/etc/modprobe.d/gpudirect.conf")
    assert "nvidia" in server.loaded


def test_the_default_leaves_the_driver_that_an_entry_wants(server: FakeDrivers) -> None:
    gpus = {"name": "gpu", "select": {"vendor": "10de", "class": "0302"}, "driver": "nvidia"}
    rest = [entry for entry in VELA["pci_driver_devices"] if entry["name"] != "gpu"]
    run(devices(gpus, *rest), server)
    text = server.text("/etc/modprobe.d/gpudirect.conf")
    assert "blacklist nouveau" in text
    assert "blacklist nvidia\n" not in text


def test_the_order_of_the_list_does_not_matter(tmp_path: Path) -> None:
    texts = set()
    for number, names in enumerate((["nouveau", "nvidia"], ["nvidia", "nouveau", "nvidia-drm"])):
        host = built(tmp_path / str(number), "vela")
        run({**VELA, "pci_driver_blacklist": names}, host)
        texts.add(host.text("/etc/modprobe.d/gpudirect.conf"))
    assert len(texts) == 1
