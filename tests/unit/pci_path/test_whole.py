"""Registers on paths together with everything else: rounds, boots, the watch, undo."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import pci_path, site
from ansible_collections.vela.gpudirect.plugins.module_utils.at_boot import drift
from ansible_collections.vela.gpudirect.plugins.module_utils.at_boot.command_line import main
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import ABSENT
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import HostRefused

from tests.fixtures import driver_hosts, fake_registers
from tests.fixtures.fake_drivers import FakeDrivers
from tests.fixtures.path_hosts import LOCKDOWN, requests, words
from tests.fixtures.runs import changed, run, settle, waiting

NICS = {"vendor": "15b3", "device": "101d"}
INTENT = {
    "kernel_iommu": "passthrough",
    "pci_path_acs": "auto",
    "pci_path_max_read_request": 4096,
    "sriov_ports": [{"select": NICS, "vfs": 2, "autoprobe": False}],
    "pci_driver_devices": [
        {"name": "gpu", "select": {"vendor": "10de", "class": "0302"}, "expect": 2, "driver": "vfio-pci"},
        {"name": "vf", "select": {"vfs_of": NICS}, "driver": "vfio-pci"},
    ],
    "pci_driver_blacklist": ["nouveau", "nvidia"],
}
PORT, NIC = "0000:32:01.0", "0000:34:00.0"
METRICS = "/var/lib/node_exporter/gpudirect.prom"


@pytest.fixture
def server(tmp_path: Path) -> FakeDrivers:
    host = driver_hosts.built(tmp_path / "host", "vela")
    host.put(LOCKDOWN, "[none] integrity\n")
    return host


def direct(host: FakeDrivers) -> list[str]:
    """The ports that let translated requests go directly."""
    return [address for address, word in words(host).items() if word == 0x5D]


def test_all_of_it_settles_with_one_boot_and_goes_again(server: FakeDrivers) -> None:
    disk, as_found = server.disk(), words(server)
    assert settle(INTENT, server) == 1
    assert direct(server) == [PORT, "0000:52:01.0"]
    assert "config_acs=" in server.line()
    assert not changed(run(INTENT, server, check=True))
    settle({"host_boot_enabled": False}, server)
    assert words(server) == as_found
    assert not server.owned()
    assert server.disk().keys() == disk.keys()


def test_a_boot_brings_back_registers_that_no_argument_brings(server: FakeDrivers) -> None:
    intent = {**INTENT, "pci_path_acs": "register"}
    settle(intent, server)
    server.boot()
    assert not direct(server)
    main(["boot", "--allow", "link"], server)
    assert direct(server) == [PORT, "0000:52:01.0"]
    assert requests(server)[NIC] == 4096
    assert not changed(run(intent, server, check=True))
    assert not waiting(run(intent, server, check=True))


def test_the_watch_puts_right_what_a_reset_undid_and_says_so(
    server: FakeDrivers, capsys: pytest.CaptureFixture[str]
) -> None:
    settle(INTENT, server)
    server.put(METRICS, "")
    fake_registers.reset(server.machine, PORT)
    assert main(["drift", "--mend", "--metrics", METRICS], server) == 0
    assert direct(server) == [PORT, "0000:52:01.0"]
    assert f"put right: pci_path[{PORT}].acs" in capsys.readouterr().out
    assert f'gpudirect_mended{{resource="pci_path",path="pci_path[{PORT}].acs"}} 1' in server.text(METRICS)
    assert main(["drift", "--mend", "--metrics", METRICS], server) == 0
    assert "gpudirect_mended{" not in server.text(METRICS)


def test_a_watch_that_may_not_mend_only_tells(server: FakeDrivers) -> None:
    settle(INTENT, server)
    fake_registers.reset(server.machine, PORT)
    for verb in ("drift", "plan"):
        with server.only_read():
            assert main([verb], server) == 1
    assert PORT not in direct(server)


def test_the_watch_mends_registers_and_nothing_else(server: FakeDrivers) -> None:
    settle(INTENT, server)
    server.nics[NIC].mtu = 1400
    server.machine.override("0000:33:00.0", "")
    fake_registers.reset(server.machine, PORT)
    server.revive()
    main(["drift", "--mend"], server)
    acts = [act for act in server.acts if "owned.json" not in act]
    assert acts == [f"set /sys/bus/pci/devices/{PORT}/config at 0x156 to 0x005d"]
    assert [one.SCHEMA.name for one in site.RESOURCES if drift.mends(one)] == ["pci_path"]


def test_a_watch_that_cannot_mend_tells_why(server: FakeDrivers, capsys: pytest.CaptureFixture[str]) -> None:
    settle(INTENT, server)
    fake_registers.reset(server.machine, PORT)
    server.put(LOCKDOWN, "none [integrity]\n")
    assert main(["drift", "--mend"], server) == 1
    assert "the kernel is locked down (integrity)" in capsys.readouterr().out


def test_a_boot_keeps_what_is_on_record_and_leaves_undo_to_a_run(server: FakeDrivers) -> None:
    settle(INTENT, server)
    server.boot()
    main(["boot", "--allow", "link"], server)
    assert direct(server) == [PORT, "0000:52:01.0"]
    with pytest.raises(HostRefused, match="no path between a GPU and a NIC"):
        run({**INTENT, "pci_path_gpus": [{"vendor": "abcd"}]}, server)
    assert direct(server) == [PORT, "0000:52:01.0"]


def test_without_an_intent_nothing_is_read(server: FakeDrivers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeDrivers, "names", lambda self, path: ABSENT)
    assert pci_path.read(server, pci_path.parse({})) == pci_path.Current()
