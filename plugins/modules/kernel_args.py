#!/usr/bin/python
# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Edge of the kernel_args resource."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_args
short_description: Kernel command line of every next boot, and whether it is live
version_added: 0.1.0
description:
  - Brings the kernel arguments of every future boot to the wanted state, through GRUB (Debian, Ubuntu) or BLS entries (RHEL, Rocky).
  - Touches owned names only; arguments of others keep their order and repeats. Removing the intent restores the host as it was found.
  - What the running kernel still lacks is returned as RV(awaiting_reboot); a value that a reboot did not bring is a failure.
author: vela.gpudirect contributors (!UNKNOWN)
extends_documentation_fragment:
  - vela.gpudirect.resource.kernel_args
  - vela.gpudirect.resource.attributes
seealso:
  - module: vela.gpudirect.hugepages
"""

EXAMPLES = r"""
- name: IOMMU with identity mapping for the host, and one gigabyte pages on both nodes
  vela.gpudirect.kernel_args:
    kernel_iommu: passthrough
    kernel_hugepages:
      - {size: 1G, per_node: 300}

- name: Own two arguments and forbid a third
  vela.gpudirect.kernel_args:
    kernel_args: [mitigations=off, console=ttyS0]
    kernel_args_absent: [pcie_acs_override]
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
from ansible_collections.vela.gpudirect.plugins.module_utils import kernel_args, site
from ansible_collections.vela.gpudirect.plugins.module_utils.core.edge import outcome


def main() -> None:
    """Build the module, run the engine, exit."""
    module = AnsibleModule(argument_spec=site.argument_spec(kernel_args.SCHEMA), supports_check_mode=True)
    result = outcome(kernel_args, module.params, check=module.check_mode)
    module.fail_json(**result) if result.pop("failed") else module.exit_json(**result)


if __name__ == "__main__":
    main()
