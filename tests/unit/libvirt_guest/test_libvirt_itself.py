"""The door before libvirt itself: its test driver, and its QEMU driver where one is told. No guest is started by either.

GPUDIRECT_LIBVIRT names a URI whose libvirtd has a QEMU driver, GPUDIRECT_EMULATOR the QEMU that it is to ask.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import libvirt_guest, libvirt_network, libvirt_pool
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Disruption
from ansible_collections.vela.gpudirect.plugins.module_utils.core.converge import bring
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import (
    CommandFailed,
    IntentError,
    UnreadableState,
)
from ansible_collections.vela.gpudirect.plugins.module_utils.guest import libvirt as door
from ansible_collections.vela.gpudirect.plugins.module_utils.guest import networks, things

from tests.fixtures.fake_libvirt import FakeGuestHost
from tests.fixtures.libvirt_hosts import built, guests, look, run, settle, shape, with_files

URI, EMULATOR = os.environ.get("GPUDIRECT_LIBVIRT", ""), os.environ.get("GPUDIRECT_EMULATOR", "")
DISTRIBUTION = Path("/usr/lib/python3/dist-packages")
LINKS = json.dumps(
    [
        {"ifname": "br0", "mtu": 1500, "linkinfo": {"info_kind": "bridge"}},
        {"ifname": "ovs0", "mtu": 1500, "linkinfo": {"info_kind": "openvswitch"}},
        {"ifname": "ens1", "mtu": 1500},
    ]
)
DOMAIN = """<domain type='test'><name>one</name><memory>1024</memory><os><type>hvm</type></os>
<metadata><x:y xmlns:x='urn:x' z='1'/></metadata></domain>"""


@pytest.fixture(scope="module")
def binding() -> Iterator[Any]:
    """The binding of the distribution, which an environment of its own does not see."""
    if importlib.util.find_spec("libvirt") is None and (DISTRIBUTION / "libvirt.py").exists():
        sys.path.append(str(DISTRIBUTION))
    try:
        yield pytest.importorskip(
            "libvirt", reason="no Python binding of libvirt (Debian: python3-libvirt)", exc_type=ImportError
        )
    finally:
        if str(DISTRIBUTION) in sys.path:
            sys.path.remove(str(DISTRIBUTION))


@pytest.fixture(autouse=True)
def no_inactive_xml(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test driver has one XML of a network and of a pool, and refuses the flag that asks for the other."""
    for kind in (door._Networks, door._Pools):
        monkeypatch.setattr(kind, "_inactive", lambda self: 0)


@pytest.fixture
def reached(binding: Any) -> door.Libvirt:
    return door.opened("test:///default")


class RealHost(FakeGuestHost):
    """A fake host with a real libvirt."""

    uri = "test:///default"
    kept: Any = None

    def reach(self, opened: Any) -> Any:
        del opened
        if not hasattr(self, "connection_"):
            self.connection_ = door.opened(self.uri)
        return self.connection_


def test_domains(reached: door.Libvirt) -> None:
    reached.domains.define(DOMAIN)
    one = reached.domains.all()["one"]
    assert (one.active, one.persistent, one.autostart, one.live) == (False, True, False, "")
    assert "urn:x" in one.inactive
    assert not reached.domains.active("one")
    assert not reached.domains.active("nobody")
    reached.domains.autostart("one", True)
    reached.domains.start("one")
    assert reached.domains.active("one")
    one = reached.domains.all()["one"]
    assert one.active
    assert one.autostart
    assert "<name>one</name>" in one.live
    reached.domains.shutdown("one")
    reached.domains.start("one")
    reached.domains.destroy("one")
    reached.domains.undefine("one")
    assert "one" not in reached.domains.all()


def test_refusals_are_told_in_the_words_of_libvirt(reached: door.Libvirt, binding: Any) -> None:
    with pytest.raises(CommandFailed, match="libvirt domain: start nobody"):
        reached.domains.start("nobody")
    with pytest.raises(CommandFailed, match="libvirt network: define"):
        reached.networks.define("<network/>")
    with pytest.raises(UnreadableState):
        door.opened("nothing:///default")
    with pytest.raises(door.NotThere):
        door.opened("qemu+unix:///system?socket=/nowhere/libvirt-sock")


def test_networks_and_pools_go_through_their_life(binding: Any, tmp_path: Path) -> None:
    host = RealHost(str(built(tmp_path / "root").root))
    inner = {"guest_networks": [{"name": "inner", "address": "10.9.0.1/24", "dhcp": ["10.9.0.9", "10.9.0.99"]}]}
    pools = {"guest_pools": [{"name": "guests", "path": "/srv/guests"}]}
    for resource, intent in ((libvirt_network, inner), (libvirt_pool, pools)):
        settle(intent, host, resource=resource)
        settle({}, host, resource=resource)
    assert not host.owned()


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "a", "address": "10.9.0.1/24", "dhcp": ["10.9.0.9", "10.9.0.99"], "mtu": 9000},
        {"name": "b", "mode": "bridge", "bridge": "br0"},
        {"name": "c", "mode": "ovs", "bridge": "ovs0", "vlan": 7},
        {"name": "d", "mode": "hostdev", "pf": "ens1"},
        {"name": "e", "address": "fd00:9::1/64", "dhcp": ["FD00:9::9", "fd00:9:0::99"]},
    ],
    ids=lambda entry: str(entry["name"]),
)
def test_libvirt_keeps_every_word_of_a_network(reached: door.Libvirt, entry: dict[str, Any]) -> None:
    (one,) = libvirt_network.parse({"guest_networks": [entry]}).networks
    reached.networks.define(networks.render(one))
    record = {f"libvirt_network[{one.name}]": {"wrote": [networks.render(one)]}}
    every = things.Things("libvirt_network", "networks", reached.networks.all(), record, {}, ())
    plan = every.plan([things.Wanted(one.path, one.name, networks.render(one), {})], ())
    assert [change.path.rpartition(".")[2] for change in plan.changes] == ["state", "autostart"]


@pytest.mark.parametrize(
    ("address", "dhcp", "taken"),
    [
        ("10.9.0.1/24", ["10.9.0.1", "10.9.0.254"], True),
        ("10.9.0.1/24", ["10.9.0.0", "10.9.0.9"], False),
        ("10.9.0.1/24", ["10.9.0.9", "10.9.0.255"], False),
        ("10.9.0.1/24", ["10.9.0.9", "10.9.0.5"], False),
        ("10.9.0.1/24", ["10.8.0.9", "10.9.0.5"], False),
        ("10.0.0.1/8", ["10.1.0.0", "10.1.255.255"], True),
        ("10.0.0.1/8", ["10.1.255.255", "10.2.0.0"], False),
        ("fd00:9::1/64", ["fd00:9::1:0", "fd00:9::1:ffff"], True),
        ("fd00:9::1/64", ["fd00:9::ffff", "fd00:9::1:0"], False),
        ("fd00:9::1/64", ["fd00:9::9", "fd00:9::5"], False),
    ],
)
def test_ranges_are_refused_as_libvirt_refuses_them(
    reached: door.Libvirt, address: str, dhcp: list[str], taken: bool
) -> None:
    name = dhcp[0].replace(":", "-")  # the test driver lives as long as its process
    entry = {"name": name, "address": address, "dhcp": dhcp}
    xml = networks.render(networks.Network("guest_networks[0]", name, "nat", address=address, dhcp=tuple(dhcp)))
    if taken:
        libvirt_network.parse({"guest_networks": [entry]})
        reached.networks.define(xml)
        return
    with pytest.raises(IntentError):
        libvirt_network.parse({"guest_networks": [entry]})
    with pytest.raises(CommandFailed, match="range"):
        reached.networks.define(xml)


@pytest.fixture
def real(binding: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RealHost:
    """A host with libvirt's QEMU and network drivers, whose guests are emulated."""
    if not URI or not EMULATOR:
        pytest.skip("no libvirtd with QEMU is told (GPUDIRECT_LIBVIRT, GPUDIRECT_EMULATOR)")
    host = RealHost(str(with_files(built(tmp_path / "root")).root), links=LINKS)
    host.uri = URI
    made = libvirt_guest._Guests._options
    monkeypatch.setattr(libvirt_guest._Guests, "_options", lambda self, wish: replace(made(self, wish), virt="qemu"))
    monkeypatch.setattr(door._Networks, "_inactive", lambda self: 1)
    return host


def test_a_guest_is_defined_changed_and_removed_by_qemus_driver(real: RealHost) -> None:
    domains = real.reach(None).domains
    before = domains.all()
    one = guests(shape(name="gpudirect-test", state="defined"), guest_emulator=EMULATOR)
    more = guests(shape(name="gpudirect-test", state="defined", memory_gib=9, vfs_per_gpu=2), guest_emulator=EMULATOR)
    try:
        settle(one, real)
        thing = domains.all()["gpudirect-test"]
        assert "ua-gpu0" in thing.inactive
        assert "pc-q35-" in thing.inactive
        domains.define(thing.inactive.replace("</devices>", "<watchdog model='i6300esb' action='reset'/></devices>"))
        assert look(one, real).plan.empty
        settle(more, real)
        settle(one, real)
        thing = domains.all()["gpudirect-test"]
        assert "i6300esb" in thing.inactive
        assert "ua-vf1" not in thing.inactive
    finally:
        run({}, real, "guest")
    assert domains.all().keys() == before.keys()
    assert not real.owned()


def test_networks_are_defined_and_changed_by_the_network_driver(real: RealHost) -> None:
    """Their definitions alone: to start one takes rights that this libvirtd may not have."""
    kinds = real.reach(None).networks

    def define(*entries: dict[str, Any]) -> list[str]:
        desired = libvirt_network.parse({"guest_networks": list(entries)})
        names = ("definition",) if entries else ("definition", "[gpudirect-test]")
        report = bring(
            libvirt_network, desired, real, allow=Disruption.NOTHING, check=False,
            only=lambda change: change.path.endswith(names),
        )  # fmt: skip
        return [change.path for change in report.plan.changes]

    inner: dict[str, Any] = {"name": "gpudirect-test", "address": "10.9.0.1/24", "dhcp": ["10.9.0.9", "10.9.0.99"]}
    changed = ["libvirt_network[gpudirect-test].definition"]
    try:
        for entry in (
            inner,
            {**inner, "mtu": 9000},
            {**inner, "dhcp": []},
            {"name": "gpudirect-test", "mode": "bridge", "bridge": "br0"},
            {"name": "gpudirect-test", "mode": "ovs", "bridge": "ovs0", "vlan": 7},
            {"name": "gpudirect-test", "mode": "ovs", "bridge": "ovs0"},
            {"name": "gpudirect-test", "mode": "hostdev", "pf": "ens1"},
            inner,
        ):
            assert define(entry) == changed, entry
            assert define(entry) == [], kinds.all()["gpudirect-test"].inactive
        said = kinds.all()["gpudirect-test"].inactive
        assert all(word not in said for word in ("vlan", "virtualport", "hostdev", "mtu"))
    finally:
        define()
    assert "gpudirect-test" not in kinds.all()
