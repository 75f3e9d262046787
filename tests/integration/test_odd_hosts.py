"""Hosts that are wrong on purpose are told apart in plain sentences; the AMD host gets what AMD needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.booting import ended
from tests.integration.conftest import Node, Tell
from tests.integration.rack import Rack
from tests.integration.verdicts import checks_of

BAD: dict[str, tuple[str, ...]] = {
    "bad-no-python": ("/usr/bin/python3", "does not run on the host", "Install python3"),
    "bad-no-root": ("not root",),
    "bad-no-iommu": ("firmware describes no IOMMU", "BIOS"),
    "bad-full-boot": ("/boot", "no room", "Remove old kernels"),
    "bad-no-acs": ("VFs of 0000:24:00.0", "will share IOMMU group", "the bridge 0000:22:01.0 has no ACS"),
    "bad-one-group": ("0000:26:00.1 shares IOMMU group", "0000:26:00.0 (1af4:1041", "driver virtio-pci"),
    "bad-few-vfs": ("sriov_ports[0].vfs", "8 there, 7 by the driver igb", "found 7, wanted 8"),
    "bad-boot-disk": ("0000:00:04.0", "mounted at /"),
}


@pytest.fixture
def odd(request: pytest.FixtureRequest, rack: Rack, tell: Tell) -> Iterator[Node]:
    """A host by name, from fresh disks; taken down afterwards to leave the cores to the next."""
    name = str(request.param)
    rack.up(name, fresh=True)
    yield Node(name, rack, rack.odd_inventory, tell)
    rack.down(name)


@pytest.mark.parametrize("odd", BAD, indirect=True)
def test_the_run_says_what_is_wrong_before_the_first_write(odd: Node) -> None:
    run = odd.site()
    assert not run.ok
    message = run.host(odd.name).message
    for word in BAD[odd.name]:
        assert word in message, message
    for trace in ("Traceback", "MODULE FAILURE", "module_stderr"):
        assert trace not in message, message
    assert run.done(odd.name) == []
    assert "var/lib/gpudirect" not in odd.sh("ls -d /var/lib/gpudirect 2>/dev/null || true")


@pytest.mark.slow
@pytest.mark.parametrize("odd", ["node-amd"], indirect=True)
def test_an_amd_host_gets_no_intel_argument(odd: Node) -> None:
    run = odd.site()
    assert run.ok, run.text[-4000:]
    line = odd.sh("cat /proc/cmdline").split()
    assert "iommu=pt" in line
    assert not [one for one in line if one.startswith(("intel_iommu", "amd_iommu"))]
    assert odd.site(name="playbooks/verify.yml").ok


@pytest.mark.slow
@pytest.mark.parametrize("odd", ["bad-slow-link"], indirect=True)
def test_a_degraded_link_is_found_by_verification(odd: Node) -> None:
    """Nothing is written for a link, so no run can stop at it; the check of the links names it."""
    assert not odd.site(name="playbooks/verify.yml").ok
    verdict = checks_of(odd)["h09_links_are_as_wide_as_their_devices"]
    assert "found 0000:24:00.0 (8086:10c9): x1 of x16\n" in verdict, verdict
    # Both ends of the link say 16 and run one: the port by an option of QEMU, the device by a file over its own.
    for end in ("0000:22:01.0", "0000:24:00.0"):
        folder = f"/sys/bus/pci/devices/{end}"
        assert odd.sh(f"cat {folder}/max_link_width {folder}/current_link_width").split() == ["16", "1"]


@pytest.mark.slow
@pytest.mark.parametrize("odd", ["bad-swapped"], indirect=True)
def test_a_device_that_was_swapped_between_boots_is_refused_until_it_is_named(odd: Node) -> None:
    """The NIC of node 1 is another of the same model, the disk of node 0 another model: nothing is taken for what it was."""
    run = odd.site()
    assert run.ok, run.text[-4000:]
    odd.boot({"nic1": {"serial": "spare"}, "gpu0": {"kind": "testdev"}})
    assert ended(odd)["Result"] == "exit-code"
    refused = odd.site()
    assert not refused.ok
    message = refused.host(odd.name).message
    for word in (
        "0000:44:00.0",
        "is not the one that was set up there",
        "serial",
        "0000:23:00.0",
        "gpudirect_replaced",
    ):
        assert word in message, message
    assert refused.done(odd.name) == []
    numbers = odd.sh(
        "cat /sys/bus/pci/devices/0000:44:00.0/sriov_numvfs /sys/bus/pci/devices/0000:24:00.0/sriov_numvfs"
    )
    assert numbers.split() == ["0", "2"]
    # The NIC was replaced on purpose; the disk goes back into its slot.
    odd.boot({"nic1": {"serial": "spare"}})
    run = odd.site(gpudirect_replaced=["0000:44:00.0"])
    assert run.ok, run.text[-4000:]
    assert odd.site().host(odd.name).changed == 0
    odd.rack.describe(odd.name, {})
