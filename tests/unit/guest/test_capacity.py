"""What a fresh host can never take is refused before anything is written to it; all else waits, and is placed later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import host_boot, libvirt_guest, site
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import HostRefused
from ansible_collections.vela.gpudirect.plugins.module_utils.guest import overview

from tests.fixtures import fresh_hosts
from tests.fixtures.fake_drivers import FakeDrivers
from tests.fixtures.fake_libvirt import FakeGuestHost
from tests.fixtures.fresh_hosts import INTENT
from tests.fixtures.libvirt_hosts import built, failing, guests, look, settle, with_files
from tests.fixtures.runs import DIGEST

FITS = "the guest does not fit this host: "
VFS = "Ask for more VFs in sriov_ports, bind them to vfio-pci, or lower vfs_per_gpu."


@pytest.fixture
def host(tmp_path: Path) -> FakeDrivers:
    return fresh_hosts.built(tmp_path / "root")


def shape(name: str = "one", **more: Any) -> dict[str, Any]:
    return {"name": name, "gpus": 1, "vcpus": 2, "memory_gib": 1, **more}


def asked(*shapes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**INTENT, "guest_shapes": list(shapes), **more}


def first_plan(host: FakeDrivers, intent: dict[str, Any], *, check: bool = False) -> dict[str, Any]:
    """What the first look at a host comes to; nothing is written."""
    with host.only_read():
        return site.look({host_boot.ENGINE: DIGEST, **intent}, host, check=check, previous={})


def refused(host: FakeDrivers, intent: dict[str, Any], **more: Any) -> list[str]:
    with pytest.raises(HostRefused) as caught:
        first_plan(host, intent, **more)
    return [str(one) for one in caught.value.problems]


def verdicts(host: FakeDrivers, intent: dict[str, Any]) -> list[str]:
    """What guest_placement says."""
    options = {name: value for name, value in intent.items() if name in overview.SCHEMA.variables()}
    with host.only_read():
        return [one["verdict"] for one in overview.looked(options, host)["guests"]]


TOO_LARGE = {
    "gpus": shape("gpus", gpus=3),
    "cpus": shape("cpus", vcpus=16),
    "memory": shape("memory", memory_gib=9),
    "vfs": shape("vfs", vfs_per_gpu=9),
    "threads": shape("threads", vcpus=3),
    "switches": shape("switches", gpus=2, nvswitches="all"),
    "partition": shape("partition", gpus=1, nvswitches="7"),
    "small": shape("small", gpus=0, memory_gib=9),
}
REASONS = {
    "gpus": "needs 3 GPUs, 2 are free (the host has 2). Shrink the shape, free these GPUs, or place it on another host.",
    "cpus": "has too few CPUs on the NUMA nodes of its GPUs (found 14 on node 0 in whole free cores, wanted 16). Lower vcpus, "
    "or free cores there: other guests and the host itself (guest_reserved_cpus) have the rest.",
    "memory": "memory does not fit on node 0 (found 8 free pages of 1024 MiB, wanted 9). Lower memory_gib, "
    "or reserve more pages on that node in kernel_hugepages.",
    "vfs": f"needs 9 VFs, 9 for each of 1 GPU, and 8 are free. {VFS}",
    "threads": "has 3 vCPUs, and cores of this host have 2 threads. Give it whole cores: 2 or 4.",
    "switches": "asks for all NVSwitches, and the host has none. Take nvswitches: none.",
    "partition": "asks for Fabric Manager partition 7, which is not known (known: none). "
    "Correct nvswitches, or give the table of partitions as Fabric Manager lists it (fmpm -l).",
    "small": "has no GPUs, so it has to fit on one NUMA node, and fits on none (found node 0: 8 free pages of 1024 MiB; "
    "node 1: 8 free pages of 1024 MiB, wanted 2 CPUs and 9 pages of 1024 MiB). Lower vcpus or memory_gib, or have cores "
    "(guest_reserved_cpus) and pages (kernel_hugepages) for it on one node.",
}


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("only", ["all", "guests"])
def test_all_that_can_never_fit_is_told_at_once_before_the_first_write(
    host: FakeDrivers, check: bool, only: str
) -> None:
    intent = asked(*TOO_LARGE.values(), shape(), gpudirect_only=only)
    said = refused(host, intent, check=check)
    for index, name in enumerate(TOO_LARGE):
        assert f"guest_shapes[{index}]: {FITS}{name}: {REASONS[name]}" in said
    assert not [one for one in said if one.startswith(f"guest_shapes[{len(TOO_LARGE)}]")]


@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_guest_alone_is_refused_before_and_after_for_one_reason(host: FakeDrivers, name: str) -> None:
    intent = asked(TOO_LARGE[name])
    before = refused(host, intent)
    assert f"guest_shapes[0]: {FITS}{name}: {REASONS[name]}" in before
    fresh_hosts.brought_on(host, intent)
    assert refused(host, intent) == before
    assert verdicts(host, intent) == ["refused"]


@pytest.mark.parametrize(
    "shapes",
    [
        [shape(gpus=2, vfs_per_gpu=4, vcpus=28, memory_gib=16)],
        [shape("a", vfs_per_gpu=4, vcpus=14, memory_gib=8), shape("b", vfs_per_gpu=4, vcpus=14, memory_gib=8)],
        [shape(vfs_per_gpu=8), shape("none", gpus=0, vcpus=12, memory_gib=7)],
        [shape("a", gpus=0, vcpus=14, memory_gib=8), shape("b", gpus=0, vcpus=14, memory_gib=8)],
    ],
)
def test_what_just_fits_waits_and_is_placed_when_the_host_is_ready(
    host: FakeDrivers, shapes: list[dict[str, Any]]
) -> None:
    intent = asked(*shapes)
    (said,) = refused(host, intent)  # nothing speaks against the shapes; but kvm_host is not asked for
    assert said.startswith("guest_shapes: needs libvirt, and nothing brings it to this host")
    assert verdicts(host, intent) == ["waits" for _one in shapes]
    fresh_hosts.brought_on(host, intent)
    assert verdicts(host, intent) == ["placed" for _one in shapes]


TOGETHER = {
    "gpus": (
        [shape("a", gpus=2, vcpus=4, memory_gib=2), shape("b")],
        ["[1]: b: needs 1 GPU, 0 are free (0000:23:00.0 is with guest a, and so is 1 more)."],
    ),
    "vfs": (
        [shape("a"), shape("b", vfs_per_gpu=8)],
        ["[0]: a: needs 1 VF, 1 for each of 1 GPU, and 0 are free (0000:24:00.2 is with guest b, and so are 7 more)."],
    ),
    "cpus": (
        [shape(name, gpus=0, vcpus=14) for name in "abc"],
        [
            "[2]: c: has no GPUs, so it has to fit on one NUMA node, and fits on none (found node 0: 0 CPUs in whole free cores; node 1: 0 "
        ],
    ),
    "memory": (
        [shape(name, gpus=0, memory_gib=8) for name in "abc"],
        [
            "[2]: c: has no GPUs, so it has to fit on one NUMA node, and fits on none (found node 0: 0 free pages of 1024 MiB; node 1: 0 "
        ],
    ),
}


@pytest.mark.parametrize("what", TOGETHER)
def test_guests_that_fit_alone_and_not_together_are_refused(host: FakeDrivers, what: str) -> None:
    """The one that comes too late is told, with who is before it."""
    shapes, reasons = TOGETHER[what]
    assert [verdicts(host, asked(one)) for one in shapes] == [["waits"] for _one in shapes]
    said = refused(host, asked(*shapes))
    assert len(said) == len(reasons)
    for one, reason in zip(said, reasons):
        place, _colon, fact = reason.partition(": ")
        assert one.startswith(f"guest_shapes{place}: {FITS}{fact}")


def test_a_guest_that_never_fits_takes_nothing_from_others(host: FakeDrivers) -> None:
    said = refused(host, asked(shape("a", gpus=9), shape("b"), shape("c")))
    assert [one.partition(":")[0] for one in said] == ["guest_shapes[0]"]


def test_guests_that_only_nodes_keep_apart_are_told_when_they_are_placed(host: FakeDrivers) -> None:
    """All together ask for less than there is; who gets which node is known when they are placed."""
    intent = asked(*(shape(name, gpus=0, vcpus=8) for name in "abc"))
    assert verdicts(host, intent) == ["waits", "waits", "waits"]
    fresh_hosts.brought_on(host, intent)
    assert verdicts(host, intent) == ["placed", "placed", "refused"]


def test_a_port_that_is_not_told_says_nothing_about_vfs(host: FakeDrivers) -> None:
    """Its VFs may come from somebody else; and where all are told, they are all that there will be."""
    many = shape(vfs_per_gpu=9)
    one_port = [{"select": {"netdev": "ens0f0np0"}, "vfs": 4}]
    assert verdicts(host, asked(many, sriov_ports=one_port)) == ["waits"]
    assert verdicts(host, asked(many, sriov_ports=[])) == ["waits"]
    nics = {"pci_path_nics": [{"netdev": "ens0f0np0"}]}
    assert verdicts(host, asked(many, sriov_ports=one_port, **nics)) == ["refused"]
    assert verdicts(host, asked(shape(vfs_per_gpu=4), sriov_ports=one_port, **nics)) == ["waits"]
    for to_come in ({"netdev": "ens7"}, {"vfs_of": {"netdev": "ens1f0np0"}}, {"address": "0000:64:00.2"}):
        assert verdicts(host, asked(many, sriov_ports=one_port, pci_path_nics=[to_come])) == ["waits"]


def test_the_distance_counts(host: FakeDrivers) -> None:
    far = asked(shape(vfs_per_gpu=5), guest_max_distance="node")
    assert "and too few are free on its NUMA node" in refused(host, far)[0]
    assert verdicts(host, {**far, "guest_max_distance": "sys"}) == ["waits"]


def test_pages_that_are_not_reserved_by_the_inventory_say_nothing(host: FakeDrivers) -> None:
    assert verdicts(host, asked(shape(memory_gib=64), kernel_hugepages=[])) == ["waits"]
    other = [{"size": "2M", "per_node": 64}]
    assert verdicts(host, asked(shape(memory_gib=64), kernel_hugepages=other)) == ["waits"]
    assert "on node 0 (found 64 free pages of 2 MiB" in str(
        refused(host, asked(shape(page_size="2M"), kernel_hugepages=other))
    )
    uneven = [{"size": "1G", "nodes": {1: 9}}]
    assert verdicts(host, asked(shape(memory_gib=9), kernel_hugepages=uneven)) == ["waits"]
    assert verdicts(host, asked(shape(gpus=2, memory_gib=2, vcpus=4), kernel_hugepages=uneven)) == ["refused"]


@pytest.mark.parametrize("argument", ["nosmt", "mitigations=auto,nosmt", "l1tf=full", "maxcpus=4", "nr_cpus=4"])
@pytest.mark.parametrize("live", [False, True])
def test_cpus_that_a_boot_may_bring_or_take_say_nothing(host: FakeDrivers, argument: str, live: bool) -> None:
    """Whether the inventory gives the argument, or the running kernel has it and the inventory may take it out."""
    if live:
        host.put("/proc/cmdline", f"{host.text('/proc/cmdline').strip()} {argument}\n")
    given = {} if live else {"kernel_args": [argument]}
    assert verdicts(host, asked(shape(vcpus=3), shape("many", vcpus=500), **given)) == ["waits", "waits"]
    assert verdicts(host, asked(shape(gpus=3, vcpus=3), **given)) == ["refused"]


def test_other_arguments_change_no_cpu(host: FakeDrivers) -> None:
    assert verdicts(host, asked(shape(vcpus=3), kernel_args=["mitigations=off", "isolcpus=2-7"])) == ["refused"]


def test_cpus_that_are_offline_say_nothing(host: FakeDrivers) -> None:
    host.put("/sys/devices/system/cpu/present", "0-63\n")
    assert verdicts(host, asked(shape(vcpus=20))) == ["waits"]
    host.put("/sys/devices/system/cpu/present", "many\n")
    assert verdicts(host, asked(shape(vcpus=20))) == ["waits"]


def test_nodes_that_may_become_others_say_nothing_at_all(host: FakeDrivers) -> None:
    assert verdicts(host, asked(shape(gpus=3), kernel_args=["numa=off"])) == ["waits"]


def test_a_device_that_an_entry_gives_to_a_driver_of_the_host_is_not_there(host: FakeDrivers) -> None:
    drivers = [
        {"name": "mine", "select": {"address": "0000:23:00.0"}, "driver": "nvidia"},
        {"name": "VFs", "select": {"vfs_of": {"netdev": "ens0f0np0"}}, "driver": "mlx5_core"},
    ]
    said = refused(host, asked(shape(gpus=2, vcpus=4), pci_driver_devices=drivers))
    assert "needs 2 GPUs, 1 is free (0000:23:00.0 has driver nvidia)" in str(said)
    said = refused(host, asked(shape(vfs_per_gpu=5), pci_driver_devices=drivers))
    assert "and 4 are free (0000:24:00.2 has driver mlx5_core, and so are 3 more)" in str(said)
    some = [{**drivers[1], "select": {**drivers[1]["select"], "numa_node": 0}}]  # type: ignore[dict-item]
    assert verdicts(host, asked(shape(vfs_per_gpu=5), pci_driver_devices=some)) == ["waits"]


def test_reserved_cpus_are_not_for_guests(host: FakeDrivers) -> None:
    assert verdicts(host, asked(shape(vcpus=16), guest_reserved_cpus="8")) == ["waits"]
    assert verdicts(host, asked(shape(vcpus=14), guest_reserved_cpus="0-1,8-9")) == ["refused"]


def test_two_guests_of_one_partition_are_refused(host: FakeDrivers) -> None:
    table = {"guest_partitions": {1: ["0000:23:00.0"], 2: ["0000:63:00.0"]}}
    pair = [shape("a", nvswitches="1"), shape("b", nvswitches="1")]
    assert verdicts(host, asked(*pair, **table)) == ["waits", "refused"]
    assert verdicts(host, asked(pair[0], shape("b", nvswitches="2"), **table)) == ["waits", "waits"]


def test_guests_on_record_count_and_are_not_refused_themselves(tmp_path: Path) -> None:
    """A host with a guest gets another one, and VFs for it: the new one is told whose its devices are."""
    host: FakeGuestHost = with_files(built(tmp_path / "root"), "old", "new")
    old = shape("old", image="x")
    settle(guests(old), host)
    ports = {"sriov_ports": [{"select": {"vendor": "15b3"}, "vfs": 4}]}
    report = look(guests(old, shape("new", image="x"), **ports), host)
    assert [one.waits_for for one in report.plan.deferred] == ["sriov"]
    said = failing(HostRefused, guests(old, shape("new", gpus=2, vcpus=4, memory_gib=2, image="x"), **ports), host)
    assert said.startswith(f"guest_shapes[1]: {FITS}new: needs 2 GPUs, 1 is free (0000:23:00.0 is with guest old).")
    assert "guest_shapes[0]" not in said


def test_a_captured_tree_of_a_run_is_not_judged(host: FakeDrivers) -> None:
    """Nothing of it is read there."""
    desired = libvirt_guest.parse(
        {name: value for name, value in asked(shape(gpus=9)).items() if name in libvirt_guest.SCHEMA.variables()}
    )
    plan = libvirt_guest.plan(desired, libvirt_guest.Current(live=False), {})
    assert (plan.refused, len(plan.deferred)) == ((), 1)
