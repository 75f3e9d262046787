"""House rules of words: nothing left for later, and nothing of the machine that the text was written on."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from pip._internal.models.index import PyPI

ROOT = Path(__file__).resolve().parents[3]
# The licence is not ours to edit; a lock file holds digests, and its addresses have a test of their own.
FOREIGN = {"LICENSE"}
# Put together here, so that this file does not hold them.
LATER = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")
ADDRESS = re.compile(r"https?://(?:[^/@\s]*@)?([A-Za-z0-9.-]+\.[A-Za-z]{2,})")

# Where package clients are told their servers.
CLIENT_SETTINGS = (
    *("/etc/pip.conf", "/etc/xdg/pip/pip.conf", "~/.config/pip/pip.conf", "~/.pip/pip.conf"),
    *("/etc/npmrc", "/usr/etc/npmrc", "~/.npmrc", "/etc/apt/sources.list"),
)
CLIENT_FOLDERS = ("/etc/apt/sources.list.d",)
CLIENT_VARIABLES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "NPM_CONFIG_REGISTRY")
# Folders that stand above many checkouts and mean no machine in particular.
ANYONES = {"/", "/home", "/opt", "/root", "/srv", "/tmp", "/usr", "/usr/src", "/var", "/var/tmp"}
# root's home is also a place on target hosts; what a developer keeps there is not.
OF_A_DEVELOPER = (".pyenv", ".cache", ".local", ".config", ".npm", ".cargo")


def tracked() -> list[str]:
    """What git tracks or would track, without links and binary files."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return sorted(
        {name for name in done.stdout.split("\0") if name and name not in FOREIGN and (ROOT / name).is_file()}
    )


def texts() -> Iterator[tuple[str, str]]:
    """Path and text of each of them."""
    for path in tracked():
        data = (ROOT / path).read_bytes()
        if b"\0" not in data[:8192]:
            yield path, data.decode("utf-8", errors="replace")


def left_for_later(path: str, text: str) -> Iterator[str]:
    """Lines that put something off."""
    for number, line in enumerate(text.splitlines(), 1):
        if LATER.search(line):
            yield f"{path}:{number}: puts something off ({line.strip()[:60]}). Do it, or open an issue and name that."


def own_folders(checkout: Path, home: Path) -> list[str]:
    """Folders that exist on this machine only."""
    folders = [str(checkout)]
    if str(checkout.parent) not in ANYONES:
        folders.append(str(checkout.parent))
    folders += [f"{home}/{name}" for name in OF_A_DEVELOPER] if str(home) in ANYONES else [str(home)]
    return folders


def registries(settings: Iterable[str]) -> set[str]:
    """Host names in the settings of package clients."""
    return {host.lower() for text in settings for host in ADDRESS.findall(text)}


def settings_of_this_machine() -> Iterator[str]:
    """The settings of its package clients, and the index that pip takes without any."""
    yield PyPI.url
    yield f"https://{PyPI.file_storage_domain}/"
    files = [Path(name).expanduser() for name in CLIENT_SETTINGS]
    files += [file for folder in CLIENT_FOLDERS if Path(folder).is_dir() for file in sorted(Path(folder).iterdir())]
    for file in files:
        if file.is_file():
            yield file.read_text(encoding="utf-8", errors="replace")
    for variable in CLIENT_VARIABLES:
        yield os.environ.get(variable, "")


def traces(path: str, text: str, folders: Iterable[str], hosts: Iterable[str]) -> Iterator[str]:
    """Lines that name a folder of this machine or a server of its package clients."""
    folder = re.compile(r"(?<![\w./-])(" + "|".join(map(re.escape, folders)) + r")(/|\b)")
    host = re.compile(r"(?<![\w.-])(" + "|".join(map(re.escape, sorted(hosts))) + r")(?![\w-])", re.IGNORECASE)
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, what, advice in (
            (folder, "a folder of one machine", "Find it at run time, or write it from the root of the checkout."),
            (host, "a server of packages", "Read it from the settings of the client at run time."),
        ):
            match = pattern.search(line)
            if match:
                yield f"{path}:{number}: names {what} ({match[1]}). {advice}"


def test_nothing_is_left_for_later() -> None:
    problems = [problem for path, text in texts() for problem in left_for_later(path, text)]
    assert not problems, "\n".join(problems)


def test_no_trace_of_the_machine() -> None:
    folders, hosts = own_folders(ROOT, Path.home()), registries(settings_of_this_machine())
    assert hosts
    problems = [problem for path, text in texts() for problem in traces(path, text, folders, hosts)]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("lock", sorted((ROOT / "environment").glob("*.lock")), ids=lambda lock: lock.name)
def test_lock_files_name_no_index(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    assert "://" not in text
    assert "--hash=sha256:" in text


def test_the_tree_is_there() -> None:
    assert {"pyproject.toml", "environment/prepare"} <= set(tracked())


@pytest.mark.parametrize("word", ["TO" + "DO: later", "# FIX" + "ME", "XX" + "X"])
def test_left_for_later_is_found(word: str) -> None:
    assert list(left_for_later("x.py", f"a = 1  # {word}\n"))


def test_a_pattern_for_mktemp_is_not_left_for_later() -> None:
    assert not list(left_for_later("x.sh", "mktemp -d rack.XXXXXX\n"))


FOLDERS = own_folders(Path("/data/me/repo"), Path("/home/me"))
HOSTS = registries(
    [
        "[global]\nindex-url = https://user:secret@packages.example.org/simple/\n",
        "deb http://mirror.example.net/debian x",
    ]
)


@pytest.mark.parametrize(
    "line",
    [
        "see /data/me/repo/test",
        "cd '/data/me/other'",
        "/home/me/.ssh/id",
        "PATH=/home/me",
        "url: https://packages.example.org/simple",
        "host = Mirror.Example.Net",
    ],
)
def test_trace_is_found(line: str) -> None:
    assert list(traces("x.yml", line, FOLDERS, HOSTS))


@pytest.mark.parametrize(
    "line",
    [
        "cd repo && ./test",
        "/srv/data/me/repo",
        "/home/metro",
        "/root/.ssh/id",
        "https://example.com/x",
        "notpackages.example.org",
    ],
)
def test_other_words_are_no_trace(line: str) -> None:
    assert not list(traces("x.yml", line, FOLDERS, HOSTS))


def test_home_of_root_is_also_a_place_on_hosts() -> None:
    folders = own_folders(Path("/tmp/repo"), Path("/root"))
    assert not list(traces("x.yml", "/root/.ssh/authorized_keys below /tmp/x", folders, HOSTS))
    assert list(traces("x.yml", f"/root/{OF_A_DEVELOPER[0]}/shims", folders, HOSTS))
