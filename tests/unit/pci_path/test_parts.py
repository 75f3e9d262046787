"""Single parts: options, kernels, members of the argument, the guard of a write, records of other ports."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import kernel_args, pci_path, site
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Change, Disruption, Unreadable
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import GpudirectError, IntentError
from ansible_collections.vela.gpudirect.plugins.module_utils.path import acs
from ansible_collections.vela.gpudirect.plugins.module_utils.path.intent import PathIntent
from ansible_collections.vela.gpudirect.plugins.module_utils.path.writing import SetWord

from tests.fixtures import fake_registers
from tests.fixtures.fake_sriov import FakeSriov
from tests.fixtures.path_hosts import ARGUMENT, REGISTER, built, one, run, settle, vela, words

NIC = "0000:22:01.0"
OWNED = "/var/lib/gpudirect/owned.json"


# Options -----------------------------------------------------------------------------------


def test_nothing_is_asked_for_by_itself() -> None:
    assert not pci_path.parse({}).sets_anything
    assert not pci_path.lost_at_boot(pci_path.parse({"gpudirect_mode": "bare_metal", "pci_path_min_bar_mib": 4}))
    assert pci_path.lost_at_boot(pci_path.parse({"pci_path_max_read_request": 512}))
    assert kernel_args.parse({"pci_path_acs": "register"}).empty
    assert not kernel_args.parse({"pci_path_acs": "auto"}).empty


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pci_path_acs": "registers"}, "Did you mean register?"),
        ({"pci_path_acs_form": "adress"}, "Did you mean address?"),
        ({"pci_path_max_read_request": 4000}, "is no read request size"),
        ({"gpudirect_mode": "bare"}, "passthrough_vm or bare_metal or virtio_vm"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(IntentError) as caught:
        site.intent_of(options)
    assert said in str(caught.value)


def test_one_variable_is_told_once_by_all_who_read_it() -> None:
    with pytest.raises(IntentError) as caught:
        site.intent_of({"gpudirect_mode": "x", "pci_path_gpus": [{"vendor": "zz"}]})
    assert [problem.path for problem in caught.value.problems] == ["gpudirect_mode", "pci_path_gpus[0].vendor"]


# Kernels -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "by_argument"),
    [
        ("6.12.23", True),
        ("6.12.117+deb13-amd64", True),
        ("6.12.22", False),
        ("6.12.0-55.el10.x86_64", False),
        ("6.13.9", False),
        ("6.14.0-24-generic", True),
        ("6.14-rc1", True),
        ("7.0.0", True),
        ("6.8.0-60-generic", False),
        ("5.14.0-427.13.1.el9_4.x86_64", False),
        ("odd", False),
    ],
)
def test_auto_takes_the_argument_where_that_is_certain(kernel: str, by_argument: bool) -> None:
    assert acs.method_of(PathIntent(acs="auto"), kernel).by_argument is by_argument
    assert acs.method_of(PathIntent(acs="boot_argument"), kernel).by_argument is True
    assert acs.method_of(PathIntent(acs="register"), kernel).by_argument is False


def test_an_unknown_kernel_gets_registers() -> None:
    assert not acs.method_of(PathIntent(acs="auto"), Unreadable("no such file")).by_argument


def test_the_line_of_a_running_kernel_may_have_quotes_and_other_members() -> None:
    member = "config_acs=1011101@0000:22:01.0;0011101@0000:22:00.0"
    assert acs.is_live(member, f"ro pci=realloc,{member} quiet")
    assert acs.is_live(member, f'ro "pci={member}" quiet')
    assert acs.is_live(member, f'ro pci="{member}"')
    assert not acs.is_live(member, f"ro pci={member};0011101@0000:20:01.0")
    assert not acs.is_live("", "ro pci=")
    assert not acs.is_live(member, Unreadable("x"))


# Writing -----------------------------------------------------------------------------------


@pytest.fixture
def host(tmp_path: Path) -> FakeSriov:
    return built(tmp_path / "host", "one")


def step(**other: Any) -> SetWord:
    values = {"address": NIC, "ids": "1b36:000c", "capability": 0x150, "identifier": 0x0D, "register": 0x156}
    return SetWord(**{**values, "mask": 0x40, "value": 0x40, **other})


def test_only_the_bits_of_a_step_change(host: FakeSriov) -> None:
    fake_registers.reset(host.machine, NIC, 0x08)
    pci_path.apply(Change("x", None, None, "", step=step()), host)
    assert words(host)[NIC] == 0x48


@pytest.mark.parametrize("other", [{"ids": "1b36:000d"}, {"identifier": 0x0F}, {"capability": 0x100}])
def test_another_function_is_never_written(host: FakeSriov, other: dict[str, Any]) -> None:
    with pytest.raises(GpudirectError, match="another function is there"):
        pci_path.apply(Change("x", None, None, "", step=step(**other)), host)
    assert not host.acts


def test_a_function_that_has_gone_is_told(host: FakeSriov) -> None:
    host.machine.vanish("0000:25:00.0")
    with pytest.raises(GpudirectError, match=r"config cannot be read at 0x0: there is nothing"):
        pci_path.apply(Change("x", None, None, "", step=step(address="0000:25:00.0")), host)


def test_a_lockdown_that_came_meanwhile_is_told(host: FakeSriov) -> None:
    host.put("/sys/kernel/security/lockdown", "none [integrity]\n")
    with pytest.raises(GpudirectError, match="refuses writes to configuration space"):
        pci_path.apply(Change("x", None, None, "", step=step()), host)


# Records and addresses ---------------------------------------------------------------------


def test_the_order_of_the_two_does_not_matter(tmp_path: Path) -> None:
    hosts = [built(tmp_path / name, "vela") for name in ("a", "b")]
    for resources, host in zip(((kernel_args, pci_path), (pci_path, kernel_args)), hosts):
        for resource in resources:
            one(resource, ARGUMENT, host, False, Disruption.NOTHING)
        host.boot()
    assert words(hosts[0]) == words(hosts[1])
    assert hosts[0].line() == hosts[1].line()


def test_undo_never_writes_another_port(host: FakeSriov) -> None:
    run(REGISTER, host)
    owned = json.loads(host.text(OWNED))
    owned["records"][f"pci_path[{NIC}].acs"]["identity"]["port"] = "pci0000:20/07.0"
    host.put(OWNED, json.dumps(owned), 0o600)
    before = words(host)
    run({}, host)
    assert words(host) == before
    assert not host.owned()


def test_a_port_that_has_gone_is_forgotten(host: FakeSriov) -> None:
    run(REGISTER, host)
    owned = json.loads(host.text(OWNED))
    records = owned["records"]
    records["pci_path[0000:77:00.0].acs"] = records[f"pci_path[{NIC}].acs"]
    host.put(OWNED, json.dumps(owned), 0o600)
    run(REGISTER, host)
    assert list(json.loads(host.text(OWNED))["records"]) == [f"pci_path[{NIC}].acs"]


def test_other_bus_numbers_give_another_argument_and_the_same_words(host: FakeSriov) -> None:
    settle(ARGUMENT, host)
    host.boot()
    assert host.at_boot is not None
    machine = copy.deepcopy(vela(1))
    machine.devices[1].spare_buses = 0
    first = machine.root(0x10)
    machine.nvme(machine.port(first, "00.0"), "S9", "nvme9n1")
    machine.roots[1].bus = 0x30
    machine._number()
    host.at_boot = (machine, {"0000:34:00.0": next(iter(host.at_boot[1].values()))})
    host.at_boot[1]["0000:34:00.0"].address = "0000:34:00.0"
    host.boot()
    assert words(host)["0000:32:01.0"] == 0x1D
    settle(ARGUMENT, host)
    assert words(host)["0000:32:01.0"] == 0x5D
    host.boot()
    assert "@0000:32:01.0" in host.line()
    assert "@0000:22:01.0" not in host.line()
    assert words(host)["0000:32:01.0"] == 0x5D
    settle({}, host)
    assert not host.owned()


def test_a_nic_that_does_not_answer_holds_up_nothing_else(tmp_path: Path) -> None:
    host = built(tmp_path / "root", "one")
    (card,) = [device for device in host.machine.devices if device.nets and device.link is not None]
    intent = {**REGISTER, "pci_path_max_read_request": 4096}
    host.machine.at(f"{host.machine.path(card)}/config").write_bytes(b"\xff" * 4096)
    with pytest.raises(GpudirectError, match=r"max_read_request: the NIC does not answer"):
        one(pci_path, intent, host, check=False, allow=Disruption.NOTHING)
    current = pci_path.read(host, pci_path.parse(intent))
    plan = pci_path.plan(pci_path.parse(intent), current, {})
    assert [change.path for change in plan.changes if change.path.endswith(".acs")]
    assert [problem.path for problem in plan.refused] == [f"pci_path[{card.address}].max_read_request"]
