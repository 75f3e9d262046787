"""What is read once in a look is read anew in the next one, and after a write."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import UnreadableState
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host
from ansible_collections.vela.gpudirect.plugins.module_utils.core.once import looking, once
from ansible_collections.vela.gpudirect.plugins.module_utils.pci import sysfs

from tests.fixtures.fake_host import FakeHost
from tests.fixtures.fake_machines import rack


@pytest.fixture
def host(tmp_path: Path) -> Host:
    rack().write(tmp_path)
    return Host(str(tmp_path))


def test_tree_is_read_once_in_a_look(host: Host) -> None:
    with looking(host):
        assert sysfs.read(host) is sysfs.read(host)
    assert sysfs.read(host) is not sysfs.read(host)


def test_a_look_knows_nothing_of_the_one_before(host: Host) -> None:
    with looking(host):
        first = once(host, "number", lambda: 1)
    with looking(host):
        assert (first, once(host, "number", lambda: 2)) == (1, 2)


def test_a_write_forgets(tmp_path: Path) -> None:
    host = FakeHost(str(tmp_path))
    with looking(host):
        assert once(host, "number", lambda: 1) == 1
        host.write_text("/etc/new", "x")
        assert once(host, "number", lambda: 2) == 2


def test_an_error_is_not_kept(host: Host) -> None:
    def fails() -> int:
        raise UnreadableState([])

    with looking(host):
        with pytest.raises(UnreadableState):
            once(host, "number", fails)
        assert once(host, "number", lambda: 1) == 1
