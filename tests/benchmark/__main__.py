"""Measure, print the table, and write the documentation's page.

python -m tests.benchmark               all that needs no simulated rack
python -m tests.benchmark --rack        and a first apply, a boot and a guest on a host of the simulated rack
python -m tests.benchmark --rack --write    and write docs/benchmarks.md
python -m tests.benchmark --only guests --write     one group; all other rows of the page stay
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping

# The collection under test is the checkout, as ansible.cfg and pytest have it.
sys.path.insert(0, ".ansible/collections")

from tests.benchmark.audits import MANY, many_results
from tests.benchmark.devices import device_results
from tests.benchmark.guests import guest_results
from tests.benchmark.loopback import ROOT
from tests.benchmark.report import page, table
from tests.benchmark.suite import Result, Sizes, Tell, loopback_results

PAGE = ROOT / "docs" / "benchmarks.md"


def first_apply(sizes: Sizes, tell: Tell) -> list[Result]:
    """A first apply and a boot; what it needs is imported for it alone."""
    from tests.benchmark.first_apply import first_apply_results

    return first_apply_results(sizes.rounds, tell)


def first_guest(sizes: Sizes, tell: Tell) -> list[Result]:
    """A first guest, likewise."""
    from tests.benchmark.first_guest import first_guest_results

    return first_guest_results(sizes.rounds, tell)


# In the order of the page.
GROUPS: Mapping[str, Callable[[Sizes, Tell], list[Result]]] = {
    "hosts": loopback_results,
    "devices": device_results,
    "many": many_results,
    "guests": guest_results,
}
RACK: Mapping[str, Callable[[Sizes, Tell], list[Result]]] = {"first-apply": first_apply, "first-guest": first_guest}


def main() -> int:
    """Exit status 0 when every target is met."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark", description=__doc__.splitlines()[0])
    parser.add_argument("--few", type=int, default=Sizes.few, help="hosts at the low end of the slope")
    parser.add_argument("--many", type=int, default=Sizes.many, help="hosts at the high end")
    parser.add_argument("--rounds", type=int, default=Sizes.rounds, help="timed runs of each command")
    parser.add_argument("--looped", type=int, default=Sizes.looped, help="hosts that a role of small tasks looks at")
    parser.add_argument("--audited", type=int, default=MANY, help="hosts of one audit")
    parser.add_argument("--rack", action="store_true", help=f"measure {' and '.join(RACK)} on the simulated rack, too")
    names = [*GROUPS, *RACK]
    help_on_only = "measure these alone; the other rows of a page that is written stay"
    parser.add_argument("--only", nargs="+", choices=names, metavar="GROUP", help=f"{help_on_only}: {', '.join(names)}")
    help_on_write = f"write {PAGE.relative_to(ROOT)}; its rows of the rack stay where this run has none"
    parser.add_argument("--write", action="store_true", help=help_on_write)
    options = parser.parse_args()
    began = time.monotonic()

    def tell(line: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {line}", file=sys.stderr, flush=True)

    sizes = Sizes(options.few, options.many, options.rounds, options.looped, options.audited)
    groups = {**GROUPS, **(RACK if options.rack or options.only else {})}
    chosen = [name for name in groups if name in (options.only or groups)]
    results = [one for name in chosen for one in groups[name](sizes, tell)]
    print("\n".join(table(results)))
    if options.write:
        PAGE.write_text(page(results, options.rounds, PAGE.read_text(), whole=not options.only))
    return 0 if all(one.good for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
