"""What is told of an answer: places of borders, overlaps, sentences, JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

from whenabouts.types import Moment, ScoredMoment
from whenabouts_systems.explain import Borders, Explained, Explanation, Ranked, TokenWeights, ranked_of

LOW = np.array([0.0, 2.0, 4.0, 6.0])
HIGH = np.array([2.0, 4.0, 6.0, 7.5])
START = np.array([0.1, 0.6, 0.2, 0.1])
END = np.array([0.1, 0.2, 0.3, 0.4])


def borders(*, exclusive: bool = False, answered: Moment | None = None) -> Borders:
    return Borders(LOW, HIGH, START, END, exclusive, answered)


def explained(**changes: object) -> Explained:
    told = {
        "name": "first",
        "system": "xml",
        "token_weights": TokenWeights(
            ("a", "red", "door"), {"video": (0.1, 0.3, 0.6), "sub": (0.5, 0.25, 0.25)}
        ),
        "borders": borders(answered=Moment("v", 2.0, 6.0)),
        "moments": (
            Ranked(1, Moment("w", 0.0, 2.0), 3.0, 10.0, 0.0),
            Ranked(2, Moment("v", 2.0, 6.0), 2.0, 7.5, 0.8),
        ),
    }
    return Explained(**{**told, **changes})  # type: ignore[arg-type]


def test_a_border_has_the_probability_of_the_clip_it_lies_in() -> None:
    start, end = borders().of(Moment("v", 2.0, 6.0))
    assert (start.probability, start.rank) == (0.6, 1)
    assert (end.probability, end.rank) == (0.3, 2)  # the clip that is over at 6 s, not the one after it


def test_where_ends_are_exclusive_the_clip_after_the_end_is_meant() -> None:
    _, end = borders(exclusive=True).of(Moment("v", 2.0, 6.0))
    assert (end.probability, end.rank) == (0.4, 1)


def test_borders_outside_the_clips_are_those_of_the_nearest_clip() -> None:
    start, end = borders().of(Moment("v", 7.9, 99.0))
    assert (start.probability, end.probability) == (0.1, 0.4)


def test_sentences_name_the_likeliest_place_where_another_was_meant() -> None:
    first, second = borders().lines(Moment("v", 4.5, 7.5))
    assert first == "starts at 0:04.500: 20 %, place 2; the likeliest is 0:02.000 with 60 %"
    assert second == "ends at 0:07.500: 40 %, the likeliest place"


def test_the_weightiest_words_come_first() -> None:
    assert explained().token_weights is not None
    assert explained().token_weights.lines() == [  # type: ignore[union-attr]
        "video: door 60 %, red 30 %, a 10 %",
        "sub: a 50 %, red 25 %, door 25 %",
    ]


def test_an_answer_meets_the_truth_from_half_an_overlap_on() -> None:
    moment = Moment("v", 0.0, 1.0)
    verdicts = [Ranked(1, moment, 0.0, None, iou).meets for iou in (None, 0.0, 0.4999, 0.5, 1.0)]
    assert verdicts == [None, False, False, True, True]


def test_found_moments_are_held_against_the_best_fitting_truth() -> None:
    found = [ScoredMoment(Moment("v", 0.0, 4.0), 2.0), ScoredMoment(Moment("w", 0.0, 4.0), 1.0)]
    truth = [Moment("v", 3.0, 4.0), Moment("v", 0.0, 3.0)]
    first, second = ranked_of(found, {"v": 9.0}, truth)
    assert (first.rank, first.iou, first.duration) == (1, 0.75, 9.0)
    assert (second.rank, second.iou, second.duration) == (2, 0.0, None)
    assert ranked_of(found, {})[0].iou is None


def test_the_rank_of_a_moment_is_that_of_the_first_answer_that_meets_it() -> None:
    told = explained()
    assert told.rank_of(Moment("v", 2.0, 5.0)) == 2
    assert told.rank_of(Moment("v", 6.0, 7.0)) is None


def test_json_has_every_number_and_goes_through_json() -> None:
    told = Explanation("a red door", "7", "v", 7.5, (Moment("v", 2.0, 5.0),), (explained(), explained()))
    read = json.loads(json.dumps(told.to_json()))
    assert read["query_id"] == "7"
    assert read["truth"] == [{"video_id": "v", "start": 2.0, "end": 5.0}]
    system = read["systems"][1]
    assert system["heard"]["weights"] == {"video": [0.1, 0.3, 0.6], "sub": [0.5, 0.25, 0.25]}
    assert system["borders"]["start_probability"] == START.tolist()
    assert system["borders"]["clips"] == {"start": LOW.tolist(), "end": HIGH.tolist()}
    assert system["moments"][1] == {
        "rank": 2, "video_id": "v", "start": 2.0, "end": 6.0, "score": 2.0,
        "duration": 7.5, "iou": 0.8, "meets": True,
    }  # fmt: skip


def test_lines_say_truth_borders_and_verdicts() -> None:
    told = Explanation("a red door", "7", "v", 7.5, (Moment("v", 2.0, 5.0),), (explained(notes=("old",)),))
    lines = told.lines()
    assert lines[0] == "query 7: “a red door”"
    assert "truth: v@0:02.000-0:05.000" in lines
    assert "  best in this video: v@0:02.000-0:06.000 (IoU 0.75)" in lines
    assert any(line.startswith("  the truth starts at 0:02.000: 60 %, the likeliest") for line in lines)
    assert "  1. w@0:00.000-0:02.000  score 3.000  not the truth" in lines
    assert "  2. v@0:02.000-0:06.000  score 2.000  meets the truth  (IoU 0.80)" in lines
    assert lines[-1] == "  note: old"


def test_truth_in_another_video_draws_no_border_here() -> None:
    told = Explanation("x", "", "v", None, (Moment("w", 0.0, 1.0),), (explained(),))
    assert told.truth_here == ()
    assert not any("the truth starts" in line for line in told.lines())


@pytest.mark.parametrize(("part", "key"), [("token_weights", "heard"), ("borders", "borders")])
def test_what_a_system_cannot_tell_is_left_out(part: str, key: str) -> None:
    told = Explanation("x", "", "v", None, (), (explained(**{part: None}),))
    assert told.to_json()["systems"][0][key] is None
    assert told.lines()
