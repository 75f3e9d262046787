# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the disk image of a simulated host, and take QEMU and its firmware out of the same tree.

No loop device and no mount outlive the build, because none is made: mke2fs fills the root file
system from a folder, mtools fill the ESP, and the package installation has a mount and a process
namespace of its own, which the kernel takes down with its first process.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from sim.commands import run
from sim.emulator import Emulator
from sim.guest_image import build_guest
from sim.lists import read_list
from sim.partitions import MIB, make_esp, partition, put

SUITE = "trixie"
ROOT_UUID = "c0ffee00-7e1a-4a00-8000-000000000001"
DISK_MIB = 8192
ESP_START_MIB = 1
ESP_MIB = 64
ROOT_START_MIB = ESP_START_MIB + ESP_MIB
ROOT_MIB = DISK_MIB - ROOT_START_MIB - 1
LIBRARIES = "usr/lib/x86_64-linux-gnu"
LOADER = f"{LIBRARIES}/ld-linux-x86-64.so.2"
FIRMWARE = (
    "usr/share/OVMF/OVMF_CODE_4M.fd",
    "usr/share/OVMF/OVMF_VARS_4M.fd",
    "usr/share/seabios/bios-256k.bin",
    "usr/share/qemu/kvmvapic.bin",
    "usr/share/qemu/linuxboot_dma.bin",
)
ESP_GRUB_CFG = f"""\
search.fs_uuid {ROOT_UUID} root
set prefix=($root)/boot/grub
configfile $prefix/grub.cfg
"""

# Modes come from the executable bit alone, whatever umask the checkout was made with.
LAY_FILES = 'tar -C "$1" --mode=a=rX,u+w --owner=0 --group=0 -c . | tar -C "$2" --no-overwrite-dir -x'

Say = Callable[[str], None]


def build_image(recipe: Path, work: Path, mirror: str | None, say: Say) -> None:
    """Fill the empty folder `work` with base.img, boot/ and emulator/."""
    tree, log = work / "tree", work / "build.log"
    say("installing Debian packages (about two minutes)")
    _bootstrap(recipe, tree, mirror, log)
    say("configuring the boot loader")
    _configure(recipe, tree, log)
    _take_emulator(tree, work / "emulator", log)
    say("making the guests' image")
    build_guest(recipe, tree, Emulator(work / "emulator"), work, log)
    say("assembling the disk")
    _assemble(tree, work / "base.img", work, log)
    shutil.copytree(tree / "boot", work / "boot")
    shutil.rmtree(tree)


def _bootstrap(recipe: Path, tree: Path, mirror: str | None, log: Path) -> None:
    packages = ",".join(read_list(recipe / "packages.txt"))
    left_out = ("man", "doc", "locale", "info")
    argv = [
        *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
        *("mmdebstrap", "--mode=root", "--variant=minbase", f"--include={packages}"),
        "--dpkgopt=force-unsafe-io",
        *(f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in left_out),
        # Before the packages: the kernel's postinst builds its initramfs from these files.
        f'--setup-hook=set -- "$RACK_RECIPE/root" "$1"; {LAY_FILES}',
        *(SUITE, str(tree)),
        *([mirror] if mirror else []),
    ]
    scratch = tree.parent / "tmp"
    scratch.mkdir()
    os.umask(0o022)
    run(argv, log=log, env={"RACK_RECIPE": str(recipe), "TMPDIR": str(scratch)})
    shutil.rmtree(scratch)


def _configure(recipe: Path, tree: Path, log: Path) -> None:
    # Again, for what the installation itself writes (resolv.conf).
    run(["sh", "-c", LAY_FILES, "sh", f"{recipe}/root", str(tree)], log=log)
    for line in read_list(recipe / "units.txt"):
        verb, unit = line.split()
        run(["chroot", str(tree), "systemctl", "-q", verb, unit], log=log)
    _spare_decompression(tree, log)
    _spare_login_extras(tree)
    # Identity arrives with the first boot. An empty machine-id is filled then; the word
    # "uninitialized" would also reset which units are enabled.
    (tree / "etc/machine-id").write_text("")
    for file in ("hostname", "hosts"):
        (tree / "etc" / file).unlink(missing_ok=True)
    for key in (tree / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    (tree / "boot/efi").mkdir(exist_ok=True)
    _write_boot_menu(recipe, tree, log)
    for folder in ("etc", "var"):
        # Tells systemd that ldconfig and its kin are up to date with /usr, else the first boot runs them.
        (tree / folder / ".updated").touch()


def _spare_decompression(tree: Path, log: Path) -> None:
    # An emulated CPU takes seconds to unpack the modules of one boot.
    modules = tree / "usr/lib/modules"
    packed = [str(path) for path in modules.rglob("*.ko.xz")]
    for first in range(0, len(packed), 1000):
        run(["unxz", *packed[first : first + 1000]], log=log)
    (release,) = modules.iterdir()
    run(["chroot", str(tree), "depmod", release.name], log=log)
    run(["chroot", str(tree), "update-initramfs", "-u"], log=log)


def _spare_login_extras(tree: Path) -> None:
    # A registered session makes systemd start a manager of its own for root at each first login, and
    # costs every later one a round of D-Bus; the message of the day starts a dozen processes.
    for name, module in (("common-session", "pam_systemd.so"), ("sshd", "pam_motd.so")):
        file = tree / "etc/pam.d" / name
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(line for line in lines if module not in line))


def _write_boot_menu(recipe: Path, tree: Path, log: Path) -> None:
    modules = tree / "boot/grub/x86_64-efi"
    modules.mkdir()
    for pattern in ("*.mod", "*.lst"):
        for file in (tree / "usr/lib/grub/x86_64-efi").glob(pattern):
            shutil.copy(file, modules)
    probe = tree / "usr/sbin/grub-probe"
    real = probe.rename(probe.with_suffix(".real"))
    by_uuid = tree / "dev/disk/by-uuid"
    by_uuid.mkdir(parents=True)
    # Without this link update-grub writes root=/dev/vda2, unlike in the booted host.
    (by_uuid / ROOT_UUID).write_text("")
    shutil.copy(recipe / "grub-probe", probe)
    probe.chmod(0o755)
    run(["chroot", str(tree), "update-grub"], log=log, env={"RACK_ROOT_UUID": ROOT_UUID})
    real.rename(probe)
    shutil.rmtree(tree / "dev/disk")


def _assemble(tree: Path, disk: Path, work: Path, log: Path) -> None:
    esp = work / "esp.img"
    _make_esp(tree, esp, log)
    layout = (
        "label: gpt",
        f"start={ESP_START_MIB}MiB, size={ESP_MIB}MiB, type=uefi",
        f"start={ROOT_START_MIB}MiB, size={ROOT_MIB}MiB, type=linux",
    )
    partition(disk, DISK_MIB, layout, log)
    put(esp, disk, ESP_START_MIB)
    # Lazy initialisation would have every host write its empty inode tables into its overlay.
    extended = f"offset={ROOT_START_MIB * MIB},lazy_itable_init=0,lazy_journal_init=0"
    run(
        [
            *("mkfs.ext4", "-q", "-F", "-L", "root", "-U", ROOT_UUID, "-J", "size=64"),
            *("-d", str(tree), "-E", extended, str(disk), f"{ROOT_MIB}M"),
        ],
        log=log,
    )


def _make_esp(tree: Path, esp: Path, log: Path) -> None:
    config = esp.with_name("grub.cfg")
    config.write_text(ESP_GRUB_CFG)
    loader = tree / "usr/lib/grub/x86_64-efi/monolithic/grubx64.efi"
    files = {"EFI/BOOT/BOOTX64.EFI": loader, "EFI/debian/grubx64.efi": loader, "EFI/debian/grub.cfg": config}
    make_esp(esp, ESP_MIB, files, log)
    config.unlink()


def _take_emulator(tree: Path, emulator: Path, log: Path) -> None:
    for folder in ("bin", "lib", "share", "modules"):
        (emulator / folder).mkdir(parents=True)
    libraries: set[Path] = set()
    for program in ("qemu-system-x86_64", "qemu-img"):
        shutil.copy(tree / "usr/bin" / program, emulator / "bin")
        libraries |= _libraries_of(tree, f"usr/bin/{program}", log)
    for library in libraries:
        shutil.copy(library, emulator / "lib")
    for blob in FIRMWARE:
        shutil.copy(tree / blob, emulator / "share")


def _libraries_of(tree: Path, program: str, log: Path) -> set[Path]:
    folder = str(tree / LIBRARIES)
    loader = [str(tree / LOADER), "--inhibit-cache", "--library-path", folder]
    listed = run([*loader, "--list", str(tree / program)], log=log)
    found = {Path(word) for word in listed.split() if word.startswith(folder)}
    return found | {tree / LOADER}
