"""H01: the declared kernel arguments are live and will be at every next boot, exactly once; contrary ones are not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.testinfra.boot_entries import BLS_FOLDER, GRUB_CONFIGS, Entry, bls_entries, grub_entries
from tests.testinfra.conftest import Check
from tests.testinfra.intent import PAGE_NAMES, Intent, missing, page_differences, present, words_of

CMDLINE = "/proc/cmdline"


@pytest.fixture(scope="module")
def live(read: Callable[[str], str | None]) -> tuple[str, ...] | None:
    line = read(CMDLINE)
    return None if line is None else words_of(line)


@pytest.fixture(scope="module")
def next_boot(read: Callable[[str], str | None], names: Callable[[str], list[str]]) -> list[Entry]:
    """The entries that start a kernel of this host (not of another system on its disks) without a hand on the menu."""
    paths = [f"{BLS_FOLDER}/{name}" for name in names(BLS_FOLDER) if name.endswith(".conf")]
    entries = bls_entries((path, read(path) or "") for path in paths)
    if not entries:
        entries = [entry for path in GRUB_CONFIGS for entry in grub_entries(read(path) or "")]
    kernels = names("/boot")
    return [entry for entry in entries if not entry.rescue and entry.kernel.rpartition("/")[2] in kernels]


def _differences(intent: Intent, line: Sequence[str]) -> list[str]:
    return missing(intent.arguments, line) + page_differences(intent, line)


def _owned(intent: Intent, line: Sequence[str]) -> str:
    wanted = {one.partition("=")[0] for one in intent.arguments} | set(PAGE_NAMES)
    return " ".join(one for one in line if one.partition("=")[0] in wanted)


def _declares(intent: Intent) -> bool:
    return bool(intent.arguments or intent.pages or intent.default_size)


def test_h01_declared_arguments_are_live(intent: Intent, live: tuple[str, ...] | None, check: Check) -> None:
    if not _declares(intent):
        check.does_not_apply("no kernel argument is declared")
    if live is None:
        check.unknown(f"{CMDLINE} cannot be read")
    differences = _differences(intent, live)
    if differences:
        check.fails(
            wanted=f"each declared argument once: {' '.join(intent.arguments)}",
            found="; ".join(differences),
            evidence=f"{CMDLINE}: {' '.join(live)}",
        )
    check.passes(f"{CMDLINE}: {_owned(intent, live)}")


def test_h01_contrary_arguments_are_not_live(intent: Intent, live: tuple[str, ...] | None, check: Check) -> None:
    if not intent.forbidden:
        check.does_not_apply("no argument is forbidden")
    if live is None:
        check.unknown(f"{CMDLINE} cannot be read")
    found = present(intent.forbidden, live)
    if found:
        check.fails(
            wanted=f"none of {' '.join(intent.forbidden)}",
            found=" ".join(found),
            evidence=f"{CMDLINE}: {' '.join(live)}",
        )
    check.passes(f"{CMDLINE} has none of {len(intent.forbidden)}")


def test_next_boot_has_the_declared_arguments(intent: Intent, next_boot: list[Entry], check: Check) -> None:
    if not _declares(intent):
        check.does_not_apply("no kernel argument is declared")
    if not next_boot:
        check.unknown(f"no boot entry in {BLS_FOLDER} or {' or '.join(GRUB_CONFIGS)}")
    wrong = [(entry, found) for entry in next_boot if (found := _differences(intent, entry.line))]
    if wrong:
        check.fails(
            wanted=f"each declared argument once in all {len(next_boot)} entries: {' '.join(intent.arguments)}",
            found="; ".join(f"{entry.title}: {', '.join(found)}" for entry, found in wrong),
            evidence=f"{wrong[0][0].title}: {' '.join(wrong[0][0].line)}",
        )
    check.passes(f"{len(next_boot)} entries, all with {_owned(intent, next_boot[0].line)}")


def test_next_boot_has_no_contrary_argument(intent: Intent, next_boot: list[Entry], check: Check) -> None:
    if not intent.forbidden:
        check.does_not_apply("no argument is forbidden")
    if not next_boot:
        check.unknown(f"no boot entry in {BLS_FOLDER} or {' or '.join(GRUB_CONFIGS)}")
    wrong = [(entry, found) for entry in next_boot if (found := present(intent.forbidden, entry.line))]
    if wrong:
        check.fails(
            wanted=f"none of {' '.join(intent.forbidden)}",
            found="; ".join(f"{entry.title}: {' '.join(found)}" for entry, found in wrong),
            evidence=f"{wrong[0][0].title}: {' '.join(wrong[0][0].line)}",
        )
    check.passes(f"{len(next_boot)} entries have none of {len(intent.forbidden)}")
