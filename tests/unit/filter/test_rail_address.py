"""Addresses of rails: an address plan in one line, and what it has no room for."""

from __future__ import annotations

import ipaddress
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.vela.gpudirect.plugins.filter import rail_address as filters
from ansible_collections.vela.gpudirect.plugins.filter.rail_address import rail_address

TEXT = "'10.64.0.0/16' | vela.gpudirect.rail_address(1, 2, length=24)"


@pytest.mark.parametrize(
    ("arguments", "address"),
    [
        (("10.64.0.0/16", 0, 0, 24), "10.64.0.1/24"),
        (("10.64.0.0/16", 7, 253, 24), "10.64.7.254/24"),
        (("10.64.0.0/16", "3", "4", "20", "16"), "10.64.48.20/20"),
        (("10.64.0.0/24", 0, 0), "10.64.0.1/24"),
        (("10.64.0.0/24", 127, 1, 31, 0), "10.64.0.255/31"),
        (("fd00::/48", 2, 9, 64), "fd00:0:0:2::a/64"),
    ],
)
def test_addresses(arguments: tuple[Any, ...], address: str) -> None:
    assert rail_address(*arguments) == address


def test_rails_and_guests_never_share_an_address() -> None:
    found = [rail_address("10.0.0.0/24", rail, guest, 27) for rail in range(8) for guest in range(30)]
    assert len(set(found)) == 240
    for one in map(ipaddress.ip_interface, found):
        assert one.ip not in (one.network.network_address, one.network.broadcast_address)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("10.64.0.0/16", 256, 0, 24), "has no network of length 24 for rail 256 (wanted rails 0 to 255)"),
        (("10.64.0.0/16", 1, 0), "has no network of length 16 for rail 1"),
        (("10.64.0.0/16", 0, 254, 24), "rail 0 has no address number 255 (wanted at most 254)"),
        (("10.64.0.0/16", 0, 0, 12), "length: 12 is not in 10.64.0.0/16 (wanted 16 to 32)"),
        (("10.64.0.1/16", 0, 0, 24), "is no prefix (wanted 10.64.0.0/16)"),
        (("10.64.0.0", 0, 0), "is no prefix"),
        (("10.64.0.0/16", 0, 0, 24, 0), "its address number 0 is that of the network on rail 0"),
        (("fd00::/48", 0, 0, 64, 0), "its address number 0 is that of the network on rail 0"),
        (("rails", 0, 0), "is no prefix"),
        (("10.64.0.0/16", -1, 0), "rail: is no number (-1)"),
        (("10.64.0.0/16", True, 0), "rail: is no number (True)"),
    ],
)
def test_what_has_no_address(arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises(AnsibleFilterError) as caught:
        rail_address(*arguments)
    assert said in str(caught.value)
    assert str(caught.value).startswith("vela.gpudirect.rail_address: ")


def test_without_netaddr_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "netaddr", None)
    with pytest.raises(AnsibleFilterError, match="Install it"):
        rail_address("10.0.0.0/24", 0, 0)


def test_ansible_finds_it_by_its_name() -> None:
    done = subprocess.run(
        ["ansible", "localhost", "-m", "ansible.builtin.debug", "-a", f"msg={{{{ {TEXT} }}}}"],
        capture_output=True, text=True, check=True, cwd=Path(__file__).resolve().parents[3],
    )  # fmt: skip
    assert "msg: 10.64.1.3/24" in done.stdout
