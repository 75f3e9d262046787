"""Images, disks and seeds on fake hosts: what is made once, what is never touched, every cut, and undo."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import guest_image, libvirt_guest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import Disruption
from ansible_collections.vela.gpudirect.plugins.module_utils.core.converge import Report, converge
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import (
    ApplyFailed,
    ConsentRequired,
    GpudirectError,
    HostRefused,
    IntentError,
)
from ansible_collections.vela.gpudirect.plugins.module_utils.core.owned import PATH as RECORD

from tests.fixtures import image_hosts
from tests.fixtures.fake_host import KilledHere
from tests.fixtures.image_hosts import FOLDER, GIB, UBUNTU, ImageHost, digest
from tests.fixtures.ssh_keys import public_key

URL = "https://images.example/noble.img"
NEWER = json.dumps({"format": "qcow2", "virtual-size": 4 * GIB})
IMAGE = {"name": "noble", "url": URL, "sha256": digest(UBUNTU)}
MACS = ("02:00:00:00:00:01", "02:00:00:00:00:02")
LEAST = {"image": "noble", "vcpus": 2, "memory_gib": 4}
GUEST = {
    **LEAST,
    "name": "train-1",
    "gpus": 1,
    "disk_gib": 100,
    "user": "ops",
    "ssh_keys": [public_key("ops")],
    "network": "br0",
    "rails": [{"addresses": ["10.0.0.1/24"], "mtu": 9000}],
}
NOTHING: dict[str, Any] = {"disk_gib": None, "user": None, "ssh_keys": None, "rails": None}  # of what needs an image
ONE: dict[str, Any] = {"guest_images": [IMAGE], "guest_shapes": [GUEST]}
TWO: dict[str, Any] = {"guest_images": [IMAGE], "guest_shapes": [GUEST, {**LEAST, "name": "train-2"}]}
BASE = f"{FOLDER}/gpudirect-noble-{digest(UBUNTU)[:16]}.img"
DISK, SEED = f"{FOLDER}/train-1.qcow2", f"{FOLDER}/train-1-seed.iso"


def go(host: ImageHost, intent: dict[str, Any], *, check: bool = False, allow: Disruption = Disruption.GUEST) -> Report:
    return converge(guest_image, intent, host, allow=allow, check=check)


def with_guest(**changes: Any) -> dict[str, Any]:
    return {**ONE, "guest_shapes": [{**GUEST, **changes}]}


@pytest.fixture
def host(tmp_path: Path) -> ImageHost:
    host = image_hosts.build(tmp_path / "root", {URL: UBUNTU})
    host.put("/sys/class/net/br0/bridge/bridge_id", "8000")
    host.links = image_hosts.links(*MACS)
    return host


def test_nothing_is_asked_and_nothing_runs(host: ImageHost) -> None:
    with host.only_read():
        assert go(host, {}).plan.empty


def test_check_mode_predicts_and_the_second_run_finds_nothing(host: ImageHost) -> None:
    with host.only_read():
        predicted = go(host, TWO, check=True)
    real = go(host, TWO, allow=Disruption.NOTHING)
    assert real.as_result()["plan"] == predicted.as_result()["plan"]
    assert real.verified
    host.commands.clear()
    with host.only_read():
        assert go(host, TWO).plan.empty
    assert [done.argv[0] for done in host.commands] == ["ip"]  # which a look shares with sriov
    host.commands.clear()
    with host.only_read():
        go(host, {**ONE, "guest_shapes": [{**GUEST, "rails": []}]}, check=True)
    assert not host.commands


def rendered(host: ImageHost) -> str:
    """The domain that libvirt_guest makes of the guest."""
    converge(libvirt_guest, {"guest_shapes": [GUEST]}, host, allow=Disruption.NOTHING, check=False)
    return ET.tostring(host.libvirt.domains.kept["train-1"].inactive, encoding="unicode")  # type: ignore[arg-type]


def test_what_was_made(host: ImageHost) -> None:
    go(host, ONE)
    assert json.loads(host.text(DISK)) == {"format": "qcow2", "virtual-size": 100 * GIB, "backing-filename": BASE}
    assert {path: f"{host.disk()[path][0]:o}" for path in (BASE, DISK, SEED)} == {BASE: "644", DISK: "600", SEED: "600"}
    seed = json.loads(host.text(SEED))
    assert seed["label"] == "cidata"
    network = json.loads(seed["files"]["network-config"])["ethernets"]
    assert network["rail0"] == {"addresses": ["10.0.0.1/24"], "dhcp4": False, "match": {"macaddress": MACS[0]},
                                "mtu": 9000, "optional": True}  # fmt: skip
    (interface,) = ET.fromstring(rendered(host)).iterfind("devices/interface")
    mac = interface.find("mac").get("address")  # type: ignore[union-attr]
    assert network["mgmt"] == {"dhcp4": True, "match": {"macaddress": mac}}
    first, _newline, user = seed["files"]["user-data"].partition("\n")
    assert first == "#cloud-config"
    files = {one["path"]: one["content"] for one in json.loads(user)["write_files"]}
    assert 'class="0x030200"' in files["/etc/gpudirect/virtualTopology.xml"]
    assert "/run/nvidia-topologyd/virtualTopology.xml" in files["/etc/tmpfiles.d/gpudirect-nccl.conf"]
    assert json.loads(seed["files"]["meta-data"])["local-hostname"] == "train-1"
    assert not [path for path in host.disk() if "/seed-" in path]


def test_a_disk_is_data(host: ImageHost) -> None:
    go(host, ONE)
    host.put(DISK, "what the guest wrote")
    newer = {**IMAGE, "sha256": digest(NEWER)}
    host.network = {URL: NEWER}
    report = go(host, {"guest_images": [newer], "guest_shapes": [{**GUEST, "disk_gib": 200, "user": "other"}]})
    assert host.text(DISK) == "what the guest wrote"
    assert host.exists(BASE)
    assert [note.partition(": ")[2].split(";")[0].split(" /")[0] for note in report.left.notes] == [
        "stays over",
        "keeps its size",
    ]
    assert not [change for change in report.plan.changes if "disk" in change.path]


def test_a_guest_that_goes_takes_its_disk_with_consent_only(host: ImageHost) -> None:
    found = host.disk()
    go(host, TWO)
    with pytest.raises(ConsentRequired, match="disrupts the guest"):
        go(host, ONE, allow=Disruption.LINK)
    go(host, ONE)
    assert host.exists(BASE)
    assert not host.exists(f"{FOLDER}/train-2.qcow2")
    go(host, {})
    assert host.disk() == found


def test_a_disk_that_is_open_stays(host: ImageHost) -> None:
    go(host, ONE)
    host.open_files = {DISK: (4711,)}
    with pytest.raises(HostRefused, match="is open, and its guest is to go .found process 4711"):
        go(host, {})
    assert host.exists(DISK)


def test_an_image_that_lies_there_is_used_and_never_removed(host: ImageHost) -> None:
    host.put("/srv/noble.img", UBUNTU)
    intent = {
        "guest_images": [{"name": "noble", "path": "/srv/noble.img", "sha256": digest(UBUNTU)}],
        "guest_shapes": [GUEST],
    }
    go(host, intent)
    assert json.loads(host.text(DISK))["backing-filename"] == "/srv/noble.img"
    go(host, {})
    assert host.text("/srv/noble.img") == UBUNTU


def test_a_digest_that_comes_later_is_looked_at(host: ImageHost) -> None:
    """The image is on record already, from a time at which the inventory told no digest or another one."""
    host.put("/srv/noble.img", UBUNTU)
    lying = {"name": "noble", "path": "/srv/noble.img"}
    go(host, {**ONE, "guest_images": [lying]})
    wrong = {**ONE, "guest_images": [{**lying, "sha256": "0" * 64}]}
    before = json.loads(host.text(RECORD))["records"]
    for _again in range(2):
        with pytest.raises(GpudirectError, match=r"/srv/noble.img: is another file than the wanted one .found sha256:"):
            go(host, wrong)
    assert json.loads(host.text(RECORD))["records"] == before
    right = {**ONE, "guest_images": [{**lying, "sha256": digest(UBUNTU)}]}
    assert [change.path for change in go(host, right).plan.changes] == ["guest_image.base[/srv/noble.img]"]
    for intent in (right, {**ONE, "guest_images": [lying]}):
        assert go(host, intent).plan.empty
    host.commands.clear()
    with pytest.raises(HostRefused, match="is another file than the wanted one"), host.only_read():
        go(host, wrong, check=True)
    assert "sha256sum" not in [done.argv[0] for done in host.commands]


def test_tools_that_are_missing_are_waited_for(host: ImageHost) -> None:
    host.path("/usr/bin/qemu-img").unlink()
    assert [entry.waits_for for entry in go(host, ONE).plan.deferred] == ["qemu-img"]


# Bad input -------------------------------------------------------------------------------

STANDS_ON = json.dumps({"format": "qcow2", "virtual-size": GIB, "backing-filename": "/etc/shadow"})
HAS_DATA = json.dumps(
    {"format": "qcow2", "virtual-size": GIB, "format-specific": {"data": {"data-file": "/etc/shadow"}}}
)
FOREIGN = json.dumps({"format": "vmdk", "virtual-size": GIB})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (STANDS_ON, r"rests on another file \(backing-filename\).*'/etc/shadow'"),
        (HAS_DATA, r"rests on another file \(data-file\)"),
        (FOREIGN, "has a format that guests do not get .found vmdk"),
        ('{"format": "qcow2"}', "is no image that qemu-img can read"),
    ],
    ids=["backing", "data", "format", "no_image"],
)
def test_an_image_that_may_not_be_used_is_thrown_away(host: ImageHost, text: str, words: str) -> None:
    host.network = {URL: text}
    with pytest.raises(ApplyFailed, match=words):
        go(host, {**ONE, "guest_images": [{**IMAGE, "sha256": digest(text)}]})
    assert [path for path in host.disk() if path.startswith(f"{FOLDER}/")] == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"network": {}}, "cannot be fetched"),
        ({"network": {URL: "another"}}, "is another file than the wanted one"),
        ({"full": (FOLDER,)}, "No space left on device"),
    ],
    ids=["unreachable", "digest", "full"],
)
def test_a_file_that_does_not_come_leaves_nothing(host: ImageHost, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ApplyFailed, match=words):
        go(replace(host, **changes), ONE)
    assert [path for path in host.disk() if path.startswith(f"{FOLDER}/")] == []
    assert go(host, ONE).verified


def test_files_of_others_are_not_overwritten(host: ImageHost) -> None:
    for path in (DISK, SEED):
        host.put(path, "somebody's")
    with pytest.raises(
        HostRefused, match=r"train-1-seed\.iso: is there and is not ours(.|\n)*train-1\.qcow2: is there"
    ):
        go(host, ONE)
    assert host.text(DISK) == "somebody's"


def test_a_disk_that_comes_to_be_meanwhile_is_not_overwritten(host: ImageHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageHost, "_chmod", lambda self, argv: self.put(DISK, "somebody's"))
    for _run in range(2):
        with pytest.raises(ApplyFailed):
            go(host, ONE)
        assert host.text(DISK) == "somebody's"
    go(host, {})
    assert host.text(DISK) == "somebody's"


def test_a_base_that_was_written_to_is_told(host: ImageHost) -> None:
    go(host, ONE)
    host.put(BASE, NEWER + " ")
    with pytest.raises(HostRefused, match="was written to since it was verified"):
        go(host, TWO)


def test_a_disk_smaller_than_its_image(host: ImageHost) -> None:
    with pytest.raises(
        ApplyFailed, match=r"disk_gib: is less than the image has \(found 2 GiB, wanted at least 3 GiB\)"
    ):
        go(host, with_guest(disk_gib=2))


@pytest.mark.parametrize(
    ("intent", "words"),
    [
        ({"guest_images": [{"name": "a", "url": URL}]}, r"guest_images\[0\]\.sha256: is missing"),
        ({"guest_images": [{**IMAGE, "path": "/srv/a"}]}, "is from a URL or at a path .found both"),
        ({"guest_images": [{**IMAGE, "url": "file:///etc/shadow"}]}, "is no address of a file"),
        ({"guest_images": [{**IMAGE, "url": "https://me:secret@host/a"}]}, "is no address of a file"),
        ({"guest_images": [IMAGE, IMAGE]}, "is that of another image"),
        (
            {"guest_images": [{"name": "a", "path": "/srv/a"}, {"name": "b", "path": "/srv/a"}]},
            r"guest_images\[1\]\.path: is that of image a too",
        ),
        ({"guest_images": [{**IMAGE, "sha256": "abc"}]}, "is no SHA-256"),
        (with_guest(image="other"), r"names no image of guest_images \(found 'other', wanted noble\)"),
        (with_guest(name="../x"), "is no name for a guest"),
        ({**ONE, "guest_shapes": [GUEST, {**GUEST, "name": "Train-1"}]}, "is the name of guest_shapes"),
        (with_guest(rails=[{}] * 2), "are more than the guest has VFs"),
        (with_guest(user=None), "Name the user who has the keys"),
        ({**ONE, "guest_image_folder": "images"}, "is no plain absolute path"),
        (
            {"guest_shapes": [{**LEAST, "name": "g"}]},
            "found 'noble', wanted a name out of guest_images, which has none",
        ),
    ],
)
def test_options_that_cannot_be_meant(intent: dict[str, Any], words: str) -> None:
    with pytest.raises(IntentError, match=words):
        guest_image.parse(intent)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://me:secret@host/a", "https://***@host/a"),
        ("https://secret@host/a", "https://***@host/a"),
        ("https://me:a/secret@b@host/a", "https://***@host/a"),
        ("https://me:\nsecret@host/a", "https://***@host/a"),
        ("me:secret@host/a", "***@host/a"),
    ],
)
def test_a_password_in_a_url_is_not_told(url: str, told: str) -> None:
    with pytest.raises(IntentError) as caught:
        guest_image.parse({"guest_images": [{**IMAGE, "url": url}]})
    assert f"guest_images[0].url: is no address of a file (found {told!r}, wanted " in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("path", [DISK, SEED])
@pytest.mark.parametrize("changes", [{}, {"vcpus": 0}, {"state": "absent"}, {"image": None, **NOTHING}])
def test_an_image_is_no_file_of_a_guest(path: str, changes: dict[str, Any]) -> None:
    lying = {"name": "base", "path": path}
    with pytest.raises(IntentError) as caught:
        guest_image.parse({**with_guest(**changes), "guest_images": [IMAGE, lying]})
    assert f"guest_images[1].path: is a file of guest_shapes[0] (train-1) (found {path!r})" in str(caught.value)


def test_a_file_of_a_guest_that_has_left_becomes_no_image(host: ImageHost) -> None:
    go(host, ONE)
    heir = {"guest_images": [{"name": "base", "path": DISK}], "guest_shapes": [{**LEAST, "name": "b", "image": "base"}]}
    with pytest.raises(HostRefused, match=r"train-1\.qcow2: is a file of guest train-1, and goes with it"):
        go(host, heir)
    assert host.exists(DISK)


@pytest.mark.parametrize("host", ["host", "host.example:8443", "192.0.2.1", "[2001:db8::1]:80"])
def test_hosts_that_images_come_from(host: str) -> None:
    assert guest_image.parse({**ONE, "guest_images": [{**IMAGE, "url": f"http://{host}/a@b"}]}).images


def test_one_mistake_in_an_image_hides_no_other() -> None:
    wrong = {"name": "noble", "url": "https://host/a", "path": "rel"}
    with pytest.raises(IntentError) as caught:
        guest_image.parse({"guest_images": [IMAGE, wrong], "guest_shapes": [{**GUEST, "image": "other", "vcpus": 0}]})
    assert [one.path for one in caught.value.problems] == [
        "guest_images[1].name",
        "guest_images[1].path",
        "guest_images[1].sha256",
        "guest_shapes[0].image",
        "guest_shapes[0].vcpus",
    ]


# Cuts ------------------------------------------------------------------------------------


def cuts(prepared: ImageHost, intent: dict[str, Any], root: Path) -> Iterator[ImageHost]:
    """The machine after each possible cut of one run."""
    counted = prepared.clone(root / "counted").revive()
    go(counted, intent)  # type: ignore[arg-type]
    total = len(counted.acts)
    for number in range(1, total + 2):
        host = prepared.clone(root / str(number))
        host = host.die_before(number) if number <= total else host.die_after(total)
        with pytest.raises(KilledHere):
            go(host, intent)  # type: ignore[arg-type]
        yield host.revive()  # type: ignore[misc]


@pytest.mark.parametrize(("before", "intent"), [({}, TWO), (TWO, ONE), (ONE, {})], ids=["apply", "one_goes", "undo"])
def test_next_run_completes_what_was_cut_off(host: ImageHost, before: Any, intent: Any, tmp_path: Path) -> None:
    found = host.disk()
    prepared = host.clone(tmp_path / "prepared")
    go(prepared, before)  # type: ignore[arg-type]
    whole = prepared.clone(tmp_path / "whole")
    go(whole, intent)  # type: ignore[arg-type]
    for cut in cuts(prepared, intent, tmp_path):  # type: ignore[arg-type]
        again = cut.clone(Path(f"{cut.root}-again"))
        go(cut, intent)
        assert {**cut.disk(), RECORD: 0} == {**whole.disk(), RECORD: 0}
        go(again, {})  # type: ignore[arg-type]
        assert again.disk() == found


def test_a_disk_that_was_made_outlives_a_cut(host: ImageHost, tmp_path: Path) -> None:
    for cut in cuts(host, ONE, tmp_path):
        if cut.exists(DISK):
            cut.put(DISK, "what the guest wrote")
            go(cut, ONE)
            assert cut.text(DISK) == "what the guest wrote"


def test_errors_are_of_a_known_kind(host: ImageHost) -> None:
    with pytest.raises(GpudirectError):
        go(
            host,
            {
                "guest_images": [{"name": "a", "path": "/srv/nowhere.img"}],
                "guest_shapes": [{**LEAST, "name": "g", "image": "a"}],
            },
        )
