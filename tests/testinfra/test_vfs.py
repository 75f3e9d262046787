"""H18, H19 and H22: ports have the declared VFs, the VFs their attributes, and the ports link and MTU."""

from __future__ import annotations

import json
from typing import Any

import pytest
from testinfra.host import Host

from tests.testinfra.conftest import Check
from tests.testinfra.pci import DEVICES
from tests.testinfra.wishes import Port, Wishes, vf_differences

SHOW = "ip -j -d link show"


@pytest.fixture
def ports(wishes: Wishes, check: Check) -> tuple[Port, ...]:
    if not wishes.ports:
        check.does_not_apply("sriov_ports is empty, or matches no port")
    return wishes.ports


@pytest.fixture(scope="module")
def links(host: Host) -> dict[str, dict[str, Any]]:
    """Network devices by name as iproute2 shows them; empty where it shows none."""
    done = host.run(SHOW)
    return {link["ifname"]: link for link in json.loads(done.stdout or "[]") if "ifname" in link}


def _of(port: Port, links: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return next((links[name] for name in port.pf.netdevs if name in links), {})


def test_h18_ports_have_the_declared_vfs(ports: tuple[Port, ...], check: Check) -> None:
    wrong = [said for port in ports for said in _count_differences(port)]
    if wrong:
        check.fails(wanted="the declared VFs", found="; ".join(wrong), evidence=f"{DEVICES}/*/sriov_* and virtfn*")
    check.passes(", ".join(f"{port.pf.address} {port.vfs} of {_value(port, 'totalvfs')}" for port in ports))


def _value(port: Port, name: str) -> str:
    return port.pf.values.get(f"sriov_{name}", "nothing")


def _count_differences(port: Port) -> list[str]:
    autoprobe = "1" if port.autoprobe else "0"
    said = []
    if _value(port, "numvfs") != str(port.vfs) or len(port.pf.vfs) != port.vfs:
        found = f"sriov_numvfs {_value(port, 'numvfs')} with {len(port.pf.vfs)} VFs"
        said.append(f"{port.pf.shown()}: {found} in the place of {port.vfs}")
    if _value(port, "drivers_autoprobe") != autoprobe:
        found = _value(port, "drivers_autoprobe")
        said.append(f"{port.pf.shown()}: sriov_drivers_autoprobe {found} in the place of {autoprobe}")
    return said


def test_h19_vfs_have_the_declared_attributes(
    ports: tuple[Port, ...], links: dict[str, dict[str, Any]], check: Check
) -> None:
    wrong: list[str] = []
    macs: dict[str, str] = {}
    for port in ports:
        told = {entry["vf"]: entry for entry in _of(port, links).get("vfinfo_list") or []}
        for number, wanted in port.attributes.items():
            name = f"VF {number} of {port.pf.address}"
            found = told.get(number)
            differences = ["is not told"] if found is None else vf_differences(wanted, found)
            wrong += [f"{name}: {one}" for one in differences]
            mac = str((found or {}).get("address", name))
            if mac in macs and mac.strip("0:"):
                wrong.append(f"{name} and {macs[mac]} both have {mac}")
            macs[mac] = name
    if wrong:
        check.fails(wanted="the declared attributes of each VF", found="; ".join(wrong), evidence=SHOW)
    if not macs:
        check.does_not_apply("no VF is declared")
    check.passes(", ".join(sorted(macs)))


def test_h22_ports_have_link_and_mtu(ports: tuple[Port, ...], links: dict[str, dict[str, Any]], check: Check) -> None:
    used = [port for port in ports if port.vfs or port.mtu is not None]
    if not used:
        check.does_not_apply("no port has VFs or an MTU")
    wrong = []
    for port in used:
        link = _of(port, links)
        if port.vfs and (link.get("operstate") != "UP" or "LOWER_UP" not in link.get("flags", ())):
            wrong.append(f"{port.pf.shown()}: link {link.get('operstate', 'not told')} in the place of UP")
        if port.mtu is not None and link.get("mtu") != port.mtu:
            wrong.append(f"{port.pf.shown()}: MTU {link.get('mtu', 'not told')} in the place of {port.mtu}")
    if wrong:
        check.fails(wanted="link and the declared MTU on each port", found="; ".join(wrong), evidence=SHOW)
    check.passes(", ".join(f"{_of(port, links)['ifname']} UP, MTU {_of(port, links)['mtu']}" for port in used))
