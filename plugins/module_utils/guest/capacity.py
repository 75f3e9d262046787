# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which guests a host can never take, told while they still wait for other resources of the run. Pure.

``placement`` itself answers, for the host as it will be at its best (``converged``). A guest that does not even fit that host alone fits
it never. What several guests get depends on all of them, so that guests are only refused for the sake of others where all together ask
for more than there is of something: placement then says which of them come too late.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from .. import placement
from ..core.errors import Problem
from .choice import MOST
from .converged import Converged, converged
from .found import Current
from .intent import Wish
from .placed import Placed, Refused, Shape
from .refusal import sentence
from .room import Room
from .stock import Stock
from .wanted import Desired


def hopeless(
    desired: Desired, current: Current, waiting: Collection[str], existing: Sequence[Placed]
) -> Mapping[str, list[Problem]]:
    """The waiting guests that this host can never take, each with every reason. ``existing`` are those on record."""
    host = converged(desired, current) if waiting else None
    if host is None:
        return {}
    wishes = {wish.shape.name: wish for wish in desired.present}
    return _Capacity(desired, host).refused({name: wishes[name] for name in waiting}, wishes, existing)


@dataclass(frozen=True)
class _Capacity:
    """What a host has at its best, beside what guests ask for."""

    desired: Desired
    host: Converged

    def refused(
        self, waiting: Mapping[str, Wish], wishes: Mapping[str, Wish], existing: Sequence[Placed]
    ) -> Mapping[str, list[Problem]]:
        """By guest: alone first, and then with those that are left."""
        found: dict[str, Refused] = {}
        for wish in waiting.values():
            if self._is_judged(wish.shape):
                found.update(self._answers([wish.shape], ()))
        left = [wish.shape for name, wish in wishes.items() if name not in found]
        if self._too_much(left):
            found.update(self._answers(left, existing))
        return {
            name: [sentence(wish.path, reason) for reason in found[name].reasons]
            for name, wish in waiting.items()
            if name in found
        }

    def _answers(self, shapes: Sequence[Shape], existing: Sequence[Placed]) -> dict[str, Refused]:
        host, guests = self.host, self.desired.guests
        answers = placement.place(
            host.machine, host.nodes, shapes, existing, host.selection,
            reserved=guests.reserved, max_distance=guests.max_distance,
        )  # fmt: skip
        return {one.shape.name: one for one in answers if isinstance(one, Refused)}

    def _is_judged(self, shape: Shape) -> bool:
        """Whether placement weighs every choice of GPUs: else one that it leaves out here may be found on a host with fewer."""
        return math.comb(len(self.host.selection.gpus), shape.gpus) <= MOST

    def _too_much(self, shapes: Sequence[Shape]) -> bool:
        """Whether guests together ask for more than there is, however it is shared out."""
        stock, room = Stock(self.host.machine, self.host.selection), Room(self.host.nodes, self.desired.guests.reserved)
        gpus = [one for one in stock.gpus if one.address not in stock.gone]
        vfs = [vf for those in stock.nics.values() for vf in those if vf.address not in stock.gone]
        cpus = sum(len(room.whole(node)) for node in room.cores) * room.threads
        memory: Counter[int] = Counter()
        for shape in shapes:
            memory[shape.page_mib] += shape.memory_mib
        return (
            sum(shape.gpus for shape in shapes) > len(gpus)
            or sum(shape.gpus * shape.vfs_per_gpu for shape in shapes) > len(vfs)
            or sum(shape.vcpus for shape in shapes) > cpus
            or any(mib > size * sum(room.free_pages(node, size) for node in room.pages) for size, mib in memory.items())
            or self._shared_partition(shapes)
        )

    def _shared_partition(self, shapes: Sequence[Shape]) -> bool:
        """Whether two guests ask for partitions that have a GPU in common."""
        partitions = self.host.selection.partitions
        gpus = Counter(gpu for shape in shapes for gpu in partitions.get(shape.nvswitches, ()))
        return any(count > 1 for count in gpus.values())
