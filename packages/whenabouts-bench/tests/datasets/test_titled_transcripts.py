"""Titled transcripts: titles are queries, folds by recordings, long recordings in pieces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.datasets.conftest import Release, transcripts_with_titles

from whenabouts.intake.files import FormatError
from whenabouts_bench.datasets import open_dataset
from whenabouts_bench.datasets.titled_transcripts import (
    FOLDS,
    PIECE_SECONDS,
    WORDS_FILE,
    folds_of,
    pieces_of,
    split_names,
    write_titled_transcripts,
)
from whenabouts_bench.formats.sentences import read_sentences


def test_each_title_is_tested_once_by_systems_that_never_saw_its_recording(release: Release) -> None:
    dataset = open_dataset("titled-transcripts", release("titled-transcripts"))
    tested: list[str] = []
    for fold in FOLDS:
        recordings = []
        for split in split_names(fold):
            queries = [query.id for query in dataset.annotations(split).queries]
            assert queries
            recordings.append({query.partition("#")[0] for query in queries})
        tested += queries
        assert not recordings[0] & recordings[1]
        assert not (recordings[0] | recordings[1]) & recordings[2]
    assert len(tested) == len(set(tested)) == 54
    assert set(tested) == {
        f"talk{number:02}#{part}" for number in range(30) if number % 10 != 9 for part in (0, 1)
    }


def test_a_test_split_searches_all_videos_and_a_training_split_its_own(release: Release) -> None:
    dataset = open_dataset("titled-transcripts", release("titled-transcripts"))
    said = read_sentences(release("titled-transcripts") / WORDS_FILE)
    assert {video.id for video in dataset.annotations("test-2").videos} == set(said)
    assert len(dataset.annotations("train-2").videos) < len(said)


def test_a_day_is_cut_into_pieces_of_which_the_silent_ones_are_left_out(release: Release) -> None:
    folder = release("titled-transcripts")
    said = read_sentences(folder / WORDS_FILE)
    assert [name for name in said if name.startswith("talk04")] == ["talk04_1", "talk04_6"]
    (last,) = said["talk04_6"]
    assert (last.start, last.end, last.text) == (0.0, 30.0, "long after")
    dataset = open_dataset("titled-transcripts", folder)
    moments = {
        query.id: (
            annotations.videos[annotations.video[row]].id,
            annotations.start[row],
            annotations.end[row],
        )
        for fold in FOLDS
        for annotations in [dataset.annotations(split_names(fold)[2])]
        for row, query in enumerate(annotations.queries)
    }
    # The part from 8,600 s to 43,250 s fills the silent pieces 2 to 5, and 40 s and 50 s of those with words.
    assert moments["talk04#0"] == ("talk04_6", 0.0, 50.0)
    assert moments["talk04#1"] == ("talk04_1", 0.0, 60.0)
    assert moments["talk05#1"] == ("talk05", 300.0, 1_000.0)


def test_pieces_are_equal_and_short_recordings_stay_whole() -> None:
    assert [(one.id, one.start, one.end) for one in pieces_of("a", PIECE_SECONDS)] == [("a", 0.0, 9_000.0)]
    day = pieces_of("day", 86_400.0)
    assert len(day) == 10
    assert day[3].id == "day_4"
    assert {one.end - one.start for one in day} == {8_640.0}


def test_folds_deal_each_sets_recordings_by_their_titles() -> None:
    sets = dict.fromkeys("abc", "one") | dict.fromkeys("xyz", "two")
    folds = folds_of(sets, {"b": 5, "c": 2, "y": 1})
    assert folds == {"b": 1, "c": 2, "a": 3, "y": 1, "x": 2, "z": 3}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"recording": "talk99"}, "queries.jsonl, line 1: recording: is not in recordings.jsonl: 'talk99'"),
        ({"start": 1_200.0, "end": 1_300.0}, "queries.jsonl, line 1: start: 1200.0 is not before the end"),
        ({"query": " "}, "queries.jsonl, line 1: query: is empty"),
    ],
)
def test_wrong_titles_are_refused(tmp_path: Path, change: dict[str, object], problem: str) -> None:
    transcripts_with_titles(tmp_path, 3)
    title = {"query": "On it", "recording": "talk00", "start": 0.0, "end": 60.0} | change
    (tmp_path / "queries.jsonl").write_text(json.dumps(title), encoding="utf-8")
    with pytest.raises(FormatError) as refused:
        write_titled_transcripts(tmp_path, tmp_path / "out")
    assert problem in str(refused.value)


def test_a_recording_is_a_file_of_the_folder(tmp_path: Path) -> None:
    transcripts_with_titles(tmp_path, 3)
    row = {"recording": "../talk00", "set": "a", "seconds": 60.0}
    (tmp_path / "recordings.jsonl").write_text(json.dumps(row), encoding="utf-8")
    with pytest.raises(FormatError, match="accepted: the name of a file without its suffix"):
        write_titled_transcripts(tmp_path, tmp_path / "out")


@pytest.mark.parametrize("second", ["talk00", "talk00_1"])
def test_each_recording_and_each_piece_is_there_once(tmp_path: Path, second: str) -> None:
    transcripts_with_titles(tmp_path, 3)
    rows = [{"recording": name, "set": "a", "seconds": 20_000.0} for name in ("talk00", second)]
    (tmp_path / "recordings.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    with pytest.raises(FormatError, match="line 2: recording: is a recording, or a piece of one, before:"):
        write_titled_transcripts(tmp_path, tmp_path / "out")


def test_a_recording_without_transcript_is_refused(tmp_path: Path) -> None:
    transcripts_with_titles(tmp_path, 3)
    (tmp_path / "talk01.vtt").unlink()
    with pytest.raises(FormatError, match=r"recordings\.jsonl: there is no talk01\.vtt beside it"):
        write_titled_transcripts(tmp_path, tmp_path / "out")


@pytest.mark.slow
def test_the_real_transcripts_have_the_declared_counts(shared_data: Path, tmp_path: Path) -> None:
    write_titled_transcripts(shared_data / "transcripts", tmp_path)
    dataset = open_dataset("titled-transcripts", tmp_path)
    for split in dataset.splits:
        assert not dataset.card(split).differing_counts(), split
    tested = [query for fold in FOLDS for query in dataset.annotations(split_names(fold)[2]).queries]
    assert len(tested) == 639
