"""Label Studio: what is exported can be answered there, and what comes back is checked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.judging.conftest import task

from whenabouts import locking
from whenabouts.cli.main import main
from whenabouts.intake.files import FormatError
from whenabouts.types import Moment, UsageError
from whenabouts_bench.judging.events import Event
from whenabouts_bench.judging.importing import Imported, import_answers
from whenabouts_bench.judging.journal import LOCK, Journal
from whenabouts_bench.judging.label_studio import LABELLING, read_answers, write_label_studio
from whenabouts_bench.judging.tasks import Source, Task, TaskSet

Make = Callable[..., TaskSet]
REGION = {"from_name": "borders", "value": {"ranges": [{"start": 60, "end": 70}]}}


def annotation(grade: object, person: object = 7, frames: tuple[int, int] | None = None, **more: Any) -> Any:
    result = [{"from_name": "grade", "to_name": "video", "type": "choices", "value": {"choices": [grade]}}]
    if frames:
        ranges = [{"start": frames[0], "end": frames[1]}]
        region = {"from_name": "borders", "type": "timelinelabels", "value": {"ranges": ranges}}
        result.append(region)
    return {"completed_by": person, "result": result, **more}


def export(tasks: TaskSet, path: Path, answers: dict[str, list[Any]]) -> Path:
    """What Label Studio gives back for the tasks that were written."""
    write_label_studio(tasks, path)
    entries = json.loads(path.read_text())
    path.write_text(
        json.dumps([{**e, "annotations": answers.get(e["data"]["task_id"], [])} for e in entries])
    )
    return path


def test_tasks_say_what_is_to_be_judged_and_nothing_of_their_source(make_set: Make, tmp_path: Path) -> None:
    tasks = make_set(Task("t1", "q", 'He says <b>"hi" & goes</b>', Moment("video", 1.0, 3.0), 60.0))
    interface = write_label_studio(tasks, tmp_path / "out.json", "http://media/{file}?id={video_id}")
    (entry,) = json.loads((tmp_path / "out.json").read_text())
    assert entry["data"] == {
        "video": "http://media/video.mp4?id=video", "query": 'He says <b>"hi" & goes</b>',
        "span": "1.0 to 3.0 s", "task_id": "t1", "task_set": tasks.fingerprint,
    }  # fmt: skip
    assert entry["predictions"][0]["result"][0]["value"]["ranges"] == [{"start": 26, "end": 75}]
    assert interface.read_text() == LABELLING


def test_the_labelling_interface_names_what_answers_are_read_by() -> None:
    root = ElementTree.fromstring(LABELLING)
    assert [choice.get("value") for choice in root.iter("Choice")] == ["0", "1", "2", "3", "4"]
    names = {child.get("name") for child in root}
    assert {"grade", "borders", "video"} <= names
    shown = {(child.get("value") or "").removeprefix("$") for child in root} & {"query", "span", "video"}
    assert shown == {"query", "span", "video"}


def test_names_that_an_address_cannot_hold_are_escaped(tmp_path: Path) -> None:
    odd = Task("t1", "q", "x", Moment("a b/ü#1", 0.0, 1.0))
    tasks = TaskSet(tmp_path / "set", "odd", (odd,), {"a b/ü#1": ""})
    tasks.write()
    write_label_studio(tasks, tmp_path / "out.json")
    (entry,) = json.loads((tmp_path / "out.json").read_text())
    assert entry["data"]["video"] == "/data/local-files/?d=videos/a%20b%2F%C3%BC%231"


def test_addresses_without_the_video_are_refused(make_set: Make, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has neither \{file\} nor \{video_id\}"):
        write_label_studio(make_set(), tmp_path / "out.json", "http://media/all.mp4")
    with pytest.raises(UsageError, match="the labelling interface is written there"):
        write_label_studio(make_set(folder="other"), tmp_path / "out.xml")
    with pytest.raises(UsageError, match=r"\.: the labelling interface is written there"):
        write_label_studio(make_set(folder="third"), Path())


def test_answers_come_back_with_their_annotators(make_set: Make, tmp_path: Path) -> None:
    tasks = make_set()
    answers = {
        "t0": [annotation("3"), annotation("0", {"id": 8, "email": "bea@example.org"})],
        "t1": [annotation("2", "cem@example.org", frames=(51, 100)), annotation("2", was_cancelled=True)],
        "t2": [annotation("1", frames=(51, 175)), {"completed_by": 8, "result": []}],
    }
    assert read_answers(export(tasks, tmp_path / "out.json", answers), tasks) == [
        Event("grade", "7", "t0", grade=3),
        Event("grade", "8", "t0", grade=0),
        Event("grade", "cem@example.org", "t1", grade=2, start=2.0, end=4.0),
        Event("grade", "7", "t2", grade=1),  # 51 to 175 are the original borders
    ]


def test_json_min_and_ratings_are_read_too(make_set: Make, tmp_path: Path) -> None:
    tasks = make_set()
    entry = {"task_id": "t0", "task_set": tasks.fingerprint, "annotator": 3, "grade": "4"}
    ranges = [{"start": 26, "end": 75.5}]  # the editor's numbers need not be whole
    entry["borders"] = [{"ranges": ranges, "timelinelabels": ["moment"]}]
    rated = {"completed_by": 4, "result": [{"from_name": "grade", "value": {"rating": 2}}]}
    whole = {"data": {"task_id": "t1", "task_set": tasks.fingerprint}, "annotations": [rated]}
    path = tmp_path / "min.json"
    path.write_text(json.dumps([entry, whole]))
    assert read_answers(path, tasks) == [
        Event("grade", "3", "t0", grade=4, start=1.0, end=3.02),
        Event("grade", "4", "t1", grade=2),
    ]


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([annotation("5")], "[0]: annotator 7 gives the grade '5'; accepted: a grade from 0 to 4"),
        ([annotation("good")], "annotator 7 gives the grade 'good'"),
        ([annotation("3"), annotation("1")], "annotator 7 contradicts an earlier answer of 3: 1"),
        ([annotation("3", None)], "annotations[0].completed_by: names no annotator"),
        (
            [annotation("3") | {"result": [*annotation("3", frames=(51, 100))["result"], REGION]}],
            "[0]: has borders that are not a range of frames: [",
        ),
        ([annotation("3", "a" * 81)], "annotations[0].completed_by: is not a name of an annotator: 'aaa"),
        ([annotation("3", "a\u202eb")], "annotations[0].completed_by: is not a name of an annotator"),
        ([annotation("3", frames=(50, 20))], "has borders outside its video: [50.0, 20.0]"),
        (["yes"], "annotations[0]: is not an object"),
        ([{"completed_by": 7}], "annotations[0].result: is not a list"),
    ],
)
def test_wrong_answers_are_refused_by_name(
    make_set: Make, tmp_path: Path, answers: list[Any], message: str
) -> None:
    tasks = make_set()
    with pytest.raises(FormatError) as caught:
        read_answers(export(tasks, tmp_path / "out.json", {"t0": answers}), tasks)
    assert message in str(caught.value)


def test_answers_to_another_task_set_are_refused(make_set: Make, tmp_path: Path) -> None:
    path = export(make_set(), tmp_path / "out.json", {"t0": [annotation("3")]})
    other = make_set(task(0, "another"), folder="other")
    with pytest.raises(FormatError, match=r"out\.json: \[0\]\.task_set: is another task set"):
        read_answers(path, other)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "is not an export"),
        ('[{"data": {"video": "a.mp4"}}]', "has no task_id and task_set"),
        ("[3]", "[0]: is not an object"),
        ("<html>", "is not JSON"),
    ],
)
def test_files_that_are_no_export_are_refused(
    make_set: Make, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "file.json").write_text(text)
    with pytest.raises(FormatError) as caught:
        read_answers(tmp_path / "file.json", make_set())
    assert message in str(caught.value)


def test_an_import_says_what_changed_and_can_be_repeated(journal: Journal, tmp_path: Path) -> None:
    tasks = journal.task_set
    path = export(tasks, tmp_path / "out.json", {"t0": [annotation("3", frames=(51, 100))]})
    assert import_answers(journal, path) == Imported(new=1, changed=0, same=0)
    assert import_answers(journal, path) == Imported(new=0, changed=0, same=1)
    path = export(tasks, path, {"t0": [annotation("4")], "t1": [annotation("1")]})
    assert import_answers(journal, path) == Imported(new=1, changed=1, same=0)
    answer = journal.state().answer("7", "t0")
    assert answer is not None
    assert (answer.grade, answer.start, answer.end) == (4, 0.0, 5.0)  # dragged back
    assert import_answers(journal, path) == Imported(new=0, changed=0, same=2)
    kinds = [(event.kind, event.source) for event in journal.events()]
    assert kinds[1:3] == [("import", "out.json"), ("grade", "out.json")]
    assert len(kinds) == 6


def test_an_answer_to_a_skipped_task_is_new(journal: Journal, tmp_path: Path) -> None:
    journal.append(Event("skip", "7", "t0"))
    path = export(journal.task_set, tmp_path / "out.json", {"t0": [annotation("3")]})
    assert import_answers(journal, path) == Imported(new=1, changed=0, same=0)


def test_an_import_never_changes_what_was_answered_here(journal: Journal, tmp_path: Path) -> None:
    journal.append(Event("grade", "7", "t1", grade=0))
    answers = {"t0": [annotation("3")], "t1": [annotation("1")]}
    path = export(journal.task_set, tmp_path / "out.json", answers)
    with pytest.raises(FormatError) as caught:
        import_answers(journal, path)
    assert (
        "annotator '7', task t1: was answered here with 0 (event 2), and is answered in the file with 1"
        in str(caught.value)
    )
    assert len(journal.events()) == 2  # nothing of the file was written


def test_the_journal_of_a_copy_is_taken_in(make_set: Make, journal: Journal, tmp_path: Path) -> None:
    copy = Journal.open(make_set(folder="copy"))
    copy.append(Event("grade", "bea", "t0", grade=1))
    copy.append(Event("grade", "bea", "t0", grade=2))
    copy.append(Event("grade", "bea", "t1", grade=4, start=2.0, end=3.0))
    copy.append(Event("grade", "bea", "t2", grade=4))
    copy.undo("bea")
    journal.append(Event("grade", "ann", "t0", grade=2))
    path = copy.task_set.folder / "journal.jsonl"
    assert import_answers(journal, path) == Imported(new=2, changed=0, same=0)
    assert import_answers(journal, path) == Imported(new=0, changed=0, same=2)
    assert [(task_id, name, a.grade) for task_id, name, a in journal.state().rows()] == [
        ("t0", "ann", 2), ("t0", "bea", 2), ("t1", "bea", 4)
    ]  # fmt: skip


def test_a_journal_of_another_task_set_is_not_taken_in(make_set: Make, journal: Journal) -> None:
    other = Journal.open(make_set(task(0, "another"), folder="other"))
    other.append(Event("grade", "bea", "t0", grade=1))
    with pytest.raises(FormatError, match=r"other/journal\.jsonl, line 1: tasks: is of another task set"):
        import_answers(journal, other.task_set.folder / "journal.jsonl")


def test_a_file_that_is_not_there_is_told(journal: Journal, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"none\.json: is not there"):
        import_answers(journal, tmp_path / "none.json")


_IMPORTER = """
import sys
from pathlib import Path
from whenabouts_bench.judging.importing import import_answers
from whenabouts_bench.judging.journal import Journal
from whenabouts_bench.judging.tasks import TaskSet
journal = Journal.open(TaskSet.open(sys.argv[1]))
print("ready", flush=True)
print(import_answers(journal, Path(sys.argv[2])).new)
"""


@pytest.mark.slow
def test_two_processes_that_import_at_once_write_each_answer_once(make_set: Make, tmp_path: Path) -> None:
    tasks = make_set()
    path = export(tasks, tmp_path / "out.json", {f"t{number}": [annotation("3")] for number in range(6)})
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _IMPORTER, str(tasks.folder), str(path)]
    held = locking.hold(tasks.folder, LOCK)
    assert held is not None
    importers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(2)
    ]
    for importer in importers:
        assert importer.stdout is not None and importer.stdout.readline() == "ready\n"
    time.sleep(0.3)  # both have read the journal and wait for the lock
    held.release()
    assert sorted(importer.communicate(timeout=60)[0] for importer in importers) == ["0\n", "6\n"]
    assert sum(event.kind == "grade" for event in Journal.open(tasks).events()) == 6


def two_batches(tmp_path: Path) -> TaskSet:
    """Two queries with a first batch of two and a second of one; grades of a single annotator are final."""
    tasks = tuple(
        task(number, query, batch)
        for number, (query, batch) in enumerate([("q1", 1), ("q1", 1), ("q2", 1), ("q1", 2), ("q2", 2)])
    )
    (tmp_path / "video.mp4").touch()
    made = TaskSet(tmp_path / "set", "two", tasks, {"video": "../video.mp4"}, annotators=1)
    made.write({each.id: Source({"captions": number + 1}) for number, each in enumerate(tasks)})
    return TaskSet.open(tmp_path / "set")


def judgements(capsys: pytest.CaptureFixture[str], *options: object) -> dict[str, Any]:
    assert main(["judgements", *map(str, options), "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_a_batch_is_exported_when_it_opens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks, path = two_batches(tmp_path), tmp_path / "out.json"
    judgements(capsys, tasks.folder, "--label-studio", path)
    entries = json.loads(path.read_text())
    assert [entry["data"]["task_id"] for entry in entries] == ["t0", "t1", "t2"]
    grades = {"t0": 4, "t1": 2, "t2": 1}
    answered = [{**e, "annotations": [annotation(grades[e["data"]["task_id"]])]} for e in entries]
    path.write_text(json.dumps(answered))
    judgements(capsys, tasks.folder, "--import", path, "--label-studio", tmp_path / "second.json")
    (entry,) = json.loads((tmp_path / "second.json").read_text())
    assert entry["data"]["task_id"] == "t3"  # the first batch of q2 ended with a mean of 1
    Journal.open(tasks).append(Event("grade", "7", "t3", grade=0))
    assert main(["judgements", str(tasks.folder), "--label-studio", str(path)]) == 2
    assert "no task needs another grade" in capsys.readouterr().err


def test_every_grade_that_does_not_count_has_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = two_batches(tmp_path)
    path = export(tasks, tmp_path / "out.json", {f"t{n}": [annotation(min(n, 1))] for n in range(5)})
    told = judgements(capsys, tasks.folder, "--import", path, "--out", tmp_path / "qrels.jsonl")
    assert (told["grades"], told["agreed"]) == (5, 3)
    assert [each["task_id"] for each in told["grades that do not count"]] == ["t3", "t4"]
    Journal.open(tasks).append(Event("grade", "late", "t0", grade=3))
    assert main(["judgements", str(tasks.folder), "--table"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "does not count: 7 gave t3 a 1; batch 2 of query q1 is not open" in lines
    assert "does not count: late gave t0 a 3; the task was settled without it" in lines
