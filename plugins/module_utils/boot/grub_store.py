# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The next boot's kernel arguments on a GRUB system (Debian, Ubuntu): defaults, our drop-in, grub.cfg."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.change import ABSENT, Change, Unreadable
from ..core.errors import HostRefused, Problem, UnreadableState
from ..core.host import Host
from . import grub
from .cmdline import Group, Line, name_of
from .edited import Base, Regenerate, Remove, WriteText, base_of, record_of, restored_why
from .words import assignments

UPDATE = ("update-grub",)


@dataclass(frozen=True)
class Store:
    """GRUB's files as they are. ``ours`` is None when our drop-in is not there."""

    foreign: Mapping[str, str]
    ours: str | None
    generated: str
    has_folder: bool

    @property
    def lines(self) -> tuple[Line, ...]:
        """The command lines of the entries that boot by default."""
        return tuple(line for line in grub.entries(self.generated) if not line.fallback)

    @property
    def writes(self) -> tuple[str, ...]:
        """Every file that a plan may write."""
        return (*self.foreign, grub.DROP_IN, grub.GENERATED)


def read(host: Host) -> Store:
    """All files that GRUB's configuration is made from, and the configuration itself."""
    names = host.names(grub.DROP_INS)
    if isinstance(names, Unreadable):
        raise UnreadableState([Problem(grub.DROP_INS, f"cannot be read: {names.cause}", "Run as root on the host.")])
    drop_ins = [] if names is ABSENT else [f"{grub.DROP_INS}/{name}" for name in tuple(names) if name.endswith(".cfg")]  # type: ignore[arg-type]
    texts = {path: text for path in (grub.DEFAULTS, *sorted(drop_ins)) if (text := _text(host, path)) is not None}
    ours = texts.pop(grub.DROP_IN, None)
    return Store(texts, ours, _text(host, grub.GENERATED) or "", names is not ABSENT)


def _text(host: Host, path: str) -> str | None:
    text = host.read_text(path)
    if isinstance(text, Unreadable):
        raise UnreadableState([Problem(path, f"cannot be read: {text.cause}", "Run as root on the host.")])
    return None if text is ABSENT else str(text)


@dataclass(frozen=True)
class Targets:
    """The texts that GRUB's files should have, and what the boot entries should then say."""

    bases: Mapping[str, Base]
    foreign: Mapping[str, str]
    ours: str
    names: frozenset[str]
    arguments: tuple[str, ...]


def plan(groups: Sequence[Group], store: Store, owned: Mapping[str, Any], former: frozenset[str]) -> list[Change]:
    """Ordered changes: foreign files, our drop-in, then grub.cfg, which is the truth of the next boot.

    ``former`` are names that we wrote once and that no group wants any more.
    """
    targets = _targets(groups, store, owned)
    changes = [change for path in sorted(store.foreign) if (change := _edit(path, store, targets))]
    changes += _drop_in_change(store, targets, owned)
    stale = _stale(groups, store, targets, former)
    if changes or stale:
        _require_effect(groups, store, targets)
        before = (
            list(stale[0].arguments) if stale else [argument for line in store.lines[:1] for argument in line.arguments]
        )
        shown = _shown(groups, targets, former)
        changes.append(
            Change(
                _path(grub.GENERATED),
                [one for one in before if name_of(one) in shown],
                [one for one in targets.arguments if name_of(one) in shown],
                "the boot entries are generated from the files above",
                step=Regenerate(UPDATE),
            )
        )
    return changes


def _require_effect(groups: Sequence[Group], store: Store, targets: Targets) -> None:
    """Refuse to write defaults that the boot entries would not be built from."""
    overrider = grub.overriding(store.foreign.items())
    if overrider and targets.ours:
        raise HostRefused(
            [
                Problem(
                    overrider,
                    f"comes after {grub.DROP_IN} and replaces GRUB_CMDLINE_LINUX",
                    'Let it add to the variable: GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX ...".',
                )
            ]
        )
    if groups and not store.lines:
        raise HostRefused(
            [
                Problem(
                    grub.GENERATED,
                    "has no boot entry that is built from GRUB's defaults",
                    "Let /etc/grub.d/10_linux make the entries (chmod +x, update-grub).",
                )
            ]
        )


def _shown(groups: Sequence[Group], targets: Targets, former: frozenset[str]) -> frozenset[str]:
    return targets.names | former | frozenset(name for group in groups for name in group.names)


def expected(groups: Sequence[Group], store: Store, owned: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The arguments that a boot entry has from the defaults once the plan is carried out."""
    return [_targets(groups, store, owned).arguments]


def longest(groups: Sequence[Group], store: Store, owned: Mapping[str, Any], former: frozenset[str]) -> int:
    """Bytes of the longest command line once the plan is carried out."""
    targets = _targets(groups, store, owned)
    shown = _shown(groups, targets, former)

    def own(arguments: tuple[str, ...]) -> int:
        return sum(len(one.encode("utf-8", "surrogateescape")) + 1 for one in arguments if name_of(one) in shown)

    return max((line.length - own(line.arguments) + own(targets.arguments) for line in store.lines), default=0)


def _targets(groups: Sequence[Group], store: Store, owned: Mapping[str, Any]) -> Targets:
    bases = {path: base_of(text, owned.get(_path(path)), grub.restored) for path, text in store.foreign.items()}
    foreign = grub.effective(base.text for base in bases.values())
    unmet = [group for group in groups if not group.met_by(foreign)]
    names = frozenset(name for group in unmet for name in group.names)
    texts = {path: grub.stripped(base.text, names) if groups else base.text for path, base in bases.items()}
    text = grub.drop_in(argument for group in unmet for argument in group.wanted(foreign))
    return Targets(bases, texts, text, names, grub.effective([*texts.values(), text]))


def _edit(path: str, store: Store, targets: Targets) -> Change | None:
    text, base, target = store.foreign[path], targets.bases[path], targets.foreign[path]
    if text == target or (base.edited and grub.alike(text, target)):
        return None
    restored = target == base.text
    why = (
        restored_why(base)
        if restored
        else "another value of an owned argument, or a repeated line, stands in this file"
    )
    return Change(
        _path(path),
        _owned_lines(text),
        _owned_lines(target),
        why,
        step=WriteText(path, target),
        remember={} if restored else {_path(path): record_of(base, text, target, targets.names)},
        forget=(_path(path),) if restored else (),
    )


def _owned_lines(text: str) -> list[str]:
    return [one.shown for one in assignments(text)]


def _drop_in_change(store: Store, targets: Targets, owned: Mapping[str, Any]) -> list[Change]:
    if (store.ours or "") == targets.ours:
        return []
    path = _path(grub.DROP_IN)
    before, after = list(grub.effective([store.ours or ""])), list(grub.effective([targets.ours]))
    made_folder = owned.get(path, {}).get("made_folder", not store.has_folder)
    if not targets.ours:
        step = Remove(grub.DROP_IN, made_folder)
        return [Change(path, before, None, "nothing is left for it to say", step=step, forget=(path,))]
    return [
        Change(
            path,
            before or None,
            after,
            "the inventory's arguments for every next boot",
            step=WriteText(grub.DROP_IN, targets.ours),
            remember={path: {"before": None, "made_folder": made_folder}},
        )
    ]


def _stale(groups: Sequence[Group], store: Store, targets: Targets, former: frozenset[str]) -> list[Line]:
    """The entries that do not say what the defaults (after the plan) make them say about our names."""

    def differs(line: Line) -> bool:
        if any(not group.met_by(line.arguments) for group in groups):
            return True
        return any(
            [one for one in line.arguments if name_of(one) == name]
            != [one for one in targets.arguments if name_of(one) == name]
            for name in former
        )

    return [line for line in store.lines if differs(line)]


def _path(path: str) -> str:
    return f"kernel_args[{path}]"
