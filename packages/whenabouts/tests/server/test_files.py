"""The file of a video over HTTP: whole, in ranges, and refused if it has changed since it was indexed."""

from __future__ import annotations

import errno
import os
import time
from hashlib import blake2b
from pathlib import Path
from unittest.mock import Mock

import pytest
from tests.server.conftest import Client, Live, Open, Serve, error_of, id_of, wait_until

from whenabouts.intake import opening
from whenabouts.server.errors import ServerError
from whenabouts.server.files import byte_range, content_type, open_regular
from whenabouts.server.settings import Limits


@pytest.mark.parametrize(
    ("header", "part"),
    [
        ("bytes=0-0", (0, 0)),
        ("bytes=0-", (0, 99)),
        ("bytes=10-19", (10, 19)),
        ("bytes=90-1000", (90, 99)),
        ("bytes=99-99", (99, 99)),
        ("bytes=-1", (99, 99)),
        ("bytes=-1000", (0, 99)),
        (" bytes=5-6 ", (5, 6)),
        # Headers that are not a single range of bytes are ignored.
        ("bytes=5-4", None),
        ("bytes=-", None),
        ("bytes=0-1,5-6", None),
        ("bytes=a-b", None),
        ("bytes=--5", None),
        ("bytes=0x1-0x5", None),
        ("items=0-5", None),
        ("bytes 0-5", None),
        ("", None),
        ("bytes=" + "9" * 5000 + "-", None),
        ("bytes=²-", None),
    ],
)
def test_a_range_header_means_bytes_or_nothing(header: str, part: tuple[int, int] | None) -> None:
    assert byte_range(header, 100) == part


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=100-200", "bytes=-0", "bytes=999999999999999999-"])
def test_a_range_outside_the_file_is_told_with_the_files_size(header: str) -> None:
    with pytest.raises(ServerError) as refused:
        byte_range(header, 100)
    assert refused.value.status == 416
    assert refused.value.headers["Content-Range"] == "bytes */100"


def test_no_range_of_an_empty_file_can_be_had() -> None:
    for header in ("bytes=0-", "bytes=-5"):
        with pytest.raises(ServerError):
            byte_range(header, 0)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.MP4", "video/mp4"),
        ("a.webm", "video/webm"),
        ("a.mp3", "audio/mpeg"),
        ("a.html", "application/octet-stream"),
        ("a.svg", "application/octet-stream"),
        ("mp4", "video/mp4"),
        ("noending", "application/octet-stream"),
    ],
)
def test_types_are_of_media_only(name: str, kind: str) -> None:
    assert content_type(name) == kind


def test_whole_and_parts_are_the_files_bytes(client: Client, friday: str, samples: Path) -> None:
    content = (samples / "friday.mp4").read_bytes()
    url = f"/api/videos/{friday}/file"
    whole = client.get(url)
    assert (whole.status_code, whole.content) == (200, content)
    assert whole.headers["content-type"] == "video/mp4"
    assert whole.headers["accept-ranges"] == "bytes"
    size = len(content)
    for part_range, first, last in (
        ("0-99", 0, 99),
        ("0-9223372036854775807", 0, size - 1),
        (f"{size - 7}-", size - 7, size - 1),
        ("-5", size - 5, size - 1),
    ):
        part = client.get(url, headers={"Range": f"bytes={part_range}"})
        assert (part.status_code, part.content) == (206, content[first : last + 1])
        assert part.headers["content-range"] == f"bytes {first}-{last}/{size}"
        assert part.headers["content-length"] == str(last - first + 1)
    several = client.get(url, headers={"Range": "bytes=0-1,5-6"})
    assert (several.status_code, several.content) == (200, content)
    outside = client.get(url, headers={"Range": f"bytes={size}-"})
    assert error_of(outside) == (416, "range_not_satisfiable", "Range")
    assert outside.headers["content-range"] == f"bytes */{size}"


def test_head_says_what_get_would_without_a_body(client: Client, friday: str) -> None:
    url = f"/api/videos/{friday}/file"
    head, whole = client("HEAD", url, headers={"Range": "bytes=0-3"}), client.get(url)
    assert (head.status_code, head.content) == (200, b"")
    for name in ("content-length", "etag", "content-type", "accept-ranges", "last-modified"):
        assert head.headers[name] == whole.headers[name]


def test_a_part_is_sent_only_of_the_file_that_the_client_knows(client: Client, friday: str) -> None:
    url = f"/api/videos/{friday}/file"
    seen = client("HEAD", url).headers

    def status(condition: str) -> int:
        return client.get(url, headers={"Range": "bytes=0-3", "If-Range": condition}).status_code

    assert status(seen["etag"]) == 206
    assert status(seen["last-modified"]) == 206
    assert status('"another"') == 200
    assert status(f"W/{seen['etag']}") == 200
    assert status("Thu, 01 Jan 1970 00:00:00 GMT") == 200
    assert client.get(url, headers={"If-None-Match": seen["etag"]}).status_code == 304
    assert client.get(url, headers={"If-None-Match": f'"x", W/{seen["etag"]}'}).status_code == 304
    assert client.get(url, headers={"If-None-Match": '"x"'}).status_code == 200


def test_a_video_that_cannot_be_opened_now_is_not_gone(
    client: Client, friday: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        opening, "open_regular", Mock(side_effect=OSError(errno.EMFILE, "Too many open files"))
    )
    answer = client.get(f"/api/videos/{friday}/file")
    assert (*error_of(answer), answer.headers["retry-after"]) == (503, "busy", None, "5")


def test_a_video_that_was_deleted_is_gone_and_its_record_says_so(
    opened: Open, copied: tuple[Path, Path]
) -> None:
    client = opened(copied[0])
    video = id_of(client, "friday.mp4")
    copied[1].unlink()
    for what in ("file", "thumbnail?at=1", "clip?start=1&end=2"):
        answer = client.get(f"/api/videos/{video}/{what}")
        assert error_of(answer) == (410, "video_gone", None)
        assert answer.json()["error"]["message"].startswith("the file of friday.mp4 is gone")
    details = client.json(f"/api/videos/{video}")
    assert details["available"] is False
    assert details["frame_rate"] is None
    assert client.json("/api/search", query="crown jewels")["data"][0]["video_id"] == video


def test_a_video_that_was_replaced_is_not_served_nor_what_was_made_of_it(
    opened: Open, copied: tuple[Path, Path]
) -> None:
    client = opened(copied[0])
    video = id_of(client, "friday.mp4")
    assert client.get(f"/api/videos/{video}/thumbnail?at=1").status_code == 200
    copied[1].write_bytes(b"something secret")
    for what in ("file", "thumbnail?at=1", "clip?start=1&end=2"):
        assert error_of(client.get(f"/api/videos/{video}/{what}")) == (409, "video_changed", None)


def test_a_video_that_became_a_link_a_folder_or_a_pipe_is_not_served(
    opened: Open, copied: tuple[Path, Path]
) -> None:
    client = opened(copied[0])
    url = f"/api/videos/{id_of(client, 'friday.mp4')}/file"
    path = copied[1]
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert error_of(client.get(url)) == (409, "video_changed", None)
    path.unlink()
    path.mkdir()
    assert error_of(client.get(url)) == (410, "video_gone", None)
    path.rmdir()
    os.mkfifo(path)
    assert error_of(client.get(url)) == (410, "video_gone", None)


def test_ids_of_another_corpus_and_of_transcripts_have_no_file(
    client: Client, opened: Open, copied: tuple[Path, Path], tmp_path: Path
) -> None:
    other = opened(copied[0], cache=tmp_path / "other")
    nasa = id_of(client, "nasa_13013.mp4")
    for what in ("", "/file", "/thumbnail", "/clip?start=0&end=1", "/cues", "/curves?query=a"):
        assert error_of(other.get(f"/api/videos/{nasa}{what}"))[:2] == (404, "no_such_video")
    videos = client.json("/api/videos")["data"]
    transcript = next(video["video_id"] for video in videos if video["kind"] == "transcript")
    assert error_of(client.get(f"/api/videos/{transcript}/file"))[:2] == (404, "no_recording")


def begun_download(live: Live, video: str) -> bytes:
    """Request a large file, read a little of it, and disconnect."""
    with live.connect() as connection:
        connection.sendall(f"GET /api/videos/{video}/file HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return connection.recv(1 << 16)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_client_that_goes_away_leaves_nothing_open(live: Serve, big_file: tuple[Path, str]) -> None:
    running = live(big_file[0])
    begun_download(running, big_file[1])
    downloads = running.application.service.downloads
    assert wait_until(lambda: downloads.open == 0)
    before = open_files()
    for _ in range(5):
        assert begun_download(running, big_file[1]).startswith(b"HTTP/1.1 200")
    assert wait_until(lambda: downloads.open == 0)
    assert wait_until(lambda: open_files() <= before)


def test_a_client_that_takes_nothing_is_let_go(live: Serve, big_file: tuple[Path, str]) -> None:
    running = live(big_file[0], limits=Limits(stall_seconds=0.5))
    downloads = running.application.service.downloads
    with running.connect() as connection:
        connection.sendall(f"GET /api/videos/{big_file[1]}/file HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert wait_until(lambda: downloads.open == 1)
        assert wait_until(lambda: downloads.open == 0)
        with pytest.raises((ConnectionError, TimeoutError)):
            while connection.recv(1 << 20):
                pass
            raise ConnectionError  # closed before all was sent, without a reset


def test_a_client_that_is_slow_but_takes_some_gets_all(live: Serve, big_file: tuple[Path, str]) -> None:
    running = live(big_file[0], limits=Limits(stall_seconds=2.0))
    digest, received = blake2b(), 0
    with running.connect() as connection:
        connection.sendall(
            f"GET /api/videos/{big_file[1]}/file HTTP/1.1\r\nHost: localhost\r\n"
            "Range: bytes=0-8388607\r\nConnection: close\r\n\r\n".encode()
        )
        while block := connection.recv(1 << 18):
            received += len(block)
            digest.update(block)
            time.sleep(0.01)
    assert received > 8 << 20


def test_more_downloads_than_are_allowed_are_told_to_come_again(
    live: Serve, big_file: tuple[Path, str]
) -> None:
    running = live(big_file[0], limits=Limits(files=2))
    downloads = running.application.service.downloads
    request = f"GET /api/videos/{big_file[1]}/file HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with running.connect() as first, running.connect() as second:
        first.sendall(request)
        second.sendall(request)
        assert wait_until(lambda: downloads.open == 2)
        refused = running.get(f"/api/videos/{big_file[1]}/file")
        assert refused.startswith(b"HTTP/1.1 429")
        assert b"retry-after: 2" in refused
    assert wait_until(lambda: downloads.open == 0)
    assert running.get(f"/api/videos/{big_file[1]}/file", "Range: bytes=0-3").startswith(b"HTTP/1.1 206")


def test_a_file_that_shrinks_while_it_is_sent_ends_the_connection(
    live: Serve, big_file: tuple[Path, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    running = live(big_file[0])
    with running.connect() as connection:
        connection.sendall(f"GET /api/videos/{big_file[1]}/file HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        received = len(connection.recv(1 << 16))
        os.truncate(tmp_path / "big.mp4", 1 << 20)
        while block := connection.recv(1 << 20):
            received += len(block)
    assert received < 64 << 20
    assert wait_until(lambda: running.application.service.downloads.open == 0)


def test_a_file_that_nobody_takes_any_more_is_closed(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(b"1")
    opened = open_regular(tmp_path / "a.mp4")
    with pytest.warns(ResourceWarning):
        del opened
