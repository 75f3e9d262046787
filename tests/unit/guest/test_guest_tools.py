"""Domains before libvirt itself: its schema, its test driver, and its QEMU driver where one is told.

GPUDIRECT_LIBVIRT names a URI whose libvirtd has a QEMU driver, GPUDIRECT_EMULATOR the QEMU that it is to ask; no guest is started.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.guest import domain_xml
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.model import Guest

from tests.unit.guest.test_guest_cases import GOOD, guest_of

URI, EMULATOR = os.environ.get("GPUDIRECT_LIBVIRT", ""), os.environ.get("GPUDIRECT_EMULATOR", "")
SECONDS = 120
# What libvirt completes: the newest machine of a kind, and the file that it makes from a template.
COMPLETED = {("os/type", "machine")}


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not on this machine (Debian: libvirt-clients)")
    return found


def done(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=SECONDS)


def emulated(guest: Guest) -> str:
    """The same guest without KVM, which the machine of a test may not have."""
    return domain_xml.render(replace(guest, options=replace(guest.options, virt="qemu", emulator=EMULATOR)))


def words(element: ET.Element, place: str = "") -> Iterator[tuple[str, ...]]:
    """Every attribute and text with the names of the elements around it."""
    for child in element:
        here = f"{place}/{child.tag}".lstrip("/")
        for name, value in child.attrib.items():
            if (here, name) not in COMPLETED:
                yield here, name, value
        if child.text and child.text.strip():
            yield here, "", child.text.strip()
        yield from words(child, here)


@pytest.mark.parametrize("folder", GOOD, ids=lambda folder: folder.name)
@pytest.mark.parametrize("virt", ["kvm", "qemu"])
def test_schema(folder: Path, virt: str, tmp_path: Path) -> None:
    validate = program("virt-xml-validate")
    guest = guest_of(folder)
    file = tmp_path / "domain.xml"
    file.write_text(domain_xml.render(guest) if virt == "kvm" else emulated(guest), encoding="utf-8")
    found = done(validate, str(file), "domain")
    if "No schema" in found.stderr or "not find" in found.stderr:
        pytest.skip("libvirt's schemas are not on this machine (Debian: libvirt0 and newer libvirt-common)")
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("folder", GOOD, ids=lambda folder: folder.name)
def test_libvirt_keeps_every_word(folder: Path, tmp_path: Path) -> None:
    if not URI or not EMULATOR:
        pytest.skip("no libvirtd with QEMU is told (GPUDIRECT_LIBVIRT, GPUDIRECT_EMULATOR)")
    virsh, guest = program("virsh"), guest_of(folder)
    file = tmp_path / "domain.xml"
    file.write_text(emulated(guest), encoding="utf-8")
    defined = done(virsh, "--connect", URI, "define", "--validate", str(file))
    assert defined.returncode == 0, defined.stderr
    try:
        dumped = done(virsh, "--connect", URI, "dumpxml", "--inactive", guest.uuid).stdout
    finally:
        done(virsh, "--connect", URI, "undefine", "--nvram", guest.uuid)
    lost = set(words(ET.fromstring(emulated(guest)))) - set(words(ET.fromstring(dumped)))
    assert lost == set()
