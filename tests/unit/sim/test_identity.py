from __future__ import annotations

import base64
from pathlib import Path

from sim.describe import Device, Filesystem, Host, Switch
from sim.identity import credentials
from sim.machine import credential_names

KEY = b"-----BEGIN KEY-----\n\n\n"


def texts_of(host: Host, salt: str = "/a/.rack") -> dict[str, str]:
    return credentials(host, Path(salt), KEY, "ssh-ed25519 AAAA rack\n")


def test_machine_id_differs_by_checkout_and_host_and_stays() -> None:
    ids = [texts_of(Host(name), salt)["system.machine_id"] for name in ("a", "b") for salt in ("/a", "/b")]
    assert len(set(ids)) == 4
    assert all(len(text) == 32 and int(text, 16) >= 0 for text in ids)
    assert texts_of(Host("a"), "/a")["system.machine_id"] == ids[0]


def test_host_key_arrives_byte_for_byte() -> None:
    lines = texts_of(Host("a"))["tmpfiles.extra"].splitlines()
    (line,) = (line for line in lines if "ssh_host_ed25519_key" in line)
    assert line.startswith("f+~ ")
    assert base64.b64decode(line.split()[-1]) == KEY


def test_ordinary_user_gets_the_login_and_root_does_not() -> None:
    host = Host("a", ssh_user="oper")
    assert "ssh.authorized_keys.root" not in credential_names(host)
    assert "u oper 1000" in texts_of(host)["sysusers.extra"]
    assert "/home/oper/.ssh/authorized_keys" in texts_of(host)["tmpfiles.extra"]


def test_every_named_credential_has_a_text() -> None:
    host = Host("a", ssh_user="oper", filesystems=(Filesystem("DATA", "/data"),), tmpfiles=("r! /x",))
    texts = texts_of(host)
    assert all(texts[name] for name in credential_names(host))
    assert texts["fstab.extra"] == "LABEL=DATA /data ext4 defaults 0 2\n"
    assert texts["tmpfiles.extra"].endswith("\nr! /x\n")


def test_wide_link_is_laid_over_sysfs_after_its_file_was_made() -> None:
    texts = texts_of(Host("a", switches=(Switch(0, 32, (Device("igb", "nic0", lanes=16),)),)))
    assert "f+ /run/rack-lanes/16 0444 root root - 16\\n\n" in texts["tmpfiles.extra"]
    source, target, kind, options, *_ = texts["fstab.extra"].split()
    assert (source, kind) == ("/run/rack-lanes/16", "none")
    assert target.endswith("/0000:22:00.0/0000:23:00.0/max_link_width")
    assert options.split(",")[:2] == ["bind", "nofail"]  # a boot never waits for it
    assert texts_of(Host("a"))["fstab.extra"] == ""
