"""Run the command line: python -m sim."""

from __future__ import annotations

import sys

from sim.cli import main

sys.exit(main(sys.argv[1:]))
