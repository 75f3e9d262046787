"""Guests on a libvirt that reacts: prediction, idempotence, what is kept, what waits for consent, and undo."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import (
    ApplyFailed,
    ConsentRequired,
    HostRefused,
    VerificationFailed,
)
from ansible_collections.vela.gpudirect.plugins.module_utils.core.owned import PATH as OWNED

from tests.fixtures.fake_libvirt import FakeGuestHost
from tests.fixtures.libvirt_hosts import FOLDER, built, failing, guests, look, run, settle, shape, with_files

ONE = guests(shape())


@pytest.fixture
def host(tmp_path: Path) -> FakeGuestHost:
    return with_files(built(tmp_path / "root"))


def domain(host: FakeGuestHost, name: str = "train") -> ET.Element:
    root = host.libvirt.domains.kept[name].inactive
    assert root is not None
    return root


def devices(root: ET.Element | None) -> list[str]:
    assert root is not None
    return [alias.get("name", "") for alias in root.iterfind("devices/hostdev/alias")]


def test_a_guest_is_defined_and_started_and_a_second_run_writes_nothing(host: FakeGuestHost) -> None:
    predicted = look(ONE, host)
    report = run(ONE, host)
    assert report.as_result()["plan"] == predicted.as_result()["plan"]
    assert [change.path for change in report.plan.changes] == [
        "libvirt_guest[train].definition",
        "libvirt_guest[train].state",
    ]
    assert report.verified
    kept = host.libvirt.domains.kept["train"]
    assert devices(kept.live) == ["ua-gpu0", "ua-vf0"]
    assert not kept.autostart
    with host.only_read():
        again = run(ONE, host)
    assert (again.changed, again.verified) == (False, True)


def test_intent_that_goes_takes_guest_nvram_and_record_with_consent(host: FakeGuestHost) -> None:
    state = host.libvirt.state()
    settle(ONE, host)
    assert "Set gpudirect_allow: guest" in failing(ConsentRequired, {}, host)
    report = settle({}, host)
    assert [change.path for change in report.plan.changes] == [
        f"libvirt_guest[train].{part}" for part in ("state", "definition")
    ]
    assert host.libvirt.state() == state
    assert all(host.exists(f"{FOLDER}/train{end}") for end in (".qcow2", "-seed.iso"))  # those are guest_image's
    assert not list(host.path("/var/lib/libvirt/qemu/nvram").iterdir())
    assert not host.owned()


def test_state_absent_does_the_same_and_defined_stops(host: FakeGuestHost) -> None:
    settle(ONE, host)
    stopped = guests(shape(state="defined"))
    assert "it is not to run" in failing(ConsentRequired, stopped, host)
    settle(stopped, host)
    assert host.libvirt.domains.kept["train"].live is None
    settle(guests(shape(state="absent")), host)
    assert not host.libvirt.domains.kept
    assert not host.owned()


def test_a_running_guest_waits_for_consent_to_be_restarted(host: FakeGuestHost) -> None:
    settle(ONE, host)
    more = guests(shape(memory_gib=16))
    report = run(more, host)
    assert [change.path for change in report.plan.changes] == ["libvirt_guest[train].definition"]
    assert report.verified is False
    (waiting,) = report.as_result()["awaiting_consent"]
    assert waiting["path"] == "libvirt_guest[train].restart"
    assert "memory is 8388608, wanted 16777216" in waiting["why"]
    assert domain(host).findtext("memory") == "16777216"
    live = host.libvirt.domains.kept["train"].live
    assert live is not None
    assert live.findtext("memory") == "8388608"
    again = look(more, host)
    assert (again.plan.changes, len(again.plan.awaiting_consent)) == ((), 1)
    settle(more, host)
    live = host.libvirt.domains.kept["train"].live
    assert live is not None
    assert live.findtext("memory") == "16777216"


def test_a_device_leaves_a_running_guest_only_with_consent(tmp_path: Path) -> None:
    host = with_files(built(tmp_path / "root"), "train", "other")
    settle(guests(shape(gpus=2)), host)
    both = guests(shape(gpus=1), shape("other"))
    run(both, host)
    assert devices(host.libvirt.domains.kept["train"].live) == ["ua-gpu0", "ua-vf0", "ua-gpu1", "ua-vf1"]
    assert host.libvirt.domains.kept["other"].live is None
    waiting = look(both, host).plan.awaiting_consent
    assert [change.path for change in waiting] == ["libvirt_guest[train].restart", "libvirt_guest[other].state"]
    settle(both, host)
    assert devices(host.libvirt.domains.kept["train"].live) == ["ua-gpu0", "ua-vf0"]
    assert devices(host.libvirt.domains.kept["other"].live) == ["ua-gpu0", "ua-vf0"]


def test_what_others_added_stays_and_what_they_changed_of_ours_goes_back(host: FakeGuestHost) -> None:
    settle(guests(shape(state="defined")), host)
    root = domain(host)
    parts = root.find("devices")
    assert parts is not None
    ET.SubElement(parts, "watchdog", {"model": "itco", "action": "reset"})
    ET.SubElement(root.find("features"), "pmu", {"state": "on"})  # type: ignore[arg-type]
    ET.SubElement(root, "description").text = "a person's words"
    assert look(guests(shape(state="defined")), host).plan.empty
    root.find("cputune/vcpupin").set("cpuset", "0-63")  # type: ignore[union-attr]
    ET.SubElement(root.find("memoryBacking"), "source", {"type": "memfd"})  # type: ignore[arg-type]
    parts.remove(parts.find("hostdev"))  # type: ignore[arg-type]
    report = settle(guests(shape(state="defined")), host)
    assert "hostdev[ua-gpu0] is absent, wanted there" in report.plan.changes[0].why
    root = domain(host)
    assert devices(root) == ["ua-gpu0", "ua-vf0"]
    assert root.find("cputune/vcpupin").get("cpuset") != "0-63"  # type: ignore[union-attr]
    for path in (
        "devices/watchdog",
        "features/pmu",
        "description",
        "memoryBacking/source",
        "devices/audio",
        "os/nvram",
    ):
        assert root.find(path) is not None, path
    assert root.find("os/type").get("machine") == "pc-q35-7.2"  # type: ignore[union-attr]


def test_what_we_do_not_want_any_more_goes(host: FakeGuestHost) -> None:
    settle(guests(shape(vfs_per_gpu=2, state="defined")), host)
    assert devices(domain(host)) == ["ua-gpu0", "ua-vf0", "ua-vf1"]
    settle(guests(shape(vfs_per_gpu=0, state="defined")), host)
    assert devices(domain(host)) == ["ua-gpu0"]


def test_a_guest_that_is_to_go_is_named_and_no_more(host: FakeGuestHost) -> None:
    settle(ONE, host)
    settle(guests({"name": "train", "state": "absent"}), host)
    assert not host.libvirt.domains.kept


def test_autostart_of_libvirt_is_switched_off(host: FakeGuestHost) -> None:
    settle(ONE, host)
    host.libvirt.domains.kept["train"].autostart = True
    assert [one.path for one in settle(ONE, host).plan.changes] == ["libvirt_guest[train].autostart"]


def test_a_domain_of_others_is_refused_by_name_and_keeps_its_devices(host: FakeGuestHost) -> None:
    settle(guests(shape(state="defined")), host)
    foreign = ET.tostring(domain(host), encoding="unicode")
    settle({}, host)
    with_files(host)
    foreign = re.sub(r"<metadata>.*</metadata>", "", foreign, flags=re.DOTALL)
    host.libvirt.domains.define(foreign)
    said = failing(HostRefused, ONE, host)
    assert said.startswith("guest_shapes[0].name: the domain train on this host was not made by vela.gpudirect. Give ")
    said = failing(HostRefused, guests(shape("other", gpus=2)), host)
    assert "guest train (not ours)" in said
    assert failing(HostRefused, guests(shape(state="absent")), host).startswith("guest_shapes[0].name: the domain")
    assert list(host.libvirt.domains.kept) == ["train"]


def test_a_device_that_is_not_on_vfio_is_refused_by_name_and_driver(host: FakeGuestHost) -> None:
    gpus = [one for one in host.path("/sys/bus/pci/devices").iterdir() if (one / "class").read_text() == "0x030200\n"]
    for gpu in gpus:
        (gpu / "driver").unlink()
        (gpu / "driver").symlink_to("../../../../bus/pci/drivers/nvidia")
    said = failing(HostRefused, ONE, host)
    assert "has driver nvidia" in said
    assert any(gpu.name in said for gpu in gpus)


def test_a_guest_is_not_moved_to_other_devices_unless_somebody_says_so(host: FakeGuestHost) -> None:
    settle(guests(shape(state="defined")), host)
    source = domain(host).find("devices/hostdev/source/address")
    assert source is not None
    address = f"0000:{source.get('bus', '')[2:]}:00.0"
    (host.path(f"/sys/bus/pci/devices/{address}") / "driver").unlink()
    said = failing(HostRefused, guests(shape(state="defined")), host)
    assert f"{address} (gpu), which the guest has, is not on vfio-pci (found driver none" in said
    settle(guests(shape(state="defined"), gpudirect_replaced=[address]), host)
    moved = domain(host).find("devices/hostdev/source/address")
    assert moved is not None
    assert moved.get("bus") != source.get("bus")


def test_a_guest_that_does_not_end_is_not_killed_unless_that_is_meant(host: FakeGuestHost) -> None:
    settle(ONE, host)
    host.libvirt.domains.kept["train"].ends_after_s = None
    stopped = guests(shape(state="defined"), guest_stop_timeout_s=30)
    said = failing(ApplyFailed, stopped, host, "guest")
    assert "does not end though it was asked to for 30 s" in said
    assert host.libvirt.domains.kept["train"].live is not None
    settle({**stopped, "guest_stop": "force"}, host)
    assert host.libvirt.domains.kept["train"].live is None


def test_a_guest_without_its_disk_waits_for_it(tmp_path: Path) -> None:
    host = built(tmp_path / "root")
    report = run(ONE, host)
    assert [change.path for change in report.plan.changes] == ["libvirt_guest[train].definition"]
    assert [one.waits_for for one in report.plan.deferred] == ["guest_image"]
    assert report.verified is False
    with_files(host)
    settle(ONE, host, "nothing")


def test_without_an_image_the_disk_is_somebody_elses(tmp_path: Path) -> None:
    host = built(tmp_path / "root")
    own = guests(shape(image=None))
    (waiting,) = run(own, host).plan.deferred
    assert (waiting.waits_for, waiting.why) == (
        "a disk of yours",
        "guest train starts from /var/lib/libvirt/images/train.qcow2, not there yet",
    )
    host.put(f"{FOLDER}/train.qcow2", "mine")
    settle(own, host, "nothing")
    assert [one.get("device") for one in domain(host).iterfind("devices/disk")] == ["disk"]
    settle({}, host)
    assert host.text(f"{FOLDER}/train.qcow2") == "mine"


def test_a_host_without_libvirt_waits_for_the_role_that_brings_it(host: FakeGuestHost) -> None:
    host.libvirt.there = False
    assert [one.waits_for for one in look(ONE, host).plan.deferred] == ["kvm"]
    host.libvirt.there = True
    settle(ONE, host, "nothing")


@pytest.mark.parametrize(
    "line",
    [
        "2026-01-01T00:00:01Z qemu-system-x86_64: warning: IOMMU_IOAS_MAP failed: Bad address, PCI BAR?",
        "qemu-system-x86_64: PCI peer-to-peer transactions on BARs are not supported.",
        "qemu-system-x86_64: vfio_container_dma_map(0x55, 0x382000000000, 0x2000000000, 0x7f) = -22 (Invalid argument)",
    ],
)
def test_what_qemu_says_of_lost_paths_fails_the_run(host: FakeGuestHost, line: str) -> None:
    host.qemu_says = f"{line}\n"
    with pytest.raises(VerificationFailed) as caught:
        run(ONE, host)
    assert line[:40] in str(caught.value)
    assert caught.value.done == ("libvirt_guest[train].definition", "libvirt_guest[train].state")
    assert isinstance(caught.value, VerificationFailed)
    host.qemu_says = ""
    settle(guests(shape(memory_gib=9)), host)  # the next start has another log


def test_networks_are_told_from_bridges_and_waited_for(host: FakeGuestHost) -> None:
    intent: dict[str, Any] = guests(
        shape(network="inner"), guest_networks=[{"name": "inner", "address": "10.9.0.1/24"}]
    )
    assert [one.waits_for for one in run(intent, host).plan.deferred] == ["libvirt_network"]
    assert domain(host).find("devices/interface").get("type") == "network"  # type: ignore[union-attr]
    host.put("/sys/class/net/br0/bridge/bridge_id", "8000")
    settle(guests(shape(network="br0")), host, "nothing")
    assert domain(host).find("devices/interface").get("type") == "bridge"  # type: ignore[union-attr]
    assert "is neither a network nor a bridge" in failing(HostRefused, guests(shape(network="nowhere")), host)


def test_earlier_resources_of_the_run_are_waited_for(host: FakeGuestHost) -> None:
    coming = {"sriov_ports": [{"select": {"vendor": "15b3"}, "vfs": 4}]}
    assert [one.waits_for for one in look({**ONE, **coming}, host).plan.deferred] == ["sriov"]
    drivers = [{"name": "drive", "select": {"class": "0108"}, "driver": "vfio-pci"}]
    assert [one.waits_for for one in look({**ONE, "pci_driver_devices": drivers}, host).plan.deferred] == ["pci_driver"]


def test_the_guests_of_one_host_do_not_share_devices_or_cpus(tmp_path: Path) -> None:
    host = with_files(built(tmp_path / "root"), "a", "b")
    settle(guests(shape("a"), shape("b")), host)
    taken = [one.get("cpuset") for name in "ab" for one in domain(host, name).iterfind("cputune/vcpupin")]
    assert len(taken) == len(set(taken)) == 8
    settle(guests(shape("b")), host)
    assert list(host.libvirt.domains.kept) == ["b"]
    assert "libvirt_guest[a]" not in host.text(OWNED)
