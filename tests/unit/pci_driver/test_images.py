"""Which images are built anew: decided by what is on record, with clocks that jump, kernels that come and go, and others at work."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import ApplyFailed, HostRefused

from tests.fixtures.driver_hosts import NVMES, TESTDEVS, built, look, paths, run
from tests.fixtures.fake_drivers import FakeDrivers

YEAR_NS = 365 * 86400 * 10**9
OLD, NEW = "6.12.9-amd64", "6.12.38+deb13-amd64"
RULES, HOOK = "/etc/udev/rules.d/10-gpudirect.rules", "/etc/initramfs-tools/hooks/gpudirect"


@pytest.fixture
def host(tmp_path: Path) -> FakeDrivers:
    return built(tmp_path / "root")


def image(kernel: str) -> str:
    return f"pci_driver.image[/boot/initrd.img-{kernel}]"


def holds(host: FakeDrivers, kernel: str) -> bool:
    return any(path.endswith("10-gpudirect.rules") for path in host.image(kernel).files)


def at(host: FakeDrivers, path: str, when: int) -> None:
    """The clock said this when a file was written."""
    os.utime(host.path(path), ns=(when, when))


def mtime(host: FakeDrivers, path: str) -> int:
    return host.path(path).stat().st_mtime_ns


def touched(intent: dict[str, object], host: FakeDrivers) -> list[str]:
    return paths(look(intent, host))


# Fresh or not ----------------------------------------------------------------------------


def test_an_image_from_a_future_that_never_came_is_built_anew(host: FakeDrivers) -> None:
    """A clock that was years ahead when the kernel was installed makes no image newer than our files."""
    for kernel in (OLD, NEW):
        at(host, f"/boot/initrd.img-{kernel}", mtime(host, "/etc/os-release") + 4 * YEAR_NS)
    host.die_before(6)
    with pytest.raises(BaseException, match="before"):
        run(NVMES, host)
    host.revive()
    run(NVMES, host)
    assert holds(host, OLD)
    assert holds(host, NEW)


def test_a_kernel_that_comes_later_is_trusted_with_the_hook(host: FakeDrivers) -> None:
    run(NVMES, host)
    host.install("6.12.50-amd64")
    assert holds(host, "6.12.50-amd64")
    assert touched(NVMES, host) == []


def test_a_kernel_that_comes_later_under_a_clock_that_went_back_is_built_once_more(host: FakeDrivers) -> None:
    run(NVMES, host)
    host.install("6.12.50-amd64")
    at(host, "/boot/initrd.img-6.12.50-amd64", mtime(host, RULES) - YEAR_NS)
    assert touched(NVMES, host) == [image("6.12.50-amd64")]
    run(NVMES, host)
    assert touched(NVMES, host) == []


def test_an_image_that_somebody_built_again_is_trusted_while_our_files_were_there(host: FakeDrivers) -> None:
    run(NVMES, host)
    host.run(["update-initramfs", "-u", "-k", OLD])
    assert touched(NVMES, host) == []


def test_an_image_that_was_put_back_from_a_backup_is_built_anew(host: FakeDrivers) -> None:
    path = f"/boot/initrd.img-{OLD}"
    backup, when = host.text(path), mtime(host, path)
    run(NVMES, host)
    host.put(path, backup)
    at(host, path, when)
    assert touched(NVMES, host) == [image(OLD)]
    run(NVMES, host)
    assert holds(host, OLD)


def test_a_file_that_was_edited_is_written_again_and_what_was_built_meanwhile_too(host: FakeDrivers) -> None:
    run(NVMES, host)
    host.put(RULES, host.text(RULES).replace("0000:23:00.0", "0000:29:00.0"))
    host.run(["update-initramfs", "-u", "-k", NEW])
    assert touched(NVMES, host) == [f"pci_driver[{RULES}]", image(NEW)]
    run(NVMES, host)
    assert touched(NVMES, host) == []
    assert "0000:29:00.0" not in str(host.image(NEW).files)


def test_the_same_with_a_cut_between_the_file_and_the_image_and_a_clock_that_goes_back(host: FakeDrivers) -> None:
    run(NVMES, host)
    host.put(RULES, host.text(RULES).replace("0000:23:00.0", "0000:29:00.0"))
    host.run(["update-initramfs", "-u", "-k", NEW])
    host.die_before(3)
    with pytest.raises(BaseException, match="before update-initramfs|before write"):
        run(NVMES, host)
    host.revive()
    at(host, RULES, mtime(host, RULES) - YEAR_NS)
    run(NVMES, host)
    assert "0000:29:00.0" not in str(host.image(NEW).files)


def test_a_hook_that_is_not_executable_is_mended(host: FakeDrivers) -> None:
    run(NVMES, host)
    host.path(HOOK).chmod(0o644)
    assert touched(NVMES, host) == [f"pci_driver[{HOOK}]"]
    run(NVMES, host)
    assert host.path(HOOK).stat().st_mode & 0o777 == 0o755
    assert touched(NVMES, host) == []


def test_another_intent_builds_every_image_anew(host: FakeDrivers) -> None:
    run(NVMES, host)
    assert {image(OLD), image(NEW)} <= set(touched(TESTDEVS, host))


def test_records_of_kernels_go_with_them(host: FakeDrivers) -> None:
    run(NVMES, host)
    for number in range(5):
        host.install(f"6.13.{number}-amd64")
        run(TESTDEVS if number % 2 else NVMES, host)
        host.uninstall(f"6.13.{number}-amd64")
    run(TESTDEVS, host)
    run(NVMES, host)
    assert "6.13." not in host.text("/var/lib/gpudirect/owned.json")


def test_undo_builds_the_images_of_later_kernels_too(host: FakeDrivers) -> None:
    run(NVMES, host)
    host.install("6.12.50-amd64")
    run({}, host)
    assert not any(holds(host, kernel) for kernel in host.kernels())
    assert not host.owned()


def test_a_kernel_without_an_image_is_noted(host: FakeDrivers) -> None:
    host.path(f"/boot/initrd.img-{OLD}").unlink()
    report = run(NVMES, host)
    assert f"pci_driver: the kernel {OLD} has no initramfs image at the usual place" in report.plan.notes


def test_modules_without_a_kernel_have_no_image(host: FakeDrivers) -> None:
    host.put("/lib/modules/5.0-left/build", "")
    assert run(NVMES, host).verified


# What is there already -------------------------------------------------------------------


def test_a_file_of_somebody_else_is_put_back(host: FakeDrivers) -> None:
    host.put(RULES, "# mine\n", 0o640)
    for kernel in host.kernels():
        host.run(["update-initramfs", "-u", "-k", kernel])
    found = host.disk()
    run(NVMES, host)
    run({}, host)
    assert host.disk() == found


def test_folders_that_were_made_go_again(tmp_path: Path) -> None:
    host = built(tmp_path / "root", like="rhel_9")
    host.path("/etc/udev/rules.d").rmdir()
    found = host.disk()
    run(NVMES, host)
    run({}, host)
    assert host.disk() == found


# What would stop it ----------------------------------------------------------------------


def refused(host: FakeDrivers) -> str:
    before = host.disk()
    with pytest.raises(HostRefused) as raised, host.only_read():
        run(NVMES, host)
    assert host.disk() == before
    return str(raised.value)


@pytest.mark.parametrize("like", ["debian_13", "rhel_9"])
def test_a_full_boot_is_refused_and_nothing_was_lost(tmp_path: Path, like: str) -> None:
    host = built(tmp_path / "root", like=like)
    host.boot_free_bytes = 3 << 20
    assert "/boot: has no room for a new initramfs image (found 3 MiB" in refused(host)
    host.boot_free_bytes = 200 << 20
    host.boot_free_inodes = 1
    assert "1 inodes free" in refused(host)
    host.boot_free_inodes = 100
    assert run(NVMES, host).verified


def test_room_is_judged_by_the_largest_image(host: FakeDrivers) -> None:
    with host.path(f"/boot/initrd.img-{OLD}").open("ab") as stream:
        stream.truncate(80 << 20)
    host.boot_free_bytes = 90 << 20
    assert "wanted 92 MiB and 4 inodes" in refused(host)
    host.boot_free_bytes = 93 << 20
    assert run(NVMES, host).verified


def test_what_cannot_be_written_is_named(host: FakeDrivers) -> None:
    host.chattr = (f"/boot/initrd.img-{OLD}",)
    assert f"/boot/initrd.img-{OLD}: cannot be written: it is immutable (chattr +i)" in refused(host)
    host.chattr = ()
    host.read_only = ("/boot",)
    assert "/boot/initrd.img-6.12.38+deb13-amd64: cannot be written: its file system is mounted read-only" in refused(
        host
    )
    host.read_only = ("/etc",)
    assert f"{RULES}: cannot be written" in refused(host)


def test_updates_that_are_switched_off_are_named(host: FakeDrivers) -> None:
    host.put("/etc/initramfs-tools/update-initramfs.conf", "# x\nupdate_initramfs=yes\nupdate_initramfs=no\n")
    assert "/etc/initramfs-tools/update-initramfs.conf: switches the update of images off" in refused(host)


def test_a_host_without_a_builder_is_refused(host: FakeDrivers) -> None:
    host.path("/usr/sbin/update-initramfs").unlink()
    assert "nothing is known to build the initramfs of this host" in refused(host)


def test_dracut_beside_initramfs_tools_is_for_another_purpose(host: FakeDrivers) -> None:
    host.put("/usr/bin/dracut", "#!/bin/bash\n", 0o755)
    assert run(NVMES, host).verified
    assert not host.exists("/etc/dracut.conf.d/gpudirect.conf")


def test_a_program_that_ends_well_and_does_nothing_is_found_out(
    host: FakeDrivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Done

    monkeypatch.setattr(host, "_update_initramfs", lambda argv: Done(tuple(argv), 0, "", ""))
    with pytest.raises(ApplyFailed, match="update-initramfs ended well and did not write it"):
        run(NVMES, host)


def test_a_hook_of_somebody_else_that_fails_is_told_with_its_words(host: FakeDrivers) -> None:
    host.put("/etc/initramfs-tools/hooks/zz-broken", '#!/bin/sh\n[ "$1" = prereqs ] && { echo udev; exit 0; }\necho no disk >&2\nexit 3\n', 0o755)  # fmt: skip
    with pytest.raises(ApplyFailed, match="zz-broken failed: no disk"):
        run(NVMES, host)
    host.path("/etc/initramfs-tools/hooks/zz-broken").unlink()
    assert run(NVMES, host).verified


# Cut off in the middle of an image -------------------------------------------------------


@pytest.mark.parametrize("like", ["debian_13", "rhel_9"])
def test_a_cut_in_the_middle_of_an_image_leaves_one_that_boots(tmp_path: Path, like: str) -> None:
    host = built(tmp_path / "root", like=like)
    found = host.disk()
    counted = host.clone(tmp_path / "counted").revive()
    run(NVMES, counted)
    builds = [number for number, act in enumerate(counted.acts, 1) if act.startswith(("update-initramfs", "dracut"))]
    assert len(builds) == 2
    for number in builds:
        cut = host.clone(tmp_path / f"cut{number}").die_within(number)
        with pytest.raises(BaseException, match="half-way"):
            run(NVMES, cut)
        other = cut.clone(tmp_path / f"undo{number}").revive()
        cut.boot()
        run(NVMES, cut)
        assert {path: entry for path, entry in cut.disk().items() if "/var/lib" not in path} == {
            path: entry for path, entry in counted.disk().items() if "/var/lib" not in path
        } | {path: entry for path, entry in cut.disk().items() if path.endswith(".new")}
        run({}, other)
        left = {path for path in other.disk() if path not in found and not path.endswith(".new")}
        assert left == set()
