# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The front door: one input, whatever it is, read as what it says that it is by its content. A name decides nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Union

from ..core.change import Absent, Unreadable
from ..core.errors import Problem, UnreadableState
from ..core.host import Host
from . import archive, groups_text, hwloc, lstopo, nccl, plain, smi, sysfs, tar
from .archive import MachineOf
from .machine import Machine
from .matrix import Matrix
from .nccl import NcclTopology
from .tar import Limits
from .xml_input import parse

Read = Union[Machine, NcclTopology, Matrix]

KNOWN = (
    "lspci text, lstopo XML or text, a captured /sys or an archive of one, an NCCL topology file, nvidia-smi topo, "
    "a list of IOMMU groups, or the JSON of host_topology_info"
)
_TEXT = 64 << 20  # bytes of a text
_WIDE = (b"\xff\xfe", b"\xfe\xff")  # UTF-16


def read_file(
    given: Union[str, bytes],
    name: str = "",
    limits: Union[Limits, None] = None,
    machine_of: MachineOf = archive.tree_alone,
) -> Read:
    """What an input says. ``given`` is a path, or the bytes themselves; ``machine_of`` reads a captured host.

    A folder is read as a captured root when it has sys/bus/pci/devices. UnreadableState, in one sentence, for what is
    none of the known inputs, is empty, cut off or too large.
    """
    limits = limits or Limits()
    if isinstance(given, bytes):
        return read_bytes(given, name or "input", limits, machine_of)
    host = Host()
    if isinstance(host.names(given), tuple):
        return _folder(given, name or given, machine_of)
    status = host.status(given)
    if isinstance(status, (Absent, Unreadable)):
        fact = "is not there" if isinstance(status, Absent) else f"cannot be read: {status.cause.rpartition(': ')[2]}"
        raise _problem(given, fact, "Give the path of a file or of a folder.")
    data = host.read_bytes(given, min(status.size, limits.packed) + 1)
    if not isinstance(data, bytes):
        fact = "is not there" if isinstance(data, Absent) else f"cannot be read: {data.cause.rpartition(': ')[2]}"
        is_pipe = isinstance(data, Unreadable) and data.cause.endswith("Illegal seek")
        raise _problem(given, fact, "It is no file: give it through stdin (-)." if is_pipe else "See who may read it.")
    return read_bytes(data, name or given, limits, machine_of)


def read_bytes(data: bytes, name: str, limits: Limits, machine_of: MachineOf = archive.tree_alone) -> Read:
    """What the bytes of an input say."""
    if len(data) > limits.packed:
        raise _problem(
            name, f"is larger than {limits.packed >> 20} MiB", "Give a capture of /sys, or the text of lspci."
        )
    if not data.strip():
        raise _problem(name, "is empty", "See whether the command that wrote it has failed.")
    stream = tar.Unpacked(data, name, limits.unpacked)
    head = stream.read(tar.BLOCK)
    if tar.is_tar(head):
        return archive.read(data, name, limits, machine_of)
    if tar.compression(data):
        data = tar.plain(data, name, min(_TEXT, limits.unpacked))
        if not data.strip():
            raise _problem(name, "is empty once it is unpacked", "See whether the command that wrote it has failed.")
    return _text_input(data, name)


def _folder(path: str, name: str, machine_of: MachineOf) -> Machine:
    host = Host(path if path == "/" else path.rstrip("/"))
    if not isinstance(host.names(sysfs.DEVICES), tuple):
        advice = "Give the folder above sys/bus/pci/devices, or a folder with the inputs directly in it."
        raise _problem(name, "has no captured PCI devices in it", advice)
    return machine_of(host, name, "sysfs")


def _text_input(data: bytes, name: str) -> Read:
    """An input that is no archive."""
    if data.startswith(_WIDE):
        advice = "Save it as UTF-8: PowerShell does with Out-File -Encoding utf8."
        raise _problem(name, "is text of UTF-16, as Windows writes it", advice, wanted="UTF-8")
    if len(data) > _TEXT:
        raise _problem(name, f"has more than {_TEXT >> 20} MiB of text", "Give the text of one machine.")
    data = data[3:] if data.startswith(b"\xef\xbb\xbf") else data
    if b"\0" in data:
        raise _problem(name, "is a binary file of no known kind", f"Give {KNOWN}.")
    start = data.lstrip()
    if start.startswith(b"<"):
        return _xml(data.lstrip() if start.startswith(b"<?xml") else data, name)
    if start[:1] in (b"{", b"["):
        return _json(data, name)
    return _text(data.decode("utf-8", "surrogateescape"), name)


def _xml(data: bytes, name: str) -> Read:
    root = parse(data, name)
    if root.tag == "topology":
        return hwloc.read(root, name)
    if root.tag == "system":
        return nccl.read(root, name)
    advice = "Give the XML of lstopo (topology), or a topology file of NCCL (system)."
    raise _problem(name, "is XML of no known kind", advice, found=f"<{root.tag}>", wanted="<topology> or <system>")


def _json(data: bytes, name: str) -> Machine:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        cut = getattr(error, "pos", 0) >= len(data.rstrip()) - 1
        advice = "It seems to be cut off: copy it again." if cut else "Give the JSON of one host."
        raise _problem(name, f"is no JSON: {error}", advice) from None
    if not plain.looks_like(found):
        advice = "Give the result of host_topology_info of one host, with its functions, bridges and iommu_groups."
        raise _problem(name, "is JSON of no known kind", advice)
    return plain.read(found, name)


def _text(text: str, name: str) -> Read:
    text = text.replace("\r\n", "\n")
    readers: tuple[tuple[Callable[[str], bool], Callable[[str, str], Read]], ...] = (
        (groups_text.looks_like, groups_text.read),
        (smi.looks_like, smi.read),
        (lstopo.looks_like, lstopo.read),
        (_looks_like_lspci, _lspci),
    )
    for looks_like, read in readers:
        if looks_like(text):
            return read(text, name)
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    raise _problem(name, "is text of no known kind", f"Give {KNOWN}.", found=repr(first[:60]))


def _looks_like_lspci(text: str) -> bool:
    """Whether one of the first lines begins with an address and goes on with a class, or it is another form of lspci.

    Its reader says of the other forms (-t, -mm) what is wrong with them.
    """
    return text.lstrip().startswith(("-[", "+-[", "Slot:\t")) or any(
        _is_header(line) for line in text[:65536].splitlines()[:100]
    )


def _is_header(line: str) -> bool:
    address, blank, rest = line.partition(" ")
    parts = address.split(":")
    short = len(parts) in (2, 3) and all(part and set(part) <= set("0123456789abcdef") for part in parts[:-1])
    return bool(blank and rest) and short and len(parts[-1]) == 4 and parts[-1][2] == "." and parts[-1][3].isdigit()


def _lspci(text: str, name: str) -> Machine:
    try:
        from . import lspci  # type: ignore[attr-defined,unused-ignore]  # noqa: PLC0415
    except ImportError:
        advice = "Give a captured /sys, or the XML of lstopo."
        raise _problem(name, "is text of lspci, which this version cannot read", advice) from None
    reader: Any = lspci.read
    machine: Machine = reader(text, name)
    return machine


def _problem(name: str, fact: str, advice: str, found: str = "", wanted: str = "") -> UnreadableState:
    return UnreadableState([Problem(name, fact, advice, found=found, wanted=wanted)])
