# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What this machine must have before a rack can be built on it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from sim.build import Say
from sim.commands import run, run_undisturbed
from sim.errors import RackError
from sim.lists import read_list


def debian_mirror() -> str | None:
    """Return the mirror that this machine's own apt uses, None when it is no Debian."""
    if _os_release().get("ID") != "debian" or not shutil.which("apt-get"):
        return None
    codename = _os_release().get("VERSION_CODENAME", "")
    listing = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)"]
    for line in run([*listing, "Created-By: Packages"]).splitlines():
        uri, *suite = line.split()
        if suite == [codename, "main"] and uri.startswith(("http:", "https:", "file:")):
            return uri
    return None


def missing_packages(wanted: Path) -> list[str]:
    """Return the listed packages that dpkg does not know as installed."""
    packages = read_list(wanted)
    if not shutil.which("dpkg-query"):
        raise RackError(
            "packages: this machine has no dpkg (wanted Debian 12 or 13, or Ubuntu 24.04). "
            "Run the rack on one of these."
        )
    query = ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *packages]
    # A package that dpkg never heard of makes it end with 1; the others are still listed.
    listed = subprocess.run(query, capture_output=True, text=True, check=False).stdout
    installed = {name for name, status in map(str.split, listed.splitlines()) if status == "installed"}
    return [package for package in packages if package not in installed]


def install_missing(wanted: Path, say: Say) -> None:
    """Install what is missing when root, else say which command does it."""
    missing = missing_packages(wanted)
    if not missing:
        return
    command = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    if os.geteuid() != 0:
        raise RackError(f"packages: {', '.join(missing)} not installed. Run '{' '.join(command)}' as root.")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    # Somebody else's apt may run; dpkg's own message would be a riddle.
    command[1:1] = ["-o", "DPkg::Lock::Timeout=300"]
    say(f"installing on this machine: {', '.join(missing)}")
    try:
        run_undisturbed(command, env=quiet)
    except RackError:
        # The lists may be missing or too old for the archive.
        run(["apt-get", "update"], env=quiet)
        run_undisturbed(command, env=quiet)


def _os_release() -> dict[str, str]:
    try:
        lines = Path("/etc/os-release").read_text().splitlines()
    except FileNotFoundError:
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {key: value.strip('"') for key, _, value in pairs}
