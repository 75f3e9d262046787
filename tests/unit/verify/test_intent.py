"""How the outcome checks read an inventory, a command line and a boot menu; the rack shows the rest."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.testinfra.boot_entries import bls_entries, grub_entries
from tests.testinfra.intent import Intent, intent_of, missing, page_differences, present, words_of

CHECKS = Path(__file__).resolve().parents[2] / "testinfra"
NODES = (0, 1)


def intent(*, intel: bool = True, **variables: object) -> Intent:
    return intent_of(variables, intel_table=intel, nodes=NODES)


def test_the_checks_share_no_code_with_the_engine() -> None:
    for file in CHECKS.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [one.name for one in node.names] if isinstance(node, ast.Import) else []
            assert not [name for name in names if name.startswith(("ansible_collections", "plugins"))], file.name


def test_the_switch_of_the_iommu_follows_the_firmware() -> None:
    assert intent(kernel_iommu="passthrough").arguments == ("intel_iommu=on", "iommu=pt")
    assert intent(kernel_iommu="passthrough", intel=False).arguments == ("iommu=pt",)
    assert intent(kernel_iommu="translated").arguments == ("intel_iommu=on",)
    assert intent().arguments == ()


def test_contrary_arguments_matter_only_where_the_iommu_is_managed() -> None:
    line = words_of("iommu=off pci=realloc,noats pcie_acs_override=downstream")
    assert present(intent(kernel_iommu="passthrough").forbidden, line) == list(line)
    assert present(intent().forbidden, line) == []
    assert present(intent(kernel_args_absent=["pcie-acs-override"]).forbidden, line) == [line[2]]


@pytest.mark.parametrize(
    ("declared", "line", "sentences"),
    [
        (["nosmt"], "quiet nosmt", 0),
        (["nosmt"], "quiet", 1),
        (["mitigations=off"], "mitigations=off mitigations=off", 1),
        (["mitigations=off"], "mitigations=auto", 1),
        (["vfio-pci.ids=10de:2330"], "vfio_pci.ids=10de:1af1,10de:2330", 0),
        (["vfio-pci.ids=10de:2330"], "vfio_pci.ids=10de:1af1", 1),
        (["vfio-pci.ids=10de:2330"], "vfio-pci.ids=10de:2330 vfio-pci.ids=10de:1af1", 1),
        (["console=tty0", "console=ttyS0"], "console=ttyS0 quiet console=tty0", 0),
        (["console=tty0"], "console=tty0 console=ttyS0", 1),
        (["dyndbg=file a.c"], 'dyndbg="file a.c"', 0),
    ],
)
def test_a_declared_argument_is_there_exactly_once(declared: list[str], line: str, sentences: int) -> None:
    assert len(missing(declared, words_of(line))) == sentences


@pytest.mark.parametrize(
    ("line", "sentences"),
    [
        ("default_hugepagesz=1G hugepagesz=1G hugepages=0:4,1:4 hugepagesz=2M hugepages=1:64", 0),
        ("default_hugepagesz=1G hugepages=0:4,1:4 hugepagesz=2M hugepages=0:0,1:64", 0),
        ("hugepagesz=1G hugepages=0:4,1:4 hugepagesz=2M hugepages=1:64", 1),
        ("default_hugepagesz=1G hugepagesz=1G hugepages=8 hugepagesz=2M hugepages=1:64", 1),
        ("default_hugepagesz=1G hugepagesz=1G hugepages=0:4,1:4", 1),
        ("", 3),
    ],
)
def test_pages_are_compared_by_size_and_node(line: str, sentences: int) -> None:
    wanted = intent(
        kernel_hugepages=[{"size": "1G", "per_node": 4}, {"size": "2M", "nodes": {"1": 64}}],
        kernel_hugepages_default_size="1G",
    )
    assert len(page_differences(wanted, words_of(line))) == sentences


def test_pages_that_nobody_declared_are_named() -> None:
    wanted = intent(kernel_hugepages=[{"size": "1G", "per_node": 4}])
    line = words_of("hugepagesz=1G hugepages=0:4,1:4 hugepagesz=2M hugepages=64")
    assert page_differences(wanted, line) == ["2M pages are reserved and not declared"]
    assert page_differences(intent(), line) == []


GRUB = """
menuentry 'Debian GNU/Linux' --class debian $menuentry_id_option 'gnulinux-simple' {
\techo\t'Loading Linux ...'
\tlinux\t/boot/vmlinuz-6.12 root=UUID=1 ro iommu=pt 'pci=config_acs=1@a;b'
}
submenu 'Advanced options' {
\tmenuentry "Debian, with Linux 6.12 (recovery mode)" --class debian {
\t\tlinux\t/boot/vmlinuz-6.12 root=UUID=1 ro single
\t}
}
"""


def test_entries_of_a_grub_menu() -> None:
    usual, recovery = grub_entries(GRUB)
    assert (usual.title, usual.kernel, usual.rescue) == ("Debian GNU/Linux", "/boot/vmlinuz-6.12", False)
    assert usual.line == ("root=UUID=1", "ro", "iommu=pt", "pci=config_acs=1@a;b")
    assert (recovery.title, recovery.rescue) == ("Debian, with Linux 6.12 (recovery mode)", True)


def test_entries_of_the_boot_loader_specification() -> None:
    text = "title RHEL 9\nlinux /vmlinuz-5.14\noptions root=/dev/x ro\noptions iommu=pt\n"
    (entry,) = bls_entries([("/boot/loader/entries/a.conf", text)])
    assert (entry.title, entry.kernel) == ("RHEL 9", "/vmlinuz-5.14")
    assert entry.line == ("root=/dev/x", "ro", "iommu=pt")
