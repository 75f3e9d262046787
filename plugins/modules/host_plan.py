#!/usr/bin/python
# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Edge of the whole host's plan; the action plugin of the same name fills its options in."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_plan
short_description: Look at a host once and plan everything that the inventory wants of it
version_added: 0.1.0
description:
  - Checks all of this collection's inventory variables of the host on the controller, every mistake in one message, including
    variables whose name is mistyped.
  - Then reads the host once and plans every resource. It never writes; it is the same code as each resource's check mode.
  - Fails, before anything is written, when a change lacks consent, when the host cannot take the plan, and when a reboot did not
    bring what it was for.
author: vela.gpudirect contributors (!UNKNOWN)
options:
  intent:
    description: The host's checked variables as JSON. Set by the action plugin.
    type: str
  previous:
    description: The RV(next) of the last round, which lets this one notice a reboot that did not help.
    type: dict
    default: {}
extends_documentation_fragment:
  - vela.gpudirect.resource.attributes
"""

EXAMPLES = r"""
- name: Look once and plan everything
  vela.gpudirect.host_plan:
  register: gpudirect_plan
"""

RETURN = r"""
todo:
  description: Resources that have changes to make, in order, and V(reboot) when one is due.
  returned: success
  type: list
  elements: str
msg:
  description: One sentence on the host.
  returned: always
  type: str
paths:
  description:
    - What M(vela.gpudirect.p2p_topology) returns by this name.
    - V(FAIL) stops the host once nothing is left to do in this run. V(WARN) and V(UNKNOWN) are warnings.
  returned: where a variable begins with C(pci_path_)
  type: dict
next:
  description: What the next round needs to know.
  returned: success
  type: dict
verified:
  description: Whether the host is as wanted in every respect.
  returned: success
  type: bool
"""

import json

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vela.gpudirect.plugins.module_utils import site
from ansible_collections.vela.gpudirect.plugins.module_utils.core.edge import failure
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import GpudirectError
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host


def main() -> None:
    """Build the module, look, exit."""
    module = AnsibleModule(
        argument_spec={"intent": {"type": "str"}, "previous": {"type": "dict", "default": {}}}, supports_check_mode=True
    )
    intent = json.loads(module.params["intent"] or "{}")
    host = Host(intent.get("gpudirect_root", "/"))
    try:
        site.require_capture(host)
        result = site.look(intent, host, check=module.check_mode, previous=module.params["previous"])
    except GpudirectError as error:
        result = failure(error, host)
        del result["failed"]
        module.fail_json(**result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
