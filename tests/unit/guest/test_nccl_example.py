"""What a real NCCL made of our files (docs/examples/nccl-h200*), read without the engine's own reader of such files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.pci import nccl, xml_input

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "docs/examples"
ONE, TWO = "nccl-h200", "nccl-h200-x2"
GPUS = {ONE: ["0000:00:06.0"], TWO: ["0000:00:06.0", "0000:00:07.0"]}
PROCESSORS = {ONE: ["16", "6", "207"], TWO: ["32", "6", "207"]}
# What the invented hosts have and the guest has not.
NICS = {(ONE, "switch"): ["0000:04:00.0"], (TWO, "switch"): ["0000:05:00.0"]}
NICS[TWO, "switches"] = ["0000:04:00.0", "0000:06:00.0"]
TOLD = [(ONE, name) for name in ("flat", "switch", "second_node")]
TOLD += [(TWO, name) for name in ("flat", "switch", "switches", "second_node")]
Seen = tuple[str, str, str, str, tuple[str, ...]]


def seen(element: ElementTree.Element) -> Iterator[tuple[str, Seen]]:
    """Each PCI element by its bus id: node, processors, speed, width, and the bus ids above."""
    for cpu in element.findall("cpu"):
        yield from _below(cpu, (cpu.get("numaid", ""), cpu.get("affinity", "")), ())


def _below(element: ElementTree.Element, node: tuple[str, str], above: tuple[str, ...]) -> Iterator[tuple[str, Seen]]:
    for one in element.findall("pci"):
        bus_id = one.get("busid", "")
        yield bus_id, (*node, one.get("link_speed", ""), one.get("link_width", ""), above)
        yield from _below(one, node, (*above, bus_id))


def told(example: str, name: str) -> dict[str, Seen]:
    return dict(seen(ElementTree.parse(EXAMPLES / example / name).getroot()))


@pytest.mark.parametrize(("example", "name"), TOLD)
def test_nccl_sees_what_the_file_says(example: str, name: str) -> None:
    file, dump = told(example, f"{name}.xml"), told(example, f"{name}.dump.xml")
    assert {*GPUS[example]} <= {*dump}
    assert {bus_id: one for bus_id, one in file.items() if bus_id not in NICS.get((example, name), [])} == dump


@pytest.mark.parametrize("example", [ONE, TWO])
def test_without_a_file_nccl_knows_no_node_and_no_width(example: str) -> None:
    for gpu in GPUS[example]:
        numaid, affinity, _speed, width, above = told(example, "none.dump.xml")[gpu]
        assert (numaid, affinity, width, above) == ("-1", "", "0", ())


@pytest.mark.parametrize("example", [ONE, TWO])
def test_a_file_with_another_address_is_passed_over(example: str) -> None:
    assert told(example, "elsewhere.dump.xml") == told(example, "none.dump.xml")
    assert not {*GPUS[example]} & {*told(example, "elsewhere.xml")}


@pytest.mark.parametrize(
    ("name", "node", "switches", "processors"),
    [
        ("none", ["-1", "-1"], 0, ""),
        ("flat", ["0", "0"], 0, "0-31"),
        ("second_node", ["0", "1"], 0, "0-15"),
        ("switch", ["0", "0"], 1, "0-31"),
        ("switches", ["0", "1"], 2, "0-15"),
    ],
)
def test_nccl_works_with_the_distances_of_the_file(name: str, node: list[str], switches: int, processors: str) -> None:
    dump, text = told(TWO, f"{name}.dump.xml"), (EXAMPLES / TWO / f"{name}.map.txt").read_text()
    assert [dump[gpu][0] for gpu in GPUS[TWO]] == node
    # NCCL's own map: switches as it made them, the way between sockets, and the processors of the first rank.
    assert len(set(re.findall(r"PCI/\S+", text))) == switches
    assert ("+ SYS[" in text) == (len(set(node)) > 1)
    assert f"(GPU affinity = {processors} ;" in text


@pytest.mark.parametrize("example", [ONE, TWO])
@pytest.mark.parametrize(("name", "odd"), [("untold", True), ("second_node", False), ("flat", False)])
def test_a_file_that_nccl_fails_with_is_told_of(example: str, name: str, odd: bool) -> None:
    found = nccl.read(xml_input.parse((EXAMPLES / example / f"{name}.xml").read_bytes(), name))
    assert any(one.startswith("cpu processor: numaid 0, 1 lack") for one in found.oddities) == odd


@pytest.mark.parametrize("example", [ONE, TWO])
def test_the_generator_still_makes_these_files(example: str, tmp_path: Path) -> None:
    (tmp_path / "gpudirect").symlink_to(ROOT / "plugins/module_utils")
    shutil.copy(EXAMPLES / example / "machine.json", tmp_path)
    command = [sys.executable, str(EXAMPLES / ONE / "make_files.py"), str(tmp_path), *PROCESSORS[example]]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    made = {one.name: one.read_text() for one in tmp_path.glob("*.xml")}
    assert len(made) == (5 if example == ONE else 6)
    assert made == {name: (EXAMPLES / example / name).read_text() for name in made}
