"""H28, and that guests can be started: nothing merges or moves their memory, CPUs are at speed, KVM and libvirt answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from testinfra.host import Host

from tests.testinfra.conftest import Check

KSM = "/sys/kernel/mm/ksm/run"
BALANCING = "/proc/sys/kernel/numa_balancing"
Read = Callable[[str], "str | None"]


def managed_of(host: Host, check: Check) -> dict[str, Any]:
    """The variables of a host that is to be one for guests."""
    variables = dict(host.ansible.get_variables())
    if variables.get("kvm_host", "unmanaged") != "managed":
        check.does_not_apply("kvm_host is unmanaged")
    return variables


@pytest.fixture
def managed(host: Host, check: Check) -> dict[str, Any]:
    return managed_of(host, check)


@pytest.mark.usefixtures("managed")
@pytest.mark.parametrize("path", [KSM, BALANCING], ids=["ksm", "numa_balancing"])
def test_h28_memory_of_guests_stays(read: Read, check: Check, path: str) -> None:
    text = read(path)
    if text is None:
        check.does_not_apply(f"the kernel has no {path}")
    if text.strip() != "0":
        check.fails(wanted="0", found=text.strip(), evidence=path)
    check.passes(f"{path}: 0")


def test_h28_governor(managed: dict[str, Any], host: Host, check: Check) -> None:
    if managed.get("kvm_governor", "performance") != "performance":
        check.does_not_apply("kvm_governor is unmanaged")
    folder = "/sys/devices/system/cpu/cpufreq"
    offered = host.run(f"grep -lw performance {folder}/policy*/scaling_available_governors").stdout.split()
    if not offered:
        check.does_not_apply("no driver offers the governor performance")
    files = [path.replace("scaling_available_governors", "scaling_governor") for path in offered]
    lines = host.run("grep -H . " + " ".join(files)).stdout.splitlines()
    wrong = [line for line in lines if line.rpartition(":")[2] != "performance"]
    if wrong or len(lines) != len(files):
        check.fails(
            wanted="performance", found="; ".join(wrong) or "unreadable", evidence=f"{folder}/policy*/scaling_governor"
        )
    check.passes(f"{len(lines)} policies: performance")


@pytest.mark.usefixtures("managed")
def test_kvm_is_usable(host: Host, check: Check) -> None:
    # The node is there for a module that cannot be loaded, too: only opening it tells.
    done = host.run("sh -c 'exec 3<>/dev/kvm'")
    if done.rc != 0:
        check.fails(wanted="/dev/kvm opens", found=done.stderr.strip(), evidence="exec 3<>/dev/kvm")
    check.passes("/dev/kvm opens")


@pytest.mark.usefixtures("managed")
def test_libvirt_answers(host: Host, check: Check) -> None:
    done = host.run("timeout 60 virsh --connect qemu:///system version")
    if done.rc != 0:
        found = (done.stderr.strip() or "no answer within 60 s").splitlines()[-1]
        check.fails(wanted="libvirt's version", found=found, evidence="virsh version")
    check.passes(done.stdout.strip().splitlines()[-1])
