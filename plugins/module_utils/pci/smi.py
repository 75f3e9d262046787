# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The matrices that ``nvidia-smi topo -m`` and ``-mp`` print, with tabs or, as copied from a terminal, with blanks.

The header is underlined where it was not piped; rows of NICs may lack the columns of affinity.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Union

from ..core.errors import Problem, UnreadableState
from .matrix import Matrix

SOURCE = "nvidia-smi topo"

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_LABEL = re.compile(r"GPU[0-9]+|NIC[0-9]+|[a-z][a-z0-9_.-]*[0-9][a-z0-9_.-]*")
_WORD = re.compile(r"X|PIX|PXB|PSB|PHB|NODE|SYS|SOC|QPI|NV[0-9]+|NVL|OK|N/A|DIS|UNKNOWN")
_OLD = {"SOC": "SYS", "QPI": "SYS"}  # words of older versions for the same
_LEGEND = re.compile(r"\s*(NIC[0-9]+)\s*:\s*(\S+)\s*")
_MOST = 4096  # labels


def looks_like(text: str) -> bool:
    """Whether there is the header of such a matrix among the first lines."""
    return any(_header(line) for line in _plain(text[:65536]).splitlines()[:50])


def read(text: str, name: str = "") -> Matrix:
    """The matrix; UnreadableState where a row has too few entries, or one that is no word of nvidia-smi."""
    lines = _plain(text).splitlines()
    at = next((number for number, line in enumerate(lines) if _header(line)), None)
    if at is None:
        raise _problem(name, 1, "has no header with GPU0", "")
    labels = _header(lines[at])
    kinds: dict[tuple[str, str], str] = {}
    numa: dict[str, str] = {}
    legend: dict[str, str] = {}
    for number, line in enumerate(lines[at + 1 :], at + 2):
        cells = line.split()
        match = _LEGEND.fullmatch(line)
        if match:
            legend[match[1]] = match[2]
        elif cells and cells[0] in labels:
            for label, word in zip(labels, _row(cells, labels, name, number)):
                kinds[cells[0], label] = _OLD.get(word, word)
            trailing = cells[1 + len(labels) :]
            if len(trailing) > 1:
                numa[cells[0]] = trailing[1]
    rows = {first for first, _second in kinds}
    lost = [label for label in labels if label not in rows]
    if lost:
        raise _problem(name, len(lines), f"ends before the rows of all labels ({', '.join(lost[:4])} missing)", "")
    return Matrix(labels, kinds, legend, numa=numa, name=name)


def _plain(text: str) -> str:
    return _ESCAPES.sub("", text)


def _header(line: str) -> tuple[str, ...]:
    """The labels of a header; none where the line is no header. The names of its last columns have blanks in them."""
    found: list[str] = []
    for word in line.split()[: _MOST + 1]:
        if word in ("CPU", "NUMA", "GPU") or not _LABEL.fullmatch(word):
            break
        found.append(word)
    is_header = bool(found) and found[0] == "GPU0" and len(found) <= _MOST and "GPU0" not in found[1:]
    # The row of the only GPU begins with its label too, and goes on with a word.
    return tuple(found) if is_header and not any(_WORD.fullmatch(word) for word in line.split()[1:2]) else ()


def _row(cells: Sequence[str], labels: Sequence[str], name: str, line: int) -> Sequence[str]:
    entries = cells[1 : 1 + len(labels)]
    bad: Union[str, None] = next((one for one in entries if not _WORD.fullmatch(one)), None)
    if bad is not None or len(entries) < len(labels):
        found = repr(bad) if bad is not None else f"{len(entries)} entries"
        raise _problem(
            name, line, f"the row of {cells[0]} is not understood", found, f"{len(labels)} words such as PIX or NV12"
        )
    return entries


def _problem(name: str, line: int, fact: str, found: str, wanted: str = "") -> UnreadableState:
    advice = "Copy all of the output of nvidia-smi topo -m or -mp."
    return UnreadableState([Problem(f"{name}:{line}", fact, advice, found=found, wanted=wanted)])
