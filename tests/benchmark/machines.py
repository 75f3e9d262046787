"""Hosts with devices, each as its inventory wants it: two devices that play GPUs and two NICs that share the VFs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from ansible_collections.vela.gpudirect.plugins.module_utils import host_boot, site
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Done
from ansible_collections.vela.gpudirect.plugins.plugin_utils import engine

from tests.benchmark.converged import INTENT, settled
from tests.fixtures import hosts
from tests.fixtures.driver_hosts import MANAGEMENT
from tests.fixtures.fake_drivers import FakeDrivers, with_drivers
from tests.fixtures.fake_pci import Machine
from tests.fixtures.sriov_hosts import CX6, ports_of

SIZES = (8, 64, 128)
PORTS = 2


def machine() -> Machine:
    """The same for any number of VFs: a NIC takes 64."""
    made = Machine()
    main = made.root(0x00)
    made.virtio_net(main, "enp0s3", "52:54:00:9a:fd:51", "03.0")
    made.virtio_blk(main, "vda", "04.0", 1)
    for number in range(PORTS):
        below = made.switch(made.port(made.root(0x20 + 0x20 * number, numa=number), "00.0"), 2)
        made.testdev(below[0])
        nic = made.connectx(below[1], f"ens{number}f0np0", f"94:6d:ae:00:{number:02x}:00")
        assert nic.vfs is not None
        nic.vfs.total = nic.vfs.with_driver = max(SIZES) // PORTS
    return made


def intent(vfs: int) -> dict[str, Any]:
    """Every VF has attributes of its own, and all go to vfio-pci. Names as JSON has them."""
    each = vfs // PORTS
    defaults = {"trust": True, "spoofchk": False, "link_state": "enable", "max_tx_rate": 25000, "min_tx_rate": 100}
    ports = [
        {
            "select": {**CX6, "numa_node": port},
            "vfs": each,
            "mtu": 9000,
            "eswitch": "legacy",
            "autoprobe": False,
            "vf_defaults": {**defaults, "mac": "stable"},
            "vf": {str(number): {"vlan": 100 + port * each + number, "qos": number % 8} for number in range(each)},
        }
        for port in range(PORTS)
    ]
    devices = [
        {"name": "gpu", "select": {"vendor": "1b36", "device": "0005"}, "expect": PORTS},
        {"name": "vf", "select": {"vfs_of": CX6}, "expect": vfs},
    ]
    return {
        **INTENT,
        "gpudirect_allow": "host",
        "sriov_ports": ports,
        "pci_driver_devices": devices,
        "pci_driver_blacklist": ["nouveau", "nvidia"],
    }


@dataclass
class Answering(FakeDrivers):
    """A settled host whose programs have their answers ready: what is measured is the engine and not the fake."""

    answers: dict[tuple[str, ...], Done] | None = None  # none are kept while the host is still changed

    def _tell(self, argv: list[str]) -> Done:
        if self.answers is None:
            return super()._tell(argv)
        if tuple(argv) not in self.answers:
            self.answers[tuple(argv)] = super()._tell(argv)
        return self.answers[tuple(argv)]


def converged_host(root: Path, vfs: int) -> Answering:
    """A reacting fake host, set up by the engine itself."""
    made = machine()
    plain = hosts.build(root, "debian_13")
    nics = {nic.address: nic for nic in ports_of(made)}
    host = with_drivers(plain, made, kind=Answering, nics=nics, routes=MANAGEMENT)
    host.put("/proc/self/mountinfo", "22 1 0:21 / /proc rw,nosuid shared:5 - proc proc rw\n")
    host.mount("vda1")
    with mock.patch.object(os, "fsync"):  # no disk is waited for
        settled(host, intent(vfs))
    assert isinstance(host, Answering)
    host.answers = {}
    return host


def look(host: Answering, wanted: dict[str, Any]) -> dict[str, Any]:
    """What the module of host_plan does on a host: read it once and plan every resource."""
    with host.only_read():
        return site.look(wanted, host, check=False, previous={})


def checked(vfs: int) -> dict[str, Any]:
    """The intent as the control node sends it."""
    wanted = site.intent_of(intent(vfs))
    return {**wanted, host_boot.ENGINE: engine.own().digest}
