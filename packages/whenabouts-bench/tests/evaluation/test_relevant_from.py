"""The level of relevance: from which grade on a moment is right, as trec_eval's `-l`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.cli.main import main
from whenabouts.overlap import temporal_iou
from whenabouts.types import Judgement, Moment, ScoredMoment, UsageError
from whenabouts_bench.evaluation.evaluate import evaluate
from whenabouts_bench.evaluation.metrics import parse_metric
from whenabouts_bench.evaluation.protocols import find_protocol, protocol_for
from whenabouts_bench.formats.annotations import Annotations

QRELS = {
    "weak": [Judgement(Moment("a", 0, 10), 1.0), Judgement(Moment("b", 0, 10), 4.0)],
    "none": [Judgement(Moment("a", 20, 30), 2.0)],
}
ANSWERS = {
    "weak": [ScoredMoment(Moment("a", 0, 10), 2.0), ScoredMoment(Moment("b", 0, 8), 1.0)],
    "none": [ScoredMoment(Moment("a", 20, 30), 1.0)],
}
MOMENTS = st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.integers(1, 5))


def moment_of(drawn: tuple[str, int, int]) -> Moment:
    video, start, seconds = drawn
    return Moment(video, start, start + seconds)


def test_a_grade_of_1_is_no_right_answer_from_grade_3_on() -> None:
    names = ["R@1,IoU=0.5", "R@2,IoU=0.5", "VR R@1", "mIoU", "mAP,IoU=0.5"]
    every = evaluate(QRELS, ANSWERS, names)
    assert list(every.means().values()) == [1.0, 1.0, 1.0, 1.0, 1.0]
    strict = evaluate(QRELS, ANSWERS, names, relevant_from=3)
    assert strict.metrics == tuple(f"{name},grade>=3" for name in names)
    assert list(strict.values[0]) == [0.0, 1.0, 0.0, 0.0, 0.5]
    assert list(strict.values[1]) == [0.0] * 5
    assert "Queries without a moment of grade 3 or more, which count as 0: 1." in strict.notes


def test_a_metric_may_name_its_own_level_and_gains_keep_every_grade() -> None:
    names = ["R@1,IoU=0.5,grade>=2", "R@1,IoU=0.5", "nDCG@2,IoU=0.5"]
    both = evaluate(QRELS, ANSWERS, names, protocol="rvmr", relevant_from=4)
    assert both.metrics == ("R@1,IoU=0.5,grade>=2", "R@1,IoU=0.5,grade>=4", "nDCG@2,IoU=0.5")
    assert both.column("nDCG@2,IoU=0.5").tolist() == evaluate(QRELS, ANSWERS, names[2:]).values[:, 0].tolist()
    assert both.values[:, 0].tolist() == [0.0, 1.0]


@pytest.mark.slow
@given(
    judged=st.dictionaries(MOMENTS, st.integers(0, 4), min_size=1, max_size=6),
    answers=st.lists(MOMENTS, max_size=5, unique=True),
    least=st.integers(1, 4),
)
def test_the_value_is_that_of_binary_judgements_made_at_the_level(
    judged: dict[tuple[str, int, int], int], answers: list[tuple[str, int, int]], least: int
) -> None:
    judged = {**judged, ("c", 0, 1): 4}  # so that the level can be reached
    graded = {"q": [Judgement(moment_of(drawn), float(grade)) for drawn, grade in judged.items()]}
    run = {"q": [ScoredMoment(moment_of(drawn), -float(rank)) for rank, drawn in enumerate(answers)]}
    value = evaluate(graded, run, ["R@2,IoU=0.5"], protocol="vcmr", relevant_from=least).values[0, 0]
    right = [moment_of(drawn) for drawn, grade in judged.items() if grade >= least]
    expected = any(
        answer.video_id == moment.video_id
        and temporal_iou(answer.start, answer.end, moment.start, moment.end) >= 0.5
        for answer in map(moment_of, answers[:2])
        for moment in right
    )
    assert value == expected


@pytest.mark.parametrize("name", ["R@1,IoU=0.5,grade>=3", "VR R@5,grade>=2", "mAP,length=short,grade>=2"])
def test_names_are_read_and_written_the_same(name: str) -> None:
    assert parse_metric(name).name == name
    assert parse_metric(name.replace(",", " , ").replace(">=", " >= ").lower()).name == name


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("R@1,IoU=0.5,grade=3", "a grade is written as grade>=3"),
        ("R@1,IoU>=0.5", "iou takes ="),
        ("R@1,IoU=0.5,grade>=0", "must be a number above 0"),
        ("nDCG@5,IoU=0.5,grade>=3", "nDCG of VCMR takes no grade"),
    ],
)
def test_what_is_no_level_is_refused(name: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        parse_metric(name)


def test_a_level_that_nothing_can_reach_or_that_changes_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="no moment can be right, the highest grade is 4"):
        evaluate(QRELS, ANSWERS, ["R@1,IoU=0.5"], relevant_from=5)
    with pytest.raises(UsageError, match="takes each grade as a gain"):
        evaluate(QRELS, ANSWERS, ["nDCG@5,IoU=0.5"], relevant_from=3)
    with pytest.raises(UsageError, match="must lie above 0"):
        evaluate(QRELS, ANSWERS, ["R@1,IoU=0.5"], relevant_from=0)


def test_a_protocol_of_gains_alone_gets_a_metric_that_has_the_level() -> None:
    protocol = protocol_for(Annotations.from_qrels(QRELS), find_protocol("rvmr"), 3)
    assert evaluate(QRELS, ANSWERS, protocol=protocol).metrics[-1] == "R@1,IoU=0.5,grade>=3"


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    truth, run = tmp_path / "qrels.jsonl", tmp_path / "run.jsonl"
    rows = [
        {"query_id": query, **_span(judged.moment), "relevance": judged.relevance}
        for query, of_query in QRELS.items()
        for judged in of_query
    ]
    lists = [
        {"query_id": query, "moments": [{**_span(each.moment), "score": each.score} for each in moments]}
        for query, moments in ANSWERS.items()
    ]
    truth.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run.write_text("".join(json.dumps(row) + "\n" for row in lists))
    return str(truth), str(run)


def _span(moment: Moment) -> dict[str, Any]:
    return {"video_id": moment.video_id, "start": moment.start, "end": moment.end}


@pytest.mark.slow
def test_the_verbs_take_the_level(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth, run = files
    level = ("--relevant-from", "3", "--json")
    assert main(["evaluate", "vcmr", "--truth", truth, "--run", run, "--metric", "R@2,IoU=0.5", *level]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"] == {"R@2,IoU=0.5,grade>=3": 0.5}
    assert main(["compare", "--truth", truth, run, run, "--metric", "mIoU", *level]) == 0
    compared = json.loads(capsys.readouterr().out)
    assert list(compared["metrics"]) == ["mIoU,grade>=3"]
    assert "Queries without a moment of grade 3 or more, which count as 0: 1." in compared["notes"]
    out = tmp_path / "report"
    assert main(["report", "--truth", truth, "--run", run, "--out", str(out), *level]) == 0
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "A positive is a judgement with a grade of 3 or more." in page
    assert "R@1,IoU=0.5,grade&gt;=3" in page
