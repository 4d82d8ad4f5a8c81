"""What an answer speaks for: which videos were searched by which stream."""

from __future__ import annotations

from whenabouts.product.coverage import coverage_of
from whenabouts.product.index.records import VideoRecord

SPOKEN = VideoRecord("spoken", "/spoken.mp4", streams={"subtitle": "a"}, words="sidecar:x", has_picture=True)
SILENT = VideoRecord("silent", "/silent.mp4", streams={"subtitle": "a"}, has_picture=True)
SEEN = VideoRecord("seen", "/seen.mp4", streams={"subtitle": "a", "vision": "b"}, has_picture=True)
HEARD = VideoRecord("sound", "/sound.mp3", streams={"subtitle": "a"}, words="speech:small")
BROKEN = VideoRecord("broken", "/broken.mp4", state="failed", has_picture=True)


def test_a_stream_counts_where_it_has_something_and_pictures_that_are_not_indexed_are_named() -> None:
    coverage = coverage_of([SPOKEN, SILENT, HEARD, BROKEN], (), ["subtitle"])
    assert (coverage.videos, coverage.streams, coverage.missing) == (3, {"subtitle": 2}, {"vision": 2})
    assert not coverage.is_whole and coverage.searched == "words"
    assert coverage.line.startswith(
        "searched: words of 2 of 3 videos (the others have none); pictures were not searched (index with"
    )


def test_nothing_is_missing_where_there_are_no_pictures_or_all_are_indexed() -> None:
    alone = coverage_of([HEARD], (), ["subtitle"])
    assert alone.is_whole and alone.line == "searched: words of the video"
    both = coverage_of([SEEN, HEARD], (), ["subtitle", "vision"])
    assert both.is_whole and both.searched == "words and pictures"
    others = "1 of 2 videos (the others have none)"
    assert both.line == f"searched: words of {others}, pictures of {others}"


def test_a_stream_whose_encoder_is_gone_searches_nothing() -> None:
    coverage = coverage_of([SEEN], (), ["subtitle"])
    assert "pictures were not searched" in coverage.line and "searched: nothing" in coverage.line


def test_only_streams_that_were_asked_are_told() -> None:
    coverage = coverage_of([SPOKEN, SILENT], ["subtitle"], ["subtitle"])
    assert coverage.is_whole and coverage.line == "searched: words of 1 of 2 videos (the others have none)"
