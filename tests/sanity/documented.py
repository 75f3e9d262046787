"""Every plugin and role of the collection has documentation that ansible-doc can show."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

COLLECTION = "vela.gpudirect"


def names_of(kind: str) -> list[str]:
    """The names that the tree offers for one kind, fully qualified, sorted."""
    if kind == "role":
        return sorted(f"{COLLECTION}.{specs.parts[1]}" for specs in Path("roles").glob("*/meta/argument_specs.yml"))
    folder = Path("plugins") / ("modules" if kind == "module" else kind)
    sources = (source for source in folder.glob("*.py") if source.name != "__init__.py")
    if kind == "filter":  # one file may hold several filters; each has its own document beside the file
        sources = folder.glob("*.yml")
    return sorted(f"{COLLECTION}.{source.stem}" for source in sources)


def shown(kind: str, names: list[str]) -> dict[str, object]:
    """What ansible-doc says about them."""
    done = subprocess.run(
        ["ansible-doc", "--json", "--type", kind, *names], capture_output=True, text=True, check=False
    )
    sys.stderr.write(done.stderr)
    return json.loads(done.stdout or "{}")


def main() -> int:
    """Print what is shown and what is not; the number of those that are not."""
    missing = 0
    for kind in ("module", "inventory", "filter", "role"):
        names = names_of(kind)
        documents = shown(kind, names) if names else {}
        for name in names:
            if not documents.get(name):
                print(
                    f"{kind} {name}: ansible-doc shows nothing. See the message above, or run: ansible-doc -t {kind} {name}"
                )
                missing += 1
        print(f"{kind}: {len(names)} names")
    undocumented = sorted(
        path.name for path in Path("roles").iterdir() if not (path / "meta/argument_specs.yml").exists()
    )
    for name in undocumented:
        print(f"roles/{name}: has no meta/argument_specs.yml. Generate it from the schema.")
    return min(missing + len(undocumented), 1)


if __name__ == "__main__":
    sys.exit(main())
