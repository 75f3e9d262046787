"""Archives are read in memory: whatever is in them, nothing is written and no file of this machine is read."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import tarfile
import time
from pathlib import Path

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import HostRefused, UnreadableState
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host
from ansible_collections.vela.gpudirect.plugins.module_utils.pci import archive, sysfs, tar
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.address import Address
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures import corpus
from tests.fixtures.fake_machines import large, rack
from tests.fixtures.tarballs import made, member, packed
from tests.unit.pci.random_machines import machines

HERE = "sys/bus/pci/devices"
ALSO = (member(HERE, tarfile.DIRTYPE), b"")


def missing(*members: tuple[tarfile.TarInfo, bytes]) -> tuple[str, ...]:
    return archive.read(made(ALSO, *members), "a.tar").missing


def refused(data: bytes, limits: tar.Limits | None = None) -> str:
    started = time.monotonic()
    with pytest.raises(UnreadableState) as error:
        archive.read(data, "a.tar", limits)
    assert time.monotonic() - started < 10
    return str(error.value)


# What is read ----------------------------------------------------------------------------


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_an_archive_says_what_its_folder_says(tmp_path: Path, mode: str, form: int) -> None:
    rack().write(tmp_path)
    found = archive.read(packed(tmp_path, "host-1", mode, form), "rack")
    assert found.tree == sysfs.read(Host(str(tmp_path)))
    assert (found.name, found.source, found.missing, found.partial) == ("rack", "sysfs archive", (), False)


@given(machines())
def test_any_machine_comes_out_of_an_archive(tmp_path_factory: pytest.TempPathFactory, machine) -> None:
    folder = tmp_path_factory.mktemp("machine")
    machine.write(folder)
    assert archive.read(packed(folder), "m").tree == sysfs.read(Host(str(folder)))


def test_a_large_machine_is_read_quickly(tmp_path: Path) -> None:
    large().write(tmp_path)
    data = packed(tmp_path, mode="w:gz")
    started = time.monotonic()
    assert len(archive.read(data, "large").tree.functions) == 8 * 6 + 8 * 16
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("name", ["ghw-q35-guest-nvidia-numa-minus1", "hwloc-2pa-pcidomain32bits"])
def test_archives_of_the_corpus(tmp_path: Path, name: str) -> None:
    data = corpus.file(f"sysfs/{name}.sysfs.tar.bz2").read_bytes()
    found = archive.read(data, name)
    corpus.unpacked(f"sysfs/{name}.sysfs.tar.bz2", tmp_path)
    (root,) = (path.parents[3] for path in tmp_path.rglob("sys/bus/pci/devices"))
    assert found.tree == sysfs.read(Host(str(root)))
    assert not found.missing


def test_an_archive_of_one_class_has_no_pci_devices() -> None:
    data = corpus.file("sysfs/gpud-h100-sys-class-infiniband.tar.bz2").read_bytes()
    said = refused(data)
    assert "has no captured PCI devices in it (found none" in said
    assert "or an archive with the inputs directly in it." in said


def test_two_machines_in_one_archive_are_not_mixed() -> None:
    data = made((member(f"one/{HERE}", tarfile.DIRTYPE), b""), (member(f"two/{HERE}", tarfile.DIRTYPE), b""))
    assert "has several captured machines in it (found two, one," in refused(data)


def test_several_streams_and_padding() -> None:
    data = made(ALSO)
    for pack in (gzip.compress, bz2.compress, lzma.compress):
        assert not archive.read(pack(data[:700]) + pack(data[700:]), "a").tree.functions
        assert not archive.read(pack(data) + b"\0" * 1000, "a").tree.functions


# What only bad intent makes ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("info", "says"),
    [
        (member("sys/../../evil"), "as a place outside the archive: 'sys/../../evil'"),
        (member("/sys/evil"), "as a place outside the archive: '/sys/evil'"),
        (member("sys/evil", tarfile.SYMTYPE, "../../etc"), "as a link that leads outside the archive: 'sys/evil'"),
        (member("sys/evil", tarfile.LNKTYPE, "sys/x"), "as hard link: 'sys/evil'"),
        (member("sys/evil", tarfile.LNKTYPE, "/etc/passwd"), "as hard link: 'sys/evil'"),
        (member("sys/evil", tarfile.CHRTYPE), "as device node: 'sys/evil'"),
        (member("sys/evil", tarfile.BLKTYPE), "as device node: 'sys/evil'"),
        (member("sys/evil", tarfile.FIFOTYPE), "as fifo: 'sys/evil'"),
        (member("sys/evil", mode=0o4755), "as set-user-id or set-group-id: 'sys/evil'"),
        (member("sys/evil", b"Z"), "as unknown kind: 'sys/evil'"),
        (member("sys/bus"), "as something in the place of another member: 'sys/bus'"),
        (member(f"sys/{'x' * 5000}"), "as longer than a path can be"),
    ],
)
def test_a_bad_member_is_left_out_and_named(info: tarfile.TarInfo, says: str) -> None:
    (sentence,) = missing((info, b""))
    assert says in sentence


def test_links_lead_inside_or_nowhere(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0x1234\n")
    device = f"{HERE}/0000:00:00.0"
    data = made(
        (member(device, tarfile.SYMTYPE, "../../../devices/pci0000:00/0000:00:00.0"), b""),
        (member("sys/devices/pci0000:00/0000:00:00.0/vendor", tarfile.SYMTYPE, str(secret)), b""),
        (member("sys/devices/pci0000:00/0000:00:00.0/device", tarfile.SYMTYPE, "/etc/passwd"), b""),
        (member("sys/out", tarfile.SYMTYPE, str(tmp_path)), b""),
        (member("sys/out/written"), b"x"),
        (member("sys/loop", tarfile.SYMTYPE, "loop"), b""),
    )
    found = archive.read(data, "a")
    assert found.tree.unread == {
        Address.parse("0000:00:00.0"): "/sys/devices/pci0000:00/0000:00:00.0: its revision cannot be read"
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret"]
    (sentence,) = found.missing
    assert "as something in the place of another member: 'sys/out/written'" in sentence


def test_nothing_is_written_and_nothing_of_this_machine_is_opened(tmp_path: Path, monkeypatch) -> None:
    rack().write(tmp_path)
    data = packed(tmp_path, mode="w:gz")

    def barred(*_arguments: object, **_words: object) -> None:
        raise AssertionError("a file of this machine was asked for")

    for name in ("open", "mkdir", "symlink", "link", "mknod", "rename", "listdir", "readlink", "stat", "access"):
        monkeypatch.setattr(os, name, barred)
    monkeypatch.setattr("builtins.open", barred)
    tree = archive.read(data, "rack").tree
    monkeypatch.undo()
    assert tree == sysfs.read(Host(str(tmp_path)))


def test_an_archived_host_is_captured() -> None:
    host = archive.Archived(archive._Folder({"a": b"x\n", "f": archive._Folder({"l": "../a", "c": "c"})}), "a.tar")
    assert host.captured
    assert host.read_text("/f/l") == "x\n"
    assert host.link("/f/l") == "../a"
    assert [repr(host.read_text(path)) for path in ("/none", "/f/c", "/a/b", "/f/l/x")] == ["ABSENT"] * 4
    assert host.names("/f/../f/.") == ("c", "l")
    assert host.exists("/f/l")
    assert not host.exists("/f/c")
    assert repr(host.program("sh")) == "ABSENT"
    with pytest.raises(HostRefused):
        host.write_text("/a", "y")


# Limits ----------------------------------------------------------------------------------


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("name", ["sys/zeros", "var/log/zeros"])
def test_a_bomb_ends_with_a_sentence(pack, name: str) -> None:
    info = member(name)
    info.size = 1 << 36
    piece = pack(bytes(16 << 20))
    data = pack(info.tobuf(tarfile.GNU_FORMAT)) + piece * 10
    assert "unpacks to more than 64 MiB" in refused(data, tar.Limits(unpacked=64 << 20))


def test_a_file_that_is_no_attribute_is_left_out() -> None:
    found = archive.read(made(ALSO, (member("sys/big"), bytes(2000))), "a", tar.Limits(file=1000))
    assert found.missing == ("left out of the archive as larger than an attribute of the kernel: 'sys/big'",)


def test_too_much_to_keep() -> None:
    files = [(member(f"sys/{number}"), bytes(1000)) for number in range(3000)]
    assert "has more than 1 MiB of files in /sys and /proc" in refused(made(*files), tar.Limits(kept=1 << 20))


def test_too_many_members() -> None:
    data = made(*[(member(f"sys/{number}"), b"") for number in range(1001)], form=tarfile.USTAR_FORMAT)
    assert "a.tar: has more than 1000 members. Give a capture of /sys alone." in refused(data, tar.Limits(members=1000))
    deep = made(*[(member(f"sys/{number}/{'a/' * 60}x"), b"") for number in range(20)])
    assert "has more than 1000 folders" in refused(deep, tar.Limits(members=1000))


def test_a_name_that_is_too_long_to_be_one() -> None:
    assert "has a name of 2000" in refused(made((member("x" * 2_000_000), b""), form=tarfile.GNU_FORMAT))


def test_small_streams_without_end() -> None:
    assert "streams" in refused(gzip.compress(made(ALSO)[:512] + bytes(0)) + gzip.compress(b"") * 100_001)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_what_is_cut_off_says_so(tmp_path: Path, mode: str) -> None:
    rack().write(tmp_path)
    data = packed(tmp_path, mode=mode)
    for share in (0.3, 0.7):
        cut = data[: int(len(data) * share)]
        assert "copy it again" in refused(cut).lower()


@given(st.data())
def test_damage_never_ends_in_another_error(data) -> None:
    good = bytearray(made(ALSO, (member("sys/a"), b"x" * 700), (member("sys/l", tarfile.SYMTYPE, "a"), b"")))
    for _number in range(data.draw(st.integers(1, 5))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(UnreadableState):
        archive.read(bytes(good), "a")


def test_names_are_those_that_tar_reads() -> None:
    all_names = ["sys/a b", f"sys/{'d' * 90}/{'n' * 90}", "sys/ü/ñ", f"sys/{'e/' * 70}{'n' * 120}"]
    for form, names in (
        (tarfile.GNU_FORMAT, all_names),
        (tarfile.PAX_FORMAT, all_names),
        (tarfile.USTAR_FORMAT, all_names[:3]),
    ):
        data = made(*[(member(name), name.encode()) for name in names], form=form)
        stream = tar.Unpacked(data, "a", 1 << 30)
        found = [(one.name, one.data) for one in tar.members(stream, tar.Limits(), lambda _name: True)]
        with tarfile.open(fileobj=io.BytesIO(data)) as theirs:
            assert [name for name, _data in found] == theirs.getnames() == names
        assert [body for _name, body in found] == [name.encode() for name in names]
