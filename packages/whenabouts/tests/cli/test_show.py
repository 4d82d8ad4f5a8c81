"""`whenabouts show`: the list, a video, a moment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whenabouts.index.records import natural_key

Whenabouts = Callable[..., Any]


def test_without_a_name_it_lists_all_videos(whenabouts: Whenabouts, strange_folder: Path) -> None:
    videos = whenabouts("show").json
    keys = {"video_id", "duration", "path", "metadata", "gone", "streams_indexed_at"}
    assert keys == set(videos[0])
    assert [v["video_id"] for v in videos] == sorted((v["video_id"] for v in videos), key=natural_key)
    table = whenabouts("show", "--table").out.splitlines()
    assert len(table) == len(videos) >= 15
    assert not any("\x1b" in line for line in table)


def test_the_list_says_for_programs_since_when_each_stream_is_indexed(whenabouts: Whenabouts) -> None:
    for video in whenabouts("show").json:
        assert all(at > 1.7e9 for at in video["streams_indexed_at"].values())
    assert any("subtitle" in video["streams_indexed_at"] for video in whenabouts("show").json)


def test_the_list_is_narrowed_and_sorted(whenabouts: Whenabouts) -> None:
    lengths = [video["duration"] for video in whenabouts("show", "--sort", "length").json]
    known = [length for length in lengths if length is not None]
    assert known == sorted(known, reverse=True) == lengths[: len(known)]
    found = whenabouts("show", "--where", "name=friday*", "--sort", "name").json
    assert [Path(video["path"]).name for video in found] == ["friday.mp4"]
    assert whenabouts("show", "--where", "name=nobody").code == 1


def test_what_people_say_of_a_video_does_not_hide_what_it_is(whenabouts: Whenabouts) -> None:
    video = next(v for v in whenabouts("show").json if v["path"].endswith("100%.vtt"))
    assert video["metadata"]["duration"] == "long"
    assert isinstance(video["duration"], float)


@pytest.mark.parametrize("name", ["friday", "friday.mp4", "friday-f6459d1a"])
def test_a_video_by_any_of_its_names(whenabouts: Whenabouts, samples: Path, name: str) -> None:
    shown = whenabouts("show", name).json
    assert shown["path"] == str(samples / "friday.mp4")
    assert shown["words_from"] == "sidecar:friday.vtt"
    assert shown["moment"] is None
    assert [set(line) for line in shown["words"]] == [{"start", "end", "text", "recognised"}] * len(
        shown["words"]
    )
    starts = [line["start"] for line in shown["words"]]
    assert starts == sorted(starts)
    table = whenabouts("show", name, "--table")
    assert table.code == 0
    assert "lord of the universe" in table.out


def test_a_video_by_its_path(whenabouts: Whenabouts, samples: Path) -> None:
    assert whenabouts("show", str(samples / "friday.mp4")).json["video_id"] == "friday-f6459d1a"


def test_a_moment_shows_only_what_is_said_in_it(whenabouts: Whenabouts) -> None:
    shown = whenabouts("show", "friday.mp4@0:04.5-0:05").json
    assert shown["moment"] == [4.5, 5.0]
    assert [line["text"] for line in shown["words"]] == ["Somebody must've stolen the crown jewels"]
    # Half-open: words that begin at the moment's end are not in it.
    assert [line["text"] for line in whenabouts("show", "friday@0-1").json["words"]] == ["Hildy!"]


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("nowhere", "whenabouts show"),
        ("nowhere@0-1", "whenabouts show"),
        ("twin", "give the id"),
        ("friday@", "whenabouts show"),
        ("friday@0:05", "VIDEO@START-END"),
        ("friday@5-2", "start < end"),
        ("friday@a-b", "is not a time"),
    ],
)
def test_what_is_not_there_is_told(whenabouts: Whenabouts, what: str, told: str) -> None:
    done = whenabouts("show", what)
    assert (done.code, done.out) == (2, "")
    assert told in done.err or "VIDEO@START-END" in done.err


def test_a_video_without_words_has_no_stream_of_words(whenabouts: Whenabouts) -> None:
    assert whenabouts("show", "frog.webm").json["streams"] == {}
    table = whenabouts("show", "frog.webm", "--table").out
    assert "streams   none" in table and "pictures were not searched" in table


@pytest.mark.slow
def test_the_beginning_of_a_name_is_offered_as_the_name(whenabouts: Whenabouts) -> None:
    refused = whenabouts("show", "FRID")
    assert refused.code == 2
    assert "has no video 'FRID'; did you mean friday-f6459d1a" in refused.err


@pytest.mark.slow
def test_talks_are_listed_in_the_order_of_their_numbers(bare: Whenabouts, tmp_path: Path) -> None:
    for number in (10, 2, 1):
        said = f"WEBVTT\n\n00:00.000 --> 00:05.000\nThis is talk {number} about beetles.\n"
        (tmp_path / f"talk {number}.vtt").write_text(said)
    assert bare("index", tmp_path, "--corpus", tmp_path / "corpus", "--processes", "1").code == 0
    listed = bare("show", "--corpus", tmp_path / "corpus").json
    assert [Path(video["path"]).stem for video in listed] == ["talk 1", "talk 2", "talk 10"]
