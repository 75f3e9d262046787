"""H02 to H05: the IOMMU is on, maps as declared, remaps interrupts, serves ATS, and has seen no fault."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable

import pytest
from testinfra.host import Host

from tests.testinfra.conftest import ACPI_TABLES, Check
from tests.testinfra.intent import Intent
from tests.testinfra.pci import ats_root_ports
from tests.testinfra.wishes import Wishes

GROUPS = "/sys/kernel/iommu_groups"
UNITS = "/sys/class/iommu"
VFIO = "/sys/module/vfio_iommu_type1/parameters"
# What the kernel calls the default domain of a group, by kernel_iommu.
DOMAIN_TYPES = {"passthrough": {"identity"}, "translated": {"DMA", "DMA-FQ"}}
FAULT = re.compile(r"DMAR: \[.*\].*fault|AMD-Vi: Event logged \[IO_PAGE_FAULT")
REMAPPED_CHIP = re.compile(r"\bIR-(?:IO-APIC|PCI-MSI\w*)")
REMAPPING_LINE = re.compile(r"DMAR-IR: Enabled IRQ remapping.*|AMD-Vi: Interrupt remapping enabled.*")


@pytest.fixture(scope="module")
def kernel_log(host: Host) -> str | None:
    """The kernel's log of this boot, None where it cannot be read; the journal's where the kernel's own has wrapped."""
    done = host.run("dmesg | grep -q 'Linux version' && dmesg || journalctl --dmesg --boot --no-pager --output=cat")
    return done.stdout if done.rc == 0 and done.stdout.strip() else None


def _managed(intent: Intent, check: Check) -> None:
    if intent.iommu == "unmanaged":
        check.does_not_apply("kernel_iommu is unmanaged")


def test_h02_the_iommu_has_made_groups(intent: Intent, names: Callable[[str], list[str]], check: Check) -> None:
    _managed(intent, check)
    units, groups = names(UNITS), names(GROUPS)
    if not units or not groups:
        check.fails(
            wanted="at least one IOMMU and one group",
            found=f"{len(units)} IOMMUs and {len(groups)} groups",
            evidence=f"{UNITS}: {' '.join(units) or 'empty'}; {GROUPS}: {' '.join(groups) or 'empty'}",
        )
    check.passes(f"{len(groups)} groups behind {' '.join(units)}")


def test_h02_groups_map_as_declared(intent: Intent, host: Host, check: Check) -> None:
    _managed(intent, check)
    wanted = DOMAIN_TYPES[intent.iommu]
    lines = host.run(f"grep -H '' {GROUPS}/*/type").stdout.splitlines()
    types = {
        path.removesuffix("/type").rpartition("/")[2]: kind for path, _, kind in (one.partition(":") for one in lines)
    }
    if not types:
        check.unknown(f"the kernel shows no type in {GROUPS}")
    wrong = {group: kind for group, kind in types.items() if kind not in wanted}
    if wrong:
        devices = host.run(f"ls {GROUPS}/{min(wrong, key=int)}/devices").stdout.split()
        check.fails(
            wanted=f"type {' or '.join(sorted(wanted))} in all {len(types)} groups ({intent.iommu})",
            found=", ".join(f"group {group}: {kind}" for group, kind in sorted(wrong.items())),
            evidence=f"{GROUPS}/*/type; group {min(wrong, key=int)} holds {' '.join(devices)}",
        )
    check.passes(f"{len(types)} groups of type {' or '.join(sorted(set(types.values())))}")


def test_h03_interrupts_are_remapped(
    intent: Intent, read: Callable[[str], str | None], kernel_log: str | None, check: Check
) -> None:
    _managed(intent, check)
    interrupts = read("/proc/interrupts")
    said = REMAPPING_LINE.search(kernel_log or "")
    if interrupts is None and kernel_log is None:
        check.unknown("neither /proc/interrupts nor the kernel's log can be read")
    chips = sorted(set(REMAPPED_CHIP.findall(interrupts or "")))
    if not chips:
        check.fails(
            wanted="interrupts behind a remapping chip (IR-...)",
            found="none",
            evidence=f"/proc/interrupts; kernel log: {said[0] if said else 'no line about remapping'}",
        )
    check.passes(f"/proc/interrupts: {' '.join(chips)}" + (f"; {said[0]}" if said else ""))


def test_h03_the_iommu_has_seen_no_fault(intent: Intent, kernel_log: str | None, check: Check) -> None:
    _managed(intent, check)
    if kernel_log is None:
        check.unknown("the kernel's log cannot be read")
    faults = [line for line in kernel_log.splitlines() if FAULT.search(line)]
    if faults:
        check.fails(wanted="no fault since boot", found=f"{len(faults)}", evidence=faults[0])
    if "Linux version" not in kernel_log:
        check.unknown("the kernel's log no longer reaches back to the boot; what is left of it has no fault")
    check.passes("kernel log since boot: no fault")


def test_h04_the_firmware_serves_ats_of_declared_devices(
    intent: Intent, wishes: Wishes, host: Host, names: Callable[[str], list[str]], check: Check
) -> None:
    _managed(intent, check)
    if not wishes.physical:
        check.does_not_apply("no declared device could use ATS")
    if "DMAR" not in names(ACPI_TABLES):
        check.does_not_apply("the firmware has no DMAR table (AMD: ATS needs no entry)")
    done = host.run(f"base64 {ACPI_TABLES}/DMAR")
    if done.rc != 0:
        check.unknown(f"{ACPI_TABLES}/DMAR cannot be read")
    every, served = ats_root_ports(base64.b64decode(done.stdout))
    above = sorted({one.steps[1] for one in wishes.physical if len(one.steps) > 2})
    missing = [port for port in above if not every and port not in served]
    if missing:
        found = f"none for {', '.join(missing)}"
        check.fails(wanted="an ATSR for each root port above a device", found=found, evidence=f"{ACPI_TABLES}/DMAR")
    check.passes("ATSR for all root ports" if every else f"ATSR for {', '.join(served)}")


def test_h05_vfio_is_strict(read: Callable[[str], str | None], check: Check) -> None:
    values = {name: read(f"{VFIO}/{name}") for name in ("allow_unsafe_interrupts", "disable_hugepages")}
    if None in values.values():
        check.does_not_apply("vfio_iommu_type1 is not loaded")
    shown = ", ".join(f"{name} {(value or '').strip()}" for name, value in values.items())
    if any((value or "").strip() != "N" for value in values.values()):
        check.fails(wanted="N for both", found=shown, evidence=f"{VFIO}/*")
    check.passes(shown)
