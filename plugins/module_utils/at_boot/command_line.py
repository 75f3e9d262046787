# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine as a program of its own: what a host runs without Ansible. An edge, like a module.

It ends with 0 when everything is as wanted, 1 when something is not, and 2 when nothing could be found wrong but not
everything could be judged, or the command itself or the intent cannot be used.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .. import site
from ..audit import command_line as audit
from ..core.change import Disruption
from ..core.edge import located
from ..core.errors import GpudirectError
from ..core.host import Host
from . import boot_run, drift, finding, intent, metrics
from .finding import Finding

AS_WANTED, NOT_AS_WANTED, UNKNOWN = 0, 1, 2
WORDS = {True: "as wanted", False: "not as wanted", None: "unknown"}
_STATUS = {True: AS_WANTED, False: NOT_AS_WANTED, None: UNKNOWN}
_DESCRIPTION = "Bring back what a boot loses of a host's GPUDirect settings, or look at it. Installed by host_boot."
_EPILOG = "Exit status: 0 all is as wanted; 1 something is not; 2 not all could be judged, or the usage is wrong."


def arguments() -> argparse.ArgumentParser:
    """What the command takes."""
    every = argparse.ArgumentParser(add_help=False)
    every.add_argument(
        "--intent", type=_path, metavar="FILE", help=f"the intent, a file of this machine (default: {intent.PATH})"
    )
    every.add_argument("--json", action="store_true", help="print one JSON document instead of lines")
    parser = argparse.ArgumentParser("gpudirect", description=_DESCRIPTION, epilog=_EPILOG)
    verbs = parser.add_subparsers(dest="verb", required=True)
    boot = verbs.add_parser("boot", parents=[every], help="bring back what a boot loses", epilog=_EPILOG)
    words = [one.label for one in Disruption if one < Disruption.HOST]
    boot.add_argument("--allow", choices=words, default="nothing", help="how far it may disrupt (default: nothing)")
    wait = "how long to wait for devices that are not there yet (default: 0)"
    boot.add_argument("--device-timeout-s", type=float, default=0.0, metavar="SECONDS", help=wait)
    start = verbs.add_parser("guests", parents=[every], help="start the guests of a host that is ready", epilog=_EPILOG)
    start.add_argument("--device-timeout-s", type=float, default=0.0, metavar="SECONDS", help=wait)
    watch = verbs.add_parser("drift", parents=[every], help="tell what differs, and write metrics", epilog=_EPILOG)
    watch.add_argument("--metrics", metavar="FILE", help="write Prometheus metrics there")
    put = "put registers right that a reset has undone, where that disrupts nothing"
    watch.add_argument("--mend", action="store_true", help=put)
    plan = verbs.add_parser("plan", parents=[every], help="tell what would change", epilog=_EPILOG)
    verbs.add_parser("audit", help="judge the ways between GPUs and NICs from files (audit --help)", add_help=False)
    plan.add_argument(
        "--root", default="/", type=_path, metavar="DIR", help="judge a captured tree instead of this host"
    )
    return parser


def _path(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("is empty, wanted a path")
    return text


def main(argv: Sequence[str] | None = None, host: Host | None = None) -> int:
    """Run one command; the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["audit"]:  # takes files of any machine, needs no host, and has a status of its own
        return audit.main(words[1:])
    options = arguments().parse_args(argv)
    host = host or Host(getattr(options, "root", "/"))
    findings: list[Finding] | None = None
    try:
        findings = [
            replace(one, reasons=tuple(located(problem, host) for problem in one.reasons))
            for one in _findings(options, host)
        ]
        problems = [str(problem) for one in findings for problem in one.reasons]
    except GpudirectError as error:
        # An intent that was named is a file of this machine.
        problems = [str(problem if options.intent else located(problem, host)) for problem in error.problems]
    verdict = None if findings is None else finding.verdict_of(findings)
    if getattr(options, "metrics", None):
        host.write_text(options.metrics, metrics.render(findings))
    if options.json:
        _say(json.dumps(_document(verdict, findings, problems), indent=1, sort_keys=True))
    else:
        for line in _lines(options.verb, verdict, findings, problems):
            _say(line)
    return _STATUS[verdict]


def _findings(options: argparse.Namespace, host: Host) -> list[Finding]:
    if options.verb == "plan":
        site.require_capture(host, "--root")
    known = intent.load(host) if options.intent is None else intent.load(Host(), options.intent)
    wanted = site.brought_back(known)
    if options.verb not in ("boot", "guests"):
        return drift.look(wanted, host, mend=getattr(options, "mend", False))
    boot_run.require_record(host)
    allow = Disruption.named(options.allow) if options.verb == "boot" else Disruption.NOTHING
    run = boot_run.BootRun(host, allow, _unsaid if options.json else _say)
    before = [one for one in wanted if not boot_run.starts_guests(one[0])]
    if options.verb == "boot":
        return run.bring_back(before, device_timeout_s=options.device_timeout_s)
    judged = drift.look(before, host)
    guests = [one for one in wanted if boot_run.starts_guests(one[0])]
    if finding.verdict_of(judged) is not True:
        return [*judged, *(boot_run.held_back(resource, judged) for resource, _desired in guests)]
    return [*judged, *run.bring_back(guests, device_timeout_s=options.device_timeout_s)]


def _lines(verb: str, verdict: bool | None, findings: Sequence[Finding] | None, problems: list[str]) -> list[str]:
    """What is said at the end: every reason, then the verdict; systemctl status shows the last of these lines."""
    if findings is None:
        return [*problems, "The intent of this host cannot be used, so nothing was done."]
    counts = ", ".join(f"{one.resource} {WORDS[one.as_wanted]}" for one in findings) or "nothing is asked for"
    if verb == "guests":
        said = "The guests of this host are" if verdict else "Not all guests of this host are"
        return [*(f"not started: {one}" for one in problems), f"{said} as its intent says: {counts}."]
    if verb != "boot":
        mended = [f"put right: {path}" for one in findings for path in one.mended]
        return [*mended, *problems, f"This host is {_judged(verdict)}: {counts}."]
    if verdict:
        return [f"This host is ready for its guests: {counts}."]
    advice = "Mend the causes, then run site.yml or systemctl restart gpudirect-boot.service."
    return [*(f"not ready: {one}" for one in problems), f"This host is not ready for its guests: {counts}. {advice}"]


def _judged(verdict: bool | None) -> str:
    return {True: "as its intent says", False: "not as its intent says", None: "not fully judged"}[verdict]


def _document(verdict: bool | None, findings: Sequence[Finding] | None, problems: list[str]) -> dict[str, Any]:
    resources = {
        one.resource: {
            "verdict": WORDS[one.as_wanted],
            "paths": list(one.paths),
            "mended": list(one.mended),
            "reasons": [str(problem) for problem in one.reasons],
        }
        for one in findings or ()
    }
    return {"verdict": WORDS[verdict], "problems": problems, "resources": resources}


def _unsaid(_line: str) -> None:
    """Where one document at the end says everything."""


def _say(line: str) -> None:
    """A line at a time: the journal gets what happened even of a run that is killed."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
