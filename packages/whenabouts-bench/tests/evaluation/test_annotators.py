"""DiDeMo as HERO's program evaluates it: a hit overlaps the spans of two annotators enough."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whenabouts.types import Judgement, Moment, ScoredMoment, UsageError
from whenabouts_bench.evaluation.evaluate import evaluate
from whenabouts_bench.formats import read_annotations
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.runs import MemoryRun, Task

Spans = list[tuple[float, float]]
DOG: dict[str, Any] = {
    "annotation_id": 7,
    "description": "the dog looks up",
    "video": "dog.mov",
    "num_segments": 6,
    "times": [[0, 0], [0, 0], [2, 3], [2, 4]],
}
"""Two say 0 to 5 s, one 10 to 20 s, one 10 to 25 s."""


def truth_in(folder: Path, *entries: dict[str, Any]) -> Annotations:
    """As the file of DiDeMo's authors is read."""
    path = folder / "val_data.json"
    path.write_text(json.dumps(entries or [DOG]))
    return read_annotations(path)


def answers(spans: Spans, video: str = "dog") -> list[ScoredMoment]:
    return [ScoredMoment(Moment(video, *span), -float(rank)) for rank, span in enumerate(spans)]


def values(truth: Annotations, moments: list[ScoredMoment], metrics: list[str]) -> list[float]:
    return [_run_and_value(truth, moments, metric) for metric in metrics]


def _run_and_value(truth: Annotations, moments: list[ScoredMoment], metric: str) -> float:
    task: Task = "SVMR" if metric.startswith("SVMR") else "VCMR"
    run = MemoryRun.from_run({"7": moments}, task=task)
    return evaluate(truth, run, [metric], protocol="didemo").means()[metric]


def _all_lists(moments: list[ScoredMoment]) -> MemoryRun:
    block = MemoryRun.from_run({"7": moments}).lists["VCMR"]
    return MemoryRun("run", {"VCMR": block, "SVMR": block, "VR": block})


def test_two_annotators_need_not_have_marked_the_same(tmp_path: Path) -> None:
    truth, thresholds = truth_in(tmp_path), ["R@1,IoU=0.5", "R@1,IoU=0.7", "mIoU"]
    # IoU 1 with the third, 10/15 with the fourth.
    assert values(truth, answers([(10, 20)]), thresholds) == [1, 0, pytest.approx(2 / 3)]
    # 3/4 with the third, 13.3/15 = 8/9 with the fourth.
    assert values(truth, answers([(10, 23 + 1 / 3)]), thresholds) == [1, 1, pytest.approx(3 / 4)]
    assert values(truth, answers([(0, 5)]), thresholds) == [1, 1, 1]
    agreed = evaluate(truth, {"7": answers([(10, 20), (0, 5)])}, thresholds, protocol="vcmr").means()
    assert list(agreed.values()) == [0, 0, 0], "as the papers have it, 0 to 5 s alone is true"


def test_one_annotator_is_not_enough(tmp_path: Path) -> None:
    alone = truth_in(tmp_path, {**DOG, "times": [[0, 0], [0, 0], [2, 3], [5, 5]]})
    names = [f"{task}R@{k},IoU=0.5" for task in ("", "SVMR ") for k in (1, 2)]
    assert values(alone, answers([(10, 20), (0, 6)]), names) == [0, 1, 0, 1]


def test_only_the_right_video_counts(tmp_path: Path) -> None:
    moments = [*answers([(0, 5)], "cat"), *answers([(10, 20)])]
    names = ["R@1,IoU=0.5", "R@5,IoU=0.5", "SVMR R@1,IoU=0.5", "VR R@1", "VR R@5"]
    assert values(truth_in(tmp_path), moments, names) == [0, 1, 1, 0, 1]


def test_heros_queries_are_judged_as_the_authors_file_is(tmp_path: Path) -> None:
    line = {"desc_id": 7, "desc": "the dog looks up", "vid_name": "dog", "duration": 30.0}
    spans = [[5.0 * first, 5.0 * last + 5.0] for first, last in DOG["times"]]
    path = tmp_path / "query_data.jsonl"
    path.write_text(json.dumps({**line, "ts": spans}) + "\n")
    moments = answers([(12, 24), (3, 9), (10, 20)])
    ours, heros = (
        evaluate(truth, _all_lists(moments), protocol="didemo").means()
        for truth in (truth_in(tmp_path), read_annotations(path))
    )
    assert ours == heros
    assert 0 < sum(ours.values()) < len(ours)


MARKS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5)).map(lambda pair: (5.0 * min(pair), 5.0 * max(pair) + 5)),
    min_size=4,
    max_size=7,
)
ASKED = st.lists(
    st.tuples(st.sampled_from(["dog", "cat"]), st.integers(0, 8), st.integers(1, 8)), max_size=8
).map(lambda rows: [Moment(video, 2.5 * start, 2.5 * (start + length)) for video, start, length in rows])


@settings(max_examples=60)
@given(MARKS, ASKED)
def test_values_are_those_of_the_rule_written_plainly(marks: Spans, asked: list[Moment]) -> None:
    builder = AnnotationBuilder("marked", cut=False)
    builder.add_query("7", annotated=tuple(marks))
    builder.judge("7", "dog", *marks[0])
    moments = [ScoredMoment(moment, -float(rank)) for rank, moment in enumerate(asked)]
    result = evaluate(builder.annotations(), {"7": moments}, protocol="didemo").means()
    for k in (1, 5):
        for least in (0.5, 0.7):
            hits = [moment.video_id == "dog" and _hits(moment, marks, least) for moment in asked[:k]]
            assert result[f"R@{k},IoU={least}"] == float(any(hits))


def _hits(moment: Moment, marks: Spans, least: float) -> bool:
    start, end = np.float32(moment.start), np.float32(moment.end)
    enough = 0
    for first, last in np.array(marks, np.float32):
        shared = max(np.float32(0), min(end, last) - max(start, first))
        enough += bool(shared / (max(end, last) - min(start, first)) >= np.float32(least))
    return enough >= 2


def test_a_query_in_which_no_two_agree_is_left_out_and_said_to_be(tmp_path: Path) -> None:
    apart = {**DOG, "annotation_id": 8, "times": [[0, 0], [1, 1], [2, 2], [3, 3]]}
    result = evaluate(truth_in(tmp_path, DOG, apart), {"7": answers([(0, 5)])}, protocol="didemo")
    assert result.query_ids == ("7",)
    assert dict(result.left_out) == {"queries are not judged": 1}


def test_judgements_without_annotators_and_metrics_of_single_moments_are_refused(tmp_path: Path) -> None:
    qrels = {"7": [Judgement(Moment("dog", 0.0, 5.0))]}
    with pytest.raises(UsageError, match=r"query '7' has 0 spans of annotators; give DiDeMo's own JSON"):
        evaluate(qrels, {"7": answers([(0, 5)])}, protocol="didemo")
    for name in ("mAP", "nDCG@10,IoU=0.5", "R@1,IoU=0.5,length=short"):
        with pytest.raises(UsageError, match=r"counts moments one by one, .* accepted: R@K"):
            evaluate(truth_in(tmp_path), {"7": answers([(0, 5)])}, [name], protocol="didemo")
