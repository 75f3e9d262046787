"""Files of the network through the real door: digests, ranges, servers that know none, and what a cut leaves."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core import download
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import CommandFailed, HostRefused

TEXT = bytes(range(256)) * 20000
SHA256 = hashlib.sha256(TEXT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves one text; ``breaks_at`` is where it hangs up, once."""

    ranges = True
    breaks_at = 0
    length = len(TEXT)

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str] = []


class Handler(BaseHTTPRequestHandler):
    """Answers as RFC 9110 says."""

    server: Server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""

    def do_GET(self) -> None:
        """Send the text, or the rest of it."""
        asked = self.headers.get("Range", "")
        self.server.asked.append(asked)
        match = re.fullmatch(r"bytes=(\d+)-", asked)
        start = int(match[1]) if match and self.server.ranges else 0
        if self.path != "/image" or start > len(TEXT):
            self.send_error(416 if start > len(TEXT) else 404)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(self.server.length - start))
        self.end_headers()
        end, self.server.breaks_at = self.server.breaks_at or len(TEXT), 0
        self.wfile.write(TEXT[start:end])


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as one:
        threading.Thread(target=one.serve_forever, daemon=True).start()
        yield one
        one.shutdown()


def url(server: Server, name: str = "image") -> str:
    return f"http://127.0.0.1:{server.server_port}/{name}"


def test_a_file_comes_with_its_digest(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "a.img"
    for _run in range(2):
        download.fetch(url(server), str(target), SHA256)
    assert target.read_bytes() == TEXT
    assert target.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["a.img"]
    assert server.asked == [""]


@pytest.mark.parametrize("ranges", [True, False])
def test_what_was_cut_off_is_gone_on_with(server: Server, tmp_path: Path, ranges: bool) -> None:
    server.ranges, server.breaks_at = ranges, 3_000_000
    with pytest.raises((CommandFailed, HostRefused)):
        download.fetch(url(server), str(tmp_path / "a.img"), SHA256)
    assert not (tmp_path / "a.img").exists()
    download.fetch(url(server), str(tmp_path / "a.img"), SHA256)
    assert (tmp_path / "a.img").read_bytes() == TEXT
    assert server.asked == ["", "bytes=3000000-"]


def test_a_part_that_is_longer_than_the_file_is_begun_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / ".gpudirect.a.img.part").write_bytes(TEXT + b"more")
    download.fetch(url(server), str(tmp_path / "a.img"), SHA256)
    assert (tmp_path / "a.img").read_bytes() == TEXT


def test_a_part_that_is_whole_needs_no_server(tmp_path: Path) -> None:
    (tmp_path / ".gpudirect.a.img.part").write_bytes(TEXT)
    download.fetch("http://127.0.0.1:1/image", str(tmp_path / "a.img"), SHA256)
    assert (tmp_path / "a.img").read_bytes() == TEXT


def test_another_digest_leaves_nothing(server: Server, tmp_path: Path) -> None:
    with pytest.raises(HostRefused, match=f"is another file than the wanted one .found sha256:{SHA256}"):
        download.fetch(url(server), str(tmp_path / "a.img"), "0" * 64)
    assert not list(tmp_path.iterdir())


def test_servers_that_do_not_answer(server: Server, tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="the server answers 404"):
        download.fetch(url(server, "other"), str(tmp_path / "a.img"), SHA256)
    with pytest.raises(CommandFailed, match="cannot be fetched: .*refused"):
        download.fetch("http://127.0.0.1:1/image", str(tmp_path / "a.img"), SHA256)


def test_no_room_is_said_before_the_first_byte(server: Server, tmp_path: Path) -> None:
    server.length = 1 << 60
    with pytest.raises(HostRefused, match="has no room for http"):
        download.fetch(url(server), str(tmp_path / "a.img"), SHA256)


def test_a_link_in_the_place_of_the_part_is_not_followed(server: Server, tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"")
    (tmp_path / ".gpudirect.a.img.part").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic links"):
        download.fetch(url(server), str(tmp_path / "a.img"), SHA256)
    assert (tmp_path / "victim").read_bytes() == b""
