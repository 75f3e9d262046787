# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one door for child processes that run to their end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from sim.errors import RackError

PR_SET_PDEATHSIG = 1


def die_with_parent() -> Callable[[], None]:
    """Return a preexec function that has the kernel kill the child once its parent is gone."""
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def arrange() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # The parent may have died between fork and prctl; then no signal would ever come.
        if os.getppid() != parent:
            os._exit(1)

    return arrange


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore Ctrl-C and its kin for the length of a block that must run to its end."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {sent: signal.signal(sent, signal.SIG_IGN) for sent in signals}
    try:
        yield
    finally:
        for sent, handler in before.items():
            signal.signal(sent, handler)


def run(argv: Sequence[str], *, log: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """Run a program to its end and return its output; a failure is an error with its last lines."""
    return _run(argv, log, env, preexec=die_with_parent())


def run_undisturbed(argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> str:
    """Run a program that must not be interrupted half-way (dpkg), not even by Ctrl-C."""
    with undisturbed():
        return _run(argv, None, env, preexec=os.setsid)


def _run(argv: Sequence[str], log: Path | None, env: Mapping[str, str] | None, preexec: Callable[[], object]) -> str:
    try:
        ended = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C.UTF-8", **(env or {})},
            preexec_fn=preexec,  # noqa: PLW1509 - this process has one thread
            check=False,
        )
    except FileNotFoundError:
        raise RackError(f"{argv[0]}: is not installed here. Run 'sim/rack check'.") from None
    output = ended.stdout.decode(errors="replace")
    if log is not None:
        with log.open("a") as sink:
            sink.write(f"$ {' '.join(argv)}\n{output}\n")
    if ended.returncode != 0:
        raise RackError(_failure(argv, ended.returncode, output))
    return output


def _failure(argv: Sequence[str], code: int, output: str) -> str:
    tail = [f"    {line}" for line in output.splitlines()[-8:]]
    return "\n".join([f"{argv[0]}: ended with {code} (wanted 0). Its last lines:", *tail])
