# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host for guests with passed-through devices: packages, libvirt's daemons, and a kernel that leaves guests where they are.

Next boot and now are two stores: files (sysctl.d, tmpfiles.d, drop-ins and units of systemd, qemu.conf) and what the kernel and
systemd hold. A boot sets the kernel's values from the files; its run looks at them again, since a service may have set others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Union

from .boot.pages import KIB
from .core.change import Change, Deferred, Plan
from .core.errors import HostRefused, Problem
from .core.host import Host
from .core.owned import Owned
from .core.ranges import ranges
from .guest import resources
from .guest.placed import HostNode
from .hypervisor import conf, system, tuning
from .hypervisor.intent import SCHEMA, Desired, parse
from .hypervisor.steps import (
    EditConf,
    NeedPackages,
    RemoveFile,
    RestoreConf,
    RunPrograms,
    SetAttributes,
    Step,
    WriteFile,
    carry_out,
)

__all__ = ["SCHEMA", "Current", "Desired", "apply", "lost_at_boot", "parse", "plan", "read"]

FILES, ISOLATION, CONF = "kvm.files", "kvm.isolation", "kvm.qemu_conf"
# What was made through libvirt, and goes through it.
_THROUGH_LIBVIRT = ("libvirt_guest", "libvirt_network", "libvirt_pool")
PACKAGES = "kvm.packages"
_RELOAD = RunPrograms((("systemctl", "daemon-reload"),))


@dataclass(frozen=True)
class Current:
    """The host as it is. ``live`` are kernel attributes by name of the setting; ``looked`` is False where nothing of ours can be."""

    looked: bool = False
    family: str = ""
    missing: tuple[str, ...] = ()
    kvm: bool = True
    unified: bool = True
    machined: bool = True
    files: Mapping[str, Union[str, None]] = field(default_factory=dict, hash=False)
    refusals: Mapping[str, str] = field(default_factory=dict, hash=False)
    live: Mapping[str, Mapping[str, str]] = field(default_factory=dict, hash=False)
    units: Mapping[str, system.Unit] = field(default_factory=dict, hash=False)
    allowed: Mapping[str, Union[str, None]] = field(default_factory=dict, hash=False)
    mounted: Mapping[str, int] = field(default_factory=dict, hash=False)
    conf: str | None = None
    nodes: tuple[HostNode, ...] = ()
    needed_by: tuple[str, ...] = ()


def lost_at_boot(desired: Desired) -> bool:
    """Files keep the values; what sets others after them (tuned, a package's service) is told by the watch, and put right at boot."""
    return desired.managed


# read ------------------------------------------------------------------------------------


def read(host: Host, desired: Desired) -> Current:
    """All of it where the host is managed or something is on record."""
    owned = Owned.load(host)
    if not desired.managed and not owned.of(SCHEMA.name):
        return Current()
    family = system.family(host)
    paths = tuning.own_files()
    return Current(
        True,
        family,
        system.missing(host, family),
        host.captured or _has_kvm(host),
        host.exists(f"{tuning.CGROUPS}/cgroup.controllers"),
        "systemd-container" not in system.missing(host, family),
        system.texts(host, paths),
        {path: why for path in (*paths, conf.PATH) if (why := host.refuses_write(path))},
        {
            "ksm": tuning.attribute(host, tuning.KSM),
            "numa_balancing": tuning.attribute(host, tuning.BALANCING),
            "governor": tuning.governors(host),
        },
        system.units(host, (*tuning.all_units(), *map(tuning.mount_unit, KIB))),
        tuning.allowed(host),
        tuning.mounted(host),
        system.text_of(host, conf.PATH),
        resources.read(host) if desired.isolate else (),
        tuple(path for name in _THROUGH_LIBVIRT for path in sorted(owned.of(name))),
    )


def _has_kvm(host: Host) -> bool:
    """The device node alone says nothing: systemd makes it for a module that cannot be loaded, too (kmod static nodes)."""
    return host.exists("/dev/kvm") and any(host.exists(f"/sys/module/{name}") for name in ("kvm_intel", "kvm_amd"))


# plan ------------------------------------------------------------------------------------


def plan(desired: Desired, current: Current, owned: Mapping[str, Any]) -> Plan:
    """Files of the next boot first and what rests on packages last; the way back in the opposite order.

    But for those files, which go first as well: a power cut in between must not have a boot set values that nobody has on record.
    """
    refused = list(_refusals(desired, current)) if desired.managed else []
    if refused:
        raise HostRefused(refused)
    if not desired.managed and current.needed_by and _has_libvirt(current.units):
        return _kept_for_guests(current, owned)
    waits = bool(current.missing) and desired.managed
    wanted: list[Change] = []
    kept: set[str] = set()
    for name, changes in _parts(desired, current, owned).items():
        kept.add(name)
        wanted += changes
    gone = [name for name in owned if name not in kept and not (waits and name.startswith(("kvm.daemon[", CONF)))]
    order = sorted(gone, key=lambda name: (-_rank(name), name))
    undone = [_undo(name, owned[name], current) for name in order]
    deferred = [Deferred("kvm", PACKAGES, "libvirt's daemons and settings come with the packages")] if waits else []
    changes = sorted((*undone, *wanted), key=lambda change: change.path not in (PACKAGES, FILES))
    return Plan(tuple(changes), tuple(deferred), (), tuple(_notes(desired, current)))


def _has_libvirt(units: Mapping[str, system.Unit]) -> bool:
    return any(units[name].there for name in (system.MONOLITHIC[0], system.MODULAR))


def _kept_for_guests(current: Current, owned: Mapping[str, Any]) -> Plan:
    """Guests are ended and removed through libvirt, under the settings that they run with; all that goes once they are gone.

    A daemon of ours that somebody has stopped is started for it; where none is ours and none runs, whatever answers for libvirt here.
    """
    sockets = _sockets(current.units)
    known = (system.MONOLITHIC[0], *system.SOCKETS, system.LOG_SOCKET)
    names = [name for name in known if f"kvm.daemon[{name}]" in owned and current.units[name].there]
    if not any(current.units[unit].runs for name in (*sockets, *names) for unit in (name, _service(name))):
        names = list(dict.fromkeys((*names, *sockets)))
    changes = [change for name in names for change in _daemon(name, current.units)]
    first, *others = current.needed_by
    more = f" and {len(others)} more are" if others else " is"
    why = f"{first}{more} on record: it goes through libvirt, which stays for it"
    return Plan(tuple(changes), (Deferred("kvm", first.partition("[")[0], why),))


def _rank(name: str) -> int:
    """The order in which parts come; they go the other way round."""
    order = (FILES, "kvm.service[", "kvm.live[", ISOLATION, "kvm.mount[", CONF, "kvm.daemon[")
    return next(index for index, beginning in enumerate(order) if name.startswith(beginning))


def _parts(desired: Desired, current: Current, owned: Mapping[str, Any]) -> dict[str, list[Change]]:
    """Every part that is wanted, by its record, with the changes that it still needs."""
    if not desired.managed:
        return {}
    parts: dict[str, list[Change]] = {}
    if current.missing:
        why = "a host for guests has them; the role installs them"
        step = (NeedPackages(current.missing),)
        parts[PACKAGES] = [Change(PACKAGES, None, list(current.missing), why, step=step, next_boot=True)]
    parts[FILES] = _files(desired, current, owned)
    for name in system.MOVERS:
        if current.units[name].there or f"kvm.service[{name}]" in owned:
            parts[f"kvm.service[{name}]"] = _mover(name, current.units[name])
    values = {name: value for name, value in _values(desired).items() if current.live[name]}
    parts.update({f"kvm.live[{name}]": _live(name, value, current.live[name]) for name, value in values.items()})
    if desired.isolate and current.machined:
        parts[ISOLATION] = _isolation(desired, current, owned)
    for size in desired.mounts:
        parts[f"kvm.mount[{size}]"] = _mount(size, current, owned)
    return parts if current.missing else {**parts, **_libvirt(desired, current, owned)}


def _libvirt(desired: Desired, current: Current, owned: Mapping[str, Any]) -> dict[str, list[Change]]:
    """The parts that come with the packages."""
    parts = {CONF: _conf(desired.conf, current.conf or "", owned.get(CONF))} if desired.conf else {}
    return {**parts, **{f"kvm.daemon[{name}]": _daemon(name, current.units) for name in _sockets(current.units)}}


def _values(desired: Desired) -> dict[str, str]:
    values = {"ksm": "0", "numa_balancing": "0"}
    return {**values, "governor": tuning.GOVERNOR} if desired.governor else values


def _boot_files(desired: Desired, current: Current) -> dict[str, str]:
    balancing = bool(current.live["numa_balancing"])
    return tuning.boot_files(balancing=balancing, governor=desired.governor and bool(current.live["governor"]))


def _files(desired: Desired, current: Current, owned: Mapping[str, Any]) -> list[Change]:
    texts = _boot_files(desired, current)
    files = {path: texts.get(path) for path in (tuning.SYSCTL, tuning.TMPFILES)}
    wrong = [path for path, text in files.items() if current.files[path] != text]
    if not wrong and FILES in owned:
        return []
    steps = [WriteFile(path, text) if (text := files[path]) is not None else RemoveFile(path) for path in wrong]
    before = {path: current.files[path] for path in files}
    why = "the next boot sets what the kernel leaves to its guests"
    change = _kept(FILES, before, files, why, steps=steps, remember={"before": None})
    # With a power cut after this, the next boot sets the values: what was found has to be on record by then.
    values = {name: value for name, value in _values(desired).items() if {*current.live[name].values()} - {value}}
    live = {f"kvm.live[{name}]": _found(value, current.live[name]) for name, value in values.items()}
    return [replace(change, remember={**change.remember, **live})]


def _found(value: str, found: Mapping[str, str]) -> dict[str, Any]:
    """The record of attributes as they were, and of what we set."""
    return {"before": dict(found), "ours": value}


def _mover(name: str, unit: system.Unit) -> list[Change]:
    if not unit.enabled and not unit.runs:
        return []
    verbs = [*(["stop"] if unit.runs else []), *(["disable"] if unit.enabled else [])]
    before = _state(unit)
    step = RunPrograms(tuple(("systemctl", verb, name) for verb in verbs))
    why = "it merges or moves memory of guests against their pinning"
    after = {"enabled": False, "running": False}
    return [_kept(f"kvm.service[{name}]", before, after, why, steps=[step], remember={"before": before})]


def _live(name: str, value: str, found: Mapping[str, str]) -> list[Change]:
    wrong = {path: value for path, text in found.items() if text != value}
    if not wrong:
        return []
    record = f"kvm.live[{name}]"
    reasons = {
        "ksm": "merging pages takes processor time, and guests have huge pages",
        "numa_balancing": "guests are pinned; unmapping their memory to see who uses it only costs them",
        "governor": "a CPU that has to speed up first answers late",
    }
    before = "|".join(sorted({found[path] for path in wrong}))
    remember = {record: _found(value, found)}
    return [Change(record, before, value, reasons[name], step=(SetAttributes(wrong),), remember=remember)]


def _isolation(desired: Desired, current: Current, owned: Mapping[str, Any]) -> list[Change]:
    cpus = _reserved(desired, current)
    texts = {tuning.drop_in(unit): tuning.drop_in_text(unit, cpus) for unit in tuning.HOUSEKEEPING}
    wrong = [path for path, text in texts.items() if current.files[path] != text]
    listed = ranges(cpus)
    live = all(current.allowed[unit] == listed for unit in tuning.HOUSEKEEPING)
    if not wrong and live and owned.get(ISOLATION, {}).get("loaded"):
        return []
    steps: list[Step] = [*(WriteFile(path, texts[path]) for path in wrong), _RELOAD]
    why = "the host's own work keeps to its CPUs, and guests have the others"
    after = dict.fromkeys(tuning.HOUSEKEEPING, listed)
    return [_kept(ISOLATION, dict(current.allowed), after, why, steps=steps, remember={"before": None}, loaded=True)]


def _reserved(desired: Desired, current: Current) -> tuple[int, ...]:
    if desired.reserved is not None:
        return desired.reserved
    return tuple(sorted(cpu for node in current.nodes for core in node.cores[:1] for cpu in core))


def _mount(size: str, current: Current, owned: Mapping[str, Any]) -> list[Change]:
    record, path, unit = f"kvm.mount[{size}]", tuning.mount_path(size), tuning.mount_unit(size)
    up = current.mounted.get(tuning.mount_folder(size)) == KIB[size]
    text = tuning.mount_text(size)
    if up and current.files[path] is None and record not in owned:
        return []  # somebody else's, and as good
    good = current.files[path] == text and current.units[unit].enabled and up
    if good and owned.get(record, {}).get("loaded"):
        return []
    programs = [("systemctl", "daemon-reload"), ("systemctl", "enable", unit), ("systemctl", "start", unit)]
    # libvirt looks for these file systems once, when a daemon starts (src/qemu/qemu_conf.c).
    programs += [("systemctl", "try-restart", f"{name}.service") for name in ("libvirtd", "virtqemud")
                 if current.units[f"{name}.service"].there]  # fmt: skip
    why = "libvirt takes pages of each size from a file system of its own"
    steps = [WriteFile(path, text), RunPrograms(tuple(programs))]
    return [_kept(record, up, True, why, steps=steps, remember={"before": None}, loaded=True)]


def _conf(wanted: Mapping[str, Any], text: str, record: Mapping[str, Any] | None) -> list[Change]:
    """One change for all names, so that the daemon that has to read them is restarted once.

    A name that leaves the intent goes back in the same change; it stays on record until nothing is left of the part.
    """
    lines = {key: conf.line(key, value) for key, value in wanted.items()}
    was = dict(record["keys"]) if record else {}
    gone = {key: before for key, before in was.items() if key not in wanted}
    wrong = [key for key, line in lines.items() if (conf.found(text, key) or "").strip() != line.strip()]
    if not wrong and not gone and record and record.get("loaded"):
        return []
    keys = {key: was[key] if key in was else conf.found(text, key) for key in wanted}
    ended = record["ended"] if record else text.endswith("\n") or not text
    # A run may be cut off between record and file: what stood there before is ours as well until the change is confirmed.
    former = {key: list(lines) for key, lines in record["ours"].items()} if record else {}
    ours = {key: [*former.get(key, []), *([lines[key]] if key in lines else [])] for key in (*gone, *wanted)}
    remember = {"before": None, "keys": {**gone, **keys}, "ours": ours, "ended": ended}
    restored = RestoreConf(gone, ours, True)
    steps: list[Step] = [*([restored] if gone else []), EditConf({key: wanted[key] for key in wrong}), _restarted()]
    before = {key: conf.found(text, key) for key in (*wanted, *gone)}
    after = {**lines, **gone}
    now = {key: [line] for key, line in lines.items()}
    why = "libvirt reads its settings when its daemon starts"
    return [_kept(CONF, before, after, why, steps=steps, remember=remember, loaded=True, keys=keys, ours=now)]


def _restarted() -> RunPrograms:
    """Guests go on meanwhile; a daemon that does not run stays so."""
    return RunPrograms((("systemctl", "try-restart", "libvirtd.service", "virtqemud.service"),))


def _sockets(units: Mapping[str, system.Unit]) -> list[str]:
    """The sockets that answer for libvirt on this host: of the one daemon, or of those that it was split into."""
    names = ["libvirtd.socket"] if _monolithic(units) else [name for name in system.SOCKETS if units[name].there]
    return [*names, *([system.LOG_SOCKET] if units[system.LOG_SOCKET].there else [])]


def _in_use(name: str, units: Mapping[str, system.Unit]) -> bool:
    pair = [units[name], units[_service(name)]]
    return any(unit.there and (unit.enabled or unit.runs) for unit in pair)


def _monolithic(units: Mapping[str, system.Unit]) -> bool:
    return _in_use("libvirtd.socket", units) or not units[system.MODULAR].there


def _service(socket: str) -> str:
    return f"{socket.removesuffix('.socket')}.service"


def _daemon(name: str, units: Mapping[str, system.Unit]) -> list[Change]:
    pair = [units[name], units[_service(name)]]
    enabled, runs = any(unit.enabled for unit in pair), any(unit.runs for unit in pair)
    if enabled and runs:
        return []
    verbs = [*([] if enabled else ["enable"]), *([] if runs else ["start"])]
    before = {"enabled": enabled, "running": runs}
    why = "guests are defined and started through it"
    step = RunPrograms(tuple(("systemctl", verb, name) for verb in verbs))
    after = {"enabled": True, "running": True}
    return [_kept(f"kvm.daemon[{name}]", before, after, why, steps=[step], remember={"before": before})]


def _state(unit: system.Unit) -> dict[str, bool]:
    return {"enabled": unit.enabled, "running": unit.runs}


def _kept(
    record: str, before: Any, after: Any, why: str, *, steps: list[Any], remember: Mapping[str, Any], **learnt: Any
) -> Change:
    """A change that a file keeps, or a unit: it is for boots to come, and the run at boot leaves it alone.

    (That run comes before libvirt, and to start a unit that waits for it would never end.)
    """
    confirm = {record: learnt} if learnt else {}
    return Change(
        record, before, after, why, step=tuple(steps), remember={record: remember}, confirm=confirm, next_boot=True
    )


# What a host refuses, and what it should know ----------------------------------------------


def _refusals(desired: Desired, current: Current) -> Iterator[Problem]:
    if not current.family:
        yield Problem("kvm_host", "does not know this distribution", "Take Debian, Ubuntu, RHEL or Rocky Linux.")
    if not current.kvm:
        advice = "Switch on VT-x or AMD-V (SVM) in the BIOS, and see why kvm_intel or kvm_amd is not loaded."
        yield Problem("kvm_host", "the kernel of this host starts no guests", advice, found="no usable /dev/kvm")
    wanted = {**_boot_files(desired, current), **{tuning.mount_path(size): "" for size in desired.mounts}}
    if desired.isolate:
        yield from _isolation_refusals(desired, current)
        wanted.update({tuning.drop_in(unit): "" for unit in tuning.HOUSEKEEPING})
    for path in tuning.foreign(current.files, wanted):
        yield Problem(path, "is there and is not ours", "Move it to another name, or set kvm_host: unmanaged.")
    if desired.conf:
        wanted[conf.PATH] = ""
    for path in [path for path in current.refusals if path in wanted]:
        yield Problem(path, f"cannot be written: {current.refusals[path]}", "Make it writable and run again.")
    if not current.missing:
        yield from _daemon_refusals(current.units)


def _isolation_refusals(desired: Desired, current: Current) -> Iterator[Problem]:
    if not current.unified:
        advice = "Boot with systemd.unified_cgroup_hierarchy=1, or leave it out."
        yield Problem("kvm_isolate_cpus", "needs the unified hierarchy of control groups", advice)
    online = {cpu for node in current.nodes for core in node.cores for cpu in core}
    yield from resources.not_there(_reserved(desired, current), current.nodes)
    if not set(_reserved(desired, current)) & online:
        advice = "Name at least one core of each NUMA node."
        yield Problem("guest_reserved_cpus", "leaves the host no CPU", advice)


def _daemon_refusals(units: Mapping[str, system.Unit]) -> Iterator[Problem]:
    if _in_use("libvirtd.socket", units) and _in_use(system.MODULAR, units):
        advice = "Disable and stop one of them; guests keep running meanwhile."
        found = "libvirtd and virtqemud"
        yield Problem("kvm.daemons", "are of two kinds, which exclude each other", advice, found, "one of them")
    for name in _sockets(units):
        if units[name].masked:
            yield Problem(f"kvm.daemon[{name}]", "is masked", f"Run systemctl unmask {name}.")


def _notes(desired: Desired, current: Current) -> Iterator[str]:
    if not desired.managed:
        return
    if desired.governor and not current.live["governor"]:
        yield "kvm_governor: no driver of this host offers the governor performance, so there is none to set"
    line = conf.found(current.conf or "", "security_driver") or ""
    if '"none"' in line.partition("#")[0]:
        yield f'{conf.PATH}: guests run without confinement (security_driver "none"); passthrough does not need that'


# undo ------------------------------------------------------------------------------------


def _undo(name: str, record: Mapping[str, Any], current: Current) -> Change:
    """Give one part back and drop its record; everything in it may be done twice."""
    kind, _bracket, rest = name.partition("[")
    ways: dict[str, Callable[[], list[Step]]] = {
        FILES: lambda: [RemoveFile(tuning.SYSCTL), RemoveFile(tuning.TMPFILES)],
        "kvm.service": lambda: _unit_back(rest[:-1], record["before"], current),
        "kvm.live": lambda: _live_back(rest[:-1], record, current),
        ISOLATION: lambda: [*(RemoveFile(tuning.drop_in(unit), True) for unit in tuning.HOUSEKEEPING), _RELOAD],
        "kvm.mount": lambda: _mount_back(rest[:-1], current),
        CONF: lambda: _conf_back(record, current),
        "kvm.daemon": lambda: _unit_back(rest[:-1], record["before"], current),
    }
    why = "no longer wanted; what was found before is put back"
    return Change(name, True, None, why, step=tuple(ways[kind]()), forget=(name,), undo=True)


def _unit_back(name: str, before: Mapping[str, bool], current: Current) -> list[Step]:
    unit = current.units.get(name)
    if unit is None or not unit.there:
        return []
    # A daemon that its socket has started goes with it.
    also = [_service(name)] if name.endswith(".socket") and current.units[_service(name)].runs else []
    programs: list[tuple[str, ...]] = []
    if unit.enabled != before["enabled"]:
        programs.append(("systemctl", "enable" if before["enabled"] else "disable", name))
    if (unit.runs or bool(also)) != before["running"]:
        programs.append(("systemctl", "start", name) if before["running"] else ("systemctl", "stop", name, *also))
    return [RunPrograms(tuple(programs))] if programs else []


def _live_back(name: str, record: Mapping[str, Any], current: Current) -> list[Step]:
    """Back to what was found, where nobody has set another value since."""
    live = current.live.get(name, {})
    texts = {path: text for path, text in record["before"].items() if live.get(path) == record["ours"] != text}
    return [SetAttributes(texts)] if texts else []


def _mount_back(size: str, current: Current) -> list[Step]:
    unit = tuning.mount_unit(size)
    there = current.units[unit].there if unit in current.units else False
    programs = [("systemctl", "stop", unit), ("systemctl", "disable", unit)] if there else []
    steps: list[Step] = [RunPrograms(tuple(programs))] if programs else []
    return [*steps, RemoveFile(tuning.mount_path(size)), _RELOAD]


def _conf_back(record: Mapping[str, Any], current: Current) -> list[Step]:
    if current.conf is None:
        return []
    return [RestoreConf(record["keys"], record["ours"], record["ended"]), _restarted()]


# apply -----------------------------------------------------------------------------------


def apply(change: Change, host: Host) -> None:
    """Make one change."""
    carry_out(change.step or (), host)
