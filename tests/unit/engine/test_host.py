"""The door to a host: atomic and durable writes, three kinds of answer, refusals told before they happen."""

from __future__ import annotations

import errno
import os
import stat
import struct
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core import host as door
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import ABSENT, Unreadable
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import CommandFailed, HostBusy, HostRefused
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host, Space

SHELL = "/bin/sh"


class Live(Host):
    """A folder that counts as the machine itself."""

    @property
    def captured(self) -> bool:
        return False


@pytest.fixture
def live(tmp_path: Path) -> Host:
    (tmp_path / "etc").mkdir()
    return Live(str(tmp_path))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# Reading ---------------------------------------------------------------------------------


def test_a_text_an_absent_file_and_an_unreadable_one_are_three_things(live: Host, tmp_path: Path) -> None:
    (tmp_path / "etc/a").write_bytes(b"a\r\nb\xff\n")
    assert live.read_text("/etc/a") == "a\r\nb\udcff\n"
    assert live.read_text("/etc/none") is ABSENT
    assert live.read_text("/etc/a/none") is ABSENT
    assert live.read_text("/etc") == Unreadable("/etc: Is a directory")


def test_names_are_sorted_and_three_kinds_too(live: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b", "a", "C"):
        (tmp_path / "etc" / name).touch()
    assert live.names("/etc") == ("C", "a", "b")
    assert live.names("/none") is ABSENT
    assert live.names("/etc/a") is ABSENT

    def refuse(path: str) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "listdir", refuse)
    assert live.names("/etc") == Unreadable("/etc: Permission denied")


def test_a_program_is_found_in_system_folders_only_when_it_can_be_run(live: Host, tmp_path: Path) -> None:
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/tool").touch(0o644)
    assert live.program("tool") is ABSENT
    (tmp_path / "usr/bin/tool").chmod(0o755)
    assert live.program("tool") == "/usr/bin/tool"


def test_the_id_of_the_boot_is_empty_where_there_is_none(live: Host, tmp_path: Path) -> None:
    assert live.boot_id() == ""
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("abc\n")
    assert live.boot_id() == "abc"
    assert live.machine() == "x86_64"


# Writing ---------------------------------------------------------------------------------


def test_a_written_file_keeps_mode_and_owner_of_the_one_before(live: Host, tmp_path: Path) -> None:
    file = tmp_path / "etc/a"
    file.write_text("old")
    file.chmod(0o640)
    live.write_text("/etc/a", "new\r\nx\udcff")
    assert file.read_bytes() == b"new\r\nx\xff"
    assert mode(file) == 0o640
    assert file.stat().st_uid == os.getuid()
    assert [one.name for one in file.parent.iterdir()] == ["a"]


def test_a_new_file_and_its_folders_get_the_modes_they_should_have(live: Host, tmp_path: Path) -> None:
    live.write_text("/var/lib/gpudirect/owned.json", "{}", 0o600)
    live.write_text("/etc/x/y/z", "text")
    assert mode(tmp_path / "var/lib/gpudirect/owned.json") == 0o600
    assert mode(tmp_path / "var/lib/gpudirect") == 0o700
    assert mode(tmp_path / "etc/x/y") == 0o755
    assert mode(tmp_path / "etc/x/y/z") == 0o644


def test_a_link_stays_a_link_and_its_target_is_written(live: Host, tmp_path: Path) -> None:
    (tmp_path / "etc/real").write_text("old")
    (tmp_path / "etc/link").symlink_to("real")
    live.write_text("/etc/link", "new")
    assert (tmp_path / "etc/link").is_symlink()
    assert (tmp_path / "etc/real").read_text() == "new"


def test_a_file_is_on_the_disk_before_it_replaces_the_old_one(
    live: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    replace = os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: seen.append(Path(f"/proc/self/fd/{handle}").readlink().name))
    monkeypatch.setattr(os, "replace", lambda *names: (seen.append("replace"), replace(*names)))
    live.write_text("/etc/a", "x")
    assert seen[0].startswith(".gpudirect.a.")
    assert seen[1:] == ["replace", "etc"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    live: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etc/a").write_text("old")

    def refuse(*names: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="No space"):
        live.write_text("/etc/a", "new")
    assert [(one.name, one.read_text()) for one in (tmp_path / "etc").iterdir()] == [("a", "old")]


def test_leftovers_of_killed_writes_to_the_same_file_go_and_others_stay(live: Host, tmp_path: Path) -> None:
    for name in (".gpudirect.a.x1", ".gpudirect.ab.x2", ".other"):
        (tmp_path / "etc" / name).touch()
    live.write_text("/etc/a", "x")
    live.remove("/etc/a")
    assert sorted(one.name for one in (tmp_path / "etc").iterdir()) == [".gpudirect.ab.x2", ".other"]


def test_a_folder_goes_with_its_last_file_where_that_is_asked(live: Host, tmp_path: Path) -> None:
    live.write_text("/etc/x/a", "")
    live.write_text("/etc/x/b", "")
    live.remove("/etc/x/a", with_folder=True)
    assert (tmp_path / "etc/x").exists()
    live.remove("/etc/x/b")
    assert (tmp_path / "etc/x").exists()
    live.remove("/etc/x/b", with_folder=True)
    assert not (tmp_path / "etc/x").exists()
    live.remove("/none/b", with_folder=True)


def test_a_kernel_attribute_is_written_in_place(live: Host, tmp_path: Path) -> None:
    file = tmp_path / "etc/nr"
    file.write_text("0")
    before = file.stat().st_ino
    live.write_attribute("/etc/nr", "5")
    assert (file.read_text(), file.stat().st_ino) == ("5", before)


def test_what_is_no_file_is_not_replaced(live: Host, tmp_path: Path) -> None:
    """systemctl mask puts a link to /dev/null where a unit would lie."""
    (tmp_path / "etc/null").symlink_to("/dev/null")
    (tmp_path / "etc/folder").mkdir()
    for path, found in (("/etc/null", "/dev/null"), ("/etc/folder", str(tmp_path / "etc/folder"))):
        with pytest.raises(HostRefused, match=f"{path}: is no file that could be replaced \\(found {found}\\)"):
            live.write_text(path, "x")
    assert Path("/dev/null").is_char_device()


# Waiting ---------------------------------------------------------------------------------


def test_a_condition_is_asked_at_least_once_and_until_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(door.time, "sleep", slept.append)
    answers = iter([False, False, True])
    assert Host().until(lambda: next(answers), timeout_s=60, every_s=0.3) is True
    assert slept == [0.3, 0.3]
    assert Host().until(lambda: True, timeout_s=0) is True
    assert Host().until(lambda: False, timeout_s=0) is False
    assert slept == [0.3, 0.3]


def test_a_wait_ends_at_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(door.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(door.time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    assert Host().until(lambda: False, timeout_s=1, every_s=0.4) is False
    assert clock == [101.0]


def test_a_lock_that_comes_free_is_taken_and_one_that_does_not_is_refused(live: Host, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with live.exclusive(), pytest.raises(HostBusy), live.exclusive(patience_s=0.05):
        raise AssertionError("two runs at a time")
    with live.exclusive(patience_s=0):
        pass


def test_the_label_of_a_written_file_is_restored_where_selinux_is_on(
    live: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(Live, "run", lambda self, argv: ran.append(argv))
    live.write_text("/etc/a", "")
    (tmp_path / "sys/fs/selinux").mkdir(parents=True)
    (tmp_path / "sys/fs/selinux/enforce").touch()
    live.write_text("/etc/a", "")
    assert ran == []
    (tmp_path / "usr/sbin").mkdir(parents=True)
    (tmp_path / "usr/sbin/restorecon").touch(0o755)
    live.write_text("/etc/a", "")
    assert ran == [["restorecon", "/etc/a"]]


# A captured tree -------------------------------------------------------------------------


def test_a_captured_tree_is_read_and_nothing_else(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    (tmp_path / "a").write_text("x")
    assert host.captured
    assert not Host().captured
    assert host.read_text("/a") == "x"
    acts: list[Any] = [
        lambda: host.write_text("/a", "y"),
        lambda: host.write_attribute("/a", "y"),
        lambda: host.remove("/a"),
        lambda: host.run([SHELL, "-c", "true"]),
        host.sync,
    ]
    for act in acts:
        with pytest.raises(HostRefused, match=f"a captured tree is never written \\(root {tmp_path}\\)"):
            act()
    assert (tmp_path / "a").read_text() == "x"


# Refusals told before they happen --------------------------------------------------------


@pytest.fixture
def flags(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Paths that the file system marks immutable."""
    marked: set[str] = set()

    def ioctl(handle: int, request: int, argument: bytes) -> bytes:
        path = str(Path(f"/proc/self/fd/{handle}").readlink())
        return struct.pack("l", 0x10 | 0x80000 if path in marked else 0x80000)

    monkeypatch.setattr(door.fcntl, "ioctl", ioctl)
    return marked


def test_an_immutable_file_or_folder_is_told(live: Host, tmp_path: Path, flags: set[str]) -> None:
    (tmp_path / "etc/a").touch()
    assert live.refuses_write("/etc/a") == ""
    flags.add(str(tmp_path / "etc/a"))
    assert live.refuses_write("/etc/a") == "it is immutable (chattr +i)"
    assert live.refuses_write("/etc/b") == ""
    flags.add(str(tmp_path / "etc"))
    assert live.refuses_write("/etc/b") == "/etc is immutable (chattr +i)"
    assert live.refuses_write("/etc/new/folder/b") == "/etc is immutable (chattr +i)"


def test_a_read_only_file_system_is_told(live: Host, flags: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Live, "space", lambda self, path: Space(1, 1, True))
    assert live.refuses_write("/etc/a") == "its file system is mounted read-only"
    monkeypatch.setattr(Live, "space", lambda self, path: Unreadable("/etc: Input/output error"))
    assert live.refuses_write("/etc/a") == "/etc: Input/output error"


def test_a_file_system_without_flags_refuses_nothing(live: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def ioctl(*arguments: Any) -> bytes:
        raise OSError(errno.ENOTTY, "Inappropriate ioctl for device")

    monkeypatch.setattr(door.fcntl, "ioctl", ioctl)
    assert live.refuses_write("/etc/a") == ""


def test_room_is_told_and_a_missing_inode_table_is_not_none_left(live: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"f_bavail": 10, "f_frsize": 512, "f_files": 100, "f_favail": 7, "f_flag": os.ST_RDONLY}
    monkeypatch.setattr(os, "statvfs", lambda path: type("S", (), values))
    assert live.space("/etc") == Space(5120, 7, True)
    values.update(f_files=0, f_favail=0, f_flag=0)
    assert live.space("/etc") == Space(5120, 1 << 30, False)


# Programs --------------------------------------------------------------------------------


def test_a_program_runs_with_a_fixed_locale_and_no_input() -> None:
    host = Host()
    done = host.run([SHELL, "-c", "cat; echo $LC_ALL $PATH $SECRET; echo oops >&2; exit 3"], expect=(0, 3))
    assert (done.status, done.out, done.err) == (3, "C.UTF-8 /usr/sbin:/usr/bin:/sbin:/bin\n", "oops\n")
    assert host.commands == [done]


def test_an_unexpected_status_is_told_with_what_the_program_said() -> None:
    with pytest.raises(CommandFailed) as caught:
        Host().run([SHELL, "-c", "echo a >&2; echo b >&2; exit 2"])
    assert str(caught.value) == (
        f"{SHELL} -c echo a >&2; echo b >&2; exit 2: ended with status 2: a / b (wanted 0). "
        "Mend what it names and run again."
    )


def test_a_missing_program_and_one_that_does_not_end_are_told() -> None:
    with pytest.raises(CommandFailed, match="no-such-program: the program is not installed"):
        Host().run(["no-such-program"])
    with pytest.raises(CommandFailed, match="did not end within 1 s"):
        Host().run([SHELL, "-c", "exec sleep 9"], timeout_s=1)
