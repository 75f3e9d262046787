"""What the guest's NCCL file says of processors, read by the standard library."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host
from ansible_collections.vela.gpudirect.plugins.module_utils.guest import nccl_xml
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.model import model_of
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.placed import Cell, Given, Part, Placed, Shape
from ansible_collections.vela.gpudirect.plugins.module_utils.path.facts import machine_of

from tests.fixtures.guest_hosts import HOSTS
from tests.unit.guest.guests import PLAIN


@pytest.mark.parametrize(
    ("cpuinfo", "processor", "is_noted"),
    [
        ("vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 207\n", ("GenuineIntel", 6, 207), False),
        ("vendor_id\t: GenuineIntel\nmodel\t\t: 207\n", ("GenuineIntel", None, 207), True),
        ("vendor_id\t: AuthenticAMD\n", ("AuthenticAMD", None, None), False),
        ("flags\t\t: fpu\n", ("", None, None), True),
    ],
)
def test_the_processor_is_the_hosts(
    tmp_path: Path, cpuinfo: str, processor: tuple[str, int | None, int | None], is_noted: bool
) -> None:
    """NCCL fails where a node of the file does not say it and the job uses no GPU there (docs/examples/nccl-h200)."""
    host = HOSTS["vela"]()
    host.files["/proc/cpuinfo"] = cpuinfo
    machine = machine_of(Host(str(host.write(tmp_path))))
    gpu = next(one for one in machine.tree if one.vendor == 0x10DE)
    cells = (Cell(0, (0,), 1024), Cell(1, (1,), 1024))
    guest = model_of(machine, Placed(Shape("one", 1, 0), (Given(Part.GPU, gpu.address, 0),), cells), PLAIN)
    found = guest.processor
    assert (found.vendor, found.family, found.model) == processor
    assert any("NCCL fails" in one for one in guest.notes) == is_noted
    cpus = ElementTree.fromstring(nccl_xml.render(guest)).findall("cpu")
    assert len(cpus) == 2
    words = {"vendor": processor[0], "familyid": processor[1], "modelid": processor[2]}
    for cpu in cpus:
        assert {key: cpu.get(key) for key in words} == {
            key: str(value) if value else None for key, value in words.items()
        }
