"""Measure, print the table, and write the documentation's page.

python -m tests.benchmark               loopback hosts only
python -m tests.benchmark --rack        and a first apply and a boot on a host of the simulated rack
python -m tests.benchmark --rack --write    and write docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import sys
import time

# The collection under test is the checkout, as ansible.cfg and pytest have it.
sys.path.insert(0, ".ansible/collections")

from tests.benchmark.audits import MANY, many_results
from tests.benchmark.devices import device_results
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
    parser.add_argument("--looped", type=int, default=Sizes.looped, help="hosts that a role of small tasks looks at")
    parser.add_argument("--audited", type=int, default=MANY, help="hosts of one audit")
    parser.add_argument(
        "--rack", action="store_true", help="measure a first apply and a boot on the simulated rack, too"
    )
    help_on_write = f"write {PAGE.relative_to(ROOT)}; its rows of the rack stay where this run has none"
    parser.add_argument("--write", action="store_true", help=help_on_write)
    options = parser.parse_args()
    began = time.monotonic()

    def tell(line: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {line}", file=sys.stderr, flush=True)

    sizes = Sizes(options.few, options.many, options.rounds, options.looped, options.audited)
    results = [*loopback_results(sizes, tell), *device_results(sizes, tell), *many_results(sizes, tell)]
    if options.rack:
        from tests.benchmark.first_apply import first_apply_results

        results += first_apply_results(options.rounds, tell)
    print("\n".join(table(results)))
    if options.write:
        PAGE.write_text(page(results, options.rounds, PAGE.read_text()))
    return 0 if all(one.good for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
