#!/usr/bin/python
# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Edge of the libvirt_pool resource."""

from __future__ import annotations

DOCUMENTATION = r"""
module: libvirt_pool
short_description: Storage pools of libvirt, each a folder of the host
version_added: 0.1.0
description:
  - Defines and starts pools, and has libvirt start them at boot. What is in a folder is never removed; an empty folder that was made for a pool goes with it.
  - A pool whose folder has changed is restarted when no guest has a disk in it; otherwise that is told as deferred.
author: vela.gpudirect contributors (!UNKNOWN)
requirements:
  - libvirt and its Python binding on the host (python3-libvirt), in the Python that runs the module
extends_documentation_fragment:
  - vela.gpudirect.resource.libvirt_pool
  - vela.gpudirect.resource.attributes
seealso:
  - module: vela.gpudirect.host_plan
"""

EXAMPLES = r"""
- name: The folder of guests' disks
  vela.gpudirect.libvirt_pool:
    guest_pools:
      - {name: guests, path: /srv/guests}
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
  description: Nothing here.
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
from ansible_collections.vela.gpudirect.plugins.module_utils import libvirt_pool, site
from ansible_collections.vela.gpudirect.plugins.module_utils.core.edge import outcome


def main() -> None:
    """Build the module, run the engine, exit."""
    module = AnsibleModule(argument_spec=site.argument_spec(libvirt_pool.SCHEMA), supports_check_mode=True)
    result = outcome(libvirt_pool, module.params, check=module.check_mode)
    module.fail_json(**result) if result.pop("failed") else module.exit_json(**result)


if __name__ == "__main__":
    main()
