# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a boot loses comes back by itself: the engine as one file, the intent, the unit that runs both, and the watch.

The boot run and the drift watch are the same engine (``at_boot``). This resource installs them; it does not run them,
since the round that installs has just done what they would do.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Union

from . import systemd
from .at_boot import intent, units
from .core.change import ABSENT, Change, Plan, Unreadable
from .core.errors import GpudirectError, HostRefused, IntentError, Problem, UnreadableState
from .core.host import Host, Status
from .core.schema import Field, Schema

# What is handed over beside the inventory's options: what a boot loses (site.lost_at_boot), the digest of the
# engine that the control node has, and where on this host a copy of it lies for this run.
LOST, ENGINE, ARCHIVE = "lost", "host_boot_engine", "archive"
# Handed over likewise: this run only drains the host, so of the intent that is there nothing but this option changes.
DRAINS, DRAIN = "drains", "guest_drain"
RECORD = "host_boot"
ENGINE_PATH = "host_boot.engine"
NEVER, AUTO = "never", "auto"
# Where exporters look for text files: Debian's package, and the prometheus.prometheus collection.
METRICS_FOLDERS = ("/var/lib/prometheus/node-exporter", "/var/lib/node_exporter")
METRICS_NAME = "gpudirect.prom"
# Options of what the watch may put right (pci_path.MENDS): there only where they ask for something (site.lost_at_boot).
_STARTED = "guest_shapes"
_MENDED = frozenset({"pci_path_acs", "pci_path_max_read_request"})
# What a run needs beside the time that it waits for devices.
LEAST_WORK_S = 30


def _interval(path: str, value: str) -> str:
    if value == NEVER or re.fullmatch(r"[1-9][0-9]{1,5}s|[1-9][0-9]{0,4}(min|h|d)", value):
        return value
    raise IntentError(
        [Problem(path, "is no time span", "Give one, or never.", found=value, wanted="such as 90s, 15min, 6h, 1d")]
    )


def _metrics(path: str, value: str) -> str:
    plain = re.fullmatch(r"/[A-Za-z0-9_./+-]+\.prom", value) and posixpath.normpath(value) == value
    if value in ("", AUTO) or plain:
        return value
    advice = "Give a path, auto, or nothing."
    raise IntentError([Problem(path, "is no path of a metrics file", advice, found=value, wanted="/folder/name.prom")])


SCHEMA = Schema(
    "host_boot",
    "host_boot_",
    (
        Field(
            "host_boot_enabled",
            "bool",
            (
                "Whether what a boot loses (VFs and their attributes, drivers of devices, registers on paths, live huge pages) is brought back by",
                "every boot.",
                "Where the inventory asks for nothing that a boot loses, nothing is installed.",
            ),
            default=True,
        ),
        Field(
            "host_boot_timeout_s",
            "int",
            (
                "How long the boot run may take in all, in seconds. Guests wait for it; the network and logins do not.",
                "A boot run that takes longer is stopped, and the next boot or run of site.yml goes on where it was.",
            ),
            default=300,
            minimum=LEAST_WORK_S,
        ),
        Field(
            "host_boot_device_timeout_s",
            "int",
            (
                "How long a boot waits for wanted devices that have not appeared, in seconds.",
                "The other devices are set up meanwhile; what is still missing then is named, and the host is not ready.",
            ),
            default=60,
            minimum=0,
        ),
        Field(
            "host_boot_drift_interval",
            "str",
            (
                "How often the host compares itself with its intent, such as V(15min) or V(6h); V(never) leaves the watch out.",
                "The watch reports in the journal, by the state of its unit, and as metrics. It changes nothing but registers that C(pci_path)",
                "manages and a reset has undone, which disrupts nothing; it says so.",
            ),
            default="15min",
            check=_interval,
        ),
        Field(
            "host_boot_metrics_path",
            "str",
            (
                "The file for Prometheus metrics on drift, in the text file folder of the host's node exporter; its name ends in V(.prom).",
                "V(auto) takes the usual folder where there is one and writes no metrics elsewhere; empty writes none.",
            ),
            default=AUTO,
            check=_metrics,
        ),
    ),
)


@dataclass(frozen=True)
class Desired:
    """What should be installed. ``options`` are those of what a boot loses; none of them: nothing is installed.

    ``engine`` is a SHA-256 in hex, empty where none was handed over; ``archive`` where it lies for this run.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: int = 0
    device_timeout_s: int = 0
    interval: str = ""
    metrics: str = ""
    engine: str = ""
    archive: str = ""
    drains: bool = False


@dataclass(frozen=True)
class Current:
    """What is installed: texts by path (None: not there), the engine's digest, and what systemd makes of it.

    ``folders`` are those of ``METRICS_FOLDERS`` and of the wanted metrics file that are there. ``open_intent``: others
    than root may read or write the intent.
    """

    texts: Mapping[str, Union[str, None]]
    engine: str | None
    enabled: frozenset[str]
    units: Mapping[str, systemd.Unit] | None
    folders: frozenset[str]
    refusals: Mapping[str, str]
    open_intent: bool = False


@dataclass(frozen=True)
class WriteFile:
    """Step: give a file its text, and its mode where it is a new one."""

    path: str
    text: str
    mode: int


@dataclass(frozen=True)
class InstallEngine:
    """Step: put the engine, which lies at ``source``, into its place."""

    source: str
    digest: str


@dataclass(frozen=True)
class RemoveFile:
    """Step: remove a file, and its folder when that is ours."""

    path: str
    with_folder: bool


@dataclass(frozen=True)
class RunPrograms:
    """Step: run programs in order."""

    programs: tuple[tuple[str, ...], ...]


# parse -----------------------------------------------------------------------------------


def parse(params: Mapping[str, Any]) -> Desired:
    """What should be installed, from the inventory's options and what is handed over beside them."""
    own = {name: value for name, value in params.items() if name not in (LOST, ENGINE, ARCHIVE, DRAINS)}
    values, problems = SCHEMA.parse_all(own)
    least = values["host_boot_device_timeout_s"] + LEAST_WORK_S
    if values["host_boot_timeout_s"] < least:
        problems.append(
            Problem(
                "host_boot_timeout_s",
                "leaves no time for the work after the wait for devices",
                "Raise it, or lower host_boot_device_timeout_s.",
                found=str(values["host_boot_timeout_s"]),
                wanted=f"at least {least}",
            )
        )
    if problems:
        raise IntentError(problems)
    if params.get(DRAINS):
        return Desired(drains=True)
    if not values["host_boot_enabled"] or not params.get(LOST):
        return Desired()
    interval = values["host_boot_drift_interval"].replace(NEVER, "")
    return Desired(
        params[LOST],
        values["host_boot_timeout_s"],
        values["host_boot_device_timeout_s"],
        interval,
        values["host_boot_metrics_path"] if interval else "",
        params.get(ENGINE) or "",
        params.get(ARCHIVE) or "",
    )


# read ------------------------------------------------------------------------------------


def unit_path(name: str) -> str:
    """Where the file of a unit lies."""
    return f"{systemd.FOLDER}/{name}"


FILES = (intent.PATH, *map(unit_path, units.UNITS))


def read(host: Host, desired: Desired) -> Current:
    """The files, and what systemd holds of the units."""
    folders = {*METRICS_FOLDERS, posixpath.dirname(desired.metrics)}
    texts = {path: _text(host, path) for path in FILES}
    engine = _text(host, units.ENGINE)
    enabled = systemd.enabled(host, units.WANTED_BY)
    nothing = not desired.options and engine is None and not enabled and set(texts.values()) == {None}
    return Current(
        texts,
        None if engine is None else digest_of(engine),
        enabled,
        None if nothing or desired.drains else systemd.read(host, units.UNITS),
        frozenset(folder for folder in folders if folder and host.exists(folder)),
        {} if nothing else {path: why for path in (*FILES, units.ENGINE) if (why := host.refuses_write(path))},
        isinstance(status := host.status(intent.PATH), Status) and status.mode & 0o077 != 0,
    )


def digest_of(text: str) -> str:
    """SHA-256 of a file that was read as text, in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _text(host: Host, path: str) -> str | None:
    text = host.read_text(path)
    if isinstance(text, Unreadable):
        raise UnreadableState([Problem(path, f"cannot be read: {text.cause}", "Run as root on the host.")])
    return None if text is ABSENT else str(text)


# plan ------------------------------------------------------------------------------------


def plan(desired: Desired, current: Current, owned: Mapping[str, Any]) -> Plan:
    """Files first, then what systemd makes of them; the way back in the opposite order."""
    record = owned.get(RECORD)
    if desired.drains:
        return _drained(current)
    if not desired.options:
        return Plan(tuple(_removal(current, record)) if record else ())
    metrics = _metrics_path(desired, current)
    texts = _texts(desired, metrics)
    refused = [*_refusals(desired, current, texts), *_metrics_refusals(desired, current)]
    if refused:
        raise HostRefused(refused)
    former = sorted({*(record["metrics"] if record else ())} - {metrics})
    changes = [
        *_files(desired, current, texts),
        *_started(current, texts),
        *_former_metrics(former, metrics, unit_path(units.WATCH) in texts),
    ]
    if record is None and not changes:
        changes = [Change("host_boot.record", None, True, "what is installed is on record", step=())]
    if changes and (record is None or metrics not in ("", *record["metrics"])):
        first, *rest = changes
        remember = {RECORD: {"before": None, "metrics": _paths(*former, metrics)}}
        changes = [replace(first, remember=remember), *rest]
    return Plan(tuple(changes))


def _drained(current: Current) -> Plan:
    """No boot starts a guest. The rest of the intent stays as it is: what the inventory says of it meanwhile is for a run of site.yml."""
    text = current.texts[intent.PATH]
    if text is None:
        return Plan()  # no boot starts any
    try:
        options = intent.parse(intent.PATH, text)
    except GpudirectError as error:
        return Plan(notes=(f"{error} No boot starts a guest by it.",))
    if options.get(DRAIN) is True:
        return Plan()
    if intent.PATH in current.refusals:
        fact = f"cannot be written: {current.refusals[intent.PATH]}"
        return Plan(refused=(Problem(intent.PATH, fact, "Make it writable and run again."),))
    step = WriteFile(intent.PATH, intent.render({**options, DRAIN: True}), intent.MODE)
    why = "no boot starts a guest of a drained host"
    return Plan((Change(f"{_of(intent.PATH)}.{DRAIN}", bool(options.get(DRAIN)), True, why, step=step),))


def needs_engine(changes: Sequence[Mapping[str, Any]]) -> bool:
    """Whether changes, as a result tells them, put another engine in place, which then has to be handed over."""
    return any(change["path"] == ENGINE_PATH and change["after"] for change in changes)


def _paths(*paths: str) -> list[str]:
    return [path for path in paths if path]


def _metrics_path(desired: Desired, current: Current) -> str:
    if desired.metrics != AUTO:
        return desired.metrics
    folder = next((one for one in METRICS_FOLDERS if one in current.folders), "")
    return folder and f"{folder}/{METRICS_NAME}"


def _texts(desired: Desired, metrics: str) -> dict[str, str]:
    mends = not _MENDED.isdisjoint(desired.options)
    guests = _STARTED in desired.options
    settings = units.Settings(desired.timeout_s, desired.device_timeout_s, desired.interval, metrics, mends, guests)
    files = {unit_path(name): text for name, text in units.render(settings).items()}
    return {intent.PATH: intent.render(desired.options), **files}


def _metrics_refusals(desired: Desired, current: Current) -> list[Problem]:
    folder = posixpath.dirname(desired.metrics)
    if not folder or folder in current.folders:
        return []
    advice = "Install the node exporter first, or correct the path."
    return [Problem("host_boot_metrics_path", "its folder is not there", advice, found=folder)]


def _refusals(desired: Desired, current: Current, texts: Mapping[str, str]) -> Iterator[Problem]:
    """What keeps the files from being written or from having an effect."""
    if not desired.engine:
        yield Problem(ENGINE, "the engine was not handed over", "Run the module through its action plugin.")
    for name in units.UNITS:
        path = unit_path(name)
        text = current.texts[path]
        if text == "" or (current.units and current.units[name].load == "masked"):
            yield Problem(path, "is masked", f"Run systemctl unmask {name}, or set host_boot_enabled: false.")
        elif text is not None and not text.startswith(units.MARK):
            yield Problem(path, "is there and is not ours", "Rename that unit, or set host_boot_enabled: false.")
    wanted = {**texts, units.ENGINE: ""}
    for path in [path for path in current.refusals if path in wanted]:
        same = current.engine == desired.engine if path == units.ENGINE else current.texts[path] == texts[path]
        if not same:
            yield Problem(path, f"cannot be written: {current.refusals[path]}", "Make it writable and run again.")


def _files(desired: Desired, current: Current, texts: Mapping[str, str]) -> Iterator[Change]:
    unwanted = [name for name in units.UNITS if unit_path(name) not in texts]
    yield from _disabled(current, unwanted, "no watch is wanted any more")
    if current.engine != desired.engine:
        why = "the engine that brings back what a boot loses is the one of the control node"
        step: Any = InstallEngine(desired.archive, desired.engine)
        yield Change(ENGINE_PATH, _short(current.engine), _short(desired.engine), why, step=step)
    for path, text in texts.items():
        if path == intent.PATH and current.open_intent:
            step = (RemoveFile(path, False), WriteFile(path, text, intent.MODE))
            yield Change(_of(path), "readable by others", text, "it is for root alone", step=step)
        elif current.texts[path] != text:
            why = "what a boot loses, as wanted" if path == intent.PATH else "how systemd runs the engine"
            step = WriteFile(path, text, intent.MODE if path == intent.PATH else 0o644)
            yield Change(_of(path), current.texts[path], text, why, step=step)
    for path in map(unit_path, unwanted):
        if current.texts[path] is not None:
            why = "no watch is wanted any more"
            yield Change(_of(path), current.texts[path], None, why, step=RemoveFile(path, False))


def _started(current: Current, texts: Mapping[str, str]) -> Iterator[Change]:
    """Have systemd read the units, start them at boot, and the watch now."""
    held = current.units or {}
    written = any(current.texts[unit_path(name)] != texts.get(unit_path(name)) for name in units.UNITS)
    failed = [name for name, unit in held.items() if unit.active == "failed" and unit_path(name) not in texts]
    if written or failed or any(unit.stale for unit in held.values()):
        reset = [("systemctl", "reset-failed", *failed)] if failed else []
        step = RunPrograms((("systemctl", "daemon-reload"), *reset))
        yield Change("host_boot.loaded", False, True, "systemd reads the changed units", step=step)
    wanted = [name for name in units.WANTED_BY if unit_path(name) in texts]
    missing = [name for name in wanted if name not in current.enabled]
    if missing:
        step = RunPrograms((("systemctl", "enable", *missing),))
        before = sorted(current.enabled & set(wanted))
        yield Change("host_boot.enabled", before, sorted(wanted), "the next boot starts them", step=step)
    if units.TIMER in wanted and held and not held[units.TIMER].waits:
        step = RunPrograms((("systemctl", "restart", units.TIMER),))
        yield Change(f"host_boot.running[{units.TIMER}]", False, True, "the watch begins", step=step)


def _former_metrics(former: Sequence[str], metrics: str, watched: bool) -> Iterator[Change]:
    """A watch that is under way could write its file once more, so it is stopped first, if it was not before."""
    stop = (("systemctl", "stop", units.WATCH),) if watched else ()
    for index, path in enumerate(former):
        step = (RunPrograms(stop), RemoveFile(path, False))
        confirm = {RECORD: {"metrics": _paths(*former[index + 1 :], metrics)}}
        yield Change(f"host_boot.metrics[{path}]", True, None, "no metrics go there", step=step, confirm=confirm)


def _disabled(current: Current, names: Sequence[str], why: str) -> Iterator[Change]:
    """Stop units and have no boot start them."""
    running = {name for name, unit in (current.units or {}).items() if unit.active not in ("inactive", "failed")}
    before = [name for name in names if name in current.enabled or name in running]
    if not before:
        return
    programs = [("systemctl", "stop", *before)]
    enabled = [name for name in before if name in current.enabled]
    if enabled:
        programs.append(("systemctl", "disable", *enabled))
    yield Change("host_boot.units", before, [], why, step=RunPrograms(tuple(programs)))


def _removal(current: Current, record: Mapping[str, Any]) -> Iterator[Change]:
    """The way back: nothing runs, no file is left, systemd has forgotten the units, and the record goes."""
    why = "the inventory asks for nothing that a boot loses"
    yield from _disabled(current, units.UNITS, why)
    for path, text in current.texts.items():
        if text is not None:
            step = RemoveFile(path, path == intent.PATH)
            yield Change(_of(path), text, None, why, step=step)
    if current.engine is not None:
        yield Change(ENGINE_PATH, _short(current.engine), None, why, step=RemoveFile(units.ENGINE, True))
    for path in record["metrics"]:
        yield Change(f"host_boot.metrics[{path}]", True, None, why, step=RemoveFile(path, False))
    why = "systemd forgets the units"
    programs = RunPrograms((("systemctl", "daemon-reload"), ("systemctl", "reset-failed", *units.UNITS)))
    # Once more with their folders: a removal may have been cut short between a file and its folder.
    folders = (RemoveFile(intent.PATH, True), RemoveFile(units.ENGINE, True))
    yield Change("host_boot.loaded", True, False, why, step=(programs, *folders), forget=(RECORD,))


def _of(path: str) -> str:
    """A file's place in the plan: by its name, which no two of ours share."""
    return f"host_boot.{'intent' if path == intent.PATH else f'unit[{posixpath.basename(path)}]'}"


def _short(digest: str | None) -> str | None:
    return digest and f"sha256:{digest[:12]}"


# apply -----------------------------------------------------------------------------------


def apply(change: Change, host: Host) -> None:
    """Make one change."""
    for step in change.step if isinstance(change.step, tuple) else (change.step,):
        if isinstance(step, WriteFile):
            host.write_text(step.path, step.text, step.mode)
        elif isinstance(step, RemoveFile):
            host.remove(step.path, with_folder=step.with_folder)
        elif isinstance(step, InstallEngine):
            _install(step, host)
        elif isinstance(step, RunPrograms):
            _run(step, host)


def _install(step: InstallEngine, host: Host) -> None:
    text = host.read_text(step.source) if step.source else ABSENT
    if not isinstance(text, str) or digest_of(text) != step.digest:
        fact = f"the copy of the engine at {step.source or 'no path'} is not the one that was announced"
        raise GpudirectError([Problem(units.ENGINE, fact, "Run again.", wanted=f"sha256:{step.digest}")])
    host.write_text(units.ENGINE, text)


def _run(step: RunPrograms, host: Host) -> None:
    for program in step.programs:
        # Nothing had failed, or systemd does not know the unit any more: both are as wanted.
        host.run(list(program), expect=(0, 1) if program[1] == "reset-failed" else (0,))
