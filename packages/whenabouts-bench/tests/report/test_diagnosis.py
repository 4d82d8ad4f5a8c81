"""The diagnosis of each query, against plain Python for one query at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from whenabouts_bench.evaluation.evaluate import evaluate
from whenabouts_bench.evaluation.matching import NEVER, truth_of
from whenabouts_bench.evaluation.protocols import PROTOCOLS
from whenabouts_bench.report.diagnosis import BANDS, CLASSES, LEVELS, RANKED_LOW, Diagnosis, diagnose

VCMR = PROTOCOLS["vcmr"]
NAN = math.nan


def _iou(row: Any, positive: Any) -> float:
    if row[0] != positive[0]:
        return 0.0
    shared = min(row[2], positive[2]) - max(row[1], positive[1])
    if not shared > 0:
        return 0.0
    return float(shared / (row[2] - row[1] + positive[2] - positive[1] - shared))


def _expected(case: Any, query: str) -> tuple[str, int | None, int | None, float]:
    """Class, rank of the first right video, of the first good moment (from 0), best IoU."""
    positives = [judged for judged in case.truth[query] if judged[3] > 0]
    rows = case.answers.get(query, [])
    best = [max((_iou(row, positive) for positive in positives), default=0.0) for row in rows]
    right = [any(row[0] == positive[0] for positive in positives) for row in rows]
    video = right.index(True) if True in right else None
    good = next((rank for rank, iou in enumerate(best) if iou >= 0.5 - 1e-9), None)
    if not rows:
        name = "not-answered"
    elif good is not None:
        name = "found" if good == 0 else "ranked-low"
    elif video is not None:
        name = "span-wrong" if video == 0 else "video-late"
    else:
        name = "video-missed"
    return name, video, good, max(best, default=0.0)


def _diagnosed(case: Any, protocol: Any = VCMR) -> tuple[list[str], Diagnosis]:
    truth = truth_of(case.annotations, protocol)
    diagnosis = diagnose(truth, case.run, protocol)
    return [truth.query_ids[number] for number in diagnosis.queries.tolist()], diagnosis


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_every_query_is_diagnosed_as_one_by_one(case: Callable[..., Any], seed: int, graded: bool) -> None:
    drawn = case(seed, graded=graded, several=seed % 2 == 1)
    names, diagnosis = _diagnosed(drawn)
    assert names == list(drawn.truth)
    for place, query in enumerate(names):
        name, video, good, best = _expected(drawn, query)
        assert CLASSES[diagnosis.classes[place]].key == name, query
        assert diagnosis.video_rank[place] == (NEVER if video is None else video)
        assert diagnosis.good_rank[place] == (NEVER if good is None else good)
        assert diagnosis.best_iou[place] == pytest.approx(best)
        assert diagnosis.rows[place] == len(drawn.answers.get(query, []))


def test_the_drawn_cases_hold_every_class(case: Callable[..., Any]) -> None:
    assert (_diagnosed(case(1, 200))[1].class_counts > 0).all()


@pytest.mark.parametrize("seed", range(3))
def test_classes_and_bands_add_up(case: Callable[..., Any], seed: int) -> None:
    drawn = case(seed, 150)
    _, diagnosis = _diagnosed(drawn)
    assert diagnosis.class_counts.sum() == 150 == len(diagnosis.classes)
    assert diagnosis.band_counts.sum() == diagnosis.class_counts[RANKED_LOW]
    told = [_expected(drawn, query) for query in drawn.truth]
    low = [good + 1 for name, _, good, _ in told if name == "ranked-low" and good is not None]
    expected = [sum(band.first <= rank <= (band.last or rank) for rank in low) for band in BANDS]
    assert diagnosis.band_counts.tolist() == expected


@pytest.mark.parametrize("protocol", ["vcmr", "tvr", "qvh"])
def test_curves_go_through_the_metrics_of_evaluate(case: Callable[..., Any], protocol: str) -> None:
    drawn, chosen = case(7, 120, several=True), PROTOCOLS[protocol]
    _, diagnosis = _diagnosed(drawn, chosen)
    for k in (1, 3, 5, 10, 100):
        for iou in (0.3, 0.5, 0.7):
            mean = evaluate(drawn.annotations, drawn.run, [f"R@{k},IoU={iou}"], protocol=chosen).means()
            expected = pytest.approx(mean[f"R@{k},IoU={iou}"])
            assert diagnosis.recall_by_depth(np.array([k]), iou)[0] == expected
            assert diagnosis.recall_by_level(k)[LEVELS.index(iou)] == expected


def test_the_first_row_in_a_right_video_is_the_first_video(case: Callable[..., Any]) -> None:
    drawn = case(3, 100)
    _, diagnosis = _diagnosed(drawn)
    mean = evaluate(drawn.annotations, drawn.run, ["VR R@1"], protocol=VCMR).means()["VR R@1"]
    assert diagnosis.recall_by_depth(np.array([1]))[0] == pytest.approx(mean)


def test_curves_never_fall_with_k_and_never_rise_with_iou(case: Callable[..., Any]) -> None:
    _, diagnosis = _diagnosed(case(11, 100))
    depths = np.arange(1, 20)
    by_level = [diagnosis.recall_by_depth(depths, level) for level in LEVELS]
    assert all((np.diff(curve) >= 0).all() for curve in by_level)
    assert all((np.diff(diagnosis.recall_by_level(depth)) <= 0).all() for depth in (1, 5, 10))


def test_a_run_of_videos_is_judged_by_its_videos(made: Callable[..., Any]) -> None:
    truth = {q: [("v", 1.0, 2.0, 1.0)] for q in ("first", "late", "missed", "silent")}
    answers = {
        "first": [("v", NAN, NAN)],
        "late": [("w", NAN, NAN), ("v", NAN, NAN)],
        "missed": [("w", NAN, NAN)],
    }
    annotations, (run,) = made(truth, answers)
    diagnosis = diagnose(truth_of(annotations, VCMR), run, VCMR)
    assert not diagnosis.names_moments
    assert [CLASSES[one].key for one in diagnosis.classes] == [
        "found",
        "video-late",
        "video-missed",
        "not-answered",
    ]


def test_rows_without_a_span_among_others_are_right_videos_and_no_moments(made: Callable[..., Any]) -> None:
    truth = {"a": [("v", 1.0, 2.0, 1.0)], "b": [("v", 1.0, 2.0, 1.0)]}
    annotations, (run,) = made(truth, {"a": [("v", NAN, NAN), ("v", 1.0, 2.0)], "b": [("v", NAN, NAN)]})
    diagnosis = diagnose(truth_of(annotations, VCMR), run, VCMR)
    assert diagnosis.names_moments
    assert [CLASSES[one].key for one in diagnosis.classes] == ["ranked-low", "span-wrong"]


def test_a_judged_moment_without_length_can_only_be_missed(made: Callable[..., Any]) -> None:
    tvr = PROTOCOLS["tvr"]
    annotations, (run,) = made({"a": [("v", 3.0, 3.0, 1.0)]}, {"a": [("v", 3.0, 3.0), ("v", 2.0, 4.0)]})
    diagnosis = diagnose(truth_of(annotations, tvr), run, tvr)
    assert [CLASSES[one].key for one in diagnosis.classes] == ["span-wrong"]


def test_nothing_answered_is_nothing_found(made: Callable[..., Any]) -> None:
    annotations, (run,) = made({"a": [("v", 1.0, 2.0, 1.0)]}, {"other": [("v", 1.0, 2.0)]})
    diagnosis = diagnose(truth_of(annotations, VCMR), run, VCMR)
    assert [CLASSES[one].key for one in diagnosis.classes] == ["not-answered"]
    assert diagnosis.names_moments and diagnosis.recall_by_level(1).sum() == 0


def test_moments_outside_the_pool_are_passed_over(made: Callable[..., Any]) -> None:
    mvmr = PROTOCOLS["mvmr"]
    truth = {"a": [("v", 0.0, 4.0, 1.0)]}
    annotations, (run,) = made(truth, {"a": [("x", 0.0, 4.0), ("v", 0.0, 4.0)]}, durations={"x": 9, "w": 9})
    pooled = replace(annotations, pools={"a": ("v", "w")})
    assert diagnose(truth_of(pooled, mvmr), run, mvmr).good_rank.tolist() == [0]
    vcmr = PROTOCOLS["vcmr"]
    assert diagnose(truth_of(annotations, vcmr), run, vcmr).good_rank.tolist() == [1]
