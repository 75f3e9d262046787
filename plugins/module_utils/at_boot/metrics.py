# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings as a text file for Prometheus: the exposition format of the node exporter's text file collector. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Union

from .finding import Finding

_Sample = tuple[dict[str, str], Union[bool, int]]


def render(findings: Sequence[Finding] | None) -> str:
    """The file's text; None for an intent that could not be used, so that nothing was judged."""
    judged = [one for one in findings or () if one.as_wanted is not None]
    families: list[tuple[str, str, Iterable[_Sample]]] = [
        (
            "gpudirect_intent_usable",
            "1: the host's intent could be read and understood, 0: it could not, and nothing was judged.",
            [({}, findings is not None)],
        ),
        (
            "gpudirect_judged",
            "1: the resource could be judged, 0: its state could not be told.",
            [({"resource": one.resource}, one.as_wanted is not None) for one in findings or ()],
        ),
        (
            "gpudirect_as_wanted",
            "1: the resource is as the intent says, 0: it is not. Absent: it could not be judged.",
            [({"resource": one.resource}, bool(one.as_wanted)) for one in judged],
        ),
        (
            "gpudirect_drift",
            "1 for each path that is not as the intent says.",
            [({"resource": one.resource, "path": path}, 1) for one in judged for path in one.paths],
        ),
        (
            "gpudirect_mended",
            "1 for each path that was not as the intent says and that this look has put right.",
            [({"resource": one.resource, "path": path}, 1) for one in findings or () for path in one.mended],
        ),
    ]
    return "".join(_family(name, text, samples) for name, text, samples in families)


def _family(name: str, text: str, samples: Iterable[_Sample]) -> str:
    lines = [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
    for labels, value in samples:
        shown = ",".join(f'{label}="{_escaped(word)}"' for label, word in labels.items())
        lines.append(f"{name}{{{shown}}} {int(value)}" if shown else f"{name} {int(value)}")
    return "\n".join(lines) + "\n"


def _escaped(word: str) -> str:
    return word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
