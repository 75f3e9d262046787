"""What a host tells of itself as a whole: tables of the firmware, and what a capture left out."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import p2p
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import ABSENT, Unreadable
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host
from ansible_collections.vela.gpudirect.plugins.module_utils.path.facts import atsr, machine_of, read
from ansible_collections.vela.gpudirect.plugins.module_utils.path.finding import Verdict
from ansible_collections.vela.gpudirect.plugins.module_utils.path.intent import PathIntent
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.machine import Atsr, Platform

from tests.fixtures import corpus
from tests.fixtures.p2p_hosts import atsr as structure
from tests.fixtures.p2p_hosts import built, dmar, drhd


def facts(folder: Path, **files: str) -> Platform:
    host = built("vela", {}, {"/" + path.replace("__", "/"): text for path, text in files.items()}, [])
    return read(Host(str(host.write(folder))))


def test_a_host_tells_all(tmp_path: Path) -> None:
    assert facts(tmp_path) == Platform(
        arguments="BOOT_IMAGE=/vmlinuz root=/dev/vda1 ro intel_iommu=on iommu=pt",
        kernel="6.12.41+deb13-amd64",
        cpu_vendor="GenuineIntel",
        cpu_family=6,
        cpu_model=143,
        architecture="x86_64",
        iommus=("dmar0",),
        atsr=Atsr((), ("0000:20:01.0", "0000:60:01.0")),
        lockdown="none",
        memory_encryption=ABSENT,
        unsafe_interrupts=False,
        is_guest=False,
        numa_nodes=(0, 1),
    )


def test_an_empty_capture_tells_nothing(tmp_path: Path) -> None:
    told = read(Host(str(tmp_path)))
    assert told.iommufd is ABSENT
    others = [getattr(told, name) for name in Platform.__dataclass_fields__ if name != "iommufd"]
    assert all(isinstance(value, Unreadable) for value in others)


def test_structures_of_the_dmar_table() -> None:
    assert atsr(dmar(drhd())) is ABSENT
    assert atsr(dmar(drhd(), structure((0x20, 1, 0), (0x3A, 0x1F, 7), segment=2))) == Atsr(
        (), ("0002:20:01.0", "0002:3a:1f.7")
    )
    assert atsr(dmar(structure(everywhere=True), drhd(), structure(everywhere=True, segment=1))) == Atsr((0, 1), ())
    whole = dmar(structure((0x20, 1, 0)))
    for broken in (b"", b"DMAR", whole[:-1], dmar(b"\x02\x00\x00\x00"), dmar(b"\x02\x00\xff\x00\x00\x00")):
        assert isinstance(atsr(broken), Unreadable)


@pytest.mark.parametrize("size", range(0, 72, 3))
def test_a_cut_table_is_never_one_without_ports(size: int) -> None:
    assert isinstance(atsr(dmar(drhd(), structure((0x20, 1, 0)))[:size]), Unreadable)


@pytest.mark.parametrize(
    ("flags", "arguments", "found"),
    [
        ("fpu", "ro", ABSENT),
        ("fpu sme", "ro mem_encrypt=on", "sme"),
        ("fpu sme", "ro mem_encrypt=off", ABSENT),
        ("fpu sme", "ro", Unreadable),
        ("fpu tdx_guest hypervisor", "ro", "tdx"),
    ],
)
def test_flags_of_the_processor_are_no_activity(tmp_path: Path, flags: str, arguments: str, found: object) -> None:
    cpuinfo = f"vendor_id\t: AuthenticAMD\nflags\t\t: {flags}\n"
    told = facts(tmp_path, proc__cpuinfo=cpuinfo, proc__cmdline=arguments)
    assert told.memory_encryption == found or isinstance(told.memory_encryption, found)  # type: ignore[arg-type]
    assert told.is_guest == ("hypervisor" in flags)
    assert told.atsr is ABSENT


def test_encrypted_guests_that_kvm_may_start_are_not_known_to_run(tmp_path: Path) -> None:
    cpuinfo = "vendor_id\t: AuthenticAMD\nflags\t\t: fpu sme sev\n"
    arguments = "ro mem_encrypt=off"
    host = built("vela", {}, {"/proc/cpuinfo": cpuinfo, "/proc/cmdline": arguments,
                              "/sys/module/kvm_amd/parameters/sev": "Y\n"}, [])  # fmt: skip
    told = read(Host(str(host.write(tmp_path))))
    assert told.memory_encryption == Unreadable("KVM may start sev guests")


# Captured machines -----------------------------------------------------------------------


def test_a_captured_guest_without_registers_is_unknown(tmp_path: Path) -> None:
    """FILES.md: a q35 guest with one GPU, numa_node -1 everywhere, no NIC that does RDMA."""
    folder = corpus.unpacked("sysfs/ghw-q35-guest-nvidia-numa-minus1.sysfs.tar.bz2", tmp_path)
    report = p2p.judge(machine_of(Host(str(folder.resolve()))), PathIntent())
    verdicts = {one.rule: one.verdict for one in report.findings}
    assert len(report.gpus) == 1
    assert verdicts["numa_told"] == Verdict.WARN
    assert verdicts["nics_found"] == Verdict.UNKNOWN  # the capture has no RDMA devices for anything
    assert verdicts["groups_distinct"] == verdicts["bars_assigned"] == Verdict.UNKNOWN
    assert report.verdict == Verdict.UNKNOWN


def test_a_captured_guest_with_a_large_domain_has_no_gpu(tmp_path: Path) -> None:
    folder = corpus.unpacked("sysfs/hwloc-2pa-pcidomain32bits.sysfs.tar.bz2", tmp_path) / "2pa-pcidomain32bits"
    report = p2p.judge(machine_of(Host(str(folder.resolve()))), PathIntent())
    assert not report.gpus
    assert report.verdict == Verdict.FAIL
