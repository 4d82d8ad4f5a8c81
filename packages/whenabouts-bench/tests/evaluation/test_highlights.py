"""QVHighlights: highlights and moments, against scikit-learn's curve and by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import precision_recall_curve

from whenabouts.types import Query, UsageError
from whenabouts_bench.evaluation.evaluate import evaluate
from whenabouts_bench.evaluation.highlights import average_precision, highlights_of, hit_at_one
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.runs import MemoryRun, RunBlock


def released_precision(positive: list[bool], scores: list[float]) -> float:
    """Interpolated precision, averaged over the points of scikit-learn's curve where recall changes."""
    if len(set(positive)) == 1:
        return float(positive[0])
    precision, recalls, _ = precision_recall_curve(positive, scores)
    precision = np.maximum.accumulate(precision)
    return float(np.mean(precision[np.flatnonzero(np.diff(recalls.astype(np.float32)))]))


def query(grades: list[tuple[int, int, int]]) -> Query:
    """A query that graded its first clips."""
    return Query(
        "q", "", {"relevant_clip_ids": list(range(len(grades))), "saliency_scores": [list(g) for g in grades]}
    )


GRADES = st.lists(st.tuples(*[st.integers(0, 4)] * 3), max_size=8)
# Few values, so that ties are common.
SCORES = st.lists(st.sampled_from([-1.0, 0.0, 0.25, 0.5, 2.0]), min_size=1, max_size=12)


@settings(max_examples=40)
@given(GRADES, SCORES, st.integers(0, 4), st.integers(1, 4))
def test_average_precision_is_that_of_the_released_definition(
    grades: list[tuple[int, int, int]], scores: list[float], more: int, least: int
) -> None:
    clips = len(grades) + more
    if not clips:
        return
    told = highlights_of([query(grades)], [2.0 * clips + 1], {"q": np.array(scores)})
    padded = (scores + [0.0] * clips)[:clips]
    by_annotator = [
        released_precision([g[who] >= least for g in grades] + [False] * more, padded) for who in range(3)
    ]
    assert average_precision(told, least)[0] == pytest.approx(np.mean(by_annotator))


@settings(max_examples=40)
@given(st.lists(st.tuples(GRADES, SCORES, st.integers(1, 4)), min_size=2, max_size=5), st.integers(1, 4))
def test_queries_side_by_side_have_the_values_they_have_alone(rows: list[Any], least: int) -> None:
    queries = [Query(str(n), "", query(grades).metadata) for n, (grades, _, _) in enumerate(rows)]
    seconds = [2.0 * (len(grades) + more) for grades, _, more in rows]
    saliency = {str(n): np.array(scores) for n, (_, scores, _) in enumerate(rows)}
    together = highlights_of(queries, seconds, saliency)
    for n, (own, length) in enumerate(zip(queries, seconds, strict=True)):
        alone = highlights_of([own], [length], saliency)
        assert average_precision(together, least)[n] == pytest.approx(average_precision(alone, least)[0])
        assert hit_at_one(together, least)[n] == hit_at_one(alone, least)[0]


def test_a_hit_is_a_clip_that_any_annotator_graded_high_enough() -> None:
    told = highlights_of([query([(0, 0, 4), (3, 3, 3)])], [4.0], {"q": np.array([0.9, 0.1])})
    assert [hit_at_one(told, least)[0] for least in (2, 3, 4)] == [1, 1, 1]
    other = highlights_of([query([(0, 0, 4), (3, 3, 3)])], [4.0], {"q": np.array([0.1, 0.9])})
    assert [hit_at_one(other, least)[0] for least in (2, 3, 4)] == [1, 1, 0]


def test_a_highest_score_behind_the_end_of_the_video_is_no_hit() -> None:
    told = highlights_of([query([(4, 4, 4)])], [2.0], {"q": np.array([0.1, 0.9])})
    assert hit_at_one(told, 2)[0] == 0


def test_clips_that_the_video_does_not_have_are_refused() -> None:
    with pytest.raises(UsageError, match=r"'q': relevant clips \[0, 1, 2\] with grades"):
        highlights_of([query([(1, 1, 1)] * 3)], [4.0], {})


@pytest.mark.parametrize(
    "labels",
    [
        {"relevant_clip_ids": [0, 1], "saliency_scores": [[1, 2], [3, 4]]},
        {"relevant_clip_ids": [0, 1], "saliency_scores": [[1, 2, 3], [4]]},
        {"relevant_clip_ids": ["a"], "saliency_scores": [[1, 2, 3]]},
        {"relevant_clip_ids": [0], "saliency_scores": [None]},
        {"relevant_clip_ids": [-1], "saliency_scores": [[1, 2, 3]]},
        {"relevant_clip_ids": None, "saliency_scores": [[1, 2, 3]]},
        {"relevant_clip_ids": [0], "saliency_scores": 4},
        {"saliency_scores": [[1, 2, 3]]},
    ],
)
def test_labels_that_are_no_grades_of_clips_are_refused_with_the_query(labels: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"query 'q': .* accepted: 3 grades for each clip"):
        highlights_of([Query("q", "", labels)], [10.0], {})


def test_a_video_shorter_than_a_clip_has_no_highlight() -> None:
    short = highlights_of([query([])], [1.5], {"q": np.array([0.9])})
    assert hit_at_one(short, 1).tolist() == average_precision(short, 1).tolist() == [0.0]


def test_a_query_without_windows_has_the_clips_of_its_own_video(tmp_path: Path) -> None:
    labels = {"relevant_clip_ids": [30], "saliency_scores": [[4, 4, 4]]}
    lines: list[dict[str, Any]] = [
        {"qid": 1, "query": "x", "vid": "long", "duration": 150, "relevant_windows": [], **labels},
        {"qid": 2, "query": "y", "vid": "short", "duration": 10, "relevant_windows": [[0, 4]]},
    ]
    lines[1] |= {"relevant_clip_ids": [1], "saliency_scores": [[4, 4, 4]]}
    (tmp_path / "truth.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    block = RunBlock(("2",), np.array([0, 0]), (), np.zeros(0, np.int32), *[np.zeros(0)] * 3)
    run = Predictions("qvh", {"SVMR": (block,)})
    means = evaluate(tmp_path / "truth.jsonl", run, ["HL Hit@1,saliency=4"], protocol="qvh").means()
    assert means == {"HL Hit@1,saliency=4": 1.0}


# The protocol -------------------------------------------------------------------------------------


def judged() -> Annotations:
    truth = AnnotationBuilder("qvh")
    truth.add_video("v", 150.0)
    # Windows of exactly 10 and 30 seconds belong to the shorter class.
    for name, windows in {"1": [(0, 10), (100, 140)], "2": [(20, 50)]}.items():
        truth.add_query(name, "text", relevant_clip_ids=[0, 1], saliency_scores=[[4, 4, 4], [2, 2, 2]])
        for start, end in windows:
            truth.judge(name, "v", start, end)
    return truth.annotations()


class Predictions(MemoryRun):
    """A run that also scores clips."""

    def saliency(self) -> dict[str, Any]:
        return {"1": np.array([0.9, 0.5] + [0.0] * 73), "2": np.array([0.1, 0.5] + [0.0] * 73)}


def predictions() -> Predictions:
    rows = {"1": [(100, 140, 0.2), (0, 10, 0.9)], "2": [(60, 70, 0.8), (20, 50, 0.7)]}
    flat = [row for of_query in rows.values() for row in of_query]
    block = RunBlock(
        ("1", "2"),
        np.array([0, 2, 4]),
        ("v",),
        np.zeros(4, np.int32),
        np.array([row[0] for row in flat], np.float64),
        np.array([row[1] for row in flat], np.float64),
        np.array([row[2] for row in flat], np.float64),
    )
    return Predictions("qvh", {"VCMR": (block,)})


def test_the_protocol_tells_moments_lengths_and_highlights() -> None:
    means = evaluate(judged(), predictions(), protocol="qvh").means()
    # Query 1 finds both windows, query 2 its one behind a wrong one of higher score.
    assert means["R@1,IoU=0.5"] == 0.5
    assert means["mAP,IoU=0.5"] == pytest.approx((1 + 0.5) / 2)
    assert means["mAP,length=short"] == pytest.approx(1.0)  # by score the short window of query 1 comes first
    assert means["mAP,length=middle"] == pytest.approx(0.5)  # query 2 alone has one
    assert means["mAP,length=long"] == pytest.approx(0.5)
    assert means["HL Hit@1,saliency=4"] == 0.5
    assert means["HL mAP,saliency=4"] == pytest.approx((1 + 0.5) / 2)


def test_the_moments_of_a_run_may_be_those_in_given_videos() -> None:
    """As training and `run` write them: each query of QVHighlights is asked of one video."""
    there = Predictions("qvh", {"SVMR": predictions().lists["VCMR"]})
    assert evaluate(judged(), there).means() == evaluate(judged(), predictions()).means()


def test_without_clip_scores_the_highlights_are_left_out_unless_asked_for() -> None:
    plain = MemoryRun("plain", predictions().lists)
    assert not any(name.startswith("HL") for name in evaluate(judged(), plain, protocol="qvh").metrics)
    with pytest.raises(UsageError, match="HL metrics need saliency scores"):
        evaluate(judged(), plain, ["HL mAP,saliency=4"], protocol="qvh")
