"""KVM where it really works, TCG elsewhere. The device file proves nothing: a kernel must boot."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from sim.commands import die_with_parent
from sim.image import Image
from sim.liveness import boot_id
from sim.places import cache_folder

import signal  # isort: skip

PROBE_LIMIT_S = 20.0
# A kernel that finds no root file system has gone through its whole start.
PROOF = b"Unable to mount root fs"


def choose_accelerator(image: Image) -> str:
    """Return kvm or tcg; the answer is kept until the machine boots again."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    kept = cache_folder() / "kvm-probe.json"
    known = _read(kept)
    asked = {"boot_id": boot_id(), "image": image.key}
    if {key: known.get(key) for key in asked} != asked:
        known = {**asked, "works": kvm_boots(image)}
        kept.write_text(json.dumps(known))
    return "kvm" if known["works"] else "tcg"


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
        ended = subprocess.run(  # noqa: S603
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **image.emulator.environment},
            preexec_fn=die_with_parent(signal.SIGKILL),  # noqa: PLW1509
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
