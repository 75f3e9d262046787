# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The next boot's kernel arguments on a BLS system (RHEL, Rocky 9 and 10): every entry, and what future ones start from.

Entries are set with grubby, one by one, old values of an owned name removed first (grubby alone may leave them). An entry
that nobody else touched gets its old bytes back on undo.
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
from .edited import Base, Grubby, WriteText, base_of, digest, record_of


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
    return Store({path: _text(host, path) or "" for path in paths}, _text(host, bls.FUTURE), _text(host, grub.DEFAULTS))


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
    changes: list[Change] = []
    if store.defaults is not None:
        changes += _defaults_change(groups, store.defaults, owned)
    if store.future is not None:
        changes += _line_change(groups, bls.FUTURE, store.future, owned, former)
    for path, text in sorted(store.entries.items()):
        changes += _line_change(groups, path, text, owned, former)
    return changes


def expected(groups: Sequence[Group], store: Store, owned: Mapping[str, Any]) -> tuple[str, ...]:
    """The arguments that the first entry has once the plan is carried out."""
    for path, text in sorted(store.entries.items()):
        arguments = bls.entry(path, text).arguments
        return _wanted(groups, _base(path, arguments, text, owned)[0])
    return ()


def _wanted(groups: Sequence[Group], base: tuple[str, ...]) -> tuple[str, ...]:
    """A line with every unmet group's names taken out and its wanted arguments at the end; the rest as it was."""
    unmet = [group for group in groups if not group.met_by(base)]
    kept = without(base, {name for group in unmet for name in group.names})
    return kept + tuple(argument for group in unmet for argument in group.wanted(base))


def _base(path: str, arguments: tuple[str, ...], text: str, owned: Mapping[str, Any]) -> tuple[tuple[str, ...], bool]:
    """The arguments a plan starts from, and whether they are those of before our first edit.

    grubby rewrites an entry in its own spacing, so ours is recognised by its arguments, not by its bytes.
    """
    record = owned.get(_path(path))
    if record is None:
        return arguments, True
    before = bls.entry(path, record["before"]).arguments if path != bls.FUTURE else bls.arguments(record["before"])
    if text == record["before"] or digest(" ".join(arguments)) == record["after"]:
        return before, True
    taken = tuple(one for one in before if name_of(one) in record["names"])
    return arguments + tuple(one for one in taken if name_of(one) not in {name_of(have) for have in arguments}), False


@dataclass(frozen=True)
class _Edit:
    """One line of kernel arguments in a file: as it is, as it should be, and the names that differ."""

    path: str
    text: str
    current: tuple[str, ...]
    target: tuple[str, ...]

    @property
    def names(self) -> frozenset[str]:
        both = {name_of(one) for one in (*self.current, *self.target)}
        return frozenset(name for name in both if _named(name, self.current) != _named(name, self.target))

    def of(self, line: tuple[str, ...]) -> list[str]:
        return [one for one in line if name_of(one) in self.names]


def _line_change(
    groups: Sequence[Group], path: str, text: str, owned: Mapping[str, Any], former: frozenset[str]
) -> list[Change]:
    """The change of an entry, or of the line for future kernels; none when it says what it should."""
    current = bls.arguments(text) if path == bls.FUTURE else bls.entry(path, text).arguments
    base, pristine = _base(path, current, text, owned)
    edit = _Edit(path, text, current, _wanted(groups, base))
    if _met(groups, edit, former):
        return []
    own = _path(path)
    before, after = edit.of(edit.current), edit.of(edit.target)
    if pristine and edit.target == base:
        step = WriteText(path, owned[own]["before"])
        return [Change(own, before, after, "the entry goes back to what it was", step=step, forget=(own,))]
    record = record_of(text, " ".join(edit.target), edit.names)
    why = "the inventory's arguments for every next boot"
    return [Change(own, before, after, why, step=_step(edit), remember={own: record})]


def _step(edit: _Edit) -> WriteText | Grubby:
    if edit.path == bls.FUTURE:
        return WriteText(edit.path, " ".join(map(grub.quoted, edit.target)) + "\n")
    remove = tuple(sorted({one.split("=", 1)[0] for one in edit.of(edit.current)}))
    return Grubby(bls.entry(edit.path, edit.text).kernel, remove, tuple(map(grub.quoted, edit.of(edit.target))))


def _defaults_change(groups: Sequence[Group], text: str, owned: Mapping[str, Any]) -> list[Change]:
    path = _path(grub.DEFAULTS)
    base = base_of(text, owned.get(path))
    target = _defaults_target(groups, base, owned.get(path))
    if target == text:
        return []
    restored = base.pristine and target == base.text
    remember = (
        {}
        if restored
        else {path: record_of(base.text, target, frozenset(name for group in groups for name in group.names))}
    )
    before, after = list(grub.effective([text])), list(grub.effective([target]))
    return [
        Change(
            path,
            before,
            after,
            "grub2-mkconfig takes the arguments of new entries from it",
            step=WriteText(grub.DEFAULTS, target),
            remember=remember,
            forget=(path,) if restored else (),
        )
    ]


def _defaults_target(groups: Sequence[Group], base: Base, record: Mapping[str, Any] | None) -> str:
    foreign = grub.effective([base.text])
    unmet = [group for group in groups if not group.met_by(foreign)]
    names = frozenset(name for group in unmet for name in group.names)
    text = base.text
    if not base.pristine and record is not None:
        text = grub.restored(text, record["before"], frozenset(record["names"]) - names)
    if not groups:
        return text
    added = [argument for group in unmet for argument in group.wanted(foreign)]
    return grub.extended(grub.stripped(text, names), added)


def _met(groups: Sequence[Group], edit: _Edit, former: frozenset[str]) -> bool:
    """True when a line needs no write: every group met, and nothing of ours left that no group wants."""
    if any(not group.met_by(edit.current) for group in groups):
        return False
    return not (former & edit.names)


def _named(name: str, line: tuple[str, ...]) -> list[str]:
    return [one for one in line if name_of(one) == name]


def _path(path: str) -> str:
    return f"kernel_args[{path}]"
