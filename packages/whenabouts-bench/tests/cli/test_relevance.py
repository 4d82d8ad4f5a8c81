from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError, WhenaboutsError
from whenabouts_bench.cli import relevance
from whenabouts_bench.formats import read_annotations, write_annotations
from whenabouts_bench.relevance.pairs import RelevantPairs

pytest.importorskip("HanTa", reason="the phrases of `chunks` need the package HanTa")

TEXTS = [
    "person opens the door.", "a person opens a door.", "person sits down on the couch.",
    "a man and a woman start dancing", "two people are dancing in a room", "person closes the window.",
    "he sits on a sofa.", "a dog runs in the park.", "person opens the door.",
]  # fmt: skip


@pytest.fixture
def judgements(tmp_path: Path) -> Path:
    file = tmp_path / "train.jsonl"
    lines = [
        {"vid_name": f"v{n}", "duration": 30.0, "desc": text, "desc_id": n, "type": "v", "ts": [n, n + 5.0]}
        for n, text in enumerate(TEXTS)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def run(*arguments: object) -> int:
    parser = argparse.ArgumentParser()
    relevance.add_parser(parser.add_subparsers())
    options = parser.parse_args(["relevance", *map(str, arguments)])
    return int(options.run(options))


@pytest.mark.slow
def test_pairs_are_found_written_and_told(
    judgements: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, picture = tmp_path / "x.pairs", tmp_path / "x.png"
    arguments = ("--queries", judgements, "--detector", "np-vp", "--threshold", 0.6, "--out", out)
    assert run("pairs", *arguments, "--picture", picture, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    pairs = RelevantPairs.open(out)
    assert (told["queries"], told["captions"], told["kept"]) == (9, 8, "list")
    assert told["detector"] == pairs.settings.detector == "np-vp"
    assert told["phrases"].startswith("chunks") and told["encoder"] == pairs.settings.encoder_fingerprint
    block = pairs.block(range(9))
    assert told["query_pairs"] == (block > 0).sum() // 2
    assert block[0, 8] == 1 and block[0, 1] > 0.9 and block[3, 4] > 0.5 and block[0, 7] == 0
    pairs.check(read_annotations(judgements).queries)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_name_of_no_picture_is_refused_before_pairs_are_sought(judgements: Path, tmp_path: Path) -> None:
    asked = ("pairs", "--queries", judgements, "--out", tmp_path / "x.pairs")
    with pytest.raises(
        UsageError, match=r"x\.json: not the name of a figure, which must end in \.png, \.svg, "
    ):
        run(*asked, "--picture", tmp_path / "x.json")
    assert not list(tmp_path.glob("x.*"))


def test_the_table_has_counts_and_examples(
    judgements: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("pairs", "--queries", judgements, "--out", tmp_path / "x", "--table") == 0
    told = capsys.readouterr().out
    assert "9 queries, 8 different captions" in told and "pairs of captions are relevant" in told
    assert "person opens the door.  |  " in told


def test_a_list_and_vectors_answer_the_same(judgements: Path, tmp_path: Path) -> None:
    for kept in ("list", "vectors"):
        assert run("pairs", "--queries", judgements, "--out", tmp_path / kept, "--as", kept, "--json") == 0
    listed, vectors = (RelevantPairs.open(tmp_path / kept) for kept in ("list", "vectors"))
    assert listed.block(range(9)) == pytest.approx(vectors.block(range(9)), abs=6e-4)


def test_a_data_set_is_taken_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = "".join(f"V{n} 0.0 5.0##{text}\n" for n, text in enumerate(TEXTS))
    (tmp_path / "charades_sta_train.txt").write_text(lines)
    out = tmp_path / "x.pairs"
    arguments = ("--dataset", "charades-sta", "--data", tmp_path, "--detector", "sent", "--out", out)
    assert run("pairs", *arguments, "--json") == 0
    assert json.loads(capsys.readouterr().out)["queries"] == 9


def test_a_ranked_set_and_pseudo_grades_are_written_and_read(
    judgements: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    test = tmp_path / "test.jsonl"
    test.write_text(judgements.read_text().splitlines()[2] + "\n")
    out = tmp_path / "top3.jsonl"
    arguments = ("ranked", "--queries", judgements, "--top", 3, "--out", out, "--json")
    assert run(*arguments, "--leave-out", test) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["pairs"] == 24 and told["queries left out"] == 1
    found = read_annotations(out)
    assert len(found.queries) == 8 and found.relevance.max() == 1
    assert run(*arguments, "--asked-in", test) == 0
    assert json.loads(capsys.readouterr().out)["pairs"] == 3
    assert run(*arguments, "--graded") == 0
    assert sum(value for key, value in json.loads(capsys.readouterr().out).items() if "grade" in key) == 27
    assert set(read_annotations(out).relevance.tolist()) <= {0, 1, 2, 3, 4}
    assert run(*arguments, "--graded", "--bands", "0.1,0.2,0.3,0.4") == 0
    lower = json.loads(capsys.readouterr().out)
    similarity = read_annotations(out).similarity
    assert similarity is not None
    assert lower["pairs of pseudo grade 4"] == int((similarity >= 0.4).sum()) > 9


def test_several_sets_are_made_at_once_and_a_folder_holds_ours(
    judgements: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("ranked", "--queries", judgements, "--top", 3, "--top", 1, "--json")
    assert run(*command, "--out", tmp_path / "train_top{top}.json") == 0
    told = json.loads(capsys.readouterr().out)["files"]
    assert [(Path(row["file"]).name, row["pairs"]) for row in told] == [
        ("train_top03.json", 27), ("train_top01.json", 9),
    ]  # fmt: skip
    assert run(*command, "--out", f"{tmp_path}/ours{{top}}/") == 0
    for top in (1, 3):
        ours = read_annotations(tmp_path / f"ours{top:02d}")
        released = read_annotations(tmp_path / f"train_top{top:02d}.json")
        assert ours.similarity is not None and released.similarity is not None
        assert ours.similarity.tolist() == released.similarity.tolist()
        assert ours.captions == released.captions and ours.qrels == released.qrels


FAULTS: list[tuple[tuple[Any, ...], type[WhenaboutsError], str]] = [
    (("ranked", "--queries", "FILE", "--graded", "--encoder", "other"), UsageError, "other.*Give --bands"),
    (
        ("ranked", "--queries", "FILE", "--graded", "--bands", "0.2,0.4,0.3,0.9"),
        UsageError,
        r"bands 0\.2, 0\.4, 0\.3",
    ),
    (("ranked", "--queries", "FILE", "--bands", "0.2 0.4"), UsageError, "'0.2 0.4': accepted"),
    (("ranked", "--queries", "FILE", "--bands", "0.1,0.2,0.3,0.4"), UsageError, "--bands goes with --graded"),
    (("pairs", "--dataset", "charades-sta"), WhenaboutsError, "holds no annotations of Charades-STA"),
    (("pairs", "--queries", "FILE", "--detector", "noun"), UsageError, "no such detector; accepted: sent"),
    (("pairs", "--queries", "FILE", "--threshold", 2), UsageError, r"threshold 2\.0"),
    (("pairs", "--queries", "FILE", "--phrases", "magic"), WhenaboutsError, "no such phrase extractor"),
    (("pairs", "--queries", "FILE", "--encoder", "/no/such"), WhenaboutsError, "/no/such"),
    (("pairs", "--queries", "/no/such.jsonl"), FormatError, "cannot be read"),
    (("ranked", "--queries", "FILE", "--top", 0), UsageError, "top 0"),
    (("ranked", "--queries", "FILE", "--top", 2, "--top", -1), UsageError, "top -1"),
    (("ranked", "--queries", "FILE", "--top", 2, "--top", 1), UsageError, "2 sets need names of their own"),
    (("ranked", "--queries", "FILE", "--leave-out", "FILE"), UsageError, "no queries left"),
]


@pytest.mark.parametrize(("arguments", "kind", "message"), FAULTS, ids=[fault[2] for fault in FAULTS])
def test_faults_are_told_and_nothing_is_written(
    arguments: tuple[Any, ...], kind: type[WhenaboutsError], message: str, judgements: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with pytest.raises(kind, match=message):
        run(*(judgements if one == "FILE" else one for one in arguments), "--out", out)
    assert not out.exists()


@pytest.mark.parametrize("kind", ["pairs", "ranked"])
def test_a_query_without_words_is_named_with_its_file(kind: str, judgements: Path, tmp_path: Path) -> None:
    judgements.write_text(judgements.read_text().replace(TEXTS[5], "  "))
    with pytest.raises(FormatError, match=r"train\.jsonl: query '5' has no words; accepted: a file with"):
        run(kind, "--queries", judgements, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--leave-out", "--asked-in"])
def test_queries_to_leave_out_need_words_too(option: str, judgements: Path, tmp_path: Path) -> None:
    test = tmp_path / "test.jsonl"
    test.write_text('{"query_id": "5", "video_id": "v5", "start": 1, "end": 2}\n')
    with pytest.raises(FormatError, match=r"test\.jsonl: query '5' has no words; accepted: a file with"):
        run("ranked", "--queries", judgements, option, test, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["pairs", "ranked"])
def test_judgements_without_queries_are_refused(kind: str, tmp_path: Path) -> None:
    (tmp_path / "none.json").write_text('{"v": {"duration": 9.0, "timestamps": [], "sentences": []}}')
    with pytest.raises(FormatError, match=r"none\.json: has no queries; accepted: at least one"):
        run(kind, "--queries", tmp_path / "none.json", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_judgements_are_not_overwritten(judgements: Path) -> None:
    before = judgements.read_bytes()
    for kind in ("pairs", "ranked"):
        with pytest.raises(FormatError, match="would be overwritten"):
            run(kind, "--queries", judgements, "--out", judgements)
    assert judgements.read_bytes() == before


@pytest.mark.parametrize("kind", ["pairs", "ranked"])
def test_the_files_of_a_data_set_are_not_overwritten(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "charades_sta_train.txt"
    file.write_text("".join(f"V{n} 0.0 5.0##{text}\n" for n, text in enumerate(TEXTS)))
    before = file.read_bytes()
    with pytest.raises(FormatError, match="would be overwritten"):
        run(kind, "--dataset", "charades-sta", "--data", tmp_path, "--out", file)
    assert file.read_bytes() == before


def test_pairs_do_not_overwrite_the_texts_beside_the_judgements(judgements: Path, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    write_annotations(read_annotations(judgements), folder, "jsonl")
    texts = folder / "queries.jsonl"
    before = texts.read_bytes()
    with pytest.raises(FormatError, match="would be overwritten"):
        run("pairs", "--queries", folder, "--out", texts)
    assert texts.read_bytes() == before
