"""docs/audit.md has every rule as it is; GPUDIRECT_REGENERATE=1 rewrites the table."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ansible_collections.vela.gpudirect.plugins.module_utils.path.rules import RULES

DOCUMENT = Path(__file__).resolve().parents[3] / "docs/audit.md"
HEAD = "| rule | judged for | what it says when all is well |\n| --- | --- | --- |\n"


def table() -> str:
    return "".join(f"| `{rule.name}` | {', '.join(rule.modes)} | {rule.title} |\n" for rule in RULES.values())


def test_the_table_of_rules_is_that_of_the_engine() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    start = text.index(HEAD) + len(HEAD)
    match = re.compile(r"(\|.*\n)*").match(text, start)
    assert match is not None
    if os.environ.get("GPUDIRECT_REGENERATE") == "1":
        DOCUMENT.write_text(text[:start] + table() + text[match.end() :], encoding="utf-8")
        return
    assert match[0] == table()
