"""What guest_placement tells is what libvirt_guest does: the same guests on the same devices, or the same reasons."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import HostRefused
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host
from ansible_collections.vela.gpudirect.plugins.module_utils.core.owned import PATH as OWNED
from ansible_collections.vela.gpudirect.plugins.module_utils.guest import overview, record

from tests.fixtures.fake_libvirt import FakeGuestHost
from tests.fixtures.libvirt_hosts import built, failing, guests, run, settle, shape, with_files

TWO = guests(shape(), shape("other"))


@pytest.fixture
def host(tmp_path: Path) -> FakeGuestHost:
    return with_files(built(tmp_path / "root"), "train", "other", "third")


def looked(intent: dict[str, Any], host: FakeGuestHost) -> dict[str, Any]:
    with host.only_read():
        return overview.looked(intent, host)


def kept(host: FakeGuestHost) -> dict[str, Any]:
    return {
        path[len("libvirt_guest[") : -1]: record.placed_in(path, one)
        for path, one in json.loads(host.text(OWNED))["records"].items()
        if path.startswith("libvirt_guest[")
    }


def devices(result: dict[str, Any]) -> dict[str, list[str]]:
    return {
        one["name"]: [each["address"] for each in (*one["gpus"], *one["vfs"])] + one["nvswitches"]
        for one in result["guests"]
    }


def test_what_is_told_before_a_run_is_what_the_run_does(host: FakeGuestHost) -> None:
    before = looked(TWO, host)
    run(TWO, host)
    made = kept(host)
    assert devices(before) == {name: [str(one.address) for one in placed.devices] for name, placed in made.items()}
    for one in before["guests"]:
        cells = made[one["name"]].cells
        assert [(cell["node"], tuple(cell["cpus"]), cell["memory_mib"]) for cell in one["cells"]] == [
            (cell.node, cell.cpus, cell.memory_mib) for cell in cells
        ]
        assert tuple(one["emulator_cpus"]) == made[one["name"]].emulator
    assert [one["on_record"] for one in before["guests"]] == [False, False]
    after = looked(TWO, host)
    assert devices(after) == devices(before)
    assert [one["on_record"] for one in after["guests"]] == [True, True]


def test_guests_on_record_keep_their_devices_when_others_come(host: FakeGuestHost) -> None:
    settle(guests(shape("other")), host)
    first = devices(looked(guests(shape("other")), host))["other"]
    both = looked(guests(shape("aaa"), shape("other")), host)
    assert devices(both)["other"] == first
    assert not set(devices(both)["aaa"]) & set(first)


def test_reasons_are_those_of_the_run_and_go_to_their_guest(host: FakeGuestHost) -> None:
    intent = guests(shape(), shape("other", gpus=7), shape("third", gpus=0))
    result = looked(intent, host)
    assert [one["verdict"] for one in result["guests"]] == ["placed", "refused", "placed"]
    (reason,) = result["guests"][1]["reasons"]
    assert result["problems"] == [reason]
    assert "needs 7 GPUs" in reason
    assert reason in failing(HostRefused, intent, host)


def test_a_name_that_is_the_beginning_of_another_gets_no_reasons_of_it(host: FakeGuestHost) -> None:
    shapes = [shape(f"g{index}", gpus=0, memory_gib=1, vcpus=2) for index in range(10)]
    result = looked(guests(*shapes, shape("g10", gpus=9), shape("g1x", gpus=0)), host)
    assert {one["name"]: one["verdict"] for one in result["guests"]}["g1"] == "placed"
    assert [one["name"] for one in result["guests"] if one["verdict"] == "refused"] == ["g10"]


def test_new_guests_wait_for_what_the_run_still_brings(host: FakeGuestHost) -> None:
    vfs = {"sriov_ports": [{"select": {"vendor": "15b3"}, "vfs": 4}]}
    result = looked({**TWO, **vfs}, host)
    assert [one["verdict"] for one in result["guests"]] == ["waits", "waits"]
    assert "waits for sriov" in result["guests"][0]["reasons"][0]
    assert result["problems"] == []


def test_a_captured_tree_is_judged_with_what_is_on_record_in_it(host: FakeGuestHost) -> None:
    settle(guests(shape("other")), host)
    live = looked(TWO, host)
    tree = overview.looked(TWO, Host(host.root))
    assert devices(tree) == devices(live)
    assert tree["notes"] == [
        "A captured tree: libvirt was not asked, guests on record are taken to run, and guests of others are not known."
    ]


def test_a_host_without_libvirt_is_told_where_guests_would_be(host: FakeGuestHost) -> None:
    host.libvirt.there = False
    result = looked(TWO, host)
    assert [one["verdict"] for one in result["guests"]] == ["placed", "placed"]
    assert "not installed" in result["notes"][0]


def test_the_table_says_all_of_it(host: FakeGuestHost) -> None:
    text = looked(guests(shape(), shape("other", gpus=7)), host)["text"]
    assert text.splitlines() == [
        "train: new: 1 GPU, 1 VF, 4 vCPUs, 8 GiB in pages of 1 GiB",
        "  GPU 0000:23:00.0 (node 0): PIX VF 0000:24:00.2",
        "  node 0: CPUs 1-2,33-34; 8 GiB",
        "  QEMU's own threads: CPUs 3,35",
        "other: does not fit (4 vCPUs, 8 GiB in pages of 1 GiB)",
        "  guest_shapes[1]: the guest does not fit this host: other: needs 7 GPUs, 2 are free (the host has 2). Shrink the shape, "
        "free these GPUs, or place it on another host.",
    ]
    assert looked({}, host)["text"] == "No guest is asked for.\n"
