#!/usr/bin/python
# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Edge of the pci_path resource."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pci_path
short_description: ACS words of the ports between GPUs and NICs, and read requests of NICs
version_added: 0.1.0
description:
  - Sets the ACS control words of the ports on the paths between each GPU and its nearest NICs to what O(gpudirect_mode) wants there, and of these NICs
    the read request size. Other ports and other bits stay as they are.
  - What is written is what the audit judges, by one policy. A port is set at once, in the running kernel, wherever that harms nothing.
  - The boot argument that has the kernel set the words at each boot is written by M(vela.gpudirect.kernel_args), from the same options.
  - Isolation is never taken from a running kernel that has formed IOMMU groups. A host that shall have open ports (V(bare_metal)) gets them by the boot
    argument and a reboot; V(register) is refused there.
  - Groups that were formed while ports kept nothing apart stay as they are until a boot, and await it.
  - Nothing of it disrupts anything. Registers are lost at a boot, and a reset of a port may undo them; M(vela.gpudirect.host_boot) brings them back.
  - Where the kernel is locked down, registers cannot be written; that is said before anything is.
author: vela.gpudirect contributors (!UNKNOWN)
extends_documentation_fragment:
  - vela.gpudirect.resource.pci_path
  - vela.gpudirect.resource.attributes
seealso:
  - module: vela.gpudirect.host_plan
  - module: vela.gpudirect.kernel_args
"""

EXAMPLES = r"""
- name: Direct paths for guests, by the boot argument where the kernel can, and read requests of 4 KiB
  vela.gpudirect.pci_path:
    pci_path_acs: auto
    pci_path_max_read_request: 4096
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
reboot_required:
  description: Whether something awaits a reboot.
  returned: always
  type: bool
verified:
  description: True when the host was read again and is as wanted; null when nothing was written.
  returned: always
  type: bool
done:
  description: On failure, the paths of the changes that were made before.
  returned: failure
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vela.gpudirect.plugins.module_utils import pci_path, site
from ansible_collections.vela.gpudirect.plugins.module_utils.core.edge import outcome


def main() -> None:
    """Build the module, run the engine, exit."""
    module = AnsibleModule(argument_spec=site.argument_spec(pci_path.SCHEMA), supports_check_mode=True)
    result = outcome(pci_path, module.params, check=module.check_mode)
    module.fail_json(**result) if result.pop("failed") else module.exit_json(**result)


if __name__ == "__main__":
    main()
