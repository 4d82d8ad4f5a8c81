"""An import is whole or not there: killed at any of its writes, or on a full disk beside a running server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.judging.conftest import task
from tests.judging.served_set import ok, refused, serve_set

from whenabouts.intake.files import FormatError
from whenabouts_bench.judging.events import Event
from whenabouts_bench.judging.importing import Imported, import_answers
from whenabouts_bench.judging.journal import Journal
from whenabouts_bench.judging.tasks import ExamTask, TaskSet

Make = Callable[..., TaskSet]
EXAM = tuple(ExamTask(task(number, "x"), number % 5) for number in range(20, 40))

# Writes 300 bytes at a time, and dies before write or sync number N.
_KILLED = """
import os, signal, sys
from pathlib import Path
from whenabouts_bench.judging.importing import import_answers
from whenabouts_bench.judging.journal import Journal
from whenabouts_bench.judging.tasks import TaskSet
journal, left = Journal.open(TaskSet.open(Path(sys.argv[1]))), int(sys.argv[3])
write, sync = os.write, os.fsync
def or_die(call):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    return call()
os.write = lambda file, data: or_die(lambda: write(file, data[:300]))
os.fsync = lambda file: or_die(lambda: sync(file))
print(import_answers(journal, Path(sys.argv[2])))
"""


@pytest.fixture
def given(make_set: Make, tmp_path: Path) -> Path:
    """The journal of a copy in which Ann passed the exam of 20 tasks and graded six others."""
    copy = Journal.open(make_set(exam=EXAM, folder="copy"))
    copy.append_all([Event("exam", "ann", item.task.id, grade=item.grade) for item in EXAM])
    copy.append_all([Event("grade", "ann", f"t{number}", grade=3) for number in range(6)])
    return tmp_path / "copy" / "journal.jsonl"


def opened(folder: Path) -> Journal:
    return Journal.open(TaskSet.open(folder))


@pytest.mark.slow
def test_an_import_killed_at_any_write_is_not_there_and_said_again_is_whole(
    make_set: Make, given: Path
) -> None:
    folder = make_set(exam=EXAM).folder
    before = opened(folder).append(Event("exam", "bea", "t20", grade=1)).seq
    environment, writes = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, 0
    while True:
        writes += 1
        command = [sys.executable, "-c", _KILLED, str(folder), str(given), str(writes)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode != -signal.SIGKILL:
            break
        events = opened(folder).events()
        if len(events) > before:  # killed after the last newline: all of it is there
            assert import_answers(opened(folder), given) == Imported(0, 0, 26)
            break
        assert events[-1].seq == before, writes
    assert writes >= 10
    journal = opened(folder)
    assert len(journal.events()) == before + 27
    assert {name: len(answers) for name, answers in journal.state().exam.items()} == {"bea": 1, "ann": 20}
    assert import_answers(journal, given) == Imported(0, 0, 26)
    assert journal.notes == []


def test_a_part_of_an_exam_that_an_earlier_version_left_is_completed(make_set: Make, given: Path) -> None:
    journal = Journal.open(make_set(exam=EXAM))
    journal.append_all([Event("exam", "ann", item.task.id, grade=item.grade) for item in EXAM[:6]])
    assert import_answers(journal, given) == Imported(20, 0, 6)
    assert len(journal.state().exam["ann"]) == 20
    assert import_answers(journal, given) == Imported(0, 0, 26)


def test_an_exam_taken_here_is_not_mixed_with_one_from_elsewhere(make_set: Make, given: Path) -> None:
    journal = Journal.open(make_set(exam=EXAM))
    journal.append(Event("exam", "ann", "t20", grade=4))
    assert import_answers(journal, given).new == 6
    assert journal.state().exam["ann"] == {"t20": [4]}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_server_goes_on_beside_an_import_that_fills_the_disk(
    make_set: Make, given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = make_set(exam=EXAM)
    served = serve_set(tasks, tmp_path / "cache", "Bo")
    bo, write, answers = served.judge("Bo"), os.write, []

    def soon_full(descriptor: int, data: memoryview) -> int:
        answers.append(bo.next()["task"]["task_id"])  # while part of the import is in the file
        if len(answers) == 4:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[:500])

    monkeypatch.setattr(os, "write", soon_full)
    with pytest.raises(FormatError, match="No space left"):
        import_answers(Journal.open(TaskSet.open(tasks.folder)), given)
    monkeypatch.undo()
    assert answers == ["t20"] * 4
    assert bo.grade("t20", 0)["next"]["task"]["task_id"] == "t21"
    assert refused(bo.post("/api/undo"))[1] == "in_exam"
    assert import_answers(opened(tasks.folder), given) == Imported(26, 0, 0)
    people = ok(served.lead.get("/api/annotators"))["annotators"]
    assert {row["annotator"]: row["exam_right"] for row in people} == {"ann": 20, "Bo": 1}
    served.client.app.service.close()  # type: ignore[attr-defined]
