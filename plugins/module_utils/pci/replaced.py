# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The option that says which devices were replaced on purpose. It is the site's, and of each resource that keeps identities."""

from __future__ import annotations

from ..core.schema import Field
from .select import addresses_in

REPLACED_FIELD = Field(
    "gpudirect_replaced",
    "list",
    (
        "PCI addresses whose device was replaced on purpose: the device that is there now is taken for the one that was,",
        "and where there is none any more, what is known of it is dropped.",
        "Without it, another device at the address of a recorded one stops the run, and boots wait for one that is gone.",
    ),
    default=[],
    elements="str",
    check=addresses_in,
)
