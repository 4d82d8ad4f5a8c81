"""What a file can make FFmpeg open: itself, and nothing else."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import pytest
from tests.video.conftest import Studio

from whenabouts.intake.opening import open_regular, read_regular
from whenabouts.video.cues import SubtitleError, last_time, read_cue_file
from whenabouts.video.files import content_hash
from whenabouts.video.frames import sample_frames
from whenabouts.video.headers import missing_bytes, track_matrices
from whenabouts.video.opened import FORMATS, open_container, packets_of
from whenabouts.video.probe import MediaError, open_media, probe

LISTS = {
    "m3u8": "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{path}\n#EXT-X-ENDLIST\n",
    "m3u": "#EXTM3U\n#EXT-X-VERSION:3\n#EXTINF:9,\nfile:{path}\n",
    "concat": "ffconcat version 1.0\nfile '{path}'\n",
    "sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\n",
    "dash": '<?xml version="1.0"?>\n<MPD xmlns="urn:mpeg:dash"><BaseURL>{path}</BaseURL></MPD>',
    "smooth": '<?xml version="1.0"?><SmoothStreamingMedia MajorVersion="2"></SmoothStreamingMedia>',
    "imf": '<?xml version="1.0"?><!-- x --><CompositionPlaylist xmlns="x"></CompositionPlaylist>',
    "pls": "[playlist]\nFile1={path}\n",
}


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("suffix", [".mp4", ".m3u8", ".mpd", ".sdp", ".ts", ".mpeg"])
def test_a_list_of_other_files_is_refused_and_opens_none(
    studio: Studio, tmp_path: Path, kind: str, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = studio.video(tmp_path / "other.mp4", range(0, 400, 40))
    path = tmp_path / f"list{suffix}"
    path.write_text(LISTS[kind].format(path=other))
    opened: list[str] = []
    monkeypatch.setattr("whenabouts.video.opened._refuse", lambda url, *_: opened.append(url))
    with pytest.raises(MediaError, match="a list of other files, not a recording"):
        probe(path)
    assert not opened


def test_a_name_with_a_pattern_is_that_one_file(studio: Studio, tmp_path: Path) -> None:
    for name in ("%03d.jpg", "frame%d.png", "concat:a.mp4|b.mp4", "data:,x.mp4", "12:30.mp4", "a\nb.mp4"):
        path = tmp_path / name
        if name.endswith(".mp4"):
            assert probe(studio.video(path, range(0, 400, 40))).picture is not None
        else:
            path.write_bytes(b"\xff\xd8\xff\xe0" + bytes(64))
            with pytest.raises(MediaError, match="a picture, not a video"):
                probe(path)


def with_reference(film: bytes, target: bytes) -> bytes:
    """A QuickTime film whose samples lie in another file: its `dref` is an alias to an absolute path."""
    entry = b"alis" + struct.pack(">I", 0) + alias(target)
    reference = struct.pack(">I", 4 + len(entry)) + entry
    replaced = struct.pack(">I", 16 + len(reference)) + b"dref" + struct.pack(">II", 0, 1) + reference
    return grown(film, b"dref", replaced)


def alias(target: bytes) -> bytes:
    """An alias record, version 2, with the whole path as its tag 18."""
    tag = struct.pack(">hH", 18, len(target)) + target + (b"\0" if len(target) % 2 else b"")
    head = struct.pack(">4sHHH", b"\0" * 4, 0, 2, 0) + bytes(27 + 4 + 2 + 2 + 64) + bytes(16 + 8 + 2 + 2 + 10)
    return head + tag + struct.pack(">hH", -1, 0)


def grown(film: bytes, kind: bytes, box: bytes, names: tuple[bytes, ...] = ()) -> bytes:
    """A film in which each box of a kind is replaced, and those around it are as long as they must be."""
    out, at = b"", 0
    while at + 8 <= len(film):
        size, name = struct.unpack_from(">I4s", film, at)
        size = size or len(film) - at
        body = film[at + 8 : at + size]
        if name == kind:
            out += box
        elif name in (b"moov", b"trak", b"mdia", b"minf", b"dinf"):
            body = grown(body, kind, box)
            out += struct.pack(">I4s", len(body) + 8, name) + body
        else:
            out += film[at : at + size]
        at += size
    return out


def test_a_film_that_refers_to_another_file_does_not_get_it(studio: Studio, tmp_path: Path) -> None:
    other = studio.video(tmp_path / "secret.mov", range(0, 400, 40))
    film = with_reference(other.read_bytes(), os.fsencode(other))
    path = tmp_path / "film.mov"
    path.write_bytes(film[: film.index(b"mdat") - 4] + film[film.index(b"moov") - 4 :])
    other.rename(tmp_path / "moved.mov")  # if it is opened all the same, it is not there
    try:
        with sample_frames(path, 25.0) as reader:
            assert list(reader) == []
    except MediaError:
        pass


def test_whatever_a_container_asks_to_open_is_refused(tmp_path: Path) -> None:
    from whenabouts.video.opened import _refuse

    with pytest.raises(PermissionError, match=r"refers to another one.*http://x"):
        _refuse("http://x", 1, {})


def test_the_formats_are_formats_of_ffmpeg_and_none_opens_other_files() -> None:
    names = FORMATS.split(",")
    assert len(set(names)) == len(names)
    assert set(names) <= {part for name in av.formats_available for part in name.split(",")}
    lists = {
        "hls",
        "dash",
        "concat",
        "image2",
        "sdp",
        "rtsp",
        "imf",
        "vobsub",
        "webm_dash_manifest",
        "lavfi",
        "tee",
    }
    assert lists.isdisjoint(names) and not any(name.endswith("_pipe") for name in names)


NOT_FILES = ["pipe", "socket", "device", "link to a device", "folder"]


def not_a_file(folder: Path, kind: str) -> Path:
    path = folder / "talk.mp4"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    elif kind == "folder":
        path.mkdir()
    elif kind == "link to a device":
        path.symlink_to("/dev/zero")
    else:
        path = Path("/dev/zero")
    return path


@pytest.mark.parametrize("kind", NOT_FILES)
def test_what_is_no_plain_file_is_refused_at_once_wherever_it_is_read(tmp_path: Path, kind: str) -> None:
    path = not_a_file(tmp_path, kind)
    for read in (
        open_regular,
        content_hash,
        missing_bytes,
        open_container,
        lambda path: read_regular(path, 9),
    ):
        with pytest.raises(OSError, match=r"not a regular file|a folder"):
            read(path)
    with pytest.raises(SubtitleError, match=r"not a regular file|a folder"):
        read_cue_file(path)
    with pytest.raises(MediaError, match=r"not a regular file|a folder"):
        open_media(path)
    assert last_time(path) == 0.0


def test_a_file_that_is_too_large_is_told_with_the_size_that_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(2 << 20))
    assert len(read_regular(tmp_path / "a", 2 << 20)) == 2 << 20
    with pytest.raises(OSError, match="larger than 1 MB"):
        read_regular(tmp_path / "a", 1 << 20)


def test_descriptors_are_closed(studio: Studio, tmp_path: Path) -> None:
    path = studio.video(tmp_path / "a.mp4", range(0, 400, 40))
    before = len(list(Path("/dev/fd").iterdir()))
    for _ in range(5):
        probe(path)
        with pytest.raises(MediaError):
            probe(tmp_path)
    assert len(list(Path("/dev/fd").iterdir())) == before


@pytest.mark.parametrize(
    "data",
    [
        b"\x1aE\xdf\xa3\x01\xff\xff\xff\xff\xff\xff\xfe" + bytes(8),
        b"\0\0\0\3ftyp" + bytes(8),
        b"\0\0\0\x08ftyp\0\0\0\1mdat" + b"\xff" * 8 + bytes(8),
    ],
)
def test_a_length_that_is_no_place_in_a_file_is_no_error_of_the_disk(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "film.mp4").write_bytes(data)
    assert missing_bytes(tmp_path / "film.mp4") >= 0
    assert track_matrices(tmp_path / "film.mp4") == {}


def test_a_stream_that_appears_late_ends_no_reading() -> None:
    """PyAV gives all packets, and then looks for a stream that it does not know."""

    class Late:
        def demux(self, streams: object) -> Iterator[str]:
            yield from ("first", "last")
            raise IndexError("list index out of range")

    late: Any = Late()
    assert list(packets_of(late, [])) == ["first", "last"]
