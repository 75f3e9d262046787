# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One process for each running host: its power supply and its power button.

It starts QEMU, starts it again after a guest reset or when an emulated CPU has stopped, lets a guest shutdown stay off,
and takes QEMU with it when it ends. It holds a lock for its whole life, so a rack can tell a live one from a file
that a killed machine left behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any

from sim.commands import die_with_parent
from sim.errors import RackError
from sim.liveness import mark_of, write_mark
from sim.stalls import Watchdog

log = logging.getLogger(__name__)

# A host that resets faster than this is not booting; pause, so that it does not eat a core.
SHORT_LIFE_S = 2.0
PAUSE_S = 1.0
MAX_STARTS_WITHOUT_QMP = 3


@dataclass(frozen=True)
class Duty:
    """What a supervisor is told when it is started."""

    name: str
    folder: Path
    control: Path
    # Called for each start: the machine description is read anew, as a real host reads its BIOS.
    command: Callable[[], list[str]]
    environment: dict[str, str]


@dataclass
class Power:
    """What the supervisor knows about its QEMU."""

    qemu: subprocess.Popen[bytes] | None = None
    handle: int = -1
    monitor: socket.socket | None = None
    heard: bytes = b""
    reason: str = ""
    greeted: bool = False
    starts: int = 0
    mute_starts: int = 0
    since: float = field(default_factory=time.time)
    last_end: str = ""
    watchdog: Watchdog | None = None


class Supervisor:
    """The event loop over QEMU's end, QEMU's monitor and the control socket."""

    def __init__(self, duty: Duty, listener: socket.socket) -> None:
        """Take a bound control socket; nothing is started yet."""
        self.duty = duty
        self.power = Power()
        self.listener = listener
        self.watched = selectors.DefaultSelector()
        self.watched.register(listener, selectors.EVENT_READ, self._answer)
        self.leaving = False

    def serve(self) -> None:
        """Run until told to quit; QEMU is gone when this returns."""
        for sent in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(sent, self._leave)
        try:
            self.switch_on()
            while not self.leaving:
                for key, _ in self.watched.select(timeout=1.0):
                    key.data()
                self._look_after()
        finally:
            self.cut()

    def _leave(self, sent: int, _frame: FrameType | None) -> None:
        log.info("signal %d: leaving", sent)
        self.leaving = True

    # -- QEMU ---------------------------------------------------------------------------------

    def switch_on(self) -> None:
        """Start QEMU unless it runs."""
        if self.power.qemu is not None:
            return
        try:
            command = self.duty.command()
        except RackError as error:
            # Somebody edits the descriptions; a host without power can still be asked and started.
            log.warning("stays off: %s", error)
            self.power.last_end = f"its description has a mistake: {error}"
            return
        ours, theirs = socket.socketpair()
        with theirs, (self.duty.folder / "qemu.log").open("ab") as errors:
            qemu = self._launch(command, theirs.fileno(), errors)
        old = self.power
        self.power = Power(
            qemu=qemu,
            handle=os.pidfd_open(qemu.pid),
            monitor=ours,
            starts=old.starts + 1,
            mute_starts=old.mute_starts + 1,
            watchdog=Watchdog(self.duty.folder / "console.log"),
        )
        ours.setblocking(False)
        self.watched.register(ours, selectors.EVENT_READ, self._listen)
        self.watched.register(self.power.handle, selectors.EVENT_READ, self._reap)
        log.info("start %d: QEMU is process %d", self.power.starts, qemu.pid)

    def _launch(self, command: list[str], monitor: int, errors: IO[bytes]) -> subprocess.Popen[bytes]:
        channel = ["-chardev", f"socket,id=supervisor,fd={monitor}"]
        channel += ["-mon", "chardev=supervisor,mode=control"]
        return subprocess.Popen(
            [*command, *channel],
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            env={**os.environ, **self.duty.environment},
            pass_fds=[monitor],
            preexec_fn=die_with_parent(),  # noqa: PLW1509 - this process has one thread
        )

    def cut(self) -> None:
        """Take the power away: what the guest did not sync is lost."""
        if self.power.qemu is not None:
            self.power.reason = "cut"
            self.power.qemu.kill()
            self._reap()

    def _look_after(self) -> None:
        watchdog = self.power.watchdog
        if self.power.qemu is not None and watchdog is not None and watchdog.bites():
            log.warning("an emulated CPU has lost its timer: the power is taken away and given again")
            self.cut()
            self.switch_on()

    def press_button(self) -> None:
        """Press the ACPI power button; the guest decides."""
        self._tell("system_powerdown")

    def _tell(self, command: str) -> None:
        if self.power.monitor is not None:
            with contextlib.suppress(OSError):
                self.power.monitor.sendall(json.dumps({"execute": command}).encode() + b"\n")

    def _listen(self) -> None:
        monitor = self.power.monitor
        if monitor is None:
            return
        try:
            heard = monitor.recv(65536)
        except BlockingIOError:
            return
        except ConnectionError:
            heard = b""
        if not heard:
            self.watched.unregister(monitor)
            return
        *lines, self.power.heard = (self.power.heard + heard).split(b"\n")
        for line in lines:
            self._note(json.loads(line))

    def _note(self, message: dict[str, Any]) -> None:
        if "QMP" in message:
            self.power.greeted, self.power.mute_starts = True, 0
            self._tell("qmp_capabilities")
        elif message.get("event") == "SHUTDOWN" and self.power.reason != "cut":
            self.power.reason = str(message["data"].get("reason", ""))

    def _reap(self) -> None:
        power = self.power
        if power.qemu is None:
            return
        code = power.qemu.wait()
        self._listen_to_the_end()
        self._forget()
        power.last_end = power.reason or f"QEMU ended with {code}"
        lived = time.time() - power.since
        log.info("QEMU ended after %.0f s: %s", lived, power.last_end)
        self.power = Power(starts=power.starts, mute_starts=power.mute_starts, last_end=power.last_end)
        if self._starts_again(power.reason) and not self.leaving:
            if lived < SHORT_LIFE_S:
                time.sleep(PAUSE_S)
            self.switch_on()

    def _starts_again(self, reason: str) -> bool:
        if reason in ("guest-reset", "host-qmp-system-reset"):
            return True
        # QEMU ended before it spoke: a port or an image still busy for a moment.
        return reason == "" and 0 < self.power.mute_starts < MAX_STARTS_WITHOUT_QMP

    def _listen_to_the_end(self) -> None:
        # The reason for the end may still wait in the socket.
        monitor = self.power.monitor
        while monitor is not None and monitor in self.watched.get_map():
            self._listen()

    def _forget(self) -> None:
        self.watched.unregister(self.power.handle)
        os.close(self.power.handle)
        if self.power.monitor is not None:
            self.power.monitor.close()

    # -- the control socket -------------------------------------------------------------------

    def _answer(self) -> None:
        line, _ = self.listener.accept()
        with line:
            line.settimeout(2.0)
            try:
                with line.makefile("rb") as stream:
                    request = json.loads(stream.readline())
                self._obey(str(request.get("do")))
                line.sendall(json.dumps(self.report()).encode() + b"\n")
            except (OSError, ValueError, AttributeError) as error:
                log.warning("control: %s", error)

    def _obey(self, word: str) -> None:
        if word != "status":
            log.info("told: %s", word)
        if word == "on":
            self.power.mute_starts = 0
            self.switch_on()
        elif word == "off":
            self.press_button()
        elif word == "cut":
            self.cut()
        elif word == "quit":
            self.leaving = True

    def report(self) -> dict[str, Any]:
        """Return the power state, taken from the process itself."""
        power = self.power
        return {
            "name": self.duty.name,
            "power": "on" if power.qemu is not None else "off",
            "qemu_pid": power.qemu.pid if power.qemu is not None else None,
            "starts": power.starts,
            "since": round(power.since, 1),
            "last_end": power.last_end,
        }


def hold_lock(folder: Path) -> int | None:
    """Return the lock that makes this the host's only supervisor, None when there is one."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def supervise(duty: Duty) -> int:
    """Run a supervisor to its end."""
    lock = hold_lock(duty.folder)
    if lock is None:
        return 3
    logging.basicConfig(
        filename=duty.folder / "supervisor.log",
        format="%(asctime)s %(message)s",
        level=logging.INFO,
    )
    own = mark_of(os.getpid())
    if own is not None:
        write_mark(duty.folder / "supervisor.json", own)
    duty.control.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(duty.control))
        listener.listen(8)
        try:
            Supervisor(duty, listener).serve()
        except Exception:
            log.exception("the supervisor ends")
            raise
        finally:
            duty.control.unlink(missing_ok=True)
            (duty.folder / "supervisor.json").unlink(missing_ok=True)
    return 0
