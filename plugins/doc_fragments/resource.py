# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the modules' options, rendered from the tables that parse them."""

from __future__ import annotations

import json
from typing import Any

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
    site,
    sriov,
)
from ansible_collections.vela.gpudirect.plugins.module_utils.core.schema import Field, Schema
from ansible_collections.vela.gpudirect.plugins.module_utils.guest import overview
from ansible_collections.vela.gpudirect.plugins.module_utils.path import intent as path_intent


def _documented(option: dict[str, Any]) -> dict[str, Any]:
    """An option in the words of module documentation, which calls the options of a list's entries suboptions."""
    inner = {name: _documented(one) for name, one in option.get("options", {}).items()}
    outer = {key: value for key, value in option.items() if key != "options"}
    return {**outer, "suboptions": inner} if inner else outer


def _fragment(tables: dict[str, dict[str, Any]]) -> str:
    """A documentation fragment; JSON is YAML, and needs no library on any side."""
    return json.dumps({"options": {name: _documented(option) for name, option in tables.items()}}, indent=1)


def _options(schema: Schema) -> str:
    """The options of a resource's module: its own and the consent."""
    return _fragment({**schema.options(), **_site(site.ALLOW_FIELD)})


def _site(field: Field) -> dict[str, dict[str, Any]]:
    """One option that is the site's."""
    return {field.name: site.SCHEMA.options()[field.name]}


class ModuleDocFragment:
    """Fragments by resource: ``vela.gpudirect.resource.kernel_args`` and so on."""

    KERNEL_ARGS: str = _options(kernel_args.SCHEMA)
    HUGEPAGES: str = _options(hugepages.SCHEMA)
    SRIOV: str = _options(sriov.SCHEMA)
    PCI_DRIVER: str = _options(pci_driver.SCHEMA)
    PCI_PATH: str = _options(pci_path.SCHEMA)
    KVM: str = _options(kvm.SCHEMA)
    GUEST_IMAGE: str = _options(guest_image.SCHEMA)
    HOST_BOOT: str = _options(host_boot.SCHEMA)
    GUEST_PLACEMENT: str = _fragment({**overview.SCHEMA.options(), **_site(site.ROOT_FIELD)})
    LIBVIRT_GUEST: str = _options(libvirt_guest.SCHEMA)
    LIBVIRT_NETWORK: str = _options(libvirt_network.SCHEMA)
    LIBVIRT_POOL: str = _options(libvirt_pool.SCHEMA)
    P2P_TOPOLOGY: str = _fragment({**path_intent.SCHEMA.options(), **_site(site.ROOT_FIELD)})
    HOST_TOPOLOGY_INFO: str = _fragment(_site(site.ROOT_FIELD))

    ATTRIBUTES: str = json.dumps(
        {
            "attributes": {
                "check_mode": {
                    "support": "full",
                    "description": [
                        "Predicts exactly the changes that a run makes; what it cannot know yet is named as deferred."
                    ],
                },
                "diff_mode": {"support": "full", "description": ["Shows owned values before and after."]},
                "idempotent": {
                    "support": "full",
                    "description": ["A second run changes nothing, also after a reboot."],
                },
                "platform": {"support": "full", "platforms": "posix", "description": ["Linux on x86_64."]},
            },
        },
        indent=1,
    )
