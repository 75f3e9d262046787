"""The engine as one file: the same bytes from every checkout, and a program that runs by itself."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import host_boot
from ansible_collections.vela.gpudirect.plugins.module_utils.at_boot import intent
from ansible_collections.vela.gpudirect.plugins.plugin_utils import engine

from tests.fixtures import hosts
from tests.fixtures.fake_host import FakeHost
from tests.fixtures.runs import settle
from tests.unit.host_boot.conftest import PAGES


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("engine") / "gpudirect.pyz"
    file.write_bytes(engine.own().content)
    return file


def command(archive: Path, *words: str) -> tuple[int, str, str]:
    """Run the archive as a host does, in a folder and with a search path that could only mislead it."""
    done = subprocess.run(
        [sys.executable, "-I", str(archive), *words],
        cwd=engine.SOURCES,
        env={"PYTHONPATH": str(engine.SOURCES), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


# The same bytes ----------------------------------------------------------------------------


def checkout(folder: Path, umask: int, mtime: float) -> Path:
    """The sources as another control node would have them, with what lies about in a checkout."""
    before = os.umask(umask)
    try:
        target = folder / "module_utils"
        target.mkdir(parents=True)
        sources = sorted(engine.SOURCES.rglob("*.py"), reverse=umask == 0o077)
        for source in sources:
            file = target / source.relative_to(engine.SOURCES)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(source.read_bytes())
            os.utime(file, (mtime, mtime))
        (target / "__pycache__").mkdir()
        (target / "__pycache__/site.cpython-39.pyc").write_bytes(os.urandom(20))
        (target / "site.py.orig").write_text(str(mtime), encoding="ascii")
    finally:
        os.umask(before)
    return target


def test_two_checkouts_give_the_same_bytes_and_another_engine_gives_others(tmp_path: Path) -> None:
    one = engine.built(checkout(tmp_path / "one", 0o022, 86400 * 4000))
    two = engine.built(checkout(tmp_path / "two", 0o077, 86400 * 20000 + 0.5))
    assert one == two == engine.own()
    changed = tmp_path / "two/module_utils/site.py"
    changed.write_bytes(changed.read_bytes() + b"\n")
    assert engine.built(tmp_path / "two/module_utils").digest != one.digest


def test_no_compressor_no_time_and_no_machine_shows_in_the_bytes() -> None:
    with zipfile.ZipFile(io.BytesIO(engine.own().content)) as packed:
        entries = packed.infolist()
    assert {(one.compress_type, one.date_time, one.create_system) for one in entries} == {
        (zipfile.ZIP_STORED, (1980, 1, 1, 0, 0, 0), 3)
    }
    names = [one.filename for one in entries]
    assert names == sorted(names)
    assert {"__main__.py", "gpudirect/__init__.py", "gpudirect/site.py", "gpudirect/core/__init__.py"} <= set(names)
    assert all(name.endswith(".py") for name in names)
    assert {one.external_attr >> 16 for one in entries} == {0o100644}


def test_bytes_are_those_of_the_format_and_not_of_a_python_release() -> None:
    """A change of this digest would give every host a new engine with a new Python on the control node."""
    content = engine.archive({"b.py": b"x = 1\n", "a/__init__.py": b""})
    assert hashlib.sha256(content).hexdigest() == "2285605e3743a152c11ffe9cd2211e992db6e01055eea873b0257e1d7c2b9bbc"


# The program ---------------------------------------------------------------------------------


@pytest.fixture
def tree(root: Path) -> Path:
    """A host that is as it should be, captured."""
    host = hosts.build(root / "captured", "debian_12")
    settle(PAGES, host)
    host.path("/sys/bus/pci/devices").mkdir(parents=True, exist_ok=True)
    return Path(host.root)


def test_a_captured_host_is_judged_without_ansible_and_left_alone(archive: Path, tree: Path) -> None:
    before = FakeHost(str(tree)).disk()
    status, out, err = command(archive, "plan", "--root", str(tree))
    assert (status, out, err) == (0, "This host is as its intent says: hugepages as wanted.\n", "")
    (tree / "sys/devices/system/node/node0/hugepages/hugepages-1048576kB/nr_hugepages").write_text("1\n")
    shutil.rmtree(tree / "var/lib/gpudirect")
    status, out, err = command(archive, "plan", "--root", str(tree))
    assert (status, err) == (1, "")
    assert out == (
        "hugepages[1G].node0: the reservation is live at once where node 0 has the room (found 1, wanted 4). "
        "Run site.yml for this host.\nThis host is not as its intent says: hugepages not as wanted.\n"
    )
    after = FakeHost(str(tree)).disk()
    assert {path: one for path, one in before.items() if "/var/lib/gpudirect" not in path} == after


def test_an_intent_may_lie_elsewhere_and_the_answer_may_be_a_document(archive: Path, tree: Path, root: Path) -> None:
    other: dict[str, Any] = {"kernel_hugepages": [{"size": "1G", "nodes": {"0": 4, "1": 3}}]}
    (root / "other.json").write_text(intent.render(other), encoding="utf-8")
    words = ("plan", "--root", str(tree), "--intent", str(root / "other.json"), "--json")
    status, out, _err = command(archive, *words)
    document = json.loads(out)
    assert (status, document["verdict"]) == (1, "not as wanted")
    assert document["resources"]["hugepages"]["paths"] == ["hugepages[1G].node1"]
    assert document["problems"] == document["resources"]["hugepages"]["reasons"]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (None, "is not there"),
        ("{", "cannot be an intent, since it is no JSON: Expecting"),
        ("[]", "cannot be an intent, since it is no mapping"),
        ("{}", "cannot be an intent, since it is without version and options"),
        ('{"version": 1, "options": []}', "its options are no mapping"),
        ('{"version": 2, "options": {}}', "is of another version (found 2, wanted 1)"),
        ('{"version": 1, "options": {"kernel_hugepags": []}}', "kernel_hugepags: is not a known name. Did you mean"),
        ('{"version": 1, "options": {"kernel_hugepages": [{"size": "2M"}]}}', "kernel_hugepages[0]: names the pages"),
    ],
)
def test_an_intent_that_cannot_be_used_is_told_and_nothing_is_judged(
    archive: Path, tree: Path, text: str | None, word: str
) -> None:
    file = tree / "etc/gpudirect/intent.json"
    file.unlink() if text is None else file.write_text(text, encoding="utf-8")
    status, out, err = command(archive, "plan", "--root", str(tree))
    assert (status, err) == (2, "")
    assert word in out
    assert out.endswith("The intent of this host cannot be used, so nothing was done.\n")


def test_wrong_usage_is_an_error_of_its_own(archive: Path) -> None:
    for words in ((), ("boots",), ("boot", "--allow", "host"), ("boot", "--root", "/srv")):
        status, _out, err = command(archive, *words)
        assert (status, err.startswith("usage: gpudirect")) == (2, True), words


def test_the_engine_on_a_host_is_the_one_of_the_control_node(root: Path) -> None:
    """Through the door byte for byte, though that reads and writes texts."""
    host = hosts.build(root / "host", "debian_12")
    content = engine.own().content + bytes(range(256))
    host.path("/run/engine").write_bytes(content)
    digest = host_boot.digest_of(str(host.read_text("/run/engine")))
    step = host_boot.InstallEngine("/run/engine", digest)
    host_boot.apply(host_boot.Change("host_boot.engine", None, digest, "why", step=step), host)
    assert host.path(host_boot.units.ENGINE).read_bytes() == content
