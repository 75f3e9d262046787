"""H06, H16 and H26: the registers between GPUs and NICs are those of the host's mode, read from configuration space."""

from __future__ import annotations

from typing import Any

import pytest
from testinfra.host import Host

from tests.testinfra import paths as ways
from tests.testinfra import pci
from tests.testinfra.conftest import Check
from tests.testinfra.paths import Paths
from tests.testinfra.wishes import Wishes

ROOT = "configuration space beyond 64 bytes cannot be read"


@pytest.fixture(scope="module")
def judged(host: Host, wishes: Wishes) -> Paths:
    data = ways.bytes_of(host.run(ways.BYTES).stdout)
    return ways.paths_of(host.ansible.get_variables(), wishes.functions, data)


@pytest.fixture
def managed(host: Host, judged: Paths, check: Check) -> Paths:
    return managed_of(host, judged, check)


def managed_of(host: Host, judged: Paths, check: Check) -> Paths:
    """The ways of a host whose ACS words are managed."""
    if host.ansible.get_variables().get("pci_path_acs", "unmanaged") == "unmanaged":
        check.does_not_apply("pci_path_acs is unmanaged")
    if judged.mode not in (ways.PASSTHROUGH, ways.BARE_METAL):
        check.does_not_apply(f"gpudirect_mode is {judged.mode}")
    if not judged.ports:
        check.fails(wanted="a way between a GPU and a NIC", found="none", evidence=pci.DEVICES)
    if not judged.readable:
        check.unknown(ROOT)
    return judged


def told(check: Check, wrong: list[str], wanted: str, good: str) -> None:
    if wrong:
        check.fails(wanted=wanted, found="; ".join(wrong), evidence=f"{pci.DEVICES}/*/config")
    check.passes(good)


def test_h06_ports_have_the_words_of_the_mode(managed: Paths, check: Check) -> None:
    shown = ", ".join(port.shown() for port in managed.ports.values())
    told(check, ways.other_words(managed), f"the ACS words of {managed.mode} on each way", shown)


def test_h06_no_port_blocks_translated_requests(managed: Paths, check: Check) -> None:
    if managed.mode != ways.PASSTHROUGH:
        check.does_not_apply(f"gpudirect_mode is {managed.mode}")
    told(check, ways.blocking(managed), "translation blocking off", f"off in {len(managed.ports)} ports")


def test_h06_ports_towards_nics_can_direct_translated_requests(managed: Paths, check: Check) -> None:
    if managed.mode != ways.PASSTHROUGH:
        check.does_not_apply(f"gpudirect_mode is {managed.mode}")
    count = sum(port.nic_side for port in managed.ports.values())
    told(check, ways.incapable(managed), "direct translated P2P in the capability", f"{count} ports can")


def test_h16_nics_have_ats_where_the_mode_wants_it(managed: Paths, check: Check) -> None:
    wanted = "ATS" if managed.mode == ways.PASSTHROUGH else "no ATS"
    told(check, ways.ats_differences(managed), f"{wanted} in the NICs near a GPU", ", ".join(managed.nics))


def test_h26_nics_may_read_as_much_at_a_time_as_declared(host: Host, judged: Paths, check: Check) -> None:
    variables: dict[str, Any] = host.ansible.get_variables()
    wanted = variables.get("pci_path_max_read_request")
    if wanted is None:
        check.does_not_apply("pci_path_max_read_request is not given")
    if not judged.readable:
        check.unknown(ROOT)
    found = {address: ways.device_control(judged, address) for address in judged.nics}
    wrong = [
        f"{address}: {'no PCI Express' if words is None else f'{words[0]} bytes'}"
        for address, words in found.items()
        if words is None or words[0] != int(wanted)
    ]
    told(check, wrong, f"MaxReadReq {wanted}", f"MaxReadReq {wanted} in {', '.join(found)}")


def test_h26_nics_may_order_loosely(managed: Paths, check: Check) -> None:
    wrong = [
        address
        for address in managed.nics
        if not managed.excused("relaxed_ordering", address)
        and not (ways.device_control(managed, address) or (0, False))[1]
    ]
    told(check, [f"{one}: RlxdOrd-" for one in wrong], "RlxdOrd+ in the device control", ", ".join(managed.nics))
