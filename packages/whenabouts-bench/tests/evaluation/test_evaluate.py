"""Evaluation against a plain-Python oracle, and what must hold for any judgements and any run."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

import whenabouts
from whenabouts.types import Judgement, Moment, Run, ScoredMoment, UsageError
from whenabouts_bench import formats
from whenabouts_bench.evaluation.comparison import clusters_of, compare
from whenabouts_bench.evaluation.evaluate import evaluate
from whenabouts_bench.evaluation.protocols import PROTOCOLS, Protocol, protocol_for
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.runs import RANKED_CORPUS, MemoryRun, Task

ROOT = Path(__file__).resolve().parents[4]


def _plain() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "plain_evaluation", ROOT / "benchmarks" / "plain_evaluation.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


plain = _plain()

# Times on a coarse grid, so that equal spans, touching spans and IoU at the threshold all come often.
SPAN = st.tuples(st.integers(0, 8), st.integers(1, 8)).map(lambda t: (float(t[0]), float(t[0] + t[1])))
VIDEO = st.sampled_from(["a", "b", "c"])
QUERY = st.sampled_from([f"q{n}" for n in range(5)])
GRADE = st.sampled_from([0.0, 1.0, 2.0, 4.0])
JUDGED = st.lists(st.tuples(VIDEO, SPAN, GRADE), min_size=1, max_size=5)
TRUTH = st.dictionaries(QUERY, JUDGED, min_size=1, max_size=5)
ANSWERS = st.lists(st.tuples(st.sampled_from(["a", "b", "c", "elsewhere"]), SPAN), max_size=8)
RUN = st.dictionaries(QUERY, ANSWERS, max_size=5)

EXACT = Protocol("exact", 1, "", ())


def qrels_of(truth: dict[str, Any]) -> dict[str, list[Judgement]]:
    return {q: [Judgement(Moment(v, *span), grade) for v, span, grade in rows] for q, rows in truth.items()}


def run_of(run: dict[str, Any]) -> dict[str, list[ScoredMoment]]:
    return {
        q: [ScoredMoment(Moment(v, *span), -float(rank)) for rank, (v, span) in enumerate(rows)]
        for q, rows in run.items()
    }


def fits(truth: dict[str, Any], run: dict[str, Any]) -> bool:
    """Whether the run answers a judged query; other runs are refused (tested below)."""
    return bool(set(truth) & set(run))


def flat(rows: dict[str, Any]) -> dict[str, Any]:
    return {
        q: [(row[0], *row[1], row[2] if len(row) > 2 else 0.0) for row in of_query]
        for q, of_query in rows.items()
    }


def by_query(
    truth: dict[str, Any], run: dict[str, Any], metric: str, protocol: Protocol = EXACT
) -> dict[str, float]:
    task: Task = "SVMR" if metric.startswith("SVMR") else "VCMR"
    answers = MemoryRun.from_run(run_of(run), task=task)
    result = evaluate(qrels_of(truth), answers, [metric], protocol=protocol)
    return dict(zip(result.query_ids, result.column(result.metrics[0]).tolist(), strict=True))


@settings(max_examples=60)
@given(
    TRUTH,
    RUN,
    st.integers(1, 6),
    st.sampled_from([0.25, 0.5, 0.75, 1.0]),
    st.sampled_from(["VCMR", "SVMR", "VR"]),
)
def test_recall_is_what_plain_python_says(
    truth: dict[str, Any], run: dict[str, Any], k: int, least: float, task: str
) -> None:
    if not fits(truth, run):
        return
    name = f"VR R@{k}" if task == "VR" else f"{task} R@{k},IoU={least}"
    assert by_query(truth, run, name) == plain.recall(flat(truth), flat(run), k, least, task)


@settings(max_examples=60)
@given(TRUTH, RUN, st.integers(1, 6), st.sampled_from([0.25, 0.5, 0.75]), st.booleans(), st.booleans())
def test_ndcg_is_what_plain_python_says(
    truth: dict[str, Any], run: dict[str, Any], k: int, least: float, exponential: bool, strict: bool
) -> None:
    if not fits(truth, run):
        return
    protocol = Protocol("p", 1, "", (), gain="exponential" if exponential else "linear", strict=strict)
    expected = plain.ndcg(flat(truth), flat(run), k, least, exponential=exponential, strict=strict)
    assert by_query(truth, run, f"nDCG@{k},IoU={least}", protocol) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=60)
@given(TRUTH, RUN, st.sampled_from([0.25, 0.5, 0.75]))
def test_average_precision_is_what_plain_python_says(
    truth: dict[str, Any], run: dict[str, Any], least: float
) -> None:
    if not fits(truth, run):
        return
    expected = plain.average_precision(flat(truth), flat(run), least)
    got = by_query(truth, run, f"mAP,IoU={least}")
    assert got == pytest.approx(expected, abs=1e-12)


@settings(max_examples=40)
@given(st.lists(GRADE, min_size=2, max_size=8), st.integers(1, 8), st.randoms())
def test_the_rank_part_of_ndcg_is_that_of_scikit_learn(grades: list[float], k: int, random: Any) -> None:
    if not any(grades):
        return
    order = list(range(len(grades)))
    random.shuffle(order)
    truth = {"q": [("a", (10.0 * n, 10.0 * n + 5), grade) for n, grade in enumerate(grades)]}
    run = {"q": [("a", (10.0 * n, 10.0 * n + 5)) for n in order]}
    scores = np.zeros(len(grades))
    scores[order] = np.arange(len(grades), 0, -1)
    expected = ndcg_score([grades], [scores], k=k)
    assert by_query(truth, run, f"nDCG@{k},IoU=1")["q"] == pytest.approx(expected, abs=1e-12)


ALL = [
    "R@1,IoU=0.5",
    "R@3,IoU=0.5",
    "SVMR R@2,IoU=0.3",
    "VR R@2",
    "nDCG@3,IoU=0.5",
    "mAP",
    "mAP,IoU=0.5",
    "mIoU",
]


@settings(max_examples=40)
@given(TRUTH, RUN, st.sampled_from(sorted(set(PROTOCOLS) - {"didemo"})))
def test_every_value_is_a_fraction_or_does_not_apply(truth: Any, run: Any, protocol: str) -> None:
    if not fits(truth, run):
        return
    collector = AnnotationBuilder("pooled")
    for query, rows in truth.items():
        collector.add_query(query)
        for video, (start, end), grade in rows:
            collector.judge(query, video, start, end, grade)
        collector.set_pool(query, ["a", "b", "c"])
    values = evaluate(collector.annotations(), run_of(run), ALL, protocol=protocol).values
    assert ((values >= 0) & (values <= 1) | np.isnan(values)).all()


@settings(max_examples=40)
@given(TRUTH, RUN)
def test_recall_grows_with_k_and_shrinks_with_iou(truth: Any, run: Any) -> None:
    if not fits(truth, run):
        return
    names = [f"R@{k},IoU={iou}" for k in (1, 2, 4) for iou in (0.3, 0.5, 0.7)]
    grid = evaluate(qrels_of(truth), run_of(run), names, protocol=EXACT).values.reshape(-1, 3, 3)
    assert (np.diff(grid, axis=1) >= 0).all()
    assert (np.diff(grid, axis=2) <= 0).all()


@pytest.mark.slow
@settings(max_examples=40)
@given(TRUTH, RUN, st.floats(-1e6, 1e6), st.randoms())
def test_names_shifts_of_scores_and_the_order_of_things_change_nothing(
    truth: Any, run: Any, shift: float, random: Any
) -> None:
    if not fits(truth, run):
        return
    before = evaluate(qrels_of(truth), run_of(run), ALL, protocol=EXACT)
    # The first judgement determines the video of SVMR, so only the order of queries is shuffled.
    queries = list(truth)
    random.shuffle(queries)
    renamed = {
        f"x{q}": [
            Judgement(Moment(f"v{j.moment.video_id}", j.moment.start, j.moment.end), j.relevance)
            for j in rows
        ]
        for q, rows in qrels_of({q: truth[q] for q in queries}).items()
    }
    answers = {
        f"x{q}": [
            ScoredMoment(
                Moment(f"v{s.moment.video_id}", s.moment.start, s.moment.end), s.score + round(shift)
            )
            for s in random.sample(rows, len(rows))
        ]
        for q, rows in reversed(run_of(run).items())
    }
    after = evaluate(renamed, answers, ALL, protocol=EXACT)
    order = [after.query_ids.index(f"x{q}") for q in before.query_ids]
    np.testing.assert_allclose(after.values[order], before.values, atol=1e-12)


@pytest.mark.slow
@settings(max_examples=40)
@given(RUN, st.randoms())
def test_equal_scores_come_in_the_order_of_their_moments_however_they_arrive(run: Any, random: Any) -> None:
    truth = {"q0": [Judgement(Moment("b", 1.0, 4.0)), Judgement(Moment("a", 2.0, 4.0), 2.0)]}
    answers = {q: [ScoredMoment(Moment(v, *span), 0.5) for v, span in rows] for q, rows in run.items()}
    if "q0" not in answers:
        return
    shuffled = {q: random.sample(rows, len(rows)) for q, rows in answers.items()}
    before, after = (evaluate(truth, rows, ALL, protocol=EXACT) for rows in (answers, shuffled))
    np.testing.assert_array_equal(before.values, after.values)


def test_a_run_in_many_blocks_gives_the_same_numbers() -> None:
    rng = np.random.default_rng(0)
    truth, run = random_data(rng, 50, 30)
    whole = MemoryRun.from_run(run)
    parts = MemoryRun(
        "parts",
        {"VCMR": tuple(MemoryRun.from_run({q: run[q]}).lists["VCMR"][0] for q in run)},
        RANKED_CORPUS,
    )
    one = evaluate(truth, whole, ALL, protocol="vcmr")
    many = evaluate(truth, parts, ALL, protocol="vcmr")
    np.testing.assert_array_equal(one.values, many.values)


def random_data(rng: np.random.Generator, queries: int, rows: int) -> tuple[dict[str, Any], dict[str, Any]]:
    truth, run = {}, {}
    for number in range(queries):
        starts = rng.uniform(0, 50, rows)
        truth[f"q{number}"] = [
            Judgement(Moment(f"v{rng.integers(5)}", s, s + rng.uniform(2, 20)), float(rng.integers(0, 5)))
            for s in rng.uniform(0, 50, 4)
        ]
        run[f"q{number}"] = [
            ScoredMoment(Moment(f"v{rng.integers(5)}", s, s + rng.uniform(2, 20)), float(rng.normal()))
            for s in starts
        ]
    return truth, run


# What is said of the run ---------------------------------------------------------------------------

ONE = {"q": [Judgement(Moment("v", 0.0, 10.0))], "other": [Judgement(Moment("w", 0.0, 10.0))]}
ANSWER = {"q": [ScoredMoment(Moment("v", 0.0, 10.0), 1.0)]}


def test_a_judged_query_that_is_not_answered_counts_as_zero_and_is_named() -> None:
    result = evaluate(ONE, ANSWER, ["R@1,IoU=0.5"])
    assert result.means() == {"R@1,IoU=0.5": 0.5}
    assert result.missing == ("other",)
    assert "1 judged queries are missing from the run, counted as 0 (other)" in result.lines()


def test_an_empty_list_is_an_answer_that_finds_nothing() -> None:
    result = evaluate(ONE, {**ANSWER, "other": []}, ["R@1,IoU=0.5", "nDCG@5,IoU=0.5", "VR R@1", "mIoU"])
    assert result.missing == ()
    assert set(result.means().values()) == {0.5}


def test_queries_that_are_not_judged_are_counted_and_refused_when_strict() -> None:
    run = {**ANSWER, "stranger": [ScoredMoment(Moment("v", 0.0, 1.0), 1.0)]}
    assert evaluate(ONE, run, ["R@1,IoU=0.5"]).unknown_queries == 1
    with pytest.raises(UsageError, match="'stranger' is not judged"):
        evaluate(ONE, run, ["R@1,IoU=0.5"], strict=True)


def test_videos_that_the_truth_does_not_name_are_counted_and_refused_when_strict() -> None:
    run = {"q": [ScoredMoment(Moment("nowhere", 0.0, 1.0), 2.0), *ANSWER["q"]]}
    assert evaluate(ONE, run, ["R@1,IoU=0.5"]).unknown_videos == 1
    with pytest.raises(UsageError, match="'nowhere' is not named"):
        evaluate(ONE, run, ["R@1,IoU=0.5"], strict=True)


def test_a_run_of_another_data_set_is_refused_with_both_kinds_of_ids() -> None:
    run = {f"x{n}": [ScoredMoment(Moment("v", 0.0, 1.0), 1.0)] for n in range(200)}
    truth = {**ONE, **{f"q{n}": ONE["q"] for n in range(200)}}
    with pytest.raises(UsageError, match=r"another data set .*'x0'.*'q'"):
        evaluate(truth, {**run, **ANSWER}, ["R@1,IoU=0.5"])


def test_a_small_part_of_a_runs_queries_may_be_judged() -> None:
    run = {f"x{n}": [ScoredMoment(Moment("v", 0.0, 1.0), 1.0)] for n in range(200)}
    result = evaluate(ONE, {**run, **ANSWER}, ["R@1,IoU=0.5"])
    assert result.means() == evaluate(ONE, ANSWER, ["R@1,IoU=0.5"]).means()
    assert result.unknown_queries == 200


def test_a_run_without_answers_is_refused() -> None:
    with pytest.raises(UsageError, match="has no answers"):
        evaluate(ONE, {}, ["R@1,IoU=0.5"])


def test_a_query_that_is_answered_twice_is_refused_across_blocks_and_within_one() -> None:
    block = MemoryRun.from_run(ANSWER).lists["VCMR"][0]
    with pytest.raises(UsageError, match="'q' is answered twice"):
        evaluate(ONE, MemoryRun("twice", {"VCMR": (block, block)}), ["R@1,IoU=0.5"])
    doubled = type(block)(
        ("q", "q"),
        np.array([0, 1, 2]),
        block.video_ids,
        np.repeat(block.video, 2),
        np.repeat(block.start, 2),
        np.repeat(block.end, 2),
        np.repeat(block.score, 2),
    )
    with pytest.raises(UsageError, match="'q' is answered twice"):
        evaluate(ONE, MemoryRun("twice", {"VCMR": (doubled,)}), ["R@1,IoU=0.5"])


def test_a_run_of_videos_tells_vr_and_nothing_else() -> None:
    block = MemoryRun.from_run(ANSWER).lists["VCMR"][0]
    nothing = np.full(1, np.nan)
    videos = MemoryRun(
        "videos",
        {
            "VR": (
                type(block)(
                    ("q",), block.offsets, block.video_ids, block.video, nothing, nothing, block.score
                ),
            )
        },
    )
    result = evaluate(ONE, videos)
    assert result.metrics == ("VR R@1", "VR R@5", "VR R@10", "VR R@100")
    assert result.means()["VR R@1"] == 0.5
    with pytest.raises(UsageError, match="has only VR, which"):
        evaluate(ONE, videos, ["R@1,IoU=0.5"])


def test_a_submission_of_one_list_tells_that_list_and_nothing_else() -> None:
    block = MemoryRun.from_run(ANSWER).lists["VCMR"][0]
    only = MemoryRun("only", {"SVMR": (block,)})
    assert all(name.startswith("SVMR ") for name in evaluate(ONE, only, protocol="tvr").metrics)
    with pytest.raises(UsageError, match="has only SVMR, which 'VR R@1'"):
        evaluate(ONE, only, ["VR R@1"])


def test_where_the_video_is_given_its_list_is_what_the_protocol_reads() -> None:
    """QVHighlights, whose systems find moments in the video of a query and choose none."""
    block = MemoryRun.from_run(ANSWER).lists["VCMR"][0]
    only = evaluate(ONE, MemoryRun("only", {"SVMR": (block,)}), protocol="qvh")
    whole = evaluate(ONE, MemoryRun("both", {"VCMR": (block,)}), protocol="qvh")
    assert only.means() == pytest.approx(whole.means(), nan_ok=True)
    assert only.metrics[:3] == ("R@1,IoU=0.5", "R@1,IoU=0.7", "mAP")
    with pytest.raises(UsageError, match="has only SVMR, which 'VR R@1'"):
        evaluate(ONE, MemoryRun("only", {"SVMR": (block,)}), ["VR R@1"], protocol="qvh")


def test_answers_in_the_own_video_are_not_taken_for_answers_in_a_pool() -> None:
    truth = judged(full=["v", "w"], short=["w", "v"]).annotations()
    run = {q: [ScoredMoment(Moment("v", 0.0, 10.0), 1.0)] for q in ("full", "short")}
    block = MemoryRun.from_run(run).lists["VCMR"][0]
    own = evaluate(truth, MemoryRun("given", {"SVMR": (block,)}), protocol="mvmr")
    pooled = evaluate(truth, MemoryRun("pooled", {"VCMR": (block,)}), protocol="mvmr")
    assert own.means() == pooled.means()
    assert own.is_given and any("own video" in note for note in own.notes)
    assert not pooled.is_given
    with pytest.raises(UsageError, match="given answers in each query's own video, pooled in its pool"):
        compare([pooled, own], clusters_of(truth))


TWO = {q: [Judgement(Moment(v, 0.0, 10.0))] for q, v in (("p", "v"), ("q", "w"))}


def answer(**videos: str) -> Run:
    """Moments of 10 s in some videos for each query, best first."""
    return {
        query: [ScoredMoment(Moment(video, 0.0, 10.0), -float(rank)) for rank, video in enumerate(names)]
        for query, names in videos.items()
    }


def unsaid(folder: Path, run: Run) -> Path:
    """A foreign run file that does not name its task."""
    path = folder / "run.jsonl"
    formats.write_run(MemoryRun.from_run(run), path, "jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text(
        "".join(json.dumps({k: line[k] for k in ("query_id", "moments")}) + "\n" for line in lines)
    )
    return path


def test_a_ranking_of_the_corpus_tells_nothing_of_the_given_video() -> None:
    block = MemoryRun.from_run(ANSWER).lists["VCMR"][0]
    result = evaluate(ONE, MemoryRun("one", {"VCMR": (block,)}), protocol="vcmr")
    told = {name: value for name, value in result.means().items() if not np.isnan(value)}
    assert told and not [name for name in told if name.startswith(("SVMR", "VR"))]
    assert set(result.not_answered) == {name for name in result.metrics if name.startswith(("SVMR", "VR"))}
    (note,) = (note for note in result.notes if note.startswith("SVMR and VR: no value, because this run"))
    assert "A trained system answers it by `run --task svmr`" in note
    assert result.to_json()["metrics"]["SVMR R@1,IoU=0.5"] is None
    assert next(result.per_query())["metrics"]["SVMR R@1,IoU=0.5"] is None
    assert np.isnan(evaluate(ONE, ANSWER, ["SVMR R@1,IoU=0.5"]).values).all()


def test_a_ranking_of_moments_alone_ranks_videos_by_their_best_moments() -> None:
    result = evaluate(TWO, answer(p="wvw", q="w"), ["VR R@1", "VR R@2", "SVMR R@1,IoU=0.5"])
    assert result.means() == pytest.approx(
        {"VR R@1": 0.5, "VR R@2": 1.0, "SVMR R@1,IoU=0.5": np.nan}, nan_ok=True
    )
    assert any(note.startswith("VR: videos are ranked by their best moments") for note in result.notes)


def test_what_was_not_judged_has_no_value_where_the_metric_has_none() -> None:
    result = evaluate(TWO, answer(p="wvw", q="w"), ["R@1,IoU=0.5", "SVMR R@1,IoU=0.5"], judged_iou=0.5)
    assert result.unjudged is not None
    of = result.unjudged.to_json(result.metrics)["metrics"]["SVMR R@1,IoU=0.5"]
    assert (of["condensed"], of["lower"], of["upper"]) == (None, None, None)


def test_a_run_that_leaves_the_own_video_anywhere_has_ranked_a_corpus(tmp_path: Path) -> None:
    result = evaluate(TWO, unsaid(tmp_path, answer(p="vw", q="ww")), protocol="vcmr")
    assert result.means()["R@1,IoU=0.5"] == result.means()["VR R@1"] == 1.0
    assert "SVMR R@1,IoU=0.5" in result.not_answered


def test_a_run_whose_moments_all_lie_in_the_own_video_was_given_it(tmp_path: Path) -> None:
    path = unsaid(tmp_path, answer(p="vv", q="ww"))
    result = evaluate(TWO, path, protocol="vcmr")
    assert {name.split()[0] for name in result.metrics} == {"SVMR"}
    assert result.means()["SVMR R@1,IoU=0.5"] == 1.0
    assert any("as if it had been given" in note for note in result.notes)
    with pytest.raises(UsageError, match=r"has only SVMR, which 'R@1,IoU=0.5'.*\"task\": \"VCMR\""):
        evaluate(TWO, path, ["R@1,IoU=0.5"])
    assert evaluate(TWO, path, ["R@1,IoU=0.5"], protocol="qvh").means() == {"R@1,IoU=0.5": 1.0}


def test_where_nothing_tells_both_tasks_read_the_same_moments(tmp_path: Path) -> None:
    names = ["R@1,IoU=0.5", "SVMR R@1,IoU=0.5", "VR R@1"]
    for truth, run in ((TWO, answer(p="v", q="w")), ({"p": TWO["p"]}, answer(p="vv"))):
        result = evaluate(truth, unsaid(tmp_path, run), names)
        assert list(result.means().values()) == [1.0, 1.0, 1.0]
        assert any("whether the videos were given cannot be seen" in note for note in result.notes)


def test_a_video_that_a_list_repeats_gains_once(tmp_path: Path) -> None:
    (tmp_path / "qrels").write_text("q 0 v 1\n")
    (tmp_path / "run").write_text("q Q0 w 1 3 x\nq Q0 v 2 2 x\nq Q0 v 3 1 x\n")
    result = evaluate(tmp_path / "qrels", tmp_path / "run", ["VR nDCG@10"], protocol="vcmr")
    assert result.values[0, 0] == pytest.approx(1 / np.log2(3))


def test_the_given_video_is_that_of_the_first_judgement_above_grade_zero(tmp_path: Path) -> None:
    truth = {q: [Judgement(Moment("x", 0.0, 5.0), 0.0), *judged] for q, judged in TWO.items()}
    annotations = Annotations.from_qrels(truth)
    assert annotations.given_videos == {"p": "v", "q": "w"}
    result = evaluate(annotations, unsaid(tmp_path, answer(p="vv", q="ww")), protocol="vcmr")
    assert result.means()["SVMR R@1,IoU=0.5"] == 1.0
    assert Annotations.from_qrels({"q": truth["q"][:1]}).given_videos == {"q": "x"}


def test_a_run_of_which_the_protocol_measures_nothing_is_refused() -> None:
    run = MemoryRun.from_run(answer(p="vv", q="ww"), task="SVMR")
    with pytest.raises(
        UsageError, match="it has only SVMR, and rvmr has no metric of that; use the protocol vcmr"
    ):
        evaluate(TWO, run, protocol="rvmr")


def test_judgements_of_videos_alone_measure_videos_alone(tmp_path: Path) -> None:
    (tmp_path / "qrels").write_text("p 0 v 1\nq 0 w 1\n")
    (tmp_path / "run").write_text("p Q0 v 1 3 x\nq Q0 v 1 2 x\n")
    result = evaluate(tmp_path / "qrels", tmp_path / "run", protocol="vcmr")
    assert (result.means()["VR R@1"], result.left_out) == (0.5, {})
    moments = evaluate(tmp_path / "qrels", answer(p="vw", q="wv"), ["VR R@1", "mIoU"], protocol="vcmr")
    assert moments.means() == pytest.approx({"VR R@1": 1.0, "mIoU": np.nan}, nan_ok=True)


def test_what_python_hands_over_must_be_moments_with_finite_scores() -> None:
    with pytest.raises(UsageError, match=r"'q': .* finite scores"):
        evaluate(ONE, {"q": [ScoredMoment(Moment("v", 0.0, 1.0), float("nan"))]}, ["mIoU"])
    with pytest.raises(UsageError, match=r"'q': .* are ScoredMoments"):
        evaluate(ONE, {"q": [("v", 0, 1)]}, ["mIoU"])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="are Judgements"):
        evaluate({"q": [Moment("v", 0.0, 1.0)]}, ANSWER, ["mIoU"])  # type: ignore[list-item]


# Protocols ----------------------------------------------------------------------------------------


def judged(**pools: list[str]) -> AnnotationBuilder:
    truth = AnnotationBuilder("truth")
    for query in ("full", "short"):
        truth.add_query(query)
        truth.judge(query, "v", 0, 10)
    for query, pool in pools.items():
        truth.set_pool(query, pool)
    return truth


def test_queries_without_a_full_pool_are_left_out_and_counted() -> None:
    truth = judged(full=["v", "w"], short=["v"]).annotations()
    run = {q: [ScoredMoment(Moment("v", 0.0, 10.0), 1.0)] for q in ("full", "short")}
    result = evaluate(truth, run, ["R@1,IoU=0.5"], protocol="mvmr")
    assert result.query_ids == ("full",)
    assert result.left_out == {"queries have no full pool": 1}


def test_pools_that_are_not_there_are_asked_for() -> None:
    with pytest.raises(UsageError, match="mvmr needs the pool of each query"):
        evaluate(ONE, ANSWER, ["R@1,IoU=0.5"], protocol="mvmr")


def test_a_grade_that_its_gain_cannot_hold_is_refused() -> None:
    truth = {"q": [Judgement(Moment("v", 0.0, 10.0), 2000.0)]}
    with pytest.raises(UsageError, match="grade 2000: the gain"):
        evaluate(truth, ANSWER, protocol="rvmr-spr")
    assert evaluate(truth, ANSWER, protocol="rvmr").means()["nDCG@10,IoU=0.5"] == 1


def test_moments_outside_the_pool_do_not_take_ranks() -> None:
    truth = judged(full=["v", "w"], short=["v", "w"]).annotations()
    run = {
        "full": [ScoredMoment(Moment("outside", 0.0, 10.0), 2.0), ScoredMoment(Moment("v", 0.0, 10.0), 1.0)]
    }
    assert evaluate(truth, run, ["R@1,IoU=0.5"], protocol="mvmr").column("R@1,IoU=0.5")[0] == 1


def test_spr_drops_grade_zero_and_queries_without_a_grade() -> None:
    truth = {
        "graded": [Judgement(Moment("v", 0.0, 10.0), 0.0), Judgement(Moment("v", 0.0, 9.0), 3.0)],
        "none": [Judgement(Moment("v", 0.0, 10.0), 0.0)],
    }
    run = {q: [ScoredMoment(Moment("v", 0.0, 10.0), 1.0)] for q in truth}
    paper = evaluate(truth, run, ["nDCG@10,IoU=0.5"], protocol="rvmr")
    spr = evaluate(truth, run, ["nDCG@10,IoU=0.5"], protocol="rvmr-spr")
    assert dict(zip(paper.query_ids, paper.values[:, 0], strict=True)) == {"graded": 0.0, "none": 0.0}
    assert dict(zip(spr.query_ids, spr.values[:, 0], strict=True)) == {"graded": 1.0}
    assert spr.left_out == {"queries have no relevant moment": 1}
    released = evaluate(truth, run, ["nDCG@10,IoU=0.5"], protocol="rvmr-spr-as-released")
    assert released.left_out == spr.left_out and released.notes[0] == spr.notes[0]


@pytest.mark.parametrize("protocol", [None, PROTOCOLS["rvmr"]])
def test_a_released_program_needs_the_name_of_its_protocol(protocol: Any) -> None:
    with pytest.raises(UsageError, match="name the protocol whose released program"):
        evaluate(ONE, ANSWER, protocol=protocol, as_released=True)


def test_a_released_variant_has_the_notes_of_the_rules_that_it_keeps() -> None:
    for name in ("mvmr", "rvmr-spr"):
        assert set(PROTOCOLS[name].notes) <= set(PROTOCOLS[f"{name}-as-released"].notes)


def test_decimals_that_are_equal_on_paper_are_equal_in_vcmr_and_as_released_in_tvr() -> None:
    truth = {"q": [Judgement(Moment("v", 1.1, 4.3))]}
    run = {"q": [ScoredMoment(Moment("v", 1.1, 2.7), 1.0)]}
    assert evaluate(truth, run, ["R@1,IoU=0.5"], protocol="vcmr").means()["R@1,IoU=0.5"] == 1
    assert evaluate(truth, run, ["R@1,IoU=0.5"], protocol="tvr").means()["R@1,IoU=0.5"] == 0


def test_a_query_whose_moments_have_no_length_is_left_out_of_vcmr_and_zero_in_tvr() -> None:
    truth = AnnotationBuilder("truth")
    truth.add_query("q")
    truth.add_query("empty")
    truth.judge("q", "v", 0, 10)
    truth.judge("empty", "v", 5, 5)
    run = {q: [ScoredMoment(Moment("v", 0.0, 10.0), 1.0)] for q in ("q", "empty")}
    strict = evaluate(truth.annotations(), run, ["R@1,IoU=0.5", "VR R@1"], protocol="tvr")
    assert strict.means() == {"R@1,IoU=0.5": 0.5, "VR R@1": 1.0}
    free = evaluate(truth.annotations(), run, ["R@1,IoU=0.5"], protocol="vcmr")
    assert free.means() == {"R@1,IoU=0.5": 1.0}
    assert free.left_out == {"queries have no moment with a length": 1}
    assert "left out, queries have no moment with a length: 1" in free.lines()


def test_the_judgements_choose_the_protocol() -> None:
    plain_truth = judged()
    assert protocol_for(plain_truth.annotations()).name == "vcmr"
    assert protocol_for(judged(full=["v"]).annotations()).name == "mvmr"
    unjudged = replace(plain_truth.annotations(), pools={"not judged": ("v",)})
    assert protocol_for(unjudged).name == "vcmr"
    graded = Annotations.from_qrels({"q": [Judgement(Moment("v", 0, 1), g) for g in (1.0, 3.0)]})
    assert protocol_for(graded).name == "rvmr"
    typed = AnnotationBuilder("tvr")
    typed.add_query("1", "text", type="vt")
    typed.judge("1", "v", 0, 1)
    assert protocol_for(typed.annotations()).name == "tvr"
    lit = AnnotationBuilder("qvh")
    lit.add_query("1", "text", saliency_scores=[[1, 1, 1]], relevant_clip_ids=[0])
    lit.judge("1", "v", 0, 2)
    assert protocol_for(lit.annotations()).name == "qvh"


# The face of it -----------------------------------------------------------------------------------


def test_the_package_itself_has_evaluate() -> None:
    assert whenabouts.evaluate(ONE, ANSWER, ["R@1,IoU=0.5"]).means() == {"R@1,IoU=0.5": 0.5}


def test_values_are_unrounded_and_json_has_the_documented_names() -> None:
    truth = {f"q{n}": [Judgement(Moment("v", 0.0, 10.0))] for n in range(3)}
    result = evaluate(truth, {"q0": ANSWER["q"]}, ["R@1,IoU=0.5"])
    told = json.loads(json.dumps(result.to_json()))
    assert told["metrics"] == {"R@1,IoU=0.5": 1 / 3}
    assert (told["protocol"], told["queries"], told["missing_queries"]) == ("vcmr@1", 3, 2)
    assert [line["query_id"] for line in result.per_query()] == ["q0", "q1", "q2"]


def test_judgements_of_nothing_are_told_so() -> None:
    with pytest.raises(UsageError, match="has no judgements"):
        evaluate({}, {"q": [ScoredMoment(Moment("v", 0.0, 1.0), 1.0)]}, ["R@1,IoU=0.5"])
