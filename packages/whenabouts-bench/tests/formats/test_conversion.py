"""`convert`: detects the format, keeps the contents, and reports losses."""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_bench import formats
from whenabouts_bench.cli import convert as verb
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.conversion import convert
from whenabouts_bench.formats.runs import MemoryRun

Sample = Callable[[str, str], Path]
Rows = Callable[..., Any]

TRUTHS = formats.format_names("write_annotations")
RUNS = formats.format_names("write_run")


@pytest.mark.parametrize("to", RUNS)
@pytest.mark.parametrize("source", RUNS)
def test_a_run_says_the_same_in_every_format(
    source: str, to: str, sample: Sample, run: MemoryRun, rows: Rows, tmp_path: Path
) -> None:
    truth = sample("jsonl", "read_annotations")
    done = convert(sample(source, "open_run"), tmp_path / "out.gz", to, truth=truth)
    assert (done.kind, done.source_format, done.target_format) == ("run", source, to)
    assert (done.queries, done.rows) == (2, 3)
    again = formats.open_run(tmp_path / "out.gz", to)
    assert rows(again, again.tasks[0]) == rows(run)


@pytest.mark.parametrize("to", TRUTHS)
@pytest.mark.parametrize("source", formats.format_names("read_annotations"))
def test_judgements_say_the_same_in_every_format(
    source: str, to: str, sample: Sample, tmp_path: Path
) -> None:
    path = sample(source, "read_annotations")
    made = formats.read_annotations(path)
    done = convert(path, tmp_path / "out", to)
    assert (done.kind, done.source_format) == ("judgements", source)
    assert (done.queries, done.rows) == (len(made.queries), len(made.query))
    again = formats.read_annotations(tmp_path / "out", to).qrels
    assert [list(judged) for judged in again.values()] == [list(judged) for judged in made.qrels.values()]
    assert list(again) == list(made.qrels) or (source, to) == ("didemo", "mvmr")


def test_a_folder_takes_all_of_our_json_lines(
    sample: Sample, annotations: Annotations, tmp_path: Path
) -> None:
    done = convert(sample("tvr", "read_annotations"), f"{tmp_path}/new/", "jsonl")
    assert done.losses == ()
    again = formats.read_annotations(tmp_path / "new" / "qrels.jsonl")
    assert (again.queries, again.videos) == (annotations.queries, annotations.videos)
    back = convert(tmp_path / "new", tmp_path / "back", "tvr")
    assert (back.kind, back.source_format) == ("judgements", "jsonl")
    assert (tmp_path / "back").read_bytes() == (tmp_path / "tvr.read_annotations").read_bytes()


def test_a_pooled_json_of_other_judgements_is_not_read_with_new_ones(sample: Sample, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "pooled.json").write_text('{"most_grade": 4}')
    with pytest.raises(FormatError, match=r"pooled\.json: belongs to other judgements .*without that file"):
        convert(sample("tvr", "read_annotations"), tmp_path / "folder", "jsonl")


@pytest.mark.parametrize("name", ["pools.jsonl", "pools.jsonl.gz"])
def test_pools_of_a_former_conversion_are_not_read_with_new_judgements(
    name: str, sample: Sample, tmp_path: Path
) -> None:
    source, folder = tmp_path / "source", tmp_path / "folder"
    pools = b'{"query_id": "q", "video_ids": ["v", "w"]}\n'
    for place in (source, folder):
        place.mkdir()
        (place / "qrels.jsonl").write_text('{"query_id": "q", "video_id": "v", "start": 1, "end": 2}\n')
    (source / "pools.jsonl").write_bytes(pools)
    (folder / name).write_bytes(gzip.compress(pools) if name.endswith(".gz") else pools)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(FormatError, match=rf"{name}: belongs to other judgements .*without that file"):
        convert(sample("tvr", "read_annotations"), folder, "jsonl")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    convert(source / "qrels.jsonl", folder, "jsonl")
    assert (folder / "pools.jsonl").read_bytes() == pools
    (folder / name).unlink()
    (folder / "pools.jsonl").unlink(missing_ok=True)
    convert(sample("tvr", "read_annotations"), folder, "jsonl")
    assert not formats.read_annotations(folder / "qrels.jsonl").pools


def test_losses_are_told(run: MemoryRun, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    block = run.lists["VCMR"]
    path = tmp_path / "submission.json"
    formats.write_run(MemoryRun("run", {"VCMR": block, "SVMR": block, "VR": block}), path, "tvr")
    capfd.readouterr()
    done = convert(path, tmp_path / "run.jsonl", "jsonl")
    assert done.losses == (
        "1 list left out: SVMR (this format holds one list, and VCMR is written)",
        "1 list left out: VR (this format holds one list, and VCMR is written)",
    )
    assert capfd.readouterr().err == ""
    assert done.to_json()["losses"] == list(done.losses)
    assert [line for line in done.lines() if "SVMR" in line]


def test_what_the_reader_changes_or_leaves_out_is_told(tmp_path: Path) -> None:
    line = {"vid_name": "v", "duration": 10.0, "ts": [1, 2], "desc": "a dog", "desc_id": 1}
    others: list[dict[str, Any]] = [
        {"desc": "a cat"},
        {"desc_id": 2, "ts": [5, 3]},
        {"desc_id": 3, "ts": [8, 12]},
    ]
    (tmp_path / "in.jsonl").write_text(
        "".join(json.dumps(line | other) + "\n" for other in [{}, {}, *others])
    )
    assert set(convert(tmp_path / "in.jsonl", tmp_path / "out", "tvr").losses) >= {
        "query ids come twice: 1",
        "moments end before they start: 1",
    }


def test_late_ends_are_told_where_the_reader_cuts_them(tmp_path: Path) -> None:
    line = {"qid": 1, "query": "a dog", "vid": "v", "duration": 10, "relevant_windows": [[8, 12]]}
    (tmp_path / "cut.jsonl").write_text(json.dumps(line))
    told = "moments end after their video: 1"
    assert told in convert(tmp_path / "cut.jsonl", tmp_path / "out", "tvr").losses
    kept = {"vid_name": "v", "duration": 10.0, "ts": [8, 12], "desc": "a dog", "desc_id": 1}
    (tmp_path / "kept.jsonl").write_text(json.dumps(kept))
    done = convert(tmp_path / "kept.jsonl", tmp_path / "kept.trec", "trec")
    assert (tmp_path / "kept.trec").read_text() == "1 0 v@8.000-12.000 1\n"
    assert done.losses and told not in done.losses


def test_judgements_that_judgements_cannot_use_are_refused(sample: Sample, tmp_path: Path) -> None:
    truth = sample("jsonl", "read_annotations")
    with pytest.raises(UsageError, match=r"--truth goes with a run, and .* has judgements: leave it out"):
        convert(sample("tvr", "read_annotations"), tmp_path / "out", "trec", truth=truth)
    assert not (tmp_path / "out").exists()


def test_a_file_is_not_converted_into_itself(sample: Sample) -> None:
    path = sample("jsonl", "open_run")
    before = path.read_bytes()
    with pytest.raises(FormatError, match="is read here and would be overwritten"):
        convert(path, path, "trec")
    assert path.read_bytes() == before


def test_the_judgements_of_a_run_are_not_overwritten_by_it(sample: Sample, tmp_path: Path) -> None:
    truth = sample("tvr", "read_annotations")
    before = truth.read_bytes()
    (tmp_path / "link").symlink_to(truth)
    for target in (truth, tmp_path / "link"):
        with pytest.raises(FormatError, match="is read here and would be overwritten"):
            convert(sample("jsonl", "open_run"), target, "tvr", truth=truth)
    assert truth.read_bytes() == before


def test_what_is_read_with_judgements_is_not_overwritten(sample: Sample, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    convert(sample("tvr", "read_annotations"), f"{folder}/", "jsonl")
    run = sample("tvr", "open_run")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    for source, target, to, truth in (
        (folder / "qrels.jsonl", folder, "jsonl", None),
        (folder / "qrels.jsonl", folder / "videos.jsonl", "jsonl", None),
        (folder / "qrels.jsonl", folder / "queries.jsonl", "tvr", None),
        (folder, folder / "qrels.jsonl", "tvr", None),
        (run, folder / "queries.jsonl", "tvr", folder / "qrels.jsonl"),
    ):
        with pytest.raises(FormatError, match="is read here and would be overwritten"):
            convert(source, target, to, from_="jsonl" if source.is_dir() else None, truth=truth)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_folder_is_no_target_for_a_run(sample: Sample, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(FormatError, match="is a folder"):
        convert(sample("jsonl", "open_run"), tmp_path / "folder", "jsonl")
    with pytest.raises(FormatError, match="is a folder"):
        convert(sample("jsonl", "read_annotations"), tmp_path / "folder", "trec")


@pytest.mark.parametrize(
    ("content", "options", "part"),
    [
        ("once upon a time\n", {}, "is in no format of judgements or runs; name it with --from, one of"),
        ("once upon a time\n", {"from_": "jsonl"}, "is neither judgements nor a run in the format jsonl"),
        ("q Q0 v@1-2 1 1 t\n", {"from_": "treck"}, "format 'treck' is not known"),
        ("q Q0 v@1-2 1 1 t\n", {"to": "nothing"}, "format 'nothing' cannot do that"),
        ("q Q0 v@1-2 1 1 t\n", {"to": "mvmr"}, "format 'mvmr' cannot do that"),
        ("q Q0 v@1-2 1 1 t\nq Q0 v@2-1 1 1 t\n", {}, "line 2: document: is not a moment"),
    ],
)
def test_what_cannot_be_converted_is_refused_and_nothing_is_written(
    content: str, options: dict[str, Any], part: str, tmp_path: Path
) -> None:
    (tmp_path / "in").write_text(content)
    with pytest.raises((UsageError, FormatError)) as caught:
        convert(tmp_path / "in", tmp_path / "out", **({"to": "jsonl"} | options))
    assert part in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    verb.add_parser(parser.add_subparsers(required=True))
    return parser.parse_args(["convert", *words])


def test_the_command_says_what_was_converted(
    sample: Sample, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(sample("tvr", "open_run")), str(tmp_path / "out"), "--to", "trec"]
    options = parse(*words, "--table")
    assert options.run(options) == 0
    assert "(run, tvr)" in (shown := capsys.readouterr().out) and "lost or changed: 1 list left out" in shown
    with pytest.raises(UsageError, match="out: is there already; give another name, or --force"):
        options.run(options)
    options = parse(
        *words, "--force", "--json", "--from", "tvr", "--truth", str(sample("tvr", "read_annotations"))
    )
    assert options.run(options) == 0
    assert json.loads(capsys.readouterr().out) | {"losses": []} == {
        "kind": "run",
        "source": words[0],
        "target": words[1],
        "source_format": "tvr",
        "target_format": "trec",
        "queries": 2,
        "rows": 3,
        "losses": [],
    }


def test_a_folder_of_judgements_is_replaced_only_with_force(sample: Sample, tmp_path: Path) -> None:
    words = [str(sample("tvr", "read_annotations")), f"{tmp_path / 'out'}/", "--to", "jsonl"]
    options = parse(*words)
    assert options.run(options) == 0
    with pytest.raises(UsageError, match=r"qrels\.jsonl: is there already"):
        options.run(options)
    options = parse(*words, "--force")
    assert options.run(options) == 0


def test_grades_that_a_format_lacks_are_told(tmp_path: Path) -> None:
    collector = AnnotationBuilder("graded")
    collector.add_query("q", "text")
    collector.judge("q", "v", 1, 2, 3.0)
    formats.write_annotations(collector.annotations(), tmp_path / "in", "trec")
    assert convert(tmp_path / "in", tmp_path / "out", "tvr").losses == ("1 grades are left out",)


@pytest.mark.parametrize("to", TRUTHS)
def test_what_was_judged_to_be_wrong_does_not_become_right(to: str, tmp_path: Path) -> None:
    collector = AnnotationBuilder("graded")
    for number, grade in enumerate((0.0, 2.0, 0.0, 1.0)):
        collector.add_query("v#0", "text")
        collector.judge("v#0", "v", number, number + 1, grade)
    collector.add_query("w#0", "nothing is right")
    collector.judge("w#0", "w", 0, 1, 0.0)
    formats.write_annotations(collector.annotations(), tmp_path / "in.json", "tvr-ranking")
    done = convert(tmp_path / "in.json", tmp_path / "out", to)
    again = formats.read_annotations(tmp_path / "out", to)
    positive = again.relevance > 0
    assert again.start[positive].tolist() == [1.0, 3.0]
    graded = 0 in again.relevance
    assert graded == ("grades" in formats._named(to, "write_annotations").KEEPS)
    assert ("3 judgements of grade 0 are left out" in done.losses) == (not graded)
    assert ("1 grades are left out" in done.losses) == (not graded)


def test_a_wrong_file_ends_the_command_with_one_line_and_status_two(
    sample: Sample, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from whenabouts.cli.main import main

    path = sample("jsonl", "open_run")
    path.write_text(path.read_text() + '{"query_id": "x", "moments": [{"video_id": "v", "score": NaN}]}\n')
    assert main(["convert", str(path), str(tmp_path / "out"), "--to", "trec"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert (
        shown.err
        == f"whenabouts: {path}, line 3: moments[0].score: is not finite: nan; accepted: a finite number\n"
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("to", ["trec", "tvr-ranking", "jsonl"])
@pytest.mark.parametrize("grade", [1e308, 2.0**53, 3.0, 0.5])
def test_a_grade_of_any_size_comes_back(tmp_path: Path, to: str, grade: float) -> None:
    builder = AnnotationBuilder("large")
    builder.add_query("1", "words")
    builder.judge("1", "v", 1.0, 2.0, grade)
    formats.write_annotations(builder.annotations(), tmp_path / "out", to)
    assert formats.read_annotations(tmp_path / "out", to).relevance.tolist() == [grade]


@pytest.mark.parametrize("to", ["trec", "tvr", "tvr-ranking", "jsonl", "mvmr", "qvhighlights"])
def test_queries_without_a_judgement_are_not_written_as_an_empty_file(tmp_path: Path, to: str) -> None:
    (tmp_path / "in.jsonl").write_text('{"video_id": "a", "sentences": []}\n')
    with pytest.raises(UsageError, match=r"in\.jsonl: has no judgement to write"):
        convert(tmp_path / "in.jsonl", tmp_path / "out", to, from_="sentences")
    assert not (tmp_path / "out").exists()


def test_queries_without_a_video_are_told_when_qvhighlights_leaves_them_out(tmp_path: Path) -> None:
    builder = AnnotationBuilder("two")
    builder.add_query("1", "words")
    builder.add_query("2", "of no video")
    builder.judge("1", "v", 1.0, 2.0)
    (tmp_path / "folder").mkdir()
    formats.write_annotations(builder.annotations(), tmp_path / "folder", "jsonl")
    done = convert(tmp_path / "folder", tmp_path / "out", "qvhighlights", from_="jsonl")
    assert (done.queries, len((tmp_path / "out").read_text().splitlines())) == (2, 1)
    assert any("queries without a given video" in loss for loss in done.losses)
    builder = AnnotationBuilder("none")
    builder.add_query("2", "of no video")
    with pytest.raises(UsageError, match="no query has a given video"):
        formats.write_annotations(builder.annotations(), tmp_path / "none", "qvhighlights")
