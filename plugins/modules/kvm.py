#!/usr/bin/python
# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Edge of the kvm resource."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kvm
short_description: A host for guests with passed-through devices
version_added: 0.1.0
description:
  - Brings the daemons of libvirt up, mounts a file system for each size of huge pages that C(/dev/hugepages) does not have, switches off what
    moves memory and work of guests (KSM, automatic NUMA balancing, numad), sets the governor of CPU frequencies, and keeps the host's own work to
    its CPUs where that is asked for.
  - Each is set now and for every boot. The drift watch tells when something else sets a value again, and a boot puts it right.
  - Packages are named and not installed here; the role C(kvm) installs them. They stay when the host is not managed any more.
  - One daemon of libvirt for all, or one for each of its drivers, is told apart by what is installed, enabled and running. Both at once are refused.
  - AppArmor and SELinux stay as they are. Settings of C(qemu.conf) are owned one by one, and undone byte for byte.
  - Nothing here disrupts a guest; daemons that are restarted leave guests running.
author: vela.gpudirect contributors (!UNKNOWN)
requirements:
  - systemd on the host
extends_documentation_fragment:
  - vela.gpudirect.resource.kvm
  - vela.gpudirect.resource.attributes
seealso:
  - module: vela.gpudirect.hugepages
  - module: vela.gpudirect.host_plan
"""

EXAMPLES = r"""
- name: A host for guests, whose own work keeps to the first two cores of each socket
  vela.gpudirect.kvm:
    kvm_host: managed
    kvm_isolate_cpus: true
    guest_reserved_cpus: 0-1,64-65
    kernel_hugepages:
      - {size: 1G, per_node: 600}
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
  description: Whether something awaits a reboot; never, since all of it is live at once.
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
from ansible_collections.vela.gpudirect.plugins.module_utils import kvm, site
from ansible_collections.vela.gpudirect.plugins.module_utils.core.edge import outcome


def main() -> None:
    """Build the module, run the engine, exit."""
    module = AnsibleModule(argument_spec=site.argument_spec(kvm.SCHEMA), supports_check_mode=True)
    result = outcome(kvm, module.params, check=module.check_mode)
    module.fail_json(**result) if result.pop("failed") else module.exit_json(**result)


if __name__ == "__main__":
    main()
