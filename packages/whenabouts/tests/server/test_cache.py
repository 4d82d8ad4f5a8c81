"""The cache of files: complete files only, within its size, and failures do not block others."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from whenabouts.server.cache import Cache
from whenabouts.types import UsageError
from whenabouts.workplace.cached import cached_name, erase_cached

KILO = b"x" * 1000


async def here(job: Callable[[], None]) -> None:
    job()


def put(cache: Cache, name: str, content: bytes = KILO) -> bool:
    """Ask for a file; returns whether it was in the cache."""
    opened, was_there = asyncio.run(cache.get(name, lambda out: _write(out, content), here))
    assert os.pread(opened.descriptor, 1 << 20, 0) == content
    opened.close()
    return was_there


def _write(out: Path, content: bytes) -> None:
    out.write_bytes(content)


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def name(letter: str) -> str:
    return cached_name(letter) + ".jpg"


def test_a_file_is_made_once_and_then_there(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "new" / "cache", 1 << 20)
    assert not put(cache, name("a"))
    assert put(cache, name("a"))
    assert cache.bytes == 1000
    assert put(Cache(tmp_path / "new" / "cache", 1 << 20), name("a"))


def test_the_least_used_go_first_and_the_size_is_kept(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 3500)
    for letter in "abc":
        put(cache, name(letter))
    time.sleep(0.02)  # file systems tell times no finer
    assert put(cache, name("a"))
    time.sleep(0.02)
    put(cache, name("d"))
    assert files(tmp_path) == {name("a"), name("c"), name("d")}
    assert cache.bytes == 3000
    again = Cache(tmp_path, 2500)
    assert files(tmp_path) == {name("a"), name("d")}
    assert again.bytes == 2000


def test_one_file_larger_than_the_cache_is_still_sent(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 500)
    assert not put(cache, name("a"))
    assert not put(cache, name("b"))
    assert files(tmp_path) == {name("b")}


def test_a_file_that_another_program_took_away_is_made_again(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 1 << 20)
    put(cache, name("a"))
    next(path for path in tmp_path.rglob("*.jpg")).unlink()
    assert not put(cache, name("a"))
    assert cache.bytes == 1000


def test_what_fails_while_it_is_written_leaves_nothing(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 1 << 20)

    def half(out: Path) -> None:
        out.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        asyncio.run(cache.get(name("a"), half, here))
    assert files(tmp_path) == set()
    assert cache.bytes == 0
    assert not put(cache, name("a"))


def test_what_a_killed_server_left_half_written_goes_after_a_while(tmp_path: Path) -> None:
    stems = f"ab{'0' * 38}", f"ab{'1' * 38}"
    old, young = (tmp_path / "ab" / f"{stem}-1-1.part.mp4" for stem in stems)
    old.parent.mkdir()
    for path in (old, young):
        path.write_bytes(KILO)
    os.utime(old, (time.time() - 7200,) * 2)
    cache = Cache(tmp_path, 1 << 20)
    assert files(tmp_path) == {young.name}
    assert cache.bytes == 0


def test_a_removed_video_leaves_nothing_and_other_videos_keep_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path, 1 << 20)
    kept, film = cached_name("b", "clip", "1") + ".mp4", cached_name("", "film", "of a and b") + ".mp4"
    for each in (
        cached_name("a", "clip", "1") + ".mp4",
        cached_name("a", "thumbnail", "1") + ".jpg",
        kept,
        film,
    ):
        put(cache, each)
    old = tmp_path / "ab" / f"ab{'0' * 38}.jpg"  # of an earlier version, which tells no video
    other = tmp_path / "24" / "24-07-01.jpg"
    for path in (old, other):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(KILO)
    erase_cached(tmp_path, ["a"])
    assert files(tmp_path) == {kept, other.name}
    old.write_bytes(KILO)
    assert Cache(tmp_path, 1 << 20).bytes == 1000 and not old.exists()
    with pytest.raises(UsageError, match="serve --cache"):
        erase_cached(tmp_path / "nowhere", ["a"])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "nowhere"))
    erase_cached(None, ["a"])


def test_files_of_others_in_the_folder_are_neither_counted_nor_deleted(tmp_path: Path) -> None:
    theirs = [tmp_path / "24" / "24-07-01.jpg", tmp_path / "24" / "film.part", tmp_path / "ab" / ("0" * 40)]
    for path in theirs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(KILO)
        os.utime(path, (time.time() - 7200,) * 2)
    cache = Cache(tmp_path, 1500)
    put(cache, name("a"))
    put(cache, name("b"))
    assert all(path.exists() for path in theirs)
    assert cache.bytes == 1000


def test_a_folder_that_cannot_be_used_is_told_before_anything_is_served(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(UsageError, match="--cache"):
        Cache(tmp_path / "file" / "cache", 1 << 20)


def test_keys_tell_apart_what_differs_anywhere() -> None:
    keys = [cached_name("a", "bc"), cached_name("ab", "c"), cached_name("abc"), cached_name("a", "b", "c")]
    assert len(set(keys)) == 4
    assert cached_name("caf\udce9") != cached_name("café")


def test_a_folder_below_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Cache(Path("~/cache"), 1 << 20).folder == tmp_path / "cache"
