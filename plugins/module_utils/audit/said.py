# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the audit's command says, input by input, so that of thousands only a line each is kept. An edge."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from . import output
from .judged import Audit

CLEAR = "\r\x1b[K"  # the line of the progress goes


class Said:
    """The answer of one command, on stdout, and on a terminal how far it is, on stderr."""

    def __init__(self, options: argparse.Namespace) -> None:
        """``options`` are those of the command."""
        encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
        self.ascii_only = not encoding.startswith("utf")
        self.colour = options.colour == "always" or (options.colour == "auto" and sys.stdout.isatty())
        self.width, self.is_json, self.is_summary = options.width, options.format == "json", options.summary
        # Pages on the same terminal show by themselves how far it is.
        self.has_progress = sys.stderr.isatty() and (options.summary or not sys.stdout.isatty())
        self.rows: list[output.Row] = []
        self.pages = self.failed = 0
        self.first = ""  # JSON of the first input, which is in a list only where there is a second one

    def one(self, name: str, audit: Audit | str) -> None:
        """An input that was judged, or what is wrong with it."""
        self.rows.append(output.row(name, audit))
        self.failed += self.rows[-1][0] == "FAIL"
        if self.is_json:
            self._json(name, audit)
        elif isinstance(audit, Audit) and not self.is_summary:
            self._page(output.text(audit, self.width, colour=self.colour, ascii_only=self.ascii_only))
        if self.has_progress and len(self.rows) > 1:
            say(sys.stderr, f"{CLEAR}{len(self.rows)} inputs judged, {self.failed} FAIL")
            sys.stderr.flush()

    def end(self) -> None:
        """What is said when all are judged."""
        if self.has_progress and len(self.rows) > 1:
            say(sys.stderr, CLEAR)
        if self.is_json:
            say(sys.stdout, f"{self.first}\n" if len(self.rows) == 1 else "\n]\n")
        elif len(self.rows) > 1 or self.is_summary:
            self._page(output.summary(self.rows))
        sys.stdout.flush()

    def _page(self, words: str) -> None:
        line = f"\n{'=' * min(self.width, 100)}\n" if self.pages else ""
        say(sys.stdout, f"{line}{words}")
        self.pages += 1

    def _json(self, name: str, audit: Audit | str) -> None:
        text = json.dumps(_data(name, audit), indent=1)
        if len(self.rows) == 1:
            self.first = text
            return
        if len(self.rows) == 2:
            say(sys.stdout, f"[\n{_indented(self.first)}")
            self.first = ""
        say(sys.stdout, f",\n{_indented(text)}")


def _indented(text: str) -> str:
    return "\n".join(f" {line}" for line in text.split("\n"))


def _data(name: str, one: Audit | str) -> dict[str, Any]:
    if isinstance(one, str):
        return {"name": name, "verdict": output.UNUSABLE, "error": one}
    return output.data(one)


def say(stream: Any, words: str) -> None:
    """Write what the stream's encoding can say, with ``?`` for the rest."""
    encoding = stream.encoding or "ascii"
    stream.write(words.encode(encoding, "replace").decode(encoding, "replace"))
