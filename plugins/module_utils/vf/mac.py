# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MAC addresses and GUIDs: their form, and addresses of our own for VFs that are the same at every boot. Pure."""

from __future__ import annotations

import hashlib
import re

from ..core.errors import IntentError, Problem

_GROUP, _LOCAL = 0x01, 0x02  # the two low bits of the first byte (IEEE 802)


def canonical_mac(path: str, text: str) -> str:
    """The address of one device in lower case with colons; IntentError where it cannot be one."""
    digits = re.sub(r"[:-]", "", text.strip().lower())
    if re.fullmatch(r"[0-9a-f]{2}([:-][0-9a-f]{2}){5}", text.strip().lower()) is None:
        raise _wrong(path, "is not a MAC address", text, "six bytes such as 02:00:00:00:00:01")
    if not int(digits, 16):
        raise _wrong(path, "is the zero address, which drivers and guests replace by a random one", text, "an address")
    if int(digits[:2], 16) & _GROUP:
        raise _wrong(path, "is a group address (multicast)", text, "an address of one device: an even first byte")
    return ":".join(digits[at : at + 2] for at in range(0, 12, 2))


def canonical_guid(path: str, text: str) -> str:
    """Eight bytes in lower case with colons; IntentError otherwise, and for zero, with which RDMA-CM does not work."""
    guid = text.strip().lower()
    if re.fullmatch(r"[0-9a-f]{2}(:[0-9a-f]{2}){7}", guid) is None:
        raise _wrong(path, "is not a GUID", text, "eight bytes such as 00:11:22:33:44:55:66:77")
    if not guid.strip("0:"):
        raise _wrong(path, "is the zero GUID, with which no connection can be made", text, "a GUID")
    return guid


def stable_mac(pf: str, number: int) -> str:
    """A locally administered address for a VF, made from its PF's permanent address and its number only.

    The same at every boot and on every run, so that a guest keeps its address; different for every VF of a fleet as
    far as 46 bits go. Whoever uses it still looks for collisions on the host.
    """
    drawn = bytearray(hashlib.sha256(f"{pf} vf {number}".encode("ascii")).digest()[:6])
    drawn[0] = drawn[0] & ~_GROUP & 0xFF | _LOCAL
    return drawn.hex(":")


def _wrong(path: str, fact: str, found: str, wanted: str) -> IntentError:
    return IntentError([Problem(path, fact, "Correct the inventory.", found=repr(found), wanted=wanted)])
