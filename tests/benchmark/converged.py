"""The tree of a host that is as its inventory wants it, to be judged through gpudirect_root."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.vela.gpudirect.plugins.module_utils import host_boot, site
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Disruption
from ansible_collections.vela.gpudirect.plugins.module_utils.core.converge import converge
from ansible_collections.vela.gpudirect.plugins.plugin_utils import engine

from tests.fixtures import hosts
from tests.fixtures.fake_host import FakeHost

ROUNDS = 4
# The kernel of the published recipe, on the two NUMA nodes of 64 GiB that the fixture has.
INTENT: dict[str, Any] = {
    "kernel_iommu": "passthrough",
    "kernel_args": ["mitigations=auto"],
    "kernel_args_absent": ["pcie_acs_override"],
    "kernel_hugepages": [{"size": "1G", "per_node": 24}, {"size": "2M", "nodes": {"0": 64, "1": 64}}],
    "kernel_hugepages_default_size": "1G",
}


def converged_tree(root: Path) -> dict[str, Any]:
    """Write the tree and return the variables of a host that is judged by it."""
    settled(hosts.build(root, "debian_13"), INTENT)
    return judged(root, INTENT)


def judged(root: Path, intent: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of a host that is judged by a tree."""
    return {**intent, "gpudirect_root": str(root), "gpudirect_allow": "host"}


def settled(host: FakeHost, intent: Mapping[str, Any]) -> None:
    """Rounds as site.yml makes them, with the control node's own engine, until nothing is left."""
    known = {**intent, host_boot.ENGINE: engine.own().digest}
    host.path("/run/engine").write_bytes(engine.own().content)
    for _round in range(ROUNDS):
        reports = []
        for resource in site.RESOURCES:
            options = site.options_of(resource, known)
            if resource is host_boot:
                options[host_boot.ARCHIVE] = "/run/engine"
            reports.append(converge(resource, options, host, allow=Disruption.HOST, check=False))
        if any(report.left.awaiting_reboot for report in reports):
            host.boot()
        elif not any(report.plan.changes for report in reports):
            return
    raise RuntimeError(f"the fake host is not settled after {ROUNDS} rounds")
