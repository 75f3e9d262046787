"""A guest that starts with a BIOS and has large regions: people see that before a run and in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.testing import patch_module_args
from ansible_collections.vela.gpudirect.plugins.module_utils.core import edge
from ansible_collections.vela.gpudirect.plugins.module_utils.guest import overview
from ansible_collections.vela.gpudirect.plugins.modules import libvirt_guest

from tests.fixtures.fake_libvirt import FakeGuestHost
from tests.fixtures.libvirt_hosts import built, guests, shape, with_files

NOTE = "the guest starts with a BIOS, which has no room for its large regions: take firmware: efi"
START, SIZE = 1 << 40, 128 << 30


@pytest.fixture
def host(tmp_path: Path) -> FakeGuestHost:
    """Its first GPU has a region of 128 GiB."""
    host = with_files(built(tmp_path / "root"))
    gpu = overview.looked(guests(shape()), host)["guests"][0]["gpus"][0]["address"]
    row = f"{START:#018x} {START + SIZE - 1:#018x} 0x14220c\n"
    host.put(f"/sys/bus/pci/devices/{gpu}/resource", row)
    return host


@pytest.mark.parametrize(("firmware", "notes"), [("efi", []), ("bios", [NOTE])])
def test_placement_tells_it(host: FakeGuestHost, firmware: str, notes: list[str]) -> None:
    with host.only_read():
        result = overview.looked(guests(shape(firmware=firmware)), host)
    assert result["guests"][0]["notes"] == notes
    assert (NOTE in result["text"]) == bool(notes)


@pytest.mark.parametrize(("firmware", "notes"), [("efi", []), ("bios", [f"libvirt_guest[train]: {NOTE}"])])
def test_a_run_warns_of_it(
    host: FakeGuestHost,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    firmware: str,
    notes: list[str],
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(edge, "Host", lambda: host)
    monkeypatch.setattr(AnsibleModule, "warn", lambda self, text: warnings.append(text))
    options = {**guests(shape(firmware=firmware)), "gpudirect_allow": "guest"}
    with patch_module_args(options), pytest.raises(SystemExit):
        libvirt_guest.main()
    assert json.loads(capsys.readouterr().out)["notes"] == warnings == notes
