"""Candidates by caption in batches, or from several runs; the order of tasks reveals nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.relevance.conftest import WordEncoder

from whenabouts.types import Moment, Query, UsageError, Video
from whenabouts_bench.formats import open_run
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.judging.candidates import by_caption, by_runs, names_of_runs, tasks_of
from whenabouts_bench.judging.tasks import TaskSet

FIRST, SECOND = Query("q1", "a dog runs"), Query("q2", "a cat sleeps")


def run_file(path: Path, answers: dict[str, list[tuple[str, float, float]]]) -> Path:
    """A run with falling scores."""
    lines = [
        {"query_id": query, "moments": [{"video_id": v, "start": s, "end": e, "score": -n} for n, (v, s, e) in
        enumerate(rows)]} for query, rows in answers.items()
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_the_union_of_runs_has_each_moment_once(tmp_path: Path) -> None:
    one = run_file(tmp_path / "one.jsonl", {"q1": [("a", 0, 10), ("b", 0, 10), ("c", 0, 10)]})
    two = run_file(tmp_path / "two.jsonl", {"q1": [("b", 1, 10), ("a", 20, 30)], "q9": [("a", 0, 1)]})
    candidates = by_runs([open_run(one), open_run(two)], [FIRST, SECOND], depth=2)
    assert [(c.query.id, c.moment, c.source.ranks) for c in candidates] == [
        ("q1", Moment("a", 0, 10), {"one.jsonl": 1}),
        ("q1", Moment("b", 1, 10), {"two.jsonl": 1, "one.jsonl": 2}),  # IoU 0.9: the better rank stands
        ("q1", Moment("a", 20, 30), {"two.jsonl": 2}),
    ]


def test_answers_to_other_queries_are_passed_over_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = open_run(run_file(tmp_path / "run.jsonl", {"q1": [("a", 0, 10)], "q9": [("a", 0, 1)]}))
    assert len(by_runs([run], [FIRST])) == 1
    assert "run.jsonl: also answers 1 query that --queries lacks" in caplog.text


def test_overlap_below_the_limit_is_two_tasks(tmp_path: Path) -> None:
    run = open_run(run_file(tmp_path / "run.jsonl", {"q1": [("a", 0, 10), ("a", 2, 10)]}))
    assert len(by_runs([run], [FIRST], same=0.8)) == 1
    assert len(by_runs([run], [FIRST], same=0.81)) == 2


def test_a_run_that_answers_none_of_the_queries_is_refused(tmp_path: Path) -> None:
    run = open_run(run_file(tmp_path / "run.jsonl", {"q7": [("a", 0, 10)]}))
    with pytest.raises(UsageError, match=r"run\.jsonl: answers none of the 1 query"):
        by_runs([run], [FIRST])


@pytest.mark.parametrize(("depth", "same", "message"), [(0, 0.7, "--depth 0"), (1, 0.0, "--iou 0.0")])
def test_limits_that_make_no_sense_are_refused(depth: int, same: float, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        by_runs([], [FIRST], depth, same)


def test_runs_of_one_name_are_called_by_their_paths() -> None:
    assert names_of_runs(["a/run.jsonl", "b/run.jsonl"]) == ["a/run.jsonl", "b/run.jsonl"]
    assert names_of_runs(["a/x.jsonl", "b/y.jsonl"]) == ["x.jsonl", "y.jsonl"]


@pytest.fixture
def captions() -> Annotations:
    """Five moments with captions, two of which equal the first query."""
    builder = AnnotationBuilder("captions")
    texts = ("a dog runs", "a dog sits", "a man sits", "a dog runs", "rain on roofs")
    for number, text in enumerate(texts):
        builder.add_video(f"v{number}", 30.0)
        builder.add_query(f"c{number}", text)
        builder.judge(f"c{number}", f"v{number}", 0, 5 + number)
    return builder.annotations()


def test_candidates_by_caption_come_in_batches_most_similar_first(captions: Annotations) -> None:
    candidates = by_caption(captions, [captions.queries[0]], WordEncoder(), batch=2, batches=2)
    assert [(c.moment.video_id, c.batch, c.source.ranks["captions"]) for c in candidates] == [
        ("v0", 1, 1), ("v3", 1, 2), ("v1", 2, 3), ("v2", 2, 4)
    ]  # fmt: skip
    similarities = [c.source.similarity for c in candidates]
    assert similarities[:2] == [1.0, 1.0]
    assert similarities == sorted(similarities, reverse=True)  # type: ignore[type-var]
    assert {c.query.id for c in candidates} == {"c0"}


def test_a_query_from_elsewhere_is_refused(captions: Annotations) -> None:
    with pytest.raises(UsageError, match="captions: has no query 'q1'"):
        by_caption(captions, [FIRST], WordEncoder())


def test_the_order_of_tasks_tells_nothing_of_ranks(tmp_path: Path) -> None:
    moments = [("a", float(n), n + 1.0) for n in range(30)]
    run = open_run(run_file(tmp_path / "run.jsonl", {"q1": moments, "q2": moments}))
    candidates = by_runs([run], [FIRST, SECOND], depth=30)
    tasks, sources = tasks_of(candidates, {}, seed=1)
    ranks = [sources[task.id].ranks["run.jsonl"] for task in tasks]
    assert sorted(ranks[:30]) == list(range(1, 31))
    assert ranks[:30] != list(range(1, 31))
    assert ranks[:30] != ranks[30:]
    assert [task.query_id for task in tasks] == ["q1"] * 30 + ["q2"] * 30  # one query at a time
    assert [task.id for task in tasks[:2]] == ["t01", "t02"]
    assert tasks_of(candidates, {}, seed=1) == (tasks, sources)
    assert tasks_of(candidates, {}, seed=2)[0] != tasks


def test_first_batches_come_before_second_ones(captions: Annotations) -> None:
    candidates = by_caption(captions, captions.queries[:2], WordEncoder(), batch=2, batches=2)
    tasks, sources = tasks_of(candidates, {video.id: video for video in captions.videos})
    assert [task.batch for task in tasks] == [1, 1, 1, 1, 2, 2, 2, 2]
    assert all((sources[task.id].ranks["captions"] > 2) == (task.batch == 2) for task in tasks)
    assert {task.duration for task in tasks} == {30.0}


def test_moments_are_cut_at_the_end_of_their_video(tmp_path: Path) -> None:
    run = open_run(run_file(tmp_path / "run.jsonl", {"q1": [("a", 8, 12), ("a", 0, 3)]}))
    candidates = by_runs([run], [FIRST])
    tasks, _ = tasks_of(candidates, {"a": Video("a", 10.0)})
    assert {task.moment for task in tasks} == {Moment("a", 8, 10), Moment("a", 0, 3)}
    with pytest.raises(UsageError, match="8-12 s is after the end of video 'a', 7 s; is it the recording"):
        tasks_of(candidates, {"a": Video("a", 7.0)})


def test_random_moments_beside_the_best_ones_say_their_rank_and_open_no_batch(
    captions: Annotations, tmp_path: Path
) -> None:
    best = by_caption(captions, captions.queries[:1], WordEncoder(), batch=1, batches=2)
    both = by_caption(captions, captions.queries[:1], WordEncoder(), 1, 2, random=2, seed=3)
    assert both[: len(best)] == best
    others = both[len(best) :]
    assert len(others) == 2 and all(c.batch == 1 for c in others)
    ranks = [c.source.ranks["random"] for c in others]
    assert all(rank > 2 for rank in ranks) and ranks == sorted(ranks)
    assert {c.moment for c in others}.isdisjoint(c.moment for c in best)
    assert all(c.source.caption and c.source.similarity is not None for c in both)
    tasks, sources = tasks_of(both, {})
    made = TaskSet(tmp_path / "set", "one", tuple(tasks), {c.moment.video_id: "" for c in both})
    made.write(sources)
    ends = TaskSet.open(tmp_path / "set").batch_ends
    assert {sources[task_id].ranks["captions"] for of_batch in ends.values() for task_id in of_batch} == {
        1,
        2,
    }
