# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of the coalesced reboot. The reboot itself is ansible.builtin.reboot, which compares boot ids."""

from __future__ import annotations

from .core.schema import Field, Schema

SCHEMA = Schema(
    "reboot",
    "reboot_",
    (
        Field(
            "reboot_timeout_s",
            "int",
            (
                "How long a host may take to come back, in seconds.",
                "Servers with much memory take many minutes to train it.",
            ),
            default=1800,
            minimum=30,
        ),
        Field(
            "reboot_console_command",
            "str",
            (
                "A command on the controller that prints the end of the host's console, such as V(ipmitool -H bmc sol ...) or a log reader.",
                "It is run only for a host that does not come back, and its output is put into the error. Empty: there is none.",
            ),
            default="",
        ),
    ),
)
