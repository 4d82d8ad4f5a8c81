"""QVHighlights: windows keep their order, labels are kept, saliency is read, faults are named."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whenabouts.intake.files import FormatError
from whenabouts.types import Moment, ScoredMoment, UsageError
from whenabouts_bench import formats
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.qvhighlights import QVHighlightsRun
from whenabouts_bench.formats.runs import MemoryRun

Rows = Callable[..., Any]

LINE = {
    "qid": 2579,
    "query": "A girl cooks",
    "duration": 150,
    "vid": "abc_210.0_360.0",
    "relevant_clip_ids": [41, 42],
    "saliency_scores": [[1, 1, 2], [4, 4, 3]],
    "relevant_windows": [[82, 150], [2, 10]],
}
PREDICTION = {
    "qid": 2579,
    "query": "A girl cooks",
    "vid": "abc_210.0_360.0",
    "pred_relevant_windows": [[70, 78.5, 0.5], [78.0, 146.0, 0.9], [3, 3, 0.1]],
    "pred_saliency_scores": [0.25, -1, 3.5],
}


def put(path: Path, *lines: Any) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_annotations_keep_windows_in_order_and_labels(tmp_path: Path) -> None:
    made = formats.read_annotations(put(tmp_path / "val.jsonl", LINE))
    assert made.start.tolist() == [82.0, 2.0] and made.end.tolist() == [150.0, 10.0]
    (query,) = made.queries
    assert (query.id, query.text) == ("2579", "A girl cooks")
    assert query.metadata["saliency_scores"] == [[1, 1, 2], [4, 4, 3]]
    assert query.metadata["relevant_clip_ids"] == [41, 42]
    assert made.videos[0].duration == 150.0


def test_a_line_without_labels_has_its_video_as_pool(tmp_path: Path) -> None:
    bare = {key: LINE[key] for key in ("qid", "query", "duration", "vid")}
    made = formats.read_annotations(put(tmp_path / "test.jsonl", bare))
    assert not len(made.query) and dict(made.pools) == {"2579": ("abc_210.0_360.0",)}
    formats.write_annotations(made, tmp_path / "again", "qvhighlights")
    assert json.loads((tmp_path / "again").read_text()) == bare


def test_a_query_that_nothing_in_its_video_answers_keeps_its_video(tmp_path: Path) -> None:
    made = formats.read_annotations(
        put(tmp_path / "val.jsonl", LINE | {"relevant_windows": []}, LINE | {"qid": 1})
    )
    assert made.given_videos == {"2579": LINE["vid"], "1": LINE["vid"]}
    formats.write_annotations(made, tmp_path / "again", "qvhighlights")
    assert len((tmp_path / "again").read_text().splitlines()) == 2


def test_annotations_are_written_as_they_were(tmp_path: Path) -> None:
    made = formats.read_annotations(put(tmp_path / "val.jsonl", LINE))
    formats.write_annotations(made, tmp_path / "again", "qvhighlights")
    assert json.loads((tmp_path / "again").read_text()) == LINE


def test_windows_keep_the_order_of_the_file(tmp_path: Path, rows: Rows) -> None:
    source = formats.open_run(put(tmp_path / "pred.jsonl", PREDICTION))
    assert source.tasks == ("VCMR",)
    assert rows(source) == {
        "2579": [
            ("abc_210.0_360.0", 70.0, 78.5, 0.5),
            ("abc_210.0_360.0", 78.0, 146.0, 0.9),
            ("abc_210.0_360.0", 3.0, 3.0, 0.1),
        ]
    }
    with pytest.raises(UsageError, match="holds VCMR, not VR"):
        list(source.blocks("VR"))


def test_saliency_is_read_where_it_is(tmp_path: Path, rows: Rows) -> None:
    only = {"qid": 3, "vid": "v", "pred_saliency_scores": [1]}
    silent = {"qid": 4, "vid": "v", "pred_relevant_windows": []}
    source = formats.open_run(put(tmp_path / "pred.jsonl", PREDICTION, only, silent))
    assert isinstance(source, QVHighlightsRun)
    found = source.saliency()
    assert {key: scores.tolist() for key, scores in found.items()} == {"2579": [0.25, -1.0, 3.5], "3": [1.0]}
    assert rows(source)["3"] == []


def test_predictions_are_written_as_they_were(tmp_path: Path) -> None:
    truth = formats.read_annotations(put(tmp_path / "val.jsonl", LINE))
    source = formats.open_run(put(tmp_path / "pred.jsonl", PREDICTION))
    formats.write_run(source, tmp_path / "again", "qvhighlights", truth)
    assert json.loads((tmp_path / "again").read_text()) == PREDICTION


def scattered() -> MemoryRun:
    moments = [Moment("x", 1, 2), Moment("abc_210.0_360.0", 3, 4), Moment("abc_210.0_360.0", 5, 6)]
    return MemoryRun.from_run({"2579": [ScoredMoment(m, -i) for i, m in enumerate(moments)], "8": []})


def test_of_a_run_over_a_corpus_the_own_video_is_kept(
    tmp_path: Path, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    truth = formats.read_annotations(put(tmp_path / "val.jsonl", LINE))
    formats.write_run(scattered(), tmp_path / "pred", "qvhighlights", truth)
    assert [row[1] for row in rows(formats.open_run(tmp_path / "pred"))["2579"]] == [3.0, 5.0]
    assert "1 rows of another video" in caplog.text
    assert "1 queries without a given video and without moments" in caplog.text


def test_a_run_of_videos_has_no_windows_and_says_why(tmp_path: Path, caplog: Any) -> None:
    (tmp_path / "vr.jsonl").write_text('{"query_id": "q", "moments": [{"video_id": "v", "score": 1}]}\n')
    formats.write_run(formats.open_run(tmp_path / "vr.jsonl"), tmp_path / "out", "qvhighlights")
    assert json.loads((tmp_path / "out").read_text())["pred_relevant_windows"] == []
    assert "1 rows of another video, without times or reversed are left out" in caplog.text


def test_without_judgements_moments_of_two_videos_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'2579' has moments of 'abc_210.0_360.0' and 'x'"):
        formats.write_run(scattered(), tmp_path / "pred", "qvhighlights")
    assert list(tmp_path.iterdir()) == []


def test_a_query_judged_in_two_videos_cannot_be_written(tmp_path: Path) -> None:
    collector = AnnotationBuilder("test")
    collector.add_query("q")
    collector.judge("q", "v", 0, 1)
    collector.judge("q", "w", 0, 1)
    with pytest.raises(UsageError, match="'q' is judged in 'v' and 'w'"):
        formats.write_annotations(collector.annotations(), tmp_path / "out", "qvhighlights")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"qid": True}, "qid: is not an id: True"),
        ({"qid": 2579}, "qid: comes a second time (first in line 1): '2579'"),
        ({"vid": None}, "vid: is not an id"),
        ({"pred_relevant_windows": 3}, "pred_relevant_windows: is not a list: 3"),
        (
            {"pred_relevant_windows": [[1, 2]]},
            "pred_relevant_windows[0]: does not have 3 values: [1, 2]",
        ),
        ({"pred_relevant_windows": [[1, 2, 3], [2, 1, 3]]}, "pred_relevant_windows[1]: 2.0 is not before"),
        ({"pred_relevant_windows": [[-1, 2, 3]]}, "pred_relevant_windows[0]: is negative: -1.0"),
        ({"pred_relevant_windows": [[1, 2, None]]}, "pred_relevant_windows[0][2]: is not a number"),
        (
            {"pred_relevant_windows": [[1, 10**400, 1]]},
            "pred_relevant_windows[0][1]: is a whole number of more than 64 bits",
        ),
        ({"relevant_windows": []}, "relevant_windows: is in judgements, not in a run"),
    ],
)
def test_a_fault_of_predictions_is_named(change: dict[str, Any], part: str, tmp_path: Path) -> None:
    path = put(tmp_path / "pred.jsonl", PREDICTION, PREDICTION | {"qid": 3} | change)
    with pytest.raises(FormatError) as caught:
        list(formats.open_run(path, "qvhighlights").blocks())
    assert str(caught.value).startswith(f"{path}, line 2: {part}")


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"query": None}, "query: is not a text"),
        ({"relevant_windows": [[1]]}, "relevant_windows[0]: is not a pair: [1]"),
        ({"duration": "150"}, "duration: is not a number: '150'"),
        ({"saliency_scores": 3}, "saliency_scores: is not a list: 3"),
        ({"pred_relevant_windows": []}, "pred_relevant_windows: is in a run, not in judgements"),
    ],
)
def test_a_fault_of_annotations_is_named(change: dict[str, Any], part: str, tmp_path: Path) -> None:
    path = put(tmp_path / "val.jsonl", LINE, LINE | {"qid": 3} | change)
    with pytest.raises(FormatError) as caught:
        formats.read_annotations(path, "qvhighlights")
    assert str(caught.value).startswith(f"{path}, line 2: {part}")


def comparable(annotations: Annotations) -> Any:
    return annotations.queries, annotations.videos, annotations.qrels, dict(annotations.pools)


@pytest.mark.parametrize("name", ["highlight_val_release.jsonl.gz", "highlight_test_release.jsonl"])
def test_the_released_files_come_back(name: str, shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "annotations" / "qvhighlights" / name
    made = formats.read_annotations(path)
    formats.write_annotations(made, tmp_path / "again.gz", "qvhighlights")
    again = formats.read_annotations(tmp_path / "again.gz")
    assert comparable(again) == comparable(made)
    raw = gzip.decompress(path.read_bytes()) if name.endswith("gz") else path.read_bytes()
    lines = [json.loads(line) for line in raw.splitlines()]
    windows = [window for line in lines for window in line.get("relevant_windows", [])]
    assert [list(pair) for pair in zip(made.start.tolist(), made.end.tolist(), strict=True)] == windows
    assert [query.id for query in made.queries] == [str(line["qid"]) for line in lines]
