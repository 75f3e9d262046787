# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host answers when it is asked for more than a text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Done:
    """How a program ended."""

    argv: tuple[str, ...]
    status: int
    out: str
    err: str


@dataclass(frozen=True)
class Connection:
    """The ssh connection that a process hangs on: address of the client, and of this host as the client sees it."""

    client: str
    local: str


@dataclass(frozen=True)
class Status:
    """What a file is like besides its content: bytes, time of the last write, permission bits."""

    size: int
    mtime_ns: int
    mode: int


@dataclass(frozen=True)
class Space:
    """Free room of the file system that holds a path."""

    free_bytes: int
    free_inodes: int
    read_only: bool


def variable(environment: str, name: str) -> list[str]:
    """The words of a variable in a process's environment, as /proc/PID/environ has it."""
    for entry in environment.split("\0"):
        if entry.startswith(f"{name}="):
            return entry[len(name) + 1 :].split()
    return []


def holder(locks: object, inode: int) -> str:
    """The number of the process that has the lock on a file, out of /proc/locks (proc_locks(5)); empty where that does not tell."""
    for line in locks.splitlines() if isinstance(locks, str) else ():
        words = line.split()  # 1: FLOCK  ADVISORY  WRITE 734 00:16:1043 0 EOF
        if len(words) > 5 and words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(inode):
            return words[4]
    return ""
