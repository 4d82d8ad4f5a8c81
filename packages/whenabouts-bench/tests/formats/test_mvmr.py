"""MVMR pool files: own moment first, positives of other videos, pools; frames become seconds."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.golden_folder import cases

from whenabouts.intake.files import FormatError
from whenabouts_bench import formats
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.released import mvmr as released_mvmr


def seconds(**changes: Any) -> dict[str, Any]:
    return {
        "A": {
            "duration": 30.5,
            "timestamps": [[1.5, 4], [20, 31]],
            "sentences": [" opens a door ", "closes it"],
            "pos_moments": [[["B", "a door opens", [2, 3.25]], ["C", "door", [0, 1], 0.93]], []],
            "retrieval_pool": [["A", "B", "C"], ["A", "C", "D"]],
        }
        | changes,
        "B": {
            "duration": 9,
            "timestamps": [[0, 9]],
            "sentences": ["sits"],
            "pos_moments": [[]],
            "retrieval_pool": [["B"]],
        },
    }


def frames() -> dict[str, Any]:
    return {
        "s1.avi": {
            "fps": 10.0,
            "num_frames": 500,
            "timestamps": [[100, 200], [450, 520]],
            "sentences": ["cuts", "washes"],
            "pos_moments": [[["s2.avi", "he cuts", [40, 80]], ["gone.avi", "cuts", [10, 20]]], []],
            "retrieval_pool": [["s1.avi", "s2.avi"], ["s1.avi"]],
        },
        "s2.avi": {
            "fps": 20.0,
            "num_frames": 1000,
            "timestamps": [[0, 20]],
            "sentences": ["eats"],
            "pos_moments": [[["s1.avi", "he eats", [400, 600]]]],
            "retrieval_pool": [["s2.avi", "s1.avi"]],
        },
    }


def put(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


def judgements(annotations: Annotations) -> list[tuple[str, str, float, float]]:
    return [
        (annotations.queries[query].id, annotations.videos[video].id, start, end)
        for query, video, start, end in zip(
            annotations.query.tolist(),
            annotations.video.tolist(),
            annotations.start.tolist(),
            annotations.end.tolist(),
            strict=True,
        )
    ]


def test_the_own_moment_comes_first_then_those_of_other_videos(tmp_path: Path) -> None:
    made = formats.read_annotations(put(tmp_path / "pool.json", seconds()))
    assert judgements(made) == [
        ("A#0", "A", 1.5, 4.0),
        ("A#0", "B", 2.0, 3.25),
        ("A#0", "C", 0.0, 1.0),
        ("A#1", "A", 20.0, 30.5),
        ("B#0", "B", 0.0, 9.0),
    ]
    assert [query.text for query in made.queries] == ["opens a door", "closes it", "sits"]
    assert dict(made.pools) == {"A#0": ("A", "B", "C"), "A#1": ("A", "C", "D"), "B#0": ("B",)}
    assert {video.id: video.duration for video in made.videos} == {"A": 30.5, "B": 9.0, "C": None, "D": None}
    assert made.counts == {AnnotationBuilder.CUT: 1}


def test_frames_become_seconds_with_the_rate_of_the_video_of_a_moment(tmp_path: Path) -> None:
    made = formats.read_annotations(put(tmp_path / "pool.json", frames()))
    assert judgements(made) == [
        ("s1.avi#0", "s1.avi", 10.0, 20.0),
        ("s1.avi#0", "s2.avi", 2.0, 4.0),
        ("s1.avi#0", "gone.avi", 1.0, 2.0),  # its rate is not known: that of the query's video
        ("s1.avi#1", "s1.avi", 45.0, 50.0),
        ("s2.avi#0", "s2.avi", 0.0, 1.0),
        ("s2.avi#0", "s1.avi", 40.0, 50.0),
    ]
    assert [video.duration for video in made.videos] == [50.0, 50.0, None]


def test_as_released_positives_of_other_videos_stay_in_frames(tmp_path: Path) -> None:
    path = put(tmp_path / "pool.json", frames())
    expected = [
        ("s1.avi#0", "s1.avi", 10.0, 20.0),
        ("s1.avi#0", "s2.avi", 40.0, 80.0),
        ("s1.avi#0", "gone.avi", 10.0, 20.0),
        ("s1.avi#1", "s1.avi", 45.0, 50.0),
        ("s2.avi#0", "s2.avi", 0.0, 1.0),
        ("s2.avi#0", "s1.avi", 400.0, 600.0),
    ]
    assert judgements(released_mvmr.read_annotations(path)) == expected
    assert judgements(released_mvmr.read_annotations(path, "mvmr")) == expected


def test_a_pool_file_comes_back(tmp_path: Path) -> None:
    made = formats.read_annotations(put(tmp_path / "pool.json", frames()))
    formats.write_annotations(made, tmp_path / "again.json.gz", "mvmr")
    again = formats.read_annotations(tmp_path / "again.json.gz")
    assert judgements(again) == judgements(made)
    assert again.queries == made.queries
    assert again.videos == made.videos
    assert dict(again.pools) == dict(made.pools)


def test_ids_and_grades_that_cannot_be_kept_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    collector = AnnotationBuilder("test")
    collector.add_query("first")
    collector.judge("first", "v", 0, 1, 3.0)
    collector.add_query("second")
    formats.write_annotations(collector.annotations(), tmp_path / "pool.json", "mvmr")
    for part in ("1 grades", "1 query ids become video#i", "1 queries without judgements"):
        assert part in caplog.text
    assert judgements(formats.read_annotations(tmp_path / "pool.json")) == [("v#0", "v", 0.0, 1.0)]


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"timestamps": [[1, 2]]}, "A.timestamps: has 1 entries and sentences has 2"),
        ({"pos_moments": [[]]}, "A.pos_moments: has 1 entries and sentences has 2"),
        ({"timestamps": [[1, 2], [3]]}, "A.timestamps[1]: is not a pair: [3]"),
        ({"timestamps": [[1, 2], [3, None]]}, "A.timestamps[1][1]: is not a number"),
        ({"sentences": ["x", 4]}, "A.sentences[1]: is not a text: 4"),
        ({"pos_moments": [[["B", "x"]], []]}, "A.pos_moments[0][0]: does not have 3 values: ['B', 'x']"),
        ({"pos_moments": [[["", "x", [1, 2]]], []]}, "A.pos_moments[0][0][0]: is not an id: ''"),
        ({"pos_moments": [3, []]}, "A.pos_moments[0]: is not a list: 3"),
        ({"retrieval_pool": [["A", 1.5], []]}, "A.retrieval_pool[0][1]: is not an id: 1.5"),
        ({"duration": -2}, "A.duration: is too small: -2"),
        ({"fps": 0}, "A.fps: is 0; accepted: a finite number above 0"),
        ({"fps": 10.0}, "A: does not say its unit; accepted: "),
        ({"fps": 10.0, "num_frames": 90}, "A: does not say its unit; accepted: "),
        ({"duration": None, "num_frames": 90}, "A: does not say its unit; accepted: "),
    ],
)
def test_a_fault_is_named_with_field_and_value(changes: dict[str, Any], part: str, tmp_path: Path) -> None:
    path = put(tmp_path / "pool.json", seconds(**changes))
    with pytest.raises(FormatError) as caught:
        formats.read_annotations(path, "mvmr")
    assert str(caught.value).startswith(f"{path}: {part}")


def test_a_key_that_comes_twice_is_refused_not_lost(tmp_path: Path) -> None:
    video = json.dumps(seconds()["B"])
    for text, key in (
        (f'{{"A": {video}, "B": {video}, "A": {video}}}', "A"),
        (f'{{"B": {video[:-1]}, "retrieval_pool": []}}}}', "retrieval_pool"),
    ):
        path = tmp_path / "pool.json"
        path.write_text(text)
        with pytest.raises(FormatError) as caught:
            formats.read_annotations(path, "mvmr")
        assert str(caught.value) == (
            f"{path}: the key comes twice: {key!r}; accepted: each key once in its object"
        )


def test_a_video_id_with_a_line_break_leaves_an_error_in_one_line(tmp_path: Path) -> None:
    path = put(tmp_path / "pool.json", {"a\nb" + "c" * 500: {"sentences": 5}})
    with pytest.raises(FormatError, match=r"a\\nbc+\.\.\.: is not a list: 5; accepted: a list") as caught:
        formats.read_annotations(path, "mvmr")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300 + len(str(path))


@pytest.mark.slow
def test_the_released_pool_file_comes_back(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "annotations" / "mvmr" / "charades_test_mvmr.json.gz"
    made = formats.read_annotations(path)
    document = json.loads(gzip.decompress(path.read_bytes()))
    assert len(made.queries) == 3_720
    assert len(made.query) == 3_720 + sum(len(p) for v in document.values() for p in v["pos_moments"])
    assert sum(len(pool) == 50 for pool in made.pools.values()) == 3_716
    formats.write_annotations(made, tmp_path / "again.json", "mvmr")
    again = formats.read_annotations(tmp_path / "again.json")
    assert judgements(again) == judgements(made)
    assert (again.videos, again.queries, dict(again.pools)) == (made.videos, made.queries, dict(made.pools))


@pytest.mark.parametrize("path", cases("mvmr_eval", "charades*_subset.json"), ids=lambda path: path.stem)
def test_positives_and_pools_are_those_that_the_released_program_used(shared_data: Path, path: Path) -> None:
    golden = json.loads(path.read_text())
    made = formats.read_annotations(shared_data / "annotations" / "mvmr" / "charades_test_mvmr.json.gz")
    videos = {int(index): video["vid"] for index, video in golden["videos"].items()}
    texts = {query.id: query.text for query in made.queries}
    for query in golden["queries"]:
        video_id = videos[query["origin_video"]]
        query_id = f"{video_id}#{query['query_index_in_video']}"
        assert texts[query_id] == query["sentence"]
        assert set(made.pools[query_id]) == {videos[index] for index in query["pool_sorted_video_index"]}
        own, *others = made.qrels[query_id]
        assert (own.moment.start, own.moment.end) == pytest.approx(query["golden"], rel=1e-6)
        assert {(j.moment.video_id, j.moment.start, j.moment.end) for j in others} == {
            (videos[index], *times) for index, times in query["extra_positives_as_released"]
        }
