#!/usr/bin/python
# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Edge of the sriov resource."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sriov
short_description: VFs of SR-IOV ports, their attributes, and MTU and eswitch of the ports
version_added: 0.1.0
description:
  - Brings any number of ports in one call to the wanted number of VFs, always through none, and gives each VF its MAC address, VLAN, trust, source
    check, link state, rates and GUIDs. Sets the port's MTU, its eswitch mode and whether the kernel binds new VFs, and brings a port with VFs up.
  - All of this is live state that a reboot takes away; nothing is written for the next boot here.
  - Never touches the network device that carries a default route of the main routing table or the ssh connection of this run, nor what lies below it
    when that is a bond, bridge, VLAN or VF. The connection is found in the environment of the ancestors of the module's process, so it is found below
    sudo too; without any (a local run) only the default routes count.
  - A change disrupts the V(link) when the port has an address, is a port of a bond or bridge, or has a VLAN on it, and nothing when it is idle; it disrupts
    a V(guest) when a process has one of the VFs concerned open through vfio, or that cannot be told.
  - What a driver is known not to do is refused before the first write; anything else is tried, and the driver's own words are told.
author: vela.gpudirect contributors (!UNKNOWN)
requirements:
  - iproute2 on the host (devlink too where O(sriov_ports[].eswitch) is managed)
extends_documentation_fragment:
  - vela.gpudirect.resource.sriov
  - vela.gpudirect.resource.attributes
seealso:
  - module: vela.gpudirect.host_plan
"""

EXAMPLES = r"""
- name: Four VFs on every ConnectX-6 Dx port, unbound for vfio-pci, the first in VLAN 100
  vela.gpudirect.sriov:
    sriov_ports:
      - select: {vendor: "15b3", device: "101d"}
        vfs: 4
        mtu: 9000
        vf_defaults: {trust: true, spoofchk: false}
        vf:
          0: {vlan: 100, qos: 3}
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
  description: Whether something awaits a reboot; never, since all of it is live.
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
from ansible_collections.vela.gpudirect.plugins.module_utils import site, sriov
from ansible_collections.vela.gpudirect.plugins.module_utils.core.edge import outcome


def main() -> None:
    """Build the module, run the engine, exit."""
    module = AnsibleModule(argument_spec=site.argument_spec(sriov.SCHEMA), supports_check_mode=True)
    result = outcome(sriov, module.params, check=module.check_mode)
    module.fail_json(**result) if result.pop("failed") else module.exit_json(**result)


if __name__ == "__main__":
    main()
