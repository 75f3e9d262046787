"""The audit as a program: formats, several inputs, exit status, options, and the same from the one file of a host."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.audit.command_line import STATUS, main
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host
from ansible_collections.vela.gpudirect.plugins.module_utils.path import facts
from ansible_collections.vela.gpudirect.plugins.module_utils.path.finding import Verdict
from ansible_collections.vela.gpudirect.plugins.module_utils.path.rules import RULES
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.whole import whole
from ansible_collections.vela.gpudirect.plugins.plugin_utils import engine

from tests.fixtures.p2p_hosts import built

ROOT = Path(__file__).resolve().parents[3]
GOOD = """<system version="1"><cpu numaid="0" affinity="ff"><pci busid="ffff:ff:01.0" class="0x060400">
<pci busid="0001:00:00.0" class="0x030200"/><pci busid="0101:00:00.0" class="0x020700"/></pci></cpu></system>"""
FAR = GOOD.replace('<pci busid="0101', '</pci><pci busid="ffff:ff:02.0" class="0x060400"><pci busid="0101')
NONE = GOOD.replace("0x020700", "0x010802")

Capsys = pytest.CaptureFixture[str]


def host(folder: Path, name: str = "vela", **edits: Any) -> Path:
    return built(name, edits, {}, []).write(folder / name)


def files(folder: Path) -> tuple[Path, Path, Path]:
    paths = folder / "good.xml", folder / "far.xml", folder / "none.xml"
    for path, text in zip(paths, (GOOD, FAR, NONE)):
        path.write_text(text, encoding="utf-8")
    return paths


def said(capsys: Capsys, *arguments: object) -> tuple[int, str, str]:
    code = main([str(one) for one in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_status_is_the_verdict(capsys: Capsys, tmp_path: Path) -> None:
    good, far, none = files(tmp_path)
    assert said(capsys, good)[0] == 0
    assert said(capsys, far)[0] == 1
    assert said(capsys, none)[0] == 2
    assert said(capsys, host(tmp_path), "--mode", "passthrough_vm")[0] == 0
    assert set(STATUS) == set(Verdict)


@pytest.mark.parametrize(
    ("names", "code"),
    [(("good", "far"), 1), (("far", "none"), 2), (("good", "gone"), 65), (("gone", "none"), 2), (("good", "good"), 0)],
)
def test_the_gravest_of_several_counts(capsys: Capsys, tmp_path: Path, names: tuple[str, ...], code: int) -> None:
    files(tmp_path)
    found, out, err = said(capsys, *(tmp_path / f"{name}.xml" for name in names))
    assert found == code
    assert err.count("is not there") == names.count("gone")
    table = out[out.rindex("verdict   input") if "UNUSABLE" in out else out.rindex("verdict") :].splitlines()
    assert len(table) == 1 + len(names)


def test_json_of_one_and_of_several(capsys: Capsys, tmp_path: Path) -> None:
    good, far, _none = files(tmp_path)
    one = json.loads(said(capsys, good, "--format", "json")[1])
    assert (one["verdict"], one["kinds"], one["gpu_kinds"]) == ("OK", [["PIX"]], [["X"]])
    several = json.loads(said(capsys, good, far, tmp_path / "gone", "--format", "json")[1])
    assert [each["verdict"] for each in several] == ["OK", "WARN", "UNUSABLE"]
    assert "is not there" in several[2]["error"]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--mode", "vm", "x"],
        ["x", "--relax", "same_switch"],
        ["x", "--relax", "same_swich=why"],
        ["x", "y", "--svg", "z"],
        ["-", "-"],
        ["x", "--intent", "gone"],
        ["x", "--width", "wide"],
    ],
)
def test_wrong_usage_is_64_and_judges_nothing(capsys: Capsys, arguments: list[str]) -> None:
    try:
        code = main(arguments)
    except SystemExit as error:
        code = int(str(error.code))
    out, err = capsys.readouterr()
    assert (code, out) == (64, "")
    assert err


def test_a_rule_that_does_not_count_here(capsys: Capsys, tmp_path: Path) -> None:
    _good, far, _none = files(tmp_path)
    code, out, _err = said(capsys, far, "--relax", "same_switch=one socket, measured")
    assert code == 0
    assert "one socket, measured" in out
    near = tmp_path / "intent.json"
    near.write_text('{"pci_path_max_distance": "pxb"}')
    assert said(capsys, far, "--intent", near)[0] == 2
    near.write_text('{"pci_path_max_distanc": "pxb"}')
    assert "pci_path_max_distance" in said(capsys, far, "--intent", near)[2]


def test_the_picture_is_written_where_it_is_asked_for(capsys: Capsys, tmp_path: Path) -> None:
    good, _far, _none = files(tmp_path)
    assert said(capsys, good, "--svg", tmp_path / "good.svg")[0] == 0
    assert ElementTree.parse(tmp_path / "good.svg").getroot().tag.endswith("svg")
    (tmp_path / "folder").mkdir()
    code, _out, err = said(capsys, good, "--svg", tmp_path / "folder")
    assert (code, "folder: is no file" in err, "Give the name of a file." in err) == (73, True, True)
    assert "Remove" not in err


@pytest.mark.parametrize("name", ["gone/x.svg", "gone/deep/x.svg", "gone/", "good.xml/x.svg"])
def test_the_folder_of_a_picture_is_not_made(capsys: Capsys, tmp_path: Path, name: str) -> None:
    good, _far, _none = files(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    code, _out, err = said(capsys, good, "--svg", f"{tmp_path}/{name}")
    assert code == 73
    assert "its folder is not there" in err
    assert sorted(tmp_path.rglob("*")) == before


def test_names_that_would_steer_a_terminal_are_shown_without_that(capsys: Capsys, tmp_path: Path) -> None:
    steering = tmp_path / "a\x1b[2J\x9b31m\nb: is fine.xml"
    for text in (None, "", "<html/>", '{"a": 1}'):
        if text is not None:
            steering.write_text(text)
        for arguments in ([steering], [files(tmp_path)[0], "--compare", steering], [steering, "--intent", steering]):
            _code, out, err = said(capsys, *arguments)
            assert not {"\x1b", "\x9b"} & {*out, *err}
            assert err.count("\n") == 1
    with pytest.raises(SystemExit):
        main(["x", "--\x1b[2J"])
    assert "\x1b" not in capsys.readouterr().err


def test_an_intent_that_cannot_be_taken_says_why_in_words_of_json(capsys: Capsys, tmp_path: Path) -> None:
    good, _far, _none = files(tmp_path)
    assert "gone: is not there." in said(capsys, good, "--intent", tmp_path / "gone")[2]
    assert "cannot be read: Is a directory." in said(capsys, good, "--intent", tmp_path)[2]
    intent = tmp_path / "intent.json"
    intent.write_text('{"pci_path_max_distance": 3, "pci_path_relax": {}}')
    code, _out, err = said(capsys, good, "--intent", intent)
    assert (code, err.count("has the wrong type")) == (64, 2)
    assert "Put it in double quotes." in err
    assert not {"YAML", "inventory"} & {*err.replace(".", " ").split()}


def test_lines_are_as_wide_as_wanted_and_coloured_on_a_terminal_only(capsys: Capsys, tmp_path: Path) -> None:
    _good, far, _none = files(tmp_path)
    narrow = said(capsys, far, "--width", "60")[1]
    assert max(map(len, narrow.splitlines()[1:])) <= 60
    assert "\x1b" not in narrow
    assert "\x1b[33m" in said(capsys, far, "--colour", "always")[1]


def test_the_rules(capsys: Capsys) -> None:
    code, out, _err = said(capsys, "--rules")
    assert code == 0
    assert all(f"{name} (" in out for name in RULES)
    assert [one["name"] for one in json.loads(said(capsys, "--rules", "--format", "json")[1])] == list(RULES)


def test_a_saved_result_is_judged_in_full_under_the_name_of_its_host(capsys: Capsys, tmp_path: Path) -> None:
    tree = host(tmp_path)
    saved = tmp_path / "result.json"
    saved.write_text(json.dumps(whole(facts.machine_of(Host(str(tree)), "node-17"))))
    live = json.loads(said(capsys, tree, "--format", "json", "--mode", "passthrough_vm")[1])
    again = json.loads(said(capsys, saved, "--format", "json", "--mode", "passthrough_vm")[1])
    assert again["name"] == "node-17"
    for changes in ("name", "source"):
        live.pop(changes), again.pop(changes)
    assert again == live
    older = json.loads(saved.read_text())
    del older["platform"]
    saved.write_text(json.dumps(older))
    assert said(capsys, saved, "--mode", "passthrough_vm")[0] == 3


# Without Ansible and without this checkout's surroundings -------------------------------------


def run(command: list[str], *arguments: object, stdin: str = "") -> tuple[int, str]:
    done = subprocess.run(
        [*command, "audit", *map(str, arguments)],
        cwd=engine.SOURCES, env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONPATH": str(engine.SOURCES)},
        input=stdin, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_the_checkout_and_the_one_file_say_the_same(tmp_path: Path) -> None:
    archive = tmp_path / "gpudirect.pyz"
    archive.write_bytes(engine.own().content)
    _good, far, _none = files(tmp_path)
    from_checkout = run([str(ROOT / "gpudirect")], far)
    assert from_checkout == run([sys.executable, "-I", str(archive)], far)
    assert from_checkout[0] == 1
    assert run([str(ROOT / "gpudirect")], "-", stdin=GOOD)[0] == 0


def test_who_stops_reading_is_no_fault(tmp_path: Path) -> None:
    good, _far, _none = files(tmp_path)
    done = subprocess.run(
        ["/bin/sh", "-c", f"{ROOT}/gpudirect audit {' '.join([str(good)] * 200)} | head -n 1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""
