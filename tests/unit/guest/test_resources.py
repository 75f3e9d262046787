"""Cores and huge pages as a kernel tells them."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import UnreadableState
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.placed import Cell, HostNode, Placed, Shape
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.resources import cpus_of, given_back, read

NODE, CPU = "sys/devices/system/node", "sys/devices/system/cpu"


def written(root: Path, files: dict[str, str]) -> Host:
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="ascii")
    return Host(str(root))


def two_nodes(name: str = "core_cpus_list") -> dict[str, str]:
    """Two nodes of two cores with two threads, and a node with memory alone."""
    files = {f"{NODE}/node0/cpulist": "0-1,4-5\n", f"{NODE}/node1/cpulist": "2-3,6-7\n", f"{NODE}/node2/cpulist": "\n"}
    for cpu in range(8):
        files[f"{CPU}/cpu{cpu}/topology/{name}"] = f"{cpu % 4},{cpu % 4 + 4}\n"
    for node in range(3):
        files[f"{NODE}/node{node}/hugepages/hugepages-1048576kB/free_hugepages"] = f"{10 + node}\n"
        files[f"{NODE}/node{node}/hugepages/hugepages-2048kB/free_hugepages"] = "0\n"
    return files


@pytest.mark.parametrize("name", ["core_cpus_list", "thread_siblings_list"])
def test_nodes_with_cores_and_pages(tmp_path: Path, name: str) -> None:
    assert read(written(tmp_path, {**two_nodes(name), f"{CPU}/isolated": "5-7\n"})) == (
        HostNode(0, ((0, 4), (1, 5)), {1024: 10, 2: 0}, (5,)),
        HostNode(1, ((2, 6), (3, 7)), {1024: 11, 2: 0}, (6, 7)),
        HostNode(2, (), {1024: 12, 2: 0}),
    )


def test_offline_cpus_are_in_no_core(tmp_path: Path) -> None:
    files = {**two_nodes(), f"{NODE}/node0/cpulist": "0-1,4\n", f"{CPU}/cpu1/topology/core_cpus_list": "1\n"}
    assert read(written(tmp_path, files))[0].cores == ((0, 4), (1,))


def test_a_kernel_without_numa_has_node_0(tmp_path: Path) -> None:
    files = {
        f"{CPU}/online": "0-1\n",
        f"{CPU}/cpu0/topology/thread_siblings_list": "0\n",
        f"{CPU}/cpu1/topology/thread_siblings_list": "1\n",
        "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "7\n",
        "sys/kernel/mm/hugepages/hugepages-64kB/free_hugepages": "7\n",
    }
    assert read(written(tmp_path, files)) == (HostNode(0, ((0,), (1,)), {2: 7}),)


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [
        (f"{NODE}/node1/cpulist", "2-x\n", "is not a list of CPUs such as 0-3,8 (found '2-x')"),
        (f"{NODE}/node1/hugepages/hugepages-2048kB/free_hugepages", "-1\n", "does not tell (found '-1', wanted a number of pages)"),
        (f"{CPU}/cpu2/topology/core_cpus_list", None, "thread_siblings_list: is not there"),
        (f"{NODE}/node1/cpulist", None, "cpulist: is not there"),
        (f"{CPU}/isolated", "all\n", "is not a list of CPUs"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_an_error_with_its_path(tmp_path: Path, path: str, text: str | None, words: str) -> None:
    files = two_nodes()
    if text is None:
        del files[path]
    else:
        files[path] = text
    host = written(tmp_path, files)
    with pytest.raises(UnreadableState) as caught:
        read(host)
    assert words in str(caught.value)
    assert str(caught.value).startswith("/sys/")


@pytest.mark.parametrize(
    ("text", "cpus"), [("", ()), ("\n", ()), ("3\n", (3,)), ("0-2,8,7", (0, 1, 2, 7, 8)), ("0-1,1-2", (0, 1, 2))]
)
def test_lists_of_cpus(text: str, cpus: tuple[int, ...]) -> None:
    assert cpus_of(text) == cpus


@pytest.mark.parametrize("text", ["x", "3-1", "1,,2", "-1", "0-3:1/2"])
def test_what_is_no_list_of_cpus(text: str) -> None:
    with pytest.raises(ValueError, match="is not a list of CPUs"):
        cpus_of(text)


def test_pages_of_guests_that_are_placed_anew_count_again() -> None:
    guest = Placed(Shape("a", 1, page_mib=2), (), (Cell(0, (1,), 4), Cell(1, (2,), 2), Cell(9, (3,), 2)))
    assert given_back((HostNode(0, (), {2: 1}), HostNode(1)), [guest]) == (
        HostNode(0, (), {2: 3}),
        HostNode(1, (), {2: 1}),
    )
