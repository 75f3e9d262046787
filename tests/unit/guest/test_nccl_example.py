"""What a real NCCL made of our files (docs/examples/nccl-h200), read without the engine's own reader of such files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.pci import nccl, xml_input

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "docs/examples/nccl-h200"
GPU = "0000:00:06.0"
Seen = tuple[str, str, str, str, tuple[str, ...]]


def seen(element: ElementTree.Element, *above: str) -> Iterator[tuple[str, Seen]]:
    """Each PCI element by its bus id: node, processors, speed, width, and the bus ids above."""
    for cpu in element.findall("cpu"):
        yield from _below(cpu, (cpu.get("numaid", ""), cpu.get("affinity", "")), above)


def _below(element: ElementTree.Element, node: tuple[str, str], above: tuple[str, ...]) -> Iterator[tuple[str, Seen]]:
    for one in element.findall("pci"):
        bus_id = one.get("busid", "")
        yield bus_id, (*node, one.get("link_speed", ""), one.get("link_width", ""), above)
        yield from _below(one, node, (*above, bus_id))


def told(name: str) -> dict[str, Seen]:
    return dict(seen(ElementTree.parse(EXAMPLE / name).getroot()))


@pytest.mark.parametrize(("name", "left_out"), [("flat", []), ("switch", ["0000:04:00.0"]), ("second_node", [])])
def test_nccl_sees_what_the_file_says(name: str, left_out: list[str]) -> None:
    file, dump = told(f"{name}.xml"), told(f"{name}.dump.xml")
    assert GPU in dump
    assert {bus_id: one for bus_id, one in file.items() if bus_id not in left_out} == dump


def test_without_a_file_nccl_knows_no_node_and_no_width() -> None:
    numaid, affinity, _speed, width, above = told("none.dump.xml")[GPU]
    assert (numaid, affinity, width, above) == ("-1", "", "0", ())


def test_a_file_with_another_address_is_passed_over() -> None:
    assert told("elsewhere.dump.xml") == told("none.dump.xml")
    assert GPU not in told("elsewhere.xml")


@pytest.mark.parametrize(("name", "odd"), [("untold", True), ("second_node", False), ("flat", False)])
def test_a_file_that_nccl_fails_with_is_told_of(name: str, odd: bool) -> None:
    found = nccl.read(xml_input.parse((EXAMPLE / f"{name}.xml").read_bytes(), name))
    assert any(one.startswith("cpu processor: numaid 0, 1 lack") for one in found.oddities) == odd


def test_the_generator_still_makes_these_files(tmp_path: Path) -> None:
    (tmp_path / "gpudirect").symlink_to(ROOT / "plugins/module_utils")
    shutil.copy(EXAMPLE / "machine.json", tmp_path)
    command = [sys.executable, str(EXAMPLE / "make_files.py"), str(tmp_path), "16", "6", "207"]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    made = {one.name: one.read_text() for one in tmp_path.glob("*.xml")}
    assert len(made) == 5
    assert made == {name: (EXAMPLE / name).read_text() for name in made}
