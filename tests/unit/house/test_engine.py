"""House rules of the engine: one door to the host, pure planning, nothing but the standard library."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ENGINE = ROOT / "plugins" / "module_utils"
FILES = sorted(path.relative_to(ENGINE).as_posix() for path in ENGINE.rglob("*.py"))

DOOR = "core/host.py"
# A part of the door that is long enough for a file of its own: how a file comes from the network.
DOORS = {DOOR, "core/download.py"}
# Modules that reach files, processes, the network or the clock. posixpath, PurePosixPath and io.StringIO do not.
OUTSIDE = {
    *("asyncio", "concurrent", "ctypes", "fcntl", "fileinput", "getpass", "glob", "http", "linecache", "mmap"),
    *("multiprocessing", "os", "platform", "pty", "pwd", "random", "resource", "secrets", "select", "selectors"),
    *("shutil", "signal", "socket", "socketserver", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "time"),
    *("urllib", "uuid", "zipfile", "tarfile"),
}
CALLS = {"open", "input", "eval", "exec", "compile", "__import__", "breakpoint", "print"}
# The only libraries beside the standard one, each at its one edge; the distribution of the host brings them.
EDGES = {"libvirt": "guest/libvirt.py", "sushy": "bios.py"}
# Newer than the oldest Python of a target host.
TOO_NEW = {"tomllib"}
# Strings the five verbs together: it reads between parse and plan.
COMPOSES = "core/converge.py"


def modules_of(tree: ast.AST) -> Iterator[tuple[int, str, int]]:
    """Line, module and level of each import, wherever in the file it is."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, 0
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or "", node.level


def door(path: str, tree: ast.AST) -> Iterator[str]:
    """Only the door reaches the host."""
    if path in DOORS:
        return
    for line, module, level in modules_of(tree):
        if level == 0 and module.partition(".")[0] in OUTSIDE:
            yield f"{path}:{line}: imports {module}, which reaches outside. Ask {DOOR} instead."
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "pathlib":
            for alias in node.names:
                if not alias.name.startswith("Pure"):
                    yield f"{path}:{node.lineno}: imports pathlib.{alias.name}, which reaches files. Take PurePosixPath."
        elif isinstance(node, ast.Import) and any(alias.name == "pathlib" for alias in node.names):
            yield f"{path}:{node.lineno}: imports all of pathlib. Import PurePosixPath from it."
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
            yield f"{path}:{node.lineno}: calls {node.func.id}(). Ask {DOOR} instead, or return the value."


def is_pure_verb(name: str) -> bool:
    """Whether a function of this name promises to decide without looking."""
    return name in {"parse", "plan", "render"} or name.startswith(("parse_", "plan_", "render_"))


def names_in(annotation: ast.expr | None) -> set[str]:
    """Every name in an annotation, quoted ones too."""
    if annotation is None:
        return set()
    found: set[str] = set()
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= names_in(ast.parse(node.value, mode="eval").body)
    return found


def purity(path: str, tree: ast.AST) -> Iterator[str]:
    """parse, plan and render take no host and make none."""
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or not is_pure_verb(node.name):
            continue
        if path == COMPOSES and node.name == "plan_all":
            continue
        given = node.args
        parameters = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
        for parameter in parameters:
            if parameter and (parameter.arg == "host" or "Host" in names_in(parameter.annotation)):
                yield (
                    f"{path}:{node.lineno}: {node.name} takes a host ({parameter.arg}). "
                    "Let read look, and hand over what it found."
                )
        for inner in ast.walk(node):
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id == "Host":
                yield f"{path}:{inner.lineno}: {node.name} makes a Host. Let read look, and hand over what it found."


def imports(path: str, tree: ast.AST) -> Iterator[str]:
    """Relative inside the engine; of others the standard library, but for two edges."""
    for line, module, level in modules_of(tree):
        top = module.partition(".")[0]
        if level:
            if level > path.count("/") + 1:
                yield f"{path}:{line}: its import leaves the engine. Only plugin edges import from plugins/."
        elif top in {"ansible", "ansible_collections"}:
            yield f"{path}:{line}: imports {module} (wanted a relative import; the engine also runs as a zipapp)."
        elif top in EDGES:
            if path != EDGES[top]:
                yield f"{path}:{line}: imports {top} (wanted only in {EDGES[top]}). Go through that edge."
        elif top in TOO_NEW or top not in sys.stdlib_module_names:
            yield f"{path}:{line}: imports {module}, which Python 3.9 of a host may not have. Use its standard library."


RULES: dict[str, Callable[[str, ast.AST], Iterator[str]]] = {"door": door, "purity": purity, "imports": imports}


def test_the_engine_is_there() -> None:
    assert DOOR in FILES
    assert COMPOSES in FILES


@pytest.mark.parametrize("rule", RULES)
def test_engine_keeps_the_rule(rule: str) -> None:
    problems = [
        problem
        for path in FILES
        for problem in RULES[rule](path, ast.parse((ENGINE / path).read_text(encoding="utf-8"), path))
    ]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("rule", "path", "source"),
    [
        ("door", "sriov.py", "import os"),
        ("door", "sriov.py", "import os.path"),
        ("door", "sriov.py", "from os import listdir"),
        ("door", "core/change.py", "import subprocess as s"),
        ("door", "sriov.py", "def f():\n    import socket\n"),
        ("door", "sriov.py", "from time import sleep"),
        ("door", "sriov.py", "import pathlib"),
        ("door", "sriov.py", "from pathlib import PurePath, Path"),
        ("door", "sriov.py", "text = open('/sys/x').read()"),
        ("purity", "sriov.py", "def plan(desired, host): ..."),
        ("purity", "sriov.py", "def parse(params, *, host=None): ..."),
        ("purity", "sriov.py", "def plan(desired, door: Host): ..."),
        ("purity", "sriov.py", "def plan(desired, door: 'Host | None' = None): ..."),
        ("purity", "sriov.py", "class Sriov:\n    def plan(self, door: core.host.Host): ..."),
        ("purity", "sriov.py", "def plan_vfs(pf, *doors: Host): ..."),
        ("purity", "sriov.py", "def plan(desired):\n    return Host().read()"),
        ("imports", "sriov.py", "import yaml"),
        ("imports", "sriov.py", "from ansible.module_utils.basic import AnsibleModule"),
        ("imports", "sriov.py", "from ansible_collections.vela.gpudirect.plugins.module_utils.core import host"),
        ("imports", "pci/tree.py", "from ... import modules"),
        ("imports", "sriov.py", "import libvirt"),
        ("imports", "guest/model.py", "import sushy.main"),
        ("imports", "sriov.py", "import tomllib"),
    ],
)
def test_rule_finds_its_breach(rule: str, path: str, source: str) -> None:
    assert list(RULES[rule](path, ast.parse(source)))


@pytest.mark.parametrize(
    ("rule", "path", "source"),
    [
        ("door", DOOR, "import os, subprocess"),
        ("door", "sriov.py", "import json, posixpath\nfrom pathlib import PurePosixPath"),
        ("door", "sriov.py", "host.open('/sys/x')"),
        ("purity", "sriov.py", "def read(host: Host): ...\ndef apply(plan, host): ..."),
        ("purity", "sriov.py", "def plan(desired: Desired, current: Current) -> Plan: ..."),
        ("imports", "pci/tree.py", "from ..core import errors\nfrom .address import PciAddress\nimport re"),
        ("imports", "guest/libvirt.py", "import libvirt"),
        ("imports", "bios.py", "from sushy import exceptions"),
    ],
)
def test_rule_lets_the_right_form_pass(rule: str, path: str, source: str) -> None:
    assert not list(RULES[rule](path, ast.parse(source)))
