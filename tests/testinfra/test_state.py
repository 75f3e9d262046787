"""What the product keeps on a host is for root alone."""

from __future__ import annotations

from testinfra.host import Host

from tests.testinfra.conftest import Check

STATE = "/var/lib/gpudirect"


def test_state_is_private(host: Host, check: Check) -> None:
    listed = host.run(f"find {STATE} -printf '%m %U %y %p\\n'")
    if listed.rc != 0:
        check.does_not_apply(f"{STATE} is not there: nothing was changed on this host")
    wanted = {"d": "700", "f": "600"}
    wrong = [
        line
        for line in listed.stdout.splitlines()
        for mode, owner, kind, _path in [line.split(maxsplit=3)]
        if owner != "0" or mode != wanted.get(kind)
    ]
    if wrong:
        check.fails(wanted="folders 700, files 600, owner 0", found="; ".join(wrong), evidence=f"find {STATE}")
    check.passes(f"{STATE}: {len(listed.stdout.splitlines())} entries, root only")
