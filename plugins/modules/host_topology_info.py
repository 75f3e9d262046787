#!/usr/bin/python
# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Edge of the PCI reader: the tree of a host as data."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_topology_info
short_description: The PCI tree of a host as data
version_added: 0.1.0
description:
  - Reads the host's sysfs once and returns its PCI functions, bridges with their buses, IOMMU groups, NUMA nodes, regions, links,
    SR-IOV with the VFs of each PF, PCI Express settings, ACS and ATS words, drivers, network devices, RDMA devices and disks.
  - What is not there is null. What could not be learnt is a mapping with the key C(unreadable) and the reason, so that it is
    never taken for a value; without root that is so for most of configuration space.
  - Selectors of other modules name what is shown here, RV(functions[].port) for instance.
author: vela.gpudirect contributors (!UNKNOWN)
extends_documentation_fragment:
  - vela.gpudirect.resource.host_topology_info
attributes:
  check_mode:
    support: full
    description: It only reads.
  diff_mode:
    support: none
    description: It only reads.
  platform:
    support: full
    platforms: posix
    description: Linux.
seealso:
  - module: vela.gpudirect.host_plan
"""

EXAMPLES = r"""
- name: What is plugged where
  vela.gpudirect.host_topology_info:
  register: topology

- name: The addresses of the VFs
  ansible.builtin.debug:
    msg: "{{ topology.functions | selectattr('physfn') | map(attribute='address') }}"

- name: The same of a captured tree, without the host
  vela.gpudirect.host_topology_info:
    gpudirect_root: /srv/support/node-17
"""

RETURN = r"""
functions:
  description: All PCI functions by address, bridges and VFs too.
  returned: success
  type: list
  elements: dict
  contains:
    address:
      description: Domain, bus, device and function.
      type: str
      sample: "0000:24:00.0"
    vendor:
      description: Vendor id, four hexadecimal digits; RV(functions[].device) and the ids of the subsystem likewise.
      type: str
    device:
      description: Device id.
      type: str
    class:
      description: Class code, six hexadecimal digits.
      type: str
    subsystem_vendor:
      description: Vendor id of the subsystem.
      type: str
    subsystem_device:
      description: Device id of the subsystem.
      type: str
    revision:
      description: Revision, two hexadecimal digits.
      type: str
    serial:
      description: Device Serial Number, else the serial number that a drive tells its driver.
      type: str
    port:
      description: Where it is plugged, from its root bus on. It stays the same when buses below that are renumbered.
      type: str
      sample: pci0000:20/00.0/00.0/01.0/00.0
    parent:
      description: Address of the bridge above; null on a root bus.
      type: str
    root_bus:
      description: The kernel's name of the root bus.
      type: str
    numa_node:
      description: NUMA node; null where the kernel was told none.
      type: int
    iommu_group:
      description: Number of the IOMMU group in this boot.
      type: int
    driver:
      description: Name of the driver that has the function.
      type: str
    driver_override:
      description: The driver that alone may have it.
      type: str
    link:
      description: C(speed_gts) and C(width) now, C(speed_max_gts) and C(width_max) at best.
      type: dict
    bars:
      description: Regions with C(index), C(start), C(size_bytes), C(flags) and C(assigned).
      type: list
      elements: dict
    express:
      description: >-
        Of a PCI Express function: C(port_type) by its register (a port's position is told by RV(functions[].parent)),
        C(max_read_request_bytes), C(max_payload_bytes) and C(relaxed_ordering).
      type: dict
    acs:
      description: Both ACS words as hexadecimal digits, and the names of their bits in C(capable) and C(enabled).
      type: dict
    ats:
      description: Both ATS words as hexadecimal digits, C(enabled) and C(smallest_unit).
      type: dict
    sriov:
      description: >-
        Of a PF: C(total) that the kernel allows, C(register) of the capability, C(enabled), C(autoprobe), C(offset), C(stride),
        C(vf_device) and the addresses of its C(vfs) by VF number.
      type: dict
    physfn:
      description: Of a VF, the address of its PF.
      type: str
    netdevs:
      description: Network devices with C(name), C(mac), C(mtu), C(operstate), C(port_name), C(switch_id), C(master), C(representor).
      type: list
      elements: dict
    rdma:
      description: Names of RDMA devices.
      type: list
      elements: str
    disks:
      description: Names of disks.
      type: list
      elements: str
    boot_vga:
      description: Whether the firmware used it as the display.
      type: bool
bridges:
  description: Bridges with C(address), C(secondary_bus), C(subordinate_bus) and the addresses directly C(below).
  returned: success
  type: list
  elements: dict
iommu_groups:
  description: IOMMU groups with C(number), C(type) and the addresses of their C(functions).
  returned: success
  type: list
  elements: dict
unread:
  description: Functions that tell too little of themselves to be in RV(functions), by address, with the reason.
  returned: success
  type: dict
platform:
  description: >-
    What the host says of itself as a whole: kernel command line and release, processor, IOMMUs, the firmware's ATSR structures, lockdown,
    active memory encryption, NUMA nodes. With it a saved result is judged in full (C(./gpudirect audit FILE)).
  returned: success
  type: dict
name:
  description: What the host calls itself.
  returned: success
  type: str
missing:
  description: What could not be read, in sentences.
  returned: success
  type: list
  elements: str
partial:
  description: Whether functions of the machine are missing.
  returned: success
  type: bool
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vela.gpudirect.plugins.module_utils import site
from ansible_collections.vela.gpudirect.plugins.module_utils.core.edge import failure
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import GpudirectError
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host
from ansible_collections.vela.gpudirect.plugins.module_utils.path import facts
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.whole import whole


def main() -> None:
    """Build the module, read, exit."""
    name = site.ROOT_FIELD.name
    module = AnsibleModule(argument_spec={name: site.SCHEMA.argument_spec()[name]}, supports_check_mode=True)
    host = Host()
    try:
        host = Host(site.SCHEMA.parse({name: module.params[name]})[name])
        site.require_capture(host)
        result = whole(facts.machine_of(host, facts.name_of(host)))
    except GpudirectError as error:
        failed = failure(error, host)
        del failed["failed"]
        module.fail_json(**failed)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
