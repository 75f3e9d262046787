"""What systemd is told: when the boot run is due, what waits for it, and what never does."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import systemd
from ansible_collections.vela.gpudirect.plugins.module_utils.at_boot import command_line, units
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import UnreadableState

from tests.fixtures.fake_host import FakeHost

TEXTS = units.render(units.Settings(300, 60, "15min", "/var/lib/node_exporter/gpudirect.prom"))


def settings(unit: str) -> dict[str, list[str]]:
    """The words of each setting of a unit."""
    found: dict[str, list[str]] = {}
    for line in TEXTS[unit].replace("\\\n", " ").splitlines():
        name, sign, words = line.partition("=")
        if sign:
            found.setdefault(name, []).extend(words.split())
    return found


def test_guests_wait_for_the_boot_run_and_logins_and_the_network_do_not() -> None:
    boot = settings(units.BOOT)
    assert {"libvirtd.service", "virtqemud.service", "libvirt-guests.service", units.READY} <= set(boot["Before"])
    for word in (*boot["Before"], *boot["After"]):
        assert not word.startswith(("network", "ssh", "systemd-networkd", "NetworkManager", "multi-user", "basic"))
    # Of these the default is right: after sysinit.target, which brings file systems, modules and udev's first round.
    assert "DefaultDependencies" not in boot


def test_the_boot_run_is_bounded_and_its_end_stays_known() -> None:
    boot = settings(units.BOOT)
    assert (boot["Type"], boot["RemainAfterExit"], boot["TimeoutStartSec"]) == (["oneshot"], ["yes"], ["300"])
    assert boot["WantedBy"] == ["multi-user.target"]
    assert settings(units.WATCH)["TimeoutStartSec"] == ["300"]


def test_ready_is_reached_only_through_a_boot_run_that_succeeded() -> None:
    assert settings(units.READY) == {
        "Description": ["This", "host", "is", "ready", "for", "its", "GPUDirect", "guests"],
        "Requires": [units.BOOT],
        "After": [units.BOOT],
    }
    assert settings(units.BOOT)["Wants"] == [units.READY]


def test_guests_are_started_after_libvirt_and_only_on_a_host_that_is_ready() -> None:
    texts = units.render(units.Settings(300, 60, "", "", guests=True))
    starter, boot = texts[units.STARTER].splitlines(), texts[units.BOOT].splitlines()
    assert f"Requires={units.READY}" in starter
    (after,) = [line for line in starter if line.startswith("After=")]
    assert {units.READY, "libvirtd.service", "virtqemud.service"} <= set(after.partition("=")[2].split())
    assert f"Wants={units.READY} {units.STARTER}" in boot  # a boot run that is run again starts them again
    (command,) = [line for line in starter if line.startswith("ExecStart=")]
    options = command_line.arguments().parse_args(command.split()[3:])
    assert (options.verb, options.device_timeout_s) == ("guests", 60)


def test_units_call_the_command_with_words_that_it_knows() -> None:
    for unit, verb in ((units.BOOT, "boot"), (units.WATCH, "drift")):
        python, isolated, engine, *words = settings(unit)["ExecStart"]
        assert (python, isolated, engine) == ("/usr/bin/python3", "-I", units.ENGINE)
        options = command_line.arguments().parse_args(words)
        assert options.verb == verb
    boot = command_line.arguments().parse_args(settings(units.BOOT)["ExecStart"][3:])
    assert (boot.allow, boot.device_timeout_s) == ("link", 60)


def test_the_watch_cannot_write_kernel_settings_and_begins_after_the_boot_run() -> None:
    watch = settings(units.WATCH)
    assert watch["ProtectKernelTunables"] == ["yes"]
    assert watch["After"] == [units.BOOT]
    assert watch["ExecStart"][-2:] == ["--metrics", "/var/lib/node_exporter/gpudirect.prom"]


def test_a_watch_that_mends_can_write_what_lies_below_devices_and_no_other_setting() -> None:
    text = units.render(units.Settings(300, 60, "15min", "", mends=True))[units.WATCH]
    lines = text.splitlines()
    assert f"ExecStart=/usr/bin/python3 -I {units.ENGINE} drift --mend" in lines
    assert {"ReadOnlyPaths=/sys /proc/sys", "ReadWritePaths=/sys/devices"} <= set(lines)
    assert "ProtectKernelTunables" not in text


def test_without_a_watch_there_are_two_units() -> None:
    assert list(units.render(units.Settings(300, 60, "", ""))) == [units.BOOT, units.READY]
    assert {*TEXTS, units.STARTER} == set(units.UNITS)
    assert all(text.startswith(units.MARK) for text in TEXTS.values())


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="this machine has no systemd-analyze")
def test_systemd_understands_the_units(tmp_path: Path) -> None:
    for name, text in {**TEXTS, **units.render(units.Settings(300, 60, "", "", guests=True))}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    def complaints() -> str:
        names = [str(tmp_path / name) for name in TEXTS]
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", *names], capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr + ("" if done.returncode == 0 else f"status {done.returncode}")

    ours = [line for line in complaints().splitlines() if "gpudirect" in line]
    assert ours == []
    (tmp_path / units.TIMER).write_text(TEXTS[units.TIMER].replace("=15min", "=soon"), encoding="utf-8")
    assert "gpudirect-drift.timer" in complaints()


# What systemd says -------------------------------------------------------------------------


def test_blocks_of_systemctl_show_are_units() -> None:
    text = (
        "Id=a.service\nLoadState=loaded\nActiveState=active\nSubState=exited\nNeedDaemonReload=yes\n\n"
        "NeedDaemonReload=no\nActiveState=inactive\nSubState=dead\nLoadState=not-found\nId=b.timer\n\n"
        "LoadState=loaded\n"
    )
    assert systemd.parse_show(text) == {
        "a.service": systemd.Unit("loaded", "active", "exited", True),
        "b.timer": systemd.Unit("not-found", "inactive", "dead", False),
    }


@pytest.mark.parametrize(("sub", "waits"), [("waiting", True), ("running", True), ("elapsed", False)])
def test_a_timer_that_will_never_elapse_again_does_not_count_as_running(sub: str, waits: bool) -> None:
    assert systemd.Unit("loaded", "active", sub, False).waits is waits
    assert systemd.Unit("loaded", "inactive", sub, False).waits is False


def test_a_host_without_systemctl_and_an_odd_answer_are_told(debian: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(debian.systemd), "systemctl", lambda *arguments: (0, "Id=other\n", ""))
    with pytest.raises(UnreadableState, match="systemctl show tells of no unit"):
        systemd.read(debian, units.UNITS)
    debian.path("/usr/bin/systemctl").unlink()
    with pytest.raises(UnreadableState, match="systemd: does not tell the state of units: the host has no systemctl"):
        systemd.read(debian, units.UNITS)
