"""A host for guests on fake hosts that react: prediction, undo to the byte, every cut, and boots."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import kvm
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Disruption
from ansible_collections.vela.gpudirect.plugins.module_utils.core.converge import Report, bring, converge
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import ApplyFailed, VerificationFailed
from ansible_collections.vela.gpudirect.plugins.module_utils.core.owned import PATH as RECORD

from tests.fixtures import kvm_hosts
from tests.fixtures.fake_host import KilledHere
from tests.fixtures.kvm_hosts import KvmHost

MANAGED: dict[str, Any] = {
    "kvm_host": "managed",
    "kvm_isolate_cpus": True,
    "guest_reserved_cpus": "0-1,4-5",
    "kernel_hugepages": [{"size": "1G", "per_node": 4}],
    "kvm_qemu_conf": {
        "max_files": 65536,
        "stdio_handler": "logd",
        "cgroup_device_acl": ["/dev/null", "/dev/vfio/vfio"],
    },
}
LESS: dict[str, Any] = {"kvm_host": "managed", "kvm_governor": "unmanaged", "kvm_qemu_conf": {"max_files": 4096}}
STORIES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "apply": ([], MANAGED),
    "change": ([MANAGED], LESS),
    "undo": ([MANAGED], {}),
    "undo_of_a_change": ([MANAGED, LESS], {}),
}
MACHINES = ("debian", "rhel")


def go(host: KvmHost, intent: dict[str, Any], *, check: bool = False) -> Report:
    return converge(kvm, intent, host, allow=Disruption.NOTHING, check=check)


def paths(report: Report) -> list[str]:
    return [change.path for change in report.plan.changes]


def live(host: KvmHost) -> dict[str, Any]:
    """What the running host does."""
    governors = {host.text(f"{kvm_hosts.POLICY.format(cpu=cpu)}/scaling_governor") for cpu in range(kvm_hosts.CPUS)}
    running = {unit for unit, state in host.systemd.states.items() if state[0] == "active"}
    confined = host.text("/sys/fs/cgroup/system.slice/cpuset.cpus")
    merging, balancing = host.text(kvm_hosts.KSM), host.text(kvm_hosts.BALANCING)
    return {"governors": governors, "running": running, "confined": confined, "ksm": merging, "balancing": balancing,
            "mounts": host.text("/proc/mounts")}  # fmt: skip


@pytest.fixture(params=MACHINES)
def host(request: pytest.FixtureRequest, tmp_path: Path) -> KvmHost:
    return kvm_hosts.build(tmp_path / "root", request.param)


def test_nothing_is_asked_and_nothing_is_looked_at(host: KvmHost) -> None:
    with host.only_read():
        report = go(host, {})
    assert report.plan.empty
    assert not host.commands


def test_check_mode_predicts_and_the_second_run_finds_nothing(host: KvmHost) -> None:
    before = host.disk()
    with host.only_read():
        predicted = go(host, MANAGED, check=True)
    assert host.disk() == before
    real = go(host, MANAGED)
    assert real.as_result()["plan"] == predicted.as_result()["plan"]
    assert real.verified
    with host.only_read():
        assert go(host, MANAGED).plan.empty


def test_the_running_host_got_what_was_asked_for(host: KvmHost) -> None:
    go(host, MANAGED)
    found = live(host)
    assert found["governors"] == {"performance\n"}
    assert (found["ksm"], found["balancing"], found["confined"]) == ("0\n", "0\n", "0-1,4-5\n")
    assert "/dev/hugepages1G hugetlbfs rw,relatime,pagesize=1024M" in found["mounts"]
    daemon = "libvirtd.service" if host.exists("/etc/default/grub.d") or host.loader == "grub" else "virtqemud.socket"
    assert daemon in found["running"]
    assert not {"ksm.service", "ksmtuned.service"} & found["running"]


def test_a_boot_loses_nothing(host: KvmHost) -> None:
    go(host, MANAGED)
    before = live(host)
    host.boot()
    assert live(host) == before
    with host.only_read():
        assert go(host, MANAGED).plan.empty


@pytest.mark.parametrize("booted", [False, True])
def test_without_intent_the_host_is_as_found(host: KvmHost, booted: bool) -> None:
    disk, found = host.disk(), live(host)
    go(host, MANAGED)
    go(host, LESS)
    if booted:
        host.boot()
    go(host, {})
    assert host.disk() == disk
    assert {**live(host), "running": ()} == {**found, "running": ()}
    assert live(host)["running"] == found["running"]
    host.boot()
    assert live(host) == found
    assert not host.owned()


def put_on_record(host: KvmHost, *paths: str) -> None:
    """What another resource has made through libvirt; none: it is gone."""
    document = json.loads(host.text(RECORD))
    records = {path: one for path, one in document["records"].items() if one["resource"] == "kvm"}
    more = {path: {"resource": path.partition("[")[0], "before": None, "boot": "b"} for path in paths}
    host.put(RECORD, json.dumps({**document, "records": {**records, **more}}))


def test_what_guests_need_stays_until_they_are_gone(host: KvmHost) -> None:
    disk = host.disk()
    go(host, MANAGED)
    found = live(host)
    for paths_, said in (
        (
            ("libvirt_guest[train]", "libvirt_network[inner]"),
            "libvirt_guest[train] and 1 more are on record",
        ),
        (("libvirt_network[inner]",), "libvirt_network[inner] is on record"),
    ):
        put_on_record(host, *paths_)
        for check in (True, False):
            report = go(host, {}, check=check)
            assert [(told.waits_for, told.why[: len(said)]) for told in report.plan.deferred] == [
                (paths_[0].partition("[")[0], said)
            ]
            assert not report.plan.changes
            assert not report.verified
        assert live(host) == found
    put_on_record(host)
    go(host, {})
    assert host.disk() == disk


def test_a_daemon_that_guests_go_through_is_started_again(tmp_path: Path) -> None:
    host = kvm_hosts.build(tmp_path / "root", "rhel")
    go(host, MANAGED)
    put_on_record(host, "libvirt_guest[train]")
    host.run(["systemctl", "stop", "virtqemud.socket"])
    assert "virtqemud.socket" not in live(host)["running"]
    report = go(host, {})
    assert paths(report) == ["kvm.daemon[virtqemud.socket]"]
    assert "virtqemud.socket" in live(host)["running"]


def test_records_of_guests_hold_nothing_up_where_libvirt_is_gone(host: KvmHost) -> None:
    go(host, MANAGED)
    put_on_record(host, "libvirt_guest[train]")
    host.path("/usr/bin/xorriso").unlink()  # which no guest is reached by
    report = go(host, {})
    assert [told.waits_for for told in report.plan.deferred] == ["libvirt_guest"]
    assert not report.plan.changes
    # As a package manager takes them away.
    for unit in ("libvirtd.socket", "virtqemud.socket"):
        if (file := host.path(f"/{kvm_hosts.VENDOR}/{unit}")).exists():
            host.run(["systemctl", "disable", unit])
            host.run(["systemctl", "stop", unit])
            file.unlink()
    report = go(host, {})
    assert not report.plan.deferred
    assert "kvm.files" in paths(report)


def test_a_daemon_of_the_distribution_that_was_stopped_is_started_for_guests(tmp_path: Path) -> None:
    host = kvm_hosts.build(tmp_path / "root", "debian")
    go(host, MANAGED)
    put_on_record(host, "libvirt_guest[train]")
    for unit in sorted(live(host)["running"]):
        host.run(["systemctl", "stop", unit])
    report = go(host, {})
    assert {"kvm.daemon[libvirtd.socket]"} <= {*paths(report)}
    assert "libvirtd.socket" in live(host)["running"]


def test_what_somebody_set_since_is_left_when_the_intent_goes(host: KvmHost) -> None:
    go(host, MANAGED)
    host.put(kvm_hosts.BALANCING, "2\n")
    host.put("/etc/libvirt/qemu.conf", host.text("/etc/libvirt/qemu.conf").replace("65536", "99999"))
    go(host, {})
    assert host.text(kvm_hosts.BALANCING) == "2\n"
    assert "max_files = 99999\n" in host.text("/etc/libvirt/qemu.conf")
    assert "stdio_handler" not in host.text("/etc/libvirt/qemu.conf")


def test_the_boot_run_sets_kernel_values_alone(host: KvmHost) -> None:
    go(host, MANAGED)
    host.put(kvm_hosts.KSM, "1\n")
    host.systemd.systemctl(Path(host.root), ["stop", "virtlogd.socket"])
    desired = kvm.parse(MANAGED)
    assert kvm.lost_at_boot(desired)
    with host.exclusive():
        report = bring(kvm, desired, host, allow=Disruption.LINK, check=False, partial=True,
                       only=lambda change: not (change.next_boot or change.undo))  # fmt: skip
    assert paths(report) == ["kvm.live[ksm]"]
    assert [change.path for change in report.postponed] == ["kvm.daemon[virtlogd.socket]"]


def cuts(prepared: KvmHost, intent: dict[str, Any], root: Path) -> Iterator[KvmHost]:
    """The machine after each possible cut of one run."""
    counted = prepared.clone(root / "counted").revive()
    go(counted, intent)
    total = len(counted.acts)
    assert total > 4
    for number in range(1, total + 2):
        host = prepared.clone(root / str(number))
        host = host.die_before(number) if number <= total else host.die_after(total)
        with pytest.raises(KilledHere):
            go(host, intent)
        yield host.revive()


@pytest.mark.parametrize("back", [lambda host: host, KvmHost.boot], ids=["killed", "power_cut"])
@pytest.mark.parametrize("story", STORIES)
def test_next_run_completes_what_was_cut_off(host: KvmHost, story: str, back: Any, tmp_path: Path) -> None:
    before, intent = STORIES[story]
    found, values = host.disk(), live(host)
    prepared = host.clone(tmp_path / "prepared")
    for settled in before:
        go(prepared, settled)
    whole = prepared.clone(tmp_path / "whole")
    go(whole, intent)
    for cut in cuts(prepared, intent, tmp_path):
        back(cut)
        go(cut, intent)
        assert {**cut.disk(), RECORD: 0} == {**whole.disk(), RECORD: 0}
        assert {**live(cut), "running": 0} == {**live(whole), "running": 0}
        go(cut, {})
        assert cut.disk() == found
        assert {**live(cut), "running": 0} == {**values, "running": 0}


def test_intent_that_goes_right_after_a_cut_leaves_nothing(host: KvmHost, tmp_path: Path) -> None:
    found, values = host.disk(), live(host)
    for cut in cuts(host, MANAGED, tmp_path):
        go(cut, {})
        assert cut.disk() == found
        assert live(cut) == values


def test_packages_come_first_and_the_rest_after_them(tmp_path: Path) -> None:
    host = kvm_hosts.build(tmp_path / "root", "bare_debian")
    report = go(host, MANAGED, check=True)
    assert report.plan.changes[0].path == "kvm.packages"
    assert [entry.waits_for for entry in report.plan.deferred] == ["kvm.packages"]
    assert not [path for path in paths(report) if path.startswith(("kvm.daemon", "kvm.qemu"))]
    with pytest.raises(ApplyFailed, match=r"kvm\.packages: .*Run the role kvm"):
        go(host, MANAGED)


def test_a_kernel_that_refuses_a_value_is_told_by_name(host: KvmHost) -> None:
    host.stubborn = (f"{kvm_hosts.POLICY.format(cpu=3)}/scaling_governor",)
    with pytest.raises(ApplyFailed, match="policy3/scaling_governor: the kernel refused 'performance'"):
        go(host, MANAGED)
    host.stubborn = ()
    assert go(host, MANAGED).verified


def test_a_value_that_does_not_stay_is_a_failure(host: KvmHost, monkeypatch: pytest.MonkeyPatch) -> None:
    host.put(kvm_hosts.KSM, "1\n")
    monkeypatch.setattr(KvmHost, "_attribute", lambda self, path, text: None)
    with pytest.raises(VerificationFailed, match=r"kvm\.live\[numa_balancing\]: does not read back"):
        go(host, MANAGED)
