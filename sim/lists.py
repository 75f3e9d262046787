# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists that are files: one thing a line, and comments."""

from __future__ import annotations

from pathlib import Path


def read_list(path: Path) -> list[str]:
    """Return the lines of a list file without comments and blanks."""
    lines = (line.split("#")[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line]
