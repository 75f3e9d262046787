"""Guests at boot: they start after all that they need is as wanted, those alone that a boot is to start, and nothing is given up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import libvirt_guest, site
from ansible_collections.vela.gpudirect.plugins.module_utils.at_boot import intent
from ansible_collections.vela.gpudirect.plugins.module_utils.at_boot.command_line import main
from ansible_collections.vela.gpudirect.plugins.module_utils.core.owned import PATH as OWNED

from tests.fixtures.fake_libvirt import FakeGuestHost
from tests.fixtures.libvirt_hosts import PAGES, built, guests, settle, shape, with_files

TWO = {
    **guests(shape(), shape("other", autostart=False)),
    "kernel_hugepages": [{"size": "1G", "per_node": PAGES}],
}


@pytest.fixture
def host(tmp_path: Path) -> FakeGuestHost:
    host = with_files(built(tmp_path / "root"), "train", "other")
    for node in range(2):
        host.put(f"/sys/devices/system/node/node{node}/meminfo", f"Node {node} MemTotal:  134217728 kB\n")
    host.put("/proc/meminfo", "MemTotal: 268435456 kB\nHugepagesize: 2048 kB\n")
    record = {"resource": "host_boot", "before": None, "boot": ""}
    host.put(OWNED, json.dumps({"version": 1, "records": {"host_boot[engine]": record}}))
    settle(TWO | {"kernel_hugepages": []}, host)
    return installed(host, TWO)


def installed(host: FakeGuestHost, wanted: dict[str, Any]) -> FakeGuestHost:
    """With the intent that a boot brings back."""
    host.put(intent.PATH, intent.render(site.lost_at_boot(wanted)))
    return host


def running(host: FakeGuestHost) -> list[str]:
    return [name for name, one in host.libvirt.domains.kept.items() if one.live is not None]


def test_a_boot_starts_those_that_it_is_to_start(host: FakeGuestHost, capsys: pytest.CaptureFixture[str]) -> None:
    host.boot()
    assert running(host) == []
    assert main(["boot", "--allow", "link"], host) == 0
    assert running(host) == []  # libvirt is not there yet
    assert main(["guests"], host) == 0
    assert running(host) == ["train"]
    assert capsys.readouterr().out.splitlines() == [
        "This host is ready for its guests: hugepages as wanted.",
        "libvirt_guest: 1 changes made: libvirt_guest[train].state",
        "The guests of this host are as its intent says: hugepages as wanted, libvirt_guest as wanted.",
    ]


def test_none_starts_on_a_host_that_is_not_as_wanted(host: FakeGuestHost, capsys: pytest.CaptureFixture[str]) -> None:
    host.boot()
    host.put("/sys/devices/system/node/node1/hugepages/hugepages-1048576kB/nr_hugepages", "1\n")
    assert main(["guests"], host) == 1
    assert running(host) == []
    assert (
        "not started: libvirt_guest: no guest is started, since hugepages is not as wanted" in capsys.readouterr().out
    )


def test_a_boot_moves_nothing_restarts_nothing_and_removes_nothing(host: FakeGuestHost) -> None:
    installed(host, {**guests(shape(memory_gib=9)), "kernel_hugepages": TWO["kernel_hugepages"]})
    assert main(["guests"], host) == 1
    assert sorted(running(host)) == ["other", "train"]
    live = host.libvirt.domains.kept["train"].live
    assert live is not None
    assert live.findtext("memory") == "8388608"


def test_the_watch_tells_a_guest_that_does_not_run(host: FakeGuestHost, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drift"], host) == 0
    host.libvirt.domains.end("train")
    with host.only_read():
        assert main(["drift"], host) == 1
    assert "libvirt_guest[train].state: it is to run" in capsys.readouterr().out


def test_what_no_boot_loses_is_not_kept_for_it() -> None:
    for one in (shape(autostart=False), shape(state="defined"), shape(state="absent")):
        assert not libvirt_guest.lost_at_boot(libvirt_guest.parse(guests(one)))
    assert libvirt_guest.lost_at_boot(libvirt_guest.parse(guests(shape())))
