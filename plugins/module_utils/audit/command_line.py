# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The audit as a program: files in, reports out, a verdict as exit status. An edge, like a module.

Needs neither Ansible nor an inventory, and writes nothing but the picture that ``--svg`` asks for.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import posixpath
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from ..core.change import Absent
from ..core.errors import GpudirectError, HostRefused, IntentError, Problem, UnreadableState
from ..core.host import Host
from ..core.schema import CORRECTED, QUOTED
from ..path import facts, picture
from ..path.finding import Verdict
from ..path.intent import PathIntent, parse
from ..path.labels import clean
from ..path.policy import MODES, TOPOLOGY
from ..pci import bundle, source
from ..pci.tar import Limits
from . import output
from .judged import Audit, judge
from .said import CLEAR, Said, say

# Those of monitoring plugins (Nagios); what is only announced is not fine yet.
STATUS = {Verdict.OK: 0, Verdict.DEFERRED: 1, Verdict.WARN: 1, Verdict.FAIL: 2, Verdict.UNKNOWN: 3}
USAGE, UNUSABLE, FAULT, NOT_WRITTEN = 64, 65, 70, 73  # as in sysexits.h
_GRAVITY = (2, FAULT, UNUSABLE, 3, 1, 0)  # what counts of several inputs
_STDIN = "-"
_LARGEST_INTENT = 1 << 20
_OF_JSON = {QUOTED: "Put it in double quotes.", CORRECTED: "Correct the options."}  # advice about an inventory
_DESCRIPTION = "Whether GPUs and NICs can talk to each other directly, judged from what is given: " + source.KNOWN + "."
_EPILOG = (
    "Exit status: 0 OK, 1 WARN, 2 FAIL, 3 UNKNOWN (the gravest of all inputs); 64 wrong usage, 65 an input cannot be used, "
    "73 the picture cannot be written. All inputs are judged, also where one cannot be used."
)


class _Parser(argparse.ArgumentParser):
    """Ends with 64 on wrong usage, since 2 means FAIL."""

    def error(self, message: str) -> NoReturn:
        """Say how it is used, and what is wrong."""
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {clean(message)}\n")


def arguments() -> argparse.ArgumentParser:
    """What the command takes."""
    parser = _Parser("gpudirect audit", description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="a file, a folder with a captured /sys, / for this host, - for stdin; a folder or archive of such inputs",
    )
    modes = (*MODES, TOPOLOGY)
    said = f"the class of the host (default: {MODES[0]}, and {TOPOLOGY} for guests, topology files and tables)"
    parser.add_argument("--mode", choices=modes, help=said)
    parser.add_argument(
        "--intent", metavar="FILE", help="JSON with gpudirect_mode and pci_path_* options, as an inventory has them"
    )
    parser.add_argument(
        "--relax",
        action="append",
        default=[],
        metavar="RULE=REASON",
        help="a rule that does not count here; may be repeated",
    )
    parser.add_argument(
        "--compare", metavar="FILE", help="an NCCL topology file or nvidia-smi topo that has to fit each FILE"
    )
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="lines for people or JSON (default: text)"
    )
    parser.add_argument("--summary", action="store_true", help="a line for each input, without the pages")
    parser.add_argument("--svg", metavar="FILE", help="write the picture of one input there")
    parser.add_argument("--width", type=int, default=100, metavar="COLUMNS", help="of lines (default: 100)")
    parser.add_argument("--colour", choices=("auto", "always", "never"), default="auto", help="auto: on a terminal")
    parser.add_argument("--rules", action="store_true", help="list all rules and end")
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit status."""
    parser = arguments()
    options = parser.parse_args(argv)
    if options.rules:
        said = json.dumps(output.rules_data(), indent=1) + "\n" if options.format == "json" else output.rules_text()
        return _ended(0, said)
    if not options.files:
        parser.error("give at least one FILE (or - for stdin)")
    if options.svg and len(options.files) > 1:
        parser.error("--svg takes one FILE at a time")
    if options.summary and options.format == "json":
        parser.error("--summary is of lines for people; leave out --format json")
    if [*options.files, options.compare].count(_STDIN) > 1:
        parser.error("stdin can be read once only")
    try:
        intent, mode = _intent(options)
    except GpudirectError as error:
        _complain(error)
        return USAGE
    return _Run(options, intent, mode).all()


def _intent(options: argparse.Namespace) -> tuple[PathIntent, str]:
    """What is wanted; and the mode where somebody named one."""
    given: dict[str, Any] = _loaded(options.intent) if options.intent else {}
    relax = []
    for one in options.relax:
        rule, sign, reason = one.partition("=")
        if not sign:
            raise IntentError([Problem("--relax", "has no reason", "Write RULE=REASON.", found=repr(one))])
        relax.append({"rule": rule, "reason": reason})
    mode = options.mode or given.get("gpudirect_mode") or ""
    kept = {key: value for key, value in given.items() if key != "gpudirect_mode"}
    if mode != TOPOLOGY and mode:
        kept["gpudirect_mode"] = mode
    if relax:
        kept["pci_path_relax"] = [*(kept.get("pci_path_relax") or ()), *relax]
    try:
        return parse(kept), mode
    except IntentError as error:
        raise IntentError(replace(one, advice=_OF_JSON.get(one.advice, one.advice)) for one in error.problems) from None


def _loaded(path: str) -> dict[str, Any]:
    """The options of an intent file."""
    data = Host().read_bytes(path, _LARGEST_INTENT)
    if not isinstance(data, bytes):
        fact = "is not there" if isinstance(data, Absent) else f"cannot be read: {data.cause.rpartition(': ')[2]}"
        raise IntentError([Problem(path, fact, "Give a file of options as JSON.")])
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise IntentError([Problem(path, f"is no JSON: {error}", "Write the options as JSON.")]) from None
    if not isinstance(found, dict):
        raise IntentError([Problem(path, "is no mapping", "Give options by name.", found=type(found).__name__)])
    return found


@dataclass
class _Run:
    """All inputs of one command, one after the other: nothing is kept of an input but its status and its line."""

    options: argparse.Namespace
    intent: PathIntent
    mode: str

    def all(self) -> int:
        """Judge each input, say at once what was found, and give the status of the gravest."""
        try:
            other = _read(self.options.compare) if self.options.compare else None
        except (GpudirectError, MemoryError) as error:
            _complain(error, self.options.compare)
            return UNUSABLE
        said = Said(self.options)
        codes: list[int] = []
        try:
            for name, given in self._inputs():
                code, audit = (UNUSABLE, given) if isinstance(given, _Lost) else self._one(name, given, other)
                codes.append(code)
                if self.options.svg and len(codes) == 1:
                    codes.append(self._drawn(audit))
                said.one(name, audit)
            said.end()
        except BrokenPipeError:  # who stops reading has seen enough
            with contextlib.suppress(OSError):
                sys.stdout.close()
        return _gravest(codes)

    def _inputs(self) -> Iterator[tuple[str, str | bytes]]:
        """Every input, those in folders and archives too. One that cannot be read to its end has its error for it."""
        for name in self.options.files:
            try:
                inside: Iterable[bundle.Given] = _of_stdin() if name == _STDIN else bundle.inputs(name)
                if self.options.svg:
                    inside = self._only(name, inside)
                yield from inside
            except (GpudirectError, MemoryError) as error:
                yield name, _Lost(_complain(error, name))

    def _only(self, name: str, inside: Iterable[bundle.Given]) -> list[bundle.Given]:
        found = list(itertools.islice(inside, 2))
        if len(found) > 1:
            raise UnreadableState([Problem(name, "has several inputs in it", "Draw one at a time (--svg).")])
        return found

    def _one(self, name: str, given: str | bytes, other: source.Read | None) -> tuple[int, Audit | str]:
        try:
            read = source.read_file(given, name, Limits(), facts.machine_of)
            audit = judge(read, self.intent, self.mode, other)
        except IntentError as error:
            return USAGE, _complain(error)
        except (GpudirectError, MemoryError) as error:
            return UNUSABLE, _complain(error, name)
        except Exception as error:  # a fault of the engine with one input does not keep the others from being judged
            fault = Problem(name, f"made the engine fail: {type(error).__name__}: {error}", "Report it with the file.")
            return FAULT, _complain(GpudirectError([fault]))
        return STATUS[audit.report.verdict], audit

    def _drawn(self, audit: Audit | str) -> int:
        """Write the picture."""
        if isinstance(audit, str):
            return 0
        try:
            if audit.machine is None:
                advice = "Leave --svg out, or give the machine itself."
                raise IntentError([Problem("--svg", "a table of nvidia-smi has no tree to draw", advice)])
            _write(self.options.svg, picture.svg(audit.machine, audit.report))
        except IntentError as error:
            _complain(error)
            return USAGE
        except (GpudirectError, OSError) as error:
            _complain(error, self.options.svg)
            return NOT_WRITTEN
        return 0


class _Lost(str):
    """What is said of an input that could not be read to its end."""


def _of_stdin() -> Iterator[bundle.Given]:
    data = sys.stdin.buffer.read(Limits().packed + 1)
    if bundle.holds_inputs(data, "stdin"):
        yield from bundle.of_archive(data, "stdin")
    else:
        yield "stdin", data


def _read(name: str) -> source.Read:
    """The one that others are compared with."""
    if name != _STDIN:
        return source.read_file(name, limits=Limits(), machine_of=facts.machine_of)
    return source.read_bytes(sys.stdin.buffer.read(Limits().packed + 1), "stdin", Limits(), facts.machine_of)


def _write(path: str, text: str) -> None:
    """Write a picture where its folder is; a folder that is mistyped is not made."""
    host, folder = Host(), posixpath.dirname(path) or "."
    if isinstance(host.names(folder), Absent):
        advice = "Make it, or give another place."
        raise HostRefused([Problem(path, "its folder is not there", advice, found=folder)])
    try:
        host.write_text(path, text)
    except HostRefused as error:
        raise HostRefused(replace(one, advice="Give the name of a file.") for one in error.problems) from None


def _complain(error: BaseException, name: str = "") -> str:
    """Say on stderr what is wrong; the words."""
    problems = error.problems if isinstance(error, GpudirectError) else ()
    if isinstance(error, MemoryError):
        problems = (Problem(name, "needs more memory than there is", "Give a smaller capture."),)
    elif isinstance(error, OSError):
        problems = (Problem(name, f"cannot be written: {error.strerror}", "Give another place."),)
    words = "\n".join(clean(str(one)) for one in problems)  # names of files may have anything in them
    say(sys.stderr, f"{CLEAR if sys.stderr.isatty() else ''}{words}\n")
    return words


def _gravest(codes: Sequence[int]) -> int:
    """The status that counts; usage and writing before all verdicts."""
    for code in (USAGE, NOT_WRITTEN, *_GRAVITY):
        if code in codes:
            return code
    return FAULT


def _ended(code: int, words: str) -> int:
    """Say the words. Who stops reading has seen enough."""
    try:
        say(sys.stdout, words)
        sys.stdout.flush()
    except BrokenPipeError:
        with contextlib.suppress(OSError):
            sys.stdout.close()
    return code
