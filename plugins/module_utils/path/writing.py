# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writing one word of a function's configuration space, and reading it back."""

from __future__ import annotations

import errno
from dataclasses import dataclass

from ..core.errors import GpudirectError, Problem
from ..core.host import Host

DEVICES = "/sys/bus/pci/devices"
_STANDARD = 0x100  # capabilities below have one byte of identifier, those from here on two


@dataclass(frozen=True)
class SetWord:
    """Step: bits of a 16-bit register. ``never`` are bits that act when they are written as one, and never are.

    ``ids`` and the capability at ``capability`` have to be there still: nothing is written into another function.
    """

    address: str
    ids: str
    capability: int
    identifier: int
    register: int
    mask: int
    value: int
    never: int = 0


def carry_out(path: str, step: SetWord, host: Host) -> None:
    """Change the bits and leave the others as they are at that moment; a register that does not take them is an error."""
    config = f"{DEVICES}/{step.address}/config"
    _require_same(path, step, config, host)
    now = _word(path, config, step.register, host)
    word = (now & ~step.mask & ~step.never) | step.value
    try:
        host.write_bytes(config, word.to_bytes(2, "little"), step.register)
    except OSError as error:
        if error.errno != errno.EPERM:
            raise
        fact = "the kernel refuses writes to configuration space (lockdown, or no root)"
        raise GpudirectError([Problem(path, fact, "Set pci_path_acs: boot_argument, or lift the lockdown.")]) from error
    found = _word(path, config, step.register, host)
    if (found ^ word) & step.mask:
        fact = "the register does not take the word"
        advice = "See whether the function answers, and what else writes its registers."
        raise GpudirectError([Problem(path, fact, advice, f"0x{found:04x}", f"0x{word:04x}")])


def _require_same(path: str, step: SetWord, config: str, host: Host) -> None:
    size = 1 if step.capability < _STANDARD else 2
    vendor, device = (_word(path, config, at, host) for at in (0, 2))
    head = _word(path, config, step.capability, host) & ((1 << 8 * size) - 1)
    if f"{vendor:04x}:{device:04x}" != step.ids or head != step.identifier:
        fact = "another function is there than the one that was planned for, or it does not answer"
        raise GpudirectError([Problem(path, fact, "Run again.", f"{vendor:04x}:{device:04x}", step.ids)])


def _word(path: str, config: str, at: int, host: Host) -> int:
    data = host.read_bytes(config, 2, at)
    if isinstance(data, bytes) and len(data) == 2:
        return int.from_bytes(data, "little")
    cause = getattr(data, "cause", "there is nothing at that place")
    raise GpudirectError([Problem(path, f"{config} cannot be read at 0x{at:x}: {cause}", "Run as root on the host.")])
