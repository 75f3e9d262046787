from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sim.image import Image, prune, recipe_key
from sim.places import Rack


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    folder = tmp_path / "sim" / "recipe"
    (folder / "root/etc").mkdir(parents=True)
    (folder / "packages.txt").write_text("systemd\n")
    (folder / "root/etc/fstab").write_text("/\n")
    return folder


@pytest.fixture
def builder(tmp_path: Path) -> Path:
    path = tmp_path / "build.py"
    path.write_text("steps = 1\n")
    return path


def test_key_is_the_same_for_the_same_recipe_elsewhere(recipe: Path, builder: Path, tmp_path: Path) -> None:
    before = recipe_key(recipe, [builder])
    moved = recipe.rename(tmp_path / "moved")
    assert recipe_key(moved, [builder]) == before


@pytest.mark.parametrize("change", ["content", "name", "new file", "executable", "builder"])
def test_key_changes_with_everything_that_goes_in(recipe: Path, builder: Path, change: str) -> None:
    before = recipe_key(recipe, [builder])
    if change == "content":
        (recipe / "packages.txt").write_text("systemd\nless\n")
    elif change == "name":
        (recipe / "root/etc/fstab").rename(recipe / "root/etc/fstab2")
    elif change == "new file":
        (recipe / "root/etc/empty").touch()
    elif change == "executable":
        (recipe / "root/etc/fstab").chmod(0o755)
    else:
        builder.write_text("steps = 2\n")
    assert recipe_key(recipe, [builder]) != before


def test_key_ignores_times_and_umask(recipe: Path, builder: Path) -> None:
    before = recipe_key(recipe, [builder])
    (recipe / "packages.txt").chmod(0o600)
    (recipe / "packages.txt").touch()
    assert recipe_key(recipe, [builder]) == before


def test_two_builds_of_one_recipe_differ_in_identity(tmp_path: Path) -> None:
    image = Image(tmp_path / "image-abc")
    image.folder.mkdir()
    (image.folder / "build-id").write_text("one\n")
    first = image.identity
    (image.folder / "build-id").write_text("two\n")
    assert image.key == "abc"
    assert image.identity != first


def test_prune_spares_the_current_image_and_those_in_use(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cache = tmp_path / "cache/vela.gpudirect"
    names = (f"image-{recipe_key(recipe)}", "image-used", "image-old")
    for name in names:
        (cache / name).mkdir(parents=True)
    Image(cache / "image-used").hold()
    (cache / "removing-image-older").mkdir()
    removed = prune(Rack(tmp_path), lambda _what: None)
    assert removed == [cache / "image-old"]
    assert sorted(path.name for path in cache.iterdir() if path.is_dir()) == sorted(names[:2])


def test_recipe_survives_being_copied(tmp_path: Path) -> None:
    # The integration tests run racks from copies of sim/, made without symbolic links.
    recipe = Path(__file__).resolve().parents[3] / "sim" / "recipe"
    copy = Path(shutil.copytree(recipe, tmp_path / "recipe"))
    assert recipe_key(copy) == recipe_key(recipe)
    assert not [path for path in recipe.rglob("*") if path.is_symlink()]
