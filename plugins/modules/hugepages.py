#!/usr/bin/python
# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Edge of the hugepages resource."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hugepages
short_description: Huge pages per NUMA node, live where the kernel finds the room
version_added: 0.1.0
description:
  - Brings the reserved huge pages of each NUMA node of the running kernel to the wanted count, and judges what the boot gave.
  - The reservation of the next boot is written by M(vela.gpudirect.kernel_args), which takes the same options.
  - Refuses a reservation that a node cannot hold or that would starve the host.
author: vela.gpudirect contributors (!UNKNOWN)
extends_documentation_fragment:
  - vela.gpudirect.resource.hugepages
  - vela.gpudirect.resource.attributes
seealso:
  - module: vela.gpudirect.kernel_args
"""

EXAMPLES = r"""
- name: Sixteen one gigabyte pages on node 0 and thirty-two on node 1
  vela.gpudirect.hugepages:
    kernel_hugepages:
      - {size: 1G, nodes: {0: 16, 1: 32}}
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
deferred:
  description: What cannot be planned before an earlier change of this run was made.
  returned: always
  type: list
  elements: dict
awaiting_reboot:
  description: Values that are written and not live yet.
  returned: always
  type: list
  elements: dict
reboot_required:
  description: Whether something awaits a reboot.
  returned: always
  type: bool
reboot_reasons:
  description: One line for each value that awaits a reboot.
  returned: always
  type: list
  elements: str
verified:
  description: True when the host was read again and is as wanted; null when nothing was written.
  returned: always
  type: bool
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vela.gpudirect.plugins.module_utils import hugepages, site
from ansible_collections.vela.gpudirect.plugins.module_utils.core.edge import outcome


def main() -> None:
    """Build the module, run the engine, exit."""
    module = AnsibleModule(argument_spec=site.argument_spec(hugepages.SCHEMA), supports_check_mode=True)
    result = outcome(hugepages, module.params, check=module.check_mode)
    module.fail_json(**result) if result.pop("failed") else module.exit_json(**result)


if __name__ == "__main__":
    main()
