# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One function of the model from what ``lspci`` says of it in text and in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Union

from ..core.change import ABSENT, Absent, Unreadable
from . import registers
from .address import Address
from .capabilities import Ats, Capabilities, Express, Words, decoded, device_serial
from .config_space import ConfigSpace
from .lspci_text import KERNEL, LISTED, REGIONS, Entry
from .machine import NOT_TOLD
from .tree import Bar, Function, Link, Number, Sriov, Word

# PCI Express port types that have no extended capability, or none that matters: those of the root complex itself.
_IN_THE_ROOT_COMPLEX = (9, 10)
_NAMES_ONLY = "lspci -v shows only the names of capabilities; run lspci -vvv"
_NOT_SHOWN = "the input does not show its capabilities; run lspci -vvv as root"
_CUT = "the input does not have the text of this function to its end"
_NO_LINE = "the input has its capability without the line about it"
_HIDDEN = "lspci as root shows it: its capabilities are withheld here ({})"
_SILENT = "the function does not answer: its configuration space reads as ones"
_TWICE = "the input says two different things about it"
# What no lspci tells.
_UNTOLD = dict.fromkeys(("netdevs", "rdma", "disks", "boot_vga"), "lspci does not tell it")


@dataclass
class Seen:
    """What the input says of a function: facts said twice and differently are left out of ``facts``."""

    entry: Entry
    facts: dict[str, Any]
    config: ConfigSpace
    header: dict[str, int]  # by the bytes

    @cached_property
    def class_code(self) -> Union[int, None]:
        """Base class and subclass."""
        if "class_code" in self.header:
            return self.header["class_code"] >> 8
        code = self.facts.get("class")
        return code if isinstance(code, int) else 0x0604 if "buses" in self.facts else None

    @cached_property
    def is_bridge(self) -> bool:
        """Whether a bus is below it."""
        return self.class_code in (0x0604, 0x0609)

    @cached_property
    def buses(self) -> Union[tuple[int, int], None]:
        """Secondary and subordinate bus."""
        return registers.buses(self.config) or self.facts.get("buses")

    @cached_property
    def by_bytes(self) -> Capabilities:
        """Capabilities as the bytes have them."""
        return decoded(self.config)

    @cached_property
    def capabilities(self) -> Capabilities:
        """Capabilities by the bytes, and where these do not tell, by the text."""
        found = self.by_bytes
        if not any(isinstance(one, Unreadable) for one in (found.express, found.acs, found.ats)):
            return found
        return Capabilities(
            found.express
            if not isinstance(found.express, Unreadable)
            else self._or_bytes(_express(self), found.express),
            found.acs if not isinstance(found.acs, Unreadable) else self._or_bytes(_acs(self), found.acs),
            found.ats if not isinstance(found.ats, Unreadable) else self._or_bytes(_ats(self), found.ats),
        )

    def _or_bytes(self, told: Any, by_bytes: Unreadable) -> Any:
        """What the text tells; where it has nothing either, the reason that the bytes give."""
        return by_bytes if isinstance(told, Unreadable) and self.config.data and "listing" not in self.facts else told

    @cached_property
    def port_type(self) -> Union[int, None]:
        """PCI Express port type."""
        express = self.capabilities.express
        kind = express.port_type if isinstance(express, Express) else None
        return kind if isinstance(kind, int) else None

    @cached_property
    def vfs(self) -> Union[registers.Vfs, Absent, Unreadable]:
        """The VF side, by bytes or by text."""
        by_bytes = registers.vfs(self.config)
        return self._or_bytes(_vfs(self), by_bytes) if isinstance(by_bytes, Unreadable) else by_bytes

    @cached_property
    def unlisted(self) -> Union[Absent, Unreadable]:
        """What it means that a capability of the extended space is not in the text."""
        return _unlisted(self)

    @cached_property
    def link_is_up(self) -> bool:
        """Whether a port says that something answers below it."""
        return "up" in self.facts or registers.link_is_up(self.config)


def seen(entry: Entry) -> Seen:
    """What an entry says, without what it says twice and differently."""
    data = b"" if "bytes" in entry.twice else bytes(entry.data)
    facts = (
        {name: value for name, value in entry.facts.items() if name not in entry.twice} if entry.twice else entry.facts
    )
    config = ConfigSpace(data)
    return Seen(entry, facts, config, registers.header(config) if config.answers else {})


def function(
    one: Seen,
    *,
    parent: Union[Address, None],
    root_bus: str,
    lost: str,
    may_be_vf: bool,
    vfs: tuple[Address, ...],
    pf: Union[Address, None],
    shown: tuple[bool, bool, bool],
) -> Function:
    """The function. ``lost`` says why its position is not known; ``shown``: whether NUMA nodes, groups, drivers are at all."""
    numa, groups, drivers = shown
    unread = dict(_UNTOLD)
    if lost:
        unread["parent"] = lost
    ids = _ids(one, unread)
    if pf is None and ("vf" in one.facts or _is_vf_by_bytes(one)):
        unread["physfn"] = "is a VF, and nothing in the input tells of which PF"
    elif pf is None and may_be_vf:
        unread["physfn"] = "the input does not tell the VFs of functions before it; run lspci -vvv as root"
    bars = _bars(one, unread)
    secondary, subordinate = (one.buses or (None, None)) if one.is_bridge else (None, None)
    told = one.capabilities
    return Function(
        address=one.entry.address,
        vendor=ids["vendor"],
        device=ids["device"],
        class_code=ids["class_code"],
        subsystem_vendor=ids["subsystem_vendor"],
        subsystem_device=ids["subsystem_device"],
        revision=ids["revision"],
        parent=parent,
        root_bus=root_bus,
        numa_node=_numa(one, numa),
        iommu_group=_said(one, "group", "lspci prints no IOMMU group of it" if groups else NOT_TOLD.cause),
        driver=_driver(one, drivers),
        driver_override=NOT_TOLD,
        link=_link(one),
        bars=bars,
        config=one.config,
        secondary_bus=secondary,
        subordinate_bus=subordinate,
        sriov=_sriov(one, vfs),
        physfn=pf,
        serial=_serial(one),
        told=None if told == one.by_bytes else told,
        unread=unread,
    )


def _is_vf_by_bytes(one: Seen) -> bool:
    return len(one.config.data) >= 64 and one.config.word(0, 4) == 0xFFFFFFFF and one.config.answers


def _ids(one: Seen, unread: dict[str, str]) -> dict[str, int]:
    """Ids, class and revision by their names in Function; of those that are not known the reason."""
    facts, header = one.facts, one.header
    found: dict[str, int] = {name: facts[name] for name in ("vendor", "device", "revision") if name in facts}
    if "subsystem" in facts:
        found["subsystem_vendor"], found["subsystem_device"] = facts["subsystem"]
    code = one.class_code or 0
    if "interface" in facts or "verbose" in facts or "names only" in facts:
        found["class_code"] = code << 8 | facts.get("interface", 0)  # 0 is not printed
    if "silent" in facts:
        found = {name: value for name, value in found.items() if name not in ("revision", "class_code")}
    found.update(header)
    reason = _SILENT if "silent" in facts else "the input does not have its number; run lspci with -nn -vvv"
    for name in ("vendor", "device", "class_code", "revision", "subsystem_vendor", "subsystem_device"):
        if name not in found:
            found[name] = code << 8 if name == "class_code" else 0
            unread["subsystem" if name.startswith("subsystem") else name] = _TWICE if _twice(one, name) else reason
    return found


def _twice(one: Seen, name: str) -> bool:
    return name in one.entry.twice or (name.startswith("subsystem") and "subsystem" in one.entry.twice)


def _said(one: Seen, name: str, otherwise: str) -> Number:
    value = one.facts.get(name)
    return value if isinstance(value, int) else Unreadable(_TWICE if name in one.entry.twice else otherwise)


def _numa(one: Seen, shown: bool) -> Number:
    """ABSENT where the text goes beyond the place where a node would be, and other functions have one."""
    node = _said(one, "numa", NOT_TOLD.cause)
    reached = one.entry.stage >= REGIONS or one.entry.closed
    detailed = "verbose" in one.facts or "names only" in one.facts
    return ABSENT if node == NOT_TOLD and shown and reached and detailed else node


def _driver(one: Seen, shown: bool) -> Word:
    """ABSENT where the text is there to its end, and says the drivers of other functions."""
    driver = one.facts.get("driver")
    if isinstance(driver, str):
        return driver
    if "driver" in one.entry.twice:
        return Unreadable(_TWICE)
    told = one.entry.closed and shown and (one.entry.stage > 0)
    return ABSENT if told else Unreadable(_CUT if one.entry.cut else NOT_TOLD.cause)


# Regions and link ------------------------------------------------------------------------


def _bars(one: Seen, unread: dict[str, str]) -> tuple[Bar, ...]:
    """The regions. Those of VFs have no size in such a text, and are not in here."""
    facts, entry = one.facts, one.entry
    bars = [facts[f"bar {index}"] for index in range(17) if f"bar {index}" in facts]
    if "unsized" in facts:
        unread["bars"] = "the input does not have the size of all of its regions, as where lspci reads a dump"
    elif "unnumbered" in facts:
        unread["bars"] = "lspci -v does not number regions; run lspci -vvv"
    elif not ("verbose" in facts or "names only" in facts):
        unread["bars"] = "the input does not show its regions; run lspci -vvv"
    elif entry.stage < LISTED and not entry.closed:
        unread["bars"] = _CUT
    elif any(name.startswith("bar ") for name in entry.twice):
        unread["bars"] = _TWICE
    return tuple(sorted(bars, key=lambda bar: bar.index))


def _link(one: Seen) -> Link:
    found = registers.link(one.config)
    if not isinstance(found.speed_max, Unreadable):
        return found
    express = one.capabilities.express
    if not isinstance(express, Express):
        return Link(express, express, express, express)
    if one.port_type in _IN_THE_ROOT_COMPLEX:
        return Link()
    names = ("speed", "speed best", "width", "width best")
    return Link(*(_of_link(one, name) for name in names))


def _of_link(one: Seen, name: str) -> Number:
    value = _said(one, name, _detail_missing(one))
    return (
        Unreadable(f"lspci shows no {name.split(maxsplit=1)[0]}, as the register tells none") if value == 0 else value
    )


def _detail_missing(one: Seen) -> str:
    """Why a line about a capability is not there, while the capability is."""
    if "silent" in one.facts:
        return _SILENT
    return _NAMES_ONLY if "names only" in one.facts and "verbose" not in one.facts else _NO_LINE


# Capabilities ----------------------------------------------------------------------------


def _unlisted(one: Seen) -> Union[Absent, Unreadable]:
    facts = one.facts
    unknown = _list_unknown(one)
    if unknown is not None:
        return unknown
    conventional = "express" not in facts or facts.get("type") in _IN_THE_ROOT_COMPLEX
    if conventional or "extended" in facts or facts.get("has capabilities") is False:
        return ABSENT
    return Unreadable(
        "no extended capability is shown of it: its extended configuration space may not have been readable"
    )


def _list_unknown(one: Seen) -> Union[Unreadable, None]:
    """Why the list of capabilities is not known to be whole."""
    facts, entry = one.facts, one.entry
    if "silent" in facts:
        return Unreadable(_SILENT)
    if "withheld" in facts:
        return Unreadable(_HIDDEN.format(facts["withheld"]))
    if facts.get("has capabilities") is False:
        return None
    if "listing" not in facts:
        shows = "verbose" in facts or "names only" in facts
        return Unreadable(_CUT if shows else _NOT_SHOWN)
    return None if entry.closed or entry.stage >= KERNEL else Unreadable(_CUT)


def _express(one: Seen) -> Union[Express, Absent, Unreadable]:
    facts = one.facts
    if "express" not in facts and "relaxed" not in facts and "payload" not in facts:
        return _list_unknown(one) or ABSENT
    why = Unreadable(_detail_missing(one))
    kind, relaxed = facts.get("type", why), facts.get("relaxed", why)
    return Express(kind, facts.get("read request", why), facts.get("payload", why), relaxed)


def _acs(one: Seen) -> Union[Words, Absent, Unreadable]:
    facts = one.facts
    if "ACSCap" in facts and "ACSCtl" in facts:
        return Words(facts["ACSCap"], facts["ACSCtl"])
    met = {"acs", "ACSCap", "ACSCtl"} & set(one.entry.facts)
    return Unreadable(_said_why(one, "ACSCap", "ACSCtl")) if met else one.unlisted


def _ats(one: Seen) -> Union[Ats, Absent, Unreadable]:
    """Of the capability word the text has the depth of the queue only."""
    facts = one.facts
    if "ATSCtl" in facts:
        return Ats(facts.get("ATSCap", 0), facts["ATSCtl"])
    met = {"ats", "ATSCap", "ATSCtl"} & set(one.entry.facts)
    return Unreadable(_said_why(one, "ATSCtl")) if met else one.unlisted


def _said_why(one: Seen, *names: str) -> str:
    return _TWICE if set(names) & one.entry.twice else _detail_missing(one)


def _vfs(one: Seen) -> Union[registers.Vfs, Absent, Unreadable]:
    names = ("vfs total", "vfs on", "vfs number", "vfs offset", "vfs stride", "vfs device")
    values = [one.facts.get(name) for name in names]
    if all(value is not None for value in values):
        total, on, number, offset, stride, device = (int(value) for value in values if value is not None)
        return registers.Vfs(total, number if on else 0, offset, stride, device)
    met = {"sriov", *names} & set(one.entry.facts)
    return Unreadable(_said_why(one, *names)) if met else one.unlisted


def _sriov(one: Seen, vfs: tuple[Address, ...]) -> Union[Sriov, Absent, Unreadable]:
    """The PF's side. What the kernel allows is not in the input: the register's number stands for it."""
    told = one.vfs
    if not isinstance(told, registers.Vfs):
        return told
    if len(vfs) < told.enabled:
        return Unreadable(f"{told.enabled} VFs at distance {told.offset} and {told.stride} cannot be")
    return Sriov(
        total=told.total,
        enabled=told.enabled,
        autoprobe=NOT_TOLD,
        offset=told.offset,
        stride=told.stride,
        vf_device=told.device,
        register=told.total,
        vfs=vfs,
    )


def _serial(one: Seen) -> Word:
    serial = device_serial(one.config)
    if not isinstance(serial, Unreadable):
        return serial
    told = one.facts.get("serial")
    if not told:
        return Unreadable(_said_why(one, "serial")) if "serial" in one.entry.facts else one.unlisted
    return ABSENT if set(told) in ({"0", "-"}, {"f", "-"}) else str(told)
