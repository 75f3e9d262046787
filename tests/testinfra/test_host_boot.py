"""What a boot loses is brought back by every boot, the last one did, and the host looks for drift."""

from __future__ import annotations

from typing import Any

import pytest
from testinfra.host import Host

from tests.testinfra.conftest import Check
from tests.testinfra.intent import Intent
from tests.testinfra.wishes import Wishes

BOOT, TIMER = "gpudirect-boot.service", "gpudirect-drift.timer"
INTENT = "/etc/gpudirect/intent.json"


@pytest.fixture
def variables(host: Host, intent: Intent, wishes: Wishes, check: Check) -> dict[str, Any]:
    """The host's variables, where they ask for something that a boot loses."""
    found = dict(host.ansible.get_variables())
    if str(found.get("host_boot_enabled", True)).lower() in ("false", "no"):
        check.does_not_apply("host_boot_enabled is false")
    if not (intent.pages or wishes.ports or wishes.taken):
        check.does_not_apply("nothing is declared that a boot loses")
    return found


def test_every_boot_brings_back_what_a_boot_loses(host: Host, variables: dict[str, Any], check: Check) -> None:
    state = host.run(f"systemctl is-enabled {BOOT}").stdout.strip() or "unknown to systemd"
    last = host.run(f"systemctl show --value --property=Result,ActiveState,SubState {BOOT}").stdout.split()
    evidence = f"systemctl status {BOOT}"
    if state != "enabled":
        check.fails(wanted=f"{BOOT} enabled", found=state, evidence=evidence)
    if "failed" in last:
        said = host.run(f"journalctl --boot --unit {BOOT} --output cat --lines 12").stdout
        check.fails(wanted="a boot run that succeeded", found=" ".join(last), evidence=f"{evidence}\n{said}")
    ran = "succeeded in this boot" if "exited" in last else "has not run in this boot"
    check.passes(f"{BOOT} is enabled and {ran}")


def test_the_host_watches_for_drift(host: Host, variables: dict[str, Any], check: Check) -> None:
    if variables.get("host_boot_drift_interval") == "never":
        check.does_not_apply("host_boot_drift_interval is never")
    state = host.run(f"systemctl is-active {TIMER}").stdout.strip()
    if state != "active":
        check.fails(wanted=f"{TIMER} active", found=state, evidence=f"systemctl status {TIMER}")
    check.passes(host.run("systemctl list-timers --no-legend %s", TIMER).stdout.strip() or f"{TIMER} is active")


def test_intent_of_the_host_is_private(host: Host, variables: dict[str, Any], check: Check) -> None:
    found = host.run("stat -c '%%a %%u' %s", INTENT).stdout.strip() or "no file"
    if found != "600 0":
        check.fails(wanted="mode 600, owner 0", found=found, evidence=INTENT)
    check.passes(f"{INTENT}: {found}")
