"""Recordings of a folder or a corpus, by the names of their videos."""

from __future__ import annotations

from pathlib import Path

import pytest

from whenabouts.index.records import VideoRecord
from whenabouts.index.store import Store
from whenabouts.types import UsageError, Video
from whenabouts_bench.judging.recordings import in_corpus, in_folder

SAMPLES = Path(__file__).resolve().parents[4] / "samples" / "videos"


def videos(*names: str) -> dict[str, Video]:
    return {name: Video(name, None) for name in names}


def test_a_corpus_knows_its_recordings_by_id_and_by_name(tmp_path: Path) -> None:
    place = tmp_path / "corpus"
    Store.open(place, create=True).put_records(
        [
            VideoRecord("dinner-0a1b2c3d", "/films/dinner.mp4", duration=60.0),
            VideoRecord("walk-4e5f6a7b", "/films/walk.mp4", duration=30.0),
            VideoRecord("talk-8c9d0e1f", "/films/talk.vtt", duration=9.0, kind="transcript"),
        ]
    )
    placed = in_corpus(videos("dinner-0a1b2c3d", "walk", "talk.vtt"), str(place))
    assert [(video.id, video.path, video.duration) for video in placed.values()] == [
        ("dinner-0a1b2c3d", "/films/dinner.mp4", 60.0),
        ("walk", "/films/walk.mp4", 30.0),
        ("talk.vtt", "", 9.0),  # a transcript cannot be watched
    ]
    with pytest.raises(UsageError, match="has no recording of 1 video to judge: run;"):
        in_corpus(videos("walk", "run"), str(place))


def test_a_folder_knows_its_recordings_with_and_without_ending() -> None:
    placed = in_folder(videos("frog", "flower.webm"), SAMPLES)
    assert placed["frog"].path == str(SAMPLES / "frog.webm")
    assert placed["flower.webm"].duration == pytest.approx(5.06, abs=0.1)


def test_missing_recordings_are_counted_and_some_named() -> None:
    names = [f"lost {number}" for number in range(7)]
    with pytest.raises(UsageError, match=r"7 videos to judge: lost 0, lost 1, .* lost 4, \.\.\."):
        in_folder(videos(*names), SAMPLES)
