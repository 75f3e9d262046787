"""Outcomes on hosts, by the verification catalogue: every check reads the host itself and compares with its inventory.

    pytest tests/testinfra --ansible-inventory INVENTORY --hosts=ansible://gpudirect_hosts
    ansible-playbook -i INVENTORY playbooks/verify.yml

Nothing is written to a host. A check that does not apply, or whose evidence is not to be had, is skipped and says so:
that is neither a pass nor a failure.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest
from testinfra.host import Host
from testinfra.utils.ansible_runner import AnsibleRunner

from tests.testinfra import pci
from tests.testinfra.intent import Intent, intent_of
from tests.testinfra.wishes import Wishes, needs_serials, wishes_of

NODES = "/sys/devices/system/node"
ACPI_TABLES = "/sys/firmware/acpi/tables"
UNKNOWN = "unknown: "
PREFIXES = (
    *("gpudirect_", "guest_", "host_boot_", "kernel_", "kvm_"),
    *("pci_driver_", "pci_path_", "reboot_", "sriov_"),
)


class Check:
    """The verdict of one check. Evidence of a pass goes into the report as well."""

    def __init__(self, node: pytest.Item) -> None:
        self._node = node

    def passes(self, evidence: str) -> None:
        """The outcome is as declared."""
        self._node.user_properties.append(("evidence", evidence))

    def fails(self, *, wanted: str, found: str, evidence: str) -> NoReturn:
        """The outcome is another one."""
        pytest.fail(f"wanted {wanted}\nfound {found}\nevidence: {evidence}", pytrace=False)

    def does_not_apply(self, reason: str) -> NoReturn:
        """The inventory asks for nothing here, or the host has nothing to check."""
        pytest.skip(reason)

    def unknown(self, reason: str) -> NoReturn:
        """The evidence is not to be had."""
        pytest.skip(f"{UNKNOWN}{reason}")


def pytest_configure(config: pytest.Config) -> None:
    """One ssh connection for all commands on a host; a login for each would take longer than the checks."""
    settings = AnsibleRunner.get_runner(config.getoption("ansible_inventory")).ansible_config
    if not settings.has_option("ssh_connection", "control_path"):
        settings.read_dict({"ssh_connection": {"control_path": "%(directory)s/%%C"}})


@pytest.fixture
def check(request: pytest.FixtureRequest) -> Check:
    return Check(request.node)


def _resolve_templates(host: Host) -> None:
    """Fill in the host's variables, which testinfra takes as they are written; without templates this costs nothing."""
    variables = host.ansible.get_variables()
    templates = {
        name: f"{{{{ {name} }}}}"
        for name, value in variables.items()
        if name.startswith((*PREFIXES, "ansible_")) and "{{" in json.dumps(value)
    }
    if templates:
        variables.update(host.ansible("ansible.builtin.debug", json.dumps({"msg": templates}), check=False)["msg"])


def _is_root(host: Host) -> bool:
    try:
        return host.check_output("id -u") == "0"
    except RuntimeError as error:  # so says testinfra when ssh could not connect
        cause = error.args[0].stderr.strip()
    pytest.fail(f"the host cannot be reached: {cause}", pytrace=False)


@pytest.fixture(scope="module")
def host(_testinfra_host: Host) -> Iterator[Host]:
    """The host, with the rights of root whoever logs in: without them most evidence is not to be had."""
    _resolve_templates(_testinfra_host)
    with contextlib.ExitStack() as stack:
        if not _is_root(_testinfra_host):
            stack.enter_context(_testinfra_host.sudo())
            if _testinfra_host.run("true").rc != 0:
                pytest.fail("the login user may not become root (sudo -n refuses)", pytrace=False)
        yield _testinfra_host


@pytest.fixture(scope="module")
def read(host: Host) -> Callable[[str], str | None]:
    """Text of a file of the host, None when it is not there or cannot be read; each file is read once."""
    texts: dict[str, str | None] = {}

    def text_of(path: str) -> str | None:
        if path not in texts:
            done = host.run("cat %s", path)
            texts[path] = done.stdout if done.rc == 0 else None
        return texts[path]

    return text_of


@pytest.fixture(scope="module")
def names(host: Host) -> Callable[[str], list[str]]:
    """Sorted names in a folder of the host; none when the folder is not there."""
    return lambda path: sorted(host.run("ls -1A %s", path).stdout.split())


@pytest.fixture(scope="module")
def nodes_with_memory(read: Callable[[str], str | None], names: Callable[[str], list[str]]) -> list[int]:
    numbers = [int(name[4:]) for name in names(NODES) if name[:4] == "node" and name[4:].isdigit()]
    return [
        number for number in numbers if "MemTotal:        0 kB" not in (read(f"{NODES}/node{number}/meminfo") or "")
    ]


@pytest.fixture(scope="module")
def intent(host: Host, names: Callable[[str], list[str]], nodes_with_memory: list[int]) -> Intent:
    variables = {name: value for name, value in host.ansible.get_variables().items() if name.startswith(PREFIXES)}
    return intent_of(variables, intel_table="DMAR" in names(ACPI_TABLES), nodes=nodes_with_memory)


@pytest.fixture(scope="module")
def groups(host: Host) -> dict[str, list[str]]:
    """Members of each IOMMU group of the host."""
    return pci.groups_of(host.run(pci.NAMES).stdout)


@pytest.fixture(scope="module")
def wishes(host: Host) -> Wishes:
    """What the inventory asks of the PCI devices that the host has."""
    variables = host.ansible.get_variables()
    serials = host.run(pci.SERIALS).stdout if needs_serials(variables) else ""
    texts = [host.run(command).stdout for command in (pci.VALUES, pci.LINKS, pci.NAMES)]
    return wishes_of(variables, pci.functions_of(*texts, serials))


# The table at the end ----------------------------------------------------------------------------

_WORDS = {"passed": "OK", "failed": "FAIL", "error": "ERROR", "skipped": "-"}


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line for each check and host: verdict, and the evidence or the reason."""
    rows = {
        (*_host_and_check(report.nodeid), *_verdict(word, report))
        for outcome, word in _WORDS.items()
        for report in terminalreporter.stats.get(outcome, [])
    }
    # What keeps all checks from a host is said once.
    rows = {(host, "all checks" if word == "ERROR" else check, word, said) for host, check, word, said in rows}
    for host, check, word, sentence in sorted(rows):
        first, *rest = sentence.splitlines() or [""]
        for line in (f"{host:<12} {word:<7} {check:<47} {first}", *(f"{'':<21}{one}" for one in rest)):
            terminalreporter.write_line(line.rstrip())


def _host_and_check(nodeid: str) -> tuple[str, str]:
    name, _, parameter = nodeid.rpartition("::")[2].partition("[")
    return parameter.rstrip("]").partition("://")[2] or "localhost", name.removeprefix("test_")


def _verdict(word: str, report: Any) -> tuple[str, str]:
    if report.passed:
        return word, next((str(value) for key, value in report.user_properties if key == "evidence"), "")
    if report.skipped:
        reason = str(report.longrepr[2]).removeprefix("Skipped: ")
        return ("unknown" if reason.startswith(UNKNOWN) else word), reason.removeprefix(UNKNOWN)
    return word, str(report.longrepr)
