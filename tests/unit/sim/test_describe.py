from __future__ import annotations

from pathlib import Path

import pytest

from sim.describe import Device, Host, read_hosts
from sim.errors import DescriptionError

ROOT = Path(__file__).resolve().parents[3]
SWITCH = "switches: [{numa_node: 0, bus: 32, devices: [{kind: igb, name: nic0}]}]\n"


def hosts_of(folder: Path, **texts: str) -> dict[str, Host]:
    hosts = folder / "hosts"
    hosts.mkdir()
    for name, text in texts.items():
        (hosts / f"{name.replace('_', '-')}.yml").write_text(text)
    return read_hosts(hosts)


def mistakes_of(folder: Path, **texts: str) -> list[str]:
    with pytest.raises(DescriptionError) as caught:
        hosts_of(folder, **texts)
    return caught.value.mistakes


def test_shipped_descriptions_are_valid() -> None:
    hosts = read_hosts(ROOT / "sim" / "hosts")
    assert [name for name, host in hosts.items() if host.default] == ["node-a", "node-b"]
    assert {"bad-no-iommu", "bad-no-python", "bad-no-root", "bad-full-boot", "node-amd"} <= set(hosts)
    devices = {"bad-no-acs", "bad-one-group", "bad-slow-link", "bad-few-vfs", "bad-boot-disk", "bad-swapped"}
    assert {name for name in hosts if name.startswith("bad-")} - {"bad-no-iommu"} >= devices


def test_like_inherits_what_is_not_said(tmp_path: Path) -> None:
    hosts = hosts_of(tmp_path, node_a=SWITCH + "iommu: intel\n", node_b="like: node-a\niommu: amd\n")
    assert hosts["node-b"].switches == hosts["node-a"].switches
    assert hosts["node-b"].iommu == "amd"


def test_like_reaches_over_several_hosts(tmp_path: Path) -> None:
    hosts = hosts_of(tmp_path, a="cpus: 4\n", b="like: a\nabout: b\n", c="like: b\n")
    assert (hosts["c"].cpus, hosts["c"].about) == (4, "b")


def test_null_peer_takes_the_cable_away(tmp_path: Path) -> None:
    hosts = hosts_of(tmp_path, a="peer: b\n", b="peer: a\n", c="like: a\npeer: null\n")
    assert hosts["c"].peer is None


def test_single_device_of_an_inherited_switch_can_differ(tmp_path: Path) -> None:
    hosts = hosts_of(tmp_path, a=SWITCH, b="like: a\ndevices: {nic0: {acs: false, serial: other}}\n", c="like: b\n")
    assert hosts["a"].switches[0].devices == (Device("igb", "nic0"),)
    assert hosts["b"].switches[0].devices == (Device("igb", "nic0", acs=False, serial="other"),)
    assert hosts["c"].switches == hosts["b"].switches


def test_slot_can_be_empty(tmp_path: Path) -> None:
    hosts = hosts_of(tmp_path, a=SWITCH + "devices: {nic0: {kind: empty}}\n")
    assert hosts["a"].switches[0].devices == (Device("empty", "nic0"),)


def test_typo_names_the_nearest_key(tmp_path: Path) -> None:
    assert mistakes_of(tmp_path, a="iomu: intel\n") == ["hosts/a.yml: iomu: unknown key. Did you mean iommu?"]


def test_key_like_no_other_lists_the_known_ones(tmp_path: Path) -> None:
    (mistake,) = mistakes_of(tmp_path, a="zzz: 1\n")
    assert mistake.startswith("hosts/a.yml: zzz: unknown key. Known keys: like, about,")


def test_all_mistakes_of_all_hosts_come_at_once(tmp_path: Path) -> None:
    device = "switches: [{numa_node: 0, bus: 32, devices: [{kind: gpu, name: x}, {knid: igb, name: y}]}]\n"
    found = mistakes_of(tmp_path, a="cpus: many\niommu: arm\n", b=device, c="like: nod\n")
    assert [mistake.partition(": ")[0] for mistake in found] == [
        *("hosts/c.yml", "hosts/a.yml", "hosts/a.yml", "hosts/b.yml", "hosts/b.yml", "hosts/b.yml"),
    ]
    assert "hosts/a.yml: cpus: wrong value (found 'many', wanted a whole number from 1 to 64). Correct it." in found
    assert "hosts/b.yml: switches[0].devices[1].knid: unknown key. Did you mean kind?" in found
    assert "hosts/b.yml: switches[0].devices[1].kind: missing in this device. Add it." in found


def test_inherited_mistake_is_told_once(tmp_path: Path) -> None:
    assert len(mistakes_of(tmp_path, a="cpus: 0\n", b="like: a\n")) == 1


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("like: b\n", "hosts/a.yml: like: no host b is described. Name another host."),
        ("like: a\n", "hosts/a.yml: like: a inherits from itself. Break the circle."),
        ("- a\n", "hosts/a.yml: no table of keys (wanted a mapping). Write 'key: value' lines."),
        ("cpus: [\n", "hosts/a.yml: not YAML at line 2. Correct the syntax."),
        ("peer: z\n", "hosts/a.yml: peer: no host z is described. Name a described host."),
        (
            "cpus: true\n",
            "hosts/a.yml: cpus: wrong value (found True, wanted a whole number from 1 to 64). Correct it.",
        ),
        (
            "cpus: 3\n",
            "hosts/a.yml: cpus: the NUMA nodes cannot share them evenly (found 3 CPUs, 2 nodes). Take a multiple of 2.",
        ),
        (
            SWITCH.replace("numa_node: 0", "numa_node: 2"),
            "hosts/a.yml: switches[0].numa_node: NUMA node 2 has no memory (found 2 nodes). Extend memory_mib.",
        ),
        (
            SWITCH.replace("nic0}", "nic0}, {kind: nvme, name: nic0}"),
            "hosts/a.yml: switches: two devices are called nic0. Rename one.",
        ),
        (
            SWITCH + "devices: {nic1: {acs: false}}\n",
            "hosts/a.yml: devices.nic1: no such device. Did you mean nic0?",
        ),
        (
            SWITCH + "devices: {nic0: {asc: false}}\n",
            "hosts/a.yml: devices.nic0.asc: unknown key. Did you mean acs?",
        ),
        (
            SWITCH + "devices: {nic0: {name: other}}\n",
            "hosts/a.yml: devices.nic0.name: unknown key. Known keys: kind, mib, bar_mib, acs, serial, lanes, slot_of.",
        ),
        (
            SWITCH + "devices: [nic0]\n",
            "hosts/a.yml: devices: wrong value (found ['nic0'], wanted devices by name, each with the keys that differ)."
            " Correct it.",
        ),
        (
            SWITCH.replace("nic0}", "nic0}, {kind: testdev, name: gpu1, lanes: 8}"),
            "hosts/a.yml: gpu1: this testdev has no link to be wider (found lanes 8). Take lanes away.",
        ),
    ],
)
def test_mistake_says_where_and_what_to_do(tmp_path: Path, text: str, wanted: str) -> None:
    assert mistakes_of(tmp_path, a=text) == [wanted]


def test_file_name_must_be_a_host_name(tmp_path: Path) -> None:
    (mistake,) = mistakes_of(tmp_path, Node="cpus: 2\n")
    assert mistake.startswith("hosts/Node.yml: the file name is no host name")
