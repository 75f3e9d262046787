# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our part of an XML definition that libvirt and others add to: what differs in it, and a new definition that keeps theirs. Pure.

Three documents decide. What we want; what is there; and what we wrote before (``wrote``), since an element that is there and not wanted
is ours to take away only if we had put it there. Whatever else is there was added by libvirt (a SATA controller, the path of the NVRAM,
addresses) or by a person, and stays.
"""

from __future__ import annotations

import copy
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..core.errors import Problem, UnreadableState
from .domain_xml import NAMESPACE

QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
_OURS = f"{{{NAMESPACE}}}guest"
# What tells elements of the same name apart, each as the path of an element below it ('' is itself) and an attribute.
_TOLD_BY: Mapping[str, tuple[tuple[str, str], ...]] = {
    "vcpupin": (("", "vcpu"),),
    "iothreadpin": (("", "iothread"),),
    "memnode": (("", "cellid"),),
    "cell": (("", "id"),),
    "timer": (("", "name"),),
    "feature": (("", "name"),),
    "page": (("", "nodeset"),),
    "controller": (("", "type"), ("", "index")),
    "disk": (("target", "dev"),),
    "interface": (("mac", "address"),),
    "serial": (("target", "port"),),
    "console": (("target", "port"),),
    "channel": (("target", "name"),),
    "hostdev": (("alias", "name"),),
    "input": (("", "type"), ("", "bus")),
    f"{{{QEMU}}}device": (("", "alias"),),
    f"{{{QEMU}}}property": (("", "name"),),
    f"{{{QEMU}}}arg": (("", "value"),),
    "pf": (("", "dev"),),
    "host": (("", "mac"),),
    "ip": (("", "family"), ("", "address")),
    "portgroup": (("", "name"),),
}
# A kind of machine, and the version of it that libvirt makes of it when the guest is first defined.
_MACHINE = re.compile(r"pc-(q35|i440fx)-")
Key = tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """One part of ours that is not as wanted; None: not there."""

    path: str
    found: str | None
    wanted: str | None

    def __str__(self) -> str:
        return f"{self.path} is {self.found or 'absent'}, wanted {self.wanted or 'none'}"


def parse_xml(path: str, text: str) -> ET.Element:
    """The root of a document; UnreadableState for what is none."""
    try:
        return ET.fromstring(text)  # noqa: S314  # libvirt prints it, without a document type
    except ET.ParseError as error:
        raise UnreadableState([Problem(path, f"is no XML: {error}", "See virsh dumpxml on the host.")]) from error


def digest_of(root: ET.Element) -> str:
    """The digest in our element of a domain's metadata; empty: it has none, so it is not of our making."""
    ours = root.find(f"metadata/{_OURS}")
    return "" if ours is None else ours.get("digest", "")


def differences(
    wanted: ET.Element, found: ET.Element, wrote: Sequence[ET.Element], path: str = ""
) -> Iterator[Difference]:
    """Where what is there is not as wanted, in our parts alone."""
    if (wanted.text or "").strip() != (found.text or "").strip() and not len(wanted) and (wanted.text or "").strip():
        yield Difference(path or wanted.tag, (found.text or "").strip() or None, (wanted.text or "").strip())
    for name in sorted({*wanted.attrib, *(name for one in wrote for name in one.attrib)}):
        have, want = found.get(name), wanted.get(name)
        if have != want and not _same_machine(wanted.tag, name, have, want):
            yield Difference(f"{path}@{name}".lstrip("/"), have, want)
    there, ours = _children(found), _children(wanted)
    before = [_children(one) for one in wrote]
    for key, child in ours.items():
        here = f"{path}/{_shown(key)}".lstrip("/")
        if key not in there:
            yield Difference(here, None, "there")
        else:
            yield from differences(child, there[key], [one[key] for one in before if key in one], here)
    for key in there:
        if key not in ours and any(key in one for one in before):
            yield Difference(f"{path}/{_shown(key)}".lstrip("/"), "there", None)


def merged(wanted: ET.Element, found: ET.Element, wrote: Sequence[ET.Element]) -> ET.Element:
    """What is wanted, with all that others have added to what is there."""
    result = ET.Element(wanted.tag, dict(wanted.attrib))
    result.text = wanted.text if (wanted.text or "").strip() else None
    for name, value in found.attrib.items():
        of_others = name not in wanted.attrib and not any(name in one.attrib for one in wrote)
        if of_others or _same_machine(wanted.tag, name, value, wanted.get(name)):
            result.set(name, value)
    if not (result.text or len(wanted)) and not any((one.text or "").strip() for one in wrote):
        result.text = (found.text or "").strip() or None  # as the path of the NVRAM that libvirt chose
    there, before = _children(found), [_children(one) for one in wrote]
    ours = _children(wanted)
    for key, child in ours.items():
        of_before = [one[key] for one in before if key in one]
        result.append(merged(child, there[key], of_before) if key in there else _copy(child))
    for key, child in there.items():
        if key not in ours and not any(key in one for one in before):
            result.append(_copy(child))
    return result


def set_apart(found: ET.Element, wanted: ET.Element, wrote: Sequence[ET.Element]) -> ET.Element:
    """A domain that is there, with the PCI controllers of others under numbers that none of ours takes."""
    result = _copy(found)
    ours = _children(_devices(wanted))
    before = {key for one in wrote for key in _children(_devices(one))}
    others = {key: one for key, one in _children(_devices(result)).items() if key not in before}
    every = [int(key[2]) for key in (*ours, *_children(_devices(result))) if key[:2] == ("controller", "pci")]
    moved: dict[int, int] = {}
    for key, one in others.items():
        if key[:2] == ("controller", "pci") and key in ours:
            moved[int(key[2])] = new = max(every) + len(moved) + 1
            one.set("index", str(new))
            for target in one.findall("target"):  # chassis and port follow from the number
                one.remove(target)
    for one in others.values():
        address = one.find("address[@type='pci']")
        bus = -1 if address is None else int(address.get("bus", "0"), 16)
        if address is not None and bus in moved:
            address.set("bus", f"0x{moved[bus]:02x}")
    return result


def with_free_addresses(root: ET.Element, wanted: ET.Element) -> ET.Element:
    """A merged domain in which devices of others have no PCI address that ours take, nor one on a bus that is ours.

    libvirt then gives them new ones. Their own controllers, and what is on those or on the main bus, stay where they are.
    """
    ours = _children(_devices(wanted))
    taken = {_place(one) for one in ours.values()}
    buses = {one.get("index") for one in ours.values() if one.tag == "controller" and one.get("type") == "pci"} - {"0"}
    for key, one in _children(_devices(root)).items():
        address = one.find("address[@type='pci']")
        if key in ours or address is None:
            continue
        if _place(one) in taken or str(int(address.get("bus", "0"), 16)) in buses:
            one.remove(address)
    return root


def _devices(root: ET.Element) -> ET.Element:
    found = root.find("devices")
    return ET.Element("devices") if found is None else found


def _place(device: ET.Element) -> tuple[int, ...]:
    address = device.find("address[@type='pci']")
    if address is None:
        return ()
    return tuple(int(address.get(name, "0"), 16) for name in ("domain", "bus", "slot", "function"))


def text_of(root: ET.Element) -> str:
    """The document as libvirt takes it."""
    ET.register_namespace("gpudirect", NAMESPACE)
    ET.register_namespace("qemu", QEMU)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode") + "\n"


def _copy(element: ET.Element) -> ET.Element:
    return copy.deepcopy(element)


def _children(parent: ET.Element) -> dict[Key, ET.Element]:
    """The elements below by what tells them apart; those that nothing tells apart by their number."""
    counted: Counter[Key] = Counter()
    found: dict[Key, ET.Element] = {}
    for child in parent:
        key = _key(child)
        counted[key] += 1
        found[key if counted[key] == 1 else (*key, f"#{counted[key]}")] = child
    return found


def _key(element: ET.Element) -> Key:
    words = []
    for path, name in _TOLD_BY.get(element.tag, ()):
        inner = element if not path else element.find(path)
        words.append("" if inner is None else inner.get(name, ""))
    return (element.tag, *words)


def _shown(key: Key) -> str:
    name = key[0].rpartition("}")[2]
    words = ",".join(word for word in key[1:] if word)
    return f"{name}[{words}]" if words else name


def _same_machine(tag: str, name: str, found: str | None, wanted: str | None) -> bool:
    """Whether a machine is a version of the kind that is wanted; the version that a guest has seen is kept."""
    if (tag, name) != ("type", "machine") or not found or not wanted:
        return False
    kind = _MACHINE.match(found)
    return kind is not None and kind[1] == {"pc": "i440fx"}.get(wanted, wanted)
