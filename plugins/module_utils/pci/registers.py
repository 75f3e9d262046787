# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the bytes of configuration space say where no kernel says it: ids, buses, link and VFs.

Offsets: Linux include/uapi/linux/pci_regs.h.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from ..core.change import ABSENT, Absent, Unreadable
from .config_space import EXPRESS, SRIOV, ConfigSpace
from .tree import Link, Number

_SUBSYSTEM_OF_A_BRIDGE = 0x0D  # capability
_SPEEDS = {1: 25, 2: 50, 3: 80, 4: 160, 5: 320, 6: 640}
_IN_THE_ROOT_COMPLEX = (9, 10)  # port types without a link


@dataclass(frozen=True)
class Vfs:
    """The SR-IOV capability as its registers have it."""

    total: int
    enabled: int  # NumVFs where VF Enable is set
    offset: int
    stride: int
    device: int


def header(config: ConfigSpace) -> dict[str, int]:
    """Ids, class and revision by their names in Function. Those of a VF do not hold its ids, and give nothing."""
    if len(config.data) < 0x30 or config.word(0) == 0xFFFF:
        return {}
    found = {
        "vendor": config.word(0x00),
        "device": config.word(0x02),
        "revision": config.data[0x08],
        "class_code": config.word(0x09, 3),
    }
    if config.data[0x0E] & 0x7F == 0:
        return {**found, "subsystem_vendor": config.word(0x2C), "subsystem_device": config.word(0x2E)}
    at = config.capability(_SUBSYSTEM_OF_A_BRIDGE)
    if isinstance(at, Unreadable):
        return found
    words = (config.word(at + 4), config.word(at + 6)) if isinstance(at, int) else (0, 0)
    return {**found, "subsystem_vendor": words[0], "subsystem_device": words[1]}


def buses(config: ConfigSpace) -> Union[tuple[int, int], None]:
    """The bus below a bridge and the last one below that."""
    if len(config.data) < 0x1B or not config.answers or config.data[0x0E] & 0x7F != 1:
        return None
    return config.data[0x19], config.data[0x1A]


def link(config: ConfigSpace) -> Link:
    """The link of a PCI Express function."""
    at = config.capability(EXPRESS)
    if isinstance(at, int) and at + 0x14 > len(config.data):
        at = Unreadable(f"only {len(config.data)} bytes of configuration space are readable")
    if isinstance(at, int) and config.word(at + 2) >> 4 & 0xF in _IN_THE_ROOT_COMPLEX:
        at = ABSENT
    if not isinstance(at, int):
        return Link(at, at, at, at)
    best, now = config.word(at + 0x0C, 4), config.word(at + 0x12)
    return Link(_speed(now), _speed(best), _width(now), _width(best))


def _speed(word: int) -> Number:
    return _SPEEDS.get(word & 0xF, Unreadable(f"the register says {word & 0xF}, which tells no speed"))


def _width(word: int) -> Number:
    return word >> 4 & 0x3F or Unreadable("the register says 0, which tells no width")


def link_is_up(config: ConfigSpace) -> bool:
    """Whether a port reports that something answers at the other end of its link (Data Link Layer Link Active)."""
    at = config.capability(EXPRESS)
    return isinstance(at, int) and at + 0x14 <= len(config.data) and bool(config.word(at + 0x12) & 0x2000)


def vfs(config: ConfigSpace) -> Union[Vfs, Absent, Unreadable]:
    """The VF side of a function."""
    at = config.extended(SRIOV)
    if not isinstance(at, int):
        return at
    enabled = config.word(at + 0x10) if config.word(at + 8) & 1 else 0
    return Vfs(config.word(at + 0x0E), enabled, *(config.word(at + offset) for offset in (0x14, 0x16, 0x1A)))
