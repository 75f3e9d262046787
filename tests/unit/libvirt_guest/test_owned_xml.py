"""Our part of a definition: for any additions of others and any edits of ours, a redefinition brings ours back and keeps theirs."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

from ansible_collections.vela.gpudirect.plugins.module_utils.guest.complaints import complaints, since_start
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.owned_xml import (
    differences,
    merged,
    parse_xml,
    set_apart,
    text_of,
    with_free_addresses,
)
from hypothesis import given
from hypothesis import strategies as st

NAMES = st.sampled_from(["vcpupin", "timer", "hostdev", "channel", "memory", "description"])
VALUES = st.sampled_from(["0", "1", "2", "3"])


@st.composite
def documents(draw: Any, prefix: str = "") -> ET.Element:
    """A small domain; elements of ``prefix`` are of somebody in particular."""
    root = ET.Element("domain", {"type": "kvm"})
    for _number in range(draw(st.integers(0, 5))):
        name, value = draw(NAMES), draw(VALUES)
        child = ET.SubElement(root, prefix + name, {"of": prefix, "x": value})
        if draw(st.booleans()):
            ET.SubElement(child, f"{prefix}inner", {"y": draw(VALUES)})
    return root


def texts(root: ET.Element) -> list[str]:
    return [ET.canonicalize(ET.tostring(child, encoding="unicode"), strip_text=True) for child in root]


@given(documents(), documents(), documents("others-"))
def test_a_redefinition_brings_ours_and_keeps_theirs(
    before: ET.Element, wanted: ET.Element, theirs: ET.Element
) -> None:
    found = ET.fromstring(ET.tostring(before))
    found.extend(theirs)
    result = parse_xml("x", text_of(merged(wanted, found, [before])))
    assert list(differences(wanted, result, [before])) == []
    assert list(differences(wanted, result, [wanted])) == []
    kept = merged(wanted, result, [wanted])
    assert sorted(texts(kept)) == sorted(texts(result))
    there = [(one.tag, one.attrib) for one in result]
    assert all((one.tag, one.attrib) in there for one in theirs)
    assert {one[0] for one in there} == {*(one.tag for one in wanted), *(one.tag for one in theirs)}


@given(documents(), documents())
def test_nothing_differs_exactly_when_ours_is_there(wanted: ET.Element, found: ET.Element) -> None:
    assert list(differences(wanted, wanted, [wanted])) == []
    if texts(wanted) == texts(found):
        assert list(differences(wanted, found, [wanted])) == []


def test_the_version_of_a_machine_and_the_path_of_the_nvram_are_kept() -> None:
    wanted = ET.fromstring("<os firmware='efi'><type machine='q35'>hvm</type><nvram template='/t'/></os>")
    found = ET.fromstring(
        "<os firmware='efi'><type machine='pc-q35-7.2'>hvm</type><nvram template='/t'>/n</nvram></os>"
    )
    assert list(differences(wanted, found, [wanted])) == []
    result = merged(wanted, found, [wanted])
    assert result.find("type").get("machine") == "pc-q35-7.2"  # type: ignore[union-attr]
    assert result.findtext("nvram") == "/n"
    other = ET.fromstring("<os firmware='efi'><type machine='pc-i440fx-7.2'>hvm</type></os>")
    assert [one.path for one in differences(wanted, other, [wanted])] == ["type@machine", "nvram"]


def test_controllers_of_others_get_numbers_of_their_own() -> None:
    def domain(count: int, more: str = "") -> ET.Element:
        ports = "".join(f"<controller type='pci' index='{one}' model='pcie-root-port'/>" for one in range(count))
        return ET.fromstring(f"<domain><devices>{ports}{more}</devices></domain>")

    theirs = (
        "<controller type='pci' index='2' model='pcie-to-pci-bridge'><address type='pci' bus='0x01' slot='0x00'/></controller>"
        "<watchdog model='i6300esb'><address type='pci' domain='0x0000' bus='0x02' slot='0x01' function='0x0'/></watchdog>"
    )
    before, wanted, found = domain(2), domain(3), domain(2, theirs)
    result = with_free_addresses(merged(wanted, set_apart(found, wanted, [before]), [before]), wanted)
    numbers = [(one.get("index"), one.get("model")) for one in result.iterfind("devices/controller")]
    assert numbers[-1] == ("3", "pcie-to-pci-bridge")
    assert numbers[2] == ("2", "pcie-root-port")
    assert result.find("devices/watchdog/address").get("bus") == "0x03"  # type: ignore[union-attr]
    assert result.find("devices/controller[@index='3']/address") is None


def test_a_log_counts_from_the_last_start() -> None:
    start = "2026-01-01 00:00:00.000+0000: starting up libvirt version: 9.0.0\n"
    bad = "vfio_container_dma_map(0x5, 0x38, 0x20, 0x7f) = -22 (Invalid argument)\n"
    assert complaints("a", f"{start}{bad}{start}fine\n") == []
    (problem,) = complaints("a", f"{start}fine\n{start}{bad}{bad}")
    assert "maxphysaddr" in str(problem)
    assert since_start("no start\n") == ["no start"]
