"""Videos that lie on an object store: named, listed, read in ranges, and hostile keys left out."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.s3 import Fault, Proxy, running

from whenabouts.types import UsageError
from whenabouts.video import objects
from whenabouts.video.files import content_hash, find_files
from whenabouts.video.objects import ObjectPath, ObjectReader, check_place, open_source, source_path
from whenabouts.video.probe import MediaError, probe
from whenabouts.video.thumbnails import thumbnail


def test_an_object_is_written_as_a_uri_and_behaves_as_a_path() -> None:
    path = source_path("s3://films/a b/talk.mp4")
    assert (str(path), path.name, path.suffix) == ("s3://films/a b/talk.mp4", "talk.mp4", ".mp4")
    assert str(path.parent) == "s3://films/a b"
    assert str(path.with_suffix(".srt")) == "s3://films/a b/talk.srt"
    assert copy.deepcopy(path) == path
    assert source_path(Path("s3://films/a b/talk.mp4")) == path
    assert not isinstance(source_path("films/talk.mp4"), ObjectPath)


@pytest.mark.parametrize(
    "place", ["s3://", "s3:///key", "s3://b/../c", "s3://b//c.mp4", "s3://b/a\nb.mp4", "s3://b/" + "k" * 1100]
)
def test_a_place_that_names_no_object_is_refused(place: str) -> None:
    with pytest.raises(UsageError, match="names no bucket and key"):
        check_place(place)


@pytest.mark.parametrize("scheme", ["http", "gs", "file", "ftp", "concat"])
def test_videos_are_read_from_no_other_scheme(scheme: str) -> None:
    with pytest.raises(UsageError, match=f"not from {scheme}://"):
        check_place(f"{scheme}://host/a.mp4")


def test_a_store_without_encryption_is_refused_unless_it_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.delenv("AWS_ALLOW_HTTP", raising=False)
    found = find_files([source_path("s3://b/c")])
    assert not found.files
    assert "AWS_ALLOW_HTTP=true" in found.problems[0][1]


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with running("moto", tmp_path_factory.mktemp("moto")) as server, Proxy(server) as made:
        yield made


@pytest.fixture
def bucket(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in proxy.server.environment.items():
        monkeypatch.setenv(name, value)
    proxy.well()
    return proxy.server.bucket()


def put(proxy: Proxy, bucket: str, files: Mapping[str, Path | bytes]) -> None:
    client = proxy.server.client()
    for key, file in files.items():
        client.put_object(Bucket=bucket, Key=key, Body=file if isinstance(file, bytes) else file.read_bytes())


@pytest.mark.slow
def test_videos_and_their_subtitles_are_found_below_a_place(proxy: Proxy, bucket: str, samples: Path) -> None:
    talk = samples / "friday.mp4"
    files: dict[str, Path | bytes] = {
        "v/a.mp4": talk, "v/a.en.srt": b"1", "v/deep/b.MKV": b"x", "v/alone.vtt": b"WEBVTT",
        "v/note.txt": b"x", "v/.hidden/c.mp4": b"x", "v/app.ts": b"const a = 1", "other/d.mp4": b"x",
        "v/cut/e.mp4": b"x",
    }  # fmt: skip
    put(proxy, bucket, files)
    found = find_files([source_path(f"s3://{bucket}/v")], exclude=["cut/"])
    names = {str(file.path).split("/v/")[1]: [path.name for path in file.sidecars] for file in found.files}
    assert names == {"a.mp4": ["a.en.srt"], "alone.vtt": [], "deep/b.MKV": []}
    assert found.files[0].size == talk.stat().st_size
    one = find_files([source_path(f"s3://{bucket}/v/a.mp4")])
    assert [(file.path.name, len(file.sidecars)) for file in one.files] == [("a.mp4", 1)]
    bare = find_files([source_path(f"s3://{bucket}/v/a.mp4")], exclude=["*.srt"])
    assert [(file.path.name, file.sidecars) for file in bare.files] == [("a.mp4", ())]
    none = find_files([source_path(f"s3://{bucket}/none")])
    assert not none.files
    assert "no such object" in none.problems[0][1]


def test_hostile_keys_are_named_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a store may list them: clients and servers differ in which of these can be put."""
    keys = ["ok.mp4", "../up.mp4", "./here.mp4", "bell\x07.mp4", "line\nbreak.mp4", "/twice.mp4", "k" * 1100]
    listed = [
        SimpleNamespace(path=f"b/v/{key}", size=1, mtime_ns=1, type=SimpleNamespace(name="File"))
        for key in keys
    ]
    missing = SimpleNamespace(type=SimpleNamespace(name="Directory"))
    store = SimpleNamespace(get_file_info=lambda asked: missing if isinstance(asked, str) else listed)
    monkeypatch.setattr(objects, "_store", lambda: store)
    found = find_files([source_path("s3://b/v")])
    assert [str(file.path) for file in found.files] == ["s3://b/v/ok.mp4"]
    assert len(found.problems) == 6
    assert all(why.isprintable() and "rename it" in why for _, why in found.problems)
    monkeypatch.setattr(objects, "_MOST_OBJECTS", 6)
    found = find_files([source_path("s3://b/v")])
    assert not found.files
    assert "7 objects; give folders of at most 6" in found.problems[0][1]


def test_an_object_named_alone_lists_only_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    def get_file_info(asked: Any) -> Any:
        kind = SimpleNamespace(name="File")
        if isinstance(asked, str):
            return SimpleNamespace(path=asked, size=1, mtime_ns=1, type=kind)
        keys = ["a.mp4", "a.srt", *(f"deep/{number}.mp4" for number in range(9 if asked.recursive else 0))]
        return [SimpleNamespace(path=f"b/{key}", size=1, mtime_ns=1, type=kind) for key in keys]

    monkeypatch.setattr(objects, "_store", lambda: SimpleNamespace(get_file_info=get_file_info))
    monkeypatch.setattr(objects, "_MOST_OBJECTS", 6)
    (file,) = find_files([source_path("s3://b/a.mp4")]).files
    assert [str(path) for path in (file.path, *file.sidecars)] == ["s3://b/a.mp4", "s3://b/a.srt"]


def test_a_reader_of_an_object_that_is_not_there_is_closed_in_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python 3.13 and later print what `close` raises when a half-made file is freed."""

    def missing(key: str) -> None:
        raise FileNotFoundError(key)

    monkeypatch.setattr(objects, "_store", lambda: SimpleNamespace(open_input_file=missing))
    reader, place = ObjectReader.__new__(ObjectReader), source_path("s3://b/a.mp4")
    assert isinstance(place, ObjectPath)
    with pytest.raises(FileNotFoundError, match="there is no such object"):
        ObjectReader.__init__(reader, place)
    reader.close()


@pytest.mark.slow
def test_a_film_is_read_in_ranges_and_never_whole(proxy: Proxy, bucket: str) -> None:
    size = 40 << 20
    data = bytes(range(256)) * (size >> 8)
    put(proxy, bucket, {"v/long.bin": data})
    path = source_path(f"s3://{bucket}/v/long.bin")
    proxy.sent = 0
    with open_source(path) as file:
        assert file.seek(-7, 2) == size - 7
        assert file.read(100) == data[-7:]
        file.seek(1000)
        assert file.read(3) == data[1000:1003]
    assert proxy.sent < 5 << 20
    reader = ObjectReader(source_path(f"s3://{bucket}/v/long.bin"))  # type: ignore[arg-type]
    for at in range(0, size, 2 << 20):
        reader.seek(at)
        assert reader.read(2) == data[at : at + 2]
    assert len(reader._blocks) <= 8
    reader.close()
    proxy.sent = 0
    assert content_hash(path) == content_hash(path)
    assert proxy.sent < 10_000


@pytest.mark.slow
def test_frames_and_facts_are_those_of_the_file(proxy: Proxy, bucket: str, samples: Path) -> None:
    talk = samples / "friday.mp4"
    put(proxy, bucket, {"v/friday.mp4": talk})
    put(proxy, bucket, {"v/text.mp4": b"no film at all, but words"})
    path = source_path(f"s3://{bucket}/v/friday.mp4")
    assert probe(path) == probe(talk)
    assert thumbnail(path, 3.0, 160) == thumbnail(talk, 3.0, 160)
    for name, why in (("text", "holds text"), ("none", "no such")):
        with pytest.raises(MediaError, match=f"s3://{bucket}/v/{name}.mp4: .*{why}"):
            probe(path.with_name(f"{name}.mp4"))


@pytest.mark.slow
def test_what_the_store_says_is_said(proxy: Proxy, bucket: str, samples: Path) -> None:
    put(proxy, bucket, {"v/friday.mp4": samples / "friday.mp4"})
    path = source_path(f"s3://{bucket}/v/friday.mp4")
    for fault, why in (
        (Fault(403, "AccessDenied"), "no permission"),
        (Fault(400, "ExpiredToken"), "have expired"),
        (Fault(403, "RequestTimeTooSkewed"), "clocks that are too far apart|no permission"),
    ):
        proxy.fault = lambda asked, fault=fault: fault  # type: ignore[misc]
        with pytest.raises(OSError, match=why):
            path.stat()
        assert not find_files([path]).files
    proxy.well()
    assert path.stat().st_size == (samples / "friday.mp4").stat().st_size
