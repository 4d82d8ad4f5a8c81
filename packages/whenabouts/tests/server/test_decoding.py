"""Decoder processes: their memory is bounded, and the server survives their death."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from whenabouts.export.source import read_source
from whenabouts.index.workers import Failed, Part, ReaderPool
from whenabouts.server import decoding
from whenabouts.server.decoding import Decoders
from whenabouts.server.errors import ServerError
from whenabouts.types import UsageError
from whenabouts.video.opened import MAX_PIXELS
from whenabouts.video.probe import MediaError, probe


@pytest.fixture
def decoders() -> Iterator[Decoders]:
    made = Decoders(1)
    yield made
    made.close()


def test_a_thumbnail_and_a_clip_are_made_elsewhere(decoders: Decoders, samples: Path, tmp_path: Path) -> None:
    decoders.draw(samples / "friday.mp4", 1.0, 160, tmp_path / "a.jpg")
    assert (tmp_path / "a.jpg").read_bytes()[:3] == b"\xff\xd8\xff"
    decoders.cut(samples / "friday.mp4", 1.0, 2.0, tmp_path / "a.mp4")
    assert probe(tmp_path / "a.mp4").duration == pytest.approx(1.0, abs=0.1)


def test_faults_come_back_as_what_they_were(decoders: Decoders, samples: Path, tmp_path: Path) -> None:
    with pytest.raises(MediaError, match="holds no pictures"):
        decoders.draw(samples / "nasa_audio_only.mp3", 1.0, 160, tmp_path / "a.jpg")
    with pytest.raises(OSError, match="No such file"):
        decoders.draw(samples / "friday.mp4", 1.0, 160, tmp_path / "gone" / "a.jpg")
    with pytest.raises(UsageError):
        decoders.cut(samples / "friday.mp4", 100.0, 101.0, tmp_path / "a.mp4")


@pytest.mark.slow
def test_pictures_above_the_limit_are_refused_until_it_is_raised(
    decoders: Decoders, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MAX_PIXELS, "1000")
    task = samples / "friday.mp4", 1.0, 160, tmp_path / "a.jpg"
    with pytest.raises(MediaError, match=r"larger than the limit|that can be decoded"):
        decoders.draw(*task)
    decoders.close()
    monkeypatch.setenv(MAX_PIXELS, str(320 * 180))
    with pytest.raises(MediaError, match=r"pictures of \d+ x \d+ are larger.*WHENABOUTS_MAX_PIXELS.*--retry"):
        decoders.draw(*task)
    decoders.close()
    monkeypatch.setenv(MAX_PIXELS, "1000000")
    decoders.draw(*task)
    monkeypatch.setenv(MAX_PIXELS, "many")
    with pytest.raises(UsageError, match="WHENABOUTS_MAX_PIXELS is 'many'"):
        probe(samples / "friday.mp4")


@dataclass(frozen=True)
class Hungry:
    number: int
    quiet_seconds: float = 60.0


def memory_of(task: Hungry) -> Iterator[int]:
    """Report the memory limit of a reader process, then allocate that much more."""
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    yield limit
    yield len(bytearray(limit))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts private memory for this limit")
def test_a_reader_that_needs_too_much_memory_fails_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(MAX_PIXELS, "1000000")
    with ReaderPool(memory_of, 1) as pool:
        limit, failed = pool.run([Hungry(0)])
        assert isinstance(limit, Part) and limit.content == (1 << 30) + 64 * 1_000_000
        assert isinstance(failed, Failed) and "more memory than a reader may have" in failed.error


@pytest.mark.slow
def test_what_takes_more_memory_than_a_process_may_have_is_said_so_and_the_next_file_is_served(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import av

    monkeypatch.setenv(MAX_PIXELS, "200000000")

    with av.open(str(tmp_path / "large.mp4"), "w") as out:
        stream = out.add_stream("mjpeg", rate=10)
        stream.width, stream.height, stream.pix_fmt = 16_000, 8000, "yuvj420p"
        frame = av.VideoFrame(stream.width, stream.height, "yuvj420p")
        for plane in frame.planes:
            plane.update(bytes(plane.buffer_size))
        out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    with closing(Decoders(1, 272 << 20)) as decoders:
        with pytest.raises(MediaError, match="--memory"):
            decoders.cut(tmp_path / "large.mp4", 0.0, 0.1, tmp_path / "a.mp4")
        assert decoders.probe(samples / "friday.mp4").has_audio


def test_what_a_file_holds_is_found_out_elsewhere_too(decoders: Decoders, samples: Path) -> None:
    assert decoders.probe(samples / "friday.mp4") == probe(samples / "friday.mp4")
    source = decoders.source(str(samples / "friday.mp4"))
    here = read_source(str(samples / "friday.mp4"))
    assert (source.rate, source.duration, source.channels) == (here.rate, here.duration, here.channels)
    assert source.times is not None and here.times is not None
    assert source.times.ticks.tolist() == here.times.ticks.tolist()
    with pytest.raises(MediaError):
        decoders.probe(samples / "friday.vtt")


def test_a_task_waits_for_a_process_and_not_for_ever(samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "_WAIT_SECONDS", 0.01)
    with pytest.raises(ServerError) as refused:
        Decoders(0).probe(samples / "friday.mp4")
    assert refused.value.status == 429
