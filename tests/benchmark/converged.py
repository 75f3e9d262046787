"""The tree of a host that is as its inventory wants it, to be judged through gpudirect_root."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from ansible_collections.vela.gpudirect.plugins.module_utils import host_boot, site
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Disruption
from ansible_collections.vela.gpudirect.plugins.module_utils.core.converge import Report, converge
from ansible_collections.vela.gpudirect.plugins.module_utils.pci import sysfs
from ansible_collections.vela.gpudirect.plugins.plugin_utils import engine

from tests.fixtures import hosts
from tests.fixtures.fake_host import FakeHost

ROUNDS = 4
ENGINE = "/run/engine"  # where it lies for a run
# The kernel of the published recipe, on the two NUMA nodes of 64 GiB that the fixture has.
INTENT: dict[str, Any] = {
    "kernel_iommu": "passthrough",
    "kernel_args": ["mitigations=auto"],
    "kernel_args_absent": ["pcie_acs_override"],
    "kernel_hugepages": [{"size": "1G", "per_node": 24}, {"size": "2M", "nodes": {"0": 64, "1": 64}}],
    "kernel_hugepages_default_size": "1G",
}


def converged_tree(root: Path, guests: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Write the tree and return the variables of a host that is judged by it.

    ``guests`` are variables of what libvirt tells alone: nothing in a tree shows it but that a boot is to start guests.
    """
    host = hosts.build(root, "debian_13")
    host.path(sysfs.DEVICES).mkdir(parents=True)  # by which a captured machine is told from any other folder
    settled(host, INTENT)
    intent = {**INTENT, **(guests or {})}
    brought(host_boot, host, intent)
    return judged(root, intent)


def judged(root: Path, intent: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of a host that is judged by a tree."""
    return {**intent, "gpudirect_root": str(root), "gpudirect_allow": "host"}


def settled(host: FakeHost, intent: Mapping[str, Any]) -> None:
    """Rounds as site.yml makes them, with the control node's own engine, until nothing is left."""
    for _round in range(ROUNDS):
        reports = [brought(resource, host, intent) for resource in site.RESOURCES]
        if any(report.left.awaiting_reboot for report in reports):
            host.boot()
        elif not any(report.plan.changes for report in reports):
            return
    raise RuntimeError(f"the fake host is not settled after {ROUNDS} rounds")


def brought(resource: ModuleType, host: FakeHost, intent: Mapping[str, Any]) -> Report:
    """One module, with what its action plugin hands over."""
    options = site.options_of(resource, {**intent, host_boot.ENGINE: engine.own().digest})
    if resource is host_boot:
        host.path(ENGINE).write_bytes(engine.own().content)
        options[host_boot.ARCHIVE] = ENGINE
    return converge(resource, options, host, allow=Disruption.HOST, check=False)
