"""TVR: the order of a submission counts, both readers agree, faults are named, runs become submissions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.golden_folder import cases

from whenabouts.intake.files import FormatError
from whenabouts.types import Moment, ScoredMoment, UsageError, WhenaboutsError
from whenabouts_bench import formats
from whenabouts_bench.formats import tvr
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.runs import MemoryRun, RunSource

Rows = Callable[..., Any]


def submission(**changes: Any) -> dict[str, Any]:
    def entry(desc_id: Any, *rows: list[float]) -> dict[str, Any]:
        return {"desc_id": desc_id, "desc": "someone talks", "predictions": list(rows)}

    return {
        "video2idx": {"castle_1": 19, "house_2": 4, "met_3": 700},
        "VCMR": [entry(5, [4, 1.5, 3.0, 0.1], [19, 2, 2, 0.9], [4, 0, 7.25, 0.4]), entry(3)],
        "SVMR": [entry(3, [700, 0.0, 3.0, 1.0]), entry(5, [4, 1.5, 3.0, -1])],
        "VR": [entry(5, [19, 0, 0, 3.5], [4, 0, 0, 3.5])],
    } | changes


@pytest.fixture()
def put(tmp_path: Path) -> Callable[[Any], Path]:
    def write(value: Any) -> Path:
        path = tmp_path / "submission.json"
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return path

    return write


def test_the_order_of_a_list_counts_and_scores_do_not(put: Callable[[Any], Path], rows: Rows) -> None:
    source = formats.open_run(put(submission()))
    assert source.tasks == ("VCMR", "SVMR", "VR")
    assert rows(source) == {
        "5": [("house_2", 1.5, 3.0, 0.1), ("castle_1", 2.0, 2.0, 0.9), ("house_2", 0.0, 7.25, 0.4)],
        "3": [],
    }
    assert rows(source, "SVMR") == {
        "3": [("met_3", 0.0, 3.0, 1.0)],
        "5": [("house_2", 1.5, 3.0, -1.0)],
    }
    assert rows(source, "VR") == {"5": [("castle_1", -1.0, -1.0, 3.5), ("house_2", -1.0, -1.0, 3.5)]}


def test_lists_longer_than_a_hundred_are_kept_whole(put: Callable[[Any], Path], rows: Rows) -> None:
    long = [{"desc_id": 1, "predictions": [[4, i, i + 1, 0] for i in range(250)]}]
    assert len(rows(formats.open_run(put(submission(VCMR=long))))["1"]) == 250


def test_a_list_that_is_not_there_is_not_held(put: Callable[[Any], Path]) -> None:
    value = submission(SVMR=[], VR=None)
    source = formats.open_run(put(value))
    assert source.tasks == ("VCMR",)
    with pytest.raises(UsageError, match="holds VCMR, not VR"):
        list(source.blocks("VR"))


def test_a_submission_is_read_in_blocks(
    put: Callable[[Any], Path], rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [{"desc_id": i, "predictions": [[4, j, j + 1, 0] for j in range(i % 5)]} for i in range(23)]
    path = put(submission(VCMR=entries))
    whole = rows(formats.open_run(path))
    monkeypatch.setattr(tvr, "_BLOCK_QUERIES", 4)
    assert [len(block) for block in formats.open_run(path).blocks()] == [4, 4, 4, 4, 4, 3]
    assert rows(formats.open_run(path)) == whole
    entries[17]["predictions"] = [[4.0, 1, 2, 0]]  # an integer as a fraction: only the slow reader accepts it
    assert rows(formats.open_run(put(submission(VCMR=entries)))) == whole | {
        "17": [("house_2", 1.0, 2.0, 0.0)]
    }


odd = st.one_of(st.none(), st.booleans(), st.integers(-2, 20), st.floats(), st.text(max_size=2), st.just([]))
row = st.one_of(
    st.tuples(st.sampled_from([4, 19, 700]), st.integers(0, 3), st.floats(3, 9), st.floats(-5, 5)).map(list),
    st.lists(odd, min_size=3, max_size=5),
)
entry = st.fixed_dictionaries(
    {
        "desc_id": st.one_of(st.integers(0, 30), st.sampled_from(["a", "7", ""])),
        "predictions": st.lists(row, max_size=3),
    }
)


@settings(max_examples=80, deadline=None)
@given(
    first=st.lists(entry, max_size=3),
    second=st.lists(entry, max_size=2),
    index=st.sampled_from([4, 19, -1, 1.5, "x"]),
)
def test_the_fast_reader_gives_what_the_careful_one_gives(
    first: list[Any], second: list[Any], index: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("tvr") / "submission.json"
    value = submission(VCMR=first, VR=second, SVMR=None)
    value["video2idx"]["other"] = index if index == 4 else 5
    value["video2idx"]["more"] = index if index not in (4, 19) else 6
    path.write_text(json.dumps(value))

    def outcome(source: Callable[[], Any]) -> Any:
        try:
            found = source()
            return [
                (task, b.query_ids, b.offsets.tolist(), [b.video_ids[v] for v in b.video.tolist()],
                 *(np.nan_to_num(c, nan=-1).tolist() for c in (b.start, b.end, b.score)))
                for task in found.tasks for b in found.blocks(task)
            ]  # fmt: skip
        except WhenaboutsError:  # with several faults, any may be reported
            return None

    assert outcome(lambda: formats.open_run(path, "tvr")) == outcome(lambda: read_by_json(path))


def read_by_json(path: Path) -> RunSource:
    """A submission as read if msgspec refuses it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tvr, "_decode_outline", msgspec.json.Decoder(int).decode)
        return formats.open_run(path, "tvr")


def with_row(*values: Any) -> dict[str, Any]:
    return submission(VCMR=[{"desc_id": 5, "predictions": [[4, 0, 1, 0], list(values)]}])


FAULTS: list[tuple[Any, str]] = [
    ([], "is not an object: []; accepted: video2idx and"),
    ({"VCMR": []}, "video2idx: is missing"),
    (submission(video2idx=[1]), "video2idx: is not an object: [1]"),
    (submission(video2idx={"a": "0"}), "video2idx['a']: is not an index: '0'"),
    (submission(video2idx={"a": -1}), "video2idx['a']: is not an index: -1"),
    (submission(video2idx={"a": 4, "b": 4}), "video2idx['b']: is also the index of 'a': 4"),
    ({"video2idx": {"a": 0}}, "holds no answers"),
    (submission(VCMR=[], SVMR=[], VR=[]), "holds no answers"),
    (submission(VCMR={}), "VCMR: is not a list: {}"),
    (submission(VCMR=[7]), "VCMR[0]: is not an object: 7"),
    (submission(VCMR=[{"predictions": []}]), "VCMR[0].desc_id: is missing"),
    (submission(VCMR=[{"desc_id": 1.5, "predictions": []}]), "VCMR[0].desc_id: is not an id: 1.5"),
    (submission(VCMR=[{"desc_id": 1}]), "VCMR[0].predictions: is missing"),
    (submission(VCMR=[{"desc_id": 1, "predictions": []}] * 2), "VCMR[1].desc_id: comes a second time"),
    (with_row(4, 0, 1), "VCMR[0].predictions[1]: does not have 4 values: [4, 0, 1]"),
    (with_row(5, 0, 1, 0), "VCMR[0].predictions[1][0]: is not an index of video2idx: 5"),
    (with_row(4, 2, 1, 0), "VCMR[0].predictions[1][1]: 2.0 is not before the end 1.0; accepted: start"),
    (with_row(4, -1, 1, 0), "VCMR[0].predictions[1][1]: is negative: -1.0"),
    (with_row(4, "0", 1, 0), "VCMR[0].predictions[1][1]: is not a number: '0'"),
    (with_row(4, 0, 1, None), "VCMR[0].predictions[1][3]: is not a number"),
    (with_row(4, 0, 10**400, 0), "VCMR[0].predictions[1][2]: is not finite: inf"),
    ('{"video2idx": {"a": 0}, "VCMR": [{"desc_id": 1, "predictions": [[0, 1, 2, NaN]]}]}', "[0][3]: is not"),
    ('{"video2idx": {"a": 0}, "VCMR": [\n{"desc_id": 1 "predictions": []}]}', "line 2: is not JSON"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "part"), FAULTS)
def test_a_fault_of_a_submission_is_named_with_field_and_value(
    value: Any, part: str, put: Callable[[Any], Path]
) -> None:
    path = put(value)
    with pytest.raises(FormatError) as caught:
        for task in (source := formats.open_run(path, "tvr")).tasks:
            list(source.blocks(task))
    assert str(path) in str(caught.value) and part in str(caught.value)


LINE = {"vid_name": "v", "duration": 9.5, "ts": [1, 9.75], "desc": "x", "type": "vt", "desc_id": 3}


def judged(path: Path, *lines: Any) -> Annotations:
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return formats.read_annotations(path)


def test_annotations_keep_raw_times_and_types(tmp_path: Path) -> None:
    still = LINE | {"desc_id": "s", "ts": [2, 2], "type": "v"}
    made = judged(tmp_path / "gt.jsonl", LINE, still)
    assert [(q.id, q.text, dict(q.metadata)) for q in made.queries] == [
        ("3", "x", {"type": "vt"}), ("s", "x", {"type": "v"})
    ]  # fmt: skip
    assert made.start.tolist() == [1.0, 2.0] and made.end.tolist() == [9.75, 2.0]
    assert made.counts == {AnnotationBuilder.CUT: 1, AnnotationBuilder.EMPTY: 1}
    assert made.videos[0].duration == 9.5
    formats.write_annotations(made, tmp_path / "again", "tvr")
    again = formats.read_annotations(tmp_path / "again")
    assert again.queries == made.queries and again.videos == made.videos
    assert again.start.tolist() == made.start.tolist() and again.end.tolist() == made.end.tolist()


def test_a_line_without_times_is_a_query_without_judgement(tmp_path: Path) -> None:
    hidden = {"desc": "y", "type": "t", "desc_id": 4}
    known = LINE | {"desc_id": 5}
    del known["ts"]
    made = judged(tmp_path / "test.jsonl", hidden, known)
    assert [query.id for query in made.queries] == ["4", "5"] and not len(made.query)
    assert dict(made.pools) == {"5": ("v",)}
    formats.write_annotations(made, tmp_path / "again", "tvr")
    again = formats.read_annotations(tmp_path / "again")
    assert again.queries == made.queries and dict(again.pools) == dict(made.pools)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"desc_id": None}, "desc_id: is not an id"),
        ({"ts": [1]}, "ts: is not a pair: [1]; accepted: [start, end]"),
        ({"ts": [1, "2"]}, "ts[1]: is not a number: '2'"),
        ({"vid_name": ""}, "vid_name: is not an id: ''"),
        ({"duration": -3}, "duration: is too small: -3"),
        ({"desc": 3}, "desc: is not a text: 3"),
        ({"video2idx": {}}, "video2idx: is in a submission"),
    ],
)
def test_a_fault_of_annotations_is_named(change: dict[str, Any], part: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError) as caught:
        judged(tmp_path / "gt.jsonl", LINE, LINE | {"desc_id": 9} | change)
    assert "line 2: " in str(caught.value) and part in str(caught.value)


def test_a_plain_run_becomes_a_submission(
    tmp_path: Path, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    truth = judged(tmp_path / "gt.jsonl", LINE, LINE | {"desc_id": 4, "vid_name": "w"})
    moments = [ScoredMoment(Moment(f"v{i % 7}", i, i + 1), -i) for i in range(150)]
    moments.insert(2, ScoredMoment(Moment("v", 0.5, 1), -1.5))
    path = tmp_path / "submission.json"
    formats.write_run(MemoryRun.from_run({"3": moments}), path, "tvr", truth)
    source = formats.open_run(path)
    assert source.tasks == ("VCMR", "VR"), "moments of a corpus do not answer in a given video"
    assert len(rows(source)["3"]) == 100
    assert rows(source)["3"][:3] == [("v0", 0, 1, 0), ("v1", 1, 2, -1), ("v", 0.5, 1, -1.5)]
    assert [row[0] for row in rows(source, "VR")["3"]] == ["v0", "v1", "v", "v2", "v3", "v4", "v5", "v6"]
    assert json.loads(path.read_text())["VCMR"][0]["desc"] == "x"
    assert "1 lists of VCMR are cut to 100" in caplog.text
    assert "1 queries have no list of VCMR" in caplog.text


def test_without_judgements_there_are_no_texts(
    tmp_path: Path, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "submission.json"
    formats.write_run(MemoryRun.from_run({"q": [ScoredMoment(Moment("v", 0, 1), 1)]}), path, "tvr")
    assert formats.open_run(path).tasks == ("VCMR", "VR")
    assert "the texts are left out (the judgements are needed)" in caplog.text
    assert rows(formats.open_run(path)) == {"q": [("v", 0.0, 1.0, 1.0)]}


@pytest.mark.parametrize("path", cases("metrics", "tvr*_submission.json"), ids=lambda path: path.stem)
def test_the_released_submission_reads_the_same_both_ways(path: Path, rows: Rows) -> None:
    source = formats.open_run(path)
    document = json.loads(path.read_text())
    names = {index: name for name, index in document["video2idx"].items()}
    for task in source.tasks:
        found = rows(source, task)
        assert found == rows(read_by_json(path), task)
        assert list(found) == [str(entry["desc_id"]) for entry in document[task]]
        for entry in document[task]:
            expected = [(names[row[0]], row[3]) for row in entry["predictions"]]
            assert [(row[0], row[3]) for row in found[str(entry["desc_id"])]] == expected


def test_spans_of_several_annotators_are_true_where_two_agree(tmp_path: Path) -> None:
    """HERO's lines of DiDeMo."""
    path = tmp_path / "query_data.jsonl"
    shared = {"vid_name": "7@N00_1.mov", "desc_id": 3, "desc": "the dog looks up"}
    alone = {"vid_name": "7@N00_2.mov", "desc_id": 4, "desc": "a door", "ts": [[0, 5], [5, 10], [0, 10]]}
    lines = [{**shared, "ts": [[5, 10], [0, 15], [5, 10], [10, 15], [0, 15], [5, 10]]}, alone]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    read = formats.read_annotations(path)
    assert list(zip(read.start.tolist(), read.end.tolist(), strict=True)) == [(5, 10), (0, 15)]
    assert [video.id for video in read.videos] == ["7@N00_1.mov", "7@N00_2.mov"]
    assert read.counts == {"queries have no span that two annotators agree on": 1}
    path.write_text(json.dumps({**shared, "ts": [[5, 10], [5]]}) + "\n", encoding="utf-8")
    with pytest.raises(FormatError, match=r"query_data\.jsonl.*ts"):
        formats.read_annotations(path)
