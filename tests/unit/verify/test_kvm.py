"""How the outcome checks judge a host for guests: each passes, fails for its own reason, and does not apply where nothing is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.fake_testinfra import FakeHost, Ran, verdict
from tests.testinfra import test_kvm as checks
from tests.testinfra.conftest import Check

POLICIES = [f"/sys/devices/system/cpu/cpufreq/policy{number}" for number in range(2)]
OFFERED = "".join(f"{one}/scaling_available_governors\n" for one in POLICIES)
VERSION = "Compiled against library: libvirt 9.0.0\nRunning hypervisor: QEMU 7.2.0\n"


def governors(*names: str) -> str:
    return "".join(f"{one}/scaling_governor:{name}\n" for one, name in zip(POLICIES, names, strict=False))


def host(**variables: Any) -> FakeHost:
    answers = {
        "grep -lw": Ran(OFFERED),
        "grep -H": Ran(governors("performance", "performance")),
        "/dev/kvm": Ran(),
        "version": Ran(VERSION),
    }
    return FakeHost({"kvm_host": "managed", **variables}, answers, {checks.KSM: "0\n", checks.BALANCING: "0\n"})


def run(one: FakeHost, name: str) -> tuple[str, str]:
    def called(check: Check) -> None:
        found: Any = checks.managed_of(one, check)  # type: ignore[arg-type]
        fake: Any = one
        {
            "ksm": lambda: checks.test_h28_memory_of_guests_stays(one.read, check, checks.KSM),
            "balancing": lambda: checks.test_h28_memory_of_guests_stays(one.read, check, checks.BALANCING),
            "governor": lambda: checks.test_h28_governor(found, fake, check),
            "kvm": lambda: checks.test_kvm_is_usable(fake, check),
            "libvirt": lambda: checks.test_libvirt_answers(fake, check),
        }[name]()

    return verdict(called)


EVERY = ("ksm", "balancing", "governor", "kvm", "libvirt")


@pytest.mark.parametrize("name", EVERY)
def test_each_passes_and_does_not_apply_where_nobody_asks(name: str) -> None:
    assert run(host(), name)[0] == "OK"
    assert run(host(kvm_host="unmanaged"), name) == ("-", "kvm_host is unmanaged")


def only(one: FakeHost, name: str) -> str:
    """What the one check says that fails; all others pass."""
    assert [each for each in EVERY if run(one, each)[0] != "OK"] == [name]
    word, said = run(one, name)
    assert word == "FAIL"
    return said


def test_memory_that_is_merged_or_moved_fails() -> None:
    one = host()
    one.files[checks.KSM] = "1\n"
    assert "found 1" in only(one, "ksm")
    one = host()
    one.files[checks.BALANCING] = "1\n"
    assert checks.BALANCING in only(one, "balancing")


def test_a_kernel_without_a_value_has_nothing_to_check() -> None:
    one = host()
    one.files.clear()
    assert run(one, "ksm") == ("-", f"the kernel has no {checks.KSM}")


@pytest.mark.parametrize("found", [governors("performance", "powersave"), governors("performance")])
def test_another_governor_or_one_that_is_not_told_fails(found: str) -> None:
    one = host()
    one.answers["grep -H"] = Ran(found)
    assert ("powersave" if "powersave" in found else "unreadable") in only(one, "governor")


def test_governors_that_nobody_offers_or_manages_do_not_apply() -> None:
    one = host()
    one.answers["grep -lw"] = Ran("", 1)
    assert run(one, "governor") == ("-", "no driver offers the governor performance")
    assert run(host(kvm_governor="unmanaged"), "governor") == ("-", "kvm_governor is unmanaged")


def test_a_kvm_that_does_not_open_fails() -> None:
    one = host()
    one.answers["/dev/kvm"] = Ran("", 2, "sh: 1: cannot create /dev/kvm: No such device")
    assert "No such device" in only(one, "kvm")


@pytest.mark.parametrize(
    ("ran", "said"),
    [
        (Ran("", 1, "first\nerror: failed to connect"), "error: failed to connect"),
        (Ran("", 124), "no answer within 60 s"),
    ],
)
def test_a_libvirt_that_does_not_answer_fails(ran: Ran, said: str) -> None:
    one = host()
    one.answers["version"] = ran
    assert said in only(one, "libvirt")
