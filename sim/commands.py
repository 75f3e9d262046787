"""The one door for child processes that run to their end."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sim.errors import RackError

PR_SET_PDEATHSIG = 1


def die_with_parent(sent: signal.Signals) -> Callable[[], None]:
    """Return a preexec function that has the kernel send a signal once the parent is gone."""
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def arrange() -> None:
        libc.prctl(PR_SET_PDEATHSIG, sent)
        # The parent may have died between fork and prctl; then no signal would ever come.
        if os.getppid() != parent:
            os._exit(1)

    return arrange


def run(
    argv: Sequence[str],
    *,
    log: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
) -> str:
    """Run a program to its end and return its output; a failure is an error with its last lines."""
    try:
        ended = subprocess.run(  # noqa: S603 - argument lists only, never a shell
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C.UTF-8", **(env or {})},
            preexec_fn=die_with_parent(signal.SIGKILL),  # noqa: PLW1509 - single-threaded callers
            timeout=timeout_s,
            check=False,
        )
    except FileNotFoundError:
        raise RackError(f"{argv[0]}: not found on this machine. Run 'sim/rack check'.") from None
    output = ended.stdout.decode(errors="replace")
    if log is not None:
        with log.open("a") as sink:
            sink.write(f"$ {' '.join(argv)}\n{output}\n")
    if ended.returncode != 0:
        raise RackError(_failure(argv, ended.returncode, output, log))
    return output


def _failure(argv: Sequence[str], code: int, output: str, log: Path | None) -> str:
    tail = "\n".join("    " + line for line in output.splitlines()[-8:])
    read = f" Read {log}." if log else ""
    return f"{argv[0]}: ended with {code}.{read}\n{tail}"
