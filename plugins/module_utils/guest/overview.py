# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the guests of a host are or would be placed, as data for programs and as a table for people. Pure but for ``looked``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .. import hugepages, pci_driver, sriov
from ..assign.choice import choose, with_known_serials
from ..boot.pages import Desired as Reservation
from ..boot.pages import refusals
from ..core.edge import located
from ..core.errors import GpudirectError, Problem, UnreadableState
from ..core.host import Host
from ..core.owned import Owned
from ..core.ranges import ranges
from ..core.schema import Schema
from ..path.labels import counted
from ..path.routes import Routes
from ..pci.address import Address
from . import found, record, wanted
from .found import Current
from .intent import Wish
from .model import remarks
from .options import Firmware
from .placed import Given, Part, Placed
from .placing import Round, placements
from .wanted import Desired
from .windows import window_of

# Where a guest is placed does not depend on how it is stopped, run, or whether it is to run at all.
_OF_RUNNING = ("guest_stop", "guest_stop_timeout_s", "guest_drain", "guest_emulator")
SCHEMA = Schema("guest_placement", "guest_", tuple(one for one in wanted.SCHEMA.fields if one.name not in _OF_RUNNING))
parse = wanted.parse
PLACED, REFUSED, WAITS = "placed", "refused", "waits"
_OF_TREE = (
    "A captured tree: libvirt was not asked, guests on record are taken to run, and guests of others are not known."
)


def looked(options: Mapping[str, Any], host: Host) -> dict[str, Any]:
    """The result for a host, live or captured; it is only read."""
    desired = parse(options)
    store = Owned.load(host)
    records = record.by_name(store.of(record.RESOURCE))
    kept = [record.placed_in(name, one) for name, one in records.items()]
    current = found.of_tree(host, kept) if host.captured else found.read(host, desired, records, anyway=True)
    notes = [_OF_TREE] if host.captured else []
    if current.without:  # placement needs no libvirt
        notes = [f"Guests that run are not known: {current.without}."]
    result = overview(desired, current, records, placements(desired, current, records))
    against = [*_of_devices(desired, current, store), *_of_pages(desired, host, notes)]
    result["problems"] = [str(one) for one in GpudirectError(against).problems] + result["problems"]
    result["notes"] = notes
    result["text"] = text(result)
    return result


def _of_devices(desired: Desired, current: Current, store: Owned) -> Iterator[Problem]:
    """What a run says against the choice of ports and devices: guests would get others than are meant."""
    tree, owned = current.machine.tree, store.of(pci_driver.SCHEMA.name)
    ports = sriov.Desired(desired.ports, desired.replaced)
    yield from sriov.plan(ports, sriov.Current(tree, live=False), {}).refused
    # Groups are left to placement, which knows what guests get.
    groups = frozenset(one.iommu_group for one in tree if isinstance(one.iommu_group, int))
    known, replaced = with_known_serials(tree, owned), sorted(desired.replaced)
    yield from choose(desired.drivers, desired.ports, replaced, known, owned, passing=groups).problems


def _of_pages(desired: Desired, host: Host, notes: list[str]) -> list[Problem]:
    """What a run says against the huge pages that are to come; a note where the host does not tell its memory."""
    try:
        nodes = hugepages.read_nodes(host) if desired.pages else {}
    except UnreadableState as error:
        notes += [str(located(one, host)) for one in error.problems]
        return []
    return refusals(Reservation(desired.pages), nodes, hugepages.read_by_node(host))


def overview(
    desired: Desired, current: Current, records: Mapping[str, Mapping[str, Any]], answers: Round
) -> dict[str, Any]:
    """Each guest that is to be there, in the order of the inventory; ``problems`` are all reasons against."""
    placed = {one.shape.name: one for one in answers.placed}
    routes = Routes(current.machine)
    guests = []
    for wish in desired.present:
        name = wish.shape.name
        if name in placed:
            kept = name in records and record.placed_in(name, records[name]).devices == placed[name].devices
            guests.append(
                {
                    **_asked(wish),
                    "verdict": PLACED,
                    "on_record": kept,
                    **_given(placed[name], routes, current),
                    "notes": [*placed[name].notes, *_room(wish, placed[name], current)],
                }
            )
        else:
            reasons = [
                str(one)
                for one in answers.refused
                if one.path.startswith((wish.path + ".", record.path_of(name))) or one.path == wish.path
            ]
            why = [f"waits for {answers.waits_for}: {answers.why}"]
            guests.append({**_asked(wish), "verdict": REFUSED if reasons else WAITS, "reasons": reasons or why})
    return {"guests": guests, "problems": [str(one) for one in answers.refused]}


def _asked(wish: Wish) -> dict[str, Any]:
    shape = wish.shape
    return {"name": shape.name, "vcpus": shape.vcpus, "memory_mib": shape.memory_mib, "page_mib": shape.page_mib}


def _given(placed: Placed, routes: Routes, current: Current) -> dict[str, Any]:
    parts: dict[Part, list[Given]] = {part: [one for one in placed.devices if one.part is part] for part in Part}
    return {
        "gpus": [{"address": str(one.address), "node": one.node} for one in parts[Part.GPU]],
        "vfs": [
            {
                "address": str(one.address),
                "gpu": None if one.beside is None else str(one.beside),
                "distance": _distance(one, routes, current),
                "node": one.node,
            }
            for one in parts[Part.VF]
        ],
        "nvswitches": [str(one.address) for one in parts[Part.NVSWITCH]],
        "cells": [
            {"node": one.node, "cpus": list(one.cpus), "threads": one.threads, "memory_mib": one.memory_mib}
            for one in placed.cells
        ],
        "emulator_cpus": list(placed.emulator),
    }


def _room(wish: Wish, placed: Placed, current: Current) -> Iterator[str]:
    """What a guest's model would say of its regions; devices on record may be gone."""
    functions = current.machine.tree.functions
    there = [one.address for one in placed.devices if one.address in functions]
    return remarks(Firmware(wish.rest["firmware"]), window_of(current.machine, there))


def _distance(given: Given, routes: Routes, current: Current) -> str:
    """From the GPU that a VF is for to its PF, as audits measure it."""
    tree = current.machine.tree
    vf, gpu = tree.get(given.address), None if given.beside is None else tree.get(given.beside)
    pf = tree.get(vf.physfn) if vf is not None and isinstance(vf.physfn, Address) else vf
    return "UNKNOWN" if gpu is None or pf is None else routes.between(gpu, pf).kind.name


# For people ------------------------------------------------------------------------------


def text(result: Mapping[str, Any]) -> str:
    """A block for each guest: what it asks for, its pairs, its nodes, and what is to be known or stands against it."""
    lines = [line for one in result["guests"] for line in _block(one)] or ["No guest is asked for."]
    told = {reason for one in result["guests"] for reason in one.get("reasons", ())}
    lines += [one for one in result["problems"] if one not in told]
    return "".join(f"{line}\n" for line in [*lines, *result["notes"]])


def _block(guest: Mapping[str, Any]) -> Iterator[str]:
    asked = f"{counted(guest['vcpus'], 'vCPU')}, {_size(guest['memory_mib'])} in pages of {_size(guest['page_mib'])}"
    if guest["verdict"] != PLACED:
        said = "does not fit" if guest["verdict"] == REFUSED else "waits"
        yield f"{guest['name']}: {said} ({asked})"
        yield from (f"  {one}" for one in guest["reasons"])
        return
    counts = [(len(guest["gpus"]), "GPU"), (len(guest["vfs"]), "VF"), (len(guest["nvswitches"]), "NVSwitch")]
    devices = ", ".join(counted(number, noun) for number, noun in counts if number)
    where = "as on record" if guest["on_record"] else "new"
    yield f"{guest['name']}: {where}: {', '.join(filter(None, [devices, asked]))}"
    yield from _pairs(guest)
    yield from (f"  NVSwitch {one}" for one in guest["nvswitches"])
    for cell in guest["cells"]:
        yield f"  node {cell['node']}: CPUs {ranges(cell['cpus'])}; {_size(cell['memory_mib'])}"
    if guest["emulator_cpus"]:
        yield f"  QEMU's own threads: CPUs {ranges(guest['emulator_cpus'])}"
    yield from (f"  {one}" for one in guest["notes"])


def _pairs(guest: Mapping[str, Any]) -> Iterator[str]:
    for gpu in guest["gpus"]:
        beside = [one for one in guest["vfs"] if one["gpu"] == gpu["address"]]
        vfs = ", ".join(f"{one['distance']} VF {one['address']}" for one in beside) or "no VF"
        node = "?" if gpu["node"] is None else gpu["node"]
        yield f"  GPU {gpu['address']} (node {node}): {vfs}"


def _size(mib: int) -> str:
    return f"{mib // 1024} GiB" if mib % 1024 == 0 else f"{mib} MiB"
