# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``apply`` carries out on a host for guests: data, and the one place that does it. Every step may be repeated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from ..core.errors import GpudirectError, Problem
from ..core.host import Host
from . import conf, system


@dataclass(frozen=True)
class WriteFile:
    """Replace a file of ours."""

    path: str
    text: str


@dataclass(frozen=True)
class RemoveFile:
    """Remove a file of ours, and its folder when nothing else is in it."""

    path: str
    with_folder: bool = False


@dataclass(frozen=True)
class SetAttributes:
    """Give kernel attributes their texts; those that are gone meanwhile (a CPU went offline) are passed over."""

    texts: Mapping[str, str] = field(hash=False)


@dataclass(frozen=True)
class RunPrograms:
    """Run programs in order."""

    programs: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class NeedPackages:
    """The role has installed these by now; otherwise say so."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class EditConf:
    """Set settings of qemu.conf as it is now."""

    settings: Mapping[str, Any] = field(hash=False)


@dataclass(frozen=True)
class RestoreConf:
    """Put settings of qemu.conf back, where ours still stand."""

    before: Mapping[str, Union[str, None]] = field(hash=False)
    ours: Mapping[str, Sequence[str]] = field(hash=False)
    ended: bool = True


Step = Union[WriteFile, RemoveFile, SetAttributes, RunPrograms, NeedPackages, EditConf, RestoreConf]


def carry_out(steps: Iterable[Step], host: Host) -> None:
    """Do the steps in order."""
    for step in steps:
        if isinstance(step, WriteFile):
            host.write_text(step.path, step.text)
        elif isinstance(step, RemoveFile):
            host.remove(step.path, with_folder=step.with_folder)
        elif isinstance(step, SetAttributes):
            _set(step, host)
        elif isinstance(step, RunPrograms):
            for program in step.programs:
                host.run(list(program))
        elif isinstance(step, NeedPackages):
            _need(step, host)
        else:
            _edit(step, host)


def _set(step: SetAttributes, host: Host) -> None:
    for path, text in sorted(step.texts.items()):
        if not host.exists(path):
            continue
        try:
            host.write_attribute(path, text)
        except OSError as error:
            fact = f"the kernel refused {text!r}: {error.strerror}"
            raise GpudirectError([Problem(path, fact, "See the kernel log of the host.")]) from error


def _need(step: NeedPackages, host: Host) -> None:
    missing = [name for name in system.missing(host, system.family(host)) if name in step.names]
    if missing:
        advice = "Run the role kvm, or install them; the module alone installs nothing."
        raise GpudirectError([Problem("kvm.packages", f"are not installed: {', '.join(missing)}", advice)])


def _edit(step: EditConf | RestoreConf, host: Host) -> None:
    text = system.text_of(host, conf.PATH)
    if text is None:
        raise GpudirectError([Problem(conf.PATH, "is not there any more", "Install libvirt again, and run again.")])
    new = conf.with_settings(text, step.settings) if isinstance(step, EditConf) else _restored(text, step)
    if new != text:
        host.write_text(conf.PATH, new)


def _restored(text: str, step: RestoreConf) -> str:
    return conf.without(text, step.before, step.ours, ended=step.ended)
