"""The module: one machine as data, whole or with its gaps named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.vela.gpudirect.plugins.module_utils import site
from ansible_collections.vela.gpudirect.plugins.modules import host_topology_info

from tests.fixtures import fake_machines
from tests.fixtures.fake_pci import Machine

NIC = "0000:24:00.0"


@pytest.fixture
def rack(tmp_path: Path) -> Machine:
    return fake_machines.rack().write(tmp_path)


def run(root: Path | None, capsys: pytest.CaptureFixture[str], **more: Any) -> dict[str, Any]:
    with patch_module_args({"gpudirect_root": str(root), **more}), pytest.raises(SystemExit):
        host_topology_info.main()
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def function(result: dict[str, Any], address: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in result["functions"] if one["address"] == address)
    return found


def test_a_machine_as_data(rack: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    rack.add_vfs(rack[NIC], 2)
    result = run(rack.folder, capsys, _ansible_check_mode=True)
    assert (result["changed"], result["unread"]) == (False, {})
    assert [one["address"] for one in result["functions"]] == [one.address for one in rack.by_address()]
    nic = function(result, NIC)
    bars = nic.pop("bars")
    assert nic == {
        "address": NIC,
        "vendor": "8086",
        "device": "10c9",
        "class": "020000",
        "subsystem_vendor": "8086",
        "subsystem_device": "a03c",
        "revision": "01",
        "serial": "52-54-00-ff-ff-85-66-a0",
        "port": "pci0000:20/00.0/00.0/01.0/00.0",
        "parent": "0000:22:01.0",
        "root_bus": "pci0000:20",
        "numa_node": 0,
        "iommu_group": 14,
        "driver": "igb",
        "driver_override": None,
        "link": {"speed_gts": 8.0, "speed_max_gts": 8.0, "width": 8, "width_max": 8},
        "express": {
            "port_type": "endpoint",
            "max_read_request_bytes": 128,
            "max_payload_bytes": 128,
            "relaxed_ordering": False,
        },
        "acs": None,
        "ats": None,
        "sriov": {
            "total": 7,
            "register": 8,
            "enabled": 2,
            "autoprobe": True,
            "offset": 128,
            "stride": 2,
            "vf_device": "10ca",
            "vfs": ["0000:24:10.0", "0000:24:10.2"],
        },
        "physfn": None,
        "netdevs": [
            {
                "name": "ens1",
                "mac": "52:54:00:85:66:a0",
                "mtu": 1500,
                "operstate": "up",
                "port_name": None,
                "switch_id": None,
                "master": None,
                "representor": False,
            }
        ],
        "rdma": [],
        "disks": [],
        "boot_vga": False,
    }
    start, end, flags = rack[NIC].regions[0]
    assert bars[0] == {
        "index": 0,
        "start": f"{start:#x}",
        "size_bytes": end - start + 1,
        "flags": f"{flags:#x}",
        "assigned": True,
    }
    assert function(result, "0000:24:10.2")["physfn"] == NIC
    assert function(result, "0000:26:00.0")["ats"] == {
        "capability": "0020",
        "control": "0000",
        "enabled": False,
        "smallest_unit": 0,
    }


def test_bridges_and_groups(rack: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(rack.folder, capsys)
    assert next(one for one in result["bridges"] if one["address"] == "0000:21:00.0") == {
        "address": "0000:21:00.0",
        "secondary_bus": "22",
        "subordinate_bus": "26",
        "below": ["0000:22:00.0", "0000:22:01.0", "0000:22:02.0", "0000:22:03.0"],
    }
    assert function(result, "0000:22:01.0")["acs"] == {
        "capability": "005f",
        "control": "001d",
        "capable": ["SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "DirectTrans"],
        "enabled": ["SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"],
    }
    assert {"number": 6, "type": "identity", "functions": ["0000:00:1f.0", "0000:00:1f.2"]} in result["iommu_groups"]
    assert len(result["iommu_groups"]) == len(rack.devices) - 1


def test_gaps_are_named_and_are_no_values(rack: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    rack[NIC].readable = 64
    rack[NIC].link = ("Unknown", "8.0 GT/s PCIe", "0", "8")
    rack.write(rack.folder)  # type: ignore[arg-type]
    rack.at(f"{rack.path(rack[NIC])}/resource").unlink()
    rack.at(f"{rack.path(rack[NIC])}/sriov_numvfs").unlink()
    lost = rack.path(rack["0000:25:00.0"])
    for name in ("modalias", "class", "config"):
        rack.at(f"{lost}/{name}").unlink()
    result = run(rack.folder, capsys)
    nic = function(result, NIC)
    privilege = "only 64 bytes of configuration space are readable; root is needed for more"
    assert nic["express"] == nic["acs"] == nic["ats"] == nic["serial"] == {"unreadable": privilege}
    assert nic["link"] == {
        "speed_gts": {"unreadable": "the kernel says 'Unknown'"},
        "speed_max_gts": 8.0,
        "width": {"unreadable": "the kernel says 0, which tells no width"},
        "width_max": 8,
    }
    assert nic["bars"] == {"unreadable": "resource is not there"}
    assert set(nic["sriov"]) == {"unreadable"}
    assert result["unread"] == {"0000:25:00.0": f"{lost}: its class code cannot be read"}
    assert function(result, "0000:00:1f.0")["numa_node"] is None


def test_a_host_without_pci_fails_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(tmp_path, capsys)
    assert (result["failed"], result["changed"], result["kind"]) == (True, False, "UnreadableState")
    assert result["msg"] == (
        f"gpudirect_root: has no captured /sys in it (found {tmp_path}, wanted a folder with sys/bus/pci/devices). "
        "Unpack the archive first, or give it to ./gpudirect audit."
    )


@pytest.mark.parametrize("root", ["", ".", "srv/node-17", "~/node-17"])
def test_a_root_that_is_not_a_whole_path_is_refused(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    with patch_module_args({"gpudirect_root": root}), pytest.raises(SystemExit):
        host_topology_info.main()
    result = json.loads(capsys.readouterr().out)
    assert (result["failed"], result["kind"]) == (True, "IntentError")
    assert result["msg"] == (
        f"gpudirect_root: is not an absolute path (found {root!r}). Give the whole path of the tree."
    )


@pytest.mark.parametrize(
    ("given", "meant"), [("/", "/"), ("//", "/"), ("/./", "/"), ("/a/../", "/"), ("//srv/x/", "/srv/x")]
)
def test_ways_to_write_a_root(given: str, meant: str) -> None:
    assert site.SCHEMA.parse({"gpudirect_root": given})["gpudirect_root"] == meant
