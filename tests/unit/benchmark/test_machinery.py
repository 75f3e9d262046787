"""What the benchmarks are made of, small and without a clock: counts, the page, and the two roles' agreement on a host."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.benchmark import audits, looped, reading
from tests.benchmark.first_apply import userspace_s
from tests.benchmark.machines import Answering, checked, converged_host, look
from tests.benchmark.measuring import family_cpu_s
from tests.benchmark.report import REMARKS, kept_rows, page, rows_on, table
from tests.benchmark.suite import Result

RACK_ROW = "| first apply, on the simulated rack: site.yml | run without changes | 5.54 | - | - | |"
BEFORE = (
    f"# Benchmarks\n\nWritten on 2026-01-02, here.\n\n{RACK_ROW}\n| other | - | 1 | - | - | |\n{REMARKS}\n* By hand.\n"
)
OWN = Result("one", "something", "another", 1 / 40, 1 / 30, 1 / 60)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[int, Answering]:
    folder = tmp_path_factory.mktemp("hosts")
    return {vfs: converged_host(folder / str(vfs), vfs) for vfs in (2, 6)}


def test_a_settled_host_is_as_wanted_and_more_vfs_need_no_more_programs(hosts: Mapping[int, Answering]) -> None:
    programs = []
    for vfs, host in hosts.items():
        host.commands.clear()
        assert look(host, checked(vfs))["msg"] == "as wanted"
        programs.append([done.argv for done in host.commands])
    assert programs[0] == programs[1] != []


def test_a_vf_adds_one_execution_to_each_loop_over_vfs(hosts: Mapping[int, Answering]) -> None:
    few, many = (looped.executions(looped.variables(host)) for host in hosts.values())
    loops = sum("looped_vfs" in task["loop"] for task in looped.playbook()[0]["tasks"])
    assert many - few == (6 - 2) * loops


def test_the_role_of_small_tasks_finds_files_and_words_where_it_looks(hosts: Mapping[int, Answering]) -> None:
    host = hosts[2]
    looped.tell(host)
    given = looped.variables(host)
    assert given["looped_files"]
    assert all(Path(file).is_file() for file in given["looped_files"])
    assert len(given["looped_vfs"]) == 2
    for vf in given["looped_vfs"]:
        assert (Path(vf["folder"]) / "driver").resolve().name == "vfio-pci"
        line = next(
            line for line in Path(vf["told"]).read_text().splitlines() if line.startswith(f"vf {vf['number']} ")
        )
        assert all(vf[name] in line for name in looped.OF_A_VF)


def test_more_vfs_open_no_more_files_of_a_function(tmp_path: Path) -> None:
    many, none = reading.opened(tmp_path / "many", 4), reading.opened(tmp_path / "none", 0)
    assert len(many) - len(none) == 8 * 4
    most = max(count for name, count in many.items() if name)
    assert most == max(count for name, count in none.items() if name)
    assert most <= reading.OPENS


def test_a_row_has_its_day_and_small_ratios_are_parts_of_one() -> None:
    row = table([OWN])[-1]
    assert "| 1/40  | <= 1/30 | <= 1/60" in row
    assert row.rstrip(" |")[-10:].count("-") == 2


def test_rows_of_the_rack_and_remarks_stay_on_the_page() -> None:
    once = page([OWN], 3, BEFORE)
    assert kept_rows(once, [OWN]) == kept_rows(BEFORE, [OWN])
    assert kept_rows(BEFORE, [OWN])[0][-1] == "2026-01-02"
    assert "other" not in once.split("How it is")[0].replace("another", "")
    assert once.endswith(f"{REMARKS}\n* By hand.\n")
    assert page([OWN], 3, once) == once


def test_a_run_with_the_rack_replaces_its_rows() -> None:
    assert kept_rows(BEFORE, [Result("r", "boot on the simulated rack: unit", "", 1, None)]) == []


def test_a_run_of_some_measurements_leaves_all_other_rows_where_they_are() -> None:
    first = page(
        [OWN, Result("two", "other", "", 1, None), Result("rack", RACK_ROW.split("|")[1].strip(), "", 2, None)], 3
    )
    before = f"{first}{REMARKS}\n* By hand.\n"
    again = page([replace(OWN, found=1 / 50), Result("new", "third", "", 4, 3, count=True)], 3, before, whole=False)
    rows = rows_on(again)
    assert [row[:3] for row in rows] == [
        ("something", "another", "1/50"),
        ("other", "-", "1.00"),
        ("third", "-", "4"),
        ("first apply, on the simulated rack: site.yml", "-", "2.00"),
    ]
    assert rows[2][5] == "MISSED"
    assert again.endswith(f"{REMARKS}\n* By hand.\n")


def test_processor_time_of_what_has_ended_is_counted() -> None:
    before = family_cpu_s(os.getpid())
    spin = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", spin], check=True)
    assert family_cpu_s(os.getpid()) - before > 0.25  # the kernel tells it in ticks of 10 ms


def test_user_space_is_what_systemd_says() -> None:
    shown = "UserspaceTimestampMonotonic=2000000\nFinishTimestampMonotonic=9500000\n"
    assert userspace_s(shown) == 7.5
    with pytest.raises(RuntimeError, match="has not finished"):
        userspace_s("UserspaceTimestampMonotonic=2000000\nFinishTimestampMonotonic=0\n")


def test_hosts_of_an_audit_differ_and_have_the_gpus_that_are_told(tmp_path: Path) -> None:
    texts = list(audits.host_texts(audits.FEW))
    assert len(set(texts)) == audits.FEW
    assert sum(text.count(" [10de:") for text in texts) == 2 * 1500  # a line for itself, and one for its subsystem
    audits.written(tmp_path / "some.tar.gz", 20)
    spent = audits.audited(tmp_path / "some.tar.gz", tmp_path)
    assert (tmp_path / "audit.txt").read_text().startswith("2 FAIL, 18 UNKNOWN of 20 inputs with 156 GPUs\n")
    assert spent.peak_mib > 1


def test_guests_of_every_kind_of_host_are_placed() -> None:
    assert len({audits.guests(number) for number in range(3)}) == 3
