"""`whenabouts search --queries`: many queries at once, as a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whenabouts_bench.evaluation.evaluate import evaluate

Whenabouts = Callable[..., Any]
JEWELS = {"query_id": "jewels", "video_id": "friday.mp4", "start": 4.3, "end": 6.0}
NOBODY = {"query_id": "nobody", "video_id": "elsewhere.mp4", "start": 0, "end": 1}


@pytest.fixture()
def truth(tmp_path: Path) -> Path:
    folder = tmp_path / "truth"
    folder.mkdir()
    (folder / "qrels.jsonl").write_text(json.dumps(JEWELS) + "\n" + json.dumps(NOBODY) + "\n")
    texts = {"jewels": "crown jewels", "nobody": "zygomorphic brachiopod taxonomy"}
    lines = [json.dumps({"query_id": name, "text": text}) + "\n" for name, text in texts.items()]
    (folder / "queries.jsonl").write_text("".join(lines))
    return folder


def lines_of(path: Path) -> dict[str, Any]:
    return {line["query_id"]: line for line in map(json.loads, path.read_text().splitlines())}


def test_answers_are_a_run_that_evaluate_measures_under_the_names_of_the_judgements(
    whenabouts: Whenabouts, bare: Whenabouts, truth: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run.jsonl"
    done = whenabouts("search", "--queries", str(truth), "--out", str(out), "-k", "5", "--json")
    assert done.code == 0
    assert done.json["queries"] == 2
    assert done.json["videos_named"] == 1
    assert done.json["answers"] == {"match": 1, "no_match": 1}
    jewels = lines_of(out)["jewels"]
    assert jewels["moments"][0]["video_id"] == "friday.mp4"
    one = whenabouts("search", "crown jewels", "-k", "5", "--json").json["moments"]
    assert [found["score"] for found in one] == [found["score"] for found in jewels["moments"]]
    assert jewels["confidence"] == one[0]["confidence"]
    assert evaluate(truth, out, ["VR R@1"]).means() == {"VR R@1": 0.5}
    assert bare(*done.json["evaluate"].split()[1:]).code == 0


def test_a_run_that_is_there_is_replaced_only_with_force(
    whenabouts: Whenabouts, truth: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run.jsonl"
    out.write_text("of another system")
    done = whenabouts("search", "--queries", truth, "--out", out)
    assert done.code == 2 and "is there already; give another name, or --force to replace it" in done.err
    assert out.read_text() == "of another system"
    assert whenabouts("search", "--queries", truth, "--out", out, "--force").code == 0
    assert list(lines_of(out)) == ["jewels", "nobody"]


def test_people_are_told_what_came_of_it(whenabouts: Whenabouts, tmp_path: Path, truth: Path) -> None:
    done = whenabouts("search", "--queries", str(truth), "--out", str(tmp_path / "run.jsonl"), "--table")
    assert "2 queries: 1 a match, 0 unsure, 1 no match" in done.out
    assert "1 of the 2 videos that" in done.out
    assert f"whenabouts evaluate vcmr --truth {truth}" in done.out


def test_a_text_file_will_do_and_none_with_an_answer_is_1(whenabouts: Whenabouts, tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("zygomorphic brachiopod taxonomy\n")
    out = tmp_path / "run.jsonl"
    done = whenabouts("search", "--queries", str(tmp_path / "q.txt"), "--out", str(out), "--json")
    assert done.code == 1
    assert done.json["evaluate"] is None
    assert list(lines_of(out)) == ["1"]


def test_questions_that_calibrate_takes_will_do(whenabouts: Whenabouts, tmp_path: Path) -> None:
    known = {"query": "crown jewels", "video": "friday.mp4", "start": 4.3, "end": 6.0}
    (tmp_path / "known.jsonl").write_text(json.dumps(known) + "\n" + json.dumps(known) + "\n")
    out = tmp_path / "run.jsonl"
    done = whenabouts("search", "--queries", tmp_path / "known.jsonl", "--out", out, "--json")
    assert done.code == 0 and done.json["answers"] == {"match": 2}
    assert lines_of(out)["2"]["moments"][0]["video_id"].startswith("friday")
    (tmp_path / "known.jsonl").write_text(json.dumps({**known, "query": " "}) + "\n")
    done = whenabouts("search", "--queries", tmp_path / "known.jsonl", "--out", tmp_path / "other.jsonl")
    assert done.code == 2 and "line 1" in done.err and "query" in done.err


def test_a_file_of_queries_is_never_written_over(whenabouts: Whenabouts, truth: Path) -> None:
    before = (truth / "queries.jsonl").read_text()
    for read in (truth, truth / "queries.jsonl"):
        done = whenabouts("search", "--queries", str(read), "--out", str(truth / "queries.jsonl"))
        assert done.code == 2
        assert "queries.jsonl" in done.err
    assert (truth / "queries.jsonl").read_text() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--queries", "FILE"], "--queries FILE and --out FILE belong together"),
        (["--out", "run.jsonl"], "--queries FILE and --out FILE belong together"),
        (["a dog", "--out", "run.jsonl"], "--queries FILE and --out FILE belong together"),
        (["a dog", "--queries", "FILE", "--out", "OUT"], "give one of the two"),
        (
            [],
            "what to look for? Give a QUERY, an example with --like, or many with --queries FILE --out FILE",
        ),
        (["--queries", "nowhere.txt", "--out", "OUT"], "nowhere.txt: cannot be read"),
        (["--queries", "FILE", "--out", "OUT", "-k", "0"], "k"),
    ],
)
def test_what_does_not_go_together_is_said_and_nothing_is_written(
    whenabouts: Whenabouts, tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "q.txt").write_text("a dog\n")
    places = {"FILE": str(tmp_path / "q.txt"), "OUT": str(tmp_path / "run.jsonl")}
    done = whenabouts("search", *[places.get(one, one) for one in arguments])
    assert done.code == 2
    assert message in done.err
    assert not (tmp_path / "run.jsonl").exists()
