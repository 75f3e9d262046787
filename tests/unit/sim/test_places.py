from __future__ import annotations

import os
from pathlib import Path

import pytest

from sim.describe import read_hosts
from sim.errors import RackError
from sim.machine import Placement, socket_paths
from sim.places import SOCKET_PATH_LIMIT, make_private, socket_folder

ROOT = Path(__file__).resolve().parents[3]
# ssh binds its control socket under a temporary name that is longer than the final one.
SSH_SUFFIX = 17


@pytest.mark.parametrize("length", [10, 40, 60, 80, 200, 4000])
def test_every_socket_path_fits_whatever_the_checkout(length: int) -> None:
    checkout = Path("/" + "c" * (length - 1))
    folder = socket_folder(checkout, uid=4294967294)
    place = Placement(Path("/x"), folder, Path("/x"), 1, "tcg")
    longest = "h" * 30
    paths = [*(path for host in read_hosts(ROOT / "sim" / "hosts").values() for path in socket_paths(host, place))]
    paths += [folder / f"{longest}.{longest}", folder / f"ssh-{longest}{'x' * SSH_SUFFIX}"]
    assert max(len(os.fsencode(path)) for path in paths) <= SOCKET_PATH_LIMIT


def test_short_checkout_keeps_its_sockets_inside() -> None:
    assert socket_folder(Path("/srv/site"), uid=0) == Path("/srv/site/.rack/run")


def test_deep_checkouts_do_not_share_their_sockets() -> None:
    deep = Path("/" + "c" * 100)
    folders = {socket_folder(deep / name, uid) for name in ("a", "b") for uid in (0, 1000)}
    assert len(folders) == 4
    assert socket_folder(deep / "a", 0) == socket_folder(deep / "a", 0)


def test_length_counts_bytes_not_letters() -> None:
    assert socket_folder(Path("/" + "ä" * 20), uid=0).parent == Path("/tmp")


def test_private_folder_is_closed_to_others(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o777)
    make_private(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_link_in_the_place_of_a_private_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(RackError, match="not a folder of this user"):
        make_private(tmp_path / "link")
