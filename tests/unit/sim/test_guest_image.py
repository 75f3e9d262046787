from __future__ import annotations

import hashlib
import json
import stat
import subprocess
from pathlib import Path

import pytest

from sim.errors import RackError
from sim.guest_image import Entry, archive, initramfs_entries, load_order
from sim.lists import read_list

RECIPE = Path(__file__).resolve().parents[3] / "sim" / "recipe" / "guest"
NEEDS = {
    "kernel/drivers/ata/ahci.ko": ["libahci", "libata", "scsi-mod"],
    "kernel/drivers/ata/libahci.ko": ["libata", "scsi-mod"],
    "kernel/drivers/ata/libata.ko": ["scsi-mod"],
    "kernel/drivers/scsi/scsi-mod.ko": [],
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A root file system with the modules that the recipe names, ahci with what it needs."""
    release = tmp_path / "tree/usr/lib/modules/6.12"
    plain = [f"kernel/{name}.ko" for name in read_list(RECIPE / "modules.txt") if name != "ahci"]
    needs = {**NEEDS, **{path: [] for path in plain}}
    for path in needs:
        (release / path).parent.mkdir(parents=True, exist_ok=True)
        (release / path).write_text(path)
    paths = {Path(path).stem: path for path in needs}
    lines = [f"{path}: {' '.join(paths[name] for name in names)}\n" for path, names in needs.items()]
    (release / "modules.dep").write_text("".join(lines))
    (tmp_path / "tree/usr/bin").mkdir()
    (tmp_path / "tree/usr/bin/busybox").write_bytes(b"busybox")
    return tmp_path / "tree"


def test_modules_come_after_what_they_need(tree: Path) -> None:
    names = [path.name for path in load_order(tree, ["ahci", "scsi_mod"])]
    assert names == ["scsi-mod.ko", "libata.ko", "libahci.ko", "ahci.ko"]


def test_unknown_module_is_named(tree: Path) -> None:
    with pytest.raises(RackError, match=r"modules\.txt: nvmee is no module of 6\.12"):
        load_order(tree, ["nvmee"])


def test_initramfs_has_folders_before_files_and_every_module(tree: Path) -> None:
    entries = initramfs_entries(RECIPE, tree)
    names = [entry.name for entry in entries]
    for entry in entries:
        assert "/" not in entry.name or entry.name.rpartition("/")[0] in names[: names.index(entry.name)]
    (order,) = [entry.content.decode().split() for entry in entries if entry.name == "modules/order"]
    assert {f"modules/{name}" for name in order} <= set(names)


def test_programs_of_the_initramfs_can_be_run(tree: Path) -> None:
    modes = {entry.name: entry.mode for entry in initramfs_entries(RECIPE, tree)}
    assert all(modes[name] & stat.S_IXUSR for name in ("init", "bin/busybox", "etc/acpi/PWRF/00000080"))


def unpacked(data: bytes) -> list[tuple[str, int, bytes]]:
    """Names, modes and contents of a cpio archive of the "new ASCII" kind, as cpio(5) describes it."""
    found, at = [], 0
    while True:
        assert data[at : at + 6] == b"070701"
        fields = [int(data[at + 6 + 8 * index : at + 14 + 8 * index], 16) for index in range(13)]
        mode, size, length = fields[1], fields[6], fields[11]
        name = data[at + 110 : at + 110 + length - 1].decode()
        if name == "TRAILER!!!":
            return found
        start = (at + 110 + length + 3) // 4 * 4
        found.append((name, mode, data[start : start + size]))
        at = (start + size + 3) // 4 * 4


@pytest.mark.parametrize("size", range(5))
def test_archive_is_cpio(size: int) -> None:
    content = b"12345"[:size]
    entries = [
        Entry("a", stat.S_IFDIR | 0o755),
        Entry("a/odd", stat.S_IFREG | 0o644, content),
        Entry("l", stat.S_IFLNK | 0o777, b"a/odd"),
    ]
    assert unpacked(archive(entries)) == [("a", 0o40755, b""), ("a/odd", 0o100644, content), ("l", 0o120777, b"a/odd")]


def test_archive_of_the_same_is_the_same_and_has_no_time() -> None:
    member = archive([Entry("f", stat.S_IFREG | 0o644, b"x")])
    assert member == archive([Entry("f", stat.S_IFREG | 0o644, b"x")])
    assert member[46:54] == b"00000000"  # c_mtime
    assert len(member) % 4 == 0


def test_guest_writes_the_files_of_its_seed(tmp_path: Path) -> None:
    text = '<a b="c\\d">\n\t<!-- \\n stays, and so does "this" -->\n</a>\n'
    place = tmp_path / "etc/gpudirect/virtualTopology.xml"
    seed = {
        "hostname": "g1",
        "users": [{"name": "ops", "ssh_authorized_keys": ["k"]}],
        "write_files": [{"content": text, "owner": "root:root", "path": str(place), "permissions": "0644"}],
    }
    user_data = tmp_path / "user-data"
    user_data.write_text("#cloud-config\n" + json.dumps(seed, indent=1, sort_keys=True) + "\n")
    done = subprocess.run(
        ["awk", "-f", str(RECIPE / "write_files.awk"), str(user_data)], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{place}\n"
    assert hashlib.sha256(place.read_bytes()).hexdigest() == hashlib.sha256(text.encode()).hexdigest()


def test_shell_of_the_guest_has_no_mistake_in_its_syntax() -> None:
    for name in ("init", "power-button"):
        subprocess.run(["sh", "-n", str(RECIPE / name)], check=True)
