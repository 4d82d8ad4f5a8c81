"""TREC files: both readers of a run agree with each other and with a plain one; faults are named."""

from __future__ import annotations

import io
import json
import math
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whenabouts.intake.files import FormatError
from whenabouts.types import Moment, ScoredMoment, UsageError, WhenaboutsError
from whenabouts_bench import formats
from whenabouts_bench.formats import _trec_lines, trec
from whenabouts_bench.formats.annotations import AnnotationBuilder
from whenabouts_bench.formats.runs import MemoryRun, RunBlock

Rows = Callable[..., Any]

ids = st.text(st.sampled_from("ab1@-._é#\u00a0\x1c"), min_size=1, max_size=6)
milliseconds = st.integers(0, 10**7)
scores = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def scored(draw: st.DrawFn) -> ScoredMoment:
    start, end = sorted(draw(st.lists(milliseconds, min_size=2, max_size=2, unique=True)))
    return ScoredMoment(Moment(draw(ids), start / 1000, end / 1000), draw(scores))


runs = st.dictionaries(ids, st.lists(scored(), min_size=1, max_size=5), min_size=1, max_size=5)

documents = st.one_of(
    st.builds(
        "{}@{}-{}".format,
        ids,
        st.sampled_from(["0", "1.5", "02.", ".5", "1e1", "-1"]),
        st.sampled_from(["3", "4.25", "2e2", "nan", "inf", "1-2", "", "1e999", "+7"]),
    ),
    ids,
)
fields = st.tuples(
    st.sampled_from(["q1", "q2", "q3", "7"]),
    st.sampled_from(["Q0", "0", "x"]),
    documents,
    st.sampled_from(["1", "2", "?"]),
    st.sampled_from(
        ["1", "0.5", "-2", "1e3", "2e-3", "7.", ".5", "+1", "1_0", "nan", "-inf", "1e999", "0x1"]
    ),
    st.sampled_from(["tag", "t"]),
)


@st.composite
def lines(draw: st.DrawFn) -> str:
    made = list(draw(fields))
    if draw(st.integers(0, 15)) == 0:
        made = made[: draw(st.integers(1, 5))]
    if draw(st.integers(0, 15)) == 0:
        made.append("more")
    gap = draw(st.sampled_from([" ", " ", " ", "\t", "  ", " \t"]))
    edge = draw(st.sampled_from(["", "", "", "", " ", "\t"]))
    return edge + gap.join(made) + edge


def outcome(data: bytes) -> Any:
    try:
        rows: list[Any] = []
        for block in _trec_lines.blocks_of_lines(io.BytesIO(data), Path("run"), trec.answer_of):
            rows += [
                block.query_ids,
                block.offsets.tolist(),
                [block.video_ids[v] for v in block.video.tolist()],
            ]
            rows += [np.nan_to_num(c, nan=-1).tolist() for c in (block.start, block.end, block.score)]
        return rows
    except WhenaboutsError as error:
        return str(error)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(lines(), max_size=5), st.sampled_from(["\n", "\r\n", "\n\n", "\r", "\n \n"]), st.booleans())
def test_the_fast_reader_gives_what_the_careful_one_gives(made: list[str], gap: str, ended: bool) -> None:
    data = (gap.join(made) + (gap if ended else "")).encode()
    fast = outcome(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_trec_lines, "_fast", lambda first_line, chunk: None)
        assert outcome(data) == fast


def test_plain_lines_are_read_without_the_careful_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("a plain chunk was left to the careful reader")

    monkeypatch.setattr(_trec_lines, "_careful", refuse)
    plain = "q Q0 v@x@1.5-2.25 1 0.5 t\nq\tQ0  w 2 1e-3 t \r\n p Q0 a-b@0-1 1 -7 t"
    assert outcome(plain.encode())[2] == ["v@x", "w"]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(made=runs)
def test_any_run_comes_back_as_it_was_written(
    made: dict[str, list[ScoredMoment]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("run") / "run.trec"
    formats.write_run(MemoryRun.from_run(made), path, "trec")
    again = {
        query: [
            (block.video_ids[block.video[row]], block.start[row], block.end[row], block.score[row])
            for row in range(block.offsets[number], block.offsets[number + 1])
        ]
        for block in formats.open_run(path, "trec").blocks()
        for number, query in enumerate(block.query_ids)
    }
    assert again == {
        query: [
            (s.moment.video_id, s.moment.start, s.moment.end, s.score)
            for s in sorted(moments, key=lambda scored: scored.sort_key)
        ]
        for query, moments in made.items()
    }


def big(tmp_path: Path) -> tuple[Path, dict[str, list[tuple[str, float, float, float]]]]:
    """A run with lists of 1 to 300 lines, and its contents by a plain reader."""
    rng = random.Random(5)
    path = tmp_path / "big.trec"
    expected: dict[str, list[tuple[str, float, float, float]]] = {}
    with path.open("w") as stream:
        for number in range(25):
            for rank in range(rng.choice([1, 2, 30, 300])):
                start, end, score = (
                    rng.randrange(900) / 10,
                    90 + rng.randrange(900) / 10,
                    rng.randrange(40) / 8,
                )
                video = f"v{rng.randrange(50)}"
                stream.write(f"q{number} Q0 {video}@{start:.3f}-{end:.3f} {rank} {score} t\n")
                expected.setdefault(f"q{number}", []).append((video, start, end, score))
    for rows in expected.values():
        rows.sort(key=lambda row: (-row[3], row[:3]))
    return path, expected


@pytest.mark.parametrize("chunk_bytes", [300, 5_000, 1 << 24])
def test_a_run_is_read_in_blocks_and_no_query_is_split(
    chunk_bytes: int, tmp_path: Path, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, expected = big(tmp_path)
    monkeypatch.setattr(_trec_lines, "CHUNK_BYTES", chunk_bytes)
    source = formats.open_run(path)
    assert rows(source) == expected
    blocks = list(source.blocks())
    assert [query for block in blocks for query in block.query_ids] == list(expected)
    assert (len(blocks) > 10) == (chunk_bytes <= 5_000)


def test_a_run_is_read_from_gzip_in_blocks(
    tmp_path: Path, rows: Rows, packed: Callable[[Path], Path]
) -> None:
    path, expected = big(tmp_path)
    assert rows(formats.open_run(packed(path))) == expected


GOOD = "q1 Q0 v@1.000-2.000 1 0.5 t"
FAULTS = {
    "q2 Q0 v@2.000-1.000 1 0.5 t": "document: is not a moment: 'v@2.000-1.000'; accepted: video@start-end",
    "q2 Q0 v@1.0-1.0 1 0.5 t": "document: is not a moment: 'v@1.0-1.0'",
    "q2 Q0 v@-1.0-1.0 1 0.5 t": "document: is not a moment: 'v@-1.0-1.0'",
    "q2 Q0 v@nan-1.0 1 0.5 t": "document: is not a finite number: 'nan'",
    "q2 Q0 v@1.0-1e999 1 0.5 t": "document: is not a finite number: '1e999'",
    "q2 Q0 @1.0-2.0 1 0.5 t": "document: is not a moment: '@1.0-2.0'",
    "q2 Q0 v@1.0-2.0 1 nan t": "score: is not a finite number: 'nan'",
    "q2 Q0 v@1.0-2.0 1 1e999 t": "score: is not a finite number: '1e999'",
    "q2 Q0 v@1.0-2.0 1 high t": "score: is not a finite number: 'high'",
    "q2 Q0 v@1.0-2.0 0.5 t": "has 5 fields, not 6: 'q2 Q0 v@1.0-2.0 0.5 t'; accepted: query Q0 document",
    "q2 Q0 a video 1 0.5 t": "has 7 fields, not 6",
}


@pytest.mark.parametrize("line", FAULTS)
def test_a_fault_of_a_run_is_named_with_line_field_and_value(line: str, tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_text(f"{GOOD}\n\n{line}\n")
    with pytest.raises(FormatError) as caught:
        list(formats.open_run(path).blocks())
    assert str(caught.value).startswith(f"{path}, line 3: {FAULTS[line]}")


@pytest.mark.parametrize("chunk_bytes", [30, 1 << 24])
def test_scattered_lines_of_a_query_are_refused_with_the_remedy(
    chunk_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_trec_lines, "CHUNK_BYTES", chunk_bytes)
    path = tmp_path / "run"
    path.write_text(f"{GOOD}\nq2 Q0 v 1 1 t\nq2 Q0 w 2 0 t\nq1 Q0 w 2 0.1 t\n")
    with pytest.raises(FormatError, match=r"line 4: query: is not in consecutive lines: 'q1'.*`sort"):
        list(formats.open_run(path).blocks())


def test_a_run_of_whole_videos_is_one_of_videos(tmp_path: Path, rows: Rows) -> None:
    path = tmp_path / "run"
    path.write_text("q Q0 v 1 1 t\nq Q0 user@home 2 3 t\n")
    source = formats.open_run(path)
    assert source.tasks == ("VR",)
    assert rows(source, "VR") == {"q": [("user@home", -1, -1, 3), ("v", -1, -1, 1)]}
    with pytest.raises(UsageError, match="holds VR"):
        list(source.blocks("VCMR"))


@pytest.mark.parametrize("name", ["a video", "tab\tbed", "line\nbreak", "\ufeffmark"])
def test_an_id_with_white_space_cannot_be_written(name: str, tmp_path: Path) -> None:
    for run in ({"q": [ScoredMoment(Moment(name, 1, 2), 1)]}, {name: [ScoredMoment(Moment("v", 1, 2), 1)]}):
        with pytest.raises(UsageError, match=r"contains white space.* or write jsonl"):
            formats.write_run(MemoryRun.from_run(run), tmp_path / "run", "trec")
    for query, video in ((name, "v"), ("q", name)):
        collector = AnnotationBuilder("test")
        collector.add_query(query)
        collector.judge(query, video, 1, 2)
        with pytest.raises(UsageError, match=r"contains white space.* or write jsonl"):
            formats.write_annotations(collector.annotations(), tmp_path / "qrels", "trec")
    assert list(tmp_path.iterdir()) == []


def test_an_id_that_is_not_written_may_have_white_space(tmp_path: Path) -> None:
    collector = AnnotationBuilder("test")
    for query in ("q", "not judged"):
        collector.add_query(query)
    collector.judge("q", "v", 1, 2)
    collector.add_video("not judged")
    formats.write_annotations(collector.annotations(), tmp_path / "qrels", "trec")
    assert (tmp_path / "qrels").read_text() == "q 0 v@1.000-2.000 1\n"
    answers = {"VCMR": [{"desc_id": "q", "predictions": [[0, 1, 2, 0.5]]}]}
    (tmp_path / "run.json").write_text(json.dumps({"video2idx": {"v": 0, "not answered": 1}, **answers}))
    formats.write_run(formats.open_run(tmp_path / "run.json"), tmp_path / "run", "trec")
    assert (tmp_path / "run").read_text().startswith("q Q0 v@1.000-2.000 1 0.5 ")


def block(**changes: Any) -> RunBlock:
    made = RunBlock(
        query_ids=("q",),
        offsets=np.array([0, 2]),
        video_ids=("v", "w"),
        video=np.array([1, 0], np.int32),
        start=np.array([0.0, 1.0]),
        end=np.array([2.0, 3.0]),
        score=np.array([2.0, 1.0]),
    )
    return replace(made, **changes)


def export(made: RunBlock, path: Path) -> str:
    formats.write_run(MemoryRun("memory", MappingProxyType({"VCMR": (made,)})), path, "trec")
    return path.read_text()


def test_times_are_rounded_to_three_decimals_and_that_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = block(start=np.array([0.00049, 1.0]), end=np.array([2.0006, 1.0004]))
    assert export(made, tmp_path / "run") == "q Q0 w@0.000-2.001 1 2.0 whenabouts\nq Q0 v 2 1.0 whenabouts\n"
    assert "2 moments have times that are rounded" in caplog.text
    assert "1 spans without length are written as videos" in caplog.text


def test_a_tie_that_sorting_would_turn_gets_other_scores(tmp_path: Path, rows: Rows) -> None:
    export(block(score=np.array([1.0, 1.0])), tmp_path / "run")
    assert [row[0] for row in rows(formats.open_run(tmp_path / "run"))["q"]] == ["w", "v"]
    assert [row[3] for row in rows(formats.open_run(tmp_path / "run"))["q"]] == [2.0, 1.0]


def test_equal_scores_which_trec_eval_orders_otherwise_are_said_once(
    tmp_path: Path, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "run"
    near = "p Q0 v@1-2 1 0.5 t\np Q0 w@1-2 2 0.49999999 t\n"  # equal in trec_eval's float32
    path.write_text(f"q Q0 w@1-2 1 2 t\nq Q0 v@1-2 2 2 t\n{near}r Q0 v@1-2 1 2 t\nr Q0 w@1-2 2 1 t\n")
    source = formats.open_run(path)
    assert [row[0] for row in rows(source)["q"]] == ["v", "w"]
    rows(source)
    (said,) = [record.getMessage() for record in caplog.records]
    assert "2 queries have equal scores, ordered by video, start and end; trec_eval takes the last" in said


def test_a_video_whose_name_reads_as_a_moment_is_not_written_without_times(tmp_path: Path) -> None:
    made = block(video_ids=("v@1-2", "w"), start=np.full(2, math.nan), end=np.full(2, math.nan))
    with pytest.raises(UsageError, match="reads as a moment"):
        export(made, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_any_moment_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no answers"):
        formats.write_run(MemoryRun.from_run({"q": []}), tmp_path / "run", "trec")
    assert list(tmp_path.iterdir()) == []


QREL_FAULTS = {
    "q 0 v@1-2": "has 3 fields, not 4",
    "q 0 v@2-1 1": "document: is not a moment",
    "q 0 v@1-2 high": "grade: is not a finite number: 'high'",
    "q 0 v@1-2 -1": "grade: is negative: -1.0",
}


@pytest.mark.parametrize("line", QREL_FAULTS)
def test_a_fault_of_qrels_is_named_with_line_field_and_value(line: str, tmp_path: Path) -> None:
    path = tmp_path / "qrels"
    path.write_text(f"q 0 v@0.5-1 1\n{line}\n")
    with pytest.raises(FormatError) as caught:
        formats.read_annotations(path)
    assert f"line 2: {QREL_FAULTS[line]}" in str(caught.value)


def test_graded_qrels_come_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    collector = AnnotationBuilder("test")
    for number, (video, start, end, grade) in enumerate(
        [("v@1-2", 0.125, 3.0, 2.0), ("v", 1.0, 1.0, 0.5), ("x-y", 10.0, 11.0004, 0.0)]
    ):
        collector.add_query(f"q{number}", "a text")
        collector.judge(f"q{number}", video, start, end, grade)
    path = tmp_path / "qrels"
    formats.write_annotations(collector.annotations(), path, "trec")
    assert path.read_text() == "q0 0 v@1-2@0.125-3.000 2\nq1 0 v 0.5\nq2 0 x-y@10.000-11.000 0\n"
    again = formats.read_annotations(path)
    assert again.start.tolist() == [0.125, 0.0, 10.0]
    assert again.end.tolist() == [3.0, 0.0, 11.0]
    assert again.relevance.tolist() == [2.0, 0.5, 0.0]
    assert "1 grades have a fraction, which trec_eval drops" in caplog.text
    assert "3 texts of queries" in caplog.text and "1 judgements have times that are rounded" in caplog.text


def test_a_line_without_end_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_trec_lines, "LONGEST_LINE", 1 << 20)
    monkeypatch.setattr(_trec_lines, "CHUNK_BYTES", 1 << 16)
    path = tmp_path / "run"
    path.write_bytes(GOOD.encode() + b"\nq2" + b"a" * (2 << 20))
    with pytest.raises(FormatError, match="line 2: has more than 1 MiB in one line"):
        list(formats.open_run(path).blocks())


@pytest.mark.parametrize("line", ["a b c {}x", "a Q0 b 1 {}x t"])
def test_a_field_of_very_many_digits_is_refused_at_once(line: str, tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text(line.format("1" * 60_000) + "\n")
    started = time.process_time()
    with pytest.raises(UsageError, match="is in no format"):
        formats.read_annotations(path)
    assert time.process_time() - started < 5
