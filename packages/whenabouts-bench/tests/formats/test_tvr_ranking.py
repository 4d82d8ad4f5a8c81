"""TVR-Ranking: truth in each released layout, predictions in their order, faults named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.golden_folder import cases

from whenabouts.intake.files import FormatError
from whenabouts.types import Moment, ScoredMoment
from whenabouts_bench import formats
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.runs import MemoryRun, answered_by

Rows = Callable[..., Any]

MOMENTS: list[tuple[int, str, list[float], float]] = [
    (54251, "house_1", [63.47, 77.42], 4),
    (7, "castle_2", [1.0, 2.0], 2.5),
    (54251, "met_3", [5, 100], 0),
    (54251, "house_1", [3, 3], 1),
    (54251, "met_3", [5, 100], 0),
]
DURATIONS = {"house_1": 90.02, "castle_2": 60.5, "met_3": 88.0}


def pair(query_id: int, video: str, times: list[float], relevance: float) -> dict[str, Any]:
    return {
        "query_id": query_id,
        "query": f"text of {query_id}",
        "video_name": video,
        "timestamp": times,
        "duration": DURATIONS[video],
        "caption": "a caption",
        "similarity": 0.5,
        "relevance": relevance,
    }


def pairs() -> list[dict[str, Any]]:
    return [{"pair_id": number, **pair(*moment)} for number, moment in enumerate(MOMENTS)]


def by_query() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for query_id, video, times, relevance in MOMENTS:
        moment = {"video_name": video, "timestamp": times, "relevance": relevance}
        found.setdefault(str(query_id), []).append(moment)
    return found


def nested() -> list[dict[str, Any]]:
    return [
        {"query_id": int(query_id), "query": f"text of {query_id}", "relevant_moment": moments}
        for query_id, moments in by_query().items()
    ]


def columns(annotations: Annotations) -> list[tuple[str, str, float, float, float]]:
    return [
        (annotations.queries[q].id, annotations.videos[v].id, start, end, grade)
        for q, v, start, end, grade in zip(
            annotations.query.tolist(),
            annotations.video.tolist(),
            annotations.start.tolist(),
            annotations.end.tolist(),
            annotations.relevance.tolist(),
            strict=True,
        )
    ]


EXPECTED = [
    ("54251", "house_1", 63.47, 77.42, 4.0),
    ("54251", "met_3", 5.0, 100.0, 0.0),
    ("54251", "house_1", 3.0, 3.0, 1.0),
    ("54251", "met_3", 5.0, 100.0, 0.0),
    ("7", "castle_2", 1.0, 2.0, 2.5),
]


@pytest.mark.parametrize("layout", ["pairs", "lines", "by query", "nested"])
def test_truth_is_read_in_each_of_its_layouts(layout: str, tmp_path: Path) -> None:
    values = {"pairs": pairs(), "by query": by_query(), "nested": nested()}
    path = tmp_path / "truth"
    if layout == "lines":
        path.write_text("\n".join(json.dumps(line) for line in pairs()))
    else:
        path.write_text(json.dumps(values[layout], indent=1))
    made = formats.read_annotations(path)
    assert columns(made) == EXPECTED
    if layout != "by query":
        assert {query.id: query.text for query in made.queries} == {
            "54251": "text of 54251",
            "7": "text of 7",
        }
    if layout in ("pairs", "lines"):
        assert {video.id: video.duration for video in made.videos} == DURATIONS


def test_truth_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "truth.json"
    path.write_text(json.dumps(pairs()))
    made = formats.read_annotations(path)
    formats.write_annotations(made, tmp_path / "again.json", "tvr-ranking")
    again = formats.read_annotations(tmp_path / "again.json")
    assert columns(again) == EXPECTED
    assert again.queries == made.queries
    assert sorted(again.videos, key=str) == sorted(made.videos, key=str)
    assert json.loads((tmp_path / "again.json").read_text())[0] == pairs()[0]


def pseudo() -> list[dict[str, Any]]:
    """Pairs of a pseudo training set as they are released: nobody judged them."""
    rows = [{key: value for key, value in one.items() if key != "relevance"} for one in pairs()]
    return [
        row | {"similarity": value, "caption": f"caption of {value}"}
        for row, value in zip(rows, (1.0, 0.75, 0.5, 0.25, 1.0000001), strict=True)
    ]


@pytest.mark.parametrize("layout", ["pairs", "lines", "nested"])
def test_pairs_of_a_pseudo_training_set_keep_similarity_and_caption(layout: str, tmp_path: Path) -> None:
    path = tmp_path / "train_top05"
    queries = {row["query_id"]: row["query"] for row in pseudo()}
    if layout == "nested":
        values: list[Any] = [
            {
                "query_id": number,
                "query": text,
                "relevant_moment": [r for r in pseudo() if r["query_id"] == number],
            }
            for number, text in queries.items()
        ]
    else:
        values = pseudo()
    path.write_text("\n".join(map(json.dumps, values)) if layout == "lines" else json.dumps(values))
    made = formats.read_annotations(path)
    assert made.relevance.tolist() == [1.0] * 5 and made.protocol == "vcmr"
    assert made.similarity is not None
    assert made.similarity.tolist() == [1.0, 0.5, 0.25, 1.0000001, 0.75]
    assert made.captions == tuple(f"caption of {value}" for value in (1.0, 0.5, 0.25, 1.0000001, 0.75))
    formats.write_annotations(made, tmp_path / "again.jsonl", "jsonl")
    again = formats.read_annotations(tmp_path / "again.jsonl")
    assert again.similarity is not None and again.similarity.tolist() == made.similarity.tolist()
    assert again.captions == made.captions


def test_captions_stay_with_their_judgements_where_some_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "truth.json"
    path.write_text(json.dumps([row | {"similarity": 0.1 * n} for n, row in enumerate(pairs())]))
    made = formats.read_annotations(path)
    kept = made.where(made.relevance > 1)
    assert made.similarity is not None and kept.similarity is not None and kept.captions is not None
    assert kept.similarity.tolist() == made.similarity[made.relevance > 1].tolist()
    assert len(kept.captions) == len(kept.query) == 2


def test_a_long_list_is_read_pair_by_pair_and_its_faults_are_placed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "train.json"
    path.write_text(json.dumps(pseudo()))
    # Fewer values than the list has, and more than a pair has.
    monkeypatch.setattr("whenabouts.intake.files._MOST_VALUES", 20)
    assert len(formats.read_annotations(path).query) == 5
    path.write_text(json.dumps(pseudo()).replace('"similarity": 0.25', '"similarity": 75'))
    with pytest.raises(
        FormatError, match=r"\[3\]\.similarity: is too large: 75.*accepted: a cosine, -1 to 1"
    ):
        formats.read_annotations(path)
    path.write_text(json.dumps(pseudo()).replace(', "similarity": 0.25', ""))
    with pytest.raises(FormatError, match=r"\[3\]\.relevance: is missing"):
        formats.read_annotations(path)


def put(path: Path, value: Any) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def moment(*times: Any, **more: Any) -> dict[str, Any]:
    return {"video_name": "v", "timestamp": list(times), **more}


def test_the_order_of_predictions_counts(tmp_path: Path, rows: Rows) -> None:
    value = {
        "5": [moment(1, 2, model_scores=0.1), moment(3, 3, model_scores=0.9)],
        "6": [moment(4, 5), moment(2, 3, model_scores=9.0)],
        "7": [],
    }
    assert rows(formats.open_run(put(tmp_path / "run.json", value))) == {
        "5": [("v", 1.0, 2.0, 0.1), ("v", 3.0, 3.0, 0.9)],
        "6": [("v", 4.0, 5.0, 2.0), ("v", 2.0, 3.0, 1.0)],
        "7": [],
    }


def test_a_video_without_moment_keeps_its_rank(tmp_path: Path, rows: Rows) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(
        '{"query_id": "q", "moments": [{"video_id": "v", "score": 2}, '
        '{"video_id": "w", "start": 1, "end": 2, "score": 1}]}\n'
    )
    formats.write_run(formats.open_run(path), tmp_path / "out", "tvr-ranking")
    assert rows(formats.open_run(tmp_path / "out"))["q"] == [("v", 0.0, 0.0, 2.0), ("w", 1.0, 2.0, 1.0)]


def test_moments_in_given_videos_are_not_taken_for_a_ranking_of_the_corpus(tmp_path: Path) -> None:
    answers = {
        query: [ScoredMoment(Moment(video, start, start + 1), -start) for start in (0, 5)]
        for query, video in (("p", "v"), ("q", "w"))
    }
    formats.write_run(MemoryRun.from_run(answers, task="SVMR"), tmp_path / "out", "tvr-ranking")
    assert answered_by(formats.open_run(tmp_path / "out"), {"p": "v", "q": "w"}) == {"SVMR": "VCMR"}


def test_queries_without_judgements_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    collector = AnnotationBuilder("test")
    collector.add_query("silent")
    collector.add_query("q")
    collector.judge("q", "v", 0, 1)
    formats.write_annotations(collector.annotations(), tmp_path / "out", "tvr-ranking")
    assert "1 queries without judgements are left out" in caplog.text


def test_a_large_run_is_held_in_blocks(tmp_path: Path, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whenabouts_bench.formats.tvr_ranking._BLOCK_QUERIES", 2)
    made = MemoryRun.from_run({str(i): [ScoredMoment(Moment("v", i, i + 1), 1)] for i in range(5)})
    formats.write_run(made, tmp_path / "out", "tvr-ranking")
    source = formats.open_run(tmp_path / "out")
    assert [len(block) for block in source.blocks()] == [2, 2, 1]
    assert rows(source) == rows(made)


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ([], "is not an object: []; accepted: query_id"),
        ({}, "holds no answers"),
        ({"5": {}}, "5: is not a list: {}"),
        ({"5": [3]}, "5[0]: is not an object: 3"),
        ({"": []}, "query id: is not an id: ''"),
        ({"5": [{"video_name": "v"}]}, "5[0].timestamp: is missing"),
        ({"5": [{"timestamp": [1, 2]}]}, "5[0].video_name: is missing"),
        ({"5": [moment(1)]}, "5[0].timestamp: is not a pair: [1]"),
        ({"5": [moment(2, 1)]}, "5[0].timestamp: 2.0 is not before the end 1.0; accepted: start <= end"),
        ({"5": [moment(-2, 1)]}, "5[0].timestamp: is negative: -2.0"),
        ({"5": [moment(1, "2")]}, "5[0].timestamp[1]: is not a number: '2'"),
        ({"5": [moment(1, 2, model_scores="high")]}, "5[0].model_scores: is not a number: 'high'"),
        ({"5": [moment(1, 2, relevance=3)]}, "5[0].relevance: is in judgements, not in a run"),
        ('{"5": [{"video_name": "v", "timestamp": [1, 1e999]}]}', "5[0].timestamp[1]: is not finite: inf"),
    ],
)
def test_a_fault_of_predictions_is_named(value: Any, part: str, tmp_path: Path) -> None:
    path = put(tmp_path / "run.json", value)
    with pytest.raises(FormatError) as caught:
        formats.open_run(path, "tvr-ranking")
    assert str(caught.value).startswith(f"{path}: {part}")


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ([], "holds no judgements"),
        ([{"query_id": 5, "video_name": "v", "timestamp": [1, 2]}], "[0].relevance: is missing"),
        ([{**pairs()[0], "relevance": -1}], "[0].relevance: is too small: -1"),
        ([{**pairs()[0], "query_id": [5]}], "[0].query_id: is not an id: [5]"),
        ([{**pairs()[0], "duration": "x"}], "[0].duration: is not a number: 'x'"),
        ([{"query_id": 5, "relevant_moment": 3}], "[0].relevant_moment: is not a list: 3"),
        ({"5": [moment(1, 2)]}, "5[0].relevance: is missing"),
    ],
)
def test_a_fault_of_the_truth_is_named(value: Any, part: str, tmp_path: Path) -> None:
    path = put(tmp_path / "truth.json", value)
    with pytest.raises(FormatError) as caught:
        formats.read_annotations(path, "tvr-ranking")
    assert str(caught.value).startswith(f"{path}: {part}")


@pytest.mark.parametrize("read", [formats.read_annotations, formats.open_run])
def test_a_query_that_comes_twice_is_refused_not_lost(read: Callable[..., Any], tmp_path: Path) -> None:
    grade = {"relevance": 1} if read is formats.read_annotations else {}
    first, second = (json.dumps([moment(start, 9, **grade)]) for start in (1, 2))
    read(put(tmp_path / "once.json", f'{{"5": {first}, "6": {second}}}'), "tvr-ranking")
    path = put(tmp_path / "twice.json", f'{{"5": {first}, "6": {first}, "5": {second}}}')
    with pytest.raises(FormatError) as caught:
        read(path, "tvr-ranking")
    assert str(caught.value) == f"{path}: the key comes twice: '5'; accepted: each key once in its object"


@pytest.mark.parametrize("path", cases("metrics", "ndcg_iou*.json"), ids=lambda path: path.stem)
def test_the_golden_files_are_read_as_they_stand(path: Path, tmp_path: Path, rows: Rows) -> None:
    golden = json.loads(path.read_text())
    truth = formats.read_annotations(put(tmp_path / "truth.json", golden["ground_truth"]))
    expected = [
        (query_id, m["video_name"], float(m["relevance"]))
        for query_id, moments in golden["ground_truth"].items()
        for m in moments
    ]
    assert [(row[0], row[1], row[4]) for row in columns(truth)] == expected
    found = rows(formats.open_run(put(tmp_path / "run.json", golden["predictions"])))
    assert {query_id: [(row[0], [row[1], row[2]]) for row in lines] for query_id, lines in found.items()} == {
        query_id: [(m["video_name"], m["timestamp"]) for m in moments]
        for query_id, moments in golden["predictions"].items()
    }


def test_the_authors_predictions_are_read_with_the_file_of_numbers(tmp_path: Path, rows: Rows) -> None:
    path = tmp_path / "best_val_predictions.json"
    falling = {
        "query_id": 7,
        "desc": "A man waves.",
        "predictions": [[5, 1.5, 6.0, 90.5], [3, 0.0, 4.5, 8.0]],
    }
    mixed = {"query_id": 8, "desc": "A dog runs.", "predictions": [[3, 0.0, 4.5, 1.0], [3, 1.5, 4.5, 2.0]]}
    path.write_text(json.dumps([falling, mixed]))
    with pytest.raises(FormatError, match=r"has their names.*video_name_duration_id\.json of TVR-Ranking"):
        list(formats.open_run(path).blocks())
    numbers = tmp_path / "video_name_duration_id.json"
    numbers.write_text(json.dumps({"castle_01": [90.1, 3], "friends_02": [61.0, 5]}))
    source = formats.open_run(path)
    assert source.answered is not None and set(source.answered) == {"VCMR", "VR"}
    assert rows(source) == {
        "7": [("friends_02", 1.5, 6.0, 90.5), ("castle_01", 0.0, 4.5, 8.0)],
        "8": [("castle_01", 0.0, 4.5, 2.0), ("castle_01", 1.5, 4.5, 1.0)],  # the order counts
    }
    numbers.write_text(json.dumps({"castle_01": [90.1, 3], "friends_02": [61.0, 3]}))
    with pytest.raises(FormatError, match=r"friends_02: is also the number of 'castle_01': 3"):
        formats.open_run(path)
    numbers.write_text(json.dumps({"castle_01": [90.1, 3], "friends_02": [61.0, 5]}))
    path.write_text(json.dumps([falling, mixed, falling]))
    with pytest.raises(FormatError, match=r"\[2\]\.query_id: comes a second time: '7'"):
        formats.open_run(path)
    path.write_text(json.dumps([falling, mixed]))
    numbers.write_text(json.dumps({"castle_01": [90.1, 3]}))
    with pytest.raises(FormatError, match="is no video's number: 5"):
        list(formats.open_run(path).blocks())
