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
  - Gives each guest of O(guest_shapes) that names an image a disk that is a layer over it, and an image from which cloud-init takes the guest's
    name, user, network settings, and the topology file for NCCL. All guests of a host in one call, before M(vela.gpudirect.libvirt_guest)
    makes and starts them.
  - Which devices a guest gets, and so what it is told of them, is decided as for its domain, from the same options. A guest that has no
    devices yet, since VFs or drivers are still to come, gets no disk yet.
  - A rail is found in the guest by its MAC address. A VF that has none that stays (of O(sriov_ports), or set by others) is refused by name.
  - An image gets its name when its digest is right, goes on where a run was cut off, and is refused when it rests on other files, whose names would
    be the choice of who made it. Proxies are those of the module's environment (C(https_proxy), C(no_proxy)).
  - A disk that is there is never made again nor changed; that it should have another image or size is noted. A seed that changes is written and
    noted, and not taken up by a guest that has booted.
  - A guest that leaves the list loses its disk once libvirt has the guest no more, which disrupts the V(guest) and is refused while a process
    has it open. An image goes with its last disk. The disk of a guest without an image is somebody else's, and never touched.
  - What a guest is told has no secrets. It is for root alone on the host all the same.
author: vela.gpudirect contributors (!UNKNOWN)
requirements:
  - qemu-img, and one of xorrisofs, genisoimage and mkisofs on the host
  - libvirt with its Python binding on the host
extends_documentation_fragment:
  - vela.gpudirect.resource.guest_image
  - vela.gpudirect.resource.attributes
seealso:
  - module: vela.gpudirect.libvirt_guest
  - module: vela.gpudirect.kvm
"""

EXAMPLES = r"""
- name: A disk of 200 GiB for one guest, with an address for the rail of its GPU
  vela.gpudirect.guest_image:
    guest_images:
      - name: noble
        url: https://cloud-images.ubuntu.com/noble/current/noble-server-cloudimg-amd64.img
        sha256: "{{ noble_sha256 }}"
    guest_shapes:
      - name: train-1
        gpus: 1
        vcpus: 16
        memory_gib: 64
        image: noble
        disk_gib: 200
        user: ops
        ssh_keys: ["{{ lookup('ansible.builtin.file', '~/.ssh/id_ed25519.pub') }}"]
        network: default
        mtu: 9000
        rails:
          - addresses: [10.0.0.1/24]
    sriov_ports: "{{ sriov_ports }}"
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
