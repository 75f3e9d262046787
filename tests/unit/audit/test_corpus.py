"""Every captured file of the corpus gets the verdict, the words and the distances of its row (FILES.md of the corpus).

docs/decisions/0009-audit.md says where a row is read in a way that it does not spell out.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.audit.command_line import main
from ansible_collections.vela.gpudirect.plugins.module_utils.pci import lspci

from tests.fixtures import corpus

SWITCH = "lspci/xe9680-first-switch.lspci-vvv.txt"
GUEST = "lspci/a100-8gpu.lspci-nn.txt"
TOPOLOGY = "nccl-topo/azure-ndv4-a100.xml"
STATUS = {"OK": 0, "WARN": 1, "FAIL": 2, "UNKNOWN": 3}


class Audited:
    """The JSON of one audit, and its exit status."""

    def __init__(self, capsys: pytest.CaptureFixture[str], path: str | Path, *arguments: str) -> None:
        file = corpus.file(path) if isinstance(path, str) else path
        self.status = main([str(file), "--format", "json", *arguments])
        self.data: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert self.status == STATUS[self.verdict]

    @property
    def verdict(self) -> str:
        return str(self.data["verdict"])

    def of(self, rule: str) -> set[str]:
        """The verdicts of a rule; findings that are fine are one."""
        return {one["verdict"] for one in self.data["findings"] if one["rule"] == rule}

    def words(self, rule: str) -> str:
        """All that is said by a rule."""
        findings = [one for one in self.data["findings"] if one["rule"] == rule]
        return " ".join(f"{one['found']} {one.get('remedy', '')}" for one in findings)

    @property
    def kinds(self) -> dict[tuple[str, str], str]:
        return {
            (gpu, nic): kind
            for gpu, row in zip(self.data["gpus"], self.data["kinds"])
            for nic, kind in zip(self.data["nics"], row)
        }

    @property
    def nearest(self) -> Counter[str]:
        """How many GPUs have their nearest NIC how far away."""
        return Counter(self.kinds[gpu, nics[0]] for gpu, nics in self.data["best"].items() if nics)


Capsys = pytest.CaptureFixture[str]

# lspci -----------------------------------------------------------------------------------


def test_first_switch_without_guests_is_direct(capsys: Capsys) -> None:
    found = Audited(capsys, SWITCH, "--mode", "bare_metal")
    assert [(one["gpu"], one["nic"], one["kind"], one["verdict"]) for one in found.data["pairs"]] == [
        ("0000:19:00.0", "0000:1a:00.0", "PIX", "OK")
    ]
    assert found.of("acs_redirect") == {"OK"}
    assert "Only 14 functions are in the input" in " ".join(found.data["missing"])
    assert found.of("platform_supported") == {"UNKNOWN"}  # the processor is not in an excerpt of lspci


def test_first_switch_with_guests(capsys: Capsys) -> None:
    found = Audited(capsys, SWITCH)
    for rule in ("groups_distinct", "groups_viable", "iommu_on", "stale_groups", "acs_redirect"):
        assert found.of(rule) - {"OK"} == {"UNKNOWN"}, rule
    assert "ACS state as of this boot" in found.words("acs_redirect")
    assert "with one the kernel sets other bits" in found.words("acs_redirect")
    # Neither an IOMMU nor another boot argument of the kernel's own changes these two.
    assert found.of("acs_direct_translated") == found.of("ats_present") == {"FAIL"}


def test_a100_guest_alone(capsys: Capsys) -> None:
    found = Audited(capsys, GUEST)
    assert (found.verdict, found.data["mode"]) == ("UNKNOWN", "topology")
    assert set(found.kinds.values()) == {"UNKNOWN"}
    assert "no bridge at all is in the input" in found.words("guest_view")
    assert len({gpu[:4] for gpu in found.data["gpus"]}) == 8  # domains are kept


def test_a100_guest_with_its_topology_file(capsys: Capsys) -> None:
    found = Audited(capsys, GUEST, "--compare", str(corpus.file(TOPOLOGY)))
    assert found.verdict == "OK"
    assert "CONSISTENT: all 16 bus ids" in found.words("consistent")
    assert found.nearest == {"PIX": 8}
    again = Audited(capsys, TOPOLOGY, "--compare", str(corpus.file(GUEST)))
    assert again.data["findings"] == found.data["findings"]


@pytest.mark.parametrize("ids", [("0003:00:00.0", "0103:00:00.0"), ("0001:00:00.0", "0108:00:00.0")])
def test_two_bus_ids_changed_places(capsys: Capsys, tmp_path: Path, ids: tuple[str, str]) -> None:
    whole = corpus.file(TOPOLOGY).read_text(encoding="utf-8")
    swapped = re.sub("|".join(ids), lambda one: ids[1 - ids.index(one[0])], whole)
    file = tmp_path / "swapped.xml"
    file.write_text(swapped, encoding="utf-8")
    found = Audited(capsys, GUEST, "--compare", str(file))
    assert found.verdict == "FAIL"
    for one in ids:
        assert one in found.words("consistent")


def test_a_bus_id_that_the_guest_does_not_have(capsys: Capsys, tmp_path: Path) -> None:
    file = tmp_path / "other.xml"
    file.write_text(corpus.file(TOPOLOGY).read_text(encoding="utf-8").replace("0103:00:00.0", "0203:00:00.0"))
    found = Audited(capsys, GUEST, "--compare", str(file))
    assert found.verdict == "FAIL"
    assert "0203:00:00.0 of the topology file is not in the machine, which has 0103:00:00.0" in found.words(
        "consistent"
    )


def test_a10_guest(capsys: Capsys) -> None:
    found = Audited(capsys, "lspci/a10-vm.lspci-nn.txt")
    assert (found.verdict, found.data["mode"]) == ("UNKNOWN", "topology")
    words = found.words("guest_view")
    for part in ("flat guest topology", "1b36:000c", "PHB at best", "upply the host mapping", "NCCL topology file"):
        assert part in words
    assert (found.data["gpus"], found.data["nics"]) == (["0000:06:00.0"], ["0000:05:00.0"])


def test_a_nic_below_a_root_port_that_redirects_and_blocks(capsys: Capsys) -> None:
    found = Audited(capsys, "lspci/pciutils-cap-aer-root.txt")
    assert found.of("nic_port_redirects") == {"WARN"}
    for part in ("root complex and its IOMMU", "TransBlk+ is unusual", "would fail as well"):
        assert part in found.words("nic_port_redirects")
    assert found.of("nic_supported") == {"FAIL"}
    assert "mlx4" in found.words("nic_supported")
    assert found.of("gpus_found") == {"UNKNOWN"}  # two functions are not all of a machine


def test_acs_that_can_do_nothing(capsys: Capsys) -> None:
    found = Audited(capsys, "lspci/pciutils-cap-ide.txt")
    assert "can do nothing: nothing can be enabled there" in found.words("acs_empty")
    assert found.of("acs_empty") == {"OK"}


def test_a_region_that_could_be_larger_is_told_only(capsys: Capsys) -> None:
    found = Audited(capsys, "lspci/pciutils-cap-rebar.txt")
    assert found.of("bars_resizable") == {"OK"}
    assert "region 0 has 256 MiB and could have 4 GiB" in found.words("bars_resizable")


# hwloc -----------------------------------------------------------------------------------


def test_dgx2_whose_nics_were_filtered_out(capsys: Capsys) -> None:
    found = Audited(capsys, "hwloc/dgx2-16gpu.v3.xml")
    assert (found.verdict, found.of("nics_found")) == ("UNKNOWN", {"UNKNOWN"})
    assert "no NIC in this export: run lstopo with --whole-io" in found.data["missing"]
    between = Counter(kind for row in found.data["gpu_kinds"] for kind in row)
    assert between["X"] == len(found.data["gpus"]) == 16
    assert between["UNKNOWN"] == 0


def test_power9_with_many_domains(capsys: Capsys) -> None:
    found = Audited(capsys, "hwloc/power9-4v100-cx5-multidomain.v2.xml")
    assert found.verdict == found.of("platform_supported").pop() == "FAIL"
    assert "ppc64le" in found.words("platform_supported")
    assert found.of("same_switch") == {"WARN"}
    assert not [nic for nic in found.data["nics"] if nic.startswith("0005")]
    for (gpu, nic), kind in found.kinds.items():
        assert kind == ("NODE" if (gpu[:4], nic[:4]) in {("0004", "0003"), ("0035", "0033")} else "SYS")


def test_two_switches_with_accelerators_that_the_site_selects(capsys: Capsys, tmp_path: Path) -> None:
    name = "hwloc/plx9797-8accel-2ib.lstopo.txt"
    assert Audited(capsys, name).of("gpus_found") == {"UNKNOWN"}
    intent = tmp_path / "intent.json"
    intent.write_text(json.dumps({"pci_path_gpus": [{"class": "0b40"}]}))
    found = Audited(capsys, name, "--intent", str(intent))
    assert len(found.data["gpus"]) == 8
    by_nic = {
        nic: Counter(kind for (_gpu, one), kind in found.kinds.items() if one == nic) for nic in found.data["nics"]
    }
    assert by_nic == {"0000:1a:00.0": {"PIX": 4, "NODE": 4}, "0000:3e:00.0": {"PIX": 4, "NODE": 4}}


# sysfs -----------------------------------------------------------------------------------


def test_a_domain_of_more_than_16_bits(capsys: Capsys) -> None:
    found = Audited(capsys, "sysfs/hwloc-2pa-pcidomain32bits.sysfs.tar.bz2")
    assert "not assignable by libvirt" in found.words("domain_assignable")
    assert "10000:00:04.0" in found.words("domain_assignable")
    assert found.of("gpus_found") == {"FAIL"}


def test_a_guest_without_numa_affinity(capsys: Capsys) -> None:
    found = Audited(capsys, "sysfs/ghw-q35-guest-nvidia-numa-minus1.sysfs.tar.bz2")
    assert found.of("guest_numa") == {"WARN"}
    assert "guest has no PCI NUMA affinity" in found.words("guest_numa")
    assert "4294967295" not in json.dumps(found.data)
    assert "flat guest topology" in found.words("guest_view")


def test_an_archive_without_pci_devices_cannot_be_judged(capsys: Capsys) -> None:
    file = corpus.file("sysfs/gpud-h100-sys-class-infiniband.tar.bz2")
    assert main([str(file)]) == 65
    assert "has no captured PCI devices in it" in capsys.readouterr().err


# Topology files ----------------------------------------------------------------------------


def test_ndv4_has_a_nic_on_the_same_switch_for_each_gpu(capsys: Capsys) -> None:
    found = Audited(capsys, TOPOLOGY)
    assert found.verdict == "OK"
    assert "8/8 GPUs have a NIC on the same switch" in found.words("same_switch")
    assert found.data["best"]["0001:00:00.0"] == ["0101:00:00.0", "0102:00:00.0"]
    assert found.kinds["0001:00:00.0", "0103:00:00.0"] == "SYS"  # GPUs 1 and 2 are on node 1, 3 and 4 on node 0


def test_ndv5_and_the_processors_of_its_masks(capsys: Capsys) -> None:
    found = Audited(capsys, "nccl-topo/azure-ndv5-h100.xml")
    assert (found.verdict, found.nearest) == ("OK", {"PIX": 8})
    assert found.words("file_masks").count("48 processors") == 2


def test_p4d_is_no_mellanox_target(capsys: Capsys) -> None:
    found = Audited(capsys, "nccl-topo/aws-p4d.xml")
    assert (found.of("same_switch"), found.nearest) == ({"OK"}, {"PIX": 8})
    assert found.of("nic_vendor") == {"WARN"}
    assert "1d0f: not a Mellanox target" in found.words("nic_vendor")
    assert {one["rule"] for one in found.data["findings"] if one["verdict"] != "OK"} == {"nic_vendor"}


def test_gpus_behind_two_more_bridges_than_the_nic(capsys: Capsys) -> None:
    found = Audited(capsys, "nccl-topo/rccl-topo_8p_rome_4n_1.xml")
    assert (found.verdict, found.nearest) == ("OK", {"PXB": 8})


def test_all_devices_on_one_of_two_nodes(capsys: Capsys) -> None:
    found = Audited(capsys, "nccl-topo/rccl-topo_8p_pcie_2nic.xml")
    assert (found.verdict, found.of("same_switch"), sum(found.nearest.values())) == ("WARN", {"OK"}, 8)
    assert "node 1 has no device" in found.words("file_numa")
    assert "pin guests to node 0" in found.words("file_numa")
    assert "one NIC is shared by 4 GPUs" in found.words("shared_nics")


def test_a_guest_without_an_rdma_nic(capsys: Capsys) -> None:
    found = Audited(capsys, "nccl-topo/rccl-topo_8p_rome_vm1.xml")
    assert (found.verdict, found.of("nics_found")) == ("FAIL", {"FAIL"})
    assert "no RDMA NIC in guest" in found.words("nics_found")
    assert len(found.data["gpus"]) == 8


def test_what_nccl_makes_of_a_flat_guest(capsys: Capsys) -> None:
    found = Audited(capsys, "nccl-topo/h200x2-flat-guest.dump.xml")
    assert "no RDMA NIC" in found.words("nics_found")
    for rule, part in (("file_numa", "numaid=-1"), ("file_links", "link_width=0"), ("file_masks", "affinity")):
        assert found.of(rule) == {"WARN"}
        assert part in found.words(rule)


# nvidia-smi --------------------------------------------------------------------------------


def test_a_guest_that_was_built_right(capsys: Capsys) -> None:
    found = Audited(capsys, "smi-topo/a800-guest-124vcpu-pix-pairs.topo-m.txt")
    assert (found.verdict, found.nearest) == ("OK", {"PIX": 8})
    assert found.data["best"]["GPU7"] == ["mlx5_6", "mlx5_7"]
    assert "8/8 GPUs have a NIC on the same switch" in found.words("same_switch")


def test_dgx1_shares_each_nic_among_two_gpus(capsys: Capsys) -> None:
    found = Audited(capsys, "smi-topo/dgx1-v100-4cx.topo-mp.txt")
    assert (found.verdict, found.nearest) == ("OK", {"PIX": 8})
    assert found.data["best"]["GPU0"] == found.data["best"]["GPU1"] == ["mlx5_0"]
    assert "shared by 2 GPUs" in found.words("shared_nics")


def test_power9_has_no_nic_on_the_same_switch(capsys: Capsys) -> None:
    found = Audited(capsys, "smi-topo/power9-4v100-full.topo-m.txt")
    assert (found.verdict, found.nearest, found.of("same_switch")) == ("WARN", {"NODE": 4}, {"WARN"})


# IOMMU groups ------------------------------------------------------------------------------


def test_gpus_one_by_one_and_nvswitches_together(capsys: Capsys) -> None:
    found = Audited(capsys, "iommu/hgx-h200-nvswitch-group.fragment.txt")
    assert (found.verdict, found.of("groups_distinct"), found.of("groups_viable")) == ("FAIL", {"OK"}, {"FAIL"})
    assert "has nvidia" in found.words("groups_viable")
    assert "they go to one guest only together, or stay on the host" in found.words("nvswitches_together")
    assert len(found.data["gpus"]) == 8


# More cases made from these ----------------------------------------------------------------


def edited(tmp_path: Path, *changes: tuple[str, str]) -> Path:
    """The text of the first switch with replacements, each of which has to match."""
    text = corpus.file(SWITCH).read_text(encoding="utf-8")
    for pattern, new in changes:
        text, times = re.subn(pattern, new, text)
        assert times, pattern
    file = tmp_path / "edited.txt"
    file.write_text(text, encoding="utf-8")
    return file


def port(address: str, word: str) -> tuple[str, str]:
    """The control word of one port, as a replacement."""
    return rf"(\n{re.escape(address)} (?:.|\n)*?ACSCtl:\t)[^\n]*", rf"\1{word}"


GUESTS = "SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans"


@pytest.mark.parametrize("address", ["17:01.0", "17:02.0"])
def test_redirection_on_one_port_only(capsys: Capsys, tmp_path: Path, address: str) -> None:
    word = "SrcValid- TransBlk- ReqRedir+ CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-"
    found = Audited(capsys, edited(tmp_path, port(address, word)), "--mode", "bare_metal")
    assert found.verdict == "FAIL"
    failing = [one["path"] for one in found.data["findings"] if one["verdict"] == "FAIL"]
    assert failing == [[f"0000:{address}"]]
    assert [one["verdict"] for one in found.data["pairs"]] == ["FAIL"]


def test_direct_for_translated_requests(capsys: Capsys, tmp_path: Path) -> None:
    ats = "\tCapabilities: [f00 v1] Address Translation Service (ATS)\n\t\tATSCap:\tInvalidate Queue Depth: 00\n"
    ats += "\t\tATSCtl:\tEnable+, Smallest Translation Unit: 00\n"
    file = edited(
        tmp_path,
        *(port(address, f"{GUESTS}{'+' if address == '17:02.0' else '-'}") for address in ("17:01.0", "17:02.0")),
        port("15:01.0", f"{GUESTS}-"),
        (r"(\n1a:00\.0 (?:.|\n)*?)(\tKernel driver in use)", rf"\1{ats}\2"),
    )
    found = Audited(capsys, file)
    for rule in ("acs_direct_translated", "acs_redirect", "acs_dt_capable", "acs_translation_blocking", "ats_present"):
        assert found.of(rule) == {"OK"}, rule
    # The same word says translated requests go directly; without it the pair degrades.
    lacking = Audited(capsys, edited(tmp_path, *(port(one, f"{GUESTS}-") for one in ("17:01.0", "17:02.0", "15:01.0"))))
    assert lacking.of("acs_direct_translated") == {"FAIL"}
    assert lacking.of("acs_redirect") == {"OK"}


def test_without_numa_nodes_the_pairs_stay(capsys: Capsys, tmp_path: Path) -> None:
    found = Audited(capsys, edited(tmp_path, (r"\tNUMA node: .*\n", "")), "--mode", "bare_metal")
    assert found.of("numa_told") == found.of("numa_same") == {"UNKNOWN"}
    assert set(found.kinds.values()) == {"PIX"}


def test_cut_in_the_middle_of_a_device(capsys: Capsys, tmp_path: Path) -> None:
    text = corpus.file(SWITCH).read_text(encoding="utf-8")
    file = tmp_path / "cut.txt"
    file.write_text(text[: text.index("ACSCtl", text.index("17:02.0"))], encoding="utf-8")
    found = Audited(capsys, file)
    assert found.verdict == "UNKNOWN"
    assert found.data["missing"][0] == (
        "The input ends in the middle of 0000:17:02.0; the last function that is there in full is 0000:17:01.0."
    )


def test_capabilities_that_were_withheld(capsys: Capsys, tmp_path: Path) -> None:
    blocks = (r"(\tCapabilities: \[.*\n(\t\t.*\n)*)+", "\tCapabilities: <access denied>\n")
    found = Audited(capsys, edited(tmp_path, blocks), "--mode", "bare_metal")
    assert (found.verdict, found.of("acs_redirect")) == ("UNKNOWN", {"UNKNOWN"})
    assert "root" in found.words("acs_redirect")
    assert "run it as root" in " ".join(found.data["missing"])


def test_the_large_region_of_the_gpu(capsys: Capsys) -> None:
    machine = lspci.read(corpus.file(SWITCH).read_text(encoding="utf-8"))
    (gpu,) = (one for one in machine.tree if one.class_code == 0x030200)
    assert (2, 128 << 30) in [(bar.index, bar.size) for bar in gpu.bars]
