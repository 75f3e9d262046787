#!/usr/bin/python
# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Edge of the host_boot resource; the action plugin of the same name fills its last two options in."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_boot
short_description: Bring back at every boot what a boot loses, and watch for drift
version_added: 0.1.0
description:
  - Installs what brings a host's VFs, driver bindings and live huge pages back at every boot without Ansible. That is the engine of
    this collection as one file, the host's intent as C(/etc/gpudirect/intent.json), and the unit C(gpudirect-boot.service).
  - The boot run goes on with the rest where a device is missing or refused; C(systemctl status gpudirect-boot.service) says why a host
    is not ready. Units that must not start on such a host require C(gpudirect-ready.target).
  - A timer compares the host with its intent, changes nothing, and tells drift by C(gpudirect-drift.service) and as Prometheus metrics.
  - Nothing is run when it is installed, and nothing is installed where the inventory asks for nothing that a boot loses.
author: vela.gpudirect contributors (!UNKNOWN)
options:
  intent:
    description: The host's checked variables as JSON. Set by the action plugin.
    type: str
  archive:
    description: Where a copy of the engine lies on the host. Set by the action plugin, when the host has another engine.
    type: str
extends_documentation_fragment:
  - vela.gpudirect.resource.host_boot
  - vela.gpudirect.resource.attributes
"""

EXAMPLES = r"""
- name: Bring back at every boot what a boot loses
  vela.gpudirect.host_boot:

- name: Wait longer for slow devices, and do not watch
  vela.gpudirect.host_boot:
    host_boot_device_timeout_s: 180
    host_boot_drift_interval: never
"""

RETURN = r"""
plan:
  description: Ordered changes, each with path, before, after, why and disrupts.
  returned: always
  type: list
  elements: dict
blocked:
  description: Changes that O(gpudirect_allow) does not cover.
  returned: always
  type: list
  elements: dict
verified:
  description: True when the host was read again and is as wanted; null when nothing was written.
  returned: always
  type: bool
"""

import json

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vela.gpudirect.plugins.module_utils import host_boot, site
from ansible_collections.vela.gpudirect.plugins.module_utils.core.edge import outcome

HANDED_OVER = ("intent", "archive")


def main() -> None:
    """Build the module, run the engine, exit."""
    options = {**site.argument_spec(host_boot.SCHEMA), **{name: {"type": "str"} for name in HANDED_OVER}}
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
    intent, archive = (module.params.pop(name) for name in HANDED_OVER)
    params = {**site.options_of(host_boot, json.loads(intent or "{}")), **module.params, host_boot.ARCHIVE: archive}
    result = outcome(host_boot, params, check=module.check_mode or not archive)
    if not (result["failed"] or archive or module.check_mode):
        if host_boot.needs_engine(result["plan"]):
            module.exit_json(changed=False, engine_wanted=True)
        result = outcome(host_boot, params, check=False)
    module.fail_json(**result) if result.pop("failed") else module.exit_json(**result)


if __name__ == "__main__":
    main()
