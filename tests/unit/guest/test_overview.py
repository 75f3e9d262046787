"""What guest_placement tells is what libvirt_guest does: the same guests on the same devices, or the same reasons."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core import edge
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import HostRefused, UnreadableState
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host
from ansible_collections.vela.gpudirect.plugins.module_utils.core.owned import PATH as OWNED
from ansible_collections.vela.gpudirect.plugins.module_utils.guest import overview, record

from tests.fixtures.fake_libvirt import FakeGuestHost
from tests.fixtures.libvirt_hosts import built, failing, guests, look, run, settle, shape, with_files

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


# What the run still brings or takes -----------------------------------------------------------

PORTS = {"select": {"vendor": "15b3"}}


def answered(intent: dict[str, Any], host: FakeGuestHost) -> str:
    """Verdicts and reasons; a run says the same, in check mode too, be libvirt there or not."""
    result = looked(intent, host)
    for there in (True, False):
        host.libvirt.there = there
        try:
            report = look(intent, host)
            said, refused = str([one.as_result() for one in report.plan.deferred]), ""
        except HostRefused as error:
            said, refused = "", str(error)
        assert refused == "\n".join(result["problems"])
        if there and any(one["verdict"] == "waits" for one in result["guests"]) and not refused:
            assert result["guests"][0]["reasons"][0].partition(": ")[2] in said
    host.libvirt.there = True
    return "\n".join(f"{one['verdict']} {' '.join(one.get('reasons', ()))}" for one in result["guests"])


@pytest.mark.parametrize(
    ("wanted", "memory_gib", "verdict", "words"),
    [
        (400, 300, "waits", "nodes get another number of huge pages of 1024 MiB (node 0 has 64, wanted 400, node 1 has 64, "),
        (400, 401, "refused", "memory does not fit on node 0 (found 400 free pages of 1024 MiB, wanted 401)"),
        (30, 50, "refused", "memory does not fit on node 0 (found 30 free pages of 1024 MiB, wanted 50)"),
        (30, 20, "waits", "node 0 has 64, wanted 30"),
        (64, 50, "placed", ""),
        (64, 65, "refused", "memory does not fit on node 0 (found 64 free pages of 1024 MiB, wanted 65)"),
    ],
)  # fmt: skip
def test_pages_that_come_or_go_are_judged_as_they_will_be(
    host: FakeGuestHost, wanted: int, memory_gib: int, verdict: str, words: str
) -> None:
    intent = guests(shape(memory_gib=memory_gib), kernel_hugepages=[{"size": "1G", "per_node": wanted}])
    said = answered(intent, host)
    assert said.startswith(verdict), said
    assert words in said


@pytest.mark.parametrize(
    ("vfs", "shapes", "verdicts"),
    [
        (1, [shape(gpus=2, vfs_per_gpu=2)], ["refused"]),
        (1, [shape(gpus=1, vfs_per_gpu=1)], ["waits"]),
        (2, [shape(gpus=2, vfs_per_gpu=2)], ["placed"]),
        (4, [shape(gpus=2, vfs_per_gpu=4)], ["waits"]),
        (4, [shape(gpus=2, vfs_per_gpu=5)], ["refused"]),
    ],
)
def test_vfs_that_come_or_go_are_judged_as_they_will_be(
    host: FakeGuestHost, vfs: int, shapes: list[dict[str, Any]], verdicts: list[str]
) -> None:
    said = answered(guests(*shapes, sriov_ports=[{**PORTS, "vfs": vfs}]), host)
    assert [one.split()[0] for one in said.splitlines()] == verdicts, said
    assert "waits" not in said or f"0000:24:00.0 has 2, 0000:64:00.0 has 2, wanted {vfs}" in said


def test_a_device_that_goes_to_a_driver_of_the_host_is_not_given_before(host: FakeGuestHost) -> None:
    entry = {"name": "mine", "select": {"address": "0000:23:00.0"}, "driver": "nvidia"}
    said = answered(guests(shape("a"), shape("b"), pci_driver_devices=[entry]), host)
    assert said.splitlines()[0] == "waits waits for pci_driver: devices still get their driver (0000:23:00.0)"
    assert said.splitlines()[1].startswith("refused ")
    assert "0000:23:00.0 has driver nvidia" in said


def test_a_guest_that_grows_into_what_comes_waits_and_goes_on_as_it_is(host: FakeGuestHost) -> None:
    settle(guests(shape()), host)
    pages = {"kernel_hugepages": [{"size": "1G", "per_node": 400}]}
    grown = guests(shape(memory_gib=300), **pages)
    (told,) = looked(grown, host)["guests"]
    assert told["verdict"] == "waits"
    report = look(grown, host, "guest")
    assert [one.waits_for for one in report.plan.deferred] == ["hugepages"]
    assert not report.plan.changes
    assert [one["verdict"] for one in looked(guests(shape(), **pages), host)["guests"]] == ["placed"]
    assert "wanted 401" in failing(HostRefused, guests(shape(memory_gib=401), **pages), host, "guest")


# What a run refuses -----------------------------------------------------------------------------


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize(("cpus", "lost"), [("500", "500"), ("0-999999", "64-999999"), ("0,63-64", "64")])
def test_reserved_cpus_that_the_host_does_not_have_are_refused(
    host: FakeGuestHost, cpus: str, lost: str, there: bool
) -> None:
    host.libvirt.there = there
    intent = guests(shape(), guest_reserved_cpus=cpus)
    said = f"guest_reserved_cpus: names CPUs that are not online (found {lost}, wanted CPUs of 0-63). Correct it."
    assert said in looked(intent, host)["problems"]
    assert said in failing(HostRefused, intent, host)
    for fine in ("", "0-1,63"):
        assert looked(guests(shape(), guest_reserved_cpus=fine), host)["problems"] == []


def test_reserved_cpus_that_a_boot_brings_are_no_mistake(host: FakeGuestHost) -> None:
    host.put("/sys/devices/system/cpu/present", "0-99\n")
    host.put("/sys/devices/system/cpu/online", "0-63\n")
    assert looked(guests(shape(), guest_reserved_cpus="99"), host)["problems"] == []
    assert len(looked(guests(shape(), guest_reserved_cpus="100"), host)["problems"]) == 1
    fewer = guests(shape(), guest_reserved_cpus="100", kernel_args=["nr_cpus=128"])
    assert looked(fewer, host)["problems"] == []


def test_what_a_run_says_against_ports_devices_and_pages_is_told(host: FakeGuestHost) -> None:
    twice = [{**PORTS, "vfs": 2}, {"select": {"netdev": "ens1f0np0"}, "vfs": 2}]
    entry = {"name": "GPUs", "select": {"vendor": "10de"}, "expect": 7}
    for node in range(2):
        host.put(f"/sys/devices/system/node/node{node}/meminfo", f"Node {node} MemTotal: {128 << 20} kB\n")
    pages = [{"size": "1G", "per_node": 400}]
    result = looked(guests(shape(), sriov_ports=twice, pci_driver_devices=[entry], kernel_hugepages=pages), host)
    said = "\n".join(result["problems"])
    assert "sriov_ports[1].select: " in said
    assert "pci_driver_devices[0].select: " in said
    assert "wanted 7" in said
    assert "kernel_hugepages: node 0 is smaller than its pages (found 131072 MiB of memory, wanted 409600 MiB" in said
    assert all(one in result["text"] for one in result["problems"])


def test_memory_is_told_too_where_there_is_no_libvirt_and_nobody_asks_for_pages(host: FakeGuestHost) -> None:
    said = answered(guests(shape(memory_gib=500, vcpus=99)), host)
    for words in (
        "cores of this host have 2 threads",
        "has too few CPUs",
        "found 64 free pages of 1024 MiB, wanted 500",
    ):
        assert words in said


# Captured trees ------------------------------------------------------------------------------------


def test_a_tree_without_huge_pages_is_told_by_its_files(host: FakeGuestHost) -> None:
    for node in range(2):
        shutil.rmtree(host.path(f"/sys/devices/system/node/node{node}/hugepages"))
    with pytest.raises(UnreadableState) as caught:
        overview.looked(guests(shape()), Host(host.root))
    said = edge.failure(caught.value, Host(host.root))["problems"]
    fact = "is not in this tree, so whether the memory of guests suffices cannot be told. Capture it too."
    assert said == [f"{host.root}/sys/devices/system/node/node{node}/hugepages: {fact}" for node in range(2)]
    assert "found 0 free pages" in str(looked(guests(shape()), host)["problems"])  # a live kernel has none then
