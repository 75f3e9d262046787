# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why the engine could not run on a host at all, from a probe that needs no Python. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from .core.errors import Problem

# Plain POSIX, so that it runs on anything with a shell; prints one ``key=value`` line per fact.
PROBE = """
echo "uid=$(id -u)"
echo "machine=$(uname -m)"
[ "$(id -u)" = 0 ] && echo root=yes || { sudo -n true 2>/dev/null && echo root=yes || echo root=no; }
[ -r /etc/os-release ] && ( . /etc/os-release; echo "id=$ID"; echo "version=$VERSION_ID"; echo "system=$PRETTY_NAME" )
echo "sudo=$(command -v sudo)"
echo "python=$(INTERPRETER -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)"
"""

# Systems that are proven or aimed at first: os-release ID, and the VERSION_ID beginnings.
SUPPORTED = {
    "debian": ("12", "13"),
    "ubuntu": ("22.04", "24.04"),
    "rhel": ("9", "10"),
    "rocky": ("9", "10"),
    "almalinux": ("9", "10"),
    "centos": ("9", "10"),
}
OLDEST_PYTHON = (3, 9)


def facts_of(output: str) -> dict[str, str]:
    """The probe's output as a mapping; lines of login banners and the like are passed over."""
    return dict(line.strip().split("=", 1) for line in output.splitlines() if "=" in line)


def problems_of(facts: Mapping[str, str], interpreter: str) -> list[Problem]:
    """One plain sentence for each reason that keeps the engine from running."""
    problems = []
    if not facts.get("uid"):
        return [
            Problem(
                "preflight", "the host's shell did not answer the probe", "See whether the login runs a POSIX shell."
            )
        ]
    if facts.get("root") != "yes":
        problems.append(
            Problem(
                "preflight",
                "the login user is not root and sudo asks for a password or refuses",
                "Log in as root, allow sudo without password, or give the password with --ask-become-pass.",
                found=f"uid {facts['uid']}",
                wanted="root",
            )
        )
    elif not facts.get("sudo"):
        advice = "Install sudo, or set ansible_become: false for hosts with root logins."
        problems.append(Problem("preflight", "the playbooks become root with sudo, which is not installed", advice))
    version = _version(facts.get("python", ""))
    if version is None:
        problems.append(
            Problem(
                "preflight",
                f"{interpreter} does not run on the host",
                "Install python3, or set ansible_python_interpreter.",
                wanted=f"Python {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} or newer",
            )
        )
    elif version < OLDEST_PYTHON:
        problems.append(
            Problem(
                "preflight",
                f"{interpreter} is too old",
                "Install a newer python3, or set ansible_python_interpreter.",
                found=facts["python"],
                wanted=f"{OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} or newer",
            )
        )
    return problems + _system_problems(facts)


def _version(text: str) -> tuple[int, int] | None:
    major, _dot, minor = text.partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


def _system_problems(facts: Mapping[str, str]) -> list[Problem]:
    problems = []
    if facts.get("machine") != "x86_64":
        problems.append(
            Problem(
                "preflight",
                "the processor architecture is not supported",
                "Leave this host out of the inventory group.",
                found=facts.get("machine", ""),
                wanted="x86_64",
            )
        )
    versions = SUPPORTED.get(facts.get("id", ""), ())
    if not any(facts.get("version", "") == one or facts.get("version", "").startswith(f"{one}.") for one in versions):
        wanted = ", ".join(f"{name} {' '.join(known)}" for name, known in SUPPORTED.items())
        problems.append(
            Problem(
                "preflight",
                "the system is not supported",
                "Install a supported system.",
                found=facts.get("system", "no os-release"),
                wanted=wanted,
            )
        )
    return problems
