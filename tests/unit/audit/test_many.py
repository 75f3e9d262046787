"""Many inputs of one command: folders, archives, one after the other, and what is said meanwhile."""

from __future__ import annotations

import gzip
import io
import json
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.audit.command_line import main
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host
from ansible_collections.vela.gpudirect.plugins.module_utils.pci import bundle, tar

from tests.fixtures import tarballs
from tests.fixtures.p2p_hosts import built
from tests.unit.audit.test_command_line import FAR, GOOD, NONE, Capsys, host, said


def bundled(folder: Path) -> Path:
    (folder / "hosts").mkdir()
    for name, text in (("a.xml", GOOD), ("b.xml", FAR), (".hidden", "nothing")):
        (folder / "hosts" / name).write_text(text)
    host(folder / "hosts", "vela")
    return folder / "hosts"


def packed(*files: tuple[str, str]) -> bytes:
    return tarballs.made(*((tarballs.member(name), text.encode()) for name, text in files))


def verdicts(out: str) -> list[tuple[str, str]]:
    rows = out[out.index("verdict  ") :].splitlines()[1:]
    return [(row.split()[0], next(word for word in row.split()[1:] if "." in word or "/" in word)) for row in rows]


def test_a_folder_of_inputs_is_as_its_files(capsys: Capsys, tmp_path: Path) -> None:
    folder = bundled(tmp_path)
    code, out, err = said(capsys, folder, "--summary", "--mode", "passthrough_vm")
    one_by_one = said(
        capsys, *(folder / name for name in ("a.xml", "b.xml", "vela")), "--summary", "--mode", "passthrough_vm"
    )
    assert (code, out, err) == one_by_one
    assert out.startswith("1 WARN, 2 OK of 3 inputs with 4 GPUs\nverdict")


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_an_archive_of_inputs_is_read_one_after_the_other(
    capsys: Capsys, tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    capture = tarballs.packed(built("vela", {}, {}, []).write(tmp_path / "one"))
    inside = packed(("./a.xml", GOOD), ("rack/b.xml", NONE))
    whole = tarballs.made(
        (tarballs.member("./a.xml"), GOOD.encode()),
        (tarballs.member("rack/b.xml"), NONE.encode()),
        (tarballs.member("rack/c.tar"), capture),
    )
    (tmp_path / "all.tar").write_bytes(pack(whole))
    code, out, _err = said(capsys, tmp_path / "all.tar", "--summary", "--mode", "passthrough_vm")
    assert code == 2
    assert [verdict for verdict, _name in verdicts(out)] == ["OK", "FAIL", "OK"]
    assert "all.tar: rack/b.xml" in out
    assert bundle.holds_inputs(inside, "inside")


def test_what_is_a_machine_or_nothing_stays_one_input(tmp_path: Path) -> None:
    tree = host(tmp_path)
    (tmp_path / "tree.tar").write_bytes(tarballs.packed(tree))
    (tmp_path / "deep.tar").write_bytes(packed(("a/b/c.xml", GOOD)))
    (tmp_path / "empty").mkdir()
    for path in (tree, tmp_path / "tree.tar", tmp_path / "deep.tar", tmp_path / "empty", tmp_path / "gone"):
        assert list(bundle.inputs(str(path))) == [(str(path), str(path))]


def test_an_archive_that_ends_early_is_told_after_what_was_read(capsys: Capsys, tmp_path: Path) -> None:
    whole = packed(("a.xml", GOOD), ("b.xml", GOOD))
    stream = bundle.of_archive(whole[: tar.BLOCK * 3], "cut")
    assert next(stream)[0] == "cut: a.xml"
    with pytest.raises(Exception, match="cut off|has no end"):
        next(stream)
    (tmp_path / "large.xml").write_bytes(b"")
    code, out, _err = said(capsys, tmp_path / "large.xml", tmp_path, "--summary")
    assert (code, "2 UNUSABLE of 2 inputs" in out) == (65, True)


def test_json_of_many_is_one_list(capsys: Capsys, tmp_path: Path) -> None:
    folder = bundled(tmp_path)
    out = said(capsys, folder, "--format", "json")[1]
    found = json.loads(out)
    assert [one["name"] for one in found][:2] == [str(folder / "a.xml"), str(folder / "b.xml")]
    assert out == json.dumps(found, indent=1) + "\n"


def test_the_picture_is_of_one(capsys: Capsys, tmp_path: Path) -> None:
    code, _out, err = said(capsys, bundled(tmp_path), "--svg", tmp_path / "all.svg")
    assert (code, "has several inputs in it" in err) == (65, True)
    assert not (tmp_path / "all.svg").exists()


def test_on_a_terminal_it_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", terminal)
    (tmp_path / "bad.xml").write_text("<")
    for name, text in (("a.xml", NONE), ("c.xml", GOOD)):
        (tmp_path / name).write_text(text)
    assert main([str(tmp_path), "--summary"]) == 2
    told = terminal.getvalue()
    assert "\r\x1b[K2 inputs judged, 1 FAIL" in told
    assert told.endswith("\r\x1b[K3 inputs judged, 1 FAIL\r\x1b[K")


def test_wrong_usage(capsys: Capsys) -> None:
    with pytest.raises(SystemExit) as error:
        main(["x", "--summary", "--format", "json"])
    assert (error.value.code, capsys.readouterr().out) == (64, "")


def peak(capsys: Capsys, *arguments: object) -> int:
    tracemalloc.start()
    try:
        said(capsys, *arguments)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("form", ["text", "summary", "tar"])
def test_more_inputs_need_hardly_more_memory(capsys: Capsys, tmp_path: Path, form: str) -> None:
    """What stays of an input is a line: of ten more, nobody keeps the captures, nor machines."""
    tree = built("vela", {}, {}, []).write(tmp_path / "one")
    capture = tarballs.packed(tree)
    peaks = []
    for count in (2, 12):
        folder = tmp_path / f"{form}{count}"
        folder.mkdir()
        for number in range(count):
            (folder / f"{number:02}.tar").write_bytes(capture)
        given = folder
        if form == "tar":
            given = tmp_path / f"{count}.tar"
            given.write_bytes(tarballs.packed(folder))
        capsys.readouterr()
        options = ["--summary"] if form != "text" else []
        said(capsys, given, *options)
        peaks.append(peak(capsys, given, *options))
    assert peaks[1] - peaks[0] < 2 * len(capture), (peaks, len(capture))


def test_a_file_is_read_in_pieces(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    pieces = bundle.Pieces(Host(), str(tmp_path / "file"))
    assert (pieces[2:5], pieces[:3], pieces[8:20], pieces[20:30]) == (b"234", b"012", b"89", b"")
