from __future__ import annotations

from pathlib import Path

from ansible_collections.vela.gpudirect.plugins.module_utils.hypervisor import system

from sim.lists import read_list

ROOT = Path(__file__).resolve().parents[3]


def test_lists_hold_one_word_a_line_and_comments(tmp_path: Path) -> None:
    path = tmp_path / "packages.txt"
    path.write_text("# why\n\nless  # and why this one\nqemu-utils\n")
    assert read_list(path) == ["less", "qemu-utils"]


def test_shipped_package_lists_are_sane() -> None:
    for path in (ROOT / "sim/packages.txt", ROOT / "sim/recipe/packages.txt"):
        names = read_list(path)
        assert len(names) == len(set(names))
        assert all(name == name.lower() and " " not in name for name in names)


def test_unit_list_is_verbs_and_units() -> None:
    lines = [line.split() for line in read_list(ROOT / "sim/recipe/units.txt")]
    assert all(len(words) == 2 and words[0] in ("mask", "disable", "enable") for words in lines)


def test_hosts_have_what_the_role_kvm_wants() -> None:
    # Else the role installs it under emulation, which takes minutes.
    assert set(system.PACKAGES["debian"]) <= set(read_list(ROOT / "sim/recipe/packages.txt"))
