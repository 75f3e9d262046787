"""One rack for all tests of this folder, progress on the terminal, and hosts in a known state for who asks.

Tests are written so that each can run alone, and ordered so that all of them together need few boots.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.integration.booting import ended
from tests.integration.rack import Rack
from tests.integration.runs import Run, in_background, play

# For who works on these tests: leave the rack up, and go on with the hosts as the last run left them.
KEEP = os.environ.get("GPUDIRECT_KEEP_RACK") == "1"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: not in the default set; the stage slow-rack of ./test --full runs it")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("GPUDIRECT_SLOW") != "1" and not config.option.markexpr and not config.option.keyword:
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="slow: set GPUDIRECT_SLOW=1, or name it with -k or -m"))


Tell = Callable[[str], None]


@pytest.fixture(scope="session")
def tell(request: pytest.FixtureRequest) -> Tell:
    """Progress lines, with the seconds since the start, whatever pytest captures."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    began = time.monotonic()

    def line(text: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"[{time.monotonic() - began:5.0f} s] {text}", flush=True)

    return line


@pytest.fixture(scope="session")
def rack(tell: Tell) -> Iterator[Rack]:
    """The tests' own rack. It is taken down at the end, also when the run is stopped by a signal."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {one: signal.signal(one, stop) for one in (signal.SIGTERM, signal.SIGHUP)}
    os.environ["RACK_PYTHON"] = sys.executable  # for the console command of the inventory
    made = Rack("integration", tell)
    if not KEEP:
        made.down()  # what a killed run left behind
    try:
        yield made
    finally:
        if not KEEP:
            made.down()
        for one, handler in before.items():
            signal.signal(one, handler)


class Node:
    """A host of the rack, and what the tests know about it."""

    def __init__(self, name: str, rack: Rack, inventory: Path, tell: Tell) -> None:
        self.name, self.rack, self.inventory, self.tell = name, rack, inventory, tell
        self._prediction: Run | None = None
        self._notes = rack.home / f"{name}.json"
        if not KEEP:
            self._notes.unlink(missing_ok=True)
        notes = json.loads(self._notes.read_text()) if self._notes.exists() else {"state": "unknown", "found": []}
        self._state: str = notes["state"]
        self.found = frozenset(notes["found"])

    @property
    def state(self) -> str:
        """What a green test has left: stock, written, converged; unknown while one is at work."""
        return self._state

    @state.setter
    def state(self, state: str) -> None:
        self._state = state
        self._notes.write_text(json.dumps({"state": state, "found": sorted(self.found)}))

    def site(self, *arguments: str, name: str = "site.yml", **variables: Any) -> Run:
        """Run site.yml, or another playbook, against this host alone."""
        patient = {"reboot_timeout_s": 900, **variables}  # a busy machine may take longer than the inventory allows
        return play(name, self.inventory, [self.name], *arguments, variables=patient, tell=self.tell)

    def sh(self, script: str) -> str:
        return self.rack.run(self.name, script)

    def boot(self, devices: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """A power failure and the boot after it, until ssh answers; with other devices in its slots where some are named."""
        self.rack.cut(self.name)
        self.rack.describe(self.name, devices or {})
        self.rack.up(self.name)

    def cut_during(self, work: Callable[[], Run], moment_s: float) -> None:
        """Take the power away in the middle of a run, and boot again; what is on record by then is told."""
        thread, results = in_background(work)
        thread.join(timeout=moment_s)
        done = len(self.sh("cat /var/lib/gpudirect/owned.json")) if thread.is_alive() else 0
        self.rack.cut(self.name)
        thread.join(timeout=300)
        assert results, "the run did not notice that the host is gone"
        self.tell(f"    cut after {moment_s:.0f} s: record {done} bytes, run {results[0].ok}")
        self.rack.up(self.name)
        ended(self)

    @property
    def boot_id(self) -> str:
        return self.rack.boot_id(self.name)

    def fingerprint(self) -> frozenset[str]:
        return self.rack.fingerprint(self.name)

    def prediction(self) -> Run:
        """What check mode says about the stock host; asked once."""
        if self._prediction is None:
            self._prediction = self.site("--check", "--diff")
        return self._prediction

    # States that tests start from ------------------------------------------------------------------

    def be_stock(self) -> None:
        """As the installer left it."""
        if self.state != "stock":
            self.rack.describe(self.name, {})
            self.rack.up(self.name, fresh=True)
            self.found = self.fingerprint()
        self.state = "unknown"

    def be_written(self) -> None:
        """Everything written, and the reboot left for later."""
        if self.state != "written":
            self.be_stock()
            run = self.site(gpudirect_allow="nothing")
            assert run.ok, run.text[-4000:]
        self.state = "unknown"

    def be_converged(self) -> None:
        """As the inventory wants it, after a reboot."""
        if self.state != "converged":
            self.be_stock()
            run = self.site()
            assert run.ok, run.text[-4000:]
        self.state = "unknown"


@pytest.fixture(scope="session")
def node_a(rack: Rack, tell: Tell) -> Node:
    return Node("node-a", rack, rack.inventory, tell)


@pytest.fixture
def stock(node_a: Node) -> Node:
    """node-a as the installer left it. A test that leaves it so says ``node.state = "stock"`` at its end."""
    node_a.be_stock()
    return node_a


@pytest.fixture
def written(node_a: Node) -> Node:
    """node-a with everything written and nothing live yet."""
    node_a.be_written()
    return node_a


@pytest.fixture
def converged(node_a: Node) -> Node:
    """node-a as the inventory wants it. A test that leaves it so says ``node.state = "converged"`` at its end."""
    node_a.be_converged()
    return node_a
