"""Unjudged answers: each metric's bounds against all possible grades, condensed lists, messages."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whenabouts.cli.main import main
from whenabouts.intake.files import FormatError
from whenabouts.overlap import temporal_iou
from whenabouts.types import Judgement, Moment, Run, ScoredMoment, UsageError
from whenabouts_bench.evaluation.bounds import BOUNDS
from whenabouts_bench.evaluation.comparison import Settings, compare, possible_difference
from whenabouts_bench.evaluation.evaluate import Evaluation, evaluate
from whenabouts_bench.evaluation.metrics import MEASURES
from whenabouts_bench.evaluation.protocols import PROTOCOLS, Protocol
from whenabouts_bench.formats import read_annotations
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.formats.runs import MemoryRun

EXACT = Protocol("exact", 1, "", ())
EXPONENTIAL = replace(EXACT, gain="exponential")
BY_SCORE = replace(EXACT, by_score=True)
METRICS = [
    "R@1,IoU=0.5",
    "R@3,IoU=0.7",
    "R@2,IoU=0.5,length=short",
    "SVMR R@2,IoU=0.3",
    "VR R@2",
    "VR nDCG@3",
    "nDCG@2,IoU=0.5",
    "nDCG@5,IoU=0.3",
    "SVMR nDCG@3,IoU=0.5",
    "mAP",
    "mAP@3,IoU=0.5",
    "mAP,IoU=0.7",
    "mIoU",
    "R@2,IoU=0.5,grade>=2",
    "mAP@3,IoU=0.5,grade>=2",
    "mIoU,grade>=2",
]
MOST = 2

# Disjoint slots of 10 s, whose judgements are independent. A row lies in a slot, whole
# or with its last seconds missing (IoU 1, 0.8, 0.6, 0.2).
Row = tuple[int, int]
ROWS = st.lists(st.tuples(st.integers(0, 7), st.sampled_from([10, 8, 6, 2])), min_size=1, max_size=6)
JUDGED = st.dictionaries(st.integers(0, 7), st.integers(0, MOST), min_size=1, max_size=5)


def moment_of(row: Row) -> Moment:
    slot, seconds = row
    return Moment(f"v{slot % 3}", 20.0 * slot, 20.0 * slot + seconds)


def pooled(qrels: dict[str, list[Judgement]], most_grade: float | None = MOST) -> Annotations:
    return replace(Annotations.from_qrels(qrels), most_grade=most_grade)


def run_for(metric: str, answers: Run) -> MemoryRun:
    """Answers to the task of a metric."""
    return MemoryRun.from_run(answers, task="SVMR" if metric.startswith("SVMR") else "VCMR")


def judged_of(grades: dict[int, int]) -> list[Judgement]:
    return [Judgement(moment_of((slot, 10)), float(grade)) for slot, grade in grades.items()]


def answers_of(rows: list[Row]) -> list[ScoredMoment]:
    return [ScoredMoment(moment_of(row), -float(rank)) for rank, row in enumerate(rows)]


def unjudged_of(rows: list[ScoredMoment], judged: list[Judgement], least: float = 0.5) -> list[ScoredMoment]:
    """The answers that share less than `least` with every judged moment, in plain Python."""

    def nearest(moment: Moment) -> float:
        own = [j.moment for j in judged if j.moment.video_id == moment.video_id]
        return max((float(temporal_iou(moment.start, moment.end, m.start, m.end)) for m in own), default=0.0)

    return [row for row in rows if nearest(row.moment) < least]


def one_of_each_slot(grades: dict[int, int], rows: list[Row]) -> list[Row]:
    """The rows without those whose new judgement would also be met by another row."""
    kept: list[Row] = []
    for slot, seconds in rows:
        again = slot in [other for other, _ in kept]
        if seconds >= 6 if slot in grades else not again:
            kept.append((slot, seconds))
    return kept


@settings(max_examples=40)
@given(JUDGED, ROWS, st.sampled_from(METRICS), st.sampled_from([EXACT, EXPONENTIAL, BY_SCORE]))
def test_the_bounds_are_the_least_and_greatest_value_over_all_grades_of_unjudged_answers(
    grades: dict[int, int], rows: list[Row], metric: str, protocol: Protocol
) -> None:
    rows = one_of_each_slot(grades, rows)
    if not rows:
        return
    judged, answers = judged_of(grades), answers_of(rows)
    result = evaluate(pooled({"q": judged}), run_for(metric, {"q": answers}), [metric], protocol=protocol)
    assert result.unjudged is not None
    if np.isnan(result.values).any():
        assert np.isnan(result.unjudged.lower).all() and np.isnan(result.unjudged.unjudged).all()
        return
    # Only what the metric reads may get a grade: SVMR reads one video, R@2 two rows.
    given = next((j for j in judged if j.relevance), judged[0]).moment.video_id
    read = [a for a in answers if not metric.startswith("SVMR") or a.moment.video_id == given]
    depth = 1 if metric.startswith("mIoU") else int(metric.partition("@")[2].partition(",")[0] or len(rows))
    if metric.startswith("VR"):
        first = {a.moment.video_id: a for a in reversed(read)}
        known = {j.moment.video_id for j in judged}
        read = sorted(first.values(), key=lambda a: -a.score)[:depth]
        unjudged = [a for a in read if a.moment.video_id not in known]
    else:
        read = read[:depth]
        unjudged = unjudged_of(read, judged)
    assert result.unjudged.unjudged[0, 0] == len(unjudged)
    assert result.unjudged.answers[0, 0] == len(read)
    # Each assignment is a query of its own, so that one evaluation goes through all of them.
    worlds = itertools.product(range(MOST + 1), repeat=len(unjudged))
    qrels = {
        str(number): [
            *judged,
            *(Judgement(a.moment, float(g)) for a, g in zip(unjudged, world, strict=True)),
        ]
        for number, world in enumerate(worlds)
    }
    everywhere = run_for(metric, dict.fromkeys(qrels, answers))
    values = evaluate(pooled(qrels), everywhere, [metric], protocol=protocol).values
    assert result.unjudged.lower[0, 0] == pytest.approx(values.min(), abs=1e-12)
    assert result.unjudged.upper[0, 0] == pytest.approx(values.max(), abs=1e-12)
    assert values[0, 0] == result.values[0, 0]  # all of them wrong: the value as judged


def test_a_video_that_a_list_of_videos_repeats_is_right_once() -> None:
    """Bounds of nDCG that count it twice exceed what any grade of the video gives."""
    judged, metric = [Judgement(Moment("v0", 0, 5), 2.0)], "VR nDCG@2"
    answers = [ScoredMoment(Moment("v1", 0, 5), 2.0), ScoredMoment(Moment("v1", 5, 9), 1.0)]
    run = MemoryRun.from_run({str(grade): answers for grade in range(MOST + 1)}, task="VR")
    graded = {str(g): [*judged, Judgement(Moment("v1", 0, 5), float(g))] for g in range(MOST + 1)}
    values = evaluate(pooled(graded), run, [metric], protocol=EXACT).values
    result = evaluate(pooled({"0": judged}), run, [metric], protocol=EXACT)
    assert result.unjudged is not None and result.unjudged.unjudged[0, 0] == 2
    assert result.unjudged.lower[0, 0] == pytest.approx(values.min())
    assert result.unjudged.upper[0, 0] == pytest.approx(values.max()) and values.max() < 1


# Any spans, so that answers overlap each other and the judged moments in every way.
SPAN = st.tuples(st.integers(0, 8), st.integers(1, 8)).map(lambda t: (float(t[0]), float(t[0] + t[1])))
MOMENT = st.tuples(st.sampled_from("abc"), SPAN).map(lambda t: Moment(t[0], *t[1]))
TRUTH = st.dictionaries(
    st.sampled_from("xyz"),
    st.lists(st.tuples(MOMENT, st.sampled_from([0.0, 1.0, 2.0])), min_size=1, max_size=4),
    min_size=1,
).map(lambda truth: {q: [Judgement(m, g) for m, g in rows] for q, rows in truth.items()})
LISTS = st.lists(MOMENT, max_size=6).map(lambda ms: [ScoredMoment(m, -float(n)) for n, m in enumerate(ms)])


@pytest.mark.slow
@settings(max_examples=40)
@given(TRUTH, LISTS, st.sampled_from(sorted(set(PROTOCOLS) - {"mvmr", "mvmr-as-released", "didemo"})))
def test_what_stands_lies_between_the_bounds_and_these_in_0_and_1(
    truth: Any, answers: list[ScoredMoment], protocol: str
) -> None:
    run = dict.fromkeys(truth, answers)
    result = evaluate(pooled(truth), run, METRICS, protocol=protocol)
    assert result.unjudged is not None
    lower, upper, condensed = (getattr(result.unjudged, n) for n in ("lower", "upper", "condensed"))
    applies = ~np.isnan(result.values)
    assert (lower <= result.values)[applies].all() and (result.values <= upper)[applies].all()
    assert (lower >= 0)[applies].all() and (upper <= 1 + 1e-12)[applies].all()
    assert (np.isnan(condensed) == ~applies).all()
    assert (result.unjudged.unjudged <= result.unjudged.answers)[applies].all()


@settings(max_examples=40)
@given(TRUTH, LISTS, st.sampled_from([0.25, 0.5, 0.75]))
def test_a_condensed_list_is_the_list_without_its_unjudged_answers(
    truth: Any, answers: list[ScoredMoment], judged_iou: float
) -> None:
    metrics = [f"R@2,IoU={judged_iou}", f"nDCG@3,IoU={judged_iou}", f"mAP,IoU={judged_iou}", "mIoU"]
    run = dict.fromkeys(truth, answers)
    result = evaluate(truth, run, metrics, protocol=EXACT, judged_iou=judged_iou)
    taken_out = {
        q: [a for a in answers if a not in unjudged_of(answers, truth[q], judged_iou)] for q in truth
    }
    expected = evaluate(truth, taken_out, metrics, protocol=EXACT)
    assert result.unjudged is not None
    np.testing.assert_array_equal(result.unjudged.condensed, expected.values)
    np.testing.assert_array_equal(result.on_condensed_lists().values, expected.values)


@pytest.mark.slow
@settings(max_examples=30)
@given(TRUTH, st.randoms(), st.sampled_from(["rvmr", "rvmr-as-released", "rvmr-spr", "vcmr", "qvh", "tvr"]))
def test_where_all_answers_are_judged_condensed_and_bounds_are_the_value_itself(
    truth: Any, random: Any, protocol: str
) -> None:
    run = {
        q: [ScoredMoment(j.moment, -float(n)) for n, j in enumerate(random.sample(judged, len(judged)))]
        for q, judged in truth.items()
    }
    result = evaluate(pooled(truth), run, METRICS, protocol=protocol)
    assert result.unjudged is not None and not np.nansum(result.unjudged.unjudged)
    for name in ("condensed", "lower", "upper"):
        np.testing.assert_array_equal(getattr(result.unjudged, name), result.values)


def test_a_right_answer_low_in_the_list_may_lower_ndcg_and_the_ideal_list_grows_with_it() -> None:
    judged = [Judgement(Moment("v", 0, 10), 1.0)]
    answers = [ScoredMoment(Moment("v", 0, 10), 2.0), ScoredMoment(Moment("w", 0, 10), 1.0)]
    result = evaluate(pooled({"q": judged}, 4), {"q": answers}, ["nDCG@2,IoU=0.5"], protocol="rvmr")
    assert result.unjudged is not None
    numbers = result.unjudged.means(result.metrics)["nDCG@2,IoU=0.5"]
    second = 1 / np.log2(3)
    assert numbers["upper"] == 1.0
    assert numbers["lower"] == pytest.approx((1 + 4 * second) / (4 + second))


def test_an_answer_that_hits_as_the_metric_counts_is_judged_whatever_the_threshold_says() -> None:
    qrels = {"q": [Judgement(Moment("v", 0, 10))]}
    run = {"q": [ScoredMoment(Moment("v", 0, 4), 1.0)]}  # IoU 0.4
    result = evaluate(qrels, run, ["R@1,IoU=0.3", "R@1,IoU=0.5"], judged_iou=0.9)
    assert result.unjudged is not None
    assert result.unjudged.unjudged.tolist() == [[0, 1]]


def test_every_metric_of_moments_has_bounds() -> None:
    assert {measure.name for measure in MEASURES if "HL" not in measure.tasks} == set(BOUNDS)


@pytest.mark.parametrize("threshold", [0.0, -1.0, 1.5, float("nan")])
def test_a_threshold_that_is_no_iou_is_refused(threshold: float) -> None:
    with pytest.raises(UsageError, match=r"judged IoU .* must lie above 0"):
        evaluate({"q": []}, {"q": []}, ["mIoU"], judged_iou=threshold)


def test_without_pools_nothing_is_said_and_condensed_lists_are_refused() -> None:
    qrels, run = {"q": [Judgement(Moment("v", 0, 1))]}, {"q": [ScoredMoment(Moment("w", 0, 1), 1.0)]}
    result = evaluate(qrels, run, ["mIoU"])
    assert result.unjudged is None
    assert "unjudged" not in result.to_json() and "unjudged" not in next(iter(result.per_query()))
    with pytest.raises(UsageError, match="no condensed lists"):
        result.on_condensed_lists()


# Comparisons ---------------------------------------------------------------------------------------


def evaluation(name: str, hits: list[list[ScoredMoment]]) -> Evaluation:
    qrels = {
        f"q{n}": [Judgement(Moment("v", 0, 10)), Judgement(Moment("v", 20, 30), 0.0)]
        for n in range(len(hits))
    }
    run = {f"q{n}": rows for n, rows in enumerate(hits)}
    result = evaluate(pooled(qrels, 1), run, ["R@1,IoU=0.5"], protocol="vcmr")
    return replace(result, run=name)


def at(start: float) -> list[ScoredMoment]:
    return [ScoredMoment(Moment("v", start, start + 10), 1.0)]


RIGHT, WRONG, OPEN = at(0), at(20), at(40)


def test_a_comparison_says_when_the_unjudged_answers_could_turn_it() -> None:
    old = evaluation("old", [WRONG] * 20)
    new = evaluation("new", [RIGHT] * 9 + [OPEN] * 11)
    other = evaluation("other", [OPEN] * 20)
    told = compare([old, new, other], None, settings=Settings(resamples=400))
    assert told.unjudged is not None
    assert told.unjudged.limits["R@1,IoU=0.5", "new", "old"] == (0.45, 1.0)
    assert told.unjudged.settled("R@1,IoU=0.5", "new", "old")
    assert told.unjudged.limits["R@1,IoU=0.5", "other", "old"] == (0.0, 1.0)
    assert not told.unjudged.settled("R@1,IoU=0.5", "other", "old")
    table = "\n".join(told.table())
    assert "not judged: 11 of 20 answers of new, 20 of 20 answers of other; without these:" in table
    assert (
        "new - old: +45.00 to +100.00 possible: its sign is the same for any grades of the unjudged answers"
        in table
    )
    assert "other - old: +0.00 to +100.00 possible: NO VERDICT" in table


SLOTS = st.permutations(range(8)).flatmap(lambda slots: st.integers(1, 5).map(lambda n: slots[:n]))


@pytest.mark.slow
@settings(max_examples=60)
@given(
    JUDGED, SLOTS, SLOTS, st.lists(st.sampled_from([10, 8, 6]), min_size=8, max_size=8),
    st.sampled_from(["R@1,IoU=0.5", "R@2,IoU=0.5", "R@3,IoU=0.3", "SVMR R@2,IoU=0.5", "VR R@2", "mIoU"]),
)  # fmt: skip
def test_a_difference_of_hits_has_the_limits_of_all_grades_of_both_runs_together(
    grades: dict[int, int], own: list[int], other: list[int], seconds: list[int], metric: str
) -> None:
    judged = judged_of(grades)
    runs = [answers_of([(slot, seconds[slot]) for slot in slots]) for slots in (own, other)]
    one, two = (
        evaluate(pooled({"q": judged}), run_for(metric, {"q": answers}), [metric], protocol=EXACT)
        for answers in runs
    )
    possible = possible_difference(one, two, metric)
    # Any unjudged answer of either run may be right; for VR, any video without judgement.
    known = {j.moment.video_id for j in judged}
    union = {a.moment: a for answers in runs for a in answers}.values()
    unjudged = [
        a
        for a in (union if metric.startswith("VR") else unjudged_of(list(union), judged))
        if not metric.startswith("VR") or a.moment.video_id not in known
    ]
    worlds = itertools.product((0, 1), repeat=len(unjudged))
    qrels = {
        str(number): [
            *judged,
            *(Judgement(a.moment, float(g)) for a, g in zip(unjudged, world, strict=True)),
        ]
        for number, world in enumerate(worlds)
    }
    first, second = (
        evaluate(qrels, run_for(metric, dict.fromkeys(qrels, answers)), [metric], protocol=EXACT).values
        for answers in runs
    )
    assert possible == pytest.approx(((first - second).min(), (first - second).max()), abs=1e-12)


def test_a_shared_answer_turns_nothing() -> None:
    old = evaluation("old", [OPEN] * 10)
    new = evaluation("new", [OPEN] * 9 + [RIGHT])
    told = compare([old, new], None, settings=Settings(resamples=400))
    assert told.unjudged is not None
    assert told.unjudged.limits["R@1,IoU=0.5", "new", "old"] == (0.0, 0.1)


def test_condensed_differences_have_the_intervals_and_tests_of_the_condensed_values() -> None:
    old = evaluation("old", [WRONG] * 15 + [OPEN] * 5)
    new = evaluation("new", [RIGHT] * 9 + [[*OPEN, ScoredMoment(Moment("v", 0, 10), 0.5)]] * 11)
    told = compare([old, new], None, settings=Settings(resamples=400))
    alone = compare(
        [old.on_condensed_lists(), new.on_condensed_lists()], None, settings=Settings(resamples=400)
    )
    assert told.unjudged is not None and told.unjudged.condensed.differences == alone.differences
    assert told.differences[0].difference.value == pytest.approx(0.45)
    assert alone.differences[0].difference.value == 1.0
    (pair,) = json.loads(json.dumps(told.to_json()))["unjudged"]["condensed"]["comparisons"]
    numbers = pair["metrics"]["R@1,IoU=0.5"]
    assert numbers["difference"] == 1.0 and numbers["verdict"] == "better"
    assert (numbers["lower"], numbers["upper"], numbers["settled"]) == (pytest.approx(0.45), 0.75, True)


def test_where_all_was_judged_a_comparison_says_so() -> None:
    told = compare([evaluation("old", [WRONG] * 3), evaluation("new", [RIGHT] * 3)], None)
    assert "  all answers that it reads were judged" in told.table()


# Files ---------------------------------------------------------------------------------------------


@pytest.fixture()
def folder(tmp_path: Path) -> Path:
    """Judgements of two queries in a folder, and two runs beside it."""
    truth = tmp_path / "truth"
    truth.mkdir()
    rows = [
        {"query_id": q, "video_id": "v", "start": start, "end": start + 10, "relevance": grade}
        for q in ("a", "b")
        for start, grade in ((0.0, 3), (20.0, 0))
    ]
    (truth / "qrels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (truth / "pooled.json").write_text('{"most_grade": 4}')
    for name, start in (("old", 20.0), ("new", 40.0)):
        moment = {"video_id": "v", "start": start, "end": start + 10, "score": 1.0}
        lines = [json.dumps({"query_id": q, "moments": [moment]}) + "\n" for q in ("a", "b")]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    return tmp_path


def test_a_folder_with_pooled_json_holds_pools(folder: Path) -> None:
    assert read_annotations(folder / "truth").most_grade == 4
    (folder / "truth" / "pooled.json").unlink()
    assert read_annotations(folder / "truth").most_grade is None


def test_a_pooled_json_that_names_no_grade_is_refused(folder: Path) -> None:
    (folder / "truth" / "pooled.json").write_text('{"most_grade": "high"}')
    with pytest.raises(FormatError, match=r"pooled\.json: most_grade: is not a number"):
        read_annotations(folder / "truth")


def test_evaluate_tells_what_was_not_judged_in_table_json_and_per_query(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["evaluate", "rvmr", "--truth", str(folder / "truth"), "--run", str(folder / "new.jsonl")]
    command += ["--metric", "nDCG@5,IoU=0.5", "--per-query", str(folder / "values.jsonl")]
    assert main([*command, "--table"]) == 0
    shown = capsys.readouterr().out
    assert "not judged" in shown and "2 of 2" in shown and "0.00 to 67.88" in shown
    assert "an answer is judged from IoU 0.5" in shown
    assert main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["unjudged"]
    assert (told["judged_iou"], told["most_grade"]) == (0.5, 4)
    numbers = told["metrics"]["nDCG@5,IoU=0.5"]
    assert {**numbers, "upper": None} == {
        "answers": 2, "unjudged": 2, "condensed": 0.0, "lower": 0.0, "upper": None,
    }  # fmt: skip
    assert numbers["upper"] == pytest.approx(4 / (4 + 3 / np.log2(3)))
    of_query = json.loads((folder / "values.jsonl").read_text().splitlines()[0])
    assert of_query["unjudged"]["nDCG@5,IoU=0.5"]["unjudged"] == 1


def test_compare_tells_what_was_not_judged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [str(folder / "old.jsonl"), str(folder / "new.jsonl")]
    (folder / "truth" / "pooled.json").unlink()
    command = ["compare", "--truth", str(folder / "truth"), *runs, "--metric", "R@1,IoU=0.5"]
    assert main([*command, "--judged-iou", "0.5", "--table"]) == 0
    assert "not judged: 2 of 2 answers of new; without these:" in capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    assert "unjudged" not in json.loads(capsys.readouterr().out)


def test_what_was_not_judged_does_not_go_with_a_drop(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(folder / "new.jsonl")
    command = ["evaluate", "mvmr", "--truth", str(folder / "truth"), "--run", run, "--given", run]
    assert main([*command, "--judged-iou", "0.5"]) == 2
    assert "--judged-iou does not go with --given" in capsys.readouterr().err
