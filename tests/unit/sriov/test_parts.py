"""A boot goes on with the ports that can be taken, and what is not clear is never undone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import sriov
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Disruption
from ansible_collections.vela.gpudirect.plugins.module_utils.core.converge import Report, bring
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import HostRefused

from tests.fixtures.fake_sriov import FakeSriov
from tests.fixtures.sriov_hosts import FIRST, IGB, ONE, RACK, SECOND, built, ports, refused, run, settle

OTHER = {"address": SECOND}


@pytest.fixture
def host(tmp_path: Path) -> FakeSriov:
    return built(tmp_path / "root", "rack")


def boot_run(intent: dict[str, Any], host: FakeSriov) -> Report:
    """What the unit at boot does."""
    return bring(sriov, sriov.parse(intent), host, allow=Disruption.NOTHING, check=False, partial=True)


def pull(host: FakeSriov, address: str) -> None:
    """The device is not there at the next boot."""
    assert host.at_boot is not None
    machine, nics = host.at_boot
    machine.unplug(machine[address])
    del nics[address]
    host.boot()


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"select": {"netdev": "ens9"}, "vfs": 1}, "sriov_ports[0].select: matches no device"),
        ({"select": ONE, "vfs": 8}, "sriov_ports[0].vfs: 0000:24:00.0 takes fewer VFs"),
        ({"select": ONE, "vfs": 1, "vf": {0: {"mac": "52:54:00:9a:fd:51"}}}, "is that of enp0s3 too"),
        ({"select": ONE, "vfs": 1, "mtu": 9999}, "sriov_ports[0].mtu: ens1 takes no such MTU"),
    ],
)
def test_a_port_that_cannot_be_taken_stops_a_run_and_no_other_port_of_a_boot(
    host: FakeSriov, bad: dict[str, Any], said: str
) -> None:
    intent = ports(bad, {"select": OTHER, "vfs": 2})
    found = host.live()
    assert said in refused(intent, host)
    report = boot_run(intent, host)
    assert report.verified is False
    assert said in str(report.left.refused[0])
    assert host.live()[FIRST] == found[FIRST]
    assert host.live()[SECOND]["count"] == 2
    with host.only_read():
        assert boot_run(intent, host).left.refused == report.left.refused


def test_two_entries_for_one_port_leave_it_alone(host: FakeSriov) -> None:
    settle(ports({"select": ONE, "vfs": 1}), host)
    found = host.live()
    boot_run(ports({"select": IGB, "vfs": 3}, {"select": ONE, "vfs": 2}), host)
    assert host.live()[FIRST] == found[FIRST]
    assert host.live()[SECOND]["count"] == 3


def test_nothing_goes_back_while_a_selection_is_not_clear(host: FakeSriov) -> None:
    settle(ports(RACK), host)
    found = host.live()
    unclear = ports({"select": {"netdev": "ens7"}, "vfs": 1})
    with pytest.raises(HostRefused):
        run(unclear, host)
    boot_run(unclear, host)
    assert host.live() == found
    assert host.owned()


def test_a_device_that_is_away_for_a_boot_is_still_known_when_it_comes_back(host: FakeSriov) -> None:
    settle(ports(RACK), host)
    assert host.at_boot is not None
    kept = (host.at_boot[0], dict(host.at_boot[1]))
    host.at_boot = (host.machine.moved(Path(host.root)), dict(host.nics))
    host.at_boot[0].remove_vfs(host.at_boot[0][FIRST])
    host.at_boot[0].remove_vfs(host.at_boot[0][SECOND])
    for nic in host.at_boot[1].values():
        nic.vfs = []
    pull(host, FIRST)
    settle(ports(RACK), host)
    host.at_boot = kept
    kept[0][FIRST].serial = "52-54-00-ff-ff-00-00-01"
    host.boot()
    assert "the device at 0000:24:00.0 is not the one that was set up there" in refused(ports(RACK), host)


def test_what_is_away_for_good_is_forgotten_with_the_intent(host: FakeSriov) -> None:
    settle(ports(RACK), host)
    pull(host, FIRST)
    settle(ports(RACK), host)
    assert host.owned()
    run({}, host)
    assert not host.owned()
