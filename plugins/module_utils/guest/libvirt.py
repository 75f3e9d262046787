# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one door to libvirt. Its Python binding is imported here alone, and only when a host is asked.

What comes out are XML texts and plain data; nothing above this file knows that there is a binding. ``Libvirt`` is what the
resources need of it, so that tests play it by a fake.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ..core.errors import CommandFailed, Problem, UnreadableState
from ..core.host import Host
from ..core.once import once

URI = "qemu:///system"
DOMAINS, NETWORKS, POOLS = "domains", "networks", "pools"
_T = TypeVar("_T")


@dataclass(frozen=True)
class Thing:
    """A domain, network or pool. ``inactive`` is the XML of its next start, ``live`` that of now; empty: there is none."""

    name: str
    uuid: str
    active: bool
    autostart: bool = False
    inactive: str = ""
    live: str = ""

    @property
    def persistent(self) -> bool:
        """Whether it is defined; what is not goes when it stops."""
        return bool(self.inactive)


class Kind(Protocol):
    """All domains of a host, or all networks, or all pools. Every act but ``all`` raises CommandFailed with libvirt's words."""

    def all(self) -> Mapping[str, Thing]:
        """What is there, by name."""

    def define(self, xml: str) -> None:
        """Have it at every next start as the XML says; what runs is left alone."""

    def start(self, name: str) -> None:
        """Start what is defined."""

    def destroy(self, name: str) -> None:
        """End it at once; its definition stays."""

    def undefine(self, name: str, *, nvram: bool = False) -> None:
        """Forget it, and for a guest what its firmware keeps."""

    def autostart(self, name: str, on: bool) -> None:
        """Whether libvirt starts it by itself."""


class Domains(Kind, Protocol):
    """Guests can be asked to end, too, and whether they have."""

    def active(self, name: str) -> bool:
        """Whether a guest runs: one question, where the list tells the XML of all."""

    def shutdown(self, name: str) -> None:
        """Ask a guest to end; it takes its time and may refuse."""


class Libvirt(Protocol):
    """A connection."""

    domains: Domains
    networks: Kind
    pools: Kind


class NotThere(UnreadableState):
    """libvirt is not installed or does not run on this host."""


def reached(host: Host) -> Libvirt:
    """The libvirt of a host; NotThere where it has none, UnreadableState where it does not let us in."""
    return once(host, "libvirt", lambda: _there(host))


def told(host: Host, kind: str) -> Mapping[str, Thing]:
    """All domains, networks or pools of a host, by name: in a look each list is asked for once, whoever needs it."""
    return once(host, f"libvirt {kind}", lambda: _listed(reached(host), kind))


def _there(host: Host) -> Libvirt:
    there: Libvirt = host.reach(opened)
    return there


def _listed(there: Libvirt, kind: str) -> Mapping[str, Thing]:
    of: Kind = getattr(there, kind)
    return of.all()


def opened(uri: str = URI) -> Libvirt:
    """A new connection."""
    try:
        import libvirt  # noqa: PLC0415  # only a host with guests has it
    except ImportError as error:
        raise NotThere([_unusable(f"the Python binding of libvirt is not installed: {error}")]) from error
    libvirt.registerErrorHandler(_quiet, None)
    try:
        return _Connection(libvirt, libvirt.open(uri))
    except libvirt.libvirtError as error:
        kind = NotThere if "No such file" in str(error) or "Connection refused" in str(error) else UnreadableState
        raise kind([_unusable(str(error))]) from error


def _quiet(_context: object, _error: object) -> None:
    """Errors are raised; the binding would print them too."""


def _unusable(fact: str) -> Problem:
    return Problem("libvirt", fact.rstrip("."), "See systemctl status libvirtd virtqemud on the host.")


class _Connection:
    """The binding's connection in our words."""

    def __init__(self, binding: Any, connection: Any) -> None:
        self.domains: Domains = _Domains(binding, connection)
        self.networks: Kind = _Networks(binding, connection)
        self.pools: Kind = _Pools(binding, connection)


class _Kind(abc.ABC):
    """What domains, networks and pools have in common in the binding."""

    noun = ""

    def __init__(self, binding: Any, connection: Any) -> None:
        self.binding, self.connection = binding, connection

    def all(self) -> Mapping[str, Thing]:
        found = {}
        for one in self._said("list", self._listed):
            try:
                thing = self._thing(one)
            except self.binding.libvirtError as error:
                if error.get_error_code() not in self._gone():  # it has gone since it was listed
                    raise UnreadableState([Problem(f"libvirt {self.noun}", str(error), "Run again.")]) from error
                continue
            found[thing.name] = thing
        return found

    def define(self, xml: str) -> None:
        self._said("define", lambda: self._define(xml))

    def start(self, name: str) -> None:
        self._said(f"start {name}", lambda: self._named(name).create())

    def destroy(self, name: str) -> None:
        self._said(f"destroy {name}", lambda: self._named(name).destroy())

    def undefine(self, name: str, *, nvram: bool = False) -> None:
        del nvram
        self._said(f"undefine {name}", lambda: self._named(name).undefine())

    def autostart(self, name: str, on: bool) -> None:
        self._said(f"autostart {name}", lambda: self._named(name).setAutostart(int(on)))

    def _said(self, what: str, act: Callable[[], _T]) -> _T:
        try:
            return act()
        except self.binding.libvirtError as error:
            problem = Problem(
                f"libvirt {self.noun}: {what}", str(error).rstrip("."), "Mend what it names and run again."
            )
            raise CommandFailed([problem]) from error

    def _thing(self, one: Any) -> Thing:
        active = bool(one.isActive())
        return Thing(
            one.name(),
            one.UUIDString(),
            active,
            bool(one.autostart()) if one.isPersistent() else False,
            one.XMLDesc(self._inactive()) if one.isPersistent() else "",
            one.XMLDesc(0) if active else "",
        )

    @abc.abstractmethod
    def _listed(self) -> list[Any]:
        """Those of this kind that there are."""

    @abc.abstractmethod
    def _define(self, xml: str) -> None:
        """Give libvirt a definition."""

    @abc.abstractmethod
    def _named(self, name: str) -> Any:
        """The one of a name."""

    @abc.abstractmethod
    def _inactive(self) -> int:
        """The flags with which it tells what is defined."""

    @abc.abstractmethod
    def _gone(self) -> tuple[int, ...]:
        """The codes of an error that says that one has gone."""


class _Domains(_Kind):
    noun = "domain"

    def active(self, name: str) -> bool:
        try:
            return bool(self._named(name).isActive())
        except self.binding.libvirtError as error:
            if error.get_error_code() in self._gone():
                return False
            raise UnreadableState([Problem(f"libvirt {self.noun}", str(error), "Run again.")]) from error

    def shutdown(self, name: str) -> None:
        self._said(f"shutdown {name}", lambda: self._named(name).shutdown())

    def undefine(self, name: str, *, nvram: bool = False) -> None:
        flags = self.binding.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE | self.binding.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
        flags |= self.binding.VIR_DOMAIN_UNDEFINE_NVRAM if nvram else 0
        self._said(f"undefine {name}", lambda: self._named(name).undefineFlags(flags))

    def _listed(self) -> list[Any]:
        return list(self.connection.listAllDomains())

    def _define(self, xml: str) -> None:
        self.connection.defineXML(xml)

    def _named(self, name: str) -> Any:
        return self.connection.lookupByName(name)

    def _inactive(self) -> int:
        # With secrets, which would be lost otherwise when the definition is written again.
        return int(self.binding.VIR_DOMAIN_XML_INACTIVE | self.binding.VIR_DOMAIN_XML_SECURE)

    def _gone(self) -> tuple[int, ...]:
        return (self.binding.VIR_ERR_NO_DOMAIN,)


class _Networks(_Kind):
    noun = "network"

    def _listed(self) -> list[Any]:
        return list(self.connection.listAllNetworks())

    def _define(self, xml: str) -> None:
        self.connection.networkDefineXML(xml)

    def _named(self, name: str) -> Any:
        return self.connection.networkLookupByName(name)

    def _inactive(self) -> int:
        return int(self.binding.VIR_NETWORK_XML_INACTIVE)

    def _gone(self) -> tuple[int, ...]:
        return (self.binding.VIR_ERR_NO_NETWORK,)


class _Pools(_Kind):
    noun = "pool"

    def start(self, name: str) -> None:
        """With its folder, which is made where it is not there."""
        self._said(f"build {name}", lambda: self._named(name).build(0))
        super().start(name)

    def _listed(self) -> list[Any]:
        return list(self.connection.listAllStoragePools())

    def _define(self, xml: str) -> None:
        self.connection.storagePoolDefineXML(xml)

    def _named(self, name: str) -> Any:
        return self.connection.storagePoolLookupByName(name)

    def _inactive(self) -> int:
        return int(self.binding.VIR_STORAGE_XML_INACTIVE)

    def _gone(self) -> tuple[int, ...]:
        return (self.binding.VIR_ERR_NO_STORAGE_POOL,)
