#!/usr/bin/python
# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Edge of the guest_image resource."""

from __future__ import annotations

DOCUMENTATION = r"""
module: guest_image
short_description: Base images, disks and first settings of guests
version_added: 0.1.0
description:
  - Fetches base images by their digest, makes each guest a disk that is a layer over its image, and an image from which cloud-init takes the guest's
    name, user, network settings, and the topology file for NCCL. All guests of a host in one call.
  - An image gets its name when its digest is right, goes on where a run was cut off, and is refused when it rests on other files, whose names would
    be the choice of who made it. Proxies are those of the module's environment (C(https_proxy), C(no_proxy)).
  - A disk that is there is never made again nor changed; that it should have another image or size is noted.
  - A guest that leaves the list loses its disk, which disrupts the V(guest) and is refused while a process has it open. An image goes with its last disk.
  - What a guest is told has no secrets. It is for root alone on the host all the same.
author: vela.gpudirect contributors (!UNKNOWN)
requirements:
  - qemu-img, and one of xorrisofs, genisoimage and mkisofs on the host
extends_documentation_fragment:
  - vela.gpudirect.resource.guest_image
  - vela.gpudirect.resource.attributes
seealso:
  - module: vela.gpudirect.kvm
"""

EXAMPLES = r"""
- name: A disk of 200 GiB for one guest, with an address for its rail
  vela.gpudirect.guest_image:
    guest_images:
      - name: noble
        url: https://cloud-images.ubuntu.com/noble/current/noble-server-cloudimg-amd64.img
        sha256: "{{ noble_sha256 }}"
    guest_disks:
      - name: train-1
        image: noble
        size_gib: 200
        user: ops
        ssh_keys: ["{{ lookup('ansible.builtin.file', '~/.ssh/id_ed25519.pub') }}"]
        interfaces:
          - {name: mgmt, mac: "52:54:00:00:00:01", dhcp: true}
          - {name: rail0, mac: "02:00:00:00:00:01", addresses: [10.0.0.1/24], mtu: 9000}
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
  description: Whether something awaits a reboot; never here.
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
from ansible_collections.vela.gpudirect.plugins.module_utils import guest_image, site
from ansible_collections.vela.gpudirect.plugins.module_utils.core.edge import outcome


def main() -> None:
    """Build the module, run the engine, exit."""
    module = AnsibleModule(argument_spec=site.argument_spec(guest_image.SCHEMA), supports_check_mode=True)
    result = outcome(guest_image, module.params, check=module.check_mode)
    module.fail_json(**result) if result.pop("failed") else module.exit_json(**result)


if __name__ == "__main__":
    main()
