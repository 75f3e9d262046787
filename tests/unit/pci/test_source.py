"""The front door: what an input is, is told by its content; what it is not, in one sentence."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import lzma
import time
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import ABSENT
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import UnreadableState
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host
from ansible_collections.vela.gpudirect.plugins.module_utils.pci import groups_text, plain, source
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.config_space import ConfigSpace
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.machine import Machine, Platform
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.matrix import Matrix
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.nccl import NcclTopology
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.topology import topology
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.tree import Tree
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures import corpus, fake_exports
from tests.fixtures.fake_machines import large, rack
from tests.fixtures.tarballs import packed
from tests.unit.pci.machines import at, read
from tests.unit.pci.random_machines import machines

HWLOC = fake_exports.hwloc(rack())
NCCL = fake_exports.nccl(rack())
SMI = "\tGPU0\tmlx5_0\nGPU0\tX\tPIX\nmlx5_0\tPIX\tX\n"
GROUPS = (
    "IOMMU Group 3:\n\t0000:01:00.0 3D controller [0302]: NVIDIA Corporation GA100 [A100] [10de:20b2] (rev a1)\n"
    "IOMMU Group 4:\n\t0000:02:00.0 PCI bridge [0604]: Made [1b36:000c]\n"
)
LSPCI = "01:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:20b2] (rev a1)\n"


def refused(data: bytes, **limits: int) -> str:
    with pytest.raises(UnreadableState) as error:
        source.read_file(data, "in", source.Limits(**limits) if limits else None)
    return str(error.value)


# What it is ------------------------------------------------------------------------------


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize(
    ("text", "kind", "told"),
    [
        (HWLOC, Machine, "hwloc XML"),
        (f"\n<!-- c -->{HWLOC.partition('?>')[2]}", Machine, "hwloc XML"),
        (NCCL, NcclTopology, ""),
        (SMI, Matrix, ""),
        (GROUPS, Machine, "list of IOMMU groups"),
        (GROUPS.replace("\n", "\r\n"), Machine, "list of IOMMU groups"),
        ("Machine (P#0 total=1GiB)\n  HostBridge L#0 (buses=0000:[00-01])\n", Machine, "lstopo text"),
    ],
)
def test_an_input_is_what_its_content_says(text: str, kind: type, told: str, pack) -> None:
    found = source.read_file(pack(text.encode()), "in")
    assert isinstance(found, kind)
    assert getattr(found, "source", "") == told
    assert (found.machine if isinstance(found, NcclTopology) else found).name == "in"


def test_a_byte_order_mark_of_utf8_is_no_matter() -> None:
    assert isinstance(source.read_file(b"\xef\xbb\xbf" + SMI.encode(), "in"), Matrix)


def test_folders_archives_and_results_of_one_machine_agree(tmp_path: Path) -> None:
    fake = rack().write(tmp_path / "host")
    tree = read(fake)
    folder = source.read_file(f"{fake.folder}/")
    file = tmp_path / "misnamed.txt"
    file.write_bytes(packed(fake.folder, "x", "w:xz"))
    archived = source.read_file(str(file))
    assert isinstance(folder, Machine)
    assert isinstance(archived, Machine)
    assert (folder.tree, folder.source, archived.tree, archived.name) == (tree, "sysfs", tree, str(file))
    result = source.read_file(json.dumps({"changed": False, **topology(tree)}).encode(), "host-1")
    assert isinstance(result, Machine)
    assert result.source == "host_topology_info"
    assert list(result.tree.functions) == list(tree.functions)


def test_the_caller_says_how_a_captured_host_becomes_a_machine(tmp_path: Path) -> None:
    fake = rack().write(tmp_path / "host")
    fake.at("/proc").mkdir()
    fake.at("/proc/cmdline").write_text("quiet\n")

    def machine_of(host: Host, name: str, kind: str) -> Machine:
        return Machine(Tree(), Platform(arguments=host.read_text("/proc/cmdline")), name, kind, ("this",))

    archived = source.read_file(packed(fake.folder), "a", machine_of=machine_of)
    folder = source.read_file(str(fake.folder), "f", machine_of=machine_of)
    assert archived == Machine(Tree(), Platform(arguments="quiet\n"), "a", "sysfs archive", ("this",))
    assert folder == Machine(Tree(), Platform(arguments="quiet\n"), "f", "sysfs", ("this",))


def test_text_of_lspci_goes_to_its_reader() -> None:
    try:
        from ansible_collections.vela.gpudirect.plugins.module_utils.pci import lspci  # noqa: F401
    except ImportError:
        assert "is text of lspci, which this version cannot read" in refused(LSPCI.encode())
        for text in (b"10000:e1:00.0 Class 0108: 8086:0a54\n", b"-[0000:00]-+-00.0\n", b"Slot:\t00:00.0\n"):
            assert "is text of lspci" in refused(text)
    else:
        found = source.read_file(LSPCI.encode(), "in")
        assert isinstance(found, Machine)
        assert len(found.tree.functions) == 1


@pytest.mark.parametrize(
    ("folder", "kind"),
    [("hwloc", Machine), ("nccl-topo", NcclTopology), ("smi-topo", Matrix), ("iommu", Machine), ("sysfs", Machine)],
)
def test_every_file_of_the_corpus_is_known(folder: str, kind: type) -> None:
    some = {"hwloc": "dgx2-16gpu.v3.xml", "nccl-topo": "aws-p4d.xml", "smi-topo": "dgx1-v100-4cx.topo-mp.txt",
            "iommu": "hgx-h200-nvswitch-group.fragment.txt", "sysfs": "hwloc-2pa-pcidomain32bits.sysfs.tar.bz2"}  # fmt: skip
    files = sorted(corpus.file(f"{folder}/{some[folder]}").parent.iterdir())
    read_ = [type(source.read_file(str(file))) for file in files if "sys-class-infiniband" not in file.name]
    assert set(read_) == {kind}


# What it is not --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "in: is empty. See whether the command that wrote it has failed."),
        (b" \n\n", "in: is empty."),
        (gzip.compress(b"", mtime=0), "in: is empty once it is unpacked."),
        (b"\x7fELF\x02\x01\0\0", "in: is a binary file of no known kind. Give lspci text,"),
        ("GPU0".encode("utf-16"), "in: is text of UTF-16, as Windows writes it (wanted UTF-8). Save it as UTF-8:"),
        (b"hello\nworld\n", "in: is text of no known kind (found 'hello'). Give lspci text,"),
        (b"<html></html>", "in: is XML of no known kind (found <html>, wanted <topology> or <system>)."),
        (HWLOC[:900].encode(), "in:13: is no XML: unclosed token. It seems to be cut off: copy it again."),
        (
            gzip.compress(HWLOC.encode(), mtime=0)[:-30],
            "in: is no whole gzip file: it ends before its end. It seems to be damaged",
        ),
        (b'{"functions": [', "in: is no JSON: Expecting value: line 1 column 16 (char 15). It seems to be cut off"),
        (b'{"a": 1}', "in: is JSON of no known kind."),
        (b"[" * 100_000, "in: is no JSON: maximum recursion depth"),
        (b'{"functions": [{}], "bridges": [], "iommu_groups": [], "unread": {}}', "in: functions[0]: lacks 'address'."),
        (
            b'{"functions": [1], "bridges": [], "iommu_groups": [], "unread": {}}',
            "in: functions[0]: is not understood:",
        ),
        (b"\x1f\x8b", "in: is no whole gzip file"),
        (b"BZh9", "in: is no whole bzip2 file"),
        (b"\xfd7zXZ\0", "in: is no whole xz file"),
    ],
)
def test_what_is_no_input_says_what_to_do(data: bytes, says: str) -> None:
    assert says in refused(data)


def test_limits(tmp_path: Path) -> None:
    assert "is larger than 1 MiB" in refused(bytes(2 << 20), packed=1 << 20)
    file = tmp_path / "large"
    with file.open("wb") as stream:
        stream.truncate((256 << 20) + 1)
    with pytest.raises(UnreadableState, match=r"large: is larger than 256 MiB\. Give a capture"):
        source.read_file(str(file))
    assert "unpacks to more than 64 MiB" in refused(gzip.compress(b"a" * (80 << 20)))


def test_paths_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UnreadableState, match=r"none: is not there\. Give the path"):
        source.read_file(str(tmp_path / "none"))
    with pytest.raises(
        UnreadableState, match=r"Give the folder above sys/bus/pci/devices, or a folder with the inputs"
    ):
        source.read_file(str(tmp_path))


@given(st.binary(max_size=300))
def test_any_bytes_end_in_a_sentence(data: bytes) -> None:
    with pytest.raises(UnreadableState):
        source.read_file(data, "in")


@given(st.sampled_from([HWLOC, NCCL, SMI, GROUPS]), st.data())
def test_damaged_text_never_ends_in_another_error(text: str, data: st.DataObject) -> None:
    at_ = data.draw(st.integers(0, len(text) - 1))
    part = data.draw(st.text(max_size=5))
    damaged = text[:at_] + part + text[at_ + data.draw(st.integers(0, 20)) :]
    with contextlib.suppress(UnreadableState):
        source.read_file(damaged.encode("utf-8", "replace"), "in")


# Results of host_topology_info -----------------------------------------------------------


def as_told(tree: Tree) -> Tree:
    """What is left of a tree in a result: words in the place of bytes."""
    functions = {}
    for one in tree:
        unread = {name: cause for name, cause in one.unread.items() if name in plain._NAMES}
        lists = {name: () for name in unread if name != "physfn"}
        functions[one.address] = replace(one, config=ConfigSpace(), told=one.capabilities, unread=unread, **lists)
    return replace(tree, functions=functions)


@given(machines())
def test_a_result_is_the_tree_again(tmp_path_factory: pytest.TempPathFactory, machine) -> None:
    tree = read(machine.write(tmp_path_factory.mktemp("m")))
    data = json.loads(json.dumps(topology(tree)))
    assert plain.read(data, "m").tree == as_told(tree)


def test_a_result_is_read_in_milliseconds(tmp_path: Path) -> None:
    tree = read(large(8, 8, 13).write(tmp_path))
    assert len(tree.functions) == 152
    text = json.dumps(topology(tree))
    data = json.loads(text)
    best = 1.0
    for _number in range(20):
        started = time.perf_counter()
        plain.read(data, "m")
        best = min(best, time.perf_counter() - started)
    assert best < 0.02  # 2 ms on a quiet machine


# Lists of IOMMU groups -------------------------------------------------------------------


def test_groups_of_an_hgx_host() -> None:
    text = corpus.file("iommu/hgx-h200-nvswitch-group.fragment.txt").read_text(encoding="utf-8")
    machine = groups_text.read(text, "hgx")
    assert [str(one.address) for one in machine.tree.group(114)] == ["0000:05:00.0", "0000:06:00.0", "0000:07:00.0"]
    gpus = [one for one in machine.tree if one.ids == "10de:2335"]
    assert len(gpus) == len({one.iommu_group for one in gpus}) == 8
    assert {one.driver for one in gpus} == {"nvidia"}
    assert {(one.class_code, one.revision) for one in gpus} == {(0x030200, 0xA1)}
    assert machine.partial
    assert "places of functions" in machine.missing[0]


def test_groups_with_lines_of_their_own() -> None:
    tree = groups_text.read(GROUPS, "g").tree
    assert [(str(one.address), one.iommu_group, one.ids) for one in tree] == [
        ("0000:01:00.0", 3, "10de:20b2"),
        ("0000:02:00.0", 4, "1b36:000c"),
    ]
    assert at(tree, "0000:02:00.0").sriov is ABSENT
    assert {"subsystem", "parent", "class_code", "revision"} <= set(at(tree, "0000:02:00.0").unread)
    with pytest.raises(UnreadableState, match="has no function in its IOMMU groups"):
        groups_text.read("IOMMU Group 1:\n", "g")
