"""What the rows of guests are made of, small and without a clock: hosts, what a look and a definition ask, the rack's order."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host

from tests.benchmark import first_guest, guest_machines, guests
from tests.benchmark.converged import converged_tree
from tests.benchmark.guest_machines import Hypervisor, checked, host_with
from tests.benchmark.machines import look
from tests.benchmark.suite import Result
from tests.integration.rack import ROOT


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[int, Hypervisor]:
    folder = tmp_path_factory.mktemp("hosts")
    return {count: host_with(folder / str(count), count) for count in (0, 2)}


def test_more_guests_ask_no_more_programs_and_lists(hosts: Mapping[int, Hypervisor]) -> None:
    seen = [guests.counted_look(host, checked(count)) for count, host in hosts.items()]
    assert seen[0] == seen[1]
    assert (seen[0]["verified"], seen[0]["changes"]) == (True, 0)
    assert seen[0]["programs"] > 0
    assert hosts[2].asked == Counter(open=1, domains=1, networks=1, pools=1)
    assert sorted(hosts[2].libvirt.domains.kept) == ["g0", "g1"]


def test_a_host_that_lacks_a_guest_is_not_as_wanted(hosts: Mapping[int, Hypervisor]) -> None:
    assert {one["path"] for one in look(hosts[0], checked(1))["plan"]} >= {"guest_image.disk[g0]"}


def test_guests_are_defined_again_and_the_host_is_as_before(hosts: Mapping[int, Hypervisor]) -> None:
    host = hosts[2]
    before = set(host.disk())
    counts = [guests.counted_define(host, count) for count in (1, 2, 2)]
    assert counts == [{"changes": 2 * count, "programs": 0, "lists": 4} for count in (1, 2, 2)]
    assert set(host.disk()) == before
    host.answer()
    assert look(host, checked(2))["msg"] == "as wanted"


def test_what_the_fake_takes_is_told_apart(hosts: Mapping[int, Hypervisor]) -> None:
    hosts[2].spent.clear()
    guests.counted_define(hosts[2], 1)
    asked = len(hosts[2].spent)
    assert asked >= 5  # two lists of domains and of networks, a definition and a start
    hosts[2].answer()


def test_slopes_tell_linear_growth_from_faster() -> None:
    line: Callable[[int], float] = lambda count: 30 + 7 * count  # noqa: E731
    assert guests.slopes({count: line(count) for count in guests.SIZES}) == pytest.approx(1)
    faster = guests.slopes({count: line(count) + 2 * count**2 for count in guests.SIZES})
    assert faster > guests.SLOPE


@pytest.mark.parametrize("count", [0, 1])
def test_a_captured_tree_is_as_wanted_but_for_what_libvirt_tells(tmp_path: Path, count: int) -> None:
    variables = converged_tree(tmp_path, guests.inventory_of(count))
    wanted = {**guest_machines.site.intent_of(variables), "host_boot_engine": guest_machines.engine.own().digest}
    for only in ("all", "guests"):
        intent = {**wanted, "gpudirect_only": only}
        plan = guest_machines.site.look(intent, Host(str(tmp_path)), check=False, previous={})
        assert guests.left(plan) == (guests.DEFERRED if count else [])


# The rack ----------------------------------------------------------------------------------


class Noted:
    """Runs of playbooks that take as long as they are said to; ``text`` is what the last one printed."""

    home = ROOT

    def __init__(self, folder: Path, seconds: list[float], text: str = "node-a : ok=1 changed=0 failed=0\n") -> None:
        self.folder, self.rack, self.text = folder, self, text
        self.seconds = iter(seconds)
        self.plays: list[tuple[str, dict[str, Any]]] = []
        self.asked: list[str] = []

    def play(self, playbook: Path, *arguments: str) -> float:
        assert playbook.is_file()
        assert Path(arguments[1], "hosts.yml").is_file()
        self.plays.append((playbook.name, json.loads(arguments[3]) if len(arguments) > 2 else {}))
        (self.folder / "output").write_text(self.text)
        return next(self.seconds)

    def run(self, _host: str, script: str) -> str:
        self.asked.append(script.split(maxsplit=1)[0])
        return "=== guest report begins\nhost name=g1\n=== guest report ends\n" if self.asked[-1] == "cat" else ""


def test_a_guest_of_the_rack_is_removed_defined_waited_for_and_looked_at(tmp_path: Path) -> None:
    noted = Noted(tmp_path, [9, 60, 6, 9, 40, 4, 9, 50, 5])
    assert first_guest.against_no_change(noted, 3) == 10  # type: ignore[arg-type]
    removal = ("guests.yml", first_guest.NONE)
    assert noted.plays == [removal, ("guests.yml", {}), ("guests.yml", {})] * 3
    assert noted.asked == ["rm", "cat"] * 3


def test_a_second_run_that_changes_something_is_no_yardstick(tmp_path: Path) -> None:
    noted = Noted(tmp_path, [9, 60, 6], "node-a : ok=9 changed=2 failed=0\n")
    with pytest.raises(RuntimeError, match="changes something again"):
        first_guest.against_no_change(noted, 1)  # type: ignore[arg-type]


def test_a_guest_that_says_nothing_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = Noted(tmp_path, [])
    monkeypatch.setattr(noted, "run", lambda _host, _script: "")
    with pytest.raises(RuntimeError, match="has not booted within 0 s"):
        first_guest.wait_for_guest(noted, 0)  # type: ignore[arg-type]


def test_the_console_is_that_of_the_guest_of_the_inventory() -> None:
    variables = yaml.safe_load((ROOT / "inventories" / first_guest.INVENTORY / "host_vars" / "node-a.yml").read_text())
    (shape,) = variables["guest_shapes"]
    assert f"/{shape['name']}-console.log" in first_guest.CONSOLE


def test_every_result_has_a_name_and_a_row_of_its_own(hosts: Mapping[int, Hypervisor]) -> None:
    counted = guests._count_results("site.yml", {0: (1, 1), 1: (1, 1), 8: (2, 1)})
    assert [(one.found, one.good) for one in counted] == [(2, True), (1, True), (1, False)]
    assert len({(one.what, one.against) for one in counted}) == len(counted)
    assert all(isinstance(one, Result) for one in counted)
