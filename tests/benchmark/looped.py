"""A role of small tasks that looks at the same host and settings: what one module is measured against.

It only looks, and compares what it finds. What the running kernel tells by netlink is read from a file with the words of
``ip``, which costs it no more than asking. The requests that set a VF are one task each, as such roles have them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.benchmark.machines import Answering
from tests.fixtures.fake_nic import Nic, Vf

SYSFS = "/sys/bus/pci/devices"
PAGES = "/sys/devices/system/node/node{node}/hugepages/hugepages-{kib}kB/nr_hugepages"
# By the option in the words of an item: what a VF's line of ip has where it is as wanted.
OF_A_VF = ("mac", "vlan", "spoofchk", "trust", "link_state", "rate")
TOLD = "/run/told-by-ip-of-{name}"

Task = dict[str, Any]


def tell(host: Answering) -> None:
    """Leave the words of ip in files of the host's tree."""
    for nic in host.nics.values():
        host.put(TOLD.format(name=nic.name), "".join(f"{_line(number, vf)}\n" for number, vf in enumerate(nic.vfs)))


def _words(vf: Vf) -> dict[str, str]:
    return {
        "mac": f"link/ether {vf.mac}",
        "vlan": f"vlan {vf.vlan}, qos {vf.qos}",
        "spoofchk": f"spoof checking {'on' if vf.spoofchk else 'off'}",
        "trust": f"trust {'on' if vf.trust else 'off'}",
        "link_state": f"link-state {vf.link_state}",
        "rate": f"max_tx_rate {vf.max_tx_rate}Mbps, min_tx_rate {vf.min_tx_rate}Mbps",
    }


def _line(number: int, vf: Vf) -> str:
    return f"vf {number} " + ", ".join(_words(vf).values())


def variables(host: Answering) -> dict[str, Any]:
    """What the role loops over, as plain data."""
    root = host.root
    ports = [(host.machine[address], nic) for address, nic in host.nics.items()]
    playing_gpus = [one for one in host.machine.by_address() if (one.vendor, one.device) == (0x1B36, 0x0005)]
    return {
        "looped_vfs": [_vf(root, pf.address, nic, number) for pf, nic in ports for number in range(len(nic.vfs))],
        "looped_ports": [_port(root, pf.address, nic) for pf, nic in ports],
        "looped_gpus": [f"{root}{SYSFS}/{one.address}" for one in playing_gpus],
        "looped_pages": [
            {"file": f"{root}{PAGES.format(node=node, kib=kib)}", "count": str(count)}
            for node in (0, 1)
            for kib, count in ((1048576, 24), (2048, 64))
        ],
        "looped_words": [*host.line().split()[-4:]],
        "looped_files": [f"{root}{path}" for path in sorted(_written(host))],
        "looped_line": f"{root}/proc/cmdline",
    }


def _vf(root: str, pf: str, nic: Nic, number: int) -> dict[str, Any]:
    told = f"{root}{TOLD.format(name=nic.name)}"
    return {"folder": f"{root}{SYSFS}/{pf}/virtfn{number}", "number": number, "told": told, **_words(nic.vfs[number])}


def _port(root: str, pf: str, nic: Nic) -> dict[str, Any]:
    return {"folder": f"{root}{SYSFS}/{pf}", "netdev": nic.name, "vfs": str(len(nic.vfs)), "mtu": str(nic.mtu)}


def _written(host: Answering) -> Iterator[str]:
    """Files that the engine put on the host: what it judges besides devices."""
    for folder in ("/etc", "/usr/local"):
        for file in host.path(folder).rglob("*gpudirect*"):
            if file.is_file():
                yield f"/{file.relative_to(host.root)}"


def playbook() -> list[dict[str, Any]]:
    """The role's tasks as a play; every one of them leaves a host that is as wanted unchanged."""
    link, text = "readlink", "cat"
    vfs, ports, gpus = "{{ looped_vfs }}", "{{ looped_ports }}", "{{ looped_gpus }}"
    is_vfio = "'vfio-pci' not in found.stdout"
    tasks = [
        _stat("files", "{{ looped_files }}", "{{ item }}"),
        _command("words", "{{ looped_words }}", [text, "{{ looped_line }}"], "item not in found.stdout"),
        _command("pages", "{{ looped_pages }}", [text, "{{ item.file }}"], "item.count != found.stdout"),
        _command("gpu driver", gpus, [link, "{{ item }}/driver"], is_vfio),
        _command("gpu override", gpus, [text, "{{ item }}/driver_override"], is_vfio),
        _command("gpu group", gpus, [link, "{{ item }}/iommu_group"], "false"),
        _command("vfs of a port", ports, [text, "{{ item.folder }}/sriov_numvfs"], "item.vfs != found.stdout"),
        _command("autoprobe", ports, [text, "{{ item.folder }}/sriov_drivers_autoprobe"], "'0' != found.stdout"),
        _command("mtu", ports, [text, "{{ item.folder }}/net/{{ item.netdev }}/mtu"], "item.mtu != found.stdout"),
        _stat("vf", vfs, "{{ item.folder }}"),
        _command("vf driver", vfs, [link, "{{ item.folder }}/driver"], is_vfio),
        _command("vf override", vfs, [text, "{{ item.folder }}/driver_override"], is_vfio),
        _command("vf group", vfs, [link, "{{ item.folder }}/iommu_group"], "false"),
    ]
    grep = ["grep", "vf {{ item.number }} ", "{{ item.told }}"]
    tasks += [_command(f"vf {name}", vfs, grep, f"item.{name} not in found.stdout") for name in OF_A_VF]
    return [{"name": "Small tasks", "hosts": "gpudirect_hosts", "gather_facts": False, "tasks": tasks}]


def _command(name: str, items: str, argv: list[str], differs: str) -> Task:
    return {
        "name": f"Look at {name}",
        "ansible.builtin.command": {"argv": argv},
        "register": "found",
        "changed_when": differs,
        "loop": items,
    }


def _stat(name: str, items: str, path: str) -> Task:
    return {
        "name": f"Look at {name}",
        "ansible.builtin.stat": {"path": path, "get_checksum": False},
        "register": "found",
        "failed_when": "not found.stat.exists",
        "loop": items,
    }


def executions(given: Mapping[str, Any]) -> int:
    """Modules that the role has a host run: one for each item of each of its loops."""
    return sum(len(given[task["loop"].strip("{} ")]) for task in playbook()[0]["tasks"])


def write_playbook(folder: Path) -> Path:
    """The play as a file."""
    file = folder / "looped.json"
    file.write_text(json.dumps(playbook()))
    return file
