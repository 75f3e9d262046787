#!/usr/bin/python
# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the preflight action, which runs on the controller and needs no module on the host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: preflight
short_description: Say in plain sentences why a host could not be looked at
version_added: 0.1.0
description:
  - Runs as the rescue of M(vela.gpudirect.host_plan), and always fails.
  - Repeats what M(vela.gpudirect.host_plan) said itself; where that could not even run, probes the host with its shell alone for
    Python, root and a supported system.
  - It is an action plugin; no Python is needed on the host.
author: vela.gpudirect contributors (!UNKNOWN)
options:
  failure:
    description: The failed result, that is C(ansible_failed_result).
    type: dict
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
- name: Say why the host could not be looked at
  vela.gpudirect.preflight:
    failure: "{{ ansible_failed_result }}"
"""

RETURN = r"""
problems:
  description: One sentence for each reason.
  returned: always
  type: list
  elements: str
"""
