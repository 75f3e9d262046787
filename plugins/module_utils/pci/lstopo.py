# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The text of ``lstopo -v`` (``lstopo --of console -v``), read as the same objects that the XML has.

Only the long form has the addresses of bridges. Lines nest by their indentation; a line is ``Type L#n (key=value ...) "name"``.
"""

from __future__ import annotations

import re

from ..core.errors import Problem, UnreadableState
from . import hwloc
from .machine import Machine
from .xml_input import DEPTH, Element

SOURCE = "lstopo text"

_LINE = re.compile(
    r"(?P<indent> *)(?P<type>[A-Za-z0-9]+)(?P<kinds>[\[(][^ ]*[\])])?(?: L#[0-9]+)?"
    r'(?: \((?P<values>.*?)\))?(?: "(?P<name>[^"]*)")?'
)
_VALUE = re.compile(r'([A-Za-z0-9]+)=("[^"]*"|[^ ]*)|P#([0-9]+)')
_CLASS = re.compile(r"([0-9a-f]{4})\(")
_LINK = re.compile(r"([0-9.]+)GB/s")
_TYPES = {"HostBridge": "Bridge", "PCIBridge": "Bridge", "PCI": "PCIDev"}
# What lstopo calls an OS device, in hwloc 3 and before it, and its number in the XML of hwloc 2.
_DEVICES = {
    "Block": 0,
    "Storage": 0,
    "GPU": 1,
    "Net": 2,
    "Network": 2,
    "OpenFabrics": 3,
    "CoProc": 5,
    "Co-Processor": 5,
}
_LONGEST = 10_000  # characters of a line
_END = re.compile(r"depth [0-9]+:")


def looks_like(text: str) -> bool:
    """Whether this is such a text: it begins with the machine."""
    return re.match(r"\s*(Machine|System)( L#[0-9]+)?( \(|\n)", text) is not None


def read(text: str, name: str = "") -> Machine:
    """The machine of such a text; UnreadableState for the short form, whose bridges have no addresses."""
    root = Element("topology", {"version": "2.0"})
    open_: list[tuple[int, Element]] = [(-1, root)]
    for number, line in enumerate(text.splitlines(), 1):
        if _END.match(line):
            break
        match = _LINE.fullmatch(line.rstrip()) if len(line) <= _LONGEST else None
        if match is None:
            continue
        indent = len(match["indent"])
        while open_[-1][0] >= indent:
            open_.pop()
        if len(open_) > DEPTH:
            raise _problem(name, number, "nests too deeply")
        one = _element(match, name, number)
        open_[-1][1].children.append(one)
        open_.append((indent, one))
    return hwloc.read(root, name, SOURCE)


def _element(match: re.Match[str], name: str, line: int) -> Element:
    """One line as the XML has it."""
    words = {key: value.strip('"') for key, value, _index in _VALUE.findall(match["values"] or "") if key}
    index = next((index for _key, _value, index in _VALUE.findall(match["values"] or "") if index), "")
    kind = _TYPES.get(match["type"], match["type"])
    found = {"type": kind, "os_index": index}
    infos: list[Element] = []
    if kind in ("Bridge", "PCIDev"):
        found.update(_pci(words, match["type"], name, line))
    elif match["type"] in _DEVICES or match["type"] == "OSDev":
        label = match["type"] if match["type"] in _DEVICES else (match["kinds"] or "")[1:].partition("]")[0]
        found.update(type="OSDev", name=match["name"] or "", osdev_type=str(_DEVICES.get(label.split(",")[0], 1)))
        infos = [Element("info", {"name": key, "value": value}) for key, value in words.items()]
    elif kind in ("Machine", "Package", "Socket"):
        infos = [Element("info", {"name": key, "value": value}) for key, value in words.items()]
    return Element("object", found, line, infos)


def _pci(words: dict[str, str], kind: str, name: str, line: int) -> dict[str, str]:
    if kind == "HostBridge":
        return {"bridge_pci": words.get("buses", "")}
    class_, ids, link = _CLASS.match(words.get("class", "")), words.get("id", ""), _LINK.match(words.get("link", ""))
    if class_ is None or not ids or "busid" not in words:
        raise _problem(name, line, "has no address and no ids of its PCI functions, as the short form of lstopo")
    return {
        "pci_busid": words["busid"],
        "bridge_pci": words.get("buses", ""),
        "pci_type": f"{class_[1]} [{ids}]",  # neither subsystem nor revision is in the text
        "pci_link_speed": link[1] if link else "",
    }


def _problem(name: str, line: int, fact: str) -> UnreadableState:
    advice = "Run lstopo --whole-io --of xml, or lstopo --whole-io -v."
    return UnreadableState([Problem(f"{name}:{line}", fact, advice)])
