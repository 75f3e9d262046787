"""Measure, print the table, and write the documentation's page.

python -m tests.benchmark               loopback hosts only
python -m tests.benchmark --rack        and the first apply on a host of the simulated rack
python -m tests.benchmark --rack --write    and write docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import sys
import time

# The collection under test is the checkout, as ansible.cfg and pytest have it.
sys.path.insert(0, ".ansible/collections")

from tests.benchmark.loopback import ROOT
from tests.benchmark.report import page, table
from tests.benchmark.suite import Sizes, loopback_results

PAGE = ROOT / "docs" / "benchmarks.md"


def main() -> int:
    """Exit status 0 when every target is met."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark", description=__doc__.splitlines()[0])
    parser.add_argument("--few", type=int, default=Sizes.few, help="hosts at the low end of the slope")
    parser.add_argument("--many", type=int, default=Sizes.many, help="hosts at the high end")
    parser.add_argument("--rounds", type=int, default=Sizes.rounds, help="timed runs of each command")
    parser.add_argument("--rack", action="store_true", help="measure the first apply on the simulated rack, too")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    began = time.monotonic()

    def tell(line: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {line}", file=sys.stderr, flush=True)

    results = loopback_results(Sizes(options.few, options.many, options.rounds), tell)
    if options.rack:
        from tests.benchmark.first_apply import first_apply_results

        results += first_apply_results(options.rounds, tell)
    print("\n".join(table(results)))
    if options.write:
        PAGE.write_text(page(results, options.rounds))
    return 0 if all(one.good for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
