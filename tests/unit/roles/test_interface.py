"""The roles' interface is the engine's tables: argument specs are rendered from them, defaults and tasks agree."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.vela.gpudirect.plugins.module_utils import (
    guest_image,
    host_boot,
    hugepages,
    kernel_args,
    kvm,
    libvirt_guest,
    libvirt_network,
    libvirt_pool,
    pci_driver,
    pci_path,
    reboot,
    site,
    sriov,
)
from ansible_collections.vela.gpudirect.plugins.module_utils.core.schema import Schema

ROOT = Path(__file__).resolve().parents[3]
ROLES: dict[str, tuple[str, tuple[Schema, ...]]] = {
    "kernel": ("IOMMU, kernel arguments and huge pages of a host.", (kernel_args.SCHEMA, hugepages.SCHEMA)),
    "sriov": ("VFs of SR-IOV ports and their attributes.", (sriov.SCHEMA,)),
    "pci_driver": ("Drivers of PCI devices, now and at every boot.", (pci_driver.SCHEMA,)),
    "pci_path": ("Registers on the paths between GPUs and NICs: ACS words and read requests.", (pci_path.SCHEMA,)),
    "kvm": ("A host for guests with passed-through devices.", (kvm.SCHEMA,)),
    "guest": (
        "Networks, pools and guests of a host in libvirt, with their disks and seeds.",
        (libvirt_guest.SCHEMA, guest_image.SCHEMA, libvirt_network.SCHEMA, libvirt_pool.SCHEMA),
    ),
    "host_boot": ("What a boot loses comes back at every boot, and drift is told.", (host_boot.SCHEMA,)),
    "reboot": ("One coalesced reboot for everything that waits for it, with consent.", (reboot.SCHEMA,)),
    "preflight": ("Why a host could not be looked at, in plain sentences.", ()),
}
HEADER = "---\n# Rendered from the engine's tables by tests/unit/roles (GPUDIRECT_REGENERATE=1); the tables are the source.\n"


class _Indented(yaml.SafeDumper):
    """Lists inside mappings are indented, as yamllint and ansible-lint want them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def options_of(schemas: tuple[Schema, ...]) -> dict[str, Any]:
    """The options of a role; those of the whole site, and those that it shares with another role, are not its own."""
    options = {name: option for schema in schemas for name, option in schema.options().items()}
    return {name: option for name, option in options.items() if name.startswith(prefixes(*schemas))}


def prefixes(*schemas: Schema) -> tuple[str, ...]:
    """How the names of a role's own options begin."""
    return tuple(schema.prefix for schema in schemas)


def rendered(role: str) -> str:
    sentence, schemas = ROLES[role]
    document = {
        "argument_specs": {
            "main": {
                "short_description": sentence,
                "author": ["vela.gpudirect contributors (!UNKNOWN)"],
                "options": options_of(schemas),
            }
        }
    }
    return HEADER + yaml.dump(document, Dumper=_Indented, sort_keys=False, width=150, allow_unicode=True)


@pytest.mark.parametrize("role", ROLES)
def test_argument_specs_are_rendered_from_the_tables(role: str) -> None:
    path = ROOT / "roles" / role / "meta" / "argument_specs.yml"
    if os.environ.get("GPUDIRECT_REGENERATE"):
        path.write_text(rendered(role), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == rendered(role)


@pytest.mark.parametrize("role", ROLES)
def test_defaults_are_those_of_the_tables(role: str) -> None:
    path = ROOT / "roles" / role / "defaults" / "main.yml"
    defaults = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else None
    assert (defaults or {}) == {name: option.get("default") for name, option in options_of(ROLES[role][1]).items()}


def test_every_role_of_the_tree_is_in_the_table() -> None:
    assert sorted(ROLES) == sorted(path.name for path in (ROOT / "roles").iterdir())


@pytest.mark.parametrize("resource", site.RESOURCES, ids=lambda resource: resource.SCHEMA.name)
def test_a_role_passes_every_option_of_a_resource_under_its_own_name(resource: Any) -> None:
    files = sorted(ROOT.glob("roles/*/tasks/main.yml"))
    tasks = [task for file in files for task in yaml.safe_load(file.read_text(encoding="utf-8"))]
    name = f"vela.gpudirect.{resource.SCHEMA.name}"
    (passed,) = [task[name] for task in tasks if name in task]
    assert set(passed) == {*resource.SCHEMA.variables(), "gpudirect_allow"}
    for option, value in passed.items():
        own = option.startswith(prefixes(resource.SCHEMA))
        assert value == f"{{{{ {option}{'' if own else ' | default(omit)'} }}}}"


def test_the_roles_know_all_variables_of_the_engine() -> None:
    in_roles = {name for _sentence, schemas in ROLES.values() for name in options_of(schemas)}
    assert in_roles == site.known_variables() - set(site.SCHEMA.variables())
