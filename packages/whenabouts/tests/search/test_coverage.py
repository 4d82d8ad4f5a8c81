"""What an answer speaks for: which videos were searched by which stream."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from whenabouts.index.records import ClipColumns, StreamInfo, VideoRecord
from whenabouts.index.store import Store
from whenabouts.search.coverage import coverage_of, with_clips
from whenabouts.search.searcher import Searcher

SPOKEN = VideoRecord("spoken", "/spoken.mp4", streams={"subtitle": "a"}, words="sidecar:x", has_picture=True)
SILENT = VideoRecord("silent", "/silent.mp4", streams={"subtitle": "a"}, has_picture=True)
SEEN = VideoRecord("seen", "/seen.mp4", streams={"subtitle": "a", "vision": "b"}, has_picture=True)
HEARD = VideoRecord("sound", "/sound.mp3", streams={"subtitle": "a"}, words="speech:small")
BROKEN = VideoRecord("broken", "/broken.mp4", state="failed", has_picture=True)


def test_a_stream_counts_where_it_has_something_and_pictures_that_are_not_indexed_are_named() -> None:
    coverage = coverage_of([SPOKEN, SILENT, HEARD, BROKEN], (), ["subtitle"])
    assert (coverage.videos, coverage.streams, coverage.missing) == (3, {"subtitle": 2}, {"vision": 2})
    assert not coverage.is_whole and coverage.searched == "words"
    assert coverage.line == (
        "searched: words of 2 of 3 videos (the others have none); pictures were not searched for what they "
        "show (index with --vision MODEL for pictures); 1 of 3 videos has no words and no pictures that can "
        "be searched: what is only seen there cannot be found"
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
    assert coverage.to_json()["nothing_to_find"] == 1


def test_a_video_whose_words_were_looked_for_and_not_found_has_none() -> None:
    coverage = coverage_of([HEARD, SPOKEN], (), ["subtitle"], {"subtitle": {"spoken"}})
    assert coverage.streams == {"subtitle": 1} and coverage.silent == 1
    assert "1 of 2 videos has no words and no pictures that can be searched" in coverage.line
    alone = coverage_of([HEARD], (), ["subtitle"], {"subtitle": set()})
    assert alone.line == "searched: nothing; the video has no words: what is there cannot be found"


def test_pictures_that_are_indexed_of_some_videos_only_are_told() -> None:
    coverage = coverage_of([SEEN, SPOKEN], (), ["subtitle", "vision"], {"subtitle": {"spoken"}})
    assert coverage.silent == 0 and not coverage.is_whole
    assert coverage.line == (
        "searched: words of 1 of 2 videos (the others have none), pictures of 1 of 2 videos (of 1 they are "
        "not indexed)"
    )


def test_texts_on_the_screen_that_were_not_read_are_not_called_absent() -> None:
    read = replace(SILENT, streams={"screen_text": "c"})
    texts, nothing = ["screen_text"], {"screen_text": frozenset[str]()}
    line = coverage_of([read, SEEN], texts, texts, nothing).line
    assert "screen" not in line.split(";")[0] and coverage_of([read], texts, texts, nothing).is_whole
    found = coverage_of([read, SEEN], texts, texts, {"screen_text": {"silent"}})
    assert found.line == "searched: texts on the screen of 1 of 2 videos (of 1 they are not indexed)"
    assert coverage_of([SEEN], (), ["subtitle", "vision"]).is_whole  # nobody asked for them


def test_sound_without_speech_counts_as_no_words_in_a_corpus(tmp_path: Path) -> None:
    record = VideoRecord("quiet", "/quiet.wav", streams={"subtitle": "a"}, words="speech:small")
    nothing = ClipColumns(np.zeros(0), np.zeros(0), [])
    store = Store.open(tmp_path / "corpus", create=True)
    store.add_stream(StreamInfo("subtitle", "letters", "a", 0))
    store.put_video(record, {"subtitle": nothing})
    coverage = Searcher(store, {}).answering.coverage()
    assert coverage.streams == {"subtitle": 0} and coverage.silent == 1
    assert coverage.to_json()["nothing_to_find"] == 1


def test_streams_that_find_nobody_and_look_at_no_frame_count_no_videos(tmp_path: Path) -> None:
    streams = dict.fromkeys(("subtitle", "likeness", "speaker"), "a")
    store = Store.open(tmp_path / "corpus", create=True)
    nothing = ClipColumns(np.zeros(0), np.zeros(0), [])
    for name in streams:
        store.add_stream(StreamInfo(name, "letters", "a", 0))
    records = [
        VideoRecord("film", "/film.mp4", streams=streams, has_picture=True),
        VideoRecord("talk", "/talk.mp3", streams=streams, words="speech:small"),
    ]
    for record in records:
        store.put_video(record, dict.fromkeys(streams, nothing))
    coverage = coverage_of(records, (), list(streams), with_clips(store, streams))
    assert coverage.streams == {"subtitle": 0, "likeness": 1, "speaker": 0} and coverage.silent == 2
    assert "2 of 2 videos have no words and no pictures that can be searched" in coverage.line
