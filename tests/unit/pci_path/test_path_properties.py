"""What holds for every machine and every intent, not only for those of the cases."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from ansible_collections.vela.gpudirect.plugins.module_utils import p2p
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import HostRefused
from ansible_collections.vela.gpudirect.plugins.module_utils.path.facts import machine_of
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.fake_pci import Machine
from tests.fixtures.fake_sriov import FakeSriov
from tests.fixtures.path_hosts import built, look, paths, run, settle, words

WAYS = st.sampled_from(["auto", "register", "boot_argument"])
MODES = st.sampled_from(["passthrough_vm", "bare_metal", "virtio_vm"])
CONTROL = st.sampled_from([0x00, 0x1D, 0x1F, 0x5D, 0x3D, 0x40])


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Switches, one below the other now and then, with GPUs, NICs and drives at their ports, whose words are anything."""
    machine = Machine(draw(st.sampled_from(["identity", ""])))
    machine.virtio_net(machine.root(0x00), "enp0s3", "52:54:00:9a:fd:51", "03.0", readable=256)
    names = 0
    for number in range(draw(st.integers(1, 2))):
        root = machine.port(machine.root(0x20 + 0x40 * number, numa=number), "01.0")
        ports = machine.switch(root, 4)
        if draw(st.booleans()):
            ports = [*ports[1:], *machine.switch(ports[0], 2)]
        for index, port in enumerate(draw(st.permutations(ports))):
            names += 1
            if index == 0:
                machine.gpu(port)
            elif index == 1:
                machine.connectx(port, f"ens{names}", f"94:6d:ae:00:00:{names:02x}")
            elif index == 2 and draw(st.booleans()):
                machine.nvme(port, f"S{names}", f"nvme{names}n1")
            elif index == 3 and draw(st.booleans()):
                machine.gpu(port)
    for device in machine.devices:
        if device.acs is not None:
            device.acs = (0x7F, draw(CONTROL))
    return machine


def intents() -> st.SearchStrategy[dict[str, Any]]:
    values = {"pci_path_acs": WAYS, "gpudirect_mode": MODES}
    return st.fixed_dictionaries(values, optional={"pci_path_max_read_request": st.sampled_from([128, 512, 4096])})


def judged(host: FakeSriov, intent: dict[str, Any]) -> set[str]:
    """The ports that the policy wants something of."""
    wanted = p2p.wanted_words(machine_of(host), p2p.parse({name: intent[name] for name in intent}))
    return {str(one) for one in wanted}


def refusal(intent: dict[str, Any], host: FakeSriov) -> str:
    """Settle; why that was refused, empty where it was not."""
    try:
        settle(intent, host)
    except HostRefused as error:
        return str(error)
    return ""


@given(machines(), st.lists(intents(), min_size=1, max_size=2), st.booleans())
def test_settled_is_settled_and_nothing_else_is_touched(
    machine: Machine, wishes: list[dict[str, Any]], old: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        host = built(Path(folder) / "host", machine, "debian_12" if old else "debian_13")
        disk, as_booted = host.disk(), words(host)
        ours: set[str] = set()
        for intent in wishes:
            if intent["pci_path_acs"] == "boot_argument" and old:
                continue  # the site's mistake: the kernel ignores the argument
            ours |= judged(host, intent)
            why = refusal(intent, host)
            if why:
                assert "cannot be taken from a running kernel" in why
                break
            assert {one for one, word in words(host).items() if word != as_booted[one]} <= ours
            for address, want in p2p.wanted_words(machine_of(host), p2p.parse(dict(intent))).items():
                word = words(host).get(str(address), want.set_bits)  # upper ends have none
                assert word & want.set_bits == want.set_bits
                assert not word & want.clear_bits
        settle({}, host)
        host.boot()
        assert words(host) == as_booted
        assert host.disk() == disk
        assert not host.owned()


@given(machines(), intents())
def test_isolation_is_never_taken_from_a_running_kernel(machine: Machine, intent: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        host = built(Path(folder) / "host", machine)
        before = words(host)
        for wish in (intent, {}):
            try:
                run(wish, host)
            except HostRefused:
                assert words(host) == before
                return
            if machine.iommu:
                assert not any(was & ~words(host)[address] & 0x1D for address, was in before.items())
            before = words(host)


@given(machines(), intents())
def test_looking_twice_says_the_same(machine: Machine, intent: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        host = built(Path(folder) / "host", machine)
        assert said(intent, host) == said(intent, host)


def said(intent: dict[str, Any], host: FakeSriov) -> list[str]:
    try:
        return paths(look(intent, host))
    except HostRefused as error:
        return [str(error)]
