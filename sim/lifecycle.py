"""Bring hosts up and take them down, completely."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sim.acceleration import choose_accelerator
from sim.commands import run
from sim.control import NobodyAnswers, ask
from sim.describe import Filesystem, Host
from sim.errors import RackError
from sim.identity import ensure_key, write_credentials
from sim.image import Image, ensure_image
from sim.liveness import read_mark
from sim.machine import Placement
from sim.places import Rack, make_private
from sim.ports import kept_port, read_port
from sim.progress import Progress
from sim.reach import start_probe, write_ssh_config
from sim.supervisor import hold_lock

BOOT_LIMIT_S = 420.0
SHUTDOWN_LIMIT_S = 30.0
TICK_S = 0.5
FILLER_NAME = "filler"


@dataclass
class _Boot:
    host: Host
    probe: subprocess.Popen[bytes] | None = None
    began: float = field(default_factory=time.monotonic)
    answers: bool = False


def placement(rack: Rack, name: str, image: Image, accelerator: str) -> Placement:
    """Return where a host that has a port keeps its things."""
    port = read_port(rack.host(name) / "port")
    if port is None:
        raise RackError(f"{name}: was never up. Run 'sim/rack up {name}'.")
    return Placement(rack.host(name), rack.sockets, image.emulator.firmware, port, accelerator)


def supervisor_runs(rack: Rack, name: str) -> bool:
    """Say whether a host has a supervisor now; the lock cannot be stale."""
    if not rack.host(name).is_dir():
        return False
    lock = hold_lock(rack.host(name))
    if lock is None:
        return True
    import os

    os.close(lock)
    return False


def control_socket(rack: Rack, name: str) -> Path:
    """Return the path of a supervisor's control socket."""
    return rack.sockets / f"{name}.ctl"


def bring_up(rack: Rack, hosts: Sequence[Host], everyone: Iterable[Host], *, fresh: bool) -> None:
    """Start the hosts that do not run and wait until ssh answers on all of them."""
    progress = Progress([host.name for host in hosts])
    progress.set_all("image")
    image = ensure_image(rack, progress.set_all)
    make_private(rack.state)
    make_private(rack.sockets)
    ensure_key(rack.key, "simulated rack")
    idle = [host for host in hosts if fresh or not supervisor_runs(rack, host.name)]
    if fresh:
        take_down(rack, [host.name for host in idle], say=lambda name, what: progress.set(name, what))
    started: list[str] = []
    try:
        for host in idle:
            _prepare(rack, host, image, fresh=fresh)
        write_ssh_config(rack, everyone)
        accelerator = choose_accelerator(image)
        for host in idle:
            started.append(host.name)
            _start_supervisor(rack, host.name, image, accelerator)
        _wait_for_ssh(rack, hosts, progress)
    except BaseException:
        # Also after Ctrl-C: hosts that this call started do not outlive it half-booted.
        take_down(rack, started, gently=False)
        raise


def _prepare(rack: Rack, host: Host, image: Image, *, fresh: bool) -> None:
    folder = rack.host(host.name)
    make_private(folder)
    others = {read_port(path) or 0 for path in rack.state.glob("*/port") if path.parent != folder}
    kept_port(folder / "port", f"{rack.checkout}/{host.name}", others)
    base = folder / "base"
    built_on = base.read_text().strip() if base.exists() else ""
    if fresh or built_on != image.key or not (folder / "disk.qcow2").exists():
        _make_disks(placement(rack, host.name, image, "tcg"), host, image)
        base.write_text(image.key + "\n")
    write_credentials(rack, host)


def _make_disks(place: Placement, host: Host, image: Image) -> None:
    place.disk.unlink(missing_ok=True)
    create = [*image.emulator.command("qemu-img"), "create", "-q", "-f", "qcow2", "-F", "raw"]
    run([*create, "-b", str(image.disk), str(place.disk)], env=image.emulator.environment)
    shutil.copy(place.firmware / "OVMF_VARS_4M.fd", place.variables)
    for switch in host.switches:
        for device in switch.devices:
            if device.kind == "nvme":
                _make_blank(place.stand_in(device.name), device.mib)
    for filesystem in host.filesystems:
        _make_filesystem(place.stand_in(filesystem.label), filesystem)


def _make_blank(path: Path, mib: int) -> None:
    with path.open("wb") as file:
        file.truncate(mib * 1024 * 1024)


def _make_filesystem(path: Path, wanted: Filesystem) -> None:
    _make_blank(path, wanted.mib)
    # No reserve: a file system that root can still write to is not full.
    run(["mkfs.ext4", "-q", "-F", "-m", "0", "-L", wanted.label, "-O", "^has_journal", str(path)])
    if wanted.full:
        _fill(path, wanted.mib)


def _fill(path: Path, mib: int) -> None:
    filler = path.with_suffix(".filler")
    _make_blank(filler, 0)
    free = int(_stat_of(path, "Free blocks"))
    size = int(_stat_of(path, "Block size"))
    with filler.open("wb") as file:
        file.write(b"\xff" * (free * size))
    # debugfs writes what fits and stops at the last free block.
    subprocess.run(  # noqa: S603
        ["debugfs", "-w", "-R", f"write {filler} {FILLER_NAME}", str(path)],  # noqa: S607
        capture_output=True,
        check=False,
    )
    filler.unlink()


def _stat_of(path: Path, label: str) -> str:
    for line in run(["dumpe2fs", "-h", str(path)]).splitlines():
        name, _, value = line.partition(":")
        if name == label:
            return value.strip()
    raise RackError(f"{path}: dumpe2fs does not say {label!r}. Remove the file.")


def _start_supervisor(rack: Rack, name: str, image: Image, accelerator: str) -> None:
    errors = (rack.host(name) / "supervisor.log").open("ab")
    with errors:
        supervisor = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "sim", "supervise", name, image.key, accelerator],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            start_new_session=True,
        )
    limit = time.monotonic() + 20
    while time.monotonic() < limit:
        if supervisor.poll() is not None:
            break
        try:
            ask(control_socket(rack, name), "status")
        except NobodyAnswers:
            time.sleep(0.05)
        else:
            return
    raise RackError(
        f"{name}: the supervisor did not start (ended with {supervisor.poll()}). "
        f"Read {rack.host(name)}/supervisor.log."
    )


def _wait_for_ssh(rack: Rack, hosts: Sequence[Host], progress: Progress) -> None:
    boots = [_Boot(host) for host in hosts]
    try:
        while not all(boot.answers for boot in boots):
            for boot in boots:
                if not boot.answers:
                    _advance(rack, boot, progress)
            time.sleep(0.1 if all(boot.answers for boot in boots) else TICK_S)
    finally:
        for boot in boots:
            if boot.probe is not None and boot.probe.poll() is None:
                boot.probe.kill()
                boot.probe.wait()


def _advance(rack: Rack, boot: _Boot, progress: Progress) -> None:
    name = boot.host.name
    if boot.probe is not None and boot.probe.poll() == 0:
        boot.answers = True
        progress.set(name, "ssh answers")
        return
    progress.set(name, "booting")
    if boot.probe is None or boot.probe.poll() is not None:
        _refuse_dead(rack, name)
        boot.probe = start_probe(rack, name)
    if time.monotonic() - boot.began > BOOT_LIMIT_S:
        raise RackError(
            f"{name}: ssh did not answer within {BOOT_LIMIT_S:.0f} s.\n{last_words(rack, name)}"
        )


def _refuse_dead(rack: Rack, name: str) -> None:
    try:
        report = ask(control_socket(rack, name), "status")
    except NobodyAnswers:
        report = {"power": "off", "last_end": "its supervisor is gone"}
    if report["power"] == "off":
        raise RackError(f"{name}: is off ({report['last_end']}).\n{last_words(rack, name)}")


def last_words(rack: Rack, name: str, lines: int = 12) -> str:
    """Return the end of the console, and where to read on."""
    folder = rack.host(name)
    try:
        text = (folder / "console.log").read_text(errors="replace")
    except FileNotFoundError:
        text = ""
    tail = [f"    {line}" for line in text.splitlines()[-lines:] if line.strip()]
    return "\n".join([*tail, f"Read {folder}/console.log, qemu.log and supervisor.log."])


def take_down(
    rack: Rack,
    names: Sequence[str],
    *,
    gently: bool = True,
    say: Callable[[str, str], None] = lambda _name, _what: None,
) -> None:
    """Power hosts off, by their button where they listen to it, and end their supervisors."""
    running = [name for name in names if supervisor_runs(rack, name)]
    asked = [name for name in running if gently and _press_button(rack, name)]
    limit = time.monotonic() + SHUTDOWN_LIMIT_S
    while asked and time.monotonic() < limit:
        asked = [name for name in asked if power_of(rack, name) == "on"]
        time.sleep(0.2)
    for name in asked:
        say(name, f"did not shut down within {SHUTDOWN_LIMIT_S:.0f} s, power cut")
    for name in running:
        _end_supervisor(rack, name)
        say(name, "down")
    for name in names:
        _close_connections(rack, name)


def power_of(rack: Rack, name: str) -> str:
    """Return on or off; a host without a supervisor is off."""
    try:
        return str(ask(control_socket(rack, name), "status")["power"])
    except NobodyAnswers:
        return "off"


def _press_button(rack: Rack, name: str) -> bool:
    probe = start_probe(rack, name)
    try:
        # A host that does not answer ssh does not listen to its button either (firmware, early boot).
        listens = probe.wait(timeout=8) == 0
    except subprocess.TimeoutExpired:
        probe.kill()
        probe.wait()
        listens = False
    if listens:
        ask(control_socket(rack, name), "off")
    return listens


def _end_supervisor(rack: Rack, name: str) -> None:
    mark = read_mark(rack.host(name) / "supervisor.json")
    try:
        ask(control_socket(rack, name), "quit")
    except NobodyAnswers:
        if mark is not None:
            mark.kill(signal.SIGTERM)
    limit = time.monotonic() + 5
    while supervisor_runs(rack, name):
        if time.monotonic() > limit and mark is not None:
            mark.kill(signal.SIGKILL)
        time.sleep(0.05)


def _close_connections(rack: Rack, name: str) -> None:
    for path in rack.sockets.glob(f"{name}.*"):
        path.unlink(missing_ok=True)
    shared = rack.sockets / f"ssh-{name}"
    if shared.exists():
        argv = ["ssh", "-F", str(rack.ssh_config), "-O", "exit", name]
        subprocess.run(argv, capture_output=True, check=False)  # noqa: S603
        shared.unlink(missing_ok=True)
