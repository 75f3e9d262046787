#!/usr/bin/python
# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Edge of the libvirt_guest resource."""

from __future__ import annotations

DOCUMENTATION = r"""
module: libvirt_guest
short_description: Guests of a host, placed, defined in libvirt and running
version_added: 0.1.0
description:
  - Places the guests that O(guest_shapes) asks for on the devices, cores and huge pages of the host, keeps what each got on record, defines their domains
    and starts them. Guests that are left out are stopped and removed with their NVRAM;
    M(vela.gpudirect.guest_image) makes the disks and seeds of guests that name an image, and removes them afterwards.
  - A definition is compared with the wanted one in the parts that this module makes; what libvirt and others add is kept. A domain of the same
    name that was not made by this module is refused.
  - A running guest whose definition has changed keeps running as it is, and its restart is named; it is restarted only with V(guest) in
    O(gpudirect_allow). The same consent is needed to stop or remove a guest. A guest is asked to end, and ended by force only with O(guest_stop=force).
  - Devices have to be on vfio-pci before; libvirt is told not to bind them. libvirt's autostart is always off, since the host's boot unit
    starts guests after all that they need.
  - What QEMU says in a guest's log of devices that cannot reach each other fails the run.
author: vela.gpudirect contributors (!UNKNOWN)
requirements:
  - libvirt and its Python binding on the host (python3-libvirt), in the Python that runs the module
extends_documentation_fragment:
  - vela.gpudirect.resource.libvirt_guest
  - vela.gpudirect.resource.attributes
seealso:
  - module: vela.gpudirect.guest_image
  - module: vela.gpudirect.host_plan
"""

EXAMPLES = r"""
- name: One guest with all GPUs of the host
  vela.gpudirect.libvirt_guest:
    guest_shapes:
      - {name: train, gpus: 8, nvswitches: all, vcpus: 92, memory_gib: 1200, image: ubuntu-24.04, network: inner}
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
awaiting_consent:
  description: Restarts of guests that O(gpudirect_allow) does not cover, and starts that depend on them; they are left for a later run.
  returned: always
  type: list
  elements: dict
deferred:
  description: What cannot be planned before something else was done, with what it waits for.
  returned: always
  type: list
  elements: dict
reboot_required:
  description: Whether something awaits a reboot of the host; never.
  returned: always
  type: bool
verified:
  description: True when the host was read again and is as wanted; false when something is left open; null when nothing was written.
  returned: always
  type: bool
done:
  description: On failure, the paths of the changes that were made before.
  returned: failure
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vela.gpudirect.plugins.module_utils import libvirt_guest, site
from ansible_collections.vela.gpudirect.plugins.module_utils.core.edge import outcome


def main() -> None:
    """Build the module, run the engine, exit."""
    module = AnsibleModule(argument_spec=site.argument_spec(libvirt_guest.SCHEMA), supports_check_mode=True)
    result = outcome(libvirt_guest, module.params, check=module.check_mode)
    for note in result.get("notes", ()):
        module.warn(note)  # seen without -v: what a guest does not get, or cannot use
    module.fail_json(**result) if result.pop("failed") else module.exit_json(**result)


if __name__ == "__main__":
    main()
