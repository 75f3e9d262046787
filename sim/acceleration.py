# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""KVM where it really works, TCG elsewhere. The device file proves nothing: a kernel must boot."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from sim.commands import die_with_parent
from sim.image import Image
from sim.liveness import boot_id

PROBE_LIMIT_S = 20.0
# A kernel that finds no root file system has gone through its whole start.
PROOF = b"Unable to mount root fs"


def choose_accelerator(image: Image) -> str:
    """Return kvm or tcg, after booting something where that is not known yet."""
    known = known_accelerator(image)
    if known is None:
        known = "kvm" if kvm_boots(image) else "tcg"
        _kept(image).write_text(json.dumps({"boot_id": boot_id(), "answer": known}))
    return known


def known_accelerator(image: Image | None) -> str | None:
    """Return kvm or tcg as far as known without a try; an answer holds until the machine reboots."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    known = _read(_kept(image)) if image is not None else {}
    if known.get("boot_id") == boot_id() and known.get("answer") in ("kvm", "tcg"):
        return str(known["answer"])
    return None


def _kept(image: Image) -> Path:
    return image.folder / "kvm-probe.json"


def kvm_boots(image: Image) -> bool:
    """Boot the image's kernel under KVM with nothing to mount, and see whether it gets that far."""
    argv = [
        *image.emulator.command("qemu-system-x86_64"),
        *("-machine", "q35,kernel-irqchip=split", "-accel", "kvm", "-cpu", "max", "-m", "512"),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"),
        *("-L", str(image.emulator.firmware), "-kernel", str(image.kernel)),
        *("-append", "console=ttyS0 panic=-1"),
    ]
    try:
        ended = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **image.emulator.environment},
            preexec_fn=die_with_parent(),  # noqa: PLW1509 - this process has one thread
            timeout=PROBE_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        return PROOF in (late.stdout or b"")
    return PROOF in ended.stdout


def _read(path: Path) -> dict[str, object]:
    try:
        found = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
