#!/usr/bin/python
# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Edge of the placement of guests; the action plugin of the same name fills its first option in and decides whether a play stops."""

from __future__ import annotations

DOCUMENTATION = r"""
module: guest_placement
short_description: Tell where the guests of a host are or would be placed, or why they do not fit
version_added: 0.1.0
description:
  - Reads a host once, writes nothing, and tells which GPUs, VFs, NVSwitches, CPUs and memory each guest of O(guest_shapes) has or would get of this
    host. It is the same decision that M(vela.gpudirect.libvirt_guest) goes by; guests on record keep what they have.
  - Guests that do not fit fail the task with every reason, unless O(report_only) says otherwise.
  - A new guest whose devices other resources of a run still bring or take (VFs, drivers, pages) is not placed on what happens to be there, but said to wait,
    or refused where the host will never suffice. So is a guest on record that does not fit as things are.
  - Options that are not given are taken from the variables of the host. They are checked as for a run, with the names of all variables of this collection,
    and what a run says against O(sriov_ports), O(pci_driver_devices) and O(kernel_hugepages) of this host is told too.
  - A captured tree has to have the huge pages of its NUMA nodes, or nothing can be told of memory and the task fails with the missing files.
author: vela.gpudirect contributors (!UNKNOWN)
options:
  intent:
    description: The checked options as JSON. Set by the action plugin.
    type: str
  report_only:
    description: Whether guests that do not fit are only reported.
    type: bool
    default: false
extends_documentation_fragment:
  - vela.gpudirect.resource.guest_placement
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
  - module: vela.gpudirect.libvirt_guest
  - module: vela.gpudirect.p2p_topology
"""

EXAMPLES = r"""
- name: Show where guests would be, and go on whatever comes out
  vela.gpudirect.guest_placement:
    report_only: true
  register: placement

- name: Show the table
  ansible.builtin.debug:
    msg: "{{ placement.text.splitlines() }}"

- name: Would this guest fit a host of which there is a captured tree only?
  vela.gpudirect.guest_placement:
    gpudirect_root: /srv/captures/node-17
    guest_shapes:
      - {name: train, gpus: 8, nvswitches: all, vcpus: 92, memory_gib: 1200, image: ubuntu-24.04}
"""

RETURN = r"""
guests:
  description:
    - For each guest that is to be there its C(name), C(vcpus), C(memory_mib), C(page_mib) and C(verdict), V(placed), V(refused) or V(waits).
    - With V(placed) also C(on_record), whether it has these devices already, C(gpus), C(vfs) with the C(gpu) that each is for and its C(distance) as
      audits measure it, C(nvswitches), C(cells) with the host's C(node), C(cpus) and C(memory_mib), C(emulator_cpus) and C(notes).
    - Otherwise C(reasons).
  returned: success, or failure because a guest does not fit
  type: list
  elements: dict
problems:
  description: All reasons why guests do not fit, in the form of all errors.
  returned: always
  type: list
  elements: str
text:
  description: The same as a table for people.
  returned: success, or failure because a guest does not fit
  type: str
msg:
  description: One sentence, or the reasons.
  returned: always
  type: str
"""

import json

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vela.gpudirect.plugins.module_utils import site
from ansible_collections.vela.gpudirect.plugins.module_utils.core.edge import failure
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import GpudirectError
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host
from ansible_collections.vela.gpudirect.plugins.module_utils.guest import overview

# The action plugin reads all of them, and sends what it has read as the intent.
OPTIONS = {
    **overview.SCHEMA.argument_spec(),
    site.ROOT_FIELD.name: site.SCHEMA.argument_spec()[site.ROOT_FIELD.name],
    "intent": {"type": "str"},
    "report_only": {"type": "bool", "default": False},
}


def main() -> None:
    """Build the module, look, exit."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    intent = json.loads(module.params["intent"] or "{}")
    host = Host(intent.pop("gpudirect_root", "/"))
    try:
        site.require_capture(host)
        result = overview.looked(intent, host)
    except GpudirectError as error:
        failed = failure(error, host)
        del failed["failed"]
        module.fail_json(**failed)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
