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
    assert live.architecture() == "x86_64"


def test_bytes_are_got_by_one_read_from_a_place_on(live: Host, tmp_path: Path) -> None:
    (tmp_path / "etc/a").write_bytes(bytes(range(256)) * 20)
    assert live.read_bytes("/etc/a") == bytes(range(256)) * 16
    assert live.read_bytes("/etc/a", 3, 254) == b"\xfe\xff\x00"
    assert live.read_bytes("/etc/a", 3, 9000) == b""
    assert live.read_bytes("/etc/none") is ABSENT
    assert live.read_bytes("/etc/a/none") is ABSENT
    assert live.read_bytes("/etc") == Unreadable("/etc: Is a directory")
    os.mkfifo(tmp_path / "etc/pipe")
    assert live.read_bytes("/etc/pipe") == Unreadable("/etc/pipe: Illegal seek")  # nobody is waited for


def test_bytes_are_put_at_their_place_and_nothing_is_made(tmp_path: Path) -> None:
    class Live(Host):
        captured = False  # type: ignore[assignment]

    (tmp_path / "config").write_bytes(bytes(8))
    Live(str(tmp_path)).write_bytes("/config", b"\x5d\x00", 6)
    assert (tmp_path / "config").read_bytes() == b"\0\0\0\0\0\0\x5d\0"
    with pytest.raises(FileNotFoundError):
        Live(str(tmp_path)).write_bytes("/none", b"\0", 0)


def test_bytes_that_were_not_all_taken_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Live(Host):
        captured = False  # type: ignore[assignment]

    (tmp_path / "config").write_bytes(bytes(8))
    monkeypatch.setattr(os, "pwrite", lambda handle, data, start: 1)
    with pytest.raises(OSError, match="not all bytes were taken"):
        Live(str(tmp_path)).write_bytes("/config", b"\0\0", 0)


def test_bytes_of_a_captured_tree_are_never_written(live: Host, tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(bytes(8))
    with pytest.raises(HostRefused, match="never written"):
        Host(str(tmp_path)).write_bytes("/config", b"\1", 0)


@pytest.mark.parametrize("number", [errno.ENODEV, errno.ENXIO, errno.EOPNOTSUPP])
def test_what_a_device_does_not_have_is_absent(live: Host, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(handle: int, size: int, start: int) -> bytes:
        raise OSError(number, os.strerror(number))

    (Path(live.root) / "etc/a").touch()
    monkeypatch.setattr(os, "pread", refuse)
    assert live.read_bytes("/etc/a") is ABSENT


def test_bytes_that_are_refused_are_unreadable(live: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int, size: int, start: int) -> bytes:
        raise OSError(errno.EINVAL, "Invalid argument")

    (Path(live.root) / "etc/a").touch()
    monkeypatch.setattr(os, "pread", refuse)
    assert live.read_bytes("/etc/a") == Unreadable("/etc/a: Invalid argument")


def test_a_link_says_where_it_leads_and_need_not_lead_anywhere(live: Host, tmp_path: Path) -> None:
    (tmp_path / "etc/a").symlink_to("../none/b")
    (tmp_path / "etc/file").touch()
    (tmp_path / "etc/folder").symlink_to(".")
    assert live.link("/etc/a") == live.link("/etc/folder/a") == "../none/b"
    assert live.link("/etc/none") is ABSENT
    assert live.link("/etc/file") == Unreadable("/etc/file: is no link")


# Links of a captured tree ----------------------------------------------------------------


@pytest.fixture
def captured(tmp_path: Path) -> Host:
    """A tree beside a secret of the machine that judges it."""
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "root/etc").mkdir(parents=True)
    (tmp_path / "root/secret").write_text("its own")
    return Host(str(tmp_path / "root"))


@pytest.mark.parametrize(
    "target", ["/secret", "../secret", "../../secret", "../../../../../secret", "/etc/../secret", "up/secret", "more"]
)
def test_links_of_a_captured_tree_stay_inside_it(captured: Host, tmp_path: Path, target: str) -> None:
    (tmp_path / "root/etc/a").symlink_to(target)
    (tmp_path / "root/etc/more").symlink_to("up/secret")
    (tmp_path / "root/etc/up").symlink_to("../..")
    assert captured.read_text("/etc/a") == "its own"
    assert captured.read_bytes("/etc/a") == b"its own"
    assert captured.link("/etc/a") == target
    assert captured.exists("/etc/a")
    assert captured.names("/etc/up") == captured.names("/") == ("etc", "secret")


def test_a_captured_link_to_what_only_this_machine_has_leads_nowhere(captured: Host, tmp_path: Path) -> None:
    (tmp_path / "root/etc/a").symlink_to(tmp_path / "secret")
    (tmp_path / "root/usr").symlink_to("/usr")
    assert captured.read_text("/etc/a") is captured.read_bytes("/etc/a") is ABSENT
    assert not captured.exists("/etc/a")
    assert captured.program("env") is ABSENT


def test_captured_links_in_a_circle_are_unreadable(captured: Host, tmp_path: Path) -> None:
    (tmp_path / "root/etc/a").symlink_to("b")
    (tmp_path / "root/etc/b").symlink_to("a")
    (tmp_path / "root/usr").symlink_to("usr")
    for answer in (captured.read_text("/etc/a"), captured.read_bytes("/etc/b"), captured.names("/etc/a/c")):
        assert isinstance(answer, Unreadable)
        assert answer.cause.endswith("Too many levels of symbolic links")
    assert not captured.exists("/etc/a")
    assert captured.program("env") is ABSENT
    assert captured.link("/etc/a") == "b"


def test_a_captured_chain_is_followed_as_far_as_the_kernel_would(captured: Host, tmp_path: Path) -> None:
    for number in range(41):
        (tmp_path / f"root/etc/{number}").symlink_to(str(number - 1) if number else "../secret")
    assert captured.read_text("/etc/39") == "its own"
    assert isinstance(captured.read_text("/etc/40"), Unreadable)


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


def test_a_lock_that_comes_free_is_taken_and_one_that_does_not_is_refused(live: Host, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with live.exclusive(), pytest.raises(HostBusy) as caught, live.exclusive(patience_s=0.05):
        raise AssertionError("two runs at a time")
    assert caught.value.problems[0].found == ""
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


def test_who_has_the_lock_is_told(live: Host, tmp_path: Path) -> None:
    """From the kernel's own list of locks, where this process stands with the file's number."""
    (tmp_path / "run").mkdir()
    (tmp_path / f"proc/{os.getpid()}").mkdir(parents=True)
    (tmp_path / f"proc/{os.getpid()}/cmdline").write_bytes(b"python3\0-I\0gpudirect.pyz\0guests\0")
    with live.exclusive():
        (tmp_path / "proc/locks").write_text(Path("/proc/locks").read_text())
        with pytest.raises(HostBusy) as caught, live.exclusive(patience_s=0):
            raise AssertionError("two runs at a time")
    (problem,) = caught.value.problems
    assert problem.found == f"process {os.getpid()}: python3 -I gpudirect.pyz guests"
