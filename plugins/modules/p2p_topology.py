#!/usr/bin/python
# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Edge of the policy of paths; the action plugin of the same name fills its first option in and decides what stops a play."""

from __future__ import annotations

DOCUMENTATION = r"""
module: p2p_topology
short_description: Judge the ways between GPUs and NICs, and stop before guests are made where they are broken
version_added: 0.1.0
description:
  - Reads a host once, writes nothing, and judges whether its GPUs and NICs can talk to each other directly, by named rules
    (C(./gpudirect audit --rules), C(docs/audit.md)).
  - Stops the host where that is not so, unless O(stop_at) says otherwise. In C(site.yml) the same judgement is part of
    M(vela.gpudirect.host_plan), where any variable that begins with C(pci_path_) is set.
  - With O(file) it judges a capture on the control node and needs no host; with O(summary) it closes a play with a table.
  - Options that are not given are taken from the variables of the host.
author: vela.gpudirect contributors (!UNKNOWN)
options:
  intent:
    description: The checked options as JSON. Set by the action plugin.
    type: str
  stop_at:
    description:
      - What stops the host. V(unknown) also stops where something could not be judged, since what was not seen may be broken;
        relax the rule with its reason where that is known to be fine.
    type: str
    choices: [unknown, fail, never]
    default: unknown
  file:
    description: A file or folder of the control node that is judged instead of the host, of any kind that C(./gpudirect audit) takes.
    type: path
  report:
    description: A folder of the control node; the report is written there as C(NAME.json), C(NAME.txt) and C(NAME.svg).
    type: path
  summary:
    description:
      - Judge nothing, but return as C(hosts) a line for each host of the play from the registered results of this name. Hosts without a
        result are named.
    type: str
  whole:
    description: Return the whole report, text and picture too. Set by the action plugin where O(report) is given.
    type: bool
    default: false
extends_documentation_fragment:
  - vela.gpudirect.resource.p2p_topology
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
  - module: vela.gpudirect.host_topology_info
  - module: vela.gpudirect.host_plan
"""

EXAMPLES = r"""
- name: Go on only with hosts whose paths are fine
  vela.gpudirect.p2p_topology:

- name: Judge, write reports, and go on whatever was found
  vela.gpudirect.p2p_topology:
    stop_at: never
    report: "{{ playbook_dir }}/reports/audit"
  register: audit

- name: Judge a support bundle
  vela.gpudirect.p2p_topology:
    file: bundles/node-17.tar.gz
"""

RETURN = r"""
paths:
  description:
    - C(verdict) (V(OK), V(DEFERRED), V(WARN), V(UNKNOWN) or V(FAIL)), C(mode), addresses of C(gpus) and C(nics), C(kinds) with a row for each
      GPU and a column for each NIC, the nearest NICs of each GPU as C(best), C(relaxed), and all C(findings) that are not OK.
    - C(text) has lines for people, C(problems) a sentence for each finding that is UNKNOWN or FAIL.
  returned: success
  type: dict
msg:
  description: The verdict in one sentence, or the sentences of what is wrong.
  returned: always
  type: str
"""

import json

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vela.gpudirect.plugins.module_utils import site
from ansible_collections.vela.gpudirect.plugins.module_utils.audit import host_report
from ansible_collections.vela.gpudirect.plugins.module_utils.core.edge import failure
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import GpudirectError
from ansible_collections.vela.gpudirect.plugins.module_utils.core.host import Host
from ansible_collections.vela.gpudirect.plugins.module_utils.path.intent import SCHEMA

# The action plugin reads all but two of them, and sends what it has read as these two.
OPTIONS = {
    **SCHEMA.argument_spec(),
    site.ROOT_FIELD.name: site.SCHEMA.argument_spec()[site.ROOT_FIELD.name],
    "intent": {"type": "str"},
    "whole": {"type": "bool", "default": False},
    "stop_at": {"type": "str", "choices": ["unknown", "fail", "never"], "default": "unknown"},
    "file": {"type": "path"},
    "report": {"type": "path"},
    "summary": {"type": "str"},
}


def main() -> None:
    """Build the module, read, judge, exit."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    intent = json.loads(module.params["intent"] or "{}")
    host = Host(intent.pop("gpudirect_root", "/"))
    try:
        site.require_capture(host)
        result = host_report.judged(intent, host, whole=module.params["whole"])
    except GpudirectError as error:
        failed = failure(error, host)
        del failed["failed"]
        module.fail_json(**failed)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
