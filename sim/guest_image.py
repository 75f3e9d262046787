# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the disk image that guests of a simulated host boot from; the image plays a guest's operating system.

It is the smallest thing that a real firmware boots and that can look around: an ESP with GRUB for EFI, GRUB for a BIOS in front
of it, the host's own kernel, and an initramfs of busybox, a few modules and recipe/guest/init, which says on the serial console
what the guest sees. It knows its seed only as cloud-init would, and shares no code with the engine. The same tree gives the
same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sim.commands import run
from sim.emulator import Emulator
from sim.errors import RackError
from sim.lists import read_list
from sim.partitions import MIB, make_esp, partition, put

# Where hosts find it; libvirt's QEMU has a user of its own and must be able to read it.
PLACE = "srv/guest/base.qcow2"
START_MIB = 1
ESP_MIB = 64
DISK_MIB = START_MIB + ESP_MIB + 1
LAYOUT = (
    "label: gpt",
    "label-id: c0ffee00-7e1a-4a00-8000-000000000002",
    f"start={START_MIB}MiB, size={ESP_MIB}MiB, type=uefi, uuid=c0ffee00-7e1a-4a00-8000-000000000003",
)
GRUB = "usr/lib/grub/x86_64-efi/monolithic/grubx64.efi"
BIOS_GRUB = "/usr/lib/grub/i386-pc"
BIOS_MODULES = ("biosdisk", "part_gpt", "fat", "normal", "linux")
SECTOR = 512
CORE_SECTOR = 64  # between the table of partitions and the first of them
_BOOT_CODE = (
    440  # bytes of the first sector that are the boot loader's; the rest is the table that GPT protects itself with
)
_FIRST_SECTOR = 0x5C  # where boot.img has the sector of the core image, in eight bytes (GRUB i386/pc/boot.h)
_REST_SECTOR = SECTOR - 12  # where the first sector of the core image has that of the others
BUSYBOX = "usr/bin/busybox"
_REGULAR, _PROGRAM = stat.S_IFREG | 0o644, stat.S_IFREG | 0o755


@dataclass(frozen=True)
class Entry:
    """A file, folder or link of an initramfs; a link's content is its target."""

    name: str
    mode: int
    content: bytes = b""


def build_guest(recipe: Path, tree: Path, emulator: Emulator, work: Path, log: Path) -> None:
    """Put the image into the tree, and its digest beside it."""
    (kernel,) = (tree / "boot").glob("vmlinuz-*")
    initramfs, disk, esp = work / "guest-initramfs", work / "guest.img", work / "guest-esp.img"
    # Without a time stamp; the default level, since unpacking takes an emulated CPU equally long with all.
    initramfs.write_bytes(gzip.compress(archive(initramfs_entries(recipe / "guest", tree)), mtime=0))
    files = {
        "EFI/BOOT/BOOTX64.EFI": tree / GRUB,
        "EFI/debian/grub.cfg": recipe / "guest" / "grub.cfg",
        "vmlinuz": kernel,
        "initramfs": initramfs,
    }
    make_esp(esp, ESP_MIB, files, log)
    partition(disk, DISK_MIB, LAYOUT, log)
    put(esp, disk, START_MIB)
    _bios_loader(disk, tree, log)
    target = tree / PLACE
    target.parent.mkdir(parents=True)
    convert = [*emulator.command("qemu-img"), "convert", "-f", "raw", "-O", "qcow2", str(disk), str(target)]
    run(convert, log=log, env=emulator.environment)
    digest = hashlib.sha256(target.read_bytes()).hexdigest()
    target.with_name(f"{target.name}.sha256").write_text(f"{digest}  {target.name}\n")
    for file in (target, target.with_name(f"{target.name}.sha256")):
        file.chmod(0o644)
    initramfs.unlink()
    disk.unlink()


def _bios_loader(disk: Path, tree: Path, log: Path) -> None:
    """What a BIOS starts: GRUB in the gap before the ESP, with the same configuration as GRUB for EFI."""
    core = tree / "boot/core.img"
    make = ["grub-mkimage", "-O", "i386-pc", "-d", BIOS_GRUB, "-p", "(hd0,gpt1)/EFI/debian", "-o", "/boot/core.img"]
    run(["chroot", str(tree), *make, *BIOS_MODULES], log=log)
    boot = bytearray((tree / BIOS_GRUB.lstrip("/") / "boot.img").read_bytes()[:_BOOT_CODE])
    boot[_FIRST_SECTOR : _FIRST_SECTOR + 8] = CORE_SECTOR.to_bytes(8, "little")
    image = bytearray(core.read_bytes())
    image[_REST_SECTOR : _REST_SECTOR + 8] = (CORE_SECTOR + 1).to_bytes(8, "little")
    if CORE_SECTOR * SECTOR + len(image) > START_MIB * MIB:
        raise RackError(
            f"guest image: GRUB for a BIOS has {len(image)} bytes, too many for the gap. Leave modules out."
        )
    core.unlink()
    with disk.open("r+b") as whole:
        whole.write(boot)
        whole.seek(CORE_SECTOR * SECTOR)
        whole.write(image)


def initramfs_entries(recipe: Path, tree: Path) -> list[Entry]:
    """What is in the initramfs; folders come before what they hold."""
    modules = load_order(tree, read_list(recipe / "modules.txt"))
    names = "".join(f"{path.name}\n" for path in modules)
    files = [
        Entry("bin/busybox", _PROGRAM, (tree / BUSYBOX).read_bytes()),
        Entry("bin/sh", stat.S_IFLNK | 0o777, b"busybox"),
        Entry("init", _PROGRAM, (recipe / "init").read_bytes()),
        Entry("write_files.awk", _REGULAR, (recipe / "write_files.awk").read_bytes()),
        Entry("etc/acpi/PWRF/00000080", _PROGRAM, (recipe / "power-button").read_bytes()),
        Entry("modules/order", _REGULAR, names.encode()),
        *(Entry(f"modules/{path.name}", _REGULAR, path.read_bytes()) for path in modules),
    ]
    folders = {str(folder) for entry in files for folder in PurePosixPath(entry.name).parents if folder.name}
    return [*(Entry(folder, stat.S_IFDIR | 0o755) for folder in sorted(folders)), *files]


def load_order(tree: Path, wanted: Iterable[str]) -> list[Path]:
    """The files of kernel modules and of what they need, each after what it needs itself."""
    (release,) = (tree / "usr/lib/modules").iterdir()
    needs = dict(line.split(":", 1) for line in (release / "modules.dep").read_text().splitlines())
    by_name = {PurePosixPath(path).stem.replace("-", "_"): path for path in needs}
    order: dict[str, None] = {}
    for name in wanted:
        if name not in by_name:
            raise RackError(f"modules.txt: {name} is no module of {release.name}. Correct the name.")
        path = by_name[name]
        # depmod lists what a module needs from the nearest to the deepest.
        order.update(dict.fromkeys([*reversed(needs[path].split()), path]))
    return [release / path for path in order]


def archive(entries: Iterable[Entry]) -> bytes:
    """A cpio archive as the kernel unpacks it (Documentation/driver-api/early-userspace/buffer-format.rst)."""
    return b"".join(_members(entries))


def _members(entries: Iterable[Entry]) -> Iterator[bytes]:
    for number, entry in enumerate(entries, start=1):
        yield _member(number, entry)
    yield _member(0, Entry("TRAILER!!!", 0))


def _member(number: int, entry: Entry) -> bytes:
    name = entry.name.encode() + b"\0"
    links, owner, time, device = 1, (0, 0), 0, (0, 0, 0, 0)
    fields = (number, entry.mode, *owner, links, time, len(entry.content), *device, len(name), 0)
    header = b"070701" + b"".join(b"%08x" % field for field in fields)
    return _padded(header + name) + _padded(entry.content)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
