"""Runs of video language models' programs: what they say, and whose queries they answer."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whenabouts.intake.files import FormatError
from whenabouts_bench import formats
from whenabouts_bench.evaluation.evaluate import evaluate
from whenabouts_bench.formats.annotations import AnnotationBuilder
from whenabouts_bench.formats.conversion import convert
from whenabouts_bench.formats.lmms_eval import times_in

Rows = Callable[..., Any]

CHARADES = (
    "3MSZA 24.3 30.4##person turn a light on.\n"
    "3MSZA 0.0 6.0##person walks in.\n"
    "3MSZA 20.0 26.0##person walks in.\n"
    "0A8CF 1.0 9.0##a person is eating.\n"
)
ANSWERS = {
    "3MSZA.mp4>>>person walks in>>>[20.0, 26.0]": "The event happens in the 20.0 - 26.0 seconds.",
    "3MSZA.mp4>>>person turn a light on>>>[24.3, 30.4]": "It starts at 24.3 seconds and ends at 27.35.",
    "3MSZA.mp4>>>person walks in>>>[0.0, 6.0]": "From 00:03 to 00:00.",
    "0A8CF.mp4>>>a person is eating>>>[1.0, 9.0]": "Nobody eats in this video.",
}


@pytest.fixture()
def truth(tmp_path: Path) -> Path:
    path = tmp_path / "charades_sta_test.txt"
    path.write_text(CHARADES)
    return path


def put(path: Path, *lines: Any) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize(
    ("answer", "times"),
    [
        ("The event happens in the 24.3 - 30.4 seonds.", (24.3, 30.4)),
        ("3.5s to 9 s", (3.5, 9.0)),
        ("The event 'person opens 2 doors' happens in 4 – 8 seconds", (4.0, 8.0)),
        ("starts at 00:01:18 and ends at 00:01:23.5", (78.0, 83.5)),
        ("from 1:05 to 1:12", (65.0, 72.0)),
        ("between 12 and 7 seconds", (7.0, 12.0)),
        ("Starting time: 0.8 seconds\nEnding time: 1.1 seconds", (0.8, 1.1)),
        ("<start>3</start> <end>4.25</end>", (3.0, 4.25)),
        ("It happens at 5 seconds.", None),
        ("", None),
    ],
)
def test_the_times_that_an_answer_states(answer: str, times: tuple[float, float] | None) -> None:
    assert times_in(answer) == times


@pytest.mark.parametrize("answer", ["1" * 40_000, "1" + " " * 40_000, "1 s" + " " * 40_000 + "x"])
def test_a_long_answer_is_read_in_a_time_that_grows_with_its_length(answer: str) -> None:
    began = time.process_time()
    assert times_in(answer) is None
    assert time.process_time() - began < 1


def test_a_time_that_no_number_holds_is_no_time() -> None:
    assert times_in(f"from {'9' * 400} to {'9' * 401}") is None


def test_a_file_that_begins_like_answers_and_never_goes_on_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text('{"' + "a>>>" * 30_000)
    began = time.process_time()
    with pytest.raises(FormatError):
        formats.open_run(path)
    assert time.process_time() - began < 2


def test_answers_are_judged_by_sentence_video_and_nearest_moment(truth: Path, tmp_path: Path) -> None:
    run = tmp_path / "answers.json"
    run.write_text(json.dumps(ANSWERS, indent=4))
    result = evaluate(truth, run, ["SVMR R@1,IoU=0.5", "SVMR mIoU"])
    by_query = dict(zip(result.query_ids, result.values[:, 1].tolist(), strict=True))
    assert by_query == pytest.approx({"3MSZA#0": 0.5, "3MSZA#1": 0.5, "3MSZA#2": 1.0, "0A8CF#0": 0.0})
    assert result.means()["SVMR R@1,IoU=0.5"] == pytest.approx(0.75)
    assert not result.missing


def test_answers_without_two_times_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "answers.json"
    answers = {"a": "1 - 2", "b": "I do not know", "c": "at 5 s"}
    path.write_text(json.dumps({f"v.mp4>>>{name}>>>[1, 2]": answer for name, answer in answers.items()}))
    assert sum(block.video.size for block in formats.open_run(path).blocks()) == 1
    assert "without two times, so counted as a miss: 2 answers of 3" in caplog.text


def test_logged_samples_say_the_same_as_the_submission(truth: Path, tmp_path: Path, rows: Rows) -> None:
    submission = tmp_path / "answers.json"
    submission.write_text(json.dumps(ANSWERS, indent=4))
    samples = put(
        tmp_path / "samples.jsonl",
        *(
            {"doc_id": i, "target": "", "filtered_resps": [answer], "timelens_mIOU": {key: answer}}
            for i, (key, answer) in enumerate(ANSWERS.items())
        ),
    )
    assert rows(formats.open_run(samples)) == rows(formats.open_run(submission))


def test_spans_of_timelens_are_lists_of_a_list(tmp_path: Path, rows: Rows) -> None:
    path = tmp_path / "answers.json"
    path.write_text(json.dumps({"charades/3MSZA.mp4>>>a >>> b>>>[[1.0, 4.5]]": "1 - 4"}))
    run = formats.open_run(path)
    assert [query.sentence for query in run.described().values()] == ["a >>> b"]  # type: ignore[attr-defined]
    assert [*rows(run).values()] == [[("charades/3MSZA", 1.0, 4.0, 1.0)]]


def test_a_converted_run_has_the_ids_of_the_judgements(truth: Path, tmp_path: Path, rows: Rows) -> None:
    run = tmp_path / "answers.json"
    run.write_text(json.dumps(ANSWERS))
    convert(run, tmp_path / "run.jsonl", "jsonl", truth=truth)
    found = rows(formats.open_run(tmp_path / "run.jsonl"), "SVMR")
    assert set(found) == {"3MSZA#0", "3MSZA#1", "3MSZA#2", "0A8CF#0"}
    assert found["3MSZA#2"] == [("3MSZA", 20.0, 26.0, 1.0)]


def test_videos_of_one_name_in_two_folders_are_told_apart(tmp_path: Path) -> None:
    truth, run = tmp_path / "charades_sta_test.txt", tmp_path / "answers.json"
    truth.write_text("x/1.mp4 0.0 6.0##person walks in.\ny/1.mp4 20.0 26.0##person walks in.\n")
    answers = {
        "x/1.mp4>>>person walks in>>>[0, 6]": "0 - 6",
        "y/1.mp4>>>person walks in>>>[20, 26]": "20 - 26",
    }
    run.write_text(json.dumps({f"/films/{key}": answer for key, answer in answers.items()}))
    result = evaluate(truth, run, ["SVMR R@1,IoU=0.5"])
    assert (result.means(), result.missing) == ({"SVMR R@1,IoU=0.5": 1.0}, ())


def test_a_name_that_two_videos_have_stays_as_the_file_says(
    tmp_path: Path, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    builder = AnnotationBuilder("two folders")
    for video in ("x/1.mp4", "y/1.mp4", "y/2.mp4"):
        builder.add_query(video, "a dog")
        builder.judge(video, video, 0.0, 5.0)
    run = tmp_path / "answers.json"
    run.write_text(json.dumps({f"{video}.mp4>>>a dog>>>[0, 5]": "0 - 5" for video in (1, 2)}))
    found = rows(formats.open_run(run, annotations=builder.annotations()))
    assert found == {
        "1.mp4>>>a dog>>>[0, 5]": [("1", 0.0, 5.0, 1.0)],
        "y/2.mp4": [("y/2.mp4", 0.0, 5.0, 1.0)],
    }
    assert "several videos of two folders end with '1', so its queries are not found" in caplog.text


@pytest.mark.parametrize("key", ["a>>>b", ">>>b>>>[1, 2]", "a>>>b>>>[1]", "a>>>b>>>1, 2"])
def test_a_key_without_video_sentence_or_moment_is_refused(key: str, tmp_path: Path) -> None:
    path = tmp_path / "answers.json"
    path.write_text(json.dumps({"v.mp4>>>s>>>[1, 2]": "1 - 2", key: "1 - 2"}))
    with pytest.raises(FormatError, match=r"VIDEO>>>SENTENCE>>>\[start, end\]"):
        list(formats.open_run(path).blocks())


LINE: dict[str, Any] = {
    "index": 0,
    "qid": "17",
    "query": "person turn a light on",
    "gt_pos_doc_id": "3MSZA",
    "gt_start": 24.3,
    "gt_end": 30.4,
    "final_rank": 1,
    "final_top1_doc_id": "3MSZA.mp4",
    "final_answer": "matched",
    "final_pred_start": 24.3,
    "final_pred_end": 27.35,
    "final_iou_r1": 0.5,
}


def test_predictions_of_videosearch_equal_its_own_figures(truth: Path, tmp_path: Path) -> None:
    lines = (
        LINE,
        {**LINE, "index": 1, "query": "Person walks in.", "gt_start": 0.0, "gt_end": 6.0,
         "final_pred_start": 7.0, "final_pred_end": -2.0, "final_iou_r1": 6 / 7},
        {**LINE, "index": 2, "query": "person walks in", "gt_start": 20.0, "gt_end": 26.0,
         "final_answer": "unknown", "final_iou_r1": 0.0},
        {**LINE, "index": 3, "query": "a person is eating", "gt_pos_doc_id": "0A8CF", "gt_start": 1.0,
         "gt_end": 9.0, "final_rank": 4, "final_pred_start": 1.0, "final_pred_end": 9.0,
         "final_iou_r1": 0.0},
    )  # fmt: skip
    run = put(tmp_path / "pred.jsonl", {**LINE, "final_answer": "not_matched"}, *lines)
    result = evaluate(truth, run, ["R@1,IoU=0.5", "mIoU", "VR R@1"])
    own = [line["final_iou_r1"] for line in lines]
    assert result.means() == pytest.approx(
        {
            "R@1,IoU=0.5": sum(value >= 0.5 for value in own) / 4,
            "mIoU": sum(own) / 4,
            "VR R@1": sum(line["final_rank"] == 1 for line in lines) / 4,
        }
    )
    assert not result.missing


def test_a_query_of_two_videos_that_is_described_twice_is_answered_once(tmp_path: Path) -> None:
    builder = AnnotationBuilder("two videos")
    builder.add_query("q", "A dog.")
    for video in ("a", "b"):
        builder.judge("q", video, 0.0, 5.0)
    line = {**LINE, "query": "a dog", "gt_start": 0.0, "gt_end": 5.0, "final_pred_start": 0.0}
    lines = [
        {**line, "index": number, "gt_pos_doc_id": video, "final_top1_doc_id": video, "final_pred_end": 5.0}
        for number, video in enumerate("ab")
    ]
    result = evaluate(builder.annotations(), put(tmp_path / "pred.jsonl", *lines), ["R@1,IoU=0.5"])
    assert (result.query_ids, result.means()) == (("q",), {"R@1,IoU=0.5": 1.0})


def test_a_line_without_a_video_is_an_empty_answer(truth: Path, tmp_path: Path, rows: Rows) -> None:
    run = put(tmp_path / "pred.jsonl", {**LINE, "final_top1_doc_id": ""})
    assert rows(formats.open_run(run)) == {"17@0": []}


def test_a_prediction_that_is_no_number_is_named(tmp_path: Path) -> None:
    run = put(tmp_path / "pred.jsonl", LINE, {**LINE, "index": 1, "final_pred_end": "soon"})
    with pytest.raises(FormatError, match=r"line 2: final_pred_end: is not a number"):
        list(formats.open_run(run).blocks())
