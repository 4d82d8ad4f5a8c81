"""Sentences of videos: read from a file, and given to clips as HERO's authors do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden_folder import cases, golden_folder, told_inside

from whenabouts.intake.files import FormatError
from whenabouts_bench.formats.sentences import Sentence, read_sentences
from whenabouts_systems.features.sentences import sentence_of_clips, shifted

CASES = cases("hero_full", "*.npz")


def test_there_are_cases() -> None:
    if not CASES:
        pytest.skip(f"{golden_folder()} has no hero_full folder")


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_frames_get_the_sentences_that_the_authors_give_them(path: Path) -> None:
    told = told_inside(path)
    for video in told["videos"]:
        said = [Sentence(start, end, "") for start, end, _ in video["subs"]]
        found = sentence_of_clips(said, video["frames"], told["vfeat_interval"])[: told["max_clip_len"]]
        expected = np.full(video["frames"], -1)
        for sentence, frames in told["told"]["kept_subtitle_frames"][video["name"]]:
            expected[frames] = sentence
        assert found.tolist() == expected[: len(found)].tolist(), video["name"]


@given(
    st.lists(st.tuples(st.floats(0, 40), st.floats(0.01, 9)), min_size=1, max_size=6),
    st.sampled_from([1.0, 1.5, 2.0]),
)
def test_a_clip_belongs_to_a_sentence_that_shares_time_with_it(
    times: list[tuple[float, float]], clip: float
) -> None:
    said = [Sentence(start, start + length, "") for start, length in sorted(times)]
    for place, number in enumerate(sentence_of_clips(said, 20, clip).tolist()):
        shared = [min(one.end, (place + 1) * clip) - max(one.start, place * clip) for one in said]
        if number >= 0:
            assert shared[number] > -1e-5
        else:
            assert max(shared) < 1e-4


def test_a_stretch_of_a_video_has_its_own_sentences() -> None:
    said = (Sentence(0.0, 1.0, "a"), Sentence(1.5, 3.0, "b"), Sentence(4.0, 5.0, "c"))
    assert shifted(said, 2.0) == (Sentence(-0.5, 1.0, "b"), Sentence(2.0, 3.0, "c"))


def _written(path: Path, *lines: Any) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_both_forms_are_read_in_the_order_in_which_sentences_begin(tmp_path: Path) -> None:
    path = _written(
        tmp_path / "said.jsonl",
        {
            "video_id": "a",
            "sentences": [{"start": 2, "end": 3.5, "text": "two"}, {"start": 0, "end": 1, "text": "one"}],
        },
        {"vid_name": "b", "sub": [{"text": " Ana : yes.", "start": 1.5, "end": 2.0, "more": 1}]},
        {"video_id": 7, "sentences": []},
    )
    assert read_sentences(path) == {
        "a": (Sentence(0, 1, "one"), Sentence(2, 3.5, "two")),
        "b": (Sentence(1.5, 2.0, " Ana : yes."),),
        "7": (),
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"sentences": []}, "line 1: video_id: is missing"),
        ({"video_id": "a", "sentences": {}}, "line 1: sentences: is not a list"),
        ({"video_id": "a", "sentences": [{"start": 0, "end": 1}]}, r"sentences\[0\].text: is missing"),
        (
            {"video_id": "a", "sentences": [{"start": 0, "end": "x", "text": ""}]},
            r"\[0\].end: is not a number",
        ),
        (
            {"video_id": "a", "sentences": [{"start": 2, "end": 1, "text": ""}]},
            r"line 1: sentences\[0\]: ends before it begins",
        ),
    ],
)
def test_what_is_no_sentence_is_named(line: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=message):
        read_sentences(_written(tmp_path / "said.jsonl", line))


def test_a_video_that_comes_twice_is_named(tmp_path: Path) -> None:
    line = {"video_id": "a", "sentences": []}
    with pytest.raises(FormatError, match="line 2: comes twice: video 'a'"):
        read_sentences(_written(tmp_path / "said.jsonl", line, line))
