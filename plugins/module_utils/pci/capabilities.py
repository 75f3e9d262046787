# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words of those capabilities that policies look at. Offsets: Linux include/uapi/linux/pci_regs.h."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from ..core.change import ABSENT, Absent, Unreadable
from .config_space import ACS, ATS, EXPRESS, RESIZABLE, SERIAL, SRIOV, ConfigSpace

# Names of the bits of both ACS words, lowest first, as lspci writes them.
ACS_BITS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")

# PCI Express port types by the register (Linux pci_regs.h PCI_EXP_TYPE_*).
PORT_TYPES = {
    0: "endpoint",
    1: "legacy endpoint",
    4: "root port",
    5: "upstream port",
    6: "downstream port",
    7: "bridge to PCI",
    8: "bridge from PCI",
    9: "root complex endpoint",
    10: "root complex event collector",
}


@dataclass(frozen=True)
class Words:
    """What a function can do and what is switched on in it, as the registers hold it."""

    capability: int
    control: int


@dataclass(frozen=True)
class Ats(Words):
    """Address Translation Services."""

    @property
    def enabled(self) -> bool:
        """Whether the function may ask for translations. Of a VF that means something only while a guest has it."""
        return bool(self.control & 0x8000)

    @property
    def smallest_unit(self) -> int:
        """Smallest translation unit: 0 is 4 KiB, 1 is 8 KiB and so on."""
        return self.control & 0x1F


@dataclass(frozen=True)
class Express:
    """The PCI Express capability: port type as in the register, sizes in bytes."""

    port_type: Union[int, Absent, Unreadable]
    max_read_request: Union[int, Absent, Unreadable]
    max_payload: Union[int, Absent, Unreadable]
    relaxed_ordering: Union[bool, Absent, Unreadable]


@dataclass(frozen=True)
class Capabilities:
    """What a function's capabilities say, from its bytes or, where a reader had none, from a text about them."""

    express: Union[Express, Absent, Unreadable]
    acs: Union[Words, Absent, Unreadable]
    ats: Union[Ats, Absent, Unreadable]


def decoded(config: ConfigSpace) -> Capabilities:
    """The capabilities as the bytes of a configuration space have them."""
    return Capabilities(express(config), acs(config), ats(config))


def express(config: ConfigSpace) -> Union[Express, Absent, Unreadable]:
    """Port type and device control of a PCI Express function (Linux pci_regs.h PCI_EXP_FLAGS, PCI_EXP_DEVCTL)."""
    at = config.capability(EXPRESS)
    if not isinstance(at, int):
        return at
    if at + 10 > len(config.data):
        return Unreadable(f"only {len(config.data)} bytes of configuration space are readable")
    control = config.word(at + 8)
    return Express(
        config.word(at + 2) >> 4 & 0xF, 128 << (control >> 12 & 7), 128 << (control >> 5 & 7), bool(control & 0x10)
    )


def acs(config: ConfigSpace) -> Union[Words, Absent, Unreadable]:
    """Access Control Services of a port."""
    at = config.extended(ACS)
    return Words(config.word(at + 4), config.word(at + 6)) if isinstance(at, int) else at


def acs_names(word: int) -> list[str]:
    """The names of the bits that are set in an ACS word."""
    return [name for bit, name in enumerate(ACS_BITS) if word >> bit & 1]


def ats(config: ConfigSpace) -> Union[Ats, Absent, Unreadable]:
    """Address Translation Services of a device."""
    at = config.extended(ATS)
    return Ats(config.word(at + 4), config.word(at + 6)) if isinstance(at, int) else at


def device_serial(config: ConfigSpace) -> Union[str, Absent, Unreadable]:
    """Device Serial Number as lspci writes it; one of zeros or of ones was never given."""
    at = config.extended(SERIAL)
    if not isinstance(at, int):
        return at
    number = config.data[at + 4 : at + 12][::-1]
    return ABSENT if set(number) in ({0x00}, {0xFF}) else "-".join(f"{byte:02x}" for byte in number)


def total_vfs(config: ConfigSpace) -> Union[int, Absent, Unreadable]:
    """TotalVFs of the SR-IOV capability. The driver may allow fewer."""
    at = config.extended(SRIOV)
    return config.word(at + 0x0E) if isinstance(at, int) else at


def resizable(config: ConfigSpace) -> list[tuple[int, int, int]]:
    """Of each resizable region its index, its size and the largest that it could have, in MiB; none where that is not known.

    Layout: Linux include/uapi/linux/pci_regs.h PCI_REBAR_CAP, PCI_REBAR_CTRL.
    """
    at = config.extended(RESIZABLE)
    if not isinstance(at, int) or at + 12 > len(config.data):
        return []
    found = []
    for entry in range(config.word(at + 8, 4) >> 5 & 7):
        start = at + 4 + 8 * entry
        if start + 8 > len(config.data):
            break
        sizes, control = config.word(start, 4) >> 4, config.word(start + 4, 4)
        if sizes:
            found.append((control & 7, 1 << (control >> 8 & 0x3F), 1 << (sizes.bit_length() - 1)))
    return found
