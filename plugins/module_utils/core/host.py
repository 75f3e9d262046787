# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The only door to a host's files and processes.

A host has a root. Any root other than ``/`` is a captured tree: it is read, never written,
and no program is run for it. Tests inject a reacting subclass instead.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import answers, download
from .answers import Connection, Done, Space, Status
from .change import ABSENT, Absent, Bytes, Text, Unreadable
from .errors import CommandFailed, HostBusy, HostRefused, Problem

__all__ = ["BOOT_ID", "LOCK", "STATE", "Connection", "Done", "Host", "Space", "Status"]

BOOT_ID = "/proc/sys/kernel/random/boot_id"
STATE = "/var/lib/gpudirect"
# In memory: a lock does not outlive a boot and leaves nothing on the disk.
LOCK = "/run/gpudirect.lock"
# The drift watch holds the lock for the second that it looks; whoever finds it taken waits for that.
PATIENCE_S = 10.0
_POLL_S = (0.01, 0.5)  # how long a wait sleeps between two looks: at first, and at most
# How often one path may lead on through links, as in the kernel (MAXSYMLINKS).
_MAX_LINKS = 40
# What the kernel answers for an attribute that this device does not have, or whose device is gone.
_NOT_THERE = (errno.ENODEV, errno.ENXIO, errno.EOPNOTSUPP)
_FS_IOC_GETFLAGS = 0x80086601
_FS_IMMUTABLE_FL = 0x10
_ENVIRONMENT = {"LC_ALL": "C.UTF-8", "LANG": "C.UTF-8", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}


@dataclass
class Host:
    """Files and processes of one machine, below ``root``."""

    root: str = "/"
    commands: list[Done] = field(default_factory=list)
    # What was read in the look that goes on (``core/once.py``); None: no look does.
    kept: dict[str, Any] | None = field(init=False, default=None, repr=False, compare=False)
    # Folders of a captured tree that were asked for, without the links in their paths.
    _folders: dict[str, str] = field(init=False, default_factory=dict, repr=False, compare=False)

    @property
    def captured(self) -> bool:
        """True for a captured tree, which is judged and never changed."""
        return self.root != "/"

    def at(self, path: str) -> str:
        """Where a path of the host lies for this process.

        Links of a captured tree lead inside it, whatever they say: another machine's links mean nothing here, and
        nobody's tree opens this machine's files. OSError for links that lead in a circle.
        """
        if self.root == "/":
            return path
        if not self.captured:
            return os.path.join(self.root, path.lstrip("/"))
        folder, _slash, name = path.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = self._without_links("/", folder)
        return self.root.rstrip("/") + self._without_links(self._folders[folder], name)

    # Reading -----------------------------------------------------------------------------

    def read_text(self, path: str) -> Text:
        """Text of a file; ABSENT when it is not there, Unreadable when it cannot be read."""
        try:
            with open(self.at(path), encoding="utf-8", errors="surrogateescape", newline="") as stream:
                return stream.read()
        except (FileNotFoundError, NotADirectoryError):
            return ABSENT
        except OSError as error:
            return Unreadable(f"{path}: {error.strerror}")

    def read_bytes(self, path: str, size: int = 4096, start: int = 0) -> Bytes:
        """Bytes of a file from a place on, got by one read as kernel attributes are meant to be.

        ABSENT when it is not there or the device has no such thing, Unreadable when it cannot be read.
        """
        try:
            handle = os.open(self.at(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                return os.pread(handle, size, start)
            finally:
                os.close(handle)
        except (FileNotFoundError, NotADirectoryError):
            return ABSENT
        except OSError as error:
            return ABSENT if error.errno in _NOT_THERE else Unreadable(f"{path}: {error.strerror}")

    def link(self, path: str) -> Text:
        """What a link says; ABSENT when nothing is there, Unreadable when it is no link."""
        folder, _slash, name = path.rpartition("/")
        try:
            return os.readlink(os.path.join(self.at(folder), name) if folder else self.at(path))
        except (FileNotFoundError, NotADirectoryError):
            return ABSENT
        except OSError as error:
            cause = "is no link" if error.errno == errno.EINVAL else str(error.strerror)
            return Unreadable(f"{path}: {cause}")

    def names(self, path: str) -> tuple[str, ...] | Absent | Unreadable:
        """Sorted names in a folder."""
        try:
            return tuple(sorted(os.listdir(self.at(path))))
        except (FileNotFoundError, NotADirectoryError):
            return ABSENT
        except OSError as error:
            return Unreadable(f"{path}: {error.strerror}")

    def exists(self, path: str) -> bool:
        """True when the path is there, whatever it is."""
        try:
            return os.path.exists(self.at(path))
        except OSError:
            return False

    def status(self, path: str) -> Status | Absent | Unreadable:
        """Size, time and mode of what a path leads to."""
        try:
            info = os.stat(self.at(path))
        except (FileNotFoundError, NotADirectoryError):
            return ABSENT
        except OSError as error:
            return Unreadable(f"{path}: {error.strerror}")
        return Status(info.st_size, info.st_mtime_ns, stat.S_IMODE(info.st_mode))

    def program(self, name: str) -> str | Absent:
        """Where a program of the host lies; searched in the system folders only."""
        for folder in ("/usr/sbin", "/usr/bin", "/sbin", "/bin"):
            if self.exists(f"{folder}/{name}") and os.access(self.at(f"{folder}/{name}"), os.X_OK):
                return f"{folder}/{name}"
        return ABSENT

    def boot_id(self) -> str:
        """The kernel's id of this boot; empty where it cannot be read (a captured tree)."""
        text = self.read_text(BOOT_ID)
        return text.strip() if isinstance(text, str) else ""

    def architecture(self) -> str:
        """The kernel's name of the processor architecture, such as ``x86_64``."""
        return os.uname().machine if self.root == "/" else "x86_64"

    def space(self, path: str) -> Space | Absent | Unreadable:
        """Free room below a path."""
        try:
            info = os.statvfs(self.at(path))
        except FileNotFoundError:
            return ABSENT
        except OSError as error:
            return Unreadable(f"{path}: {error.strerror}")
        # File systems without an inode table (btrfs) report zero of zero: that is not "none left".
        inodes = info.f_favail if info.f_files else 1 << 30
        return Space(info.f_bavail * info.f_frsize, inodes, bool(info.f_flag & os.ST_RDONLY))

    def refuses_write(self, path: str) -> str:
        """Why a file could not be replaced, or an empty string; mode bits do not count, since the engine runs as root."""
        folder = path
        while not self.exists(folder):
            folder = os.path.dirname(folder)
        space = self.space(folder)
        if isinstance(space, Unreadable):
            return space.cause
        if not isinstance(space, Absent) and space.read_only:
            return "its file system is mounted read-only"
        # A file is replaced by renaming over it, so the folder has to be writable too.
        for candidate in dict.fromkeys((folder, os.path.dirname(folder) if folder == path else folder)):
            if self.immutable(candidate):
                return "it is immutable (chattr +i)" if candidate == path else f"{candidate} is immutable (chattr +i)"
        return ""

    def immutable(self, path: str) -> bool:
        """True when the file system marks the path immutable."""
        try:
            handle = os.open(self.at(path), os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            flags = struct.unpack("l", fcntl.ioctl(handle, _FS_IOC_GETFLAGS, struct.pack("l", 0)))[0]
        except OSError:
            return False  # the file system has no such flags
        finally:
            os.close(handle)
        return bool(flags & _FS_IMMUTABLE_FL)

    # What runs on it ---------------------------------------------------------------------

    def held(self, part: str) -> Mapping[str, tuple[int, ...]] | Unreadable:
        """Files that some process has open, by path, for the paths that ``part`` is in; values are process ids.

        A process whose files cannot be read makes all of it Unreadable, since it may be the one that holds the file.
        """
        held: dict[str, list[int]] = {}
        processes = self.names("/proc")
        if not isinstance(processes, tuple):
            return Unreadable("/proc is not there" if isinstance(processes, Absent) else processes.cause)
        for number in processes:
            if not number.isdigit():
                continue
            try:
                targets = self._open_files(number)
            except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
                continue  # it has ended meanwhile
            except OSError as error:
                return Unreadable(f"the open files of process {number} cannot be read: {error.strerror}")
            for target in targets:
                if part in target:
                    held.setdefault(target, []).append(int(number))
        return {path: tuple(sorted(numbers)) for path, numbers in held.items()}

    def _open_files(self, process: str) -> set[str]:
        folder = self.at(f"/proc/{process}/fd")
        targets = set()
        for name in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                targets.add(os.readlink(os.path.join(folder, name)))
        return targets

    def connection(self) -> Connection | None:
        """The ssh connection that this process was started through; None when there is none to be seen.

        sshd leaves it in the environment of what it starts, and sudo takes it out there for its own children. So it is
        looked for in the ancestors of this process, as the kernel keeps the environment that each was started with.
        """
        number, seen = str(os.getpid()), set()
        while number.isdigit() and int(number) > 1 and number not in seen:
            seen.add(number)
            environment = self.read_text(f"/proc/{number}/environ")
            words = answers.variable(environment, "SSH_CONNECTION") if isinstance(environment, str) else []
            if len(words) == 4:
                return Connection(words[0], words[2])
            status = self.read_text(f"/proc/{number}/stat")
            # The program's name stands in brackets and may hold anything; the parent follows two words after it.
            number = status.rpartition(")")[2].split()[1] if isinstance(status, str) else ""
        return None

    # One run at a time -------------------------------------------------------------------

    @contextlib.contextmanager
    def exclusive(self, patience_s: float = PATIENCE_S) -> Iterator[None]:
        """Keep other runs of the engine from changing this host meanwhile; refuses when one stays at it."""
        if self.captured:
            yield
            return
        try:
            handle = os.open(self.at(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise HostRefused(
                [Problem(LOCK, f"cannot be opened: {error.strerror}", "Run as root on the host.")]
            ) from error
        try:
            if not self.wait_until(lambda: _locked(handle), patience_s):
                fact = "another run of vela.gpudirect is changing this host"
                found = self._process(answers.holder(self.read_text("/proc/locks"), os.fstat(handle).st_ino))
                raise HostBusy([Problem(LOCK, fact, "Wait until it has ended and run again.", found)])
            yield
        finally:
            os.close(handle)

    def _process(self, number: str) -> str:
        """A process as ps(1) shows it; empty where there is no number."""
        words = self.read_text(f"/proc/{number}/cmdline") if number else ""
        told = words.replace("\0", " ").strip() if isinstance(words, str) else ""
        return f"process {number}: {told}" if told else number and f"process {number}"

    # Writing -----------------------------------------------------------------------------

    def write_text(self, path: str, text: str, mode: int = 0o644) -> None:
        """Replace a file atomically and durably; keeps mode and owner of a file that is there."""
        self._only_live(path)
        target = os.path.realpath(self.at(path))
        if os.path.exists(target) and not os.path.isfile(target):
            advice = "Remove it, or what masks it."
            raise HostRefused([Problem(path, "is no file that could be replaced", advice, found=target)])
        self._make_folders(os.path.dirname(target))
        _sweep(target)
        handle, temporary = tempfile.mkstemp(prefix=_temporary(target), dir=os.path.dirname(target))
        try:
            with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
                stream.write(text)
                stream.flush()
                _keep_identity(target, stream.fileno(), mode)
                os.fsync(stream.fileno())
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        _sync_folder(os.path.dirname(target))
        self._restore_context(path)

    def write_attribute(self, path: str, text: str) -> None:
        """Write a kernel attribute (sysfs, procfs) in place; OSError tells the kernel's refusal."""
        self._only_live(path)
        with open(self.at(path), "w", encoding="ascii") as stream:
            stream.write(text)

    def write_bytes(self, path: str, data: bytes, start: int) -> None:
        """Write bytes into a kernel attribute at a place, in one write; OSError tells the kernel's refusal."""
        self._only_live(path)
        handle = os.open(self.at(path), os.O_WRONLY | os.O_CLOEXEC)
        try:
            if os.pwrite(handle, data, start) != len(data):
                raise OSError(errno.EIO, "not all bytes were taken")
        finally:
            os.close(handle)

    def remove(self, path: str, *, with_folder: bool = False) -> None:
        """Remove a file durably, if it is there, and its folder where that is asked and nothing else is in it."""
        self._only_live(path)
        _sweep(self.at(path))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.at(path))
            _sync_folder(os.path.dirname(self.at(path)))
        if with_folder:
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(self.at(path)))

    def fetch(self, url: str, path: str, sha256: str) -> None:
        """Have the file of a URL at a path, once its digest is the wanted one; goes on where an earlier call was cut off."""
        self._only_live(path)
        download.fetch(url, self.at(path), sha256)
        _sync_folder(os.path.dirname(self.at(path)))
        self._restore_context(path)

    def sync(self) -> None:
        """Bring what programs have written to the disk, so that a power cut cannot take it back."""
        self._only_live("/")
        os.sync()

    # Processes ---------------------------------------------------------------------------

    def look(self, argv: list[str], *, expect: tuple[int, ...] = (0,), timeout_s: int = 60) -> Done:
        """Run a program that changes nothing, as ``run`` does; the one for readers."""
        kept, self.kept = self.kept, None
        try:
            return self.run(argv, expect=expect, timeout_s=timeout_s)
        finally:
            self.kept = kept

    def run(
        self, argv: list[str], *, expect: tuple[int, ...] = (0,), timeout_s: int = 300, stdin: str | None = None
    ) -> Done:
        """Run a program with a fixed locale, never through a shell; raises on an unexpected status.

        ``stdin`` is what it reads; without it there is nothing to read.
        """
        self._only_live(argv[0])
        try:
            ended = subprocess.run(
                argv,
                env=_ENVIRONMENT,
                **({"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s,
                check=False,
            )
        except FileNotFoundError as error:
            advice = "Install the package that brings it."
            raise CommandFailed([Problem(argv[0], "the program is not installed", advice)]) from error
        except subprocess.TimeoutExpired as error:
            advice = "See what it waits for on the host and run again."
            raise CommandFailed([Problem(" ".join(argv), f"did not end within {timeout_s} s", advice)]) from error
        done = Done(tuple(argv), ended.returncode, ended.stdout, ended.stderr)
        self.commands.append(done)
        if done.status not in expect:
            raise CommandFailed([_unexpected(done, expect)])
        return done

    def wait_until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Whether a condition comes true within a time. It is asked at once, and again in growing intervals."""
        end, interval = time.monotonic() + timeout_s, _POLL_S[0]
        while not condition():
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(interval, left))
            interval = min(interval * 2, _POLL_S[1])
        return True

    def reach(self, opened: Callable[[], Any]) -> Any:
        """A service of this machine, as the library at whose edge it is opened gives it; fake hosts have their own."""
        if self.captured:
            self._only_live("a service of the host")
        return opened()

    # -------------------------------------------------------------------------------------

    def _only_live(self, path: str) -> None:
        if self.kept is not None:
            self.kept.clear()
        if self.captured:
            fact = f"a captured tree is never written (root {self.root})"
            raise HostRefused([Problem(path, fact, "Run against the host itself.")])

    def _without_links(self, start: str, path: str) -> str:
        """A path below a folder of a captured tree that has no links, as the tree's own machine would resolve it."""
        done = [part for part in start.split("/") if part]
        left = path.split("/")[::-1]
        links = 0
        while left:
            part = left.pop()
            if part in ("", "."):
                continue
            if part == "..":
                done = done[:-1]
                continue
            try:
                target = os.readlink(os.path.join(self.root, *done, part))
            except OSError:
                done.append(part)
                continue
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            done = [] if target.startswith("/") else done
            left += target.split("/")[::-1]
        return "/" + "/".join(done)

    def _make_folders(self, folder: str) -> None:
        if os.path.isdir(folder):
            return
        self._make_folders(os.path.dirname(folder))
        os.mkdir(folder, 0o700 if folder == self.at(STATE) else 0o755)
        _sync_folder(os.path.dirname(folder))

    def _restore_context(self, path: str) -> None:
        """Give a replaced file the SELinux label that the policy wants for its path."""
        if self.exists("/sys/fs/selinux/enforce") and not isinstance(self.program("restorecon"), Absent):
            self.run(["restorecon", path])


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _temporary(target: str) -> str:
    """How the names of files begin that are on their way to a place."""
    return f".gpudirect.{os.path.basename(target)}."


def _sweep(target: str) -> None:
    """Remove what writes to the same place left behind when they were killed."""
    folder, beginning = os.path.dirname(target), _temporary(target)
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):
            if name.startswith(beginning):
                os.unlink(os.path.join(folder, name))


def _keep_identity(target: str, handle: int, mode: int) -> None:
    try:
        info = os.stat(target)
    except FileNotFoundError:
        os.fchmod(handle, mode)
        return
    os.fchmod(handle, info.st_mode & 0o7777)
    os.fchown(handle, info.st_uid, info.st_gid)


def _sync_folder(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that cannot sync folders
            raise
    finally:
        os.close(handle)


def _unexpected(done: Done, expect: tuple[int, ...]) -> Problem:
    said = (done.err.strip() or done.out.strip() or "it printed nothing").splitlines()[-5:]
    fact, wanted = f"ended with status {done.status}: {' / '.join(said)}", " or ".join(map(str, expect))
    return Problem(" ".join(done.argv), fact, "Mend what it names and run again.", wanted=wanted)
