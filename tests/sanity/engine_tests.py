"""Print the unit tests that need the engine alone: they run on the oldest Python of a target host, without Ansible."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

# What only a control node has. Modules, action plugins and filters import ansible themselves.
CONTROL_NODE = {"ansible", "ansible_runner", "jinja2", "netaddr", "rich", "rollout", "sim", "testinfra"}
PLUGINS = "ansible_collections.vela.gpudirect.plugins"
ENGINE = f"{PLUGINS}.module_utils"
# Of the control node, and free of Ansible: it packs the engine, which then has to run there.
PACKER = f"{PLUGINS}.plugin_utils.engine"


def imported(tree: ast.AST) -> set[str]:
    """Dotted names that the file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def needs_control_node(name: str) -> bool:
    """Whether an import is out of reach on a target host."""
    if name.startswith("ansible_collections."):
        return not f"{name}.".startswith((f"{ENGINE}.", f"{PACKER}."))
    if name.partition(".")[0] == "tests":
        return any(map(needs_control_node, imported_by_part_of_tests(name)))
    return name.partition(".")[0] in CONTROL_NODE


@functools.cache
def imported_by_part_of_tests(name: str) -> frozenset[str]:
    """What a module of the tests imports; nothing when the name is one within a module."""
    file = Path(*name.split(".")).with_suffix(".py")
    return frozenset(imported(ast.parse(file.read_text(encoding="utf-8"))) if file.is_file() else ())


for file in sorted(Path("tests/unit").rglob("test_*.py")):
    names = imported(ast.parse(file.read_text(encoding="utf-8")))
    if any(name.startswith(ENGINE) for name in names) and not any(map(needs_control_node, names)):
        print(file)
