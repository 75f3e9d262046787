"""Texts that lspci prints, one matter each, and texts that it does not print."""

from __future__ import annotations

import time

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import ABSENT, Unreadable
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import UnreadableState
from ansible_collections.vela.gpudirect.plugins.module_utils.pci import lspci, lspci_text
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.capabilities import Ats, Express, Words
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.topology import topology
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.tree import Sriov

from tests.unit.pci.machines import at

CONTROL = "\tControl: I/O- Mem+ BusMaster+\n\tStatus: Cap+ 66MHz-\n"
NIC = (
    "3b:00.0 Infiniband controller [0207]: Mellanox Technologies MT28908 [15b3:101b]\n"
    "\tSubsystem: Mellanox Technologies Device [15b3:0007]\n" + CONTROL + "\tNUMA node: 1\n\tIOMMU group: 44\n"
    "\tRegion 0: Memory at 94000000 (64-bit, prefetchable) [size=32M]\n"
    "\tExpansion ROM at <ignored> [disabled]\n"
    "\tCapabilities: [60] Express (v2) Endpoint, IntMsgNum 0\n"
    "\t\tDevCtl:\tCorrErr- NonFatalErr-\n"
    "\t\t\tRlxdOrd+ ExtTag+ PhantFunc-\n"
    "\t\t\tMaxPayload 256 bytes, MaxReadReq 512 bytes\n"
    "\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported\n"
    "\t\tLnkSta:\tSpeed 8GT/s (downgraded), Width x8 (downgraded)\n"
    "\tCapabilities: [100 v1] Single Root I/O Virtualization (SR-IOV)\n"
    "\t\tIOVCtl:\tEnable+ Migration-\n"
    "\t\tInitial VFs: 8, Total VFs: 8, Number of VFs: 2, Function Dependency Link: 00\n"
    "\t\tVF offset: 1, stride: 1, Device ID: 101c\n"
    "\tCapabilities: [200 v1] Address Translation Service (ATS)\n"
    "\t\tATSCap:\tInvalidate Queue Depth: 00\n"
    "\t\tATSCtl:\tEnable+, Smallest Translation Unit: 02\n"
    "\tKernel driver in use: mlx5_core\n\n"
)
VFS = "".join(
    f"3b:00.{number} Infiniband controller [0207]: Mellanox Technologies MT28908 Family [ConnectX-6 Virtual Function] [15b3:101c]\n"
    for number in (1, 2)
)
PORT = (
    "3a:00.0 PCI bridge [0604]: Intel Corporation Device [8086:347a] (rev 06) (prog-if 00 [Normal decode])\n"
    + CONTROL
    + "\tBus: primary=3a, secondary=3b, subordinate=3c, sec-latency=0\n"
    "\tMemory behind bridge: 94000000-95ffffff [size=32M] [32-bit]\n"
    "\tI/O behind bridge: [disabled] [16-bit]\n"
    "\tCapabilities: [40] Express (v2) Root Port (Slot+), MSI 00\n"
    "\t\tLnkSta:\tSpeed 8GT/s, Width x8, TrErr- Train- SlotClk+ DLActive+ BWMgmt- ABWMgmt-\n"
    "\tCapabilities: [110 v1] Access Control Services\n"
    "\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n"
    "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n\n"
)
HOST = "00:00.0 Host bridge [0600]: Intel Corporation Device [8086:09a2]\n\n"


def said(text: str) -> str:
    return " ".join(lspci.read(text).missing)


def test_a_port_a_nic_and_its_vfs() -> None:
    machine = lspci.read(HOST + PORT + NIC + VFS, "node-1")
    assert (machine.name, machine.source, machine.partial) == ("node-1", "lspci -vvv", False)
    port, nic, vf = (at(machine.tree, address) for address in ("3a:00.0", "3b:00.0", "3b:00.2"))
    assert (nic.ids, nic.subsystem_vendor, nic.subsystem_device) == ("15b3:101b", 0x15B3, 7)
    assert (nic.parent, nic.root_bus, machine.tree.port(vf)) == (port.address, "pci0000:3a", "pci0000:3a/00.0/00.0/vf1")
    assert (nic.numa_node, nic.iommu_group, nic.driver) == (1, 44, "mlx5_core")
    assert nic.capabilities.express == Express(0, 512, 256, True)
    assert nic.capabilities.ats == Ats(0, 0x8002)
    assert nic.capabilities.acs is ABSENT
    assert (nic.link.speed, nic.link.speed_max, nic.link.width, nic.link.width_max) == (80, 160, 8, 16)
    assert isinstance(nic.sriov, Sriov)
    assert nic.sriov.vfs == (at(machine.tree, "3b:00.1").address, vf.address)
    assert (vf.physfn, vf.parent) == (nic.address, port.address)
    assert [(bar.index, bar.start, bar.size, bar.flags) for bar in nic.bars] == [(0, 0x94000000, 32 << 20, 0x14220C)]
    assert port.capabilities.acs == Words(0x1F, 0x1D)
    assert (port.secondary_bus, port.subordinate_bus) == (0x3B, 0x3C)
    assert [(bar.index, bar.size) for bar in port.bars] == [(14, 32 << 20)]
    assert isinstance(port.iommu_group, Unreadable)


def test_what_a_text_told_is_shown() -> None:
    shown = {one["address"]: one for one in topology(lspci.read(HOST + PORT + NIC + VFS).tree)["functions"]}
    assert shown["0000:3a:00.0"]["acs"]["control"] == "001d"
    assert shown["0000:3a:00.0"]["express"]["port_type"] == "root port"
    assert shown["0000:3b:00.0"]["express"]["max_read_request_bytes"] == 512
    assert set(shown["0000:3b:00.1"]["acs"]) == set(shown["0000:3b:00.1"]["subsystem_vendor"]) == {"unreadable"}
    assert shown["0000:3b:00.1"]["class"] == "0207"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HOST + PORT, "nothing is listed below 0000:3a:00.0, although the link there is up"),
        (HOST + PORT + NIC, "of the VFs of 0000:3b:00.0 that are switched on, 0000:3b:00.1, 0000:3b:00.2 are not"),
        (HOST + NIC + VFS, "the bridges above 0000:3b:00.0, 0000:3b:00.1, 0000:3b:00.2 are not"),
        (PORT + NIC + VFS, "none is on bus 00 of domain 0000"),
        (HOST + PORT + NIC.rstrip()[:-60] + "\n", "The input ends in the middle of 0000:3b:00.0; the last function that is there in full is 0000:3a:00.0."),
        (NIC[:500], "The input ends in the middle of 0000:3b:00.0; none is there in full."),
        (HOST + "1ff:00.0 Bridge [0680]: X [10de:22a3]\n\tNUMA node: 1\n", "('1ff:00.0' in line 3)"),
        (HOST + "00:20.0 Bridge [0680]: X [10de:22a3]\n", "('00:20.0' in line 3)"),
        (PORT + PORT.replace("secondary=3b", "secondary=3a") + HOST, "0000:3a:00.0 (buses)"),
        (HOST + HOST, "0000:00:00.0 are in the input more than once, without contradiction"),
        (HOST + PORT.replace("secondary=3b", "secondary=39"), "buses 39 to 3c are below it, which cannot be"),
        (HOST + PORT + PORT.replace("3a:00.0", "3a:01.0"), "both say that bus 3b is below them"),
        (HOST + PORT[: PORT.index("\tBus")] + "\n", "does not say what is below 0000:3a:00.0"),
        (HOST + PORT + NIC.partition("\n")[2], "From line 15 on the input speaks of a function whose first line is missing"),
        (HOST + PORT.rstrip() + "\n" + NIC.partition("\n")[2], "Lines are missing after those of 0000:3a:00.0"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_said(text: str, expected: str) -> None:
    assert expected in said(text)


def test_noise_around_it_does_not_matter() -> None:
    noisy = "pcilib: Cannot open /x\nroot@host:~# lspci -vvv\n" + HOST + PORT + NIC + VFS + "root@host:~# \n"
    plain, other = lspci.read(HOST + PORT + NIC + VFS), lspci.read(noisy)
    assert other.tree == plain.tree
    assert lspci.read((HOST + PORT + NIC + VFS).replace("\t", "        ")).tree == plain.tree


def test_a_function_that_does_not_answer() -> None:
    text = (
        HOST
        + "01:00.0 3D controller [0302]: NVIDIA Corporation X [10de:20b2] (rev ff) (prog-if ff)\n\t!!! Unknown header type 7f\n\n"
    )
    machine = lspci.read(text)
    gpu = at(machine.tree, "01:00.0")
    assert gpu.ids == "10de:20b2"
    assert "does not answer" in gpu.unread["revision"]
    assert isinstance(gpu.capabilities.acs, Unreadable)
    assert "did not answer" in " ".join(machine.missing)


def test_a_name_that_nobody_knows() -> None:
    machine = lspci.read(HOST + "00:05.0 Flux capacitor: Emmett Device 1955\n00:06.0 3D controller: ACME X\n")
    assert "'Flux capacitor' is not known by name" in next(iter(machine.tree.unread.values()))
    assert at(machine.tree, "00:06.0").ids == "????:????"


def dump(*changes: tuple[int, int], size: int = 64) -> str:
    data = bytearray(size)
    for at_byte, value in [(0, 0xDE), (1, 0x10), (2, 0xB2), (3, 0x20), (10, 0x02), (11, 0x03), *changes]:
        data[at_byte] = value
    return "".join(f"{row:02x}: {data[row : row + 16].hex(' ')}\n" for row in range(0, size, 16))


def test_bytes_are_taken_where_text_says_another_thing() -> None:
    text = "00:06.0 VGA compatible controller [0300]: X [10de:1111] (rev a1)\n" + dump(size=256) + "\n"
    machine = lspci.read(text)
    (one,) = machine.tree
    assert (one.ids, one.class_code, one.revision) == ("10de:20b2", 0x030200, 0)
    assert (
        "Text and bytes of 0000:00:06.0 disagree about device, class, revision; the bytes are used." in machine.missing
    )
    assert one.capabilities.acs is ABSENT  # conventional PCI
    assert machine.source == "lspci -xxx"


def test_a_hexdump_with_a_gap_ends_there() -> None:
    lines = dump(size=256).splitlines(keepends=True)
    machine = lspci.read("00:06.0 3D controller [0302]: X [10de:20b2]\n" + "".join(lines[:5] + lines[6:]))
    (one,) = machine.tree
    assert len(one.config.data) == 80
    assert "have gaps" in " ".join(machine.missing)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "x: is not the output of lspci (found no text, "),
        ("hello\n", "x: is not the output of lspci (found no line that begins with one, "),
        ("\0\0\n", "x: is not the output of lspci"),
        ("1ff:00.0 X\n", "found a line that begins like a PCI address and is none"),
        ("-[0000:00]-+-00.0  Intel\n           +-01.0  X\n", "x: is output of lspci -t, which does not say enough"),
        ("-+-[0000:ff]-+-00.0\n |           \\-00.1\n", "x: is output of lspci -t"),
        ("Slot:\t00:00.0\nClass:\tHost bridge\n", "x: is output of lspci -vmm"),
        ('00:00.0 "Host bridge" "Intel" "X"\n', "x: is output of lspci -m"),
    ],
)
def test_what_is_no_such_text_is_refused(text: str, expected: str) -> None:
    with pytest.raises(UnreadableState) as caught:
        lspci.read(text, "x")
    assert expected in str(caught.value)
    assert str(caught.value).endswith("Run lspci -D -nn -vvv as root (-xxxx adds the bytes) and give its whole output.")


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lspci, "MOST_CHARACTERS", 10)
    with pytest.raises(UnreadableState, match=r"^x: is too long \(found 11 characters, wanted at most 10\)\. Run"):
        lspci.read("x" * 11, "x")
    monkeypatch.undo()
    monkeypatch.setattr(lspci_text, "MOST_FUNCTIONS", 3)
    many = "".join(f"00:{number:02x}.0 Host bridge [0600]: X [8086:1234]\n" for number in range(9))
    with pytest.raises(UnreadableState, match="^x: has too many functions"):
        lspci.read(many, "x")


@pytest.mark.parametrize(
    "text",
    [
        HOST + "\t" + "Capabilities: [40] " + "Express (v2) " * 80000 + "\n",
        HOST + "a:" * 500000 + "\n",
        HOST + "\t[virtual] " * 100000 + "\n",
        HOST + "00: " + "00 " * 300000 + "\n",
        HOST + "\n" * 2_000_000,
        HOST + "\tSubsystem: " + "[" * 1000000 + "\n",
        "".join(
            f"{n:04x}:{b:02x}:00.0 PCI bridge [0604]: X [8086:1]\n"
            f"\tBus: primary={b:02x}, secondary={b + 1:02x}, subordinate=ff, sec-latency=0\n"
            for n in range(40) for b in range(255)
        ),
    ],
)  # fmt: skip
def test_odd_texts_take_no_longer_than_others(text: str) -> None:
    started = time.process_time()
    lspci.read(text)
    assert time.process_time() - started < 5
