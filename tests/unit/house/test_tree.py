"""House rules of the tree: sizes, names of folders, and what YAML may not do."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import site

ROOT = Path(__file__).resolve().parents[3]

FILE_LINES = 500
PLAYBOOK_LINES = 40
MODULE_LINES = 150
BARRED_FOLDERS = {"utils", "helpers", "common", "misc", "library"}
# Data, rendered or recorded, and prose: their size is not ours to choose.
UNMEASURED = ("tests/fixtures/", "tests/cases/", "changelogs/changelog.yaml", "docs/")
UNMEASURED_SUFFIXES = {".lock", ".md", ".xml", ".json", ".txt", ".svg", ".png", ".gz", ".patch"}
DOCUMENTS = {"DOCUMENTATION", "EXAMPLES", "RETURN"}


def tree() -> list[str]:
    """What git tracks or would track, as paths from the root."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return sorted({name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()})


def text_of(path: str) -> str:
    """The text of a file; nothing for a binary one or a link."""
    file = ROOT / path
    data = b"" if file.is_symlink() else file.read_bytes()
    return "" if b"\0" in data[:8192] else data.decode("utf-8", errors="replace")


def is_playbook(path: str) -> bool:
    """Whether the file is a playbook (task files lie a folder deeper)."""
    return path == "site.yml" or PurePosixPath(path).match("playbooks/*.yml")


def code_lines(text: str) -> int:
    """Lines of a module without its documentation."""
    documents = sum(
        node.end_lineno - node.lineno + 1
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and {getattr(target, "id", "") for target in node.targets} & DOCUMENTS
    )
    return len(text.splitlines()) - documents


def sizes(path: str, text: str) -> Iterator[str]:
    """Short enough to be read in one go."""
    lines = len(text.splitlines())
    if is_playbook(path) and lines > PLAYBOOK_LINES:
        yield f"{path}: is too long (found {lines} lines, wanted at most {PLAYBOOK_LINES}). Move logic to a role or module."
    if re.fullmatch(r"plugins/modules/[^/]+\.py", path) and code_lines(text) > MODULE_LINES:
        yield (
            f"{path}: is more than an edge (found {code_lines(text)} lines besides documentation, "
            f"wanted at most {MODULE_LINES}). Move what decides to module_utils."
        )
    measured = not path.startswith(UNMEASURED) and PurePosixPath(path).suffix not in UNMEASURED_SUFFIXES
    if measured and path != "LICENSE" and lines > FILE_LINES:
        yield f"{path}: is too long (found {lines} lines, wanted at most {FILE_LINES}). Split it by what it knows."


def places(path: str, text: str) -> Iterator[str]:
    """Every thing has a noun of its own for a folder."""
    del text
    *folders, name = PurePosixPath(path).parts
    for folder in sorted(BARRED_FOLDERS.intersection(folders)):
        yield f"{path}: lies in a folder that says nothing ({folder}). Name the folder after what is in it."
    if folders[:1] == ["roles"] and name.endswith(".py"):
        yield f"{path}: is Python inside a role. Move it to plugins/."


# What YAML does not do: pattern of a line, what is wrong, what to do, whether a comment beside it settles it.
BARRED_LINES: tuple[tuple[str, str, str, bool], ...] = (
    (r"(ansible\.(builtin|legacy)\.)?shell\s*:", "runs a shell", "Write a module, or command with a list.", False),
    (r"ignore_errors\s*:", "hides a failure", "Decide on the result by name, or let it fail.", False),
    (r"changed_when\s*:\s*(true|false)\b", "says changed without looking", "Look, or say why in a comment.", True),
    (r"failed_when\s*:\s*false\b", "never fails", "Decide on the result, and say where in a comment.", True),
    (r"(ansible\.(builtin|legacy)\.)?pause\s*:", "waits a fixed time", "Wait for a condition.", False),
    (r"when\s*:.*not ansible_check_mode", "dodges check mode", "Predict instead.", False),
    (r"(ansible\.builtin\.)?(include_tasks|include_role)\s*:\s*[\"']?\{\{", "includes what a variable says",
     "Name the file.", False),
)  # fmt: skip


def is_tasks(path: str) -> bool:
    """Whether the file's YAML is run against hosts."""
    pure = PurePosixPath(path)
    return pure.suffix in {".yml", ".yaml"} and (path == "site.yml" or pure.parts[0] in {"roles", "playbooks"})


def yaml_habits(path: str, text: str) -> Iterator[str]:
    """YAML says what; nothing is hidden in it."""
    if not is_tasks(path):
        return
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        statement = line.strip().removeprefix("- ")
        for pattern, fact, advice, excusable in BARRED_LINES:
            excused = excusable and (" #" in line or before.strip().startswith("#"))
            if re.match(pattern, statement) and not excused:
                yield f"{path}:{number}: {fact} ({statement}). {advice}"
        before = line


RULES = {"sizes": sizes, "places": places, "yaml_habits": yaml_habits}


def test_the_tree_is_there() -> None:
    paths = tree()
    assert "site.yml" in paths
    assert any(path.startswith("plugins/modules/") for path in paths)
    assert any(is_tasks(path) and path.startswith("roles/") for path in paths)


@pytest.mark.parametrize("rule", RULES)
def test_tree_keeps_the_rule(rule: str) -> None:
    problems = [problem for path in tree() for problem in RULES[rule](path, text_of(path))]
    assert not problems, "\n".join(problems)


LONG = "a: 1\n"


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        ("sizes", "site.yml", LONG * 41),
        ("sizes", "playbooks/guests.yml", LONG * 41),
        ("sizes", "plugins/modules/sriov.py", "x = 1\n" * 151),
        ("sizes", "plugins/module_utils/sriov.py", "x = 1\n" * 501),
        ("sizes", "demo", "echo\n" * 501),
        ("places", "plugins/module_utils/utils/x.py", ""),
        ("places", "roles/common/tasks/main.yml", ""),
        ("places", "roles/kernel/files/x.py", ""),
        ("yaml_habits", "roles/x/tasks/main.yml", "- name: A\n  ansible.builtin.shell: echo"),
        ("yaml_habits", "roles/x/handlers/main.yml", "- shell: echo"),
        ("yaml_habits", "playbooks/x.yml", "      ignore_errors: true"),
        ("yaml_habits", "roles/x/tasks/main.yml", "  changed_when: false"),
        ("yaml_habits", "roles/x/tasks/main.yml", "  changed_when: true"),
        ("yaml_habits", "roles/x/tasks/main.yml", "  failed_when: false"),
        ("yaml_habits", "roles/x/tasks/main.yml", "- ansible.builtin.pause:"),
        ("yaml_habits", "roles/x/tasks/main.yml", "  when: not ansible_check_mode"),
        ("yaml_habits", "playbooks/tasks/round.yml", '- ansible.builtin.include_role: "{{ x }}"'),
    ],
)
def test_rule_finds_its_breach(rule: str, path: str, text: str) -> None:
    assert list(RULES[rule](path, text))


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        ("sizes", "playbooks/guests.yml", LONG * 40),
        ("sizes", "plugins/modules/sriov.py", 'DOCUMENTATION = """\n' + "a\n" * 200 + '"""\nx = 1\n'),
        ("sizes", "tests/fixtures/host/lspci.txt", "x\n" * 5000),
        ("places", "roles/kernel/tasks/main.yml", ""),
        (
            "yaml_habits",
            "roles/x/tasks/main.yml",
            "- name: Say that no shell: is used\n  changed_when: __x_result.changed",
        ),
        ("yaml_habits", "roles/x/tasks/main.yml", "  # Reading the version changes nothing.\n  changed_when: false"),
        ("yaml_habits", "tests/integration/x.yml", "- ansible.builtin.shell: echo"),
    ],
)
def test_rule_lets_the_right_form_pass(rule: str, path: str, text: str) -> None:
    assert not list(RULES[rule](path, text))


def test_the_readme_names_the_page_of_every_resource() -> None:
    (line,) = [one for one in text_of("README.md").splitlines() if one.startswith("All options, from this folder:")]
    named = set(re.findall(r"`ansible-doc vela\.gpudirect\.(\w+)`", line))
    modules = {PurePosixPath(path).stem for path in tree() if re.fullmatch(r"plugins/modules/\w+\.py", path)}
    assert named <= modules
    resources = {resource.__name__.rpartition(".")[2] for resource in site.RESOURCES}
    assert {*resources, "guest_placement", "p2p_topology"} - named == set()
