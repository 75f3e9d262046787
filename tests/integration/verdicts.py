"""What playbooks/verify.yml has found, check by check."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from tests.integration.conftest import Node
from tests.integration.runs import ROOT


def checks_of(node: Node) -> dict[str, str]:
    """Verdicts of the last verification by check: passed, skipped, or the text of the failure."""
    verdicts = {}
    for case in ET.parse(ROOT / "reports" / "verify" / f"{node.name}.xml").iter("testcase"):
        name = str(case.get("name")).partition("[")[0].removeprefix("test_")
        bad = [child for child in case if child.tag in ("failure", "error")]
        skipped = [child for child in case if child.tag == "skipped"]
        verdicts[name] = f"{bad[0].get('message')}\n{bad[0].text}" if bad else "skipped" if skipped else "passed"
    return verdicts


def failed(verdicts: dict[str, str]) -> set[str]:
    """The checks that found a difference, or could not be made."""
    return {name for name, verdict in verdicts.items() if verdict not in ("passed", "skipped")}


def checks_in(file: str) -> set[str]:
    """The names of the checks of one file of tests/testinfra."""
    text = (ROOT / "tests" / "testinfra" / file).read_text(encoding="utf-8")
    return set(re.findall(r"^def test_(\w+)", text, re.MULTILINE))
