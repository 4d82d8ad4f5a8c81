"""`whenabouts evaluate` for users and programs, and a one-line error for each kind of bad input."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Whenabouts = Callable[..., Any]
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "metrics"
TVR = ("--truth", GOLDEN / "tvr_eval_gt.jsonl", "--run", GOLDEN / "tvr_eval_submission.json")


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Two judged queries, one of them answered."""
    truth, run = tmp_path / "qrels.jsonl", tmp_path / "run.jsonl"
    judged = [("q1", "v", 0, 10), ("q2", "w", 5, 9)]
    truth.write_text(
        "".join(
            json.dumps({"query_id": q, "video_id": v, "start": s, "end": e, "relevance": 1}) + "\n"
            for q, v, s, e in judged
        )
    )
    run.write_text(
        json.dumps({"query_id": "q1", "moments": [{"video_id": "v", "start": 0, "end": 9, "score": 0.5}]})
        + "\n"
    )
    return truth, run


def test_a_program_gets_unrounded_fractions_and_a_person_percent(bare: Whenabouts) -> None:
    told = json.loads(bare("evaluate", "tvr", *TVR).out)
    assert told["protocol"] == "tvr@1"
    assert told["queries"] == 240
    assert told["metrics"]["R@1,IoU=0.5"] == 23 / 240
    table = bare("evaluate", "tvr", *TVR, "--table")
    assert table.code == 0
    row = next(line for line in table.out.splitlines() if line.startswith("R@1,IoU=0.5"))
    assert row.split()[1:] == ["9.58", "10.42", "7.50", "12.50"]
    assert "240 queries" in table.out


def test_missing_queries_are_said_and_count_as_zero(bare: Whenabouts, files: tuple[Path, Path]) -> None:
    truth, run = files
    told = json.loads(bare("evaluate", "vcmr", "--truth", truth, "--run", run, "--metric", "R@1,IoU=0.5").out)
    assert (told["missing_queries"], told["metrics"]) == (1, {"R@1,IoU=0.5": 0.5})
    table = bare("evaluate", "vcmr", "--truth", truth, "--run", run, "--table")
    assert "1 judged queries are missing from the run, counted as 0 (q2)" in table.out


def test_as_released_leaves_missing_queries_out(bare: Whenabouts, files: tuple[Path, Path]) -> None:
    truth, run = files
    told = json.loads(bare("evaluate", "rvmr", "--truth", truth, "--run", run, "--as-released").out)
    assert told["protocol"] == "rvmr-as-released@1"
    assert told["metrics"]["nDCG@10,IoU=0.5"] == 1.0
    assert (told["queries"], told["missing_queries"]) == (1, 1)


def test_a_value_a_query_is_written_whole_and_in_gzip_where_asked(
    bare: Whenabouts, files: tuple[Path, Path], tmp_path: Path
) -> None:
    truth, run = files
    out = tmp_path / "values.jsonl.gz"
    done = bare("evaluate", "vcmr", "--truth", truth, "--run", run, "--metric", "mIoU", "--per-query", out)
    assert done.code == 0
    lines = [json.loads(line) for line in gzip.decompress(out.read_bytes()).splitlines()]
    assert lines == [
        {"query_id": "q1", "missing": False, "metrics": {"mIoU": 0.9}},
        {"query_id": "q2", "missing": True, "metrics": {"mIoU": 0.0}},
    ]


def test_formats_can_be_named(bare: Whenabouts) -> None:
    assert bare("evaluate", "tvr", *TVR, "--format", "tvr").code == 0
    wrong = bare("evaluate", "tvr", *TVR, "--run-format", "trec")
    assert wrong.code == 2
    assert len(wrong.err.splitlines()) == 1


BAD_RUNS = {
    "not JSON": (b'{"query_id": "q1", "moments": [', "line 1"),
    "wrong top level": (b"[1, 2, 3]\n", "run.jsonl"),
    "NaN score": (
        b'{"query_id": "q1", "moments": [{"video_id": "v", "start": 0, "end": 1, "score": NaN}]}\n',
        "score",
    ),
    "infinite score": (
        b'{"query_id": "q1", "moments": [{"video_id": "v", "start": 0, "end": 1, "score": 1e999}]}\n',
        "score",
    ),
    "negative time": (
        b'{"query_id": "q1", "moments": [{"video_id": "v", "start": -1, "end": 1, "score": 1}]}\n',
        "-1",
    ),
    "reversed": (
        b'{"query_id": "q1", "moments": [{"video_id": "v", "start": 5, "end": 5, "score": 1}]}\n',
        "5",
    ),
    "cut gzip": (gzip.compress(b'{"query_id": "q1", "moments": []}\n' * 500)[:-9], "cut off"),
    "empty": (b"", "empty"),
    "no answers at all": (b"\n\n", "run.jsonl"),
    "another data set": (b'{"query_id": "zzz", "moments": []}\n' * 1, "another data set"),
    "the same query twice": (b'{"query_id": "q1", "moments": []}\n' * 2, "q1"),
}


@pytest.mark.parametrize("kind", BAD_RUNS)
def test_a_bad_run_gets_one_line_exit_two_and_nothing_is_written(
    bare: Whenabouts, files: tuple[Path, Path], tmp_path: Path, kind: str
) -> None:
    truth, run = files
    content, said = BAD_RUNS[kind]
    run.write_bytes(content)
    out = tmp_path / "values.jsonl"
    done = bare("evaluate", "vcmr", "--truth", truth, "--run", run, "--per-query", out)
    assert done.code == 2
    assert done.out == ""
    assert len(done.err.splitlines()) == 1, done.err
    assert "run.jsonl" in done.err
    assert said in done.err
    assert not out.exists()


def test_unknown_ids_are_counted_and_refused_when_strict(bare: Whenabouts, files: tuple[Path, Path]) -> None:
    truth, run = files
    with run.open("a") as file:
        file.write('{"query_id": "stranger", "moments": []}\n')
    told = json.loads(bare("evaluate", "vcmr", "--truth", truth, "--run", run).out)
    assert told["unknown_queries"] == 1
    strict = bare("evaluate", "vcmr", "--truth", truth, "--run", run, "--strict")
    assert strict.code == 2
    assert "run.jsonl, line 2: query 'stranger' is not judged" in strict.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nope",), "'nope' is not a protocol; known: tvr"),
        (
            ("vr",),
            "'vr' is a task, not a protocol; tvr and vcmr measure it: `whenabouts evaluate vcmr",
        ),
        (("SVMR",), '--run FILE --metric "SVMR R@1,IoU=0.5"`'),
        (("vcmr", "--metric", "P@5"), "'P@5' is not a metric"),
        (("vcmr", "--as-released"), "no released program differs"),
    ],
)
def test_wrong_names_are_answered_with_the_right_ones(
    bare: Whenabouts, files: tuple[Path, Path], arguments: tuple[str, ...], said: str
) -> None:
    truth, run = files
    done = bare("evaluate", *arguments, "--truth", truth, "--run", run)
    assert done.code == 2
    assert said in done.err


def test_a_file_that_is_missing_is_named(bare: Whenabouts, files: tuple[Path, Path], tmp_path: Path) -> None:
    done = bare("evaluate", "vcmr", "--truth", files[0], "--run", tmp_path / "nowhere.jsonl")
    assert done.code == 2
    assert "nowhere.jsonl: cannot be read: No such file" in done.err


def test_names_from_a_file_cannot_command_the_terminal(bare: Whenabouts, files: tuple[Path, Path]) -> None:
    truth, run = files
    run.write_text(json.dumps({"query_id": "\x1b[31mq", "moments": []}) + "\n")
    done = bare("evaluate", "vcmr", "--truth", truth, "--run", run)
    assert done.code == 2
    assert "\x1b" not in done.err


@pytest.mark.parametrize(("kinds", "shown"), [(8, True), (9, False)])
def test_means_stay_legible_whatever_the_number_of_types(
    bare: Whenabouts, tmp_path: Path, kinds: int, shown: bool
) -> None:
    for file, fields in (
        ("qrels.jsonl", {"video_id": "v", "start": 0, "end": 5, "relevance": 1}),
        ("run.jsonl", {"moments": [{"video_id": "v", "start": 0, "end": 5, "score": 1}]}),
        ("queries.jsonl", {"text": "x"}),
    ):
        lines = ({"query_id": f"q{n}", "type": f"a kind of query, {n}", **fields} for n in range(kinds))
        (tmp_path / file).write_text("".join(json.dumps(line) + "\n" for line in lines))
    truth, run = tmp_path / "qrels.jsonl", tmp_path / "run.jsonl"
    done = bare("evaluate", "vcmr", "--truth", truth, "--run", run, "--metric", "R@1,IoU=0.5", "--table")
    assert re.search(r"^R@1,IoU=0\.5 +100\.00", done.out, re.MULTILINE), done.out
    assert ("type: 9 kinds; --json has each" in done.out) != shown


def test_types_of_queries_cannot_command_the_terminal(bare: Whenabouts, files: tuple[Path, Path]) -> None:
    truth, run = files
    types = ({"query_id": query, "text": "x", "type": "\x1b[31mred"} for query in ("q1", "q2"))
    truth.with_name("queries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in types))
    done = bare("evaluate", "vcmr", "--truth", truth, "--run", run, "--table")
    assert "type \\x1b[31mred" in done.out and "\x1b" not in done.out


@pytest.mark.parametrize("which", [0, 1])
def test_a_file_that_is_read_is_not_overwritten(
    bare: Whenabouts, files: tuple[Path, Path], which: int
) -> None:
    before = files[which].read_bytes()
    done = bare("evaluate", "vcmr", "--truth", files[0], "--run", files[1], "--per-query", files[which])
    assert done.code == 2
    assert "would be overwritten" in done.err
    assert files[which].read_bytes() == before


def test_an_output_that_is_a_pipe_is_refused_and_a_link_is_followed(
    bare: Whenabouts, files: tuple[Path, Path], tmp_path: Path
) -> None:
    pipe, link, behind = tmp_path / "pipe", tmp_path / "link.jsonl", tmp_path / "behind.jsonl"
    os.mkfifo(pipe)
    done = bare("evaluate", "vcmr", "--truth", files[0], "--run", files[1], "--per-query", pipe)
    assert done.code == 2
    assert "is not a regular file" in done.err
    assert pipe.is_fifo()
    link.symlink_to(behind)
    assert bare("evaluate", "vcmr", "--truth", files[0], "--run", files[1], "--per-query", link).code == 0
    assert link.is_symlink()
    assert behind.read_text().count("query_id") == 2


# The drop from a given video to a pool ------------------------------------------------------------


@pytest.fixture
def pooled(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Judgements with pools, answers from them, and answers with the video given."""
    folder = tmp_path / "truth"
    folder.mkdir()
    judged: list[Any] = []
    pools: list[Any] = []
    pool: list[Any] = []
    given: list[Any] = []
    for at in range(4):
        query, own = f"q{at}", f"v{at}"
        judged.append({"query_id": query, "video_id": own, "start": 0, "end": 10, "relevance": 1})
        pools.append({"query_id": query, "video_ids": [own, "w"]})
        found: dict[str, Any] = {"video_id": own if at < 1 else "w", "start": 0, "end": 10, "score": 1.0}
        pool.append({"query_id": query, "moments": [found]})
        given.append({"query_id": query, "moments": [{**found, "video_id": own}]})
    paths = folder / "qrels.jsonl", tmp_path / "pool.jsonl", tmp_path / "given.jsonl"
    written = {paths[0]: judged, paths[1]: pool, paths[2]: given, folder / "pools.jsonl": pools}
    for path, lines in written.items():
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return paths


def test_the_drop_is_told_as_a_table_and_a_picture(
    bare: Whenabouts, pooled: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    truth, pool, given = pooled
    asked = ("evaluate", "mvmr", "--truth", truth, "--run", pool, "--given", given)
    table = bare(*asked, "--table")
    assert table.code == 0, table.err
    row = next(line for line in table.out.splitlines() if line.startswith("R@1,IoU=0.5"))
    assert row.split()[1:] == ["100.00", "25.00", "75.00", "75.00"]
    told = bare(*asked, "--run", given, "--given", given, "--figure", tmp_path / "drop.svg").json
    assert [one["metrics"]["R@5,IoU=0.7"]["drop"] for one in told["systems"]] == [0.75, 0.0]
    assert [Path(name).name for name in told["files"]] == ["drop.svg", "drop.png"]
    assert all(Path(name).is_file() for name in told["files"])


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (("--figure", "x.svg"), "1 --run and 0 --given"),
        (("--run", "GIVEN"), "2 --run and 0 --given"),
        (("--given", "GIVEN", "--metric", "mIoU"), "--metric does not go with --given"),
        (("--given", "GIVEN", "--per-query", "x.jsonl"), "--per-query does not go with --given"),
        (
            ("--given", "GIVEN", "--figure", "drop.json"),
            "drop.json: not the name of a figure, which must end in .svg, .png",
        ),
        (("--given", "GIVEN", "--strict"), "--strict does not go with --given"),
    ],
)
def test_a_drop_that_cannot_be_told_is_one_line(
    bare: Whenabouts, pooled: tuple[Path, Path, Path], more: tuple[str, ...], problem: str
) -> None:
    truth, pool, given = pooled
    given_or = [str(given) if one == "GIVEN" else one for one in more]
    done = bare("evaluate", "mvmr", "--truth", truth, "--run", pool, *given_or)
    assert done.code == 2
    assert problem in done.err
    assert len(done.err.strip().splitlines()) == 1
