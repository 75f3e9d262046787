"""Hosts that are wrong on purpose are told apart in plain sentences; the AMD host gets what AMD needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.conftest import Node, Tell
from tests.integration.rack import Rack

BAD: dict[str, tuple[str, ...]] = {
    "bad-no-python": ("/usr/bin/python3", "does not run on the host", "Install python3"),
    "bad-no-root": ("not root",),
    "bad-no-iommu": ("firmware describes no IOMMU", "BIOS"),
    "bad-full-boot": ("/boot", "no room", "Remove old kernels"),
}


@pytest.fixture
def odd(request: pytest.FixtureRequest, rack: Rack, tell: Tell) -> Iterator[Node]:
    """A host by name, from fresh disks; taken down afterwards to leave the cores to the next."""
    name = str(request.param)
    rack.up(name, fresh=True)
    yield Node(name, rack, rack.odd_inventory, tell)
    rack.down(name)


@pytest.mark.parametrize("odd", BAD, indirect=True)
def test_preflight_says_what_is_wrong(odd: Node) -> None:
    run = odd.site()
    assert not run.ok
    message = run.host(odd.name).message
    for word in BAD[odd.name]:
        assert word in message, message
    for trace in ("Traceback", "MODULE FAILURE", "module_stderr"):
        assert trace not in message, message
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
