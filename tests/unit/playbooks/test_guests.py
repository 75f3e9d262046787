"""guests.yml, drain.yml and guest_placement by real runs of Ansible: captured trees for hosts, a stand-in for libvirt's binding."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.libvirt_hosts import built, guests, shape
from tests.unit.playbooks.test_audit import inventory, listed, played
from tests.unit.playbooks.test_playbooks import play

ROOT = Path(__file__).resolve().parents[3]
PLAIN = ("-e", "ansible_become=false")


def tree(folder: Path, name: str = "tree") -> str:
    return str(built(folder / name).root)


# guest_placement ---------------------------------------------------------------------------------


def placed(folder: Path, variables: dict[str, Any], **options: Any) -> tuple[int, str]:
    root = tree(folder)
    before = listed(root)
    inventory(folder, here={"gpudirect_root": root, **variables})
    tasks = [
        {"vela.gpudirect.guest_placement": options, "register": "placement"},
        {"ansible.builtin.debug": {"msg": "{{ [placement.msg] + placement.text.splitlines() }}"}},
    ]
    book = folder / "play.json"
    book.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    result = played(folder, book)
    assert listed(root) == before
    return result


def test_placement_is_shown_with_its_distances(tmp_path: Path) -> None:
    # The variables of the host; templates in them are resolved.
    code, text = placed(
        tmp_path, {**guests(shape("{{ inventory_hostname }}-train")), "guest_reserved_cpus": "0-1", "guest_drain": True}
    )
    assert code == 0, text
    assert "guests: 1 placed" in text
    assert "here-train: new: 1 GPU, 1 VF, 4 vCPUs, 8 GiB in pages of 1 GiB" in text
    assert "GPU 0000:23:00.0 (node 0): PIX VF 0000:24:00.2" in text


@pytest.mark.parametrize("report_only", [False, True])
def test_a_guest_that_does_not_fit_stops_the_play_unless_it_is_to_report_only(
    tmp_path: Path, report_only: bool
) -> None:
    code, text = placed(tmp_path, guests(shape(), shape("big", gpus=5)), report_only=report_only)
    assert (code == 0) == report_only
    assert "guest_shapes[1]: the guest does not fit this host: big: needs 5 GPUs, 2 are free" in text
    assert ("guests: 1 placed, 1 refused" in text) == report_only


def test_mistakes_of_the_inventory_and_of_the_task_are_told_on_the_controller(tmp_path: Path) -> None:
    code, text = placed(tmp_path, guests({"name": "x y", "vcpus": 2, "memory_gib": 1, "image": "i"}))
    assert code != 0
    assert "guest_shapes[0].name: is no name for a guest" in text
    code, text = placed(tmp_path / "b", {}, shapes=[])
    assert code != 0
    assert "guest_placement.shapes: is no option" in text


def test_what_a_run_would_refuse_of_the_variables_is_refused_all_at_once(tmp_path: Path) -> None:
    wrong = {
        "guest_shap": [],
        "guest_resreved_cpus": "0",
        "kernel_hugepages": [{"size": "1G"}],
        "sriov_ports": [{"select": {"vendor": "15b3"}, "vfs": 2, "vf_defaults": {"qos": 1}}],
        "guest_networks": [
            {"name": "a", "mode": "bridge"},
            {"name": "b", "address": "10.0.0.1/24", "dhcp": {"start": "10.0.1.2", "end": "10.0.1.9"}},
        ],
    }
    variables = {**guests(shape("a"), gpudirect_mode="bare_metal"), **wrong}
    inventory(tmp_path, here={"gpudirect_root": tree(tmp_path), **variables})
    book = tmp_path / "play.json"
    tasks = [{"vela.gpudirect.guest_placement": {"shapes": []}}]
    book.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    code, text = played(tmp_path, book)
    assert code != 0
    for words in (
        "guest_placement.shapes: is no option",
        "guest_shap: is not a known name",
        "guest_resreved_cpus: is not a known name. Did you mean guest_reserved_cpus?",
        "kernel_hugepages[0]: names the pages not at all",
        "sriov_ports[0].vf_defaults.qos: there is no VLAN tag",
        "guest_networks[0].bridge: ",
        "guest_networks[1].",
        "guest_shapes[0]: is to be there, and a host of gpudirect_mode: bare_metal runs no guests",
    ):
        assert words in text, text


# guests.yml --------------------------------------------------------------------------------------


def test_a_host_that_is_not_as_wanted_is_stopped_and_the_others_go_on(tmp_path: Path) -> None:
    # A captured tree has no libvirt to ask, so nothing is to be done on the one that is ready.
    wanted = {"host_boot_enabled": False}
    inventory(
        tmp_path,
        **{
            "t-ready": {"gpudirect_root": tree(tmp_path, "a"), **wanted},
            "t-late": {"gpudirect_root": tree(tmp_path, "b"), **wanted, "pci_path_max_read_request": 512},
        },
    )
    code, text = played(tmp_path, ROOT / "playbooks/guests.yml", *PLAIN)
    assert code != 0
    assert "pci_path: is not as wanted, and guests need it" in text
    assert "Run site.yml for this host first" in text
    recap = {line.split()[0]: line for line in text.partition("PLAY RECAP")[2].splitlines() if line.startswith("t-")}
    assert "failed=0" in recap["t-ready"]
    assert "failed=0" not in recap["t-late"]


def test_the_playbooks_say_what_they_may_change_and_site_yml_does_not() -> None:
    assert play("guests.yml")["vars"] == {"gpudirect_only": "guests"}
    assert play("drain.yml")["vars"] == {"gpudirect_only": "drain", "guest_drain": True}
    assert "vars" not in play("site.yml")
    imported = [
        play(name)["tasks"][0]["ansible.builtin.import_tasks"] for name in ("site.yml", "guests.yml", "drain.yml")
    ]
    assert imported == ["tasks/host.yml", "tasks/host.yml", "tasks/look.yml"]


def test_a_drain_has_boots_start_no_guest_before_it_asks_any_to_end() -> None:
    roles = [
        task["ansible.builtin.import_role"]["name"]
        for task in play("drain.yml")["tasks"]
        if "ansible.builtin.import_role" in task
    ]
    assert roles == ["vela.gpudirect.host_boot", "vela.gpudirect.guest"]


# drain.yml ---------------------------------------------------------------------------------------

UNSHARE = ("unshare", "--mount", "sh", "-euc")
PRIVATE = """
mount -t tmpfs tmpfs /run; mkdir -p /run/upper /run/work /run/tmp
mount -t overlay overlay -o lowerdir=/etc,upperdir=/run/upper,workdir=/run/work /etc
mount -t tmpfs tmpfs /var/lib
mkdir -p /etc/gpudirect; echo '{"version": 1, "options": {"kernel_hugepages": [{"size": "2M", "nodes": {"0": 0}}]}}' > /etc/gpudirect/intent.json
"""
STORY = r"""
drain() {
    echo "[$1]"; shift; code=0
    ansible-playbook --inventory "$inventory" playbooks/drain.yml --extra-vars ansible_become=false "$@" 2>&1 || code=$?
    echo "code=$code live=$(cd "$LIBVIRT_STUB"; echo *.live) $(grep -c guest_drain /etc/gpudirect/intent.json || true)"
}
drain refused
drain check --check --extra-vars gpudirect_allow=guest
touch "$LIBVIRT_STUB/b.stays"
drain stuck --extra-vars gpudirect_allow=guest --extra-vars guest_stop_timeout_s=1
rm "$LIBVIRT_STUB/b.stays"
drain done --extra-vars gpudirect_allow=guest
drain again
echo '[intent]'; cat /etc/gpudirect/intent.json
"""
OURS = """<domain><name>{name}</name><metadata><gpudirect:guest xmlns:gpudirect='urn:vela.gpudirect:guest:1' digest='sha256:0'/></metadata>
<devices/></domain>"""
STRANGER = """<domain><name>db</name><devices><hostdev mode='subsystem' type='pci'>
<source><address domain='0x0000' bus='0x24' slot='0x00' function='0x1'/></source></hostdev></devices></domain>"""


def possible() -> bool:
    """Whether this machine lets us have a mount namespace."""
    if not shutil.which("unshare") or not Path("/usr/bin/python3").exists():
        return False
    try_it = "mount -t tmpfs tmpfs /run; mkdir /run/u /run/w; mount -t overlay x -o lowerdir=/etc,upperdir=/run/u,workdir=/run/w /etc"
    return subprocess.run([*UNSHARE, try_it], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not possible(), reason="this machine allows no mount namespace")
def test_a_host_is_drained_with_consent_a_stuck_guest_is_named_and_a_second_run_changes_nothing(tmp_path: Path) -> None:
    stub = tmp_path / "stub"
    stub.mkdir()
    shutil.copy(ROOT / "tests/fixtures/libvirt_stub.py", stub / "libvirt.py")
    domains = tmp_path / "domains"
    domains.mkdir()
    for name, text in (("a", OURS.format(name="a")), ("b", OURS.format(name="b")), ("db", STRANGER)):
        (domains / f"{name}.xml").write_text(text)
        (domains / f"{name}.live").touch()
    host = {"ansible_python_interpreter": "/usr/bin/python3", "ansible_remote_tmp": "/run/tmp"}
    inventory(tmp_path, this={**host, "sriov_ports": [{"select": {"vendor": "ffff"}, "vfs": 9}]})
    done = subprocess.run(
        [*UNSHARE, PRIVATE + STORY, "sh"],
        cwd=ROOT,
        env={
            "PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_LOCAL_TEMP": str(tmp_path / "local"),
            "HOME": str(tmp_path), "LC_ALL": "C.UTF-8", "COLUMNS": "1000",
            "PYTHONPATH": str(stub), "LIBVIRT_STUB": str(domains), "inventory": str(tmp_path / "inventory.json"),
        },
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    said = done.stdout + done.stderr
    parts = {
        name: said.partition(f"[{name}]\n")[2].partition(f"[{after}]\n")[0]
        for name, after in zip(
            ("refused", "check", "stuck", "done", "again", "intent"), ("check", "stuck", "done", "again", "intent", "end"),
            strict=True,
        )
    }  # fmt: skip
    assert "libvirt_guest[a].state: disrupts the guest: the host is drained" in parts["refused"], said
    assert "code=2 live=a.live b.live db.live 0" in parts["refused"]
    assert "3 changes to make (this run only drains)" in parts["check"]
    assert "code=0 live=a.live b.live db.live 0" in parts["check"]
    assert "changed=2 " in parts["check"]
    assert "libvirt_guest[b].state: the change was refused" in parts["stuck"]
    assert "code=2 live=b.live db.live 1" in parts["stuck"]
    assert "the guest db, which was not made by vela.gpudirect, runs with 0000:24:00.1 and is left alone" in " ".join(
        parts["done"].split()
    )
    assert "libvirt_guest[b]: does not run" in parts["done"]
    assert "code=0 live=db.live 1" in parts["done"]
    assert "changed=1 " in parts["done"]
    assert "as wanted (this run only drains)" in parts["again"]
    assert "code=0 live=db.live 1" in parts["again"]
    assert "changed=0 " in parts["again"]
    kept = {"kernel_hugepages": [{"size": "2M", "nodes": {"0": 0}}]}
    assert json.loads(parts["intent"])["options"] == {**kept, "guest_drain": True}
