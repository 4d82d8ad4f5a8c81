"""Decoding for clients happens in processes whose memory is bounded, and which may die."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from whenabouts.product.index.workers import Failed, Part, ReaderPool
from whenabouts.product.server.decoding import ClipTask, Decoders, ThumbnailTask
from whenabouts.types import UsageError
from whenabouts.video.opened import MAX_PIXELS
from whenabouts.video.probe import MediaError, probe


@pytest.fixture
def decoders() -> Iterator[Decoders]:
    made = Decoders()
    yield made
    made.close()


def test_a_thumbnail_and_a_clip_are_made_elsewhere(decoders: Decoders, samples: Path, tmp_path: Path) -> None:
    decoders.run(ThumbnailTask(samples / "friday.mp4", 1.0, 160, tmp_path / "a.jpg"))
    assert (tmp_path / "a.jpg").read_bytes()[:3] == b"\xff\xd8\xff"
    decoders.run(ClipTask(samples / "friday.mp4", 1.0, 2.0, tmp_path / "a.mp4"))
    assert probe(tmp_path / "a.mp4").duration == pytest.approx(1.0, abs=0.1)


def test_faults_come_back_as_what_they_were(decoders: Decoders, samples: Path, tmp_path: Path) -> None:
    with pytest.raises(MediaError, match="holds no pictures"):
        decoders.run(ThumbnailTask(samples / "nasa_audio_only.mp3", 1.0, 160, tmp_path / "a.jpg"))
    with pytest.raises(OSError, match="No such file"):
        decoders.run(ThumbnailTask(samples / "friday.mp4", 1.0, 160, tmp_path / "gone" / "a.jpg"))
    with pytest.raises(UsageError):
        decoders.run(ClipTask(samples / "friday.mp4", 100.0, 101.0, tmp_path / "a.mp4"))


def test_pictures_above_the_limit_are_refused_until_it_is_raised(
    decoders: Decoders, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MAX_PIXELS, "1000")
    task = ThumbnailTask(samples / "friday.mp4", 1.0, 160, tmp_path / "a.jpg")
    with pytest.raises(MediaError, match=r"larger than what is decoded|that can be decoded"):
        decoders.run(task)
    decoders.close()
    monkeypatch.setenv(MAX_PIXELS, str(320 * 180))
    with pytest.raises(MediaError, match=r"pictures of \d+ x \d+ are larger.*WHENABOUTS_MAX_PIXELS"):
        decoders.run(task)
    decoders.close()
    monkeypatch.setenv(MAX_PIXELS, "1000000")
    decoders.run(task)
    monkeypatch.setenv(MAX_PIXELS, "many")
    with pytest.raises(UsageError, match="WHENABOUTS_MAX_PIXELS is 'many'"):
        probe(samples / "friday.mp4")


@dataclass(frozen=True)
class Hungry:
    number: int
    quiet_seconds: float = 60.0


def memory_of(task: Hungry) -> Iterator[int]:
    """The limit of memory in a reader; then more memory than that is asked for."""
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    yield limit
    yield len(bytearray(limit))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts private memory for this limit")
def test_a_reader_that_needs_too_much_memory_fails_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(MAX_PIXELS, "1000000")
    with ReaderPool(memory_of, 1) as pool:
        limit, failed = pool.run([Hungry(0)])
        assert isinstance(limit, Part) and limit.content == (1 << 30) + 64 * 1_000_000
        assert isinstance(failed, Failed) and "more memory than a reader may have" in failed.error
