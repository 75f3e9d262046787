# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the command line: python -m sim."""

from __future__ import annotations

import sys

from sim.cli import main

sys.exit(main(sys.argv[1:]))
