# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can go wrong, each kind by its name, always as sentences an operator can act on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Problem:
    """One fact that stops the work: where, what, and what to do.

    ``str()`` gives the house form ``path: what is wrong (found ..., wanted ...). What to do.``
    """

    path: str
    fact: str
    advice: str
    found: str = ""
    wanted: str = ""

    def __str__(self) -> str:
        known = ", ".join(
            f"{label} {value}" for label, value in (("found", self.found), ("wanted", self.wanted)) if value
        )
        detail = f" ({known})" if known else ""
        return f"{self.path}: {self.fact}{detail}. {self.advice}"


def natural(text: str) -> list[tuple[int, str]]:
    """A key by which numbers in a text are numbers: entry 2 comes before entry 10."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"([0-9]+)", text)]


def _in_order(problem: Problem) -> tuple[list[tuple[int, str]], Problem]:
    return natural(problem.path), problem


class GpudirectError(Exception):
    """Base of all errors that end a run; carries every problem known at that moment."""

    def __init__(self, problems: Iterable[Problem], done: Iterable[str] = ()) -> None:
        """Keep the problems in a stable order, each once, and the paths of changes made before them."""
        self.done: tuple[str, ...] = tuple(done)
        self.problems: tuple[Problem, ...] = tuple(sorted(set(problems), key=_in_order))
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def after(self, done: Iterable[str]) -> GpudirectError:
        """The same error, telling the changes that were made before it."""
        self.done = tuple(done)
        return self


class IntentError(GpudirectError):
    """The inventory asks for something that cannot be meant."""


class UnreadableState(GpudirectError):
    """A state that the plan depends on could not be read."""


class HostRefused(GpudirectError):
    """The host as it is cannot take the plan (read-only entry, full /boot, no IOMMU, ...)."""


class HostBusy(HostRefused):
    """Another run is changing the host."""


class ConsentRequired(GpudirectError):
    """A change disrupts more than ``gpudirect_allow`` permits."""


class ApplyFailed(GpudirectError):
    """A write was refused; says what was done before it."""


class VerificationFailed(GpudirectError):
    """What was written does not read back, or did not become live with the reboot."""


class CommandFailed(GpudirectError):
    """A program ended with an exit status that its caller did not expect."""
