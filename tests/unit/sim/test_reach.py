from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from sim.describe import Host
from sim.places import Rack
from sim.reach import Doorbell, greets, write_ssh_config


@pytest.fixture
def rack(tmp_path: Path) -> Rack:
    rack = Rack(tmp_path / "a b" / "50%")
    for name, port in (("node-a", "22001\n"), ("node-b", "22002\n"), ("node-c", None)):
        rack.host(name).mkdir(parents=True)
        (rack.host(name) / "host_key.pub").write_text(f"ssh-ed25519 {name}\n")
        if port:
            (rack.host(name) / "port").write_text(port)
    return rack


def test_config_names_the_hosts_that_were_ever_up(rack: Rack) -> None:
    write_ssh_config(rack, [Host("node-a"), Host("node-b", ssh_user="oper"), Host("node-c")])
    text = rack.ssh_config.read_text()
    assert "Host node-a\n" in text
    assert "node-c" not in text
    assert rack.known_hosts.read_text() == "node-a ssh-ed25519 node-a\nnode-b ssh-ed25519 node-b\n"


@pytest.mark.skipif(shutil.which("ssh") is None, reason="this machine has no ssh")
def test_ssh_understands_the_config_in_a_path_with_spaces_and_percent(rack: Rack) -> None:
    write_ssh_config(rack, [Host("node-a"), Host("node-b", ssh_user="oper")])
    argv = ["ssh", "-G", "-F", str(rack.ssh_config), "node-b"]
    lines = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {"hostname 127.0.0.1", "port 22002", "user oper", "hostkeyalias node-b"} <= set(lines)
    assert {"stricthostkeychecking true", "identitiesonly yes", "controlmaster auto"} <= set(lines)
    # ssh -G expands the percent signs of some paths and shows others as written.
    paths = {line.replace("%%", "%") for line in lines}
    assert f"identityfile {rack.state}/key" in paths
    assert f"userknownhostsfile {rack.state}/known_hosts" in paths


def listener() -> socket.socket:
    made = socket.socket()
    made.bind(("127.0.0.1", 0))
    made.listen()
    return made


def test_server_that_introduces_itself_greets() -> None:
    with listener() as server:
        bell = Doorbell(server.getsockname()[1])
        line, _ = server.accept()
        assert bell.answered(0) is None
        line.sendall(b"SSH-2.0-x\r\n")
        assert bell.answered(5) is True
        bell.close()
        line.close()


def test_connection_that_is_accepted_and_dropped_does_not_greet() -> None:
    # As user networking does while the host has no ssh server yet.
    with listener() as server:
        bell = Doorbell(server.getsockname()[1])
        server.accept()[0].close()
        assert bell.answered(5) is False
        bell.close()


def test_silent_connection_is_given_up_after_its_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Doorbell, "PATIENCE_S", 0.0)
    with listener() as server:
        bell = Doorbell(server.getsockname()[1])
        assert bell.answered(0) is False
        bell.close()


def test_closed_port_does_not_greet() -> None:
    with listener() as server:
        port = server.getsockname()[1]
    assert not greets(port, 5)
