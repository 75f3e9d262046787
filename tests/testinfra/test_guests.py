"""H12, H30, H31 and H32 for guests: they are there, run, and have what is declared, as virsh and the kernel tell it."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import pytest
from testinfra.host import Host

from tests.testinfra import guests as seen
from tests.testinfra.conftest import NODES, Check
from tests.testinfra.guests import Domain, Wish
from tests.testinfra.wishes import Wishes

Read = Callable[[str], "str | None"]
VIRSH = "virsh dumpxml"
STARTER, INTENT = "gpudirect-guests.service", "/etc/gpudirect/intent.json"
FOLDER = "/var/lib/libvirt/images"


class Guests:
    """The guests that an inventory asks for, and all domains of the host."""

    def __init__(self, variables: dict[str, Any], domains: dict[str, Domain]) -> None:
        self.variables, self.domains = variables, domains
        self.wishes = seen.wishes_of(variables)

    @property
    def present(self) -> list[Wish]:
        """Those that are to be there and are."""
        return [one for one in self.wishes if one.state != "absent" and one.name in self.domains]

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.present]

    @property
    def running(self) -> list[tuple[Wish, ET.Element]]:
        """Those that run, with what they run with."""
        live = ((one, self.domains[one.name]) for one in self.present)
        return [(one, there.live) for one, there in live if there.runs and there.live is not None]


def guests_of(host: Host, check: Check) -> Guests:
    """What is asked for and there; a host whose libvirt does not answer fails every check that needs it."""
    variables = dict(host.ansible.get_variables())
    if not variables.get("guest_shapes"):
        check.does_not_apply("guest_shapes is empty")
    if host.run(seen.NETWORKS).rc != 0:
        said = host.run(seen.NETWORKS).stderr.strip() or "nothing"
        check.fails(wanted="libvirt tells its guests", found=said, evidence="virsh --connect qemu:///system")
    return Guests(variables, seen.domains_of(host.run(seen.DOMAINS).stdout))


@pytest.fixture
def guests(host: Host, check: Check) -> Guests:
    return guests_of(host, check)


def present_of(guests: Guests, check: Check) -> Guests:
    """Those of a host that has some of them."""
    if not guests.present:
        check.does_not_apply("no guest that is to be there is defined")
    return guests


@pytest.fixture
def present(guests: Guests, check: Check) -> Guests:
    return present_of(guests, check)


def told(check: Check, wrong: list[str], wanted: str, good: str, evidence: str = VIRSH) -> None:
    if wrong:
        check.fails(wanted=wanted, found="; ".join(wrong), evidence=evidence)
    check.passes(good)


def everywhere(guests: Guests, one: Callable[[Wish, ET.Element], list[str]]) -> list[str]:
    return list(seen.judged(guests.present, guests.domains, one))


def test_guests_are_there_and_run_as_declared(guests: Guests, check: Check) -> None:
    shown = ", ".join(f"{one.name} {guests.domains[one.name].state}" for one in guests.present)
    told(
        check,
        seen.wrong_states(guests.wishes, guests.domains),
        "each guest in its state",
        shown or "none is there",
        "virsh list --all",
    )


def test_libvirt_starts_no_guest_by_itself(present: Guests, check: Check) -> None:
    started = [name for name in present.names if present.domains[name].info.get("Autostart") != "disable"]
    told(
        check,
        started,
        "autostart off: the boot unit starts guests",
        f"off: {', '.join(present.names)}",
        "virsh dominfo",
    )


def test_boots_start_guests_or_none_of_a_drained_host(guests: Guests, host: Host, read: Read, check: Check) -> None:
    if str(guests.variables.get("host_boot_enabled", True)).lower() in ("false", "no"):
        check.does_not_apply("host_boot_enabled is false")
    drained = any(one.state == "drained" for one in guests.wishes)
    if not drained and not any(one.state == "running" and one.autostart for one in guests.wishes):
        check.does_not_apply("no guest is to be started by a boot")
    # The host's own intent for its boots; one that is not there starts none.
    kept = json.loads(read(INTENT) or "{}").get("options", {})
    wrong = [] if kept.get("guest_drain", False) is drained or not kept else ["another word on guest_drain"]
    state = host.run(f"systemctl is-enabled {STARTER}").stdout.strip() or "unknown to systemd"
    wrong += [] if drained or state == "enabled" else [f"{STARTER} is {state}"]
    wanted = "no guest started by a boot" if drained else f"guests started by {STARTER}"
    told(check, wrong, wanted, wanted, INTENT)


def test_h30_guests_have_the_declared_devices(present: Guests, wishes: Wishes, check: Check) -> None:
    wrong = everywhere(present, lambda wish, root: seen.passing(wish, root, wishes.functions))
    good = ", ".join(f"{one.name}: {one.gpus} GPUs, {one.vfs} VFs" for one in present.present)
    told(check, wrong, "the declared devices, by VFIO", good)


def test_h30_no_two_guests_share_a_device_or_cpu(present: Guests, check: Check) -> None:
    wrong = seen.twice(present.domains, present.names)
    told(check, wrong, "devices and CPUs of one guest each", f"{len(present.domains)} guests share nothing")


def test_h12_devices_of_guests_are_on_vfio(present: Guests, wishes: Wishes, check: Check) -> None:
    if not any(one.devices for one in present.present):
        check.does_not_apply("no guest has a device")
    wrong = everywhere(present, lambda _wish, root: seen.without_vfio(root, wishes.functions))
    told(
        check,
        wrong,
        "a vfio driver on each",
        f"devices of {', '.join(present.names)} are on vfio",
        "/sys/bus/pci/devices/*/driver",
    )


def test_h30_devices_are_on_their_node(present: Guests, wishes: Wishes, check: Check) -> None:
    with_nodes = [one for one in present.present if one.devices and one.topology != "flat"]
    if not with_nodes:
        check.does_not_apply("no guest has a device below a host bridge of its node")
    wrong = list(seen.judged(with_nodes, present.domains, lambda _wish, root: seen.misplaced(root, wishes.functions)))
    told(check, wrong, "each device on the cell of its node", ", ".join(one.name for one in with_nodes))


def test_h30_memory_is_in_huge_pages(present: Guests, check: Check) -> None:
    shown = ", ".join(
        f"{one.name}: {one.memory_kib >> 20} GiB in pages of {one.page_kib} KiB" for one in present.present
    )
    told(check, everywhere(present, seen.other_memory), "declared memory in huge pages, no balloon", shown)


def test_h32_memory_is_bound_to_its_nodes(present: Guests, nodes_with_memory: list[int], check: Check) -> None:
    wrong = everywhere(present, lambda _wish, root: seen.unbound(root, nodes_with_memory))
    told(check, wrong, "each cell strictly on one node", f"strict: {', '.join(present.names)}")


def test_h32_vcpus_have_cpus_of_their_own(
    present: Guests, read: Read, nodes_with_memory: list[int], check: Check
) -> None:
    cpus = {node: seen.numbers_of(read(f"{NODES}/node{node}/cpulist") or "") for node in nodes_with_memory}
    reserved = seen.numbers_of(str(present.variables.get("guest_reserved_cpus") or ""))
    wrong = everywhere(present, lambda wish, root: seen.unpinned(wish, root, cpus, reserved))
    shown = ", ".join(f"{one.name}: {one.vcpus}" for one in present.present)
    told(check, wrong, "each vCPU on a CPU of its own, of its node", shown)


def test_h32_memory_of_running_guests_is_on_their_nodes(present: Guests, host: Host, check: Check) -> None:
    if not present.running:
        check.does_not_apply("no guest runs")
    wrong, shown = [], []
    for wish, root in present.running:
        found = seen.resident(host.run(f"cat /proc/$(cat {seen.PIDS}/{wish.name}.pid)/numa_maps").stdout)
        if not found:
            check.unknown(f"the kernel shows no huge page of {wish.name}")
        wrong += [f"{wish.name}: {one}" for one in seen.elsewhere(root, found)]
        shown += [
            f"{wish.name}: " + ", ".join(f"{kib >> 20} GiB on node {node}" for node, kib in sorted(found.items()))
        ]
    told(check, wrong, "memory on the declared nodes only", "; ".join(shown), "/proc/PID/numa_maps")


def test_h31_no_log_tells_of_lost_paths(present: Guests, read: Read, check: Check) -> None:
    with_devices = [wish.name for wish, _root in present.running if wish.devices]
    if not with_devices:
        check.does_not_apply("no guest with devices runs")
    texts = {name: read(f"{seen.LOGS}/{name}.log") for name in with_devices}
    missing = [name for name, text in texts.items() if text is None]
    if missing:
        check.unknown(f"there is no log of {', '.join(missing)}")
    wrong = [f"{name}: {line}" for name, text in texts.items() for line in seen.complaints(text or "")]
    told(check, wrong, "no word of lost paths", f"logs of {', '.join(with_devices)}", seen.LOGS)


def test_disks_and_seeds_are_there(present: Guests, host: Host, check: Check) -> None:
    folder = str(present.variables.get("guest_image_folder") or FOLDER).rstrip("/")
    done: dict[str, int] = {}

    def size(path: str) -> int:
        if path not in done:
            text = host.run("stat -L -c %%s %s", path).stdout.strip()
            done[path] = int(text) if text else -1
        return done[path]

    wrong = everywhere(present, lambda wish, root: seen.without_files(wish, root, folder, size))
    told(check, wrong, "disk and seed of each guest", f"{folder}: {', '.join(present.names)}", folder)


def _declared(host: Host, name: str, check: Check) -> tuple[list[str], list[str]]:
    """Names that are to be active, and that are to be absent."""
    entries = host.ansible.get_variables().get(name) or []
    if not entries:
        check.does_not_apply(f"{name} is empty")
    gone = [str(one["name"]) for one in entries if one.get("state") == "absent"]
    return [str(one["name"]) for one in entries if str(one["name"]) not in gone], gone


@pytest.mark.parametrize(
    ("name", "command"), [("guest_networks", seen.NETWORKS), ("guest_pools", seen.POOLS)], ids=["networks", "pools"]
)
def test_declared_ones_are_active(host: Host, check: Check, name: str, command: str) -> None:
    wanted, gone = _declared(host, name, check)
    done = host.run(command)
    if done.rc != 0:
        check.fails(wanted="libvirt's answer", found=done.stderr.strip() or "nothing", evidence=command)
    found = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    wrong = [f"{one} is not active" for one in wanted if one not in found]
    wrong += [f"{one} is active and was to go" for one in gone if one in found]
    told(check, wrong, f"{name} active", ", ".join(wanted) or "none is left", command)
