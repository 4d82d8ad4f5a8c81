"""Task sets: what is written can be read, and other folders are refused with the file's name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.judging.conftest import task

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_bench.judging.tasks import ExamTask, Source, TaskSet

Make = Callable[..., TaskSet]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    exam = (ExamTask(task(9), 3, "The door is cut off."),)
    tasks = (task(0), task(1, "q2", batch=2))
    made = TaskSet(tmp_path / "set", "mine", tasks, {"video": "a.mp4"}, exam, 1, 0.8, 1.5, {"runs": ["a"]})
    made.write({"t0": Source({"a": 1}), "t1": Source({"a": 2}, 0.5)}, guideline="Look.\n")
    read = TaskSet.open(tmp_path / "set")
    assert read == made
    assert read.sources() == {"t0": Source({"a": 1}), "t1": Source({"a": 2}, 0.5)}
    assert read.guideline().text == "Look.\n"


def test_tasks_say_nothing_of_where_they_came_from(tmp_path: Path) -> None:
    TaskSet(tmp_path, "mine", (task(0),), {"video": ""}).write({"t0": Source({"secret run": 7}, 0.25)})
    shown = "".join((tmp_path / name).read_text() for name in ("tasks.jsonl", "videos.jsonl", "guideline.md"))
    assert "secret run" not in shown
    assert "0.25" not in shown


def test_a_set_is_never_overwritten(make_set: Make) -> None:
    with pytest.raises(UsageError, match="is a task set already"):
        make_set().write()


def test_changed_tasks_are_noticed(make_set: Make) -> None:
    path = make_set().folder / "tasks.jsonl"
    path.write_text(path.read_text().replace("Sentence q1", "Another sentence"))
    with pytest.raises(FormatError, match=r"tasks\.jsonl: is not what judging\.json was written with"):
        TaskSet.open(path.parent)


def test_a_folder_that_is_no_task_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"is not a task set: it has no judging\.json"):
        TaskSet.open(tmp_path)


def test_second_batches_need_the_ranks_of_the_first(make_set: Make) -> None:
    with pytest.raises(FormatError, match=r"sources\.jsonl: is not there"):
        make_set(task(0), task(1, batch=2))


def test_another_version_is_refused(make_set: Make) -> None:
    path = make_set().folder / "judging.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 2}))
    with pytest.raises(FormatError, match=r"judging\.json: version: is 2; accepted: version 1"):
        TaskSet.open(path.parent)


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("tasks.jsonl", '"t1"', '"t0"', "line 2: task_id: comes twice: 't0'"),
        ("tasks.jsonl", '"end": 6.0', '"end": 1.0', "line 2: start: 1.0 is not before the end 1.0"),
        ("tasks.jsonl", '"query_id": "q0", ', "", "line 1: query_id: is missing"),
        ("judging.json", '"annotators": 2', '"annotators": 3', "is too large: 3; accepted: 1 or 2"),
        ("videos.jsonl", '"video"', '"other"', "no line for the video of task t0: 'video'"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_named(make_set: Make, name: str, old: str, new: str, message: str) -> None:
    tasks = [task(number, f"q{number // 2}") for number in range(6)]
    tasks[1] = type(tasks[1])("t1", "q0", "x", type(tasks[1].moment)("video", 1.0, 6.0))
    path = make_set(*tasks).folder / name
    changed = path.read_text().replace(old, new, 1)
    assert changed != path.read_text()
    path.write_text(changed)
    with pytest.raises(FormatError) as caught:
        TaskSet.open(path.parent)
    assert message in str(caught.value)


def test_an_exam_uses_ids_of_its_own(make_set: Make) -> None:
    with pytest.raises(
        FormatError, match=r"exam\.jsonl, line 1: task_id: is the id of a task to judge, too: 't0'"
    ):
        make_set(task(0), exam=(ExamTask(task(0), 2),))


def test_missing_videos_are_told_with_the_remedy(make_set: Make) -> None:
    tasks = make_set()
    assert tasks.missing_videos() == []
    assert tasks.video("video").name == "video.mp4"
    tasks.video("video").unlink()
    assert tasks.missing_videos() == ["video"]
    with pytest.raises(UsageError, match=r"video\.mp4 is not there; write its path into .*videos\.jsonl"):
        tasks.video("video")


def test_the_guideline_is_read_as_it_stands(make_set: Make) -> None:
    tasks = make_set()
    before = tasks.guideline()
    assert "| 4 |" in before.text
    (tasks.folder / "guideline.md").write_text("Only dogs count.\n")
    assert tasks.guideline().text == "Only dogs count.\n"
    assert tasks.guideline().version != before.version


def test_a_guideline_in_another_encoding_is_refused(make_set: Make) -> None:
    tasks = make_set()
    (tasks.folder / "guideline.md").write_bytes(b"\xff\xfe")
    with pytest.raises(FormatError, match=r"guideline\.md, line 1: is not UTF-8 text .*saved as UTF-8"):
        tasks.guideline()
