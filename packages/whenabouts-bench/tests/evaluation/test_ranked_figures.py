"""Figures of ranked sets, on small sets with known answers, and faulty files."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whenabouts.intake.files import FormatError
from whenabouts.types import Moment, ScoredMoment, UsageError
from whenabouts_bench.cli import relevance
from whenabouts_bench.evaluation import ranked_figures
from whenabouts_bench.evaluation.evaluate import evaluate
from whenabouts_bench.evaluation.ranked_figures import (
    cases_of,
    draw_cases,
    draw_similarity,
    queries_named,
    read_raw_grades,
)
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.runs import MemoryRun

pytest.importorskip("matplotlib", reason="the figures need matplotlib")
RAW = "pair_id,worker,relevance\n0,4,4\n0,6,3\n1,4,1\n1,6,1\n2,4,0\n2,6,3\n2,21,2\n2,22,1\n3,4,2\n"


def graded(similarities: bool = True) -> Annotations:
    """Two queries; the moments of v0 to v5 have the grades 4, 3, 2, 1, 0, 2 for the first."""
    made = AnnotationBuilder("made")
    for name, grades in (("doors", (4, 3, 2, 1, 0, 2)), ("dogs", (1, 0, 4, 2, 3, 0))):
        made.add_query(name, f"somebody and {name}")
        for number, grade in enumerate(grades):
            caption, similarity = (f"caption {number}", 1 - number / 10) if similarities else ("", None)
            made.judge(name, f"v{number}", 10.0, 20.0, grade, similarity=similarity, caption=caption)
    return made.annotations()


def answers() -> MemoryRun:
    """To the first query: grade 3, a stranger, grade 0, grade 4, grade 3 again; to the second grade 0."""
    found = [("v1", 11.0), ("x", 0.0), ("v4", 10.0), ("v0", 9.0), ("v1", 10.0)]
    moments = [ScoredMoment(Moment(v, s, s + 10), 9.0 - n) for n, (v, s) in enumerate(found)]
    return MemoryRun.from_run({"doors": moments, "dogs": [ScoredMoment(Moment("v1", 10, 20), 1.0)]})


def test_answers_stand_beside_the_truth_with_the_grade_that_each_takes() -> None:
    doors, dogs = cases_of(graded(), answers(), metric="nDCG@5,IoU=0.5", count=2)
    assert doors.query == "somebody and doors"
    assert [grade for _, grade in doors.answers] == [3, None, 0, 4, None]
    assert [text.split()[0] for text, _ in doors.answers] == ["v1", "x", "v4", "v0", "v1"]
    assert [(text.split()[0], grade, met) for text, grade, met in doors.truth] == [
        ("v0", 4, True), ("v1", 3, True), ("v2", 2, False), ("v5", 2, False), ("v3", 1, False),
        ("v4", 0, True),
    ]  # fmt: skip
    gain = 3 / np.log2(2) + 4 / np.log2(5)
    ideal = sum(grade / np.log2(place + 2) for place, grade in enumerate((4, 3, 2, 2, 1)))
    assert doors.value == pytest.approx(gain / ideal)
    assert dogs.value == 0 and [grade for _, grade in dogs.answers] == [0], "grade 0 is no missing match"


def test_videos_whose_names_begin_alike_show_their_own_frames(tmp_path: Path) -> None:
    videos = [f"{'a long name of a folder':26}/{number}" for number in range(2)]
    run = MemoryRun.from_run({"doors": [ScoredMoment(Moment(video, 10, 20), 1.0) for video in videos]})
    seen: list[str] = []

    def picture(video_id: str, seconds: float) -> Any:
        seen.append(video_id)
        return np.zeros((2, 2, 3), np.uint8)

    draw_cases(cases_of(graded(), run, ["doors"]), "nDCG@10", tmp_path / "figure", picture)
    assert sorted(seen)[:2] == videos


def test_the_values_are_those_that_evaluate_says() -> None:
    metric = "nDCG@3,IoU=0.3"
    cases = cases_of(graded(), answers(), metric="ndcg@3, iou=.3", count=5)
    shown = {case.query: case.value for case in cases}
    told = evaluate(graded(), answers(), [metric], protocol="rvmr")
    for name, value in zip(told.query_ids, told.column(metric), strict=True):
        assert shown[f"somebody and {name}"] == pytest.approx(value)


def test_named_queries_are_shown_in_their_order_also_unanswered_ones() -> None:
    run = MemoryRun.from_run({"doors": [ScoredMoment(Moment("v0", 10, 20), 1.0)]})
    dogs, doors = cases_of(graded(), run, ["dogs", " SOMEBODY and doors. "])
    assert (dogs.query, doors.query) == ("somebody and dogs", "somebody and doors")
    assert dogs.answers == () and len(dogs.truth) == 6 and not any(met for *_, met in dogs.truth)
    assert doors.answers[0][1] == 4
    with pytest.raises(UsageError, match=r"--query 'cats': made has no such query.*'somebody and doors'"):
        queries_named(graded(), ["cats"])


def test_answers_are_matched_by_no_other_metric_and_need_an_answered_query() -> None:
    with pytest.raises(UsageError, match=r"--metric R@1,IoU=0\.5: answers are matched as nDCG@K,IoU=m does"):
        cases_of(graded(), answers(), metric="R@1,IoU=0.5")
    nothing = MemoryRun.from_run({"cats": [ScoredMoment(Moment("v0", 10, 20), 1.0)]})
    with pytest.raises(UsageError, match="0 of its 1 queries are judged in made"):
        cases_of(graded(), nothing)


def test_raw_grades_are_paired_by_lowest_and_highest(tmp_path: Path) -> None:
    (tmp_path / "raw.csv").write_text(RAW)
    raw = read_raw_grades(tmp_path / "raw.csv")
    assert raw.lowest.tolist() == [3, 1, 0] and raw.highest.tolist() == [4, 1, 3]
    assert (raw.workers, raw.grades) == (4, 9)
    assert raw.cells[3, 4] == raw.cells[1, 1] == raw.cells[0, 3] == pytest.approx(1 / 3)
    assert raw.cells.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "pair,worker,relevance\n0,1,2\n",
            "line 1: holds no grades of annotators; accepted: columns pair_id",
        ),
        ("pair_id,worker,relevance\n0,1,2\n0,2,5\n", r"line 3: is not a grade: '?5'?; accepted: 0 to 4"),
        ("pair_id,worker,relevance\n0,1\n", "line 2: is not a grade"),
        (f"pair_id,worker,relevance\n{'0' * 200_000},1,2\n", "is not a table: field larger than"),
        ("pair_id,worker,relevance\n0,1,2\n1,2,3\n", "has no pair that two annotators judged"),
    ],
)
def test_what_are_no_raw_grades_is_refused_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "raw.csv").write_text(text)
    with pytest.raises(FormatError, match=told):
        read_raw_grades(tmp_path / "raw.csv")
    (tmp_path / "raw.csv").write_bytes(b"pair_id,worker,relevance\n\xff")
    with pytest.raises(FormatError, match="not UTF-8"):
        read_raw_grades(tmp_path / "raw.csv")


def test_similarities_that_judgements_lack_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="made: has no similarity of query and caption"):
        draw_similarity(graded(similarities=False), tmp_path / "x")


def test_nearly_equal_similarities_are_one_point_of_the_line() -> None:
    for similarity in ([0.5, 0.5], [0.5, 0.5 + 2e-16]):
        centres, means = ranked_figures._binned(np.array(similarity), np.array([1.0, 3.0]))
        assert centres.tolist() == pytest.approx([0.5]) and means.tolist() == [2.0]


def run_verb(*arguments: object) -> int:
    parser = argparse.ArgumentParser()
    relevance.add_parser(parser.add_subparsers())
    options = parser.parse_args(["relevance", *map(str, arguments)])
    return int(options.run(options))


def written(folder: Path, similarities: bool) -> tuple[Path, Path, Path]:
    """Judgements, answers and raw grades as files."""
    from whenabouts_bench import formats

    formats.write_annotations(graded(similarities), folder / "truth.json", "tvr-ranking")
    formats.write_run(answers(), folder / "run.jsonl", "jsonl")
    (folder / "raw.csv").write_text(RAW)
    return folder / "truth.json", folder / "run.jsonl", folder / "raw.csv"


@pytest.mark.slow
def test_all_figures_are_drawn_and_drawn_again_the_same(tmp_path: Path, capsys: Any) -> None:
    truth, run, raw = written(tmp_path, similarities=True)
    command = (
        "figures",
        "--truth",
        truth,
        "--answers",
        run,
        "--raw",
        raw,
        "--out",
        tmp_path / "out",
        "--json",
    )
    assert run_verb(*command, "--metric", "nDCG@5,IoU=0.5") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["left_out"] == []
    names = {"agreement", "similarity", "candidates", "answers"}
    assert {Path(file).name for file in told["files"]} == {
        f"{n}.{kind}" for n in names for kind in ("png", "svg")
    }
    assert "no match" in (tmp_path / "out" / "answers.svg").read_text()
    assert "33.33%" in (tmp_path / "out" / "agreement.svg").read_text()
    assert "caption 3" in (tmp_path / "out" / "candidates.svg").read_text()
    before = {file: Path(file).read_bytes() for file in told["files"]}
    assert run_verb(*command, "--metric", "nDCG@5,IoU=0.5") == 0
    assert {file: Path(file).read_bytes() for file in told["files"]} == before


def test_what_cannot_be_drawn_without_similarities_is_said(tmp_path: Path, capsys: Any) -> None:
    truth, *_ = written(tmp_path, similarities=False)
    assert run_verb("figures", "--truth", truth, "--out", tmp_path / "out", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["left_out"] == ["similarity and candidates: the judgements have no similarities"]
    assert {Path(file).name for file in told["files"]} == {"agreement.svg", "agreement.png"}


@pytest.mark.slow
def test_each_moment_shows_the_frame_in_its_middle(tmp_path: Path, capsys: Any) -> None:
    truth, run, _ = written(tmp_path, similarities=True)
    (tmp_path / "videos").mkdir()
    sample = Path(__file__).resolve().parents[4] / "samples" / "videos" / "friday.mp4"
    (tmp_path / "videos" / "v0.mp4").symlink_to(sample)
    plain = ("figures", "--truth", truth, "--answers", run, "--query", "doors", "--json", "--out", tmp_path)
    assert run_verb(*plain) == 0
    without = (tmp_path / "answers.svg").read_text().count("<image")
    assert run_verb(*plain, "--videos", tmp_path / "videos") == 0
    # v0 is among the judged moments and among the answers; the others have no recording.
    assert (tmp_path / "answers.svg").read_text().count("<image") == without + 2
    with pytest.raises(UsageError, match="--videos goes with --answers"):
        run_verb("figures", "--truth", truth, "--out", tmp_path, "--videos", tmp_path)
