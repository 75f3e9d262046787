#!/usr/bin/python
# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the console action, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: console
short_description: Report a host that did not come back from its reboot, with its console
version_added: 0.1.0
description:
  - Runs as the rescue of a reboot, and always fails.
  - It is an action plugin that runs a command on the controller and puts the end of its output into the message.
author: vela.gpudirect contributors (!UNKNOWN)
options:
  command:
    description: Command on the controller that prints the end of the host's console. Omitted or empty, the message says that none is configured.
    type: str
  failure:
    description: The failed result of the reboot, that is C(ansible_failed_result).
    type: dict
    required: true
  reasons:
    description: What the reboot was for.
    type: list
    elements: str
    default: []
  timeout_s:
    description: How long the host had to come back, for the message.
    type: int
    required: true
attributes:
  check_mode:
    support: full
    description: It only reads.
  diff_mode:
    support: none
    description: It only reads.
"""

EXAMPLES = r"""
- name: Read the host's console on the controller
  vela.gpudirect.console:
    command: "tail -n 40 /var/log/consoles/{{ inventory_hostname }}.log"
    failure: "{{ ansible_failed_result }}"
    reasons: "{{ gpudirect_plan.reboot_reasons }}"
    timeout_s: 1800
"""

RETURN = r"""
msg:
  description: The host, the cause, what the reboot was for, and the end of the console.
  returned: always
  type: str
"""
