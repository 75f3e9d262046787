"""node-a from the installer to a proven host and back, through everything that may go wrong on the way.

The tests are in the order in which the host lives through them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.integration.conftest import Node
from tests.integration.faults import FAULTS, STATE
from tests.integration.guests import GUESTS, shape
from tests.integration.runs import ROOT, Run, in_background
from tests.integration.verdicts import checks_in, checks_of, failed

# chattr, which the hosts of the rack do not have.
IMMUTABLE = """python3 -c '
import fcntl, os, struct
file = os.open("/boot/grub/grub.cfg", os.O_RDONLY)
flags = struct.unpack("l", fcntl.ioctl(file, 0x80086601, struct.pack("l", 0)))[0]
fcntl.ioctl(file, 0x40086602, struct.pack("l", {flags}))
'"""
# A menu entry of somebody else that boots by default, without the inventory's arguments.
HAND_ENTRY = r"""
cat > /etc/grub.d/06_hand <<'SCRIPT'
#!/bin/sh
echo "menuentry 'Entry of the night shift' {"
echo "  search --no-floppy --fs-uuid --set=root $(findmnt -no UUID /)"
echo "  linux $(ls /boot/vmlinuz-* | tail -n 1) root=UUID=$(findmnt -no UUID /) ro console=ttyS0"
echo "  initrd $(ls /boot/initrd.img-* | tail -n 1)"
echo "}"
SCRIPT
chmod +x /etc/grub.d/06_hand; sync
"""
# Checks of what the rack's inventory does not ask for, or has relaxed for all its devices: the rack cannot show their failure.
NOT_ASKED = {"h26_nics_may_order_loosely", *checks_in("test_kvm.py"), *checks_in("test_guests.py")}
LOST_DISK = "The disk with the kernel is gone"
DEAD_ENTRY = rf"""
cat > /etc/grub.d/06_hand <<'SCRIPT'
#!/bin/sh
printf '%s\n' "menuentry 'dead' {{" "  echo '{LOST_DISK}'" "  sleep 36000" "}}"
SCRIPT
chmod +x /etc/grub.d/06_hand; sync
"""


def assert_named(run: Run, node: Node, *words: str) -> None:
    """The run failed on the host with one message that has all these words."""
    assert not run.ok
    message = run.host(node.name).message
    for word in words:
        assert word in message, f"{word!r} is not in:\n{message}"


# The stock host --------------------------------------------------------------------------------------


def test_verification_of_a_stock_host_fails_by_name(stock: Node) -> None:
    run = stock.site(name="playbooks/verify.yml")
    assert not run.ok
    wrong = failed(checks_of(stock))
    assert {"h01_declared_arguments_are_live", "next_boot_has_the_declared_arguments", "h27_pages_per_node"} <= wrong
    assert "state_is_private" not in wrong
    for name in wrong:
        assert name in run.host(stock.name).message
    stock.state = "stock"


WRONG_INPUT: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "misspelt names": (
        {"kernel_hugepage": [], "gpudirect_alow": "host"},
        ("kernel_hugepage:", "kernel_hugepages", "gpudirect_alow:", "gpudirect_allow"),
    ),
    "misspelt values": (
        {"kernel_iommu": "passthru", "gpudirect_allow": "yes", "reboot_timeout_s": "soon"},
        ("kernel_iommu", "passthru", "passthrough", "gpudirect_allow", "reboot_timeout_s"),
    ),
    "contradictory pages": (
        {
            "kernel_hugepages": [
                {"size": "1G", "per_node": 1, "nodes": {"0": 1}},
                {"size": "2M"},
                {"size": "2M", "per_node": 1},
            ]
        },
        ("kernel_hugepages[0]", "kernel_hugepages[1]"),
    ),
    "contradictory arguments": (
        {"kernel_args": ["nosmt", "iommu=off"], "kernel_args_absent": ["nosmt"]},
        ("kernel_args[0]", "nosmt", "kernel_args[1]", "iommu=off"),
    ),
}


@pytest.mark.parametrize("case", WRONG_INPUT)
def test_wrong_input_is_refused_before_the_host_is_reached(case: str, stock: Node) -> None:
    variables, words = WRONG_INPUT[case]
    run = stock.site(**variables)
    assert_named(run, stock, *words)
    assert run.commands[stock.name] == 0
    stock.state = "stock"


def test_check_mode_writes_nothing(stock: Node) -> None:
    before, boot = stock.fingerprint(), stock.boot_id
    run = stock.prediction()
    assert run.ok, run.text[-4000:]
    assert run.predicted(stock.name)
    assert stock.fingerprint() == before
    assert stock.boot_id == boot
    assert "iommu=pt" in run.text  # the diff shows owned values
    stock.state = "stock"


REFUSED: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "read-only boot entry": (
        IMMUTABLE.format(flags="flags | 16"),
        IMMUTABLE.format(flags="flags & ~16"),
        ("/boot/grub/grub.cfg", "immutable"),
    ),
    "full boot file system": (
        "mkdir -p /run/full; mount -t tmpfs -o size=16m tmpfs /run/full; cp -a /boot/grub /run/full;"
        " dd if=/dev/zero of=/run/full/filler bs=4k 2>/dev/null || true; mount --bind /run/full /boot",
        "umount /boot /run/full",
        ("/boot", "no room", "0 KiB"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_obstacle_is_refused_before_the_first_write(case: str, stock: Node) -> None:
    obstacle, removal, words = REFUSED[case]
    stock.sh(obstacle)
    try:
        run = stock.site()
    finally:
        stock.sh(removal)
    assert_named(run, stock, *words)
    assert stock.fingerprint() == stock.found
    stock.state = "stock"


TOO_LARGE: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "GPUs": ({"gpus": 5}, ("guest_shapes[0]: the guest does not fit this host", "5 GPUs")),
    "VFs": ({"vfs_per_gpu": 3}, ("guest_shapes[0]: the guest does not fit this host", "VFs")),
    "CPUs": ({"vcpus": 3}, ("guest_shapes[0]: the guest does not fit this host", "CPUs")),
    "memory": ({"memory_gib": 3}, ("guest_shapes[0]: the guest does not fit this host", "pages of 1024 MiB")),
}


@pytest.mark.parametrize("case", TOO_LARGE)
def test_a_guest_that_the_host_can_never_take_is_refused_before_the_first_write(case: str, stock: Node) -> None:
    """There is no libvirt to ask, there are no VFs and no pages yet."""
    changes, words = TOO_LARGE[case]
    run = stock.site(**{**GUESTS, "guest_shapes": [shape(rails=None, mtu=None, **changes)]})
    assert_named(run, stock, *words)
    assert stock.fingerprint() == stock.found
    stock.state = "stock"


# The run -----------------------------------------------------------------------------------------------


def test_a_run_does_what_check_mode_foresaw_with_one_reboot(stock: Node) -> None:
    foreseen = stock.prediction()
    boot = stock.boot_id
    run = stock.site()
    host = run.host(stock.name)
    assert run.ok, run.text[-4000:]
    assert run.as_foreseen(stock.name) == foreseen.predicted(stock.name)
    assert host.last_plan["verified"] is True
    assert run.reboots(stock.name) == 1
    assert stock.boot_id != boot
    assert int(stock.sh("journalctl --list-boots --output=json | grep -o boot_id | wc -l")) == 2
    reasons = run.plans(stock.name)[0]["reboot_reasons"]
    for name in ("intel_iommu", "iommu"):
        assert any(f"kernel_args.live[{name}]" in reason for reason in reasons), reasons
    stock.state = "converged"


def test_a_second_run_is_one_look(converged: Node) -> None:
    before, boot = converged.fingerprint(), converged.boot_id
    run = converged.site()
    host = run.host(converged.name)
    assert run.ok
    assert host.changed == 0
    assert len(host.tasks) <= 3
    assert run.commands[converged.name] == 1
    assert converged.fingerprint() == before
    assert converged.boot_id == boot
    converged.state = "converged"


def test_verification_of_a_converged_host_passes(converged: Node) -> None:
    converged.sh("modprobe vfio_iommu_type1")
    run = converged.site(name="playbooks/verify.yml")
    assert run.ok, run.text[-6000:]
    assert {verdict for check, verdict in checks_of(converged).items() if check not in NOT_ASKED} == {"passed"}
    assert run.commands[converged.name] == 0  # all of it on the controller
    converged.state = "converged"


def test_each_check_fails_for_its_own_reason(converged: Node) -> None:
    converged.sh("modprobe vfio_iommu_type1; " + "; ".join(fault for fault, _undo, _check, _word in FAULTS))
    try:
        run = converged.site(name="playbooks/verify.yml")
    finally:
        converged.sh("; ".join(undo for _fault, undo, _check, _word in FAULTS))
    verdicts = checks_of(converged)
    wanted = {check for _fault, _undo, check, _word in FAULTS}
    assert failed(verdicts) - NOT_ASKED == set(verdicts) - NOT_ASKED == wanted
    for _fault, _undo, check, word in FAULTS:
        assert word in verdicts[check], verdicts[check]
        assert check in run.host(converged.name).message
    converged.state = "converged"  # but for the log of this boot, which the next test leaves behind


def test_without_intent_the_host_is_as_found(converged: Node) -> None:
    """The inventory no longer asks for anything: undo is a run like any other, with its reboot."""
    nothing = yaml.safe_load((ROOT / "playbooks" / "rollback.yml").read_text())[0]["vars"]
    boot = converged.boot_id
    run = converged.site(**nothing)
    assert run.ok, run.text[-4000:]
    assert run.reboots(converged.name) == 1
    assert converged.boot_id != boot
    assert "iommu" not in converged.sh("cat /proc/cmdline")
    assert converged.fingerprint() == converged.found
    converged.state = "stock"


# Consent, and reboots that go wrong ------------------------------------------------------------------------


def test_without_consent_the_reboot_is_named_and_left(stock: Node) -> None:
    boot = stock.boot_id
    run = stock.site(gpudirect_allow="nothing")
    assert run.ok, run.text[-4000:]
    assert run.done(stock.name)
    assert run.reboots(stock.name) == 0
    last = run.host(stock.name).last_plan
    assert last["reboot_required"]
    assert last["verified"] is False  # written, and not live
    assert "left for later" in last["msg"]
    assert "iommu=pt" in stock.sh("cat /boot/grub/grub.cfg")
    second = stock.site(gpudirect_allow="nothing")
    assert second.ok
    assert second.host(stock.name).changed == 0
    assert second.host(stock.name).last_plan["reboot_required"]
    assert stock.boot_id == boot
    stock.state = "written"


def test_rollback_gives_the_host_back(written: Node) -> None:
    run = written.site(name="playbooks/rollback.yml")
    assert run.ok, run.text[-4000:]
    assert run.reboots(written.name) == 0  # nothing of it was live
    assert written.fingerprint() == written.found
    again = written.site(name="playbooks/rollback.yml")
    assert again.host(written.name).changed == 0
    written.state = "stock"


@pytest.mark.slow
def test_an_argument_that_the_reboot_did_not_bring_fails_by_name_without_another_reboot(stock: Node) -> None:
    stock.sh(HAND_ENTRY)
    run = stock.site()
    assert_named(run, stock, "kernel_args.live[iommu]", "still not live")
    assert run.reboots(stock.name) == 1
    boot = stock.boot_id
    second = stock.site()
    assert_named(second, stock, "kernel_args.live[iommu]")
    assert second.reboots(stock.name) == 0
    assert stock.boot_id == boot
    # Undo still works from here.
    stock.sh("rm /etc/grub.d/06_hand")
    assert stock.site(name="playbooks/rollback.yml").ok
    assert stock.fingerprint() == stock.found
    stock.state = "stock"


def until(what: str, true: Callable[[], bool], limit_s: float) -> None:
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end, f"{what}: not within {limit_s:.0f} s"
        time.sleep(1)


@pytest.mark.slow
def test_a_power_cut_in_the_middle_is_made_good_by_the_next_run(stock: Node) -> None:
    # GRUB's generator stops half-way, so that the cut meets a run with some changes made and some not.
    stock.sh(r"printf '#!/bin/sh\nsleep 3600\n' > /etc/grub.d/07_slow; chmod +x /etc/grub.d/07_slow; sync")
    thread, results = in_background(stock.site)
    half_way = "ls /boot/grub/grub.cfg.new 2>/dev/null || true"
    until("update-grub runs", lambda: bool(stock.sh(half_way)), limit_s=180)
    stock.rack.cut(stock.name)
    thread.join(timeout=240)
    assert results, "the run did not notice that the host is gone"
    assert not results[0].ok
    stock.rack.up(stock.name)
    assert stock.sh(f"ls {STATE}/owned.json")
    assert "iommu" not in stock.sh("cat /proc/cmdline")
    stock.sh("rm /etc/grub.d/07_slow")
    run = stock.site()
    assert run.ok, run.text[-4000:]
    assert run.host(stock.name).last_plan["verified"] is True
    assert stock.site().host(stock.name).changed == 0
    stock.state = "converged"


@pytest.mark.slow
def test_a_host_that_does_not_come_back_is_reported_with_its_console(converged: Node) -> None:
    converged.sh(DEAD_ENTRY)
    timeout_s = 60
    began = time.monotonic()
    run = converged.site(kernel_args=["mitigations=auto", "nosmt"], reboot_timeout_s=timeout_s)
    seconds = time.monotonic() - began
    assert_named(run, converged, "did not come back", "nosmt", LOST_DISK)
    assert seconds < timeout_s + 90, seconds
    converged.state = "dead"
