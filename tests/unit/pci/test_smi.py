from __future__ import annotations

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import UnreadableState
from ansible_collections.vela.gpudirect.plugins.module_utils.pci import hwloc, matrix, smi, xml_input
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.matrix import Comparison, Difference, Matrix
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.tree import Function, Tree
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures import corpus


def in_corpus(name: str) -> Matrix:
    return smi.read(corpus.file(f"smi-topo/{name}").read_text(encoding="utf-8"), name)


def test_a_guest_that_shows_its_switches() -> None:
    found = in_corpus("a800-guest-124vcpu-pix-pairs.topo-m.txt")
    assert len(found.labels) == 16
    assert found.legend == {f"NIC{number}": f"mlx5_{number}" for number in range(8)}
    for gpu in range(8):
        near = [nic for nic in range(8) if found.kinds[f"GPU{gpu}", f"NIC{nic}"] == "PIX"]
        assert near == [gpu // 2 * 2, gpu // 2 * 2 + 1]
    assert found.kinds["GPU0", "GPU7"] == "NV8"
    assert found.kinds["NIC7", "GPU0"] == "SYS"
    assert found.numa["GPU0"] == "0"
    assert found.numa["GPU4"] == "1"
    assert "NIC0" not in found.numa


def test_a_matrix_of_pci_only() -> None:
    found = in_corpus("dgx1-v100-4cx.topo-mp.txt")
    assert set(found.kinds.values()) == {"X", "PIX", "PHB", "SYS"}
    assert [found.kinds["GPU1", f"mlx5_{number}"] for number in range(4)] == ["PIX", "PHB", "SYS", "SYS"]


def test_a_machine_without_a_common_switch() -> None:
    found = in_corpus("power9-4v100-full.topo-m.txt")
    between = {found.kinds[gpu, nic] for gpu in found.labels[:4] for nic in found.labels[4:]}
    assert between == {"NODE", "SYS"}
    assert found.numa == {"GPU0": "0", "GPU1": "0", "GPU2": "8", "GPU3": "8"}


def kind(tree: Tree, one: Function, other: Function) -> str:
    """Enough of the words for a machine whose GPUs and NICs share no switch."""
    if {bridge.address for bridge in tree.above(one)} & {bridge.address for bridge in tree.above(other)}:
        return "PIX" if one.class_code >> 16 == other.class_code >> 16 == 2 else "PXB"
    return "NODE" if one.numa_node == other.numa_node else "SYS"


def test_the_matrix_of_power9_is_that_of_its_export() -> None:
    """Two files of one kind of machine, of different programs and sites."""
    data = corpus.file("hwloc/power9-4v100-cx5-multidomain.v2.xml").read_bytes()
    tree = hwloc.read(xml_input.parse(data, "p9"), "p9").tree
    gpus = {one.address: one for one in tree if one.class_code >> 8 == 0x0302}
    mine = matrix.computed(tree, gpus, lambda one, other: kind(tree, one, other))
    printed = in_corpus("power9-4v100-full.topo-m.txt")
    assert mine.labels == printed.labels
    compared = matrix.differences(printed, mine)
    assert compared == Comparison((), 8 * 7 // 2 - 2, ())  # NV3 hides two pairs
    wrong = Matrix(printed.labels, {**printed.kinds, ("GPU0", "mlx5_0"): "PIX"})
    assert matrix.differences(wrong, mine).differing == (Difference(("GPU0", "mlx5_0"), "PIX", "NODE"),)


def test_names_that_only_one_has() -> None:
    one = Matrix(("GPU0", "NIC0"), {("GPU0", "NIC0"): "PIX"}, {"NIC0": "mlx5_3"})
    other = Matrix(("GPU0", "mlx5_3", "mlx5_4"), {("mlx5_3", "GPU0"): "SYS"})
    assert matrix.differences(one, other) == Comparison((Difference(("GPU0", "mlx5_3"), "PIX", "SYS"),), 1, ("mlx5_4",))


def test_terminal_codes_blanks_and_old_words() -> None:
    text = "\x1b[4m\tGPU0\tGPU1\tmlx5_bond_0\tCPU Affinity\x1b[0m\nGPU0   X   SOC  PIX  0-7\nGPU1  SOC   X  NV12  0-7\n"
    found = smi.read(text + "mlx5_bond_0 PIX SYS X\n", "s")
    assert found.labels == ("GPU0", "GPU1", "mlx5_bond_0")
    assert found.kinds["GPU0", "GPU1"] == found.kinds["GPU1", "GPU0"] == "SYS"
    assert found.kinds["GPU1", "mlx5_bond_0"] == "NV12"


def test_one_gpu_alone() -> None:
    found = smi.read("\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-23\tN/A\t\tN/A\n", "s")
    assert (found.labels, found.kinds, found.numa) == (("GPU0",), {("GPU0", "GPU0"): "X"}, {"GPU0": "N/A"})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("\tGPU0\tGPU1\nGPU0\tX\n", "s:2: the row of GPU0 is not understood (found 1 entries, wanted 2 words"),
        ("\tGPU0\tGPU1\nGPU0\tX\tFAR\n", "s:2: the row of GPU0 is not understood (found 'FAR'"),
        ("\tGPU0\tGPU1\nGPU0\tX\tSYS\n", "s:2: ends before the rows of all labels (GPU1 missing)"),
        ("nothing\n", "s:1: has no header with GPU0"),
    ],
)
def test_what_is_cut_off_says_where(text: str, says: str) -> None:
    with pytest.raises(UnreadableState) as error:
        smi.read(text, "s")
    assert str(error.value).startswith(says)


@given(st.data())
def test_what_is_printed_is_read(data: st.DataObject) -> None:
    labels = [
        *(f"GPU{n}" for n in range(data.draw(st.integers(1, 8)))),
        *(f"NIC{n}" for n in range(data.draw(st.integers(0, 4)))),
    ]
    word = st.sampled_from(["PIX", "PXB", "PHB", "NODE", "SYS", "NV1", "NV18"])
    table = {(a, b): "X" if a == b else data.draw(word) for a in labels for b in labels}
    between = data.draw(st.sampled_from(["\t", "  ", "\t "]))
    tail = data.draw(st.sampled_from([[], ["0-7", "0"], ["0-7,16-23", "1", "N/A"]]))
    head = [["CPU Affinity", "NUMA Affinity", "GPU NUMA ID"][n] for n in range(len(tail))]
    lines = [between.join(["", *labels, *head])]
    for one in labels:
        lines.append(between.join([one, *(table[one, other] for other in labels), *(tail if one[0] == "G" else [])]))
    found = smi.read("\n".join(lines), "s")
    assert (list(found.labels), found.kinds) == (labels, table)
    assert found.numa == ({one: tail[1] for one in labels if one[0] == "G"} if tail else {})
