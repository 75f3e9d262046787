"""Addresses: tolerant of how they are written, strict about what they are, one form on output."""

from __future__ import annotations

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import site
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import IntentError
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.address import Address, address_in
from hypothesis import given
from hypothesis import strategies as st

addresses = st.builds(Address, st.integers(0, 2**32 - 1), st.integers(0, 255), st.integers(0, 31), st.integers(0, 7))


@given(addresses)
def test_what_is_printed_is_read_again(address: Address) -> None:
    assert Address.parse(str(address)) == address
    assert Address.parse(str(address).upper()) == address


@given(addresses, addresses)
def test_addresses_sort_by_their_numbers(one: Address, other: Address) -> None:
    numbers = [(each.domain, each.bus, each.device, each.function) for each in (one, other)]
    assert (one < other) == (numbers[0] < numbers[1])


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("3B:00.0", "0000:3b:00.0"),
        (" 3b:0.0 ", "0000:3b:00.0"),
        ("0x0000:3b:00.0", "0000:3b:00.0"),
        ("10001:80:05.0", "10001:80:05.0"),
        ("5d0505:01:00.1", "5d0505:01:00.1"),
        ("ffffffff:ff:1f.7", "ffffffff:ff:1f.7"),
        ("1:00:00.0", "0001:00:00.0"),
    ],
)
def test_ways_to_write_an_address(text: str, canonical: str) -> None:
    assert str(Address.parse(text)) == canonical


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("0000:82.0.0", "Did you mean 0000:82:00.0?"),
        ("0000:3b:00", "Did you mean 0000:3b:00.0?"),
        ("0000.3b.00.0", "Did you mean 0000:3b:00.0?"),
        ("0000:3b:00:1", "Did you mean 0000:3b:00.1?"),
        ("3b.00.0", "Did you mean 0000:3b:00.0?"),
        ("pci_0000_3b_00_0", "Look it up with host_topology_info or lspci -D."),
        ("0000:3b:20.0", "Look it up with host_topology_info or lspci -D."),
        ("0000:3b:00.8", "Look it up with host_topology_info or lspci -D."),
        ("0000:3bb:00.0", "Look it up with host_topology_info or lspci -D."),
        ("123456789:3b:00.0", "Look it up with host_topology_info or lspci -D."),
        ("ens1f0", "Look it up with host_topology_info or lspci -D."),
        ("", "Look it up with host_topology_info or lspci -D."),
        ("0000:3b:00.0\n0000:3c:00.0", "Look it up with host_topology_info or lspci -D."),
    ],
)
def test_a_typo_is_refused_with_what_may_have_been_meant(text: str, advice: str) -> None:
    with pytest.raises(IntentError) as caught:
        address_in("ports[0].address", text)
    assert str(caught.value) == (
        f"ports[0].address: is not a PCI address (found {text!r}, "
        f"wanted domain:bus:device.function, such as 0000:3b:00.0). {advice}"
    )


def test_vfs_lie_further_by_offset_and_stride_also_on_the_next_bus() -> None:
    pf = Address.parse("0000:21:00.0")
    assert [str(pf.plus(128 + 2 * number)) for number in range(3)] == ["0000:21:10.0", "0000:21:10.2", "0000:21:10.4"]
    assert str(pf.plus(0x100)) == "0000:22:00.0"
    assert str(Address.parse("10000:21:1f.7").plus(1)) == "10000:22:00.0"


def test_replaced_devices_are_addresses_each_given_once() -> None:
    parsed = site.SCHEMA.parse({"gpudirect_replaced": ["3B:00.0", "10001:80:05.0"]})
    assert parsed["gpudirect_replaced"] == ["0000:3b:00.0", "10001:80:05.0"]
    assert site.SCHEMA.parse({})["gpudirect_replaced"] == []
    with pytest.raises(IntentError) as caught:
        site.intent_of({"gpudirect_replaced": ["0000:82.0.0", "0000:3b:00.0", "3b:00.0", 60.0]})
    assert [problem.path for problem in caught.value.problems] == ["gpudirect_replaced[3]"]
    with pytest.raises(IntentError) as caught:
        site.intent_of({"gpudirect_replaced": ["0000:82.0.0", "0000:3b:00.0", "3b:00.0"]})
    assert [str(problem) for problem in caught.value.problems] == [
        "gpudirect_replaced[0]: is not a PCI address (found '0000:82.0.0', wanted domain:bus:device.function, "
        "such as 0000:3b:00.0). Did you mean 0000:82:00.0?",
        "gpudirect_replaced[2]: 0000:3b:00.0 is given twice. Remove one of them.",
    ]
