"""All five verbs on hosts that react: prediction, idempotence, undo, and what happens to edits of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import hugepages, kernel_args
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Disruption
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import (
    ApplyFailed,
    ConsentRequired,
    HostRefused,
    VerificationFailed,
)
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import BOOT_ID

from tests.fixtures import hosts
from tests.fixtures.fake_host import FakeHost
from tests.fixtures.runs import changed, one, run, settle, waiting

GRUB = "/etc/default/grub"
ODD = {
    "contrary": {
        GRUB: 'GRUB_CMDLINE_LINUX_DEFAULT="quiet  iommu=off"\nGRUB_CMDLINE_LINUX="console=ttyS0 pci=noaer console=tty0"'
    },
    "single": {GRUB: "GRUB_CMDLINE_LINUX='iommu=strict   a'\nGRUB_CMDLINE_LINUX='iommu=strict   a'\n"},
    "crlf": {GRUB: 'GRUB_CMDLINE_LINUX="iommu=strict a"\t# \r\n\n'},
    "drop_ins": {
        "/etc/default/grub.d/10-a.cfg": 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX nosmt=force a"\n',
        "/etc/default/grub.d/zzz.cfg": 'GRUB_CMDLINE_LINUX="${GRUB_CMDLINE_LINUX} b \\\niommu=strict"\n',
    },
}
MACHINES: dict[str, tuple[str, dict[str, Any]]] = {
    "debian_12": ("debian_12", {}),
    "debian_13": ("debian_13", {}),
    "ubuntu_cloud": ("ubuntu_cloud", {}),
    "ubuntu_22": ("ubuntu_22", {}),
    "amd": ("amd", {}),
    "rhel_9": ("rhel_9", {}),
    "rhel_odd": ("rhel_9", {"files": {GRUB: "GRUB_CMDLINE_LINUX='iommu=strict crashkernel=1G'"}}),
    **{f"odd_{name}": ("debian_12", {"files": files}) for name, files in ODD.items()},
}
VELA = {
    "kernel_iommu": "passthrough",
    "kernel_args": ["pci=config_acs=1@pci:8086:1234;0@pci:15b3:1979", "nosmt"],
    "kernel_args_absent": ["pcie_acs_override"],
    "kernel_hugepages": [{"size": "1G", "per_node": 8}],
    "kernel_hugepages_default_size": "1G",
}
OTHER = {
    "kernel_iommu": "translated",
    "kernel_args": ["mitigations=off", "pci=realloc"],
    "kernel_hugepages": [{"size": "2M", "per_node": 64}, {"size": "1G", "per_node": 4}],
}
PASSTHROUGH = {"kernel_iommu": "passthrough"}


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> FakeHost:
    like, changes = MACHINES[request.param]
    return hosts.build(tmp_path / "root", like, changes)


@pytest.fixture
def debian(tmp_path: Path) -> FakeHost:
    return hosts.build(tmp_path / "root", "debian_12")


@pytest.fixture
def rhel(tmp_path: Path) -> FakeHost:
    return hosts.build(tmp_path / "root", "rhel_9")


# Prediction and idempotence --------------------------------------------------------------


@pytest.mark.parametrize("resource", [kernel_args, hugepages])
def test_check_mode_writes_nothing_and_predicts_what_the_run_does(machine: FakeHost, resource: Any) -> None:
    for intent in (VELA, OTHER, {}):
        before = machine.disk()
        with machine.only_read():
            predicted = one(resource, intent, machine, check=True)
        assert machine.disk() == before
        real = one(resource, intent, machine)
        assert real.as_result()["plan"] == predicted.as_result()["plan"]
        assert real.changed == predicted.changed
        assert not predicted.plan.changes or real.verified


def test_four_runs(machine: FakeHost) -> None:
    seen = [bool(changed(run(VELA, machine, check=check))) for check in (True, False, True, False)]
    assert seen == [True, True, False, False]


def test_one_boot_settles_it_and_the_next_looks_find_nothing(machine: FakeHost) -> None:
    assert settle(VELA, machine) == 1
    assert machine.pages("1G") == dict.fromkeys(machine.nodes, 8)
    with machine.only_read():
        reports = run(VELA, machine, check=True)
    assert all(report.plan.empty and report.verified for report in reports)
    machine.boot()
    with machine.only_read():
        assert all(report.plan.empty for report in run(VELA, machine))


def test_the_running_kernel_got_what_was_asked_for(machine: FakeHost) -> None:
    settle(VELA, machine)
    words = machine.line().split()
    expected = ["pci=config_acs=1@pci:8086:1234;0@pci:15b3:1979", "nosmt", "iommu=pt", "hugepagesz=1G"]
    if "IVRS" not in machine.tables:
        expected.append("intel_iommu=on")
    assert not [one for one in expected if words.count(one) != 1 and not one.startswith("pci=")]
    assert sum("config_acs=1@pci:8086:1234;0@pci:15b3:1979" in word for word in words) == 1
    assert "amd_iommu=on" not in words


# Undo ------------------------------------------------------------------------------------


def test_without_intent_the_host_is_byte_for_byte_as_found(machine: FakeHost) -> None:
    found, line = machine.disk(), machine.line()
    settle(VELA, machine)
    assert machine.disk() != found
    settle({}, machine)
    assert machine.disk() == found
    assert machine.line() == line
    assert machine.pages("1G") == dict.fromkeys(machine.nodes, 0)
    assert not machine.owned()


def test_intent_that_changes_leaves_nothing_of_the_first(machine: FakeHost, tmp_path: Path) -> None:
    fresh = machine.clone(tmp_path / "fresh")
    found = machine.disk()
    settle(VELA, machine)
    settle(OTHER, machine)
    settle(OTHER, fresh)
    assert machine.line() == fresh.line()
    settle({}, machine)
    assert machine.disk() == found


def test_undo_before_the_reboot_gives_the_bytes_and_the_pages_back(machine: FakeHost) -> None:
    found, line = machine.disk(), machine.line()
    run(VELA, machine)
    run({}, machine)
    run({}, machine)
    assert machine.disk() == found
    assert machine.pages("1G") == dict.fromkeys(machine.nodes, 0)
    machine.boot()
    assert machine.line() == line


def test_changing_the_intent_many_times_does_not_let_the_record_grow(machine: FakeHost) -> None:
    settle(VELA, machine)
    settle(OTHER, machine)
    size = len(machine.text("/var/lib/gpudirect/owned.json"))
    for intent in (VELA, OTHER, VELA, OTHER):
        settle(intent, machine)
    assert len(machine.text("/var/lib/gpudirect/owned.json")) <= size + 200


def test_records_of_boot_entries_go_with_them(rhel: FakeHost) -> None:
    settle(PASSTHROUGH, rhel)
    for number in range(6):
        version = f"5.14.0-50{number}.el9.x86_64"
        path = hosts.install_kernel(rhel, version)
        settle({**PASSTHROUGH, "kernel_args": [f"loglevel={number}"]}, rhel)
        rhel.path(path).unlink()
        rhel.path(f"/boot/vmlinuz-{version}").unlink()
    settle(VELA, rhel)
    kept = rhel.text("/var/lib/gpudirect/owned.json")
    assert not [number for number in range(6) if f"50{number}.el9" in kept]


# What others do --------------------------------------------------------------------------


def test_an_edit_by_somebody_else_is_kept_through_run_and_undo(tmp_path: Path) -> None:
    text = 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX="iommu=strict a"\n'
    host = hosts.build(tmp_path / "root", "debian_12", {"files": {GRUB: text}})
    settle(PASSTHROUGH, host)
    host.put(GRUB, host.text(GRUB).replace('"a"', '"b   c"') + "GRUB_TIMEOUT=3\n")
    settle({**PASSTHROUGH, "kernel_args": ["nosmt"]}, host)
    assert {"b", "c", "nosmt", "iommu=pt"} <= set(host.line().split())
    settle({}, host)
    assert host.text(GRUB) == (
        'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX="b c iommu=strict"\nGRUB_TIMEOUT=3\n'
    )
    assert not host.owned()


def test_an_edit_is_what_undo_goes_back_to_once_we_changed_the_file_again(tmp_path: Path) -> None:
    text = 'GRUB_CMDLINE_LINUX="iommu=strict a c"\n'
    host = hosts.build(tmp_path / "root", "debian_12", {"files": {GRUB: text}})
    settle(PASSTHROUGH, host)
    host.put(GRUB, host.text(GRUB).replace('a c"', 'b c" # mine'))
    for absent in (["c"], [], ["c"]):
        settle({**PASSTHROUGH, "kernel_args_absent": absent}, host)
    assert host.text(GRUB) == 'GRUB_CMDLINE_LINUX="b" # mine\n'
    settle({}, host)
    assert host.text(GRUB) == 'GRUB_CMDLINE_LINUX="b c iommu=strict" # mine\n'


def test_an_edited_entry_loses_only_our_part(rhel: FakeHost) -> None:
    settle(PASSTHROUGH, rhel)
    for path in (f"{hosts.ENTRIES}/{hosts.MACHINE}-{hosts.RHEL_KERNELS[1]}.conf", "/etc/kernel/cmdline", GRUB):
        rhel.put(path, rhel.text(path).replace("resume=/dev/mapper/rhel-swap", "noresume").replace("(Plow)", "(mine)"))
    settle({}, rhel)
    for path in (f"{hosts.ENTRIES}/{hosts.MACHINE}-{hosts.RHEL_KERNELS[1]}.conf", "/etc/kernel/cmdline", GRUB):
        text = rhel.text(path)
        assert "noresume" in text
        assert "(Plow)" not in text
        assert "iommu" not in text
    assert not rhel.owned()


def test_entries_that_differed_before_us_differ_again_after_undo(rhel: FakeHost) -> None:
    rescue = f"{hosts.ENTRIES}/{hosts.MACHINE}-0-rescue.conf"
    rhel.put(rescue, rhel.text(rescue).replace(" ro ", " ro iommu=strict "))
    found = rhel.disk()
    settle(PASSTHROUGH, rhel)
    assert "iommu=strict" not in rhel.text(rescue)
    settle({}, rhel)
    assert rhel.disk() == found


def test_grubby_of_somebody_else_is_kept(rhel: FakeHost) -> None:
    settle(PASSTHROUGH, rhel)
    rhel.run(["grubby", f"--update-kernel=/boot/vmlinuz-{hosts.RHEL_KERNELS[1]}", "--remove-args=", "--args=debug"])
    assert not changed(run(PASSTHROUGH, rhel))
    settle({}, rhel)
    assert rhel.line().endswith(f"{hosts.RHEL_LINE} debug")


def test_a_kernel_that_others_install_meanwhile_is_right_and_is_undone(rhel: FakeHost) -> None:
    settle(VELA, rhel)
    path = hosts.install_kernel(rhel, "5.14.0-503.11.1.el9_5.x86_64")
    assert not changed(run(VELA, rhel))
    rhel.boot()
    assert "503.11.1" in rhel.line()
    assert all(report.plan.empty for report in run(VELA, rhel))
    settle({**VELA, "kernel_args": ["nosmt=force"]}, rhel)
    settle({}, rhel)
    assert f"options {hosts.RHEL_LINE}\n" in rhel.text(path)
    assert not rhel.owned()


def test_a_foreign_value_that_comes_back_is_taken_out_again(debian: FakeHost) -> None:
    settle(PASSTHROUGH, debian)
    debian.put("/etc/default/grub.d/50-site.cfg", 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX iommu=nopt"\n')
    debian.run(["update-grub"])
    assert settle(PASSTHROUGH, debian) <= 1
    assert "iommu=nopt" not in debian.line()
    settle({}, debian)
    assert debian.text("/etc/default/grub.d/50-site.cfg") == 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX iommu=nopt"\n'


def test_a_program_that_undoes_our_write_fails_verification_by_name(debian: FakeHost) -> None:
    debian.put("/etc/default/grub.d/zzz.cfg", 'if true; then GRUB_CMDLINE_LINUX="iommu=off"; fi\n')
    with pytest.raises(VerificationFailed, match=r"grub\.cfg\]: does not read back after 2 changes"):
        run(PASSTHROUGH, debian)


# Consent ---------------------------------------------------------------------------------


def test_a_change_that_disrupts_guests_is_blocked_in_check_mode_and_refused_before_the_first_write(
    debian: FakeHost,
) -> None:
    settle(VELA, debian)
    debian.use(0, "1G", 6)
    less = {**VELA, "kernel_hugepages": [{"size": "1G", "per_node": 4}]}
    with debian.only_read():
        shown = one(hugepages, less, debian, check=True, allow=Disruption.LINK).as_result()
        assert [change["path"] for change in shown["blocked"]] == ["hugepages[1G].node0"]
        assert [change["path"] for change in shown["plan"]] == ["hugepages[1G].node0", "hugepages[1G].node1"]
        with pytest.raises(ConsentRequired, match="gpudirect_allow: guest when that is meant") as caught:
            one(hugepages, less, debian, allow=Disruption.LINK)
    assert len(caught.value.problems) == 1
    assert debian.pages("1G") == {0: 8, 1: 8}


# Reboots ---------------------------------------------------------------------------------


def boots_with_another_line(host: FakeHost) -> None:
    line = host.line()
    host.boot()
    host.put("/proc/cmdline", line + "\n")


def test_a_reboot_that_did_not_bring_the_value_fails_by_its_name(debian: FakeHost) -> None:
    assert waiting(run(PASSTHROUGH, debian)) == ["kernel_args.live[intel_iommu]", "kernel_args.live[iommu]"]
    boots_with_another_line(debian)
    with debian.only_read(), pytest.raises(VerificationFailed) as caught:
        run(PASSTHROUGH, debian, check=True)
    assert [problem.path for problem in caught.value.problems] == [
        "kernel_args.live[intel_iommu]",
        "kernel_args.live[iommu]",
    ]


def test_undo_that_the_reboot_did_not_bring_fails_too(rhel: FakeHost) -> None:
    settle(PASSTHROUGH, rhel)
    run({}, rhel)
    boots_with_another_line(rhel)
    with pytest.raises(VerificationFailed, match=r"kernel_args\.live\[iommu\]"):
        run({}, rhel)


def test_no_iommu_group_after_the_boot_is_a_failure(tmp_path: Path) -> None:
    host = hosts.build(tmp_path / "root", "debian_12", {"iommu_works": False})
    run(PASSTHROUGH, host)
    host.boot()
    with pytest.raises(VerificationFailed, match="made no group"):
        run(PASSTHROUGH, host)


def test_no_iommu_group_is_no_failure_while_a_later_step_brings_the_table(tmp_path: Path) -> None:
    host = hosts.build(tmp_path / "root", "no_iommu")
    intent = {**PASSTHROUGH, "kernel_iommu_without_table": "by_cpu_vendor"}
    assert settle(intent, host) == 1
    host.tables = ("APIC", "DMAR")
    host.boot()
    assert all(report.plan.empty for report in run(intent, host))
    assert host.path("/sys/kernel/iommu_groups/0").exists()


def test_a_shortfall_is_tried_live_once_a_boot_then_awaits_a_boot_then_fails_by_node(tmp_path: Path) -> None:
    short = {(1, "1G"): 5}
    host = hosts.build(tmp_path / "root", "debian_12", {"room": short, "boot_room": short})
    intent = {"kernel_hugepages": [{"size": "1G", "per_node": 8}]}
    first = run(intent, host)
    assert "hugepages[1G].node1" in changed(first)
    assert waiting(first) == ["hugepages[1G].node1"]
    second = run(intent, host)
    assert not changed(second)
    assert waiting(second) == ["hugepages[1G].node1"]
    host.boot()
    with pytest.raises(VerificationFailed, match=r"node1: .*gave fewer pages \(found 5, wanted 8\)"):
        run(intent, host)
    with host.only_read(), pytest.raises(VerificationFailed, match="Node 1 has too little unbroken memory"):
        run(intent, host)


def test_a_shortfall_that_the_boot_mends_is_settled(tmp_path: Path) -> None:
    host = hosts.build(tmp_path / "root", "debian_12", {"room": {(0, "1G"): 0, (1, "1G"): 0}})
    assert settle({"kernel_hugepages": [{"size": "1G", "per_node": 8}]}, host) == 1


# Refusals in the middle ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rhel_odd", "odd_contrary"])
def test_the_error_of_a_refused_write_tells_what_was_done_and_the_next_run_goes_on(name: str, tmp_path: Path) -> None:
    like, changes = MACHINES[name]
    machine = hosts.build(tmp_path / "root", like, changes)
    found = machine.disk()
    total = count_acts(machine)
    assert total >= 4
    for number in range(1, total + 1):
        machine.revive()
        machine.refuse_from = number
        with pytest.raises(ApplyFailed, match="Input/output error") as caught:
            one(kernel_args, VELA, machine)
        machine.refuse_from = 0
        done = len(caught.value.done)
        assert f"({done} of " in str(caught.value)
        settle(VELA, machine)
        settle({}, machine)
        assert machine.disk() == found


def count_acts(machine: FakeHost) -> int:
    machine.revive()
    one(kernel_args, VELA, machine)
    total = len(machine.acts)
    settle({}, machine)
    return total


def test_refusals_are_found_before_the_first_write(tmp_path: Path) -> None:
    host = hosts.build(tmp_path / "root", "rhel_9", {"chattr": (hosts.ENTRIES,)})
    with host.only_read(), pytest.raises(HostRefused, match=r"immutable \(chattr \+i\)"):
        run(PASSTHROUGH, host)


def test_a_boot_id_tells_a_new_boot(debian: FakeHost) -> None:
    first = debian.text(BOOT_ID)
    assert debian.boot().text(BOOT_ID) != first
