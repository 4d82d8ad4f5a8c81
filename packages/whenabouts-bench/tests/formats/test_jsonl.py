"""Our JSON lines: both readers of a run agree, files come back as they were written, faults are named."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.small_disk import mounted

from whenabouts.intake.files import FormatError
from whenabouts.types import Moment, ScoredMoment, UsageError, WhenaboutsError
from whenabouts_bench import formats
from whenabouts_bench.formats import jsonl
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.runs import RANKED_CORPUS, MemoryRun, RunBlock, Task, moments_of

Rows = Callable[..., Any]

ids = st.text(min_size=1, max_size=8).filter(lambda text: text.isascii() or _is_unicode(text))
numbers = st.floats(allow_nan=False, allow_infinity=False)
odd = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 10**20), numbers, st.text(max_size=3), st.just([]), st.just({})
)


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


@st.composite
def spans(draw: st.DrawFn) -> tuple[float, float]:
    start, end = sorted(draw(st.lists(st.floats(0, 1e6), min_size=2, max_size=2, unique=True)))
    return start, end


scored = st.builds(
    lambda video, span, score: ScoredMoment(Moment(video, *span), score), ids, spans(), numbers
)
runs = st.dictionaries(ids, st.lists(scored, max_size=5), min_size=1, max_size=5)


@st.composite
def moments(draw: st.DrawFn) -> dict[str, Any]:
    start, end = draw(spans())
    moment = {"video_id": draw(ids), "start": start, "end": end, "score": draw(numbers)}
    if draw(st.integers(0, 5)) == 0:
        moment[draw(st.sampled_from(["video_id", "start", "end", "score", "extra"]))] = draw(odd)
    if draw(st.integers(0, 5)) == 0:
        moment.pop(draw(st.sampled_from(sorted(moment))))
    if draw(st.integers(0, 5)) == 0:
        moment.pop("start", None)
        moment.pop("end", None)
    return moment


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    line: dict[str, Any] = {"query_id": draw(ids), "moments": draw(st.lists(moments(), max_size=3))}
    if draw(st.integers(0, 3)) == 0:
        line["confidence"] = draw(st.floats(0, 1) | st.integers(-1, 2) | odd)
    if draw(st.integers(0, 7)) == 0:
        line[draw(st.sampled_from(["query_id", "moments", "note"]))] = draw(odd)
    text = json.dumps(line, ensure_ascii=draw(st.booleans()))
    if draw(st.integers(0, 9)) == 0:
        text = text.replace("1", draw(st.sampled_from(["NaN", "1e999", "01", "\\ud800", "-0", "1E0"])), 1)
    return text.encode("utf-8", "surrogatepass")


def outcome(data: bytes) -> list[RunBlock] | str:
    try:
        return list(jsonl.blocks_of_lines(io.BytesIO(data), Path("run.jsonl")))
    except WhenaboutsError as error:
        return str(error)


def same(left: RunBlock, right: RunBlock) -> bool:
    columns = ("offsets", "video", "start", "end", "score")
    sure = [one.confidence for one in (left, right)]
    if (sure[0] is None) != (sure[1] is None):
        return False
    if sure[0] is not None and sure[1] is not None and not np.array_equal(sure[0], sure[1], equal_nan=True):
        return False
    return (left.query_ids, left.video_ids) == (right.query_ids, right.video_ids) and all(
        np.array_equal(getattr(left, name), getattr(right, name), equal_nan=name != "video")
        for name in columns
    )


@pytest.mark.slow
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(lines(), max_size=4))
def test_the_fast_reader_gives_what_the_careful_one_gives(made: list[bytes]) -> None:
    data = b"\n".join(made)
    fast = outcome(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "_decode_line", msgspec.json.Decoder(int).decode)
        careful = outcome(data)
    if isinstance(fast, str) or isinstance(careful, str):
        assert fast == careful
    else:
        assert all(map(same, fast, careful)) and len(fast) == len(careful)


def test_the_fast_reader_takes_plain_lines_without_help(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("a plain line was left to the careful reader")

    monkeypatch.setattr(jsonl, "parse_line", refuse)
    line = b'{"query_id": "q", "moments": [{"video_id": "v", "start": 1, "end": 2.5, "score": -3, "x": [1]}]}'
    assert not isinstance(outcome(line), str)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(made=runs)
def test_any_run_comes_back_as_it_was_written(
    made: dict[str, list[ScoredMoment]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("run") / "run.jsonl"
    formats.write_run(MemoryRun.from_run(made), path, "jsonl")
    again = list(formats.open_run(path).blocks())
    expected = list(MemoryRun.from_run(made).blocks())
    assert len(again) == len(expected) == 1
    assert same(again[0], expected[0])


def test_an_endless_moment_is_refused_and_gets_no_end(tmp_path: Path) -> None:
    times = (np.array([2.0]), np.array([np.inf]))
    block = RunBlock(("q",), np.array([0, 1]), ("v",), np.zeros(1, np.int32), *times, np.ones(1))
    run = MemoryRun("run", {"VCMR": (block,)})
    with pytest.raises(FormatError, match="not JSON compliant"):
        jsonl.write_run(run, tmp_path / "run.jsonl")
    with pytest.raises(UsageError, match="times must be finite"):
        list(moments_of(run))


@settings(max_examples=30)
@given(told=st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=1, max_size=6))
def test_how_sure_first_answers_are_comes_back_with_them(
    told: list[float | None], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("run")
    rows = [{"video_id": "v", "start": 1.0, "end": 2.0, "score": 0.5}, {"video_id": "u", "score": 0.4}]
    lines = [{"query_id": f"q{at}", "confidence": one, "moments": rows} for at, one in enumerate(told)]
    (folder / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (block,) = formats.open_run(folder / "a.jsonl").blocks()
    if all(one is None for one in told):
        assert block.confidence is None
    else:
        assert block.confidence is not None
        assert [None if np.isnan(one) else one for one in block.confidence.tolist()] == told
    formats.write_run(formats.open_run(folder / "a.jsonl"), folder / "b.jsonl", "jsonl")
    (again,) = formats.open_run(folder / "b.jsonl").blocks()
    assert same(again, block)
    without = [line for line in (folder / "b.jsonl").read_text().splitlines() if "confidence" not in line]
    assert len(without) == told.count(None)


def test_a_run_is_read_in_blocks_and_no_query_is_split(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rows: Rows
) -> None:
    made = {
        f"q{number}": [ScoredMoment(Moment(f"v{i}", i, i + 1), -i) for i in range(number % 7)]
        for number in range(60)
    }
    path = tmp_path / "run.jsonl"
    formats.write_run(MemoryRun.from_run(made), path, "jsonl")
    whole = rows(formats.open_run(path))
    monkeypatch.setattr(jsonl, "BLOCK_ROWS", 20)
    blocks = list(formats.open_run(path).blocks())
    assert len(blocks) > 5
    assert max(len(block.video) for block in blocks) < 20 + 7
    assert rows(formats.open_run(path)) == whole
    assert [query for block in blocks for query in block.query_ids] == list(made)


def written(tmp_path: Path, *lines: Any) -> Path:
    path = tmp_path / "run.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


def moment(**fields: Any) -> dict[str, Any]:
    return {"video_id": "v", "start": 1.0, "end": 2.0, "score": 0.5} | fields


def sure(confidence: Any) -> dict[str, Any]:
    return {"query_id": "a", "confidence": confidence, "moments": []}


FAULTS: list[tuple[str, Any, tuple[str, ...]]] = [
    ("not JSON", '{"query_id": "a" "moments": []}', ("line 2", "not JSON", "column 18")),
    ("a list", "[1]", ("line 2", "is not an object: [1]", "a JSON object a line")),
    ("no moments", {"query_id": "a"}, ("line 2", "moments: is missing")),
    ("moments no list", {"query_id": "a", "moments": {}}, ("line 2", "moments: is not a list: {}")),
    ("a moment no object", {"query_id": "a", "moments": [3]}, ("moments[0]: is not an object: 3",)),
    ("no query id", {"moments": []}, ("line 2", "query_id: is missing")),
    ("empty query id", {"query_id": "", "moments": []}, ("query_id: is not an id: ''",)),
    ("query id a fraction", {"query_id": 1.5, "moments": []}, ("query_id: is not an id: 1.5",)),
    ("query id a truth", {"query_id": True, "moments": []}, ("query_id: is not an id: True",)),
    ("video id a list", [moment(video_id=[1])], ("moments[0].video_id: is not an id: [1]", "whole number")),
    ("no video id", [{"start": 1, "end": 2, "score": 3}], ("moments[0].video_id: is missing",)),
    ("no score", [{"video_id": "v", "start": 1, "end": 2}], ("moments[0].score: is missing",)),
    ("NaN score", '{"query_id": "a", "moments": [{"video_id": "v", "score": NaN}]}', ("[0].score", "nan")),
    ("huge score", '{"query_id": "a", "moments": [{"video_id": "v", "score": 1e999}]}', ("score", "inf")),
    ("long score", [moment(score=10**400)], ("moments[0].score: is a whole number of more than 64 bits",)),
    ("score a text", [moment(score="0.5")], ("moments[0].score: is not a number: '0.5'", "a finite number")),
    ("negative start", [moment(), moment(start=-0.5)], ("moments[1].start: is negative: -0.5",)),
    ("empty span", [moment(start=2.0)], ("moments[0].start: 2.0 is not before the end 2.0", "start < end")),
    ("reversed span", [moment(start=3)], ("moments[0].start: 3.0 is not before the end 2.0",)),
    ("start alone", [{"video_id": "v", "start": 1, "score": 3}], ("moments[0].end: is missing",)),
    ("no share", sure(1.5), ("confidence: is too large: 1.5", "0 to 1")),
    ("negative confidence", sure(-1), ("confidence: is too small: -1",)),
    ("confidence a text", sure("high"), ("confidence: is not a number",)),
    ("a query twice", {"query_id": "first", "moments": []}, ("line 2", "(first in line 1): 'first'")),
    ("lone surrogate", '{"query_id": "\\ud800", "moments": []}', ("query_id: is not valid Unicode",)),
    ("deep", '{"query_id": "a", "x": ' + "[" * 99_999 + "]" * 99_999 + "}", ("moments|nested",)),
    ("two a line", '{"query_id": "a", "moments": []}{"query_id": "b"}', ("line 2", "Extra data")),
    ("judgement", {"query_id": "a", "video_id": "v"}, ("video_id: is in judgements, not in a run",)),
]  # fmt: skip


@pytest.mark.parametrize(("line", "parts"), [fault[1:] for fault in FAULTS], ids=[f[0] for f in FAULTS])
def test_a_fault_of_a_run_is_named_with_line_field_and_value(
    line: Any, parts: tuple[str, ...], tmp_path: Path
) -> None:
    line = {"query_id": "a", "moments": line} if isinstance(line, list) else line
    path = written(tmp_path, {"query_id": "first", "moments": [moment()]}, line)
    with pytest.raises(FormatError) as caught:
        list(formats.open_run(path).blocks())
    message = str(caught.value)
    assert message.startswith(f"{path}, line 2") and "\n" not in message
    for part in parts:
        assert any(choice in message for choice in part.split("|")), message


def test_a_file_without_answers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("\n \n")
    with pytest.raises(FormatError, match="holds no answers"):
        list(formats.open_run(path, "jsonl").blocks())


def test_a_query_may_be_answered_with_nothing(tmp_path: Path, rows: Rows) -> None:
    path = written(tmp_path, {"query_id": "a", "moments": []})
    assert rows(formats.open_run(path)) == {"a": []}


def test_whole_numbers_are_ids_too(tmp_path: Path, rows: Rows) -> None:
    path = written(tmp_path, {"query_id": 7, "moments": [moment(video_id=12)]})
    assert rows(formats.open_run(path)) == {"7": [("12", 1.0, 2.0, 0.5)]}


def test_a_run_without_times_is_one_of_videos(tmp_path: Path, rows: Rows) -> None:
    videos = [{"video_id": "w", "score": 1}, {"video_id": "v", "score": 2}]
    path = written(tmp_path, {"query_id": "x", "moments": []}, {"query_id": "a", "moments": videos})
    source = formats.open_run(path)
    assert source.tasks == ("VR",)
    assert rows(source, "VR")["a"] == [("v", -1.0, -1.0, 2.0), ("w", -1.0, -1.0, 1.0)]
    with pytest.raises(UsageError, match="holds VR, not VCMR"):
        list(source.blocks())
    path.write_text(path.read_text().replace("\n", "\n\n").rstrip())  # blank lines, and no end of line
    assert formats.open_run(path).tasks == ("VR",)
    nulls = {"start": None, "end": None}
    path = written(tmp_path, {"query_id": "a", "moments": [{**video, **nulls} for video in videos]})
    assert formats.open_run(path).tasks == ("VR",)


def test_moments_in_the_own_video_of_each_query_say_so(tmp_path: Path, rows: Rows) -> None:
    answer = {"a": [ScoredMoment(Moment("v", 1.0, 2.0), 0.5)]}
    block = MemoryRun.from_run(answer).lists["VCMR"][0]
    formats.write_run(MemoryRun("own", {"SVMR": (block,)}), tmp_path / "own.jsonl", "jsonl")
    source = formats.open_run(tmp_path / "own.jsonl")
    assert (source.tasks, source.answered) == (("SVMR",), {"SVMR": "SVMR"})
    assert rows(source, "SVMR") == {"a": [("v", 1.0, 2.0, 0.5)]}
    mixed = written(
        tmp_path, {"query_id": "a", "moments": []}, {"query_id": "b", "moments": [], "task": "SVMR"}
    )
    with pytest.raises(
        FormatError, match=r"line 2: task: is another than before: 'SVMR'; accepted: no task, as"
    ):
        list(formats.open_run(mixed).blocks())


@pytest.mark.parametrize(
    ("lists", "answered", "task"),
    [
        (("VCMR",), None, "VCMR"),
        (("VCMR", "VR"), None, "VCMR"),
        (("VCMR",), RANKED_CORPUS, ["VCMR", "VR"]),
        (("VR",), None, "VR"),
    ],
)
def test_a_run_says_which_tasks_its_list_answers(
    lists: tuple[Task, ...], answered: Any, task: Any, tmp_path: Path
) -> None:
    block = MemoryRun.from_run({"a": [ScoredMoment(Moment("v", 1.0, 2.0), 0.5)]}).lists["VCMR"][0]
    nothing = np.full(1, np.nan)
    videos = replace(block, start=nothing, end=nothing)
    run = MemoryRun("run", {own: (videos if own == "VR" else block,) for own in lists}, answered)
    formats.write_run(run, tmp_path / "run.jsonl", "jsonl")
    assert json.loads((tmp_path / "run.jsonl").read_text())["task"] == task
    again = formats.open_run(tmp_path / "run.jsonl")
    assert again.tasks == lists[:1]
    assert again.answered == (answered or {lists[0]: lists[0]})


def test_a_run_that_says_nothing_of_its_task_is_written_without_one(tmp_path: Path) -> None:
    plain = written(tmp_path, {"query_id": "a", "moments": [moment()]})
    source = formats.open_run(plain)
    assert source.answered is None
    formats.write_run(source, tmp_path / "again.jsonl", "jsonl")
    assert "task" not in json.loads((tmp_path / "again.jsonl").read_text())


def test_scores_decide_and_a_contradicting_order_is_told_once(
    tmp_path: Path, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    rising = [moment(video_id="b", score=1), moment(video_id="a", score=2)]
    tied = [moment(video_id="b"), moment(video_id="a")]
    path = written(
        tmp_path,
        {"query_id": "r", "moments": rising},
        {"query_id": "t", "moments": tied},
        {"query_id": "f", "moments": rising[::-1]},
    )
    source = formats.open_run(path)
    with caplog.at_level(logging.WARNING, "whenabouts"):
        found = rows(source)
        rows(source)
    assert [row[0] for row in found["r"]] == [row[0] for row in found["t"]] == ["a", "b"]
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: the scores of 1 queries contradict the order of their moments; the scores count"
    ]


def test_nothing_is_read_before_it_is_asked_for(tmp_path: Path) -> None:
    path = written(
        tmp_path, *({"query_id": f"q{i}", "moments": [moment()] * 40} for i in range(200)), "no json"
    )
    source = formats.open_run(path)
    with pytest.raises(FormatError, match="line 201"):
        list(source.blocks())


def rich() -> Annotations:
    collector = AnnotationBuilder("rich", cut=False)
    collector.add_video("v1", 12.5, language="en", self="me")
    collector.add_video("v2")
    collector.add_query("q1", "A tree – falls", type="v", tags=["x", {"y": None}])
    collector.add_query("q2", "nobody judged this")
    collector.judge("q1", "v1", 1.0, 40.0, 3.0)
    collector.judge("q1", "v2", 0.1, 0.2, 0.0)
    collector.judge("q1", "v2", 0.0, 0.0)
    collector.set_pool("q2", ["v2", "v3"])
    return collector.annotations()


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_folder_keeps_all_there_is(suffix: str, tmp_path: Path) -> None:
    made = rich()
    formats.write_annotations(made, tmp_path, "jsonl")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "pools.jsonl", "qrels.jsonl", "queries.jsonl", "videos.jsonl"
    ]  # fmt: skip
    if suffix:
        import gzip

        for path in list(tmp_path.iterdir()):
            path.with_name(path.name + suffix).write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    for again in (
        formats.read_annotations(tmp_path / f"qrels.jsonl{suffix}"),
        formats.read_annotations(tmp_path, "jsonl"),
    ):
        assert again.videos == made.videos
        assert again.queries == made.queries
        assert [dict(query.metadata) for query in again.queries] == [dict(q.metadata) for q in made.queries]
        assert again.qrels == made.qrels
        assert again.pools == made.pools
        assert again.start.tolist() == made.start.tolist()
        assert again.relevance.tolist() == made.relevance.tolist()


def test_qrels_of_another_name_stand_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    formats.write_annotations(rich(), tmp_path, "jsonl")
    formats.write_annotations(rich(), tmp_path / "other.jsonl", "jsonl")
    assert "2 texts of queries are left out" in caplog.text and "1 pools" in caplog.text
    again = formats.read_annotations(tmp_path / "other.jsonl")
    assert [query.text for query in again.queries] == [""]
    assert again.qrels["q1"] == rich().qrels["q1"]


QREL_FAULTS: list[tuple[str, tuple[str, ...]]] = [
    ('{"query_id": "a"}', ("video_id: is missing",)),
    ('{"query_id": "a", "video_id": "v", "start": 1}', ("end: is missing",)),
    ('{"query_id": "a", "video_id": "v", "start": 2, "end": 1}', ("start: 2.0 is not before the end 1.0",)),
    ('{"query_id": "a", "video_id": "v", "start": -1, "end": 1}', ("start: is negative: -1.0",)),
    ('{"query_id": "a", "video_id": "v", "relevance": -1}', ("relevance: is too small: -1", "at least 0")),
    ('{"query_id": "a", "video_id": "v", "relevance": "high"}', ("relevance: is not a number: 'high'",)),
    ('{"query_id": "a", "video_id": "v", "relevance": NaN}', ("relevance: is not finite: nan",)),
    ('{"query_id": "a", "moments": []}', ("moments: is in a run, not in judgements",)),
    ('{"query_id": "a", "video_id": "v", "start": 1, "end": 1e999}', ("end: is not finite: inf",)),
]  # fmt: skip


@pytest.mark.parametrize(("line", "parts"), QREL_FAULTS)
def test_a_fault_of_judgements_is_named_with_line_field_and_value(
    line: str, parts: tuple[str, ...], tmp_path: Path
) -> None:
    path = written(tmp_path, {"query_id": "a", "video_id": "v", "start": 0, "end": 1}, line)
    with pytest.raises(FormatError) as caught:
        formats.read_annotations(path)
    message = str(caught.value)
    assert message.startswith(f"{path}, line 2")
    assert all(part in message for part in parts), message


@pytest.mark.parametrize(
    ("name", "line", "part"),
    [
        ("videos", '{"video_id": "v", "duration": -1}', "duration: is too small: -1"),
        ("queries", '{"query_id": "q", "text": 3}', "text: is not a text: 3"),
        ("pools", '{"query_id": "q", "video_ids": [""]}', "video_ids[0]: is not an id: ''"),
    ],
)
def test_a_fault_beside_the_judgements_is_named_too(name: str, line: str, part: str, tmp_path: Path) -> None:
    (tmp_path / "qrels.jsonl").write_text('{"query_id": "a", "video_id": "v", "start": 0, "end": 1}\n')
    (tmp_path / f"{name}.jsonl").write_text(line + "\n")
    with pytest.raises(FormatError) as caught:
        formats.read_annotations(tmp_path / "qrels.jsonl")
    assert f"{name}.jsonl, line 1" in str(caught.value) and part in str(caught.value)


@pytest.mark.parametrize(
    ("name", "first", "second", "part"),
    [
        (
            "queries", {"text": "a door"}, {"text": "a window"},
            "queries.jsonl, line 3: query_id: 'a' comes again with another text than in line 1 ('a door'): "
            "'a window'; accepted: one line for each query",
        ),
        (
            "pools", {"video_ids": ["v", "w"]}, {"video_ids": ["v"]},
            "pools.jsonl, line 3: query_id: 'a' comes again with another video_ids than in line 1",
        ),
    ],
)  # fmt: skip
def test_a_query_with_two_lines_is_counted_where_they_agree_and_refused_where_not(
    name: str, first: dict[str, Any], second: dict[str, Any], part: str, tmp_path: Path
) -> None:
    (tmp_path / "qrels.jsonl").write_text('{"query_id": "a", "video_id": "v", "start": 0, "end": 1}\n')
    lines = [{"query_id": "a", **first}, {"query_id": "b", **first}, {"query_id": "a", **first}]
    path = tmp_path / f"{name}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = formats.read_annotations(tmp_path)
    assert dict(found.counts) == {"query ids come twice": 1}
    assert found.queries[0].id == "a"
    lines[2] |= second
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(FormatError) as caught:
        formats.read_annotations(tmp_path)
    assert part in str(caught.value)


def test_a_judgement_without_length_keeps_its_video_and_is_counted(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {"query_id": "a", "video_id": "v", "start": 5, "end": 5},
        '{"query_id": "a", "video_id": "w", "start": 1, "end": 2}',
    )
    found = formats.read_annotations(path)
    assert dict(found.counts) == {"moments have no length": 1}
    assert [video.id for video in found.videos] == ["v", "w"]
    assert [judgement.moment.video_id for judgement in found.qrels["a"]] == ["w"]


def test_judgements_and_videos_that_contradict_earlier_ones_are_counted(tmp_path: Path) -> None:
    moment: dict[str, Any] = {"query_id": "a", "video_id": "v", "start": 1, "end": 2}
    other: list[dict[str, Any]] = [{"video_id": "w"}, {"start": 0}, {"end": 3}, {"query_id": "b"}]
    grades = [moment | {"relevance": grade} for grade in (3, 0, 3)]
    path = written(tmp_path, *grades, *(moment | change for change in other)).rename(tmp_path / "qrels.jsonl")
    (tmp_path / "videos.jsonl").write_text(
        "".join(json.dumps({"video_id": "v", "duration": seconds}) + "\n" for seconds in (9, 9, None, 8))
    )
    found = formats.read_annotations(path)
    assert dict(found.counts) == {
        "videos come again with another length": 1,
        "judgements come twice": 1,
        "judgements grade a moment that their query has with another grade": 1,
    }
    assert found.videos[0].duration == 8
    grade = found.relevance[found.query == 0]
    assert grade.tolist() == [3, 0, 3, 1, 1, 1]  # all stay


@pytest.mark.parametrize(
    "line",
    [
        '{"query_id": "a", "video_id": "v", "start": 1, "end": 2, "relevance": 3, "relevance": 0}',
        '{"query_id": "a", "moments": [{"video_id": "v", "score": 1}], "moments": []}',
        '{"query_id": "a", "query_id": "b", "moments": []}',
    ],
)
def test_a_key_that_comes_twice_in_a_line_is_refused(line: str, tmp_path: Path) -> None:
    path = written(tmp_path, '{"query_id": "z", "moments": []}' if "moments" in line else "", line)
    with pytest.raises(
        FormatError, match=r"line 2: the key comes twice: '(relevance|moments|query_id)'; accepted"
    ):
        if "moments" in line:
            list(formats.open_run(path, "jsonl").blocks())
        else:
            formats.read_annotations(path, "jsonl")


def test_a_folder_whose_files_cannot_all_be_written_stays_as_it_was(tmp_path: Path) -> None:
    before = AnnotationBuilder("before")
    before.add_query("a", "words")
    before.judge("a", "v", 1.0, 2.0)
    formats.write_annotations(before.annotations(), tmp_path, "jsonl")
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    after = AnnotationBuilder("after")
    after.add_query("b", "\ud800")
    after.judge("b", "w", 1.0, 2.0)
    with pytest.raises(FormatError, match="cannot be written: text that is not valid Unicode"):
        formats.write_annotations(after.annotations(), tmp_path, "jsonl")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == kept


@pytest.mark.parametrize("renamed", range(5))
def test_a_folder_is_read_as_before_or_after_a_kill_or_refused(
    renamed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(text: str) -> None:
        builder = AnnotationBuilder("some")
        builder.add_query("a", text)
        builder.judge("a", "v", 1.0, 2.0)
        formats.write_annotations(builder.annotations(), tmp_path, "jsonl")

    write("before")
    replace, left = Path.replace, [renamed]

    def killed(self: Path, target: Path) -> Path:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return replace(self, target)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt) if renamed < 4 else nullcontext():
        patched.setattr(Path, "replace", killed)
        write("after")
    if 1 <= renamed < 4:
        with pytest.raises(FormatError, match="cut short; write these judgements again"):
            formats.read_annotations(tmp_path)
        write("after")
    text = formats.read_annotations(tmp_path).queries[0].text
    assert text == ("before" if renamed == 0 else "after")
    assert not (tmp_path / ".unfinished").exists()


def test_a_full_disk_leaves_a_folder_of_judgements_as_it_was(tmp_path: Path) -> None:
    def write(text: str, folder: Path) -> dict[str, bytes]:
        builder = AnnotationBuilder("some")
        builder.add_query("a", text)
        builder.judge("a", "v", 1.0, 2.0)
        formats.write_annotations(builder.annotations(), folder, "jsonl")
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    with mounted(tmp_path / "disk", 1) as disk:
        (disk / "truth").mkdir()
        before = write("words", disk / "truth")
        with pytest.raises(OSError, match="No space"):
            (disk / "other").write_bytes(bytes(1 << 20))
        with pytest.raises(FormatError, match=r"qrels\.jsonl: cannot be written: No space left"):
            write("other words", disk / "truth")
        assert {path.name: path.read_bytes() for path in (disk / "truth").iterdir()} == before


def test_a_video_that_a_pool_names_twice_counts_once(tmp_path: Path) -> None:
    (tmp_path / "qrels.jsonl").write_text('{"query_id": "a", "video_id": "v", "start": 0, "end": 1}\n')
    (tmp_path / "pools.jsonl").write_text('{"query_id": "a", "video_ids": ["w", "v", "w", "w"]}\n')
    found = formats.read_annotations(tmp_path)
    assert dict(found.pools) == {"a": ("w", "v")}
    assert dict(found.counts) == {"videos come twice in a pool": 2}


def test_an_order_that_scores_contradict_is_written_so_that_it_comes_back(
    tmp_path: Path, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    block = RunBlock(
        query_ids=("odd", "fine"),
        offsets=np.array([0, 3, 4]),
        video_ids=("a", "b"),
        video=np.array([1, 0, 1, 0], np.int32),
        start=np.array([1.0, 5.0, 2.0, 1.0]),
        end=np.array([2.0, 5.0, 3.0, 2.0]),
        score=np.array([0.5, 0.9, 0.5, 0.1]),
    )
    path = tmp_path / "run.jsonl"
    formats.write_run(
        MemoryRun("memory", MappingProxyType({"VCMR": (block,), "VR": (block,)})), path, "jsonl"
    )
    assert rows(formats.open_run(path)) == {
        "odd": [("b", 1.0, 2.0, 3.0), ("a", -1.0, -1.0, 2.0), ("b", 2.0, 3.0, 1.0)],
        "fine": [("a", 1.0, 2.0, 0.1)],
    }
    assert "1 queries had scores that contradict their order" in caplog.text
    assert "equal scores" not in caplog.text
    assert "1 spans without length" in caplog.text
    assert "list left out: VR" in caplog.text


def test_a_line_without_end_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whenabouts_bench.formats.json_records.LONGEST_LINE", 1 << 20)
    path = tmp_path / "run.jsonl"
    path.write_bytes(b'{"query_id": "a", "moments": []}\n{"query_id": "' + b"a" * (2 << 20))
    with pytest.raises(FormatError, match="line 2: has more than 1 MiB in one line"):
        list(formats.open_run(path).blocks())


def test_a_folder_stands_for_the_judgements_in_it(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"is a folder without qrels\.jsonl"):
        formats.read_annotations(tmp_path)
    (tmp_path / "qrels.jsonl").write_text('{"query_id": "q", "video_id": "v", "start": 1, "end": 2}\n')
    (tmp_path / "pools.jsonl").write_text('{"query_id": "q", "video_ids": ["v", "w"]}\n')
    assert formats.read_annotations(tmp_path).pools == {"q": ("v", "w")}


def test_a_judgement_without_a_grade_is_of_relevance_1(tmp_path: Path) -> None:
    lines = ['{"query_id": "a", "video_id": "v", "start": 0, "end": 2}', '{"query_id": "a", "video_id": "w"}']
    (tmp_path / "made.jsonl").write_text("\n".join(lines) + "\n")
    assert formats.read_annotations(tmp_path / "made.jsonl").relevance.tolist() == [1.0, 1.0]
