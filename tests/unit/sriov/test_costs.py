"""What a run costs does not grow with the number of VFs: the same processes, acts and writes of the record."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.fake_sriov import FakeSriov
from tests.fixtures.sriov_hosts import built, ports, run

COUNTS = (8, 64, 128)


def intent(count: int, **defaults: Any) -> dict[str, Any]:
    attributes = {"trust": True, "spoofchk": True, "link_state": "enable", "max_tx_rate": 1000, "vlan": 7, **defaults}
    return ports({"select": {"vendor": "15b3"}, "vfs": count, "mtu": 9000, "vf_defaults": attributes})


def spent(host: FakeSriov, wanted: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The acts of a run and the programs that it asked."""
    host.revive()
    host.commands.clear()
    run(wanted, host)
    return [act.replace("owned.json", "") for act in host.acts], [" ".join(done.argv) for done in host.commands]


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, tuple[list[str], list[str]]]]:
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        for count in COUNTS:
            host = built(tmp_path_factory.mktemp("host") / "root", "wide")
            first, second = intent(count), intent(count, vlan=8, max_tx_rate=0)
            phases = {"apply": first, "no_change": first, "change": second, "undo": {}}
            found[count] = {phase: spent(host, wanted) for phase, wanted in phases.items()}
    return found


@pytest.mark.parametrize("phase", ["apply", "no_change", "change", "undo"])
def test_processes_and_acts_are_the_same_for_any_number_of_vfs(
    costs: dict[int, dict[str, tuple[list[str], list[str]]]], phase: str
) -> None:
    assert costs[8][phase] == costs[64][phase] == costs[128][phase]


def test_a_look_asks_three_programs_and_a_port_is_set_by_one(
    costs: dict[int, dict[str, tuple[list[str], list[str]]]],
) -> None:
    acts, programs = costs[64]["no_change"]
    assert acts == []
    assert len(programs) == 3
    _acts, programs = costs[64]["change"]
    assert [name for name in programs if "-batch" in name] == ["ip -batch -"]
    assert len(programs) == 3 + 2 + 3  # the look, what the port's VFs have and get, the look afterwards


def test_ports_add_to_it_one_by_one(tmp_path: Path) -> None:
    one, two = (ports({"select": select, "vfs": 4}) for select in ({"netdev": "ens0f0np0"}, {"vendor": "15b3"}))
    first, second = (len(spent(built(tmp_path / name, "vela"), wanted)[1]) for name, wanted in (("1", one), ("2", two)))
    looks = 2 * 3
    assert second - looks == 2 * (first - looks)
