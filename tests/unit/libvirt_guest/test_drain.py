"""Drained hosts: guests end and stay down over boots, nothing else is changed, and the next run without it brings them back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import host_boot, libvirt_guest, scope, site
from ansible_collections.vela.gpudirect.plugins.module_utils.at_boot import intent as boot_intent
from ansible_collections.vela.gpudirect.plugins.module_utils.at_boot.command_line import main
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import (
    ApplyFailed,
    ConsentRequired,
    HostRefused,
    IntentError,
)
from ansible_collections.vela.gpudirect.plugins.module_utils.core.owned import PATH as OWNED

from tests.fixtures.fake_libvirt import FakeGuestHost
from tests.fixtures.libvirt_hosts import built, failing, guests, look, run, settle, shape, with_files
from tests.fixtures.runs import DIGEST

NAMES = ("train", "other", "third")
# The third gets no device: the host has two GPUs.
THREE = guests(shape(), shape("other"), shape("third", gpus=0))
DRAIN = {**THREE, "guest_drain": True}
STRANGER = """<domain type='kvm'><name>db</name><os><type>hvm</type></os><devices><hostdev mode='subsystem' type='pci'>
<source><address domain='0x0000' bus='0x24' slot='0x00' function='0x1'/></source></hostdev></devices></domain>"""


@pytest.fixture
def host(tmp_path: Path) -> FakeGuestHost:
    host = with_files(built(tmp_path / "root"), *NAMES)
    settle(THREE, host)
    return host


def running(host: FakeGuestHost) -> list[str]:
    return sorted(name for name, one in host.libvirt.domains.kept.items() if one.live is not None)


def defined(host: FakeGuestHost) -> dict[str, Any]:
    return {name: kept[2] for name, kept in host.libvirt.state()["domain"].items()}


def test_guests_end_and_definitions_files_and_records_stay(host: FakeGuestHost) -> None:
    before, records = defined(host), host.text(OWNED)
    predicted = look(DRAIN, host, "guest")
    report = run(DRAIN, host, "guest")
    assert report.as_result()["plan"] == predicted.as_result()["plan"]
    assert [change.path for change in report.plan.changes] == [f"libvirt_guest[{one}].state" for one in sorted(NAMES)]
    assert running(host) == []
    assert (defined(host), host.text(OWNED)) == (before, records)
    assert report.left.notes == tuple(f"libvirt_guest[{one}]: does not run" for one in sorted(NAMES))
    with host.only_read():
        assert run(DRAIN, host).verified
    settle(THREE, host, "nothing")
    assert running(host) == sorted(NAMES)
    assert defined(host) == before


def test_without_consent_it_says_so_and_changes_nothing(host: FakeGuestHost) -> None:
    state = host.libvirt.state()
    shown = look(DRAIN, host)
    assert len(shown.plan.blocked_by(shown.allow)) == len(NAMES)
    said = failing(ConsentRequired, DRAIN, host)
    assert "libvirt_guest[train].state: disrupts the guest: the host is drained" in said
    assert "Set gpudirect_allow: guest" in said
    assert host.libvirt.state() == state


def test_all_are_asked_before_any_is_waited_for(host: FakeGuestHost) -> None:
    for one in host.libvirt.domains.kept.values():
        one.ends_after_s = 200.0
    before = host.clock_s
    run(DRAIN, host, "guest")
    assert host.clock_s - before < 2 * 200


def test_one_that_is_still_in_its_firmware_is_asked_again(host: FakeGuestHost) -> None:
    """It was seen after a power cut: the guest had just been started and lost the only word that it was to end."""
    host.libvirt.domains.kept["other"].hears_from_s = host.clock_s + 70
    before = host.clock_s
    run(DRAIN, host, "guest")
    assert running(host) == []
    assert 70 < host.clock_s - before < 120


def test_one_that_does_not_end_is_named_and_the_others_end(host: FakeGuestHost) -> None:
    host.libvirt.domains.kept["other"].ends_after_s = None
    before = host.clock_s
    with pytest.raises(ApplyFailed) as caught:
        run({**DRAIN, "guest_stop_timeout_s": 60}, host, "guest")
    assert running(host) == ["other"]
    assert host.clock_s - before < 2 * 60
    (problem,) = caught.value.problems
    assert problem.path == "libvirt_guest[other].state"
    assert "does not end though it was asked to for 60 s" in problem.fact
    assert "Done all the same: libvirt_guest[third].state, libvirt_guest[train].state (2 of 3 changes)" in problem.fact
    assert caught.value.done == ("libvirt_guest[third].state", "libvirt_guest[train].state")
    run({**DRAIN, "guest_stop": "force"}, host, "guest")
    assert running(host) == []


def test_one_that_libvirt_cannot_ask_is_told_in_its_words(host: FakeGuestHost, monkeypatch: pytest.MonkeyPatch) -> None:
    domains = host.libvirt.domains
    plain = domains.shutdown

    def shutdown(name: str) -> None:
        if name == "other":
            domains.one("nobody")
        plain(name)

    monkeypatch.setattr(domains, "shutdown", shutdown)
    with pytest.raises(ApplyFailed, match="no domain with matching name"):
        run(DRAIN, host, "guest")
    assert running(host) == ["other"]


def test_a_host_that_lost_a_device_can_be_drained(host: FakeGuestHost) -> None:
    for device in host.path("/sys/bus/pci/devices").iterdir():
        device.unlink()
    failing(HostRefused, THREE, host)
    settle(DRAIN, host)
    assert running(host) == []


def test_guests_of_others_are_named_and_left_alone(host: FakeGuestHost) -> None:
    host.libvirt.domains.define(STRANGER)
    kept = host.libvirt.domains.kept["db"]
    kept.live = kept.inactive
    report = settle(DRAIN, host)
    assert running(host) == ["db"]
    assert (
        "libvirt_guest: the guest db, which was not made by vela.gpudirect, runs with 0000:24:00.1 and is left alone"
        in report.left.notes
    )


def test_a_guest_that_libvirt_would_start_is_kept_from_it(host: FakeGuestHost) -> None:
    host.libvirt.domains.kept["train"].autostart = True
    settle(DRAIN, host)
    host.boot()
    assert running(host) == []


def test_a_host_whose_libvirt_does_not_answer_is_not_taken_for_empty(host: FakeGuestHost) -> None:
    host.libvirt.there = False
    assert "whether guests run cannot be told" in failing(HostRefused, DRAIN, host, "guest")


def test_a_host_without_libvirt_and_guests_is_empty(tmp_path: Path) -> None:
    host = built(tmp_path / "root")
    host.libvirt.there = False
    with host.only_read():
        assert run(DRAIN, host).verified


# The whole host: rounds of drain.yml, and boots -------------------------------------------------


@pytest.fixture
def installed(host: FakeGuestHost) -> FakeGuestHost:
    """With the intent that a boot brings back, and a variable that nobody has applied yet."""
    record = {"resource": "host_boot", "before": None, "boot": ""}
    document = json.loads(host.text(OWNED))
    document["records"]["host_boot[engine]"] = record
    host.put(OWNED, json.dumps(document))
    host.put(boot_intent.PATH, boot_intent.render(site.lost_at_boot(THREE)))
    return host


def drained(host: FakeGuestHost, allow: str = "guest", **more: Any) -> dict[str, Any]:
    wanted = {**DRAIN, "gpudirect_only": "drain", "gpudirect_allow": allow, host_boot.ENGINE: DIGEST, **more}
    with host.only_read():
        return site.look(wanted, host, check=False, previous={})


def test_a_drain_changes_guests_and_the_intent_for_boots_and_looks_at_nothing_else(installed: FakeGuestHost) -> None:
    unapplied = {"kernel_hugepages": [{"size": "1G", "per_node": 1000}], "kernel_iommu": "passthrough"}
    result = drained(installed, **unapplied)
    assert result["todo"] == ["libvirt_guest", "host_boot"]
    assert [one["path"] for one in result["plan"]][-1] == "host_boot.intent.guest_drain"
    assert result["msg"] == "4 changes to make (this run only drains)"
    with pytest.raises(ConsentRequired):
        drained(installed, "nothing")


def test_no_boot_starts_a_guest_of_a_drained_host(installed: FakeGuestHost, capsys: pytest.CaptureFixture[str]) -> None:
    before = boot_intent.load(installed)
    options = site.options_of(host_boot, {**DRAIN, "gpudirect_only": "drain"})
    settle(options, installed, resource=host_boot)
    assert boot_intent.load(installed) == {**before, "guest_drain": True}
    settle(DRAIN, installed)
    assert drained(installed)["msg"] == "as wanted (this run only drains)"
    installed.boot()
    assert main(["boot", "--allow", "link"], installed) == 0
    assert main(["guests"], installed) == 0
    assert running(installed) == []
    assert "The guests of this host are as its intent says" in capsys.readouterr().out
    installed.put(boot_intent.PATH, boot_intent.render(site.lost_at_boot(THREE)))
    assert main(["guests"], installed) == 0
    assert running(installed) == sorted(NAMES)


def test_a_boot_stops_no_guest_and_the_watch_tells_it(
    installed: FakeGuestHost, capsys: pytest.CaptureFixture[str]
) -> None:
    installed.put(boot_intent.PATH, boot_intent.render(site.lost_at_boot(DRAIN)))
    assert main(["guests"], installed) == 0
    assert running(installed) == sorted(NAMES)
    assert main(["drift"], installed) == 1
    assert "libvirt_guest[train].state: the host is drained" in capsys.readouterr().out


def test_without_an_intent_for_boots_or_with_one_that_says_nothing_there_is_none_to_change(host: FakeGuestHost) -> None:
    options = site.options_of(host_boot, {**DRAIN, "gpudirect_only": "drain"})
    assert look(options, host, resource=host_boot).plan.empty
    host.put(boot_intent.PATH, "torn")
    report = look(options, host, resource=host_boot)
    assert report.plan.empty
    assert "No boot starts a guest by it" in report.plan.notes[0]


def test_the_narrow_run_and_the_wish_belong_together() -> None:
    with pytest.raises(IntentError, match="gpudirect_only: is drain, and guest_drain is not true"):
        site.intent_of({"gpudirect_only": "drain"})
    assert site.intent_of({"gpudirect_only": "drain", "guest_drain": "yes"})
    assert libvirt_guest.parse({"guest_drain": True}).drain
    assert [one.SCHEMA.name for one in scope.planned("drain", site.RESOURCES)] == ["libvirt_guest", "host_boot"]
