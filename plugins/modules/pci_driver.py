#!/usr/bin/python
# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Edge of the pci_driver resource."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pci_driver
short_description: Drivers of PCI devices, now and at every boot before any other is loaded for them
version_added: 0.1.0
description:
  - Gives the selected devices to C(vfio-pci) or another driver by C(driver_override) at their addresses, never by ids, which would take all of a kind.
  - For every next boot it writes a udev rule for each device, which applies only to the very device (address, ids, the ports above it) and loads the driver
    itself, takes it into the initramfs of every installed kernel (initramfs-tools or dracut), and builds the images that were not built with it.
  - At once, it takes idle devices from their drivers. A GPU or an RDMA device that a program has open, or that shows the console, waits for a reboot.
  - Refuses, before the first write, a device whose disk is mounted, is swap space, has something built on it, is in fstab or crypttab or holds a boot
    partition, a network device that carries a default route or the ssh connection of this run, a PF with VFs, a device that a guest holds through vfio, an
    IOMMU group with a device that no entry selects and another driver has, and a device that is not the one that was recorded at its address. What only
    another mount namespace has mounted is not seen.
  - A device with a network device that has an address or is a port of a bond or bridge disrupts the V(link); everything else disrupts nothing.
  - VFs are bound when they are there. Those that O(sriov_ports) will make, and devices without an IOMMU group where O(kernel_iommu) will turn the IOMMU on,
    are deferred.
  - An entry that goes gives its devices back to the kernel's choice of driver, and the files and images with it.
author: vela.gpudirect contributors (!UNKNOWN)
requirements:
  - iproute2 on the host where a network device is to be taken from its driver
extends_documentation_fragment:
  - vela.gpudirect.resource.pci_driver
  - vela.gpudirect.resource.attributes
seealso:
  - module: vela.gpudirect.sriov
  - module: vela.gpudirect.kernel_args
"""

EXAMPLES = r"""
- name: Eight GPUs, six NVSwitches and the VFs of all Mellanox ports on vfio-pci
  vela.gpudirect.pci_driver:
    pci_driver_devices:
      - {name: gpu, select: {vendor: "10de", class: "0302"}, expect: 8}
      - {name: nvswitch, select: {vendor: "10de", class: "0680"}, expect: 6}
      - {name: vf, select: {vfs_of: {vendor: "15b3"}}}
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
  description: Devices and modules that are in use and change hands with the next boot.
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
notes:
  description: What the operator should know, such as a driver that is part of the kernel and takes its device at each boot first.
  returned: always
  type: list
  elements: str
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
from ansible_collections.vela.gpudirect.plugins.module_utils import pci_driver, site
from ansible_collections.vela.gpudirect.plugins.module_utils.core.edge import outcome


def main() -> None:
    """Build the module, run the engine, exit."""
    module = AnsibleModule(argument_spec=site.argument_spec(pci_driver.SCHEMA), supports_check_mode=True)
    result = outcome(pci_driver, module.params, check=module.check_mode)
    module.fail_json(**result) if result.pop("failed") else module.exit_json(**result)


if __name__ == "__main__":
    main()
