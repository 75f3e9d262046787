"""Input that is wrong, broken or made to do harm: a clear sentence, exit status 65, bounded time and memory, nothing written."""

from __future__ import annotations

import bz2
import gzip
import io
import resource
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
GIB = 1 << 30
SECONDS = 60  # on a busy machine; all take a few


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (GIB, GIB))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # nothing may be written


def audited(*arguments: str | Path, stdin: bytes = b"") -> tuple[int, str, str]:
    done = subprocess.run(
        [str(ROOT / "gpudirect"), "audit", *map(str, arguments)],
        preexec_fn=limited, input=stdin, capture_output=True, timeout=SECONDS, check=False,
        env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def refused(path: Path, words: str) -> None:
    before = sorted(path.parent.rglob("*"))
    started = time.monotonic()
    code, out, err = audited(path)
    assert code == 65, (code, out[-500:], err[-500:])
    assert out == ""
    assert words in err
    assert err.startswith(str(path))
    assert len(err) < 2000
    assert time.monotonic() - started < SECONDS
    assert sorted(path.parent.rglob("*")) == before


def file(tmp_path: Path, content: bytes, name: str = "input") -> Path:
    (tmp_path / name).write_bytes(content)
    return tmp_path / name


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"hello, world\n", "is text of no known kind"),
        (b"\x7fELF\x02\x01\0\0", "is a binary file of no known kind"),
        (b'{"functions": [', "seems to be cut off"),
        (b'{"a": 1}', "is JSON of no known kind"),
        (b"<system version='1'><cpu numaid='0'>", "seems to be cut off"),
        (b"<html><body/></html>", "is XML of no known kind"),
        ("lspci".encode("utf-16"), "UTF-16"),
        (b"-[0000:00]-+-00.0\n           +-01.0-[01]----00.0\n", "lspci"),
    ],
)
def test_what_is_no_topology(tmp_path: Path, content: bytes, words: str) -> None:
    refused(file(tmp_path, content), words)


def test_what_is_not_there_and_what_has_no_devices(tmp_path: Path) -> None:
    assert audited(tmp_path / "gone")[0] == 65
    code, _out, err = audited(tmp_path)
    assert (code, "has no captured PCI devices in it" in err) == (65, True)


# Bombs -------------------------------------------------------------------------------------


def test_entities_that_grow(tmp_path: Path) -> None:
    lines = ["<!DOCTYPE system [", '<!ENTITY a0 "aaaaaaaaaa">']
    lines += [f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12)]
    refused(file(tmp_path, "\n".join([*lines, "]>", "<system>&a11;</system>"]).encode()), "DOCTYPE")


def test_an_entity_that_reads_a_file(tmp_path: Path) -> None:
    text = b'<!DOCTYPE s [<!ENTITY x SYSTEM "file:///etc/passwd">]><system><cpu numaid="&x;"/></system>'
    refused(file(tmp_path, text), "DOCTYPE")


def test_elements_without_end(tmp_path: Path) -> None:
    refused(file(tmp_path, b"<system>" + b"<pci>" * 2_000_000), "too deeply")
    refused(file(tmp_path, b"<system>" + b"<pci/>" * 2_000_000, "wide"), "too many elements")


def test_a_hundred_megabytes_of_text(tmp_path: Path) -> None:
    line = b"00:00.0 Host bridge [0600]: Intel Corporation Device [8086:09a2]\n"
    refused(file(tmp_path, line * (100 * (1 << 20) // len(line))), "MiB of text")


def test_what_unpacks_to_a_hundred_times_its_size(tmp_path: Path) -> None:
    zeros = bytes(1 << 20)
    packed = bz2.compress(zeros) * 2000  # 2 GiB from a few KiB
    refused(file(tmp_path, packed), "input")
    stream = io.BytesIO()
    with gzip.GzipFile(fileobj=stream, mode="wb") as writer:
        for _ in range(300):
            writer.write(zeros)
    refused(file(tmp_path, stream.getvalue(), "zip"), "zip")


def test_a_deep_json(tmp_path: Path) -> None:
    refused(file(tmp_path, b"[" * 5_000_000), "is no JSON")


# Archives ----------------------------------------------------------------------------------


def member(
    name: str, kind: bytes = tarfile.REGTYPE, target: str = "", content: bytes = b""
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, len(content)
    return info, content


def archive(tmp_path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    path = tmp_path / "bundle.tar.gz"
    with tarfile.open(path, "w:gz") as packed:
        for info, content in members:
            packed.addfile(info, io.BytesIO(content))
    return path


DEVICE = "sys/bus/pci/devices/0000:00:00.0"


@pytest.mark.parametrize(
    "evil",
    [
        member("../../etc/cron.d/evil", content=b"x"),
        member("/etc/cron.d/evil", content=b"x"),
        member("sys/null", tarfile.CHRTYPE),
        member("sys/disk", tarfile.BLKTYPE),
        member("sys/pipe", tarfile.FIFOTYPE),
        member(f"{DEVICE}/config", tarfile.SYMTYPE, "secret"),
        member(f"{DEVICE}/vendor", tarfile.SYMTYPE, "../secret"),
        member("sys/loop", tarfile.SYMTYPE, "loop"),
    ],
    ids=["above", "absolute", "character", "block", "fifo", "link", "far_link", "circle"],
)
def test_archives_that_lead_elsewhere(tmp_path: Path, evil: tuple[tarfile.TarInfo, bytes]) -> None:
    """They are refused, or what leads elsewhere is not there; a device that can be read in full is judged."""
    secret = tmp_path / "secret"
    secret.write_text("0x5ec1\n", encoding="ascii")
    if evil[0].linkname.endswith("secret"):
        evil[0].linkname = str(secret) if evil[0].linkname == "secret" else f"{'../' * 20}{str(secret).lstrip('/')}"
    whole = [
        member(f"{DEVICE}/{name}", content=text) for name, text in (("class", b"0x060000\n"), ("device", b"0x1\n"))
    ]
    path = archive(tmp_path, *whole, evil)
    before = sorted(tmp_path.rglob("*"))
    code, out, err = audited(path)
    assert code in (2, 3, 65), err
    assert "5ec1" not in out + err
    assert "Traceback" not in err
    assert sorted(tmp_path.rglob("*")) == before


def test_an_archive_that_is_cut_off(tmp_path: Path) -> None:
    path = archive(tmp_path, *(member(f"{DEVICE}/{n}", content=bytes(range(256)) * 8) for n in range(20)))
    refused(file(tmp_path, path.read_bytes()[:200], "cut"), "cut")


# Data that makes no sense ------------------------------------------------------------------


def test_addresses_that_cannot_be(tmp_path: Path) -> None:
    lines = [
        "ff:1f.7 Host bridge [0600]: A [8086:0001]",
        "zz:99.9 VGA [0300]: B [10de:0001]",
        "00:3f.0 X [0302]: C [10de:1]",
    ]
    code, out, err = audited(file(tmp_path, "\n".join(lines).encode()))
    assert code in (3, 65)
    assert "cannot be one" in out or "no known kind" in err


def test_bridges_that_are_above_themselves(tmp_path: Path) -> None:
    bridge = (
        "{0} PCI bridge [0604]: X [8086:0001]\n\tBus: primary={1}, secondary={2}, subordinate={2}, sec-latency=0\n\n"
    )
    gpu = "03:00.0 3D controller [0302]: NVIDIA Corporation X [10de:2330]\n\n"
    text = bridge.format("01:00.0", "01", "02") + bridge.format("02:00.0", "02", "01") + gpu
    code, out, _err = audited(file(tmp_path, text.encode()), "--mode", "bare_metal")
    assert code == 3
    assert "UNKNOWN" in out


def test_a_topology_file_of_absurd_numbers(tmp_path: Path) -> None:
    text = f'<system version="1"><cpu numaid="{"9" * 4000}" affinity="{"f," * 5000}"><pci busid="ffffffff:ff:1f.7" class="0x030200"'
    text += f' link_width="{"1" * 5000}"/><pci busid="x" class="0x020000"/></cpu></system>'
    code, out, _err = audited(file(tmp_path, text.encode()))
    assert code in (1, 2, 3)
    assert "file_bus_ids" in out


def test_others_are_judged_all_the_same(tmp_path: Path) -> None:
    good = file(tmp_path, b'<system version="1"><cpu numaid="0" affinity="f"/></system>', "good.xml")
    code, out, err = audited(tmp_path / "gone", good, file(tmp_path, b"", "empty"), "--format", "json")
    assert code == 2  # no GPU and no NIC in the one that could be judged
    assert '"verdict": "UNUSABLE"' in out
    assert '"verdict": "FAIL"' in out
    assert err.count("\n") == 2
    assert "Traceback" not in err
