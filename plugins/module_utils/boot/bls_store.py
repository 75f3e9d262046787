# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The next boot's kernel arguments on a BLS system (RHEL, Rocky 9 and 10): every entry, and what future ones start from.

Each entry is one file and one change, written whole: grubby would change every entry of the same kernel, expand
variables such as $tuned_params for good, leave arguments in quotes and second copies of bare words, and it reads & as a
reference. An entry that nobody else touched gets its old bytes back on undo.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.change import ABSENT, Change, Unreadable
from ..core.errors import HostRefused, Problem, UnreadableState
from ..core.host import Host
from . import bls, grub
from .cmdline import Group, Line, name_of, without
from .edited import NAMES, Base, WriteText, base_of, record_of, restored_why


@dataclass(frozen=True)
class Store:
    """Entries by path, the line for future kernels and GRUB's defaults (None where there is no such file)."""

    entries: Mapping[str, str]
    future: str | None
    defaults: str | None

    @property
    def lines(self) -> tuple[Line, ...]:
        """The command lines of all entries."""
        return tuple(bls.entry(path, text).line for path, text in sorted(self.entries.items()))

    @property
    def writes(self) -> tuple[str, ...]:
        """Every file that a plan may write."""
        return (
            *self.entries,
            *(path for path, text in ((bls.FUTURE, self.future), (grub.DEFAULTS, self.defaults)) if text is not None),
        )


def read(host: Host) -> Store:
    """All boot entries and the sources of future ones."""
    names = host.names(bls.ENTRIES)
    if isinstance(names, Unreadable):
        raise UnreadableState([Problem(bls.ENTRIES, f"cannot be read: {names.cause}", "Run as root on the host.")])
    paths = [] if names is ABSENT else [f"{bls.ENTRIES}/{name}" for name in tuple(names) if name.endswith(".conf")]  # type: ignore[arg-type]
    texts = {path: text for path in paths if (text := _text(host, path)) and bls.boots_linux(text)}
    return Store(texts, _text(host, bls.FUTURE), _text(host, grub.DEFAULTS))


def _text(host: Host, path: str) -> str | None:
    text = host.read_text(path)
    if isinstance(text, Unreadable):
        raise UnreadableState([Problem(path, f"cannot be read: {text.cause}", "Run as root on the host.")])
    return None if text is ABSENT else str(text)


def plan(groups: Sequence[Group], store: Store, owned: Mapping[str, Any], former: frozenset[str]) -> list[Change]:
    """Ordered changes: sources of future entries first, so that a kernel installed meanwhile is right, then each entry."""
    inherited = [path for path, text in store.entries.items() if "$kernelopts" in bls.entry(path, text).arguments]
    if inherited and groups:
        raise HostRefused(
            [
                Problem(
                    path,
                    "takes its arguments from grubenv ($kernelopts), as RHEL 8 does",
                    "RHEL and Rocky 9 and 10 are supported.",
                )
                for path in inherited
            ]
        )
    switch = grub.switched_off_bls(store.defaults or "")
    if groups and switch:
        raise HostRefused(
            [
                Problem(
                    grub.DEFAULTS,
                    f"switches {bls.ENTRIES} off, and nothing of it would be booted",
                    "Set GRUB_ENABLE_BLSCFG=true and run grub2-mkconfig.",
                    found=switch,
                    wanted="GRUB_ENABLE_BLSCFG=true",
                )
            ]
        )
    changes = [] if store.defaults is None else _defaults_change(groups, store.defaults, owned)
    lines = {} if store.future is None else {bls.FUTURE: store.future}
    for path, text in (*lines.items(), *sorted(store.entries.items())):
        changes += _line_change(groups, path, text, _base(path, text, store, owned), former)
    return changes


def expected(groups: Sequence[Group], store: Store, owned: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The arguments that each entry has once the plan is carried out."""
    return [
        _wanted(groups, bls.arguments_of(path, _base(path, text, store, owned).text))
        for path, text in sorted(store.entries.items())
    ]


def longest(groups: Sequence[Group], store: Store, owned: Mapping[str, Any]) -> int:
    """Bytes of the longest command line once the plan is carried out."""
    kernels = [bls.entry(path, text).kernel for path, text in sorted(store.entries.items())]
    return max(map(bls.length_of, kernels, expected(groups, store, owned)), default=0)


def _wanted(groups: Sequence[Group], base: tuple[str, ...]) -> tuple[str, ...]:
    """A line with every unmet group's names taken out and its wanted arguments at the end; the rest as it was."""
    unmet = [group for group in groups if not group.met_by(base)]
    kept = without(base, {name for group in unmet for name in group.names})
    return kept + tuple(argument for group in unmet for argument in group.wanted(base))


def _base(path: str, text: str, store: Store, owned: Mapping[str, Any]) -> Base:
    """What a plan of this file starts from.

    The entry of a kernel that was installed after us inherited our arguments: without us it would have those that
    the line for future kernels had then.
    """
    record = owned.get(_path(path))
    ours = owned.get(NAMES)
    if record is not None or ours is None or path == bls.FUTURE or path in ours.get("entries", (path,)):
        return base_of(text, record, lambda now, old: _without_us(path, now, old))
    names = frozenset(ours["names"])
    origin = () if store.future is None else bls.arguments_of(bls.FUTURE, _future_base(store, owned))
    arguments = without(bls.arguments_of(path, text), names) + tuple(one for one in origin if name_of(one) in names)
    return Base(bls.changed(path, text, arguments), False)


def _future_base(store: Store, owned: Mapping[str, Any]) -> str:
    return _base(bls.FUTURE, store.future or "", store, owned).text


def _without_us(path: str, text: str, record: Mapping[str, Any]) -> str:
    """A line that somebody edited after us: what we added goes, what we had taken out comes back at the end."""
    kept = tuple(one for one in bls.arguments_of(path, text) if one not in record["added"])
    have = {name_of(one) for one in kept}
    taken = bls.arguments_of(path, record["before"])
    lost = tuple(one for one in taken if name_of(one) in record["names"] and name_of(one) not in have)
    return bls.changed(path, text, kept + lost)


def _line_change(groups: Sequence[Group], path: str, text: str, base: Base, former: frozenset[str]) -> list[Change]:
    """The change of an entry, or of the line for future kernels; none when it says what it should."""
    current = bls.arguments_of(path, text)
    start = bls.arguments_of(path, base.text)
    wanted = _wanted(groups, start)
    names = _differing(current, wanted)
    if all(group.met_by(current) for group in groups) and not former & names:
        return []
    own = _path(path)
    before, after = ([one for one in line if name_of(one) in names] for line in (current, wanted))
    target = bls.changed(path, base.text, wanted)
    if target == base.text:
        step = WriteText(path, target)
        return [Change(own, before, after, restored_why(base), step=step, forget=(own,))]
    taken = _differing(start, wanted)
    added = tuple(one for one in wanted if name_of(one) in taken)
    record = record_of(base, text, target, taken, added)
    why = "the inventory's arguments for every next boot"
    return [Change(own, before, after, why, step=WriteText(path, target), remember={own: record})]


def _differing(one: tuple[str, ...], other: tuple[str, ...]) -> frozenset[str]:
    """The names that two lines say different things about."""
    both = {name_of(argument) for argument in (*one, *other)}
    return frozenset(name for name in both if _named(name, one) != _named(name, other))


def _named(name: str, line: tuple[str, ...]) -> list[str]:
    return [one for one in line if name_of(one) == name]


def _defaults_change(groups: Sequence[Group], text: str, owned: Mapping[str, Any]) -> list[Change]:
    path = _path(grub.DEFAULTS)
    base = base_of(text, owned.get(path), grub.restored)
    foreign = grub.effective([base.text])
    unmet = [group for group in groups if not group.met_by(foreign)]
    names = frozenset(name for group in unmet for name in group.names)
    added = tuple(argument for group in unmet for argument in group.wanted(foreign))
    target = grub.extended(grub.stripped(base.text, names), added) if groups else base.text
    if target == text:
        return []
    restored = target == base.text
    return [
        Change(
            path,
            list(grub.effective([text])),
            list(grub.effective([target])),
            restored_why(base) if restored else "grub2-mkconfig takes the arguments of new entries from it",
            step=WriteText(grub.DEFAULTS, target),
            remember={} if restored else {path: record_of(base, text, target, names, added)},
            forget=(path,) if restored else (),
        )
    ]


def _path(path: str) -> str:
    return f"kernel_args[{path}]"
