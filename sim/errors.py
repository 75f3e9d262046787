# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the rack raises when it cannot go on."""

from __future__ import annotations


class RackError(Exception):
    """A sentence for the user: what is wrong, and what to do."""


class DescriptionError(RackError):
    """Every mistake found in the host descriptions, one a line."""

    def __init__(self, mistakes: list[str]) -> None:
        """Keep the single mistakes beside the joined text."""
        self.mistakes = mistakes
        super().__init__("\n".join(mistakes))
