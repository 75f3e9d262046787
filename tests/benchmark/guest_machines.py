"""Hosts for guests, each as its inventory wants it: eight GPUs and eight NICs with a VF, and as many guests as are asked for."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from ansible_collections.vela.gpudirect.plugins.module_utils import host_boot, libvirt_guest, site
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Disruption
from ansible_collections.vela.gpudirect.plugins.module_utils.core.converge import Report, converge
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Done
from ansible_collections.vela.gpudirect.plugins.module_utils.core.owned import PATH as RECORD
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.libvirt import Thing
from ansible_collections.vela.gpudirect.plugins.plugin_utils import engine

from tests.benchmark.converged import INTENT, settled
from tests.benchmark.machines import Answering
from tests.fixtures import fake_machines, kvm_hosts, p2p_hosts
from tests.fixtures.driver_hosts import MANAGEMENT
from tests.fixtures.fake_drivers import with_drivers
from tests.fixtures.fake_libvirt import LOG, NVRAM, FakeGuestHost, FakeLibvirt
from tests.fixtures.fake_pci import Machine
from tests.fixtures.fake_sriov import FakeSriov
from tests.fixtures.image_hosts import FOLDER, UBUNTU, ImageHost, digest
from tests.fixtures.kvm_hosts import KvmHost
from tests.fixtures.sriov_hosts import CX6, ports_of
from tests.fixtures.ssh_keys import public_key

MOST = 8
CORES = 8  # of a node, each with two threads
URL = "https://images.example/noble.img"
KINDS = ("domains", "networks", "pools")


def machine() -> Machine:
    """The same for any number of guests."""
    made = fake_machines.large(MOST, MOST, vfs=0)
    main = made.root(0x00)
    made.virtio_net(main, "enp0s3", "52:54:00:9a:fd:51", "03.0")
    made.virtio_blk(main, "vda", "04.0", 1)
    return made


def guest_variables(count: int) -> dict[str, Any]:
    """Networks, a pool, an image, and guests with a GPU and the VF beside it each. Names as JSON has them."""
    shape = {"gpus": 1, "vcpus": 2, "memory_gib": 4, "image": "noble", "network": "gd-mgmt"}
    shape |= {"user": "ops", "ssh_keys": [public_key("ops")]}
    return {
        "guest_networks": [{"name": "gd-mgmt", "mode": "nat", "address": "192.168.130.1/24"}],
        "guest_pools": [{"name": "gd-images", "path": FOLDER}],
        "guest_images": [{"name": "noble", "url": URL, "sha256": digest(UBUNTU)}],
        "guest_shapes": [
            {**shape, "name": f"g{number}", "rails": [{"addresses": [f"10.100.{number}.1/24"]}]}
            for number in range(count)
        ],
    }


def intent(count: int) -> dict[str, Any]:
    """All that a host is asked for; only the list of guests differs."""
    return {
        **INTENT,
        "gpudirect_allow": "host",
        "sriov_ports": [{"select": CX6, "vfs": 1, "autoprobe": False, "vf_defaults": {"mac": "stable"}}],
        "pci_driver_devices": [
            {"name": "gpu", "select": {"vendor": "10de", "class": "0302"}, "expect": MOST},
            {"name": "vf", "select": {"vfs_of": CX6}, "expect": MOST},
        ],
        "pci_driver_blacklist": ["nouveau", "nvidia"],
        "kvm_host": "managed",
        **guest_variables(count),
    }


def checked(count: int) -> dict[str, Any]:
    """The intent as the control node sends it."""
    return {**site.intent_of(intent(count)), host_boot.ENGINE: engine.own().digest}


@dataclass
class Told:
    """A kind of things whose list is at hand."""

    things: Mapping[str, Thing]
    name: str
    asked: Counter[str]

    def all(self) -> Mapping[str, Thing]:
        """As the door has it, and counted."""
        self.asked[self.name] += 1
        return self.things


@dataclass
class Aside:
    """A kind of the fake libvirt, with the processor seconds that are the fake's own, and its lists counted."""

    kind: Any
    name: str
    spent: list[float]
    asked: Counter[str]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        act = getattr(self.kind, name)
        self.asked[self.name] += name == "all"

        def timed(*given: Any, **named: Any) -> Any:
            began = time.process_time()
            try:
                return act(*given, **named)
            finally:
                self.spent.append(time.process_time() - began)

        return timed


@dataclass
class Connection:
    """What the engine gets of libvirt instead of the fake itself."""

    domains: Any
    networks: Any
    pools: Any


@dataclass
class Hypervisor(ImageHost, KvmHost, Answering):
    """A host with devices, systemd, libvirt and images. ``asked`` counts lists of libvirt and, as "open", connections."""

    asked: Counter[str] = field(default_factory=Counter)
    spent: list[float] = field(default_factory=list)
    told: Connection | None = None  # while nothing is changed

    def reach(self, opened: Any) -> Any:
        """The fake while it is set up, or lists that are at hand: what is measured is the engine."""
        there: FakeLibvirt = super().reach(opened)
        self.asked["open"] += 1
        if self.told is None:
            return Connection(*(Aside(getattr(there, name), name, self.spent, self.asked) for name in KINDS))
        return self.told

    def _tell(self, argv: list[str]) -> Done:
        return Answering._tell(self, argv) if argv[0] == "ip" else super()._tell(argv)

    def held(self, part: str) -> Any:
        """Files that processes have open, as for drivers."""
        return FakeSriov.held(self, part)

    def boot(self) -> Hypervisor:
        """The kernel and systemd, then libvirt."""
        KvmHost.boot(self)
        FakeGuestHost.boot(self)
        return self

    def answer(self) -> None:
        """From now on nothing is changed: answers of programs and libvirt are kept."""
        self.answers = {}
        self.told = Connection(*(Told(getattr(self.libvirt, name).all(), name, self.asked) for name in KINDS))

    def change(self) -> None:
        """From now on things may change again."""
        self.answers, self.told = None, None


def bare_host(root: Path) -> Hypervisor:
    """A host that has what guests need and nothing of ours."""
    plain = kvm_hosts.build(root, "debian")
    plain.put("/proc/cpuinfo", p2p_hosts.INTEL + "address sizes\t: 52 bits physical, 57 bits virtual\n")
    for node in range(2):
        cpus = range(2 * CORES * node, 2 * CORES * (node + 1))
        plain.put(f"/sys/devices/system/node/node{node}/cpulist", f"{cpus[0]}-{cpus[-1]}\n")
        for cpu in cpus:
            plain.put(f"/sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list", f"{cpu & ~1}-{cpu | 1}\n")
    plain.path(FOLDER).mkdir(parents=True)
    for tool in ("qemu-img", "xorrisofs"):
        plain.put(f"/usr/bin/{tool}", "", 0o755)
    made = machine()
    nics = {nic.address: nic for nic in ports_of(made)}
    more = {"nics": nics, "routes": MANAGEMENT, "network": {URL: UBUNTU}}
    host = with_drivers(plain, made, kind=Hypervisor, **more)
    assert isinstance(host, Hypervisor)
    host.put("/proc/self/mountinfo", "22 1 0:21 / /proc rw,nosuid shared:5 - proc proc rw\n")
    host.mount("vda1")
    return host


def host_with(root: Path, count: int) -> Hypervisor:
    """A reacting fake host with guests, set up by the engine itself."""
    host = bare_host(root)
    with mock.patch.object(os, "fsync"):  # no disk is waited for
        settled(host, intent(count))
    host.answer()
    return host


# Defining ----------------------------------------------------------------------------------


def forget_guests(host: Hypervisor) -> None:
    """The host as it was before its guests were defined: disks, seeds, networks and all else stay."""
    host.change()
    host.libvirt.domains.kept.clear()
    for folder in (LOG, NVRAM):
        for file in host.path(folder).glob("*"):
            file.unlink()
    kept = json.loads(host.text(RECORD))
    kept["records"] = {name: one for name, one in kept["records"].items() if not name.startswith("libvirt_guest[")}
    host.put(RECORD, json.dumps(kept))


def define(host: Hypervisor, count: int) -> Report:
    """What the module of libvirt_guest does: plan, apply, and the look that verifies."""
    options = site.options_of(libvirt_guest, checked(count))
    return converge(libvirt_guest, options, host, allow=Disruption.NOTHING, check=False)


def define_s(host: Hypervisor, count: int) -> float:
    """Processor seconds of that, without those of the fake libvirt."""
    forget_guests(host)
    options = site.options_of(libvirt_guest, checked(count))
    host.spent.clear()
    began = time.process_time()
    report = converge(libvirt_guest, options, host, allow=Disruption.NOTHING, check=False)
    took = time.process_time() - began - sum(host.spent)
    if not report.verified or len(host.libvirt.domains.kept) != count:
        raise RuntimeError(f"{count} guests were not defined: {report.as_result()}")
    return took
