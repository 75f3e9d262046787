"""What holds on every machine: distances are symmetric, order means nothing, and knowing less never looks better."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from ansible_collections.vela.gpudirect.plugins.module_utils import p2p
from ansible_collections.vela.gpudirect.plugins.module_utils.path.finding import Kind, Verdict, worst
from ansible_collections.vela.gpudirect.plugins.module_utils.path.intent import PathIntent
from ansible_collections.vela.gpudirect.plugins.module_utils.path.plain import plain, text
from ansible_collections.vela.gpudirect.plugins.module_utils.path.policy import MODES
from ansible_collections.vela.gpudirect.plugins.module_utils.path.routes import Routes
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.capabilities import Capabilities, Words
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.machine import Machine
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.tree import Function, Link, Tree
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.path.machines import GONE, machines

intents = st.builds(
    PathIntent,
    mode=st.sampled_from(MODES),
    max_distance=st.sampled_from([Kind.PIX, Kind.PHB, Kind.NODE, Kind.SYS]),
    min_bar_mib=st.sampled_from([None, 1024]),
)


def with_functions(machine: Machine, functions: Iterable[Function]) -> Machine:
    return replace(machine, tree=Tree({one.address: one for one in functions}))


@given(machines())
def test_distances_are_symmetric(machine: Machine) -> None:
    routes, back = Routes(machine), Routes(machine)
    for one in machine.tree:
        for other in machine.tree:
            there, again = routes.between(one, other), back.between(other, one)
            assert there.kind == again.kind
            assert (there.up, there.common, there.down) == (again.down[::-1], again.common, again.up[::-1])


@given(machines(), intents, st.randoms(use_true_random=False))
def test_the_order_of_functions_means_nothing(machine: Machine, intent: PathIntent, chance: random.Random) -> None:
    functions = list(machine.tree)
    chance.shuffle(functions)
    other = with_functions(machine, functions)
    assert plain(p2p.judge(other, intent)) == plain(p2p.judge(machine, intent))
    assert text(p2p.judge(other, intent)) == text(p2p.judge(machine, intent))
    assert p2p.wanted_words(other, intent) == p2p.wanted_words(machine, intent)


# Knowing less ----------------------------------------------------------------------------


def without_capability(name: str) -> Any:
    def take(one: Function) -> Function:
        assert one.told is not None
        return replace(one, told=replace(one.told, **{name: GONE}))

    return take


OF_A_FUNCTION = {
    **{name: without_capability(name) for name in ("express", "acs", "ats")},
    "config": lambda one: replace(one, told=Capabilities(GONE, GONE, GONE)),
    "link": lambda one: replace(one, link=Link(GONE, GONE, GONE, GONE)),
    "best_link": lambda one: replace(one, link=replace(one.link, speed_max=GONE, width_max=GONE)),
    "numa_node": lambda one: replace(one, numa_node=GONE),
    "iommu_group": lambda one: replace(one, iommu_group=GONE),
    "driver": lambda one: replace(one, driver=GONE),
    "bars": lambda one: replace(one, bars=(), unread={"bars": "taken away"}),
}
OF_THE_PLATFORM = [field.name for field in fields(Machine.__dataclass_fields__["platform"].default_factory())]  # type: ignore[misc]


def by_rule(machine: Machine, intent: PathIntent) -> dict[str, Verdict]:
    findings = p2p.judge(machine, intent).findings
    return {rule: worst(one.verdict for one in findings if one.rule == rule) for rule in {one.rule for one in findings}}


@given(machines(), intents, st.data())
def test_knowing_less_never_looks_better(machine: Machine, intent: PathIntent, data: st.DataObject) -> None:
    before = by_rule(machine, intent)
    what = data.draw(st.sampled_from([*OF_A_FUNCTION, *OF_THE_PLATFORM]))
    if what in OF_A_FUNCTION:
        victims = data.draw(st.sets(st.sampled_from(sorted(machine.tree.functions)), min_size=1))
        functions = [OF_A_FUNCTION[what](one) if one.address in victims else one for one in machine.tree]
        poorer = with_functions(machine, functions)
    else:
        poorer = replace(machine, platform=replace(machine.platform, **{what: GONE}))
    after = by_rule(poorer, intent)
    for rule, verdict in before.items():
        if verdict >= Verdict.UNKNOWN:
            assert after.get(rule, Verdict.OK) >= Verdict.UNKNOWN, (rule, what)


@given(machines(), intents)
def test_knowing_nothing_of_the_registers_is_never_fine(machine: Machine, intent: PathIntent) -> None:
    blind = with_functions(machine, [OF_A_FUNCTION["config"](one) for one in machine.tree])
    report = p2p.judge(blind, intent)
    if report.best and any(report.best.values()) and intent.mode == "passthrough_vm":
        assert report.verdict >= Verdict.UNKNOWN


def as_wanted(one: Function, want: p2p.AcsWant | None) -> Function:
    """A port with the bits that are wanted of it, where it has such words."""
    assert one.told is not None
    if want is None or not isinstance(one.told.acs, Words):
        return one
    control = (one.told.acs.control | want.set_bits) & ~want.clear_bits
    return replace(one, told=replace(one.told, acs=Words(0x5F, control)))


@given(machines(), st.sampled_from(MODES))
def test_what_is_wanted_is_what_is_judged(machine: Machine, mode: str) -> None:
    """A machine whose ports have just what is wanted of them has no finding about these bits."""
    intent = PathIntent(mode=mode)
    wanted = p2p.wanted_words(machine, intent)
    functions = [as_wanted(one, wanted.get(one.address)) for one in machine.tree]
    for finding in p2p.judge(with_functions(machine, functions), intent).findings:
        if finding.rule in ("acs_redirect", "acs_direct_translated", "acs_dt_capable", "acs_translation_blocking"):
            assert finding.verdict != Verdict.FAIL or "no ACS" in finding.found
