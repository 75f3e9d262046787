"""Pictures: whole files, the same bytes for the same machine, and everything that matters in them and in its place."""

from __future__ import annotations

import os
import re
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.path import picture, terminal
from ansible_collections.vela.gpudirect.plugins.module_utils.path.finding import Finding, Kind, Report, Verdict
from ansible_collections.vela.gpudirect.plugins.module_utils.path.labels import cells
from ansible_collections.vela.gpudirect.plugins.module_utils.path.layout import Text
from ansible_collections.vela.gpudirect.plugins.module_utils.path.picture import Page
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.address import Address
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.machine import Machine
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.tree import Tree
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.path import drawn_machines
from tests.unit.pci.random_machines import machines

SVG = "{http://www.w3.org/2000/svg}"
CASES = Path(__file__).resolve().parents[2] / "cases" / "picture"
REGENERATE = os.environ.get("GPUDIRECT_REGENERATE") == "1"
GOLDEN = ["rack", "broken", "cascaded", "root_ports"]


@cache
def drawn(name: str) -> tuple[Machine, Report]:
    return drawn_machines.ALL[name]()


def page_of(machine: Machine, report: Report) -> Page:
    return picture.page(machine, report)


def words_in(root: ET.Element) -> list[str]:
    """What is written in the picture, without what one sees only when pointing at it."""
    return [one.text or "" for one in root.iter(f"{SVG}text")]


@pytest.fixture(params=drawn_machines.ALL)
def both(request: pytest.FixtureRequest) -> tuple[Machine, Report]:
    return drawn(request.param)


def test_whole_file_without_anything_from_elsewhere(both: tuple[Machine, Report]) -> None:
    text = picture.svg(*both)
    text.encode("utf-8")
    root = ET.fromstring(text)
    assert root.tag == f"{SVG}svg"
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    assert root.find(f"{SVG}title") is not None
    assert root.find(f"{SVG}desc") is not None
    assert {one.tag.removeprefix(SVG) for one in root.iter()} <= {
        "svg", "title", "desc", "style", "defs", "pattern", "path", "rect", "g", "text", "polyline",
    }  # fmt: skip
    for one in root.iter():
        assert not [name for name in one.attrib if name.startswith("on") or name.endswith("href")]
    assert "url(" not in text.replace("url(#unknown)", "")


def test_same_bytes_whatever_the_order(both: tuple[Machine, Report]) -> None:
    machine, report = both
    functions = dict(reversed(list(machine.tree.functions.items())))
    other = replace(machine, tree=Tree(functions, machine.tree.group_types, machine.tree.unread))
    turned = replace(
        report,
        gpus=report.gpus[::-1],
        nics=report.nics[::-1],
        pairs=report.pairs[::-1],
        findings=report.findings[::-1],
        missing=report.missing[::-1],
        best={gpu: nics[::-1] for gpu, nics in reversed(list(report.best.items()))},
    )
    assert picture.svg(other, turned) == picture.svg(machine, report)
    assert terminal.text(other, turned) == terminal.text(machine, report)


def test_every_gpu_and_nic_has_one_box(both: tuple[Machine, Report]) -> None:
    machine, report = both
    titles = [
        one.text for one in ET.fromstring(picture.svg(machine, report)).iter(f"{SVG}text") if one.get("class") == "t"
    ]
    for word, addresses in (("GPU", report.gpus), ("NIC", report.nics)):
        for address in addresses:
            assert titles.count(f"{word} {address}") == 1
    text = terminal.text(machine, report)
    for word, addresses in (("GPU", report.gpus), ("NIC", report.nics)):
        for address in addresses:
            assert len(re.findall(f"{word} {address}(?! to)", text)) == 1


def test_every_function_is_in_one_box(both: tuple[Machine, Report]) -> None:
    page = page_of(*both)
    members = [one for frame in page.plan.frames for placed in frame.boxes for one in placed.box.members]
    assert sorted(members) == sorted(both[0].tree.functions)


@pytest.mark.parametrize("name", ["broken", "cascaded", "root_ports"])
def test_what_fails_is_named_at_the_place(name: str) -> None:
    machine, report = drawn(name)
    root = ET.fromstring(picture.svg(machine, report))
    groups = [[one.text or "" for one in group.iter(f"{SVG}text")] for group in root.iter(f"{SVG}g")]
    looks = [[one.get("class") for one in group.iter(f"{SVG}rect")] for group in root.iter(f"{SVG}g")]
    found = [one for one in report.findings if one.verdict is not Verdict.OK]
    assert found
    for finding in found:
        heading = [line for line in words_in(root) if line.endswith(f"{finding.verdict.name} {finding.rule}")]
        assert len(heading) == 1
        for hop in finding.path:
            places = [number for number, lines in enumerate(groups) if lines and str(hop) in lines[0].split(" ")]
            assert len(places) == 1
            assert finding.rule in groups[places[0]]
            assert any(line.endswith(f" {finding.verdict.name}") for line in groups[places[0]])
            assert f"v{int(finding.verdict)}" in looks[places[0]]
    lines = terminal.text(machine, report, 160).splitlines()
    for finding in found:
        for hop in finding.path:
            named = [line for line in lines if re.search(rf"─ ((GPU|NIC) )?{hop} ", line)]
            assert len(named) == 1
            assert f"[{finding.verdict.name} {finding.rule}]" in named[0]


def inside(inner: Text, area: tuple[float, float, float, float]) -> bool:
    left, top, right, bottom = inner.area
    return area[0] <= left and area[1] <= top and right <= area[2] and bottom <= area[3]


def overlaps(texts: list[Text]) -> Iterator[tuple[str, str]]:
    for one, other in combinations(sorted(texts, key=lambda text: text.area[1]), 2):
        a, b = one.area, other.area
        if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]:
            yield one.words, other.words


def test_no_text_lies_over_another_or_outside_its_box(both: tuple[Machine, Report]) -> None:
    page = page_of(*both)
    assert not list(overlaps(page.texts))
    sheet = (0.0, 0.0, page.width, page.height)
    assert not [one.words for one in page.texts if not inside(one, sheet)]
    for frame in page.plan.frames:
        area = (frame.x, frame.y, frame.x + frame.width, frame.y + frame.height)
        assert inside(frame.title, area)
        for one in frame.boxes:
            assert area[0] <= one.x
            assert one.x + one.width <= area[2]
            assert one.y + one.height <= area[3]
            box = (one.x, one.y, one.x + one.width, one.y + one.height)
            assert [text.words for text in one.texts if not inside(text, box)] == []


def test_no_box_lies_over_another(both: tuple[Machine, Report]) -> None:
    boxes = [one for frame in page_of(*both).plan.frames for one in frame.boxes]
    for a, b in combinations(boxes, 2):
        apart = a.x + a.width <= b.x or b.x + b.width <= a.x or a.y + a.height <= b.y or b.y + b.height <= a.y
        assert apart, (a.box.title, b.box.title)


def test_hostile_text_stays_text() -> None:
    machine, report = drawn("hostile")
    text = picture.svg(machine, report)
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e\ud800-\udfff\uffff]", text)
    shown = terminal.text(machine, report)
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e\ud800-\udfff]", shown)


def test_thousand_functions_are_collapsed() -> None:
    machine, report = drawn("thousand")
    assert len(machine.tree.functions) > 1000
    started = time.monotonic()
    text = picture.svg(machine, report)
    assert time.monotonic() - started < 5
    assert len(text.encode()) < 200_000
    assert "16 VFs" in words_in(ET.fromstring(text))
    assert len(terminal.text(machine, report).splitlines()) < 150


def test_thousand_findings_are_bounded() -> None:
    machine, report = drawn("thousand")
    findings = tuple(
        drawn_machines.fail(f"rule_{number % 40}", address, found=str(number), verdict=Verdict(1 + number % 4))
        for number, address in enumerate(machine.tree.functions)
    )
    started = time.monotonic()
    text = picture.svg(machine, replace(report, findings=findings))
    assert time.monotonic() - started < 10
    assert len(text.encode()) < 2_500_000
    for finding in findings:
        assert finding.rule in text


def test_few_vfs_are_drawn_one_by_one_and_what_fails_leaves_its_group() -> None:
    machine, _ = drawn("large")
    vfs = [one.address for one in machine.tree if one.is_vf]
    report = drawn_machines.judged(machine, drawn_machines.fail("vf_driver", vfs[3]))
    words = words_in(ET.fromstring(picture.svg(machine, report)))
    assert f"VF {vfs[3]}" in words
    assert "15 VFs" in words
    many = drawn_machines.judged(machine, *(drawn_machines.fail("vf_driver", one) for one in vfs[:16]))
    text = picture.svg(machine, many)
    assert words_in(ET.fromstring(text)).count("vf_driver") == 1
    assert all(str(one) in text for one in vfs[:16])


def test_relaxed_and_missing_are_listed() -> None:
    machine, report = drawn("broken")
    words = words_in(ET.fromstring(picture.svg(machine, report)))
    for lines in (words, terminal.text(machine, report).splitlines()):
        assert "- iommu_passthrough (1 finding): Lab machine: DMA remapping is under test until May." in lines
        assert "- The input does not say whether the kernel is locked down." in lines


def test_place_that_the_input_does_not_have_is_said() -> None:
    machine, _ = drawn("rack")
    report = drawn_machines.judged(machine, drawn_machines.fail("gone", Address(0, 0xEE, 0, 0)))
    assert "0000:ee:00.0 (not in the input)" in picture.svg(machine, report)


def test_ways_have_the_look_of_their_kind() -> None:
    machine, report = drawn("root_ports")
    wires = page_of(machine, report).plan.wires
    assert {wire.kind for wire in wires} == {Kind.PHB, Kind.NODE, Kind.SYS}
    _, large = drawn("large")
    wires = page_of(drawn("large")[0], large).plan.wires
    assert {wire.kind for wire in wires} == {None, Kind.PIX}
    assert not any(wire.broken for wire in wires)


def test_way_on_which_something_fails_is_red_from_end_to_end() -> None:
    machine, report = drawn("broken")
    broken = [wire for wire in page_of(machine, report).plan.wires if wire.broken]
    failing = {str(one.gpu) for one in report.pairs if one.verdict is Verdict.FAIL and one.kind is Kind.PIX}
    assert len(failing) == 3
    assert {re.findall("GPU ([^ ]+)", wire.tip)[0] for wire in broken} == failing
    assert len(broken) == 4 * len(failing)
    words = words_in(ET.fromstring(picture.svg(machine, report)))
    assert sum(line.startswith("PIX to ") and line.endswith(" FAIL") for line in words) == 3


def test_nothing_at_all() -> None:
    machine, report = drawn("empty")
    assert "UNKNOWN" in words_in(ET.fromstring(picture.svg(machine, report)))
    assert terminal.text(machine, report).startswith("UNKNOWN")


@pytest.mark.parametrize("width", [40, 60, 100])
def test_terminal_keeps_its_width(both: tuple[Machine, Report], width: int) -> None:
    for line in terminal.text(*both, width=width).splitlines():
        assert cells(line) <= width, line


def test_terminal_colours_only_when_asked_and_says_the_same() -> None:
    machine, report = drawn("broken")
    plain = terminal.text(machine, report)
    assert "\x1b" not in plain
    coloured = terminal.text(machine, report, colour=True)
    assert "\x1b[1;31m[FAIL acs_direct_translated]\x1b[0m" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain


def test_terminal_in_ascii(both: tuple[Machine, Report]) -> None:
    assert terminal.text(*both, plain_ascii=True).isascii()


verdicts = st.sampled_from(Verdict)


@given(machines(), st.data())
def test_any_machine_is_drawn(fake: object, data: st.DataObject) -> None:
    machine = drawn_machines.machine_of(fake, data.draw(st.text(max_size=30)))  # type: ignore[arg-type]
    addresses = [one.address for one in machine.tree if not one.is_bridge]
    some = st.lists(st.sampled_from(addresses), max_size=3, unique=True) if addresses else st.just([])
    gpus = data.draw(some)
    nics = [one for one in data.draw(some) if one not in gpus]
    findings = tuple(
        Finding(data.draw(st.text(max_size=20)), data.draw(verdicts), data.draw(st.text(max_size=20)), "", path=tuple(data.draw(some)))
        for _ in range(data.draw(st.integers(0, 3)))
    )  # fmt: skip
    report = drawn_machines.report_of(machine, gpus, nics, findings=findings)
    ET.fromstring(picture.svg(machine, report))
    page = page_of(machine, report)
    assert not list(overlaps(page.texts))
    members = [one for frame in page.plan.frames for placed in frame.boxes for one in placed.box.members]
    assert sorted(members) == sorted(machine.tree.functions)
    assert all(cells(line) <= 80 for line in terminal.text(machine, report, 80).splitlines())


@given(st.text(st.characters(codec=None), max_size=60))
def test_any_text_is_kept_in_xml(words: str) -> None:
    report = Report(
        words, words, findings=(Finding(words, Verdict.FAIL, words, words, words, words),), missing=(words,)
    )
    ET.fromstring(picture.svg(Machine(Tree()), report))


def test_chain_of_bridges_as_deep_as_it_gets() -> None:
    machine, report = drawn("rack")
    bridge = next(one for one in machine.tree if one.is_bridge)
    functions, above = {}, None
    for number in range(2000):
        address = Address(number, 0, 0, 0)
        functions[address] = replace(bridge, address=address, parent=above)
        above = address
    deep = replace(machine, tree=Tree(functions))
    assert above is not None
    found = replace(report, gpus=(above,), nics=(), pairs=(), best={})
    started = time.monotonic()
    ET.fromstring(picture.svg(deep, found))
    terminal.text(deep, found)
    assert time.monotonic() - started < 20


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize("form", ["svg", "txt"])
def test_picture_is_as_reviewed(name: str, form: str) -> None:
    machine, report = drawn(name)
    text = picture.svg(machine, report) if form == "svg" else terminal.text(machine, report)
    file = CASES / name / f"picture.{form}"
    if REGENERATE:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")
