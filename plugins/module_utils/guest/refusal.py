# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a guest does not fit, and what to do, in sentences. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..core.errors import Problem
from ..path.finding import Kind
from ..path.labels import counted
from ..pci.address import Address
from ..pci.tree import Function
from .pairing import Pairing
from .placed import Refused, Shape
from .stock import Stock

# A fact about a guest, and what to do.
Why = tuple[str, str]

_SHOWN = 8
_WITHIN = {
    Kind.PIX: "below its switch",
    Kind.PXB: "below its root port",
    Kind.PHB: "below its host bridge",
    Kind.NODE: "on its NUMA node",
}


def spelled(shape: Shape, reasons: Iterable[Why]) -> tuple[str, ...]:
    """Reasons in the house form, each once."""
    return tuple(dict.fromkeys(f"{shape.name}: {fact}. {advice}" for fact, advice in reasons))


def sentence(path: str, reason: str) -> Problem:
    """A reason of placement, which has its advice in it."""
    fact, _dot, advice = reason.partition(". ")
    return Problem(path, f"the guest does not fit this host: {fact.rstrip('.')}", advice or "Ask for less.")


def repeated(shape: Shape, times: int) -> Refused:
    """A name that several shapes have, so that nobody knows which one is meant."""
    return Refused(shape, spelled(shape, [(f"is the name of {times} shapes", "Give each guest a name of its own.")]))


def of_gpus(stock: Stock, shape: Shape, only: Sequence[Address] | None) -> list[Why]:
    """Too few GPUs; empty: they suffice."""
    asked = [gpu.address for gpu in stock.gpus] if only is None else sorted(only)
    known = {gpu.address for gpu in stock.gpus}
    hindered: dict[str, list[Address]] = {}
    for address in asked:
        why = stock.why_not(address, shape.name) if address in known else "is no GPU that guests of this host may have"
        if why:
            hindered.setdefault(why, []).append(address)
    free, causes = len(asked) - sum(map(len, hindered.values())), _together(hindered)
    if free >= shape.gpus:
        return []
    where = "" if only is None else f" of partition {shape.nvswitches}"
    if only is None and shape.gpus > len(asked):
        causes.insert(0, f"the host has {len(asked)}")
    fact = f"needs {counted(shape.gpus, 'GPU')}{where}, {free} {'is' if free == 1 else 'are'} free{_listed(causes)}"
    return [(fact, "Shrink the shape, free these GPUs, or place it on another host.")]


def of_vfs(pairing: Pairing, shape: Shape, only: Sequence[Address] | None) -> list[Why]:
    """Too few VFs near enough for the free GPUs."""
    stock = pairing.stock
    free = [gpu for gpu in stock.gpus if stock.is_free(gpu, shape.name) and (only is None or gpu.address in only)]
    supply = pairing.supply(shape.name)
    wanted = f"needs {counted(shape.gpus * shape.vfs_per_gpu, 'VF')}, {shape.vfs_per_gpu} for each of {counted(shape.gpus, 'GPU')}"
    total = sum(supply.values())
    fact = f"{wanted}, and {total} {'is' if total == 1 else 'are'} free{_listed(_taken(stock, shape.name))}"
    found = [(fact, "Ask for more VFs in sriov_ports, bind them to vfio-pci, or lower vfs_per_gpu.")]
    if pairing.limit in _WITHIN and total >= shape.gpus * shape.vfs_per_gpu:
        short = [
            f"{gpu.address} has {near}" for gpu in free if (near := _near(pairing, gpu, supply)) < shape.vfs_per_gpu
        ]
        fact = f"{wanted}, and too few are free {_WITHIN[pairing.limit]}{_listed(short)}"
        found = [
            (fact, "Ask for VFs on the NICs there in sriov_ports, lower vfs_per_gpu, or allow a greater distance.")
        ]
    return found


def _near(pairing: Pairing, gpu: Function, supply: dict[Address, int]) -> int:
    """Free VFs that are near enough to a GPU."""
    return sum(supply[nic] for kind, nics in pairing.nics(gpu).items() if pairing.allows(kind) for nic in nics)


def _taken(stock: Stock, guest: str) -> list[str]:
    """Why VFs are not free, those of one cause together."""
    causes: dict[str, list[Address]] = {}
    for vfs in stock.nics.values():
        for vf in vfs:
            why = stock.why_not(vf.address, guest)
            if why:
                causes.setdefault(why, []).append(vf.address)
    return _together(causes)


def _together(causes: Mapping[str, Sequence[Address]]) -> list[str]:
    """Devices that one cause hinders, in one line."""
    lines = []
    for why, addresses in sorted(causes.items(), key=lambda one: min(one[1])):
        first, more = min(addresses), len(addresses) - 1
        lines.append(f"{first} {why}" + (f", and so {'is' if more == 1 else 'are'} {more} more" if more else ""))
    return lines


def _listed(causes: Sequence[str]) -> str:
    if not causes:
        return ""
    more = [f"and {len(causes) - _SHOWN} more"] if len(causes) > _SHOWN else []
    return f" ({'; '.join([*causes[:_SHOWN], *more])})"
