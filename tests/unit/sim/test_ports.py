from __future__ import annotations

import socket
from pathlib import Path

import pytest

from sim.errors import RackError
from sim.ports import FIRST, LAST, choose_port, is_free, kept_port, read_port


def everything_free(_port: int) -> bool:
    return True


def test_same_seed_asks_for_the_same_port() -> None:
    assert choose_port("/a/node-a", free=everything_free) == choose_port("/a/node-a", free=everything_free)


def test_checkouts_side_by_side_start_to_look_elsewhere() -> None:
    assert choose_port("/a/node-a", free=everything_free) != choose_port("/b/node-a", free=everything_free)


def test_busy_and_taken_ports_are_passed_over() -> None:
    first = choose_port("seed", free=everything_free)
    assert choose_port("seed", taken={first}, free=lambda port: port != first + 1) == first + 2


def test_search_goes_around_the_end_of_the_range() -> None:
    assert choose_port("seed", free=lambda port: port == FIRST) == FIRST
    assert choose_port("seed", free=lambda port: port == LAST) == LAST


def test_no_free_port_is_an_error() -> None:
    with pytest.raises(RackError, match="none is free"):
        choose_port("seed", free=lambda _port: False)


def test_port_is_kept_while_it_is_free(tmp_path: Path) -> None:
    file = tmp_path / "port"
    first = kept_port(file, "seed", (), everything_free)
    assert kept_port(file, "another seed", (), everything_free) == first == read_port(file)


@pytest.mark.parametrize("taken", ["busy", "of another host"])
def test_port_that_somebody_else_has_is_replaced_and_written(tmp_path: Path, taken: str) -> None:
    file = tmp_path / "port"
    first = kept_port(file, "seed", (), everything_free)
    others = [first] if taken == "of another host" else []
    second = kept_port(file, "seed", others, lambda port: taken != "busy" or port != first)
    assert second != first
    assert read_port(file) == second


@pytest.mark.parametrize("text", ["", "ssh", "80", "99999"])
def test_damaged_port_file_is_replaced(tmp_path: Path, text: str) -> None:
    file = tmp_path / "port"
    file.write_text(text)
    assert FIRST <= kept_port(file, "seed", (), everything_free) <= LAST


def test_listening_port_is_not_free() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        assert not is_free(listener.getsockname()[1])


def test_host_that_was_never_up_has_no_port(tmp_path: Path) -> None:
    assert read_port(tmp_path / "port") is None
