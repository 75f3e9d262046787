"""What holds for every machine and every intent, not only for those of the cases."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Disruption
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import (
    ApplyFailed,
    ConsentRequired,
    HostRefused,
    IntentError,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.fake_host import KilledHere
from tests.fixtures.fake_nic import Vf
from tests.fixtures.fake_pci import Machine
from tests.fixtures.fake_sriov import FakeSriov
from tests.fixtures.sriov_hosts import built, look, ports, run, settle

MACS = ["02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03"]

# Machines --------------------------------------------------------------------------------

KINDS = {"igb": {"vendor": "8086", "device": "10c9"}, "mlx5_core": {"vendor": "15b3", "device": "101d"}}


@dataclass
class Story:
    """A machine, what is different about its ports and what others did to them, and what its inventory says in turn."""

    machine: Machine
    changes: dict[str, dict[str, Any]]
    used: dict[str, tuple[list[Vf], bool]]
    intents: list[dict[str, Any]]

    @contextmanager
    def host(self) -> Iterator[FakeSriov]:
        """The host as others left it."""
        with tempfile.TemporaryDirectory() as folder:
            host = built(Path(folder) / "root", self.machine, self.changes)
            for address, (vfs, autoprobe) in self.used.items():
                self._use(host, address, vfs, autoprobe)
            host.revive()
            yield host

    def _use(self, host: FakeSriov, address: str, vfs: list[Vf], autoprobe: bool) -> None:
        folder = f"/sys/bus/pci/devices/{address}"
        host.write_attribute(f"{folder}/sriov_drivers_autoprobe", str(int(autoprobe)))
        if vfs:
            host.write_attribute(f"{folder}/sriov_numvfs", str(len(vfs)))
            host.wait_until(lambda: not host.late, 60)
        host.nics[address].vfs = copy.deepcopy(vfs)


@st.composite
def stories(draw: st.DrawFn, steps: int = 3) -> Story:
    """One to four ports of two kinds."""
    machine = Machine(draw(st.sampled_from(["identity", "DMA", ""])))
    changes: dict[str, dict[str, Any]] = {}
    for number in range(draw(st.integers(1, 4))):
        port = machine.port(machine.root(0x10 + 0x10 * number, numa=number % 2), "01.0")
        name, mac = f"ens{number}", f"94:6d:ae:00:00:0{number}"
        (machine.igb if draw(st.booleans()) else machine.connectx)(port, name, mac)
        ways = {"up": st.booleans(), "mtu": st.sampled_from([1500, 4000]), "slow": st.integers(0, 2)}
        changes[name] = draw(st.fixed_dictionaries(ways))
    machine.virtio_net(machine.root(0x00), "enp0s3", "52:54:00:9a:fd:51", "03.0")
    machine.drivers |= draw(st.sampled_from([{"igbvf"}, set()]))
    pfs = {one.address: one.own_driver for one in machine.by_address() if one.vfs}
    used = {
        address: (draw(st.lists(found_vfs(driver), max_size=3)), draw(st.booleans())) for address, driver in pfs.items()
    }
    intents = [ports(*draw(entries(pfs))) for _step in range(draw(st.integers(1, steps)))]
    return Story(machine, changes, used, intents)


def found_vfs(driver: str) -> st.SearchStrategy[Vf]:
    """A VF that others made and set."""
    return st.builds(
        Vf,
        mac=st.just("00:00:00:00:00:00"),
        spoofchk=st.just(driver != "mlx5_core"),
        trust=st.booleans(),
        vlan=st.sampled_from([0, 5]),
    )


# Intents ---------------------------------------------------------------------------------

common = {
    "trust": st.booleans(),
    "spoofchk": st.booleans(),
    "vlan": st.sampled_from([0, 7, 4094]),
    "max_tx_rate": st.sampled_from([0, 100, 1000]),
    "link_state": st.just("auto"),
}
defaults = st.fixed_dictionaries({}, optional={**common, "mac": st.sampled_from(["stable", "kept"])})
own = st.fixed_dictionaries({}, optional={**common, "mac": st.sampled_from(["stable", "kept"])})


@st.composite
def entries(draw: st.DrawFn, pfs: dict[str, str]) -> list[dict[str, Any]]:
    """Entries for some of the ports, one port an entry, or one entry for all of a kind."""
    found = []
    by_kind = draw(st.sampled_from(sorted(set(pfs.values())))) if draw(st.integers(0, 3)) == 0 else ""
    for address, driver in pfs.items():
        if driver != by_kind and draw(st.integers(0, 3)):
            found.append({"select": {"address": address}, **draw(bodies())})
    if by_kind:
        found.append({"select": KINDS[by_kind], **draw(bodies())})
    return found


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    """All of an entry but what it selects."""
    vfs = draw(st.integers(0, 4))
    body: dict[str, Any] = {"vfs": vfs}
    body.update(
        draw(st.fixed_dictionaries({}, optional={"mtu": st.sampled_from([1500, 9000]), "autoprobe": st.booleans()}))
    )
    body["vf_defaults"] = draw(defaults)
    body["vf"] = draw(st.dictionaries(st.integers(0, vfs - 1), own, max_size=2)) if vfs else {}
    if draw(st.booleans()):
        body["eswitch"] = "legacy"
    return body


def selected(host: FakeSriov, intent: dict[str, Any]) -> set[str]:
    """The ports that an intent names."""
    vendors = {one["select"].get("vendor") for one in intent["sriov_ports"]}
    addresses = {one["select"].get("address") for one in intent["sriov_ports"]}
    named = {driver for driver, ids in KINDS.items() if ids["vendor"] in vendors}
    return {address for address, nic in host.nics.items() if address in addresses or nic.driver in named}


@settings(max_examples=60)
@given(stories())
def test_any_intents_settle_touch_nothing_else_and_can_be_undone(story: Story) -> None:
    with story.host() as host:
        found, disk = host.live(), host.disk()
        for intent in story.intents:
            predicted = look(intent, host).as_result()["plan"]
            assert settle(intent, host).as_result()["plan"] == predicted
            after, mine = host.live(), selected(host, intent)
            assert {address: one for address, one in after.items() if address not in mine} == {
                address: one for address, one in found.items() if address not in mine
            }
            for address in mine:
                check_port(host, intent, address)
        settle({}, host)
        assert host.live() == found
        assert host.disk() == disk


def check_port(host: FakeSriov, intent: dict[str, Any], address: str) -> None:
    """A port is what its entry says, read without the engine."""
    nic, vfs = host.nics[address], host.pf(address).vfs
    assert vfs is not None
    entry = next(
        one
        for one in intent["sriov_ports"]
        if one["select"].get("address") == address or f"{host.pf(address).vendor:04x}" == one["select"].get("vendor")
    )
    assert vfs.enabled == entry["vfs"]
    assert vfs.autoprobe == entry.get("autoprobe", False)
    assert nic.mtu == entry.get("mtu", nic.mtu)
    assert nic.up or not entry["vfs"]
    for number, vf in enumerate(nic.vfs):
        wanted = {"mac": "stable", **entry["vf_defaults"], **entry["vf"].get(number, {})}
        if wanted.pop("mac") == "stable":
            assert int(vf.mac[:2], 16) & 3 == 2
        assert {name: getattr(vf, name) for name in wanted} == wanted


@settings(max_examples=40)
@given(stories(1), st.randoms(use_true_random=False))
def test_the_order_of_input_changes_nothing(story: Story, random: Any) -> None:
    (intent,) = story.intents
    shuffled = []
    for one in intent["sriov_ports"]:
        names = list(one)
        random.shuffle(names)
        other = {name: copy.deepcopy(one[name]) for name in names}
        other["vf"] = dict(reversed(list(other["vf"].items())))
        shuffled.append(other)
    random.shuffle(shuffled)
    with story.host() as host:
        assert look(intent, host).as_result() == look(ports(*shuffled), host).as_result()


@settings(max_examples=60)
@given(stories(2), st.integers(1, 25), st.integers(0, 12), st.booleans())
def test_a_cut_anywhere_is_completed(story: Story, number: int, line: int, boots: bool) -> None:
    with story.host() as host:
        found = host.live()
        for intent in story.intents[:-1]:
            settle(intent, host)
        host.die_before(number)
        host.lines_until_death = line
        try:
            run(story.intents[-1], host)
        except KilledHere:
            if boots:
                host.boot()
                found = host.live()
        host.revive()
        host.lines_until_death = 0
        settle(story.intents[-1], host)
        settle({}, host)
        assert host.live() == found


@settings(max_examples=60)
@given(stories(1), st.data())
def test_what_is_used_is_not_touched_without_consent(story: Story, data: st.DataObject) -> None:
    (intent,) = story.intents
    with story.host() as host:
        address = data.draw(st.sampled_from(sorted(host.nics)))
        vfs = host.pf(address).vfs
        assert vfs is not None
        guest = bool(vfs.functions) and vfs.functions[0].group is not None
        if guest:
            host.hold(vfs.functions[0].address)
        else:
            host.nics[address].addresses = ["192.0.2.7"]
        before = host.live()
        try:
            run(intent, host, allow=Disruption.LINK if guest else Disruption.NOTHING)
        except ConsentRequired:
            assert host.live() == before
        after = host.live()[address]
        assert (after["count"], after["mtu"]) == (before[address]["count"], before[address]["mtu"])
        assert not guest or after["vfs"][0] == before[address]["vfs"][0]
        assert not host.taken_from_guests


# Input that parse lets through ------------------------------------------------------------

odd = {
    **common,
    "vlan": st.integers(0, 4094),
    "qos": st.integers(0, 7),
    "vlan_protocol": st.sampled_from(["802.1q", "802.1ad"]),
    "link_state": st.sampled_from(["auto", "enable", "disable"]),
    "min_tx_rate": st.sampled_from([0, 50, 5000]),
    "max_tx_rate": st.sampled_from([0, 100, 5000, 500000]),
}


@settings(max_examples=80)
@given(
    stories(1),
    st.fixed_dictionaries({}, optional=odd),
    st.fixed_dictionaries({}, optional={**odd, "mac": st.sampled_from(MACS)}),
    st.integers(0, 9),
    st.sampled_from(["legacy", "switchdev", "unmanaged"]),
)
def test_a_run_ends_well_or_says_why_and_nothing_is_left(
    story: Story, all_of_them: Any, first: Any, count: int, eswitch: str
) -> None:
    with story.host() as host:
        found, disk = host.live(), host.disk()
        body = {"vfs": count, "vf_defaults": all_of_them, "vf": {0: first} if count else {}, "eswitch": eswitch}
        kind = min(nic.driver for nic in host.nics.values())
        refusal = ""
        try:
            settle(ports({"select": KINDS[kind], **body}), host)
        except (IntentError, HostRefused):
            assert host.live() == found
        except ApplyFailed as error:
            refusal = str(error)
        assert not refusal or "above the speed" in refusal  # known only once the port is up
        host.revive()
        settle({}, host)
        assert host.live() == found
        assert host.disk() == disk
