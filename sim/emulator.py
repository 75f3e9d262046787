# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the QEMU that came with the image, with its own libraries, on whatever this machine is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Emulator:
    """The emulator folder of an image."""

    folder: Path

    @property
    def firmware(self) -> Path:
        """OVMF, SeaBIOS and option ROMs."""
        return self.folder / "share"

    def command(self, program: str) -> list[str]:
        """Return the words that start one of its programs, to be followed by arguments.

        The program loader is called by name, because the machine's own C library may be older
        than what the program was linked with. Its cache is ignored, or a library of the machine
        could slip in through it.
        """
        loader = self.folder / "lib" / "ld-linux-x86-64.so.2"
        libraries = self.folder / "lib"
        return [
            *(str(loader), "--inhibit-cache", "--library-path", str(libraries)),
            *("--argv0", program, str(self.folder / "bin" / program)),
        ]

    @property
    def environment(self) -> dict[str, str]:
        """Keep QEMU from loading modules of another QEMU on this machine."""
        return {"QEMU_MODULE_DIR": str(self.folder / "modules")}
