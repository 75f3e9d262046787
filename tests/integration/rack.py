"""A simulated rack of the tests' own: a user's rack in the same checkout keeps running and keeps its disks."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
RACKS = ROOT / ".cache" / "racks"
# Everything that a host keeps over a boot and that the product may touch, without what changes at each boot by itself.
# An initramfs that is built again from the same files has other bytes (times of files): the names in it are compared,
# but for what checks a root file system: initramfs-tools puts it in where it sees one, which it does not while the image is made.
FINGERPRINT = r"""
cd /
all() { find etc boot usr/local var/lib -xdev \( -path var/lib/systemd -o -path boot/efi \) -prune -o "$@"; }
all -printf '%m %U:%G %y %p %l\n' | sort
all -type f ! -path 'boot/initrd.img-*' ! -path 'var/lib/initramfs-tools/*' -print0 | sort -z | xargs -0 sha256sum
for image in boot/initrd.img-*; do lsinitramfs $image | grep -vxE 'usr/sbin/(fsck|logsave)' | sort | sha256sum | sed "s,-,names in $image,"; done
"""


class Rack:
    """Hosts by name. The rack's state lies where its code lies, so it gets a copy of its code and of the inventories."""

    def __init__(self, name: str, tell: Callable[[str], None] = print) -> None:
        self.home = RACKS / name
        self.tell = tell
        for folder in ("sim", "inventories"):
            shutil.rmtree(self.home / folder, ignore_errors=True)
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / folder, self.home / folder, ignore=ignored)
        # Hosts that are wrong on purpose are asked for the same as the good ones.
        shutil.copytree(
            self.inventory / "group_vars", self.home / "inventories" / "sim-bad" / "group_vars", dirs_exist_ok=True
        )

    @property
    def inventory(self) -> Path:
        return self.home / "inventories" / "sim"

    @property
    def odd_inventory(self) -> Path:
        return self.home / "inventories" / "sim-bad"

    # Power ---------------------------------------------------------------------------------------

    def up(self, *names: str, fresh: bool = False) -> None:
        """Bring hosts up and wait for ssh; ``fresh`` gives them new disks."""
        self._rack("up", *names, *(["--fresh"] if fresh else []))

    def down(self, *names: str) -> None:
        """Take hosts down, all of them when none is named."""
        self._rack("down", *names)

    def cut(self, name: str) -> None:
        """Take the power away."""
        self._rack("power", name, "cut")

    def describe(self, name: str, devices: Mapping[str, Mapping[str, Any]]) -> None:
        """Change devices of a host, by name, from its next boot on; none: the host is as its description has it.

        A cable of the other host's ends where it did: a NIC is unplugged, not its cable.
        """
        file = Path("sim") / "hosts" / f"{name}.yml"
        table = yaml.safe_load((ROOT / file).read_text())
        table["devices"] = {**table.get("devices", {}), **{device: dict(keys) for device, keys in devices.items()}}
        (self.home / file).write_text(yaml.safe_dump(table))

    def console(self, name: str, lines: int = 25) -> str:
        """The end of a host's console."""
        argv = [self.program, "console", name, "--tail", str(lines)]
        return subprocess.run(argv, env=self.environment, capture_output=True, text=True, check=True).stdout

    @property
    def program(self) -> str:
        return str(self.home / "sim" / "rack")

    @property
    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "RACK_PYTHON": sys.executable}

    def _rack(self, *words: str) -> None:
        began = time.monotonic()
        with subprocess.Popen(
            [self.program, *words],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            lines = [line.rstrip() for line in process.stdout or ()]
        if process.returncode:
            said = "\n".join(lines)
            raise RuntimeError(f"sim/rack {' '.join(words)} ended with {process.returncode}:\n{said}")
        self.tell(f"    sim/rack {' '.join(words)}: {time.monotonic() - began:.0f} s")

    # Commands ------------------------------------------------------------------------------------

    def run(self, name: str, script: str) -> str:
        """The output of a shell script on a host; a failure is an error with what it printed."""
        argv = ["ssh", "-F", str(self.home / ".rack" / "ssh_config"), name, f"sh -euc {shlex.quote(script)}"]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{name}: {script!r} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def boot_id(self, name: str) -> str:
        return self.run(name, "cat /proc/sys/kernel/random/boot_id").strip()

    def fingerprint(self, name: str) -> frozenset[str]:
        """One line for each file's place, mode and owner, and one for its content."""
        return frozenset(self.run(name, FINGERPRINT).splitlines())


def main() -> None:
    """python -m tests.integration.rack NAME up|down [HOST ...]: for what cannot hold an object, such as molecule."""
    name, verb, *words = sys.argv[1:]
    rack = Rack(name)
    if verb == "up":
        rack.up(*words, fresh=True)
    else:
        rack.down(*words)


if __name__ == "__main__":
    main()
