"""The choice of example queries, and their drawings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from whenabouts_bench.evaluation.matching import truth_of
from whenabouts_bench.evaluation.protocols import PROTOCOLS
from whenabouts_bench.report.diagnosis import CLASSES, GOOD_FIRST, NOT_ANSWERED, diagnose
from whenabouts_bench.report.examples import (
    MOST_BARS,
    MOST_OF_A_CLASS,
    MOST_TIMELINES,
    Example,
    Timeline,
    examples_of,
    won_and_lost,
    worst,
)

VCMR = PROTOCOLS["vcmr"]
NAN = math.nan


def _examples(annotations: Any, *runs: Any, positions: list[int]) -> list[Example]:
    truth = truth_of(annotations, VCMR)
    pairs = [(run, diagnose(truth, run, VCMR)) for run in runs]
    return examples_of(annotations, truth, VCMR, pairs, np.array(positions))


def test_the_first_rows_the_first_good_one_and_all_bars(made: Callable[..., Any]) -> None:
    rows = [("x", 1.0, 2.0)] * 8 + [("v", 0.0, 1.0), ("x", 1.0, 2.0), ("v", 10.0, 20.0)]
    annotations, (run,) = made({"a": [("v", 10.0, 20.0, 1.0)]}, {"a": rows}, durations={"v": 40.0})
    (example,) = _examples(annotations, run, positions=[0])
    (answer,) = example.answers
    assert answer.failure.key == "ranked-low"
    assert answer.description == "good moment at rank 11, best IoU 1.00"
    assert [(row.rank, row.video_id, row.in_right_video) for row in answer.rows] == [
        (1, "x", False),
        (2, "x", False),
        (3, "x", False),
    ]
    (timeline,) = example.timelines
    assert (timeline.video_id, timeline.seconds, timeline.duration_known) == ("v", 40.0, True)
    assert [(bar.at, bar.width, bar.label) for bar in timeline.truths[0]] == [(25.0, 25.0, "judged")]
    assert [(bar.label, bar.at, bar.width, bar.is_good) for bar in timeline.answers[0]] == [
        ("9", 0.0, 2.5, False),
        ("11", 25.0, 25.0, True),
    ]
    assert timeline.answers[0][1].description == "rank 11, IoU 1.00: 0:10.0–0:20.0"


def test_an_axis_without_a_duration_comes_from_the_spans(made: Callable[..., Any]) -> None:
    annotations, (run,) = made({"a": [("v", 2.0, 4.0, 1.0)]}, {"a": [("v", 3.0, 16.0)]})
    (timeline,) = _examples(annotations, run, positions=[0])[0].timelines
    assert (timeline.seconds, timeline.duration_known) == (16.0, False)


def test_a_span_behind_the_end_stays_on_the_axis(made: Callable[..., Any]) -> None:
    annotations, (run,) = made(
        {"a": [("v", 2.0, 4.0, 1.0)]}, {"a": [("v", 9.0, 20.0)]}, durations={"v": 10.0}
    )
    (timeline,) = _examples(annotations, run, positions=[0])[0].timelines
    assert timeline.seconds == 20.0
    assert all(bar.at >= 0 and bar.at + bar.width <= 100 for bar in timeline.answers[0])


@pytest.mark.parametrize("seed", range(3))
def test_bars_lie_on_their_axis_and_are_few(case: Callable[..., Any], seed: int) -> None:
    drawn = case(seed, 50, several=True)
    examples = _examples(drawn.annotations, drawn.run, positions=list(range(50)))
    assert [example.query_id for example in examples] == list(drawn.truth)
    for example in examples:
        videos = {video for video, *_ in drawn.truth[example.query_id]}
        assert len(example.timelines) == min(len(videos), MOST_TIMELINES)
        assert example.more_videos == len(videos) - len(example.timelines)
        for timeline in example.timelines:
            judged = [one for one in drawn.truth[example.query_id] if one[0] == timeline.video_id]
            (truths,) = timeline.truths
            assert len(truths) == len({tuple(one) for one in judged})
            for bar in (*truths, *timeline.answers[0]):
                assert 0 <= bar.at <= 100 and bar.width > 0 and bar.at + bar.width <= 100 + 1e-6
            assert len(timeline.answers[0]) <= MOST_BARS


def test_judged_moments_with_grades_have_a_row_each_the_best_first(made: Callable[..., Any]) -> None:
    truth = {"a": [("v", 2.0, 4.0, 1.0), ("v", 3.0, 5.0, 3.0), ("w", 0.0, 1.0, 2.0), ("v", 0.0, 1.0, 0.0)]}
    annotations, (run,) = made(truth, {"a": [("v", 3.0, 5.0)]})
    timelines = _examples(annotations, run, positions=[0])[0].timelines
    assert [timeline.video_id for timeline in timelines] == ["v", "w"]
    assert [[bar.label for bar in row] for row in timelines[0].truths] == [["grade 3"], ["grade 1"]]


def test_rows_without_spans_and_queries_without_answers_are_shown(made: Callable[..., Any]) -> None:
    truth = {"a": [("v", 2.0, 4.0, 1.0)], "b": [("v", 2.0, 2.0, 1.0)]}
    annotations, (run,) = made(truth, {"a": [("v", NAN, NAN), ("w", 1.0, 2.0)]})
    examples = _examples(annotations, run, positions=[0])
    assert [row.has_span for row in examples[0].answers[0].rows] == [False, True]
    assert examples[0].timelines[0].answers == ((),)


def test_rows_of_a_run_of_videos_are_good_in_a_right_video(made: Callable[..., Any]) -> None:
    truth = {"a": [("v", 2.0, 4.0, 1.0)]}
    annotations, (run,) = made(truth, {"a": [("v", NAN, NAN), ("w", NAN, NAN)]})
    (answer,) = _examples(annotations, run, positions=[0])[0].answers
    assert answer.failure.key == "found"
    assert [row.is_good for row in answer.rows] == [True, False]


def test_only_rows_that_the_protocol_reads_are_counted(made: Callable[..., Any]) -> None:
    truth = {"a": [("v", 2.0, 4.0, 1.0)]}
    annotations, (run,) = made(truth, {"a": [("w", 0.0, 1.0), ("w", 1.0, 2.0), ("v", 2.0, 4.0)]})
    short = replace(VCMR, list_depth=2)
    judged = truth_of(annotations, short)
    (example,) = examples_of(annotations, judged, short, [(run, diagnose(judged, run, short))], np.array([0]))
    assert example.answers[0].description == "right video in none of 2 rows"


def test_the_worst_are_failures_the_furthest_down_first(case: Callable[..., Any]) -> None:
    drawn = case(5, 200)
    diagnosis = diagnose(truth_of(drawn.annotations, VCMR), drawn.run, VCMR)
    chosen = worst(diagnosis)
    assert GOOD_FIRST not in chosen and NOT_ANSWERED not in chosen
    for number, queries in chosen.items():
        own = np.flatnonzero(diagnosis.classes == number)
        assert len(queries) == min(MOST_OF_A_CLASS, len(own))
        assert set(queries.tolist()) <= set(own.tolist())
    low = next(at for at, one in enumerate(CLASSES) if one.key == "ranked-low")
    ranks = np.sort(diagnosis.good_rank[diagnosis.classes == low])[::-1]
    assert diagnosis.good_rank[chosen[low]].tolist() == ranks[: len(chosen[low])].tolist()


def test_won_and_lost_are_ordered_by_the_difference_then_by_overlap() -> None:
    before = np.array([0.0, 0.5, 1.0, 0.2, 0.0])
    after = np.array([1.0, 0.5, 0.0, 0.7, 1.0])
    won, lost = won_and_lost(before, after, np.zeros(5), np.array([0.6, 0.0, 0.0, 0.9, 0.8]))
    assert won.tolist() == [4, 0, 3]
    assert lost.tolist() == [2]


def test_ticks_stand_at_round_seconds() -> None:
    timeline = Timeline("v", 31.0, True, (), ())
    assert [label for _, label in timeline.ticks] == ["0:00", "0:10", "0:20", "0:30"]
    assert timeline.ticks[1][0] == pytest.approx(100 * 10 / 31, abs=0.01)
    assert len(Timeline("v", 0.3, True, (), ()).ticks) >= 1
    assert len(Timeline("v", 1e6, True, (), ()).ticks) <= 30
