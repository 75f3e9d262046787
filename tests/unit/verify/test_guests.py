"""How the outcome checks judge guests: each passes on a golden domain, and fails for its own reason on an edited one."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.fake_testinfra import FakeHost, Ran, verdict
from tests.testinfra import guests as seen
from tests.testinfra import test_guests as checks
from tests.testinfra.conftest import NODES, Check
from tests.testinfra.pci import Function
from tests.testinfra.wishes import Wishes

XML = (Path(__file__).resolve().parents[2] / "cases/guest/split_two_gpus_over_sockets/domain.xml").read_text()
FOLDER = "/var/lib/libvirt/images"
SEED = f"""<disk type='file' device='cdrom'><source file='{FOLDER}/two-seed.iso'/><target dev='sda' bus='sata'/></disk>
    <controller type='usb'"""
TWO = {"name": "two", "gpus": 2, "vcpus": 24, "memory_gib": 240, "image": "x"}
INFO = "Name: two\nState:          running\nAutostart:      disable\n"
CPUS = {0: "0-23,48-71", 1: "24-47,72-95"}
LOG = "2026-01-01 00:00:00.000+0000: starting up libvirt version: 9.0.0\nchar device redirected\n"
MAPS = "7f00 bind:0 file=/dev/hugepages/x huge dirty=120 N0=120 kernelpagesize_kB=1048576\n7f01 default N1=3 kernelpagesize_kB=4\n"


def xml(*edits: tuple[str, str]) -> str:
    text = XML.replace("one.qcow2", "two.qcow2").replace("<controller type='usb'", SEED, 1)
    for pattern, other in edits:
        text, count = re.subn(pattern, other, text, flags=re.DOTALL)
        assert count, pattern
    return text


def function(address: str, ids: str, node: int, driver: str = "vfio-pci", **links: str) -> Function:
    vendor, _, rest = ids.partition(":")
    device, _, kind = rest.partition(":")
    values = {"vendor": f"0x{vendor}", "device": f"0x{device}", "class": f"0x{kind}00", "numa_node": str(node)}
    return Function(address, values=values, links={"driver": f"../{driver}", **links} if driver else links)


def functions() -> dict[str, Function]:
    every = [
        function("0000:5b:00.0", "10de:20b2:0302", 0),
        function("0000:5c:00.2", "15b3:101e:0200", 0, physfn="../0000:5c:00.0"),
        function("0000:73:00.0", "10de:20b2:0302", 1),
        function("0000:74:00.2", "15b3:101e:0200", 1, physfn="../0000:74:00.0"),
        function("0000:01:00.0", "10de:1af1:0680", 0),
        function("0000:5c:00.0", "15b3:101d:0200", 0, driver="mlx5_core"),
    ]
    return {one.address: one for one in every}


def printed(name: str, info: str = INFO, inactive: str | None = None, live: str | None = None) -> str:
    return f"@name {name}\n{info}@inactive\n{inactive if inactive is not None else xml()}@live\n{live if live is not None else xml()}"


def host(domains: str | None = None, **variables: Any) -> FakeHost:
    answers = {
        "net-list": Ran("inner\n"),
        "pool-list": Ran("images\n"),
        "list --all": Ran(printed("two") if domains is None else domains),
        "numa_maps": Ran(MAPS),
        "stat -L": Ran("4096\n"),
        "is-enabled": Ran("enabled\n"),
    }
    files = {f"{NODES}/node{node}/cpulist": text for node, text in CPUS.items()}
    files[checks.INTENT] = '{"version": 1, "options": {"guest_shapes": []}}'
    return FakeHost({"guest_shapes": [TWO], **variables}, answers, {**files, f"{seen.LOGS}/two.log": LOG})


# Those that need no guest to be there.
OF_ALL = ("test_guests_are_there_and_run_as_declared", "test_boots_start_guests_or_none_of_a_drained_host")


def run(one: FakeHost, name: str, devices: dict[str, Function] | None = None) -> tuple[str, str]:
    """The verdict of a check; what it needs is made as its fixtures make it."""

    def called(check: Check) -> None:
        found = checks.guests_of(one, check)  # type: ignore[arg-type]
        if name not in OF_ALL:
            found = checks.present_of(found, check)
        given: dict[str, Any] = {
            "guests": found, "present": found, "check": check, "host": one, "read": one.read, "nodes_with_memory": [0, 1],
            "wishes": Wishes(functions=functions() if devices is None else devices),
        }  # fmt: skip
        check_it: Callable[..., None] = getattr(checks, name)
        check_it(**{key: given[key] for key in check_it.__code__.co_varnames[: check_it.__code__.co_argcount]})

    return verdict(called)


EVERY = [name for name in vars(checks) if name.startswith("test_") and name != "test_declared_ones_are_active"]


@pytest.mark.parametrize("name", EVERY)
def test_each_passes_on_a_golden_guest(name: str) -> None:
    word, said = run(host(), name)
    assert (word, bool(said)) == ("OK", True), said


@pytest.mark.parametrize("name", EVERY)
def test_each_does_not_apply_where_no_guest_is_asked_for(name: str) -> None:
    assert run(host(guest_shapes=[]), name) == ("-", "guest_shapes is empty")


@pytest.mark.parametrize("name", EVERY)
def test_each_fails_where_libvirt_does_not_answer(name: str) -> None:
    one = host()
    one.answers["net-list"] = Ran("", 1, "error: failed to connect to the hypervisor")
    word, said = run(one, name)
    assert word == "FAIL"
    assert "failed to connect to the hypervisor" in said


FAILURES: list[tuple[str, list[tuple[str, str]], str]] = [
    ("test_h30_guests_have_the_declared_devices", [("bus='0x74'", "bus='0x99'")], "0000:99:00.2 is not in this host"),
    ("test_h30_guests_have_the_declared_devices", [("bus='0x74'", "bus='0x99'")], "1 VFs (wanted 2)"),
    (
        "test_h30_guests_have_the_declared_devices",
        [("bus='0x74' slot='0x00' function='0x2'", "bus='0x01' slot='0x00' function='0x0'")],
        "1 NVSwitches (wanted 0)",
    ),
    (
        "test_h30_guests_have_the_declared_devices",
        [("<driver name='vfio'/>", "<driver name='vfio' iommufd='yes'/>")],
        "iommufd",
    ),
    ("test_h30_guests_have_the_declared_devices", [("managed='no'", "managed='yes'")], "managed by libvirt"),
    (
        "test_h30_devices_are_on_their_node",
        [("<node>1</node>", "<node>0</node>")],
        "is on cell 0 of the guest (wanted cell 1)",
    ),
    ("test_h30_devices_are_on_their_node", [("<node>1</node>", "")], "0000:73:00.0 of node 1 is on no node"),
    (
        "test_h30_devices_are_on_their_node",
        [("(bus='0x73'.*?)bus='0x0d'", r"\1bus='0x04'")],
        "0000:73:00.0 of node 1 is on no node",
    ),
    (
        "test_h30_memory_is_in_huge_pages",
        [("<memory unit='KiB'>251658240", "<memory unit='GiB'>16")],
        "16777216 KiB of memory",
    ),
    (
        "test_h30_memory_is_in_huge_pages",
        [("<hugepages>.*?</hugepages>", "")],
        "huge pages of no size KiB (wanted 1048576)",
    ),
    ("test_h30_memory_is_in_huge_pages", [("<page size='1048576'", "<page size='2048'")], "huge pages of [2048] KiB"),
    ("test_h30_memory_is_in_huge_pages", [("memballoon model='none'", "memballoon model='virtio'")], "memory balloon"),
    ("test_h30_memory_is_in_huge_pages", [("<maxphysaddr mode='passthrough'/>", "")], "no maxphysaddr"),
    (
        "test_h32_memory_is_bound_to_its_nodes",
        [("<memory mode='strict'", "<memory mode='preferred'")],
        "memory is preferred",
    ),
    ("test_h32_memory_is_bound_to_its_nodes", [("<memnode cellid='1'[^/]*/>", "")], "cell 1 is not bound on node any"),
    (
        "test_h32_memory_is_bound_to_its_nodes",
        [("cellid='1' mode='strict' nodeset='1'", "cellid='1' mode='strict' nodeset='0-1'")],
        "cell 1 is strict on node 0,1",
    ),
    ("test_h32_memory_is_bound_to_its_nodes", [("nodeset='1'/>", "nodeset='7'/>")], "cell 1 is strict on node 7"),
    ("test_h32_memory_is_bound_to_its_nodes", [("<cell id=[^/]*/>", "")], "it has no NUMA cell"),
    ("test_h32_vcpus_have_cpus_of_their_own", [("<vcpupin vcpu='5'[^/]*/>", "")], "vCPU 5 is on all CPUs (wanted one)"),
    (
        "test_h32_vcpus_have_cpus_of_their_own",
        [("vcpu='5' cpuset='52'", "vcpu='5' cpuset='4,52'")],
        "vCPU 5 is on 2 CPUs",
    ),
    ("test_h32_vcpus_have_cpus_of_their_own", [("vcpu='5' cpuset='52'", "vcpu='5' cpuset='51'")], "CPU 51 has 2 vCPUs"),
    (
        "test_h32_vcpus_have_cpus_of_their_own",
        [("vcpu='5' cpuset='52'", "vcpu='5' cpuset='90'")],
        "CPU 90 is not of the node of cell 0",
    ),
    ("test_h32_vcpus_have_cpus_of_their_own", [("'static'>24<", "'static'>22<")], "22 vCPUs (wanted 24)"),
    ("test_disks_and_seeds_are_there", [("two.qcow2", "three.qcow2")], f"{FOLDER}/two.qcow2 is no disk of it"),
    ("test_disks_and_seeds_are_there", [("two-seed.iso", "three.iso")], f"{FOLDER}/two-seed.iso is no disk of it"),
]


@pytest.mark.parametrize("at", [0, 1], ids=["as defined", "as it runs"])
@pytest.mark.parametrize(("name", "edits", "expected"), FAILURES)
def test_each_fails_for_its_own_reason(name: str, edits: list[tuple[str, str]], expected: str, at: int) -> None:
    texts: list[str | None] = [None, None]
    texts[at] = xml(*edits)
    word, said = run(host(printed("two", INFO, *texts)), name)
    assert word == "FAIL"
    assert expected in said
    assert f"two {('as defined', 'as it runs')[at]}: " in said


def test_an_edit_of_one_kind_leaves_the_other_checks_alone() -> None:
    one = host(printed("two", INFO, xml(("memballoon model='none'", "memballoon model='virtio'"))))
    assert [name for name in EVERY if run(one, name)[0] != "OK"] == ["test_h30_memory_is_in_huge_pages"]


@pytest.mark.parametrize(
    ("wanted", "info", "good"),
    [
        ({}, "shut off", False),
        ({}, "paused", False),
        ({"state": "defined"}, "running", False),
        ({"state": "defined"}, "shut off", True),
        ({"state": "absent"}, "shut off", False),
        ({"guest_drain": True}, "running", False),
        ({"guest_drain": True}, "shut off", True),
    ],
)
def test_states_are_compared(wanted: dict[str, Any], info: str, good: bool) -> None:
    drain = {"guest_drain": wanted["guest_drain"]} if "guest_drain" in wanted else {}
    one = host(printed("two", INFO.replace("running", info)), guest_shapes=[{**TWO, **wanted}], **drain)
    word, said = run(one, "test_guests_are_there_and_run_as_declared")
    assert word == ("OK" if good else "FAIL")
    assert f"two {info}" in said or f"two: {info}" in said


def test_a_guest_that_is_not_there_fails_by_state_and_nothing_else_applies() -> None:
    one = host("")
    assert "two: not there (wanted running)" in run(one, "test_guests_are_there_and_run_as_declared")[1]
    for name in [one for one in EVERY if one not in OF_ALL]:
        assert run(one, name) == ("-", "no guest that is to be there is defined")


def test_autostart_of_libvirt_fails() -> None:
    one = host(printed("two", INFO.replace("disable", "enable")))
    assert run(one, "test_libvirt_starts_no_guest_by_itself")[0] == "FAIL"


def test_what_boots_do_with_guests() -> None:
    name = OF_ALL[1]
    one = host()
    one.answers["is-enabled"] = Ran("disabled\n", 1)
    assert f"{checks.STARTER} is disabled" in run(one, name)[1]
    drained = host(guest_drain=True)
    assert "found another word on guest_drain" in run(drained, name)[1]
    drained.files[checks.INTENT] = '{"options": {"guest_drain": true}}'
    assert run(drained, name) == ("OK", "no guest started by a boot")
    left = host()
    left.files[checks.INTENT] = '{"options": {"guest_drain": true}}'
    assert run(left, name)[0] == "FAIL"
    del drained.files[checks.INTENT]
    assert run(drained, name)[0] == "OK"
    assert run(host(host_boot_enabled=False), name) == ("-", "host_boot_enabled is false")
    assert run(host(guest_shapes=[{**TWO, "autostart": False}]), name)[0] == "-"


@pytest.mark.parametrize("driver", ["nvidia", ""])
def test_a_device_on_another_driver_fails(driver: str) -> None:
    devices = {**functions(), "0000:73:00.0": function("0000:73:00.0", "10de:20b2:0302", 1, driver=driver)}
    word, said = run(host(), "test_h12_devices_of_guests_are_on_vfio", devices)
    assert word == "FAIL"
    assert f"0000:73:00.0 (10de:20b2): {driver or 'no driver'}" in said


def test_all_nvswitches_have_to_be_there() -> None:
    one = host(guest_shapes=[{**TWO, "nvswitches": "all"}])
    assert "0 NVSwitches (wanted 1)" in run(one, "test_h30_guests_have_the_declared_devices")[1]


def test_another_guest_with_the_same_device_or_cpu_fails() -> None:
    other = printed("two") + printed("db", INFO.replace("running", "shut off"), xml(("0x74", "0x75")))
    word, said = run(host(other), "test_h30_no_two_guests_share_a_device_or_cpu")
    assert word == "FAIL"
    assert "device 0000:5b:00.0 is with db and two" in said
    assert "CPU 52 is with db and two" in said
    assert "0000:74:00.2" not in said


def test_a_reserved_cpu_fails() -> None:
    one = host(guest_reserved_cpus="0-2,48")
    assert "CPU 2 stays with the host" in run(one, "test_h32_vcpus_have_cpus_of_their_own")[1]


def test_memory_elsewhere_fails_and_memory_that_is_not_seen_is_unknown() -> None:
    name = "test_h32_memory_of_running_guests_is_on_their_nodes"
    one = host()
    one.answers["numa_maps"] = Ran(MAPS.replace("N0=120", "N0=60 N3=60"))
    assert "two: 62914560 KiB on node 3" in run(one, name)[1]
    one.answers["numa_maps"] = Ran("")
    assert run(one, name) == ("unknown", "the kernel shows no huge page of two")
    off = host(printed("two", INFO.replace("running", "shut off")))
    assert run(off, name) == ("-", "no guest runs")


@pytest.mark.parametrize("words", seen.BAD_WORDS)
def test_a_log_that_tells_of_lost_paths_fails_and_one_of_a_former_start_does_not(words: str) -> None:
    name, log = "test_h31_no_log_tells_of_lost_paths", f"{seen.LOGS}/two.log"
    one = host()
    one.files[log] = LOG + f"qemu: {words}\n"
    assert run(one, name)[0] == "FAIL"
    one.files[log] += LOG
    assert run(one, name)[0] == "OK"
    del one.files[log]
    assert run(one, name) == ("unknown", "there is no log of two")


@pytest.mark.parametrize(("size", "expected"), [("", "is not there"), ("0\n", "is empty")])
def test_a_disk_that_is_missing_or_empty_fails(size: str, expected: str) -> None:
    one = host()
    one.answers["stat -L"] = Ran(size)
    assert f"two.qcow2 {expected}" in run(one, "test_disks_and_seeds_are_there")[1]


def test_flat_guests_have_no_nodes_and_those_without_devices_no_drivers() -> None:
    flat = host(guest_shapes=[{**TWO, "topology": "flat"}])
    assert run(flat, "test_h30_devices_are_on_their_node")[0] == "-"
    plain = host(guest_shapes=[{**TWO, "gpus": 0}])
    assert run(plain, "test_h12_devices_of_guests_are_on_vfio") == ("-", "no guest has a device")
    assert run(plain, "test_h31_no_log_tells_of_lost_paths") == ("-", "no guest with devices runs")


@pytest.mark.parametrize(
    ("name", "command", "there"), [("guest_networks", seen.NETWORKS, "inner"), ("guest_pools", seen.POOLS, "images")]
)
def test_networks_and_pools(name: str, command: str, there: str) -> None:
    def said(one: FakeHost) -> tuple[str, str]:
        return verdict(lambda check: checks.test_declared_ones_are_active(one, check, name, command))  # type: ignore[arg-type]

    assert said(host()) == ("-", f"{name} is empty")
    assert said(host(**{name: [{"name": there}, {"name": "old", "state": "absent"}]})) == ("OK", there)
    assert "storage is not active" in said(host(**{name: [{"name": "storage"}]}))[1]
    assert f"{there} is active and was to go" in said(host(**{name: [{"name": there, "state": "absent"}]}))[1]
    one = host(**{name: [{"name": there}]})
    one.answers = {}
    assert said(one)[0] == "FAIL"


def test_one_command_tells_all_guests(tmp_path: Path) -> None:
    """The shell's part, with a virsh that answers for two guests, one of which has a name of two words."""
    stub = tmp_path / "virsh"
    stub.write_text(
        "#!/bin/sh\n"
        'case "$3" in\n'
        'list) printf "two\\nan other\\n\\n" ;;\n'
        'dominfo) printf "Name: %s\\nState:          shut off\\nAutostart:      disable\\n\\n" "$4" ;;\n'
        'dumpxml) [ "$4" = --inactive ] && printf "<domain><name>%s</name></domain>\\n" "$5" || exit 1 ;;\n'
        "esac\n"
    )
    stub.chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", seen.DOMAINS],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = seen.domains_of(done.stdout)
    assert list(found) == ["two", "an other"]
    for name, one in found.items():
        assert (one.state, one.runs, one.info["Autostart"]) == ("shut off", False, "disable")
        ((word, root),) = one.documents
        assert (word, root.findtext("name")) == ("as defined", name)


def test_a_guest_that_is_to_go_is_named_and_no_more() -> None:
    assert seen.wishes_of({"guest_shapes": [{"name": "old", "state": "absent"}]}) == [
        seen.Wish("old", "absent", vcpus=0, memory_kib=0)
    ]
