"""Disks and guests together, as rounds of a site run have them: one list, the disk before its guest, and back to nothing."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import (
    guest_image,
    host_boot,
    libvirt_guest,
    libvirt_network,
    site,
    sriov,
)
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Disruption
from ansible_collections.vela.gpudirect.plugins.module_utils.core.converge import converge, plan_all
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import ConsentRequired, GpudirectError
from ansible_collections.vela.gpudirect.plugins.module_utils.core.once import looking
from ansible_collections.vela.gpudirect.plugins.module_utils.core.owned import PATH as RECORD
from ansible_collections.vela.gpudirect.plugins.module_utils.vf.links import SHOW
from ansible_collections.vela.gpudirect.plugins.module_utils.vf.mac import stable_mac

from tests.fixtures import image_hosts
from tests.fixtures.fake_host import KilledHere
from tests.fixtures.fake_libvirt import Kept
from tests.fixtures.image_hosts import FOLDER, UBUNTU, ImageHost, digest
from tests.fixtures.runs import DIGEST
from tests.fixtures.ssh_keys import public_key

URL = "https://images.example/noble.img"
IMAGES = [{"name": "noble", "url": URL, "sha256": digest(UBUNTU)}]
RAILS = [{"addresses": ["10.0.0.1/24"]}]
GUEST = {
    **{"name": "train", "image": "noble", "gpus": 1, "vcpus": 2, "memory_gib": 4},
    **{"user": "ops", "ssh_keys": [public_key("ops")], "rails": RAILS},
}
OTHER = {**GUEST, "name": "other", "rails": []}
MACS = ("02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03", "02:00:00:00:00:04")
DISK, SEED = f"{FOLDER}/train.qcow2", f"{FOLDER}/train-seed.iso"
BASE = f"{FOLDER}/gpudirect-noble-{digest(UBUNTU)[:16]}.img"
PAIR = (guest_image, libvirt_guest)


def site_of(*shapes: dict[str, Any], allow: str = "guest", **more: Any) -> dict[str, Any]:
    shaped = {"guest_images": IMAGES, "guest_shapes": list(shapes)} if shapes else {}
    return {"gpudirect_allow": allow, "host_boot_enabled": False, **shaped, **more}


OPTIONS = {"guest_images": IMAGES, "guest_shapes": [GUEST]}
ONE = site_of(GUEST)
NONE = site_of()


@pytest.fixture
def host(tmp_path: Path) -> ImageHost:
    host = image_hosts.build(tmp_path / "root", {URL: UBUNTU})
    host.links = image_hosts.links(*MACS)
    return host


def look(intent: dict[str, Any], host: ImageHost, previous: Any = None, *, check: bool = False) -> dict[str, Any]:
    with host.only_read():
        return site.look({host_boot.ENGINE: DIGEST, **intent}, host, check=check, previous=previous or {})


def go(intent: dict[str, Any], host: ImageHost) -> list[list[str]]:
    """A site run: what each of its rounds did."""
    rounds: list[list[str]] = []
    seen = look(site.intent_of(intent), host)
    while seen["todo"]:
        rounds.append([])
        for resource in PAIR:
            if resource.SCHEMA.name in seen["todo"]:
                options = resource.SCHEMA.from_variables(intent)
                allow = Disruption.named(intent["gpudirect_allow"])
                report = converge(resource, options, host, allow=allow, check=False)
                rounds[-1] += [change.path for change in report.plan.changes]
        seen = look(intent, host, seen["next"])
    return rounds


def settle(intent: dict[str, Any], host: ImageHost) -> list[list[str]]:
    rounds = go(intent, host)
    assert look(intent, host)["msg"] == "as wanted"
    return rounds


def seed(host: ImageHost, name: str = "train") -> dict[str, Any]:
    files = json.loads(host.text(f"{FOLDER}/{name}-seed.iso"))["files"]
    return {key: json.loads(text.replace("#cloud-config\n", "")) for key, text in files.items()}


def kept(host: ImageHost) -> Any:
    """What a run left: guests, and all files but those of libvirt and our record."""
    other = {path: one for path, one in host.disk().items() if path.startswith(FOLDER)}
    return host.libvirt.state(), other


def test_one_list_makes_disk_seed_and_running_guest_in_one_round(host: ImageHost) -> None:
    predicted = look(ONE, host, check=True)
    assert [one["waits_for"] for one in predicted["deferred"]] == ["guest_image"]
    assert predicted["todo"] == ["guest_image", "libvirt_guest"]
    assert predicted["msg"].endswith("deferred: libvirt_guest waits for guest_image")
    rounds = settle(ONE, host)
    files = [f"guest_image.base[{BASE}]", "guest_image.disk[train]", "guest_image.seed[train]"]
    assert rounds == [[*files, "libvirt_guest[train].definition", "libvirt_guest[train].state"]]
    assert host.libvirt.domains.kept["train"].live is not None
    assert seed(host)["network-config"]["ethernets"]["rail0"]["match"] == {"macaddress": MACS[0]}
    assert seed(host)["meta-data"]["local-hostname"] == "train"


def test_what_is_left_for_another_run_is_told_with_its_reason(host: ImageHost) -> None:
    """A network that nobody wants any more, with a guest on it: no round of this run does anything about it."""
    networks = [{"name": "inner", "address": "10.9.0.1/24"}]
    converge(libvirt_network, {"guest_networks": networks}, host, allow=Disruption.NOTHING, check=False)
    shaped = {**GUEST, "network": "inner"}
    settle(site_of(shaped, guest_networks=networks), host)
    left = look(site_of(shaped), host)
    assert left["todo"] == []
    assert left["msg"] == (
        "deferred: libvirt_network waits for the end of its guests"
        " (inner: nobody wants it any more, and these guests are on it: train)"
    )


def test_a_run_without_changes_looks_once(host: ImageHost, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(ONE, host)
    asked: list[str] = []
    domains = host.libvirt.domains
    monkeypatch.setattr(domains, "all", lambda of=domains.all: asked.append("domains") or of())
    host.commands.clear()
    assert look(ONE, host)["msg"] == "as wanted"
    assert asked == ["domains"]
    assert [done.argv[0] for done in host.commands] == ["ip"]


def test_networks_pools_and_guests_ask_libvirt_for_each_list_once(
    host: ImageHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    intent = {
        **ONE,
        "guest_networks": [{"name": "inner", "address": "10.9.0.1/24"}],
        "guest_pools": [{"name": "own", "path": "/srv/own"}],
    }
    asked: list[str] = []
    for name in ("domains", "networks", "pools"):
        kind = getattr(host.libvirt, name)
        monkeypatch.setattr(kind, "all", lambda of=kind.all, name=name: asked.append(name) or of())
    look(intent, host, check=True)
    assert sorted(asked) == ["domains", "networks", "pools"]
    look(intent, host, check=True)
    assert len(asked) == 6


def test_a_look_asks_for_network_devices_once(host: ImageHost) -> None:
    ports = {"sriov_ports": [{"select": {"vendor": "15b3"}, "vfs": 2}]}
    with looking(host):
        sriov.read(host, sriov.parse(ports))
        guest_image.read(host, guest_image.parse({"guest_images": IMAGES, "guest_shapes": [GUEST], **ports}))
    assert [done.argv for done in host.commands].count(SHOW) == 1


def test_a_seed_that_changes_is_written_and_the_guest_runs_on(host: ImageHost) -> None:
    settle(ONE, host)
    live, disk = host.libvirt.domains.kept["train"].live, host.text(DISK)
    key = site_of({**GUEST, "ssh_keys": [public_key("other")]})
    seen = look(key, host)
    assert seen["notes"] == [
        "guest_shapes[train]: its seed changes, which a guest that has booted before does not take up"
    ]
    assert settle({**key, "gpudirect_allow": "nothing"}, host) == [["guest_image.seed[train]"]]
    assert seed(host)["user-data"]["users"][0]["ssh_authorized_keys"] == [public_key("other")]
    assert host.libvirt.domains.kept["train"].live is live
    assert host.text(DISK) == disk


def test_what_a_guest_is_told_is_what_its_domain_has(host: ImageHost) -> None:
    settle(site_of(GUEST, OTHER), host)
    for name, mac in (("train", "rail0"), ("other", None)):
        domain = host.libvirt.domains.kept[name].inactive
        assert domain is not None
        files = {one["path"]: one["content"] for one in seed(host, name)["user-data"]["write_files"]}
        record = json.loads(host.text(RECORD))["records"][f"libvirt_guest[{name}]"]["placed"]
        assert files["/etc/gpudirect/virtualTopology.xml"].count('class="0x020000"') == 1
        assert [part for part, *_more in record["devices"]].count("vf") == 1
        assert (mac in seed(host, name)["network-config"]["ethernets"]) is (mac is not None)


def test_undo_takes_the_guest_first_and_then_its_files(host: ImageHost) -> None:
    found = kept(host)
    settle(ONE, host)
    with pytest.raises(ConsentRequired, match="Set gpudirect_allow: guest"):
        go(site_of(allow="link"), host)
    seen = look(NONE, host, check=True)
    assert seen["todo"] == ["libvirt_guest"]
    assert [(one["resource"], one["waits_for"]) for one in seen["deferred"]] == [("guest_image", "libvirt_guest")]
    assert settle(NONE, host) == [
        ["libvirt_guest[train].state", "libvirt_guest[train].definition"],
        ["guest_image.seed[train]", "guest_image.disk[train]", f"guest_image.base[{BASE}]"],
    ]
    assert kept(host) == found
    assert not host.owned()


def test_one_of_two_goes_and_its_base_stays(host: ImageHost) -> None:
    settle(site_of(GUEST, OTHER), host)
    settle(site_of({**GUEST, "state": "absent"}, OTHER), host)
    assert not host.exists(DISK)
    assert not host.exists(SEED)
    assert host.exists(BASE)
    assert list(host.libvirt.domains.kept) == ["other"]


def test_a_disk_that_a_domain_of_others_has_stays(host: ImageHost) -> None:
    settle(ONE, host)
    xml = f"<domain><name>mine</name><devices><disk><source file='{DISK}'/></disk></devices></domain>"
    go(site_of({**GUEST, "state": "defined"}), host)
    host.libvirt.domains.kept["mine"] = Kept("u", ET.fromstring(xml))
    go(NONE, host)
    (waiting,) = look(NONE, host)["deferred"]
    assert waiting["waits_for"] == "domain mine"
    assert host.exists(DISK)
    del host.libvirt.domains.kept["mine"]
    settle(NONE, host)
    assert not host.exists(DISK)


def test_a_disk_stays_where_its_guest_is_left_without_image(host: ImageHost) -> None:
    settle(ONE, host)
    own = {key: GUEST[key] for key in ("name", "gpus", "vcpus", "memory_gib")}
    settle(site_of(own), host)
    assert host.exists(DISK)
    assert host.exists(BASE)
    settle(NONE, host)
    assert not host.exists(DISK)
    assert not host.owned()


def test_guests_that_cannot_be_placed_yet_get_no_disk(host: ImageHost) -> None:
    ports = [{"select": {"vendor": "15b3"}, "vfs": 4}]
    options = {"guest_images": IMAGES, "guest_shapes": [GUEST], "sriov_ports": ports}
    report = converge(guest_image, options, host, allow=Disruption.GUEST, check=False)
    (waiting,) = report.plan.deferred
    assert (waiting.waits_for, report.verified) == ("sriov", False)
    assert "guests whose disks wait for it: train" in waiting.why
    assert not host.exists(BASE)


def test_guests_that_do_not_fit_get_no_disk_and_are_told_once(host: ImageHost) -> None:
    with pytest.raises(GpudirectError) as caught:
        look(site_of({**GUEST, "gpus": 3}), host)
    (problem,) = caught.value.problems
    assert "the guest does not fit this host" in problem.fact
    assert not host.exists(BASE)


def test_a_host_without_libvirt_is_waited_for(host: ImageHost) -> None:
    host.libvirt.there = False
    with host.only_read():
        reports = plan_all(
            [(one, one.parse(one.SCHEMA.from_variables(ONE))) for one in PAIR], host, allow=Disruption.GUEST
        )
    assert [one.waits_for for report in reports for one in report.plan.deferred] == ["kvm", "kvm"]
    with pytest.raises(GpudirectError, match="guest_shapes: needs libvirt, and nothing brings it"):
        look(ONE, host)


def test_a_disk_that_libvirt_never_heard_of_goes_without_libvirt(host: ImageHost) -> None:
    """A run was cut off between disk and guest, and then the host was given up."""
    converge(guest_image, OPTIONS, host, allow=Disruption.NOTHING, check=False)
    assert host.exists(DISK)
    host.libvirt.there = False
    converge(guest_image, {}, host, allow=Disruption.GUEST, check=False)
    assert not host.exists(DISK)
    assert not host.owned()


# MAC addresses of rails ------------------------------------------------------------------


def of_rail(host: ImageHost, **port: Any) -> str:
    ports = [{"select": {"vendor": "15b3"}, "vfs": 2, **port}]
    options = {"guest_images": IMAGES, "guest_shapes": [GUEST], "sriov_ports": ports}
    converge(guest_image, options, host, allow=Disruption.NOTHING, check=False)
    found: str = seed(host)["network-config"]["ethernets"]["rail0"]["match"]["macaddress"]
    return found


def test_a_rail_is_found_by_the_address_that_sriov_ports_gives(host: ImageHost) -> None:
    assert of_rail(host) == stable_mac("94:6d:ae:00:00:00", 0)


def test_a_rail_is_found_by_the_address_of_its_own_vf(host: ImageHost) -> None:
    own = {"select": {"netdev": "ens0f0np0"}, "vf": {0: {"mac": "02:11:22:33:44:55"}}}
    assert of_rail(host, **own) == "02:11:22:33:44:55"


@pytest.mark.parametrize("kept_by_driver", [True, False])
def test_a_rail_without_an_address_that_stays_is_refused_by_name(host: ImageHost, kept_by_driver: bool) -> None:
    """``mac: kept`` is the driver's, another one after each boot; zero is none at all."""
    host.links = image_hosts.links(*(MACS if kept_by_driver else ()))
    ports = [{"select": {"vendor": "15b3"}, "vfs": 2, "vf_defaults": {"mac": "kept"}}] if kept_by_driver else []
    options = {"guest_images": IMAGES, "guest_shapes": [GUEST], "sriov_ports": ports}
    with pytest.raises(GpudirectError) as caught:
        converge(guest_image, options, host, allow=Disruption.NOTHING, check=False)
    (problem,) = caught.value.problems
    assert problem.path == "guest_shapes[0].rails[0]"
    assert "has no MAC address that it keeps" in problem.fact
    assert "sriov_ports[].vf" in problem.advice
    converge(
        guest_image,
        {**options, "guest_shapes": [{**GUEST, "rails": [{}]}]},
        host,
        allow=Disruption.NOTHING,
        check=False,
    )
    assert host.exists(DISK)


# Cuts ------------------------------------------------------------------------------------

STORIES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "apply": ([], ONE),
    "key": ([ONE], site_of({**GUEST, "ssh_keys": [public_key("other")]})),
    "undo": ([ONE], NONE),
    "replaced": ([ONE], site_of(OTHER)),
}


def cuts(prepared: ImageHost, intent: dict[str, Any], root: Path) -> Iterator[ImageHost]:
    """The machine after each possible cut of a whole site run."""
    counted = prepared.clone(root / "counted")
    counted.revive()
    go(intent, counted)  # type: ignore[arg-type]
    total = len(counted.acts)
    assert total
    for number in range(1, total + 2):
        host = prepared.clone(root / str(number))
        assert isinstance(host, ImageHost)
        host.die_before(number) if number <= total else host.die_after(total)
        with pytest.raises(KilledHere):
            go(intent, host)
        host.revive()
        host.later = []  # who was asked to end has ended, or has not heard it
        yield host


@pytest.mark.parametrize("story", STORIES)
def test_next_run_completes_what_was_cut_off_and_undo_leaves_nothing(
    host: ImageHost, story: str, tmp_path: Path
) -> None:
    before, intent = STORIES[story]
    found = kept(host)
    prepared = host.clone(tmp_path / "prepared")
    assert isinstance(prepared, ImageHost)
    for settled in before:
        settle(settled, prepared)
    whole = prepared.clone(tmp_path / "whole")
    assert isinstance(whole, ImageHost)
    settle(intent, whole)
    for cut in cuts(prepared, intent, tmp_path):
        again = cut.clone(Path(f"{cut.root}-again"))
        assert isinstance(again, ImageHost)
        settle(intent, cut)
        assert kept(cut) == kept(whole)
        settle(NONE, again)
        assert kept(again) == found
        assert not again.owned()
