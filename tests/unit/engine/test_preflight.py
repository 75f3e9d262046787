"""Why the engine cannot run on a host, one plain sentence each, from a probe that needs no Python."""

from __future__ import annotations

import subprocess

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import preflight

FIT = {
    "uid": "0",
    "root": "yes",
    "sudo": "/usr/bin/sudo",
    "machine": "x86_64",
    "id": "debian",
    "version": "12",
    "system": "Debian GNU/Linux 12 (bookworm)",
    "python": "3.11",
}


def said(**facts: str) -> list[str]:
    return [str(problem) for problem in preflight.problems_of({**FIT, **facts}, "/usr/bin/python3")]


def test_a_fit_host_has_no_problem() -> None:
    assert said() == []


@pytest.mark.parametrize(
    ("name", "version"),
    [("debian", "13"), ("ubuntu", "22.04"), ("ubuntu", "24.04"), ("rhel", "9.4"), ("rocky", "10.0"), ("centos", "9")],
)
def test_supported_systems_are_known_by_the_beginning_of_their_version(name: str, version: str) -> None:
    assert said(id=name, version=version) == []


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"uid": ""}, "the host's shell did not answer the probe. See whether the login runs a POSIX shell."),
        (
            {"uid": "1000", "root": "no"},
            "the login user is not root and sudo asks for a password or refuses (found uid 1000, wanted root). "
            "Log in as root, allow sudo without password, or give the password with --ask-become-pass.",
        ),
        (
            {"sudo": ""},
            "the playbooks become root with sudo, which is not installed. "
            "Install sudo, or set ansible_become: false for hosts with root logins.",
        ),
        (
            {"python": ""},
            "/usr/bin/python3 does not run on the host (wanted Python 3.9 or newer). "
            "Install python3, or set ansible_python_interpreter.",
        ),
        (
            {"python": "3.6"},
            "/usr/bin/python3 is too old (found 3.6, wanted 3.9 or newer). "
            "Install a newer python3, or set ansible_python_interpreter.",
        ),
        (
            {"machine": "aarch64"},
            "the processor architecture is not supported (found aarch64, wanted x86_64). "
            "Leave this host out of the inventory group.",
        ),
    ],
)
def test_each_reason_is_a_sentence(facts: dict[str, str], sentence: str) -> None:
    assert said(**facts) == [f"preflight: {sentence}"]


@pytest.mark.parametrize(
    ("name", "version"),
    [("debian", "11"), ("debian", "1"), ("ubuntu", "20.04"), ("rhel", "8.9"), ("rhel", "90"), ("", "")],
)
def test_an_unsupported_system_is_named_with_the_supported_ones(name: str, version: str) -> None:
    (found,) = said(id=name, version=version, system=f"{name} {version}")
    assert found.startswith(
        f"preflight: the system is not supported (found {name} {version}, wanted debian 12 13, ubuntu"
    )


def test_all_reasons_come_at_once() -> None:
    assert len(said(uid="5", root="no", python="2.7", machine="s390x", id="sles")) == 4


def test_a_newer_major_python_and_a_two_digit_minor_compare_as_numbers() -> None:
    assert said(python="3.10") == []
    assert said(python="4.0") == []


def test_facts_are_read_past_banners() -> None:
    output = "Welcome to node-1\nuid=0\n  root=yes  \nsystem=Debian = good\nno fact here\n"
    assert preflight.facts_of(output) == {"uid": "0", "root": "yes", "system": "Debian = good"}


def test_the_probe_runs_in_a_plain_shell_and_answers_every_question() -> None:
    probe = preflight.PROBE.replace("INTERPRETER", "no-such-python")
    output = subprocess.run(["/bin/sh", "-c", probe], capture_output=True, text=True, check=False).stdout
    facts = preflight.facts_of(output)
    assert {"uid", "machine", "root", "sudo", "python"} <= set(facts)
    assert facts["python"] == ""
