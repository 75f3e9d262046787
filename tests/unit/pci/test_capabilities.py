"""Configuration space: what its bytes say, and that missing bytes say nothing."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import ABSENT, Unreadable
from ansible_collections.vela.gpudirect.plugins.module_utils.pci import capabilities
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.config_space import (
    ACS,
    AER,
    ATS,
    EXPRESS,
    SERIAL,
    SRIOV,
    ConfigSpace,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.fixtures import fake_config

HEADER = fake_config.Header(0x15B3, 0x101D, 0x020000, 0, (0x15B3, 0x43))
LINK = ("16.0 GT/s PCIe", "16.0 GT/s PCIe", "16", "16")
SERIAL_TEXT = "94-6d-ae-ff-fe-12-34-56"
EXTENDED = {
    AER: fake_config.aer(),
    SERIAL: fake_config.serial(SERIAL_TEXT),
    SRIOV: fake_config.sriov(16, 4, 2, 1, 0x101E),
    ACS: fake_config.acs(0x5F, 0x1D),
    ATS: fake_config.ats(0x20, 0x8001),
}
STANDARD = [fake_config.Cap(0x01, bytes(6)), fake_config.express(0, LINK), fake_config.Cap(0x11, bytes(10))]

READERS: dict[int, Any] = {
    SERIAL: capabilities.device_serial,
    SRIOV: capabilities.total_vfs,
    ACS: capabilities.acs,
    ATS: capabilities.ats,
}
VALUES: dict[int, Any] = {
    SERIAL: SERIAL_TEXT,
    SRIOV: 16,
    ACS: capabilities.Words(0x5F, 0x1D),
    ATS: capabilities.Ats(0x20, 0x8001),
}

lists = st.permutations(sorted(EXTENDED)).flatmap(
    lambda order: st.integers(0, len(order)).map(lambda count: list(order)[:count])
)


def config_of(extended: list[int], size: int = 4096) -> ConfigSpace:
    return ConfigSpace(fake_config.space(HEADER, STANDARD, [EXTENDED[one] for one in extended], size))


@given(lists)
def test_every_capability_is_found_wherever_it_stands(present: list[int]) -> None:
    config = config_of(present)
    for identifier, reader in READERS.items():
        assert reader(config) == (VALUES[identifier] if identifier in present else ABSENT)


@settings(max_examples=10)
@given(lists)
@example(sorted(EXTENDED))
def test_fewer_bytes_never_change_what_is_said_but_to_unknown(present: list[int]) -> None:
    whole = config_of(present)
    known = {reader: reader(whole) for reader in READERS.values()}
    for length in range(0x400):
        cut = ConfigSpace(whole.data[:length])
        for reader, value in known.items():
            assert isinstance(reader(cut), Unreadable) or reader(cut) == value
        for identifier in (EXPRESS, 0x11, 0x05):
            found = cut.capability(identifier)
            assert isinstance(found, Unreadable) or found == whole.capability(identifier)


@given(lists)
def test_reading_on_as_asked_ends_with_all_capabilities_known(present: list[int]) -> None:
    whole = config_of(present)
    config = ConfigSpace(whole.data[:256])
    reads = 0
    while config.more:
        config = ConfigSpace(whole.data[: len(config.data) + config.more])
        reads += 1
    assert reads <= 3
    assert len(config.data) <= 0x400
    for reader in READERS.values():
        assert reader(config) == reader(whole)


@pytest.mark.parametrize("length", [0, 1, 63, 64])
def test_without_privilege_every_capability_is_unknown(length: int) -> None:
    config = ConfigSpace(config_of([ACS, ATS]).data[:length])
    cause = f"only {length} bytes of configuration space are readable; root is needed for more"
    assert capabilities.acs(config) == capabilities.ats(config) == config.capability(EXPRESS) == Unreadable(cause)
    assert config.more == 0


def test_a_conventional_function_has_no_extended_capabilities() -> None:
    config = ConfigSpace(fake_config.space(HEADER, STANDARD[:1], [], 256))
    assert capabilities.acs(config) is capabilities.device_serial(config) is ABSENT
    assert config.more == 0
    assert ConfigSpace(fake_config.space(HEADER, [], [], 256)).capability(EXPRESS) is ABSENT


def test_a_function_that_does_not_answer_has_no_known_capabilities() -> None:
    config = ConfigSpace(b"\xff" * 4096)
    cause = "the configuration space reads as ones only: the function does not answer"
    assert capabilities.acs(config) == config.capability(EXPRESS) == Unreadable(cause)
    assert config.more == 0


def test_the_ids_of_a_vf_read_as_ones_and_its_capabilities_do_not() -> None:
    header = fake_config.Header(0x15B3, 0x101E, 0x020000, 0, (0x15B3, 0x43), is_vf=True)
    config = ConfigSpace(fake_config.space(header, STANDARD, [EXTENDED[ATS]]))
    assert config.word(0, 4) == 0xFFFFFFFF
    assert capabilities.ats(config) == capabilities.Ats(0x20, 0x8001)


def test_capability_lists_that_go_in_circles_come_to_an_end() -> None:
    data = bytearray(config_of([ACS]).data)
    at = config_of([ACS]).extended(ACS)
    assert isinstance(at, int)
    data[at : at + 4] = (ACS | 1 << 16 | at << 20).to_bytes(4, "little")
    data[0x41] = 0x40
    config = ConfigSpace(bytes(data))
    assert config.capability(EXPRESS) is ABSENT
    assert config.extended(ATS) is ABSENT
    assert config.extended(ACS) == at


@pytest.mark.parametrize("text", ["00-00-00-00-00-00-00-00", "ff-ff-ff-ff-ff-ff-ff-ff"])
def test_a_serial_number_that_was_never_given_is_none(text: str) -> None:
    assert (
        capabilities.device_serial(ConfigSpace(fake_config.space(HEADER, STANDARD, [fake_config.serial(text)])))
        is ABSENT
    )


def test_words_in_the_names_of_lspci() -> None:
    assert capabilities.acs_names(0x5D) == ["SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd", "DirectTrans"]
    assert capabilities.acs_names(0) == []
    assert (VALUES[ATS].enabled, VALUES[ATS].smallest_unit) == (True, 1)
    assert not capabilities.Ats(0, 0x0001).enabled
