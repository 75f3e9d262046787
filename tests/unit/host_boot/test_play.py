"""The role through a real Ansible, as root, on this machine's own kernel, in a mount namespace that ends with the test.

Everything that is written lies in folders which only this namespace sees; systemctl is a stand-in that links units.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
UNSHARE = ("unshare", "--mount", "sh", "-euc")
# A service manager that knows of files and links only, and notes how it was called.
SYSTEMCTL = r"""#!/bin/sh
units=/etc/systemd/system
echo "$*" >> /run/calls
verb=$1; shift
case $verb in
show) shift
    for unit in "$@"; do
        [ -e $units/$unit ] && load=loaded || load=not-found
        [ -e /run/active-$unit ] && active=active sub=waiting || active=inactive sub=dead
        printf 'Id=%s\nLoadState=%s\nActiveState=%s\nSubState=%s\nNeedDaemonReload=no\n\n' $unit $load $active $sub
    done ;;
enable)
    for unit in "$@"; do
        folder=$units/$(sed -n 's/^WantedBy=//p' $units/$unit).wants
        mkdir -p $folder; ln -sf $units/$unit $folder/$unit
    done ;;
disable) for unit in "$@"; do rm -f $units/*.wants/$unit; rmdir --ignore-fail-on-non-empty $units/*.wants; done ;;
restart) touch /run/active-$1 ;;
stop) for unit in "$@"; do rm -f /run/active-$unit; done ;;
esac
"""
PRIVATE = """
mount -t tmpfs tmpfs /run; mkdir /run/upper /run/work /run/tmp
mount -t overlay overlay -o lowerdir=/etc,upperdir=/run/upper,workdir=/run/work /etc
for folder in /etc/systemd/system /usr/local/lib /var/lib; do mount -t tmpfs tmpfs $folder; done
mount --bind "$1" /usr/bin/systemctl
"""
STORY = r"""
play() {
    inventory=$1; shift
    ansible-playbook --inventory "$inventory" "$inventory/../play.yml" "$@" > "$inventory/../out" 2>&1 ||
        { cat "$inventory/../out"; exit 1; }
}
traces() { find /etc/gpudirect /usr/local/lib /etc/systemd/system /var/lib -mindepth 1 2>/dev/null | sort; }
told() { echo "[$1]"; grep -o 'changed=[0-9]* ' "$2/../out"; [ ! -e /run/calls ] || grep -v ^show /run/calls || true; rm -f /run/calls; }
engine=/usr/local/lib/gpudirect/gpudirect.pyz
play "$2" --check --extra-vars "@$3"; told check "$2"; traces
play "$2" --extra-vars "@$3"; told install "$2"; traces
stat -c '%a %n' /etc/gpudirect/intent.json $engine; sha256sum $engine | cut -d ' ' -f 1
play "$2" --extra-vars "@$3"; told again "$2"
echo '# of another release' >> $engine
play "$2" --extra-vars "@$3" --extra-vars "@$4"; told foreseen "$2"; sha256sum $engine | cut -d ' ' -f 1
/usr/bin/python3 -I $engine boot --allow link
/usr/bin/python3 -I $engine drift --metrics /run/x.prom; grep as_wanted{ /run/x.prom
play "$2"; told undo "$2"; traces
echo '[left]'; ls /run/tmp
"""

READY = (
    "This host is ready for its guests: hugepages as wanted.",
    "This host is as its intent says: hugepages as wanted.",
    'gpudirect_as_wanted{resource="hugepages"} 1',
)


def possible() -> bool:
    """Whether this machine lets us have such a namespace."""
    if shutil.which("systemctl") != "/usr/bin/systemctl" or not Path("/usr/bin/python3").exists():
        return False
    if not shutil.which("unshare"):
        return False
    try_it = "mount -t tmpfs tmpfs /run; mkdir /run/u /run/w; mount -t overlay x -o lowerdir=/etc,upperdir=/run/u,workdir=/run/w /etc"
    return subprocess.run([*UNSHARE, try_it], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not possible(), reason="this machine has no systemctl, or allows no mount namespace")
def test_the_role_installs_with_the_engine_runs_quietly_again_and_leaves_nothing(tmp_path: Path) -> None:
    stub = tmp_path / "systemctl"
    stub.write_text(SYSTEMCTL, encoding="utf-8")
    stub.chmod(0o755)
    host = {
        "ansible_connection": "local",
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_remote_tmp": "/run/tmp",
        "kernel_hugepages_keep_mib": 512,
    }
    inventory = tmp_path / "inventory"
    inventory.mkdir()
    (inventory / "hosts.json").write_text(json.dumps({"all": {"hosts": {"this": host}}}), encoding="utf-8")
    variables = tmp_path / "variables.json"
    variables.write_text(json.dumps({"kernel_hugepages": [{"size": "2M", "nodes": {"0": 0}}]}), encoding="utf-8")
    # What a round's look has told before.
    foreseen = tmp_path / "foreseen.json"
    look = {"todo": ["host_boot"], "plan": [{"path": "host_boot.engine", "after": "sha256:0"}]}
    foreseen.write_text(json.dumps({"gpudirect_plan": look}), encoding="utf-8")
    play = [{"hosts": "all", "gather_facts": False, "tasks": [{"import_role": {"name": "vela.gpudirect.host_boot"}}]}]
    (tmp_path / "play.yml").write_text(json.dumps(play), encoding="utf-8")
    done = subprocess.run(
        [*UNSHARE, PRIVATE + STORY, "sh", str(stub), str(inventory), str(variables), str(foreseen)],
        cwd=ROOT,
        env={
            "PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_LOCAL_TEMP": str(tmp_path / "local"),
            "HOME": str(tmp_path),
            "LC_ALL": "C.UTF-8",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    parts = dict(part.split("]\n", 1) for part in done.stdout.split("[") if part)
    assert parts["check"].split() == ["changed=1"]
    installed = parts["install"].splitlines()
    assert installed[:4] == [
        "changed=1 ",
        "daemon-reload",
        "enable gpudirect-boot.service gpudirect-drift.timer",
        "restart gpudirect-drift.timer",
    ]
    assert {"/etc/gpudirect/intent.json", "/var/lib/gpudirect/owned.json"} <= set(installed)
    assert installed[-3:-1] == ["600 /etc/gpudirect/intent.json", "644 /usr/local/lib/gpudirect/gpudirect.pyz"]
    assert len(installed[-1]) == 64
    assert parts["again"].splitlines() == ["changed=0 "]
    assert parts["foreseen"].splitlines() == ["changed=1 ", installed[-1], *READY]
    assert parts["undo"].splitlines()[1:] == [
        "stop gpudirect-boot.service gpudirect-drift.timer",
        "disable gpudirect-boot.service gpudirect-drift.timer",
        "daemon-reload",
        "reset-failed gpudirect-boot.service gpudirect-ready.target gpudirect-drift.service gpudirect-drift.timer "
        "gpudirect-guests.service",
    ]
    assert parts["left"] == ""  # the engine's copy of the run went with its task
