# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring hosts up and take them down, completely."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence

from sim.acceleration import choose_accelerator
from sim.commands import undisturbed
from sim.control import NobodyAnswers, ask
from sim.describe import Host
from sim.disks import make_disks
from sim.errors import RackError
from sim.identity import ensure_key, write_credentials
from sim.image import Image, ensure_image
from sim.liveness import read_mark
from sim.machine import Placement
from sim.places import Rack, make_private
from sim.ports import kept_port, read_port
from sim.power import control_socket, is_on, press_until_off, supervisor_runs, switch_on
from sim.progress import Progress
from sim.reach import greets, write_ssh_config
from sim.waiting import answers_now, wait_for_ssh

GENTLE_LIMIT_S = 40.0
LISTEN_PATIENCE_S = 20.0
SUPERVISOR_LIMIT_S = 60.0
POLL_S = 0.1

Say = Callable[[str, str], None]


def _silent(_name: str, _what: str) -> None:
    return


def bring_up(rack: Rack, hosts: Sequence[Host], everyone: Iterable[Host], *, fresh: bool) -> None:
    """Start the hosts that do not run and wait until ssh answers on all of them."""
    names = [host.name for host in hosts]
    progress = Progress(names)
    if not fresh and all(is_on(rack, name) and answers_now(rack, name) for name in names):
        progress.set_all("up already")
        return
    if fresh:
        take_down(rack, names, say=progress.set)
    idle = [host for host in hosts if not supervisor_runs(rack, host.name)]
    try:
        if idle:
            _start(rack, idle, everyone, progress, fresh=fresh)
        for name in names:
            switch_on(rack, name)
        problems = wait_for_ssh(rack, names, progress)
    except BaseException:
        # Also after Ctrl-C, even a second one: nothing that this call started stays half-booted.
        with undisturbed():
            take_down(rack, [host.name for host in idle], gently=False)
        raise
    if problems:
        take_down(rack, [host.name for host in idle if host.name in problems], gently=False)
        raise RackError("\n".join(problems.values()))


def take_down(rack: Rack, names: Sequence[str], *, gently: bool = True, say: Say = _silent) -> None:
    """Power hosts off, by their button where they listen to it, and end their supervisors."""
    running = [name for name in names if supervisor_runs(rack, name)]
    listening = [name for name in running if gently and _listens(rack, name)]
    for name in listening:
        say(name, "shutting down")
    for name in press_until_off(rack, listening, GENTLE_LIMIT_S):
        say(name, f"did not shut down within {GENTLE_LIMIT_S:.0f} s, power cut")
    for name in running:
        _end_supervisor(rack, name)
        say(name, "down")
    for name in names:
        _clean_up(rack, name)
    with contextlib.suppress(OSError):
        rack.sockets.rmdir()


def placement(rack: Rack, name: str, image: Image, accelerator: str) -> Placement:
    """Return where a host that has a port keeps its things."""
    port = read_port(rack.host(name) / "port")
    if port is None:
        raise RackError(f"{name}: was never up. Run 'sim/rack up {name}'.")
    return Placement(rack.host(name), rack.sockets, image.emulator.firmware, port, accelerator)


def _start(rack: Rack, idle: Sequence[Host], everyone: Iterable[Host], progress: Progress, *, fresh: bool) -> None:
    progress.set_all("image")
    image = ensure_image(rack, progress.set_all)
    # Held until this process ends, so that nobody prunes the image before the supervisors hold it.
    image.hold()
    for folder in (rack.state, rack.sockets):
        make_private(folder)
    ensure_key(rack.key, "simulated rack")
    for host in idle:
        _prepare(rack, host, image, fresh=fresh)
    write_ssh_config(rack, everyone)
    accelerator = choose_accelerator(image)
    for host in idle:
        _start_supervisor(rack, host.name, image, accelerator)


def _prepare(rack: Rack, host: Host, image: Image, *, fresh: bool) -> None:
    folder = rack.host(host.name)
    make_private(folder)
    others = {read_port(path) or 0 for path in rack.state.glob("*/port") if path.parent != folder}
    kept_port(folder / "port", f"{rack.checkout}/{host.name}", others)
    write_credentials(rack, host)
    base = folder / "base"
    # An overlay fits the one build that it was made on, not another build of the same recipe.
    if fresh or not base.exists() or base.read_text() != image.identity:
        base.unlink(missing_ok=True)
        make_disks(placement(rack, host.name, image, "tcg"), host, image)
        base.write_text(image.identity)


def _start_supervisor(rack: Rack, name: str, image: Image, accelerator: str) -> None:
    with (rack.host(name) / "supervisor.log").open("ab") as errors:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "sim", "supervise", name, image.key, accelerator],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            start_new_session=True,
        )
    limit = time.monotonic() + SUPERVISOR_LIMIT_S
    while supervisor.poll() is None and time.monotonic() < limit:
        with contextlib.suppress(NobodyAnswers):
            ask(control_socket(rack, name), "status")
            return
        time.sleep(POLL_S)
    supervisor.kill()
    raise RackError(f"{name}: its supervisor did not start. Read {rack.host(name)}/supervisor.log.")


def _listens(rack: Rack, name: str) -> bool:
    # A host that is still in its firmware or early boot listens to no button; waiting would be in vain.
    port = read_port(rack.host(name) / "port")
    return port is not None and is_on(rack, name) and greets(port, LISTEN_PATIENCE_S)


def _end_supervisor(rack: Rack, name: str) -> None:
    mark = read_mark(rack.host(name) / "supervisor.json")
    try:
        ask(control_socket(rack, name), "quit")
    except NobodyAnswers:
        if mark is not None:
            mark.kill(signal.SIGTERM)
    limit = time.monotonic() + SUPERVISOR_LIMIT_S
    while supervisor_runs(rack, name):
        if time.monotonic() > limit:
            if mark is None:
                raise RackError(f"{name}: a process holds {rack.host(name)}/lock and does not answer. End it.")
            mark.kill(signal.SIGKILL)
        time.sleep(POLL_S)


def _clean_up(rack: Rack, name: str) -> None:
    shared = rack.sockets / f"ssh-{name}"
    if shared.exists():
        argv = ["ssh", "-F", str(rack.ssh_config), "-O", "exit", name]
        subprocess.run(argv, capture_output=True, check=False)
    for path in [*rack.sockets.glob(f"{name}.*"), *rack.sockets.glob(f"ssh-{name}*")]:
        path.unlink(missing_ok=True)
    (rack.host(name) / "supervisor.json").unlink(missing_ok=True)
