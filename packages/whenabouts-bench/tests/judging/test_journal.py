"""The journal: nothing acknowledged is lost or overwritten, and every earlier state can be restored."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from tests.judging.conftest import Clock, task

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError, WhenaboutsError
from whenabouts_bench.judging.events import Answer, Event
from whenabouts_bench.judging.journal import Journal
from whenabouts_bench.judging.tasks import ExamTask, TaskSet

Make = Callable[..., TaskSet]


def again(journal: Journal) -> Journal:
    """The same journal, read again."""
    return Journal.open(TaskSet.open(journal.task_set.folder))


def test_grades_and_borders_add_up(journal: Journal) -> None:
    journal.append(Event("grade", "ann", "t0", grade=3))
    journal.append(Event("borders", "ann", "t0", start=1.5, end=4.0))
    last = journal.append(Event("grade", "ann", "t0", grade=0))
    expected = Answer(grade=0, start=1.5, end=4.0, first=2, seq=4, time=last.time)
    assert journal.state().answer("ann", "t0") == expected  # event 1 is the guideline
    assert again(journal).state().answer("ann", "t0") == expected


def test_an_undo_takes_back_step_by_step_and_stays_in_the_journal(journal: Journal) -> None:
    journal.append(Event("grade", "ann", "t0", grade=3))
    journal.append(Event("grade", "bea", "t0", grade=1))
    journal.append(Event("grade", "ann", "t0", grade=4))
    assert journal.undo("ann").undone == 4
    answer = journal.state().answer("ann", "t0")
    assert answer is not None
    assert answer.grade == 3
    assert journal.undo("ann").undone == 2
    assert journal.state().grades("t0") == (1,)
    with pytest.raises(UsageError, match="'ann' has nothing to undo"):
        journal.undo("ann")
    assert [event.kind for event in again(journal).events()] == ["guideline", *["grade"] * 3, "undo", "undo"]


def test_any_earlier_state_can_be_had(journal: Journal) -> None:
    first = journal.append(Event("grade", "ann", "t0", grade=3))
    second = journal.append(Event("grade", "ann", "t0", grade=1))
    journal.undo("ann")
    assert journal.state(at=first.seq).grades("t0") == (3,)
    assert journal.state(at=second.seq).grades("t0") == (1,)
    assert journal.state(at=second.time).grades("t0") == (1,)
    assert journal.state(at="2026-05-31T12:00:01Z").grades("t0") == (3,)
    assert journal.state(at="2026-05-31T14:00:02+02:00").grades("t0") == (1,)
    assert journal.state(at=0).grades("t0") == ()
    with pytest.raises(UsageError, match="event 9: the journal has events 1 to 4"):
        journal.state(at=9)
    with pytest.raises(UsageError, match="'yesterday' is not a time"):
        journal.state(at="yesterday")


def test_a_changed_guideline_is_an_event_of_its_own(journal: Journal) -> None:
    journal.append(Event("grade", "ann", "t0", grade=3))
    (journal.task_set.folder / "guideline.md").write_text("Only dogs count.\n")
    journal.append(Event("grade", "ann", "t1", grade=3))
    kinds = [event.kind for event in journal.events()]
    assert kinds == ["guideline", "grade", "guideline", "grade"]
    assert journal.state(at=2).guideline.startswith("# How well")
    assert journal.state().guideline == "Only dogs count.\n"


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (Event("grade", "ann", "t0", grade=5), "task t0: grade 5 is not on the scale; give 0 to 4"),
        (Event("grade", "ann", "t0", grade=-1), "grade -1 is not on the scale"),
        (Event("grade", "ann", "t0", grade=True), "grade True is not on the scale"),
        (Event("grade", "ann", "t0", grade=2.5), "grade 2.5 is not on the scale"),  # type: ignore[arg-type]
        (Event("grade", "ann", "t0"), "grade None is not on the scale"),
        (Event("grade", "ann", "t99", grade=1), "has no task 't99'"),
        (Event("grade", "", "t0", grade=1), "annotator '': give a name"),
        (Event("grade", "a\nb", "t0", grade=1), "give a name of 1 to 80 printable characters"),
        (Event("exam", "ann", "t0", grade=1), "task t0: takes grade, borders or skip, not exam"),
        (Event("borders", "ann", "t0", start=5.0, end=5.0), "is empty, reversed or negative"),
        (Event("borders", "ann", "t0", start=5.0, end=float("nan")), "times must be finite"),
        (Event("borders", "ann", "t0", start=5.0, end=70.0), "70 s is after the video's end, 60 s"),
        (Event("borders", "ann", "t0", start=5.0), "borders need start and end"),
    ],
)
def test_an_event_that_cannot_be_is_refused_and_not_written(
    journal: Journal, event: Event, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        journal.append(event)
    assert message in str(caught.value)
    assert journal.events() == ()


def test_a_clock_set_back_is_told_and_changes_no_order(journal: Journal, clock: Clock) -> None:
    first = journal.append(Event("grade", "ann", "t0", grade=3))
    clock.now -= timedelta(hours=1)
    second = journal.append(Event("grade", "ann", "t1", grade=2))
    assert second.seq == first.seq + 1
    assert second.time == first.time
    assert second.clock == "2026-05-31T11:00:02.000000Z"
    assert "before the last event" in journal.notes[0]
    assert journal.state(at=first.seq).grades("t1") == ()
    assert again(journal).events()[-1].clock == second.clock


def test_a_torn_last_line_is_set_aside_and_told(journal: Journal) -> None:
    journal.append(Event("grade", "ann", "t0", grade=3))
    path = journal.task_set.folder / "journal.jsonl"
    with path.open("ab") as stream:
        stream.write(b'{"seq":3,"time":"20')
    reopened = again(journal)
    assert "the last line is incomplete" in reopened.notes[0]
    assert reopened.append(Event("grade", "ann", "t1", grade=2)).seq == 3
    assert (path.parent / "journal.torn").read_bytes() == b'{"seq":3,"time":"20\n'
    assert [event.seq for event in again(journal).events()] == [1, 2, 3]
    assert again(journal).notes == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"seq":2', '"seq":7', "line 2: seq: is out of sequence: 7; accepted: 2: lines were lost or added"),
        ('"grade":3', '"grade":9', "line 2: grade: is too large: 9; accepted: a whole number from 0 to 4"),
        ('"event":"grade"', '"event":"vote"', "line 2: event: is 'vote'"),
        ('"annotator":"ann"', '"annotator":', "line 2: is not JSON"),
    ],
)
def test_a_damaged_journal_is_refused_by_line(journal: Journal, old: str, new: str, message: str) -> None:
    journal.append(Event("grade", "ann", "t0", grade=3))
    journal.append(Event("grade", "ann", "t1", grade=3))
    path = journal.task_set.folder / "journal.jsonl"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(FormatError) as caught:
        again(journal)
    assert message in str(caught.value)


def test_the_journal_of_another_task_set_is_refused(journal: Journal, make_set: Make) -> None:
    journal.append(Event("grade", "ann", "t0", grade=3))
    other = make_set(task(0, "another"), folder="other")
    (other.folder / "journal.jsonl").write_bytes((journal.task_set.folder / "journal.jsonl").read_bytes())
    with pytest.raises(FormatError, match="line 1: tasks: is of another task set"):
        Journal.open(other)


def test_a_journal_that_shrinks_is_noticed(journal: Journal) -> None:
    journal.append(Event("grade", "ann", "t0", grade=3))
    os.truncate(journal.task_set.folder / "journal.jsonl", 10)
    with pytest.raises(FormatError, match="was shortened since it was last read"):
        journal.append(Event("grade", "ann", "t1", grade=3))


def test_many_writers_at_once_never_overwrite_each_other(journal: Journal) -> None:
    names = ("ann", "bea", "cem", "dan")
    journals = {name: again(journal) for name in names}  # one per process

    def judge(name: str) -> None:
        for number in range(6):
            journals[name].append(Event("grade", name, f"t{number}", grade=number % 5))

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(judge, names))
    events = again(journal).events()
    assert [event.seq for event in events] == list(range(1, 26))
    assert len(list(again(journal).state().rows())) == 24


def test_two_judges_on_one_task_both_count_in_the_order_of_their_grades(journal: Journal) -> None:
    for name in ("ann", "bea", "cem"):
        shown = journal.next_task(name)
        assert shown is not None
        assert shown.id == "t0"  # all three look at it at once
    for name, grade in (("bea", 1), ("ann", 2), ("cem", 4)):
        journal.append(Event("grade", name, "t0", grade=grade))
    assert journal.state().grades("t0") == (1, 2, 4)
    assert journal.progress("ann").settled == 1


def test_a_task_goes_to_so_many_annotators_as_it_needs(journal: Journal) -> None:
    journal.append(Event("grade", "ann", "t0", grade=0))
    journal.append(Event("grade", "bea", "t0", grade=1))
    journal.append(Event("grade", "ann", "t1", grade=0))
    journal.append(Event("grade", "bea", "t1", grade=2))
    assert [_id(journal, name) for name in ("ann", "bea", "cem")] == ["t2", "t2", "t1"]
    journal.append(Event("grade", "cem", "t1", grade=2))
    assert _id(journal, "dan") == "t1"
    journal.append(Event("grade", "dan", "t1", grade=2))
    assert _id(journal, "eve") == "t2"


def _id(journal: Journal, annotator: str) -> str:
    following = journal.next_task(annotator)
    return following.id if following else ""


def test_the_exam_comes_first_and_wrong_answers_come_again(make_set: Make, clock: Clock) -> None:
    exam = (ExamTask(task(10), 4, "All of it is seen."), ExamTask(task(11), 1))
    journal = Journal.open(make_set(exam=exam), clock)
    assert _id(journal, "ann") == "t10"
    journal.append(Event("exam", "ann", "t10", grade=1))
    assert _id(journal, "ann") == "t11"
    journal.append(Event("exam", "ann", "t11", grade=2))
    assert _id(journal, "ann") == "t10"
    assert journal.progress("ann").exam_right == 1
    assert not journal.progress("ann").passed
    journal.append(Event("exam", "ann", "t10", grade=3))
    assert journal.progress("ann").passed
    assert _id(journal, "ann") == "t0"
    assert _id(journal, "bea") == "t10"
    with pytest.raises(UsageError, match="task t10: takes exam, not grade"):
        journal.append(Event("grade", "ann", "t10", grade=3))


def test_progress_counts_own_work_and_all(journal: Journal) -> None:
    journal.append(Event("grade", "ann", "t0", grade=0))
    journal.append(Event("grade", "bea", "t0", grade=1))
    journal.append(Event("grade", "ann", "t1", grade=4))
    own = journal.progress("ann")
    assert (own.judged, own.left, own.settled, own.tasks, own.passed) == (2, 4, 1, 6, True)
    assert journal.progress("bea").left == 5


_WRITER = """
import sys
from whenabouts_bench.judging.events import Event
from whenabouts_bench.judging.journal import Journal
from whenabouts_bench.judging.tasks import TaskSet
journal = Journal.open(TaskSet.open(sys.argv[1]))
for number in range(10_000):
    event = journal.append(Event("grade", "ann", f"t{number % 6}", grade=number % 5))
    print(event.seq, event.task_id, event.grade, flush=True)
"""


def test_a_writer_that_is_killed_loses_nothing_it_acknowledged(make_set: Make) -> None:
    folder = make_set().folder
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _WRITER, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as writer:
        assert writer.stdout is not None
        acknowledged = [writer.stdout.readline() for _ in range(20)]
        writer.send_signal(signal.SIGKILL)
        acknowledged += writer.stdout.readlines()
    journal = Journal.open(TaskSet.open(folder))
    for line in acknowledged:
        if not line.endswith("\n"):
            continue
        seq, task_id, grade = line.split()
        event = journal.events()[int(seq) - 1]
        assert (event.task_id, event.grade) == (task_id, int(grade))
    assert journal.append(Event("grade", "bea", "t0", grade=1)).seq > 20


def test_a_full_disk_leaves_the_journal_as_it_was(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    journal.append(Event("grade", "ann", "t0", grade=3))
    path: Path = journal.task_set.folder / "journal.jsonl"
    before = path.read_bytes()
    write = os.write

    def half(descriptor: int, data: memoryview) -> int:
        write(descriptor, data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(FormatError, match=r"cannot be written: No space left on device; nothing was"):
        journal.append(Event("grade", "ann", "t1", grade=3))
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert journal.append(Event("grade", "ann", "t1", grade=3)).seq == 3


def test_an_answer_that_is_sent_twice_is_written_once(journal: Journal) -> None:
    sent = Event("grade", "ann", "t0", grade=3, id="a1")
    first = journal.append(sent)
    journal.append(Event("grade", "bea", "t0", grade=1, id="a1"))  # an id is one annotator's own
    assert journal.append(sent) == first
    undo = journal.undo("ann", "a2")
    assert again(journal).undo("ann", "a2") == undo
    kinds = [event.kind for event in again(journal).events()]
    assert kinds == ["guideline", "grade", "grade", "undo"]


def test_of_a_batch_only_answers_that_are_not_stored_are_written(journal: Journal) -> None:
    sent = [Event("grade", "ann", f"t{number}", grade=3, id=f"a{number}") for number in range(3)]
    first = journal.append(sent[1])
    assert [event.seq for event in journal.append_all(sent)] == [3, first.seq, 4]
    assert [event.seq for event in journal.append_all(sent)] == [3, first.seq, 4]
    assert [event.id for event in again(journal).events()] == ["", "a1", "a0", "a2"]


def test_what_is_skipped_waits_until_it_is_asked_for(journal: Journal) -> None:
    journal.append(Event("skip", "ann", "t0"))
    assert (journal.progress("ann").left, journal.progress("ann").skipped) == (5, 1)
    following, skipped = journal.next_task("ann"), journal.next_task("ann", skipped=True)
    assert (following.id, skipped.id) == ("t1", "t0")  # type: ignore[union-attr]
    assert journal.next_task("bea").id == "t0"  # type: ignore[union-attr]
    journal.undo("ann")
    assert (journal.progress("ann").left, journal.progress("ann").skipped) == (6, 0)
    journal.append(Event("skip", "ann", "t0"))
    journal.append(Event("grade", "ann", "t0", grade=2))
    assert journal.progress("ann").skipped == 0
    assert journal.next_task("ann", skipped=True) is None


def test_no_more_annotators_get_a_task_than_it_needs(journal: Journal) -> None:
    assert journal.next_task("cid", {"t0": 1}).id == "t0"  # type: ignore[union-attr]
    assert journal.next_task("cid", {"t0": 2, "t1": 2}).id == "t2"  # type: ignore[union-attr]
    journal.append(Event("grade", "ann", "t0", grade=3))
    assert journal.next_task("cid", {"t0": 1}).id == "t1"  # type: ignore[union-attr]


def test_a_guideline_is_changed_only_by_who_has_seen_it(journal: Journal) -> None:
    read = journal.task_set.guideline()
    by_hand = journal.task_set.folder / "guideline.md"
    assert journal.edit_guideline("Only cats count.", read.version)
    assert not journal.edit_guideline("Only dogs count.", read.version)
    by_hand.write_text("Only birds count.")
    assert journal.edit_guideline("All count.", journal.task_set.guideline().version)
    texts = [event.text for event in journal.events()]
    assert texts == [read.text, "Only cats count.", "Only birds count.", "All count."]
    assert by_hand.read_text() == journal.state().guideline == "All count."


TORN = b'{"seq":2,"time":"20'


@pytest.mark.parametrize("name", ["journal.torn", "journal.jsonl", "guideline.md", "journal.lock"])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_in_a_task_set_of_a_stranger_writes_into_no_file_elsewhere(
    make_set: Make, tmp_path: Path, name: str, is_there: bool
) -> None:
    task_set, victim = make_set(), tmp_path / "mine.txt"
    if is_there:
        victim.write_bytes(b"")
    if name != "journal.jsonl":
        (task_set.folder / "journal.jsonl").write_bytes(TORN)
    (task_set.folder / name).unlink(missing_ok=True)
    (task_set.folder / name).symlink_to(victim)
    with pytest.raises(WhenaboutsError, match="link"):
        journal = Journal.open(TaskSet.open(task_set.folder))
        journal.edit_guideline("Only dogs count.", task_set.guideline().version)
        journal.append(Event("grade", "ann", "t0", grade=3))
    assert victim.exists() == is_there
    assert not is_there or victim.read_bytes() == b""


def many(journal: Journal) -> list[Event]:
    """Grades of two annotators for all tasks."""
    return [
        Event("grade", name, task.id, grade=n % 5)
        for name in ("ann", "bea")
        for n, task in enumerate(journal.task_set.tasks)
    ]


@pytest.mark.slow
def test_a_batch_cut_off_at_any_byte_counts_as_not_written(journal: Journal) -> None:
    journal.append(Event("grade", "zoe", "t0", grade=3))
    path = journal.task_set.folder / "journal.jsonl"
    start = path.stat().st_size
    written = journal.append_all(many(journal))
    whole = path.read_bytes()
    for size in range(start + 1, len(whole)):
        path.write_bytes(whole[:size])
        reader = again(journal)
        assert len(reader.events()) == 2, size
        assert "incomplete; the next write moves it to journal.torn" in reader.notes[0]
    path.write_bytes(whole[: len(whole) - 40])
    writer = again(journal)
    assert [event.seq for event in writer.append_all(many(journal))] == [event.seq for event in written]
    assert again(journal).notes == []
    assert (path.parent / "journal.torn").read_bytes() == whole[start : len(whole) - 40] + b"\n"


def test_a_write_that_fails_late_is_never_seen_by_a_reader(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.append(Event("grade", "zoe", "t0", grade=3))
    reader, write, sync, calls = again(journal), os.write, os.fsync, []

    def fails_at(number: int) -> Callable[..., int | None]:
        def call(descriptor: int, *data: memoryview) -> int | None:
            assert len(reader.events()) == 2
            calls.append(descriptor)
            if len(calls) == number:
                raise OSError(28, "No space left on device")
            return write(descriptor, data[0][:99]) if data else sync(descriptor)

        return call

    for number in (1, 2, 9, 10_000):
        calls.clear()
        monkeypatch.setattr(os, "write", fails_at(number))
        monkeypatch.setattr(os, "fsync", fails_at(number))
        if number < 10_000:
            with pytest.raises(FormatError, match="No space left on device; nothing was"):
                journal.append_all(many(journal))
        monkeypatch.undo()
        assert len(reader.events()) == len(again(journal).events()) == 2
    assert len(journal.append_all(many(journal))) == 12
    assert len(reader.events()) == len(again(journal).events()) == 14


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"last":4', b'"last":1', "line 2: last: is smaller than its own seq: 1"),
        (b'"last":4', b'"last":5', "line 3: last: belongs to another batch: 4; accepted: 5"),
    ],
)
def test_a_damaged_mark_of_a_batch_is_refused(journal: Journal, old: bytes, new: bytes, message: str) -> None:
    journal.append(Event("import"))  # alone but for the guideline
    path = journal.task_set.folder / "journal.jsonl"
    path.write_bytes(b"".join(line for line in path.read_bytes().splitlines(True)[:1]))
    (path.parent / "journal.jsonl").write_bytes(path.read_bytes().replace(b',"last":2', b""))
    writer = again(journal)
    writer.append_all([Event("grade", "ann", f"t{n}", grade=n) for n in range(3)])
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    with pytest.raises(FormatError) as caught:
        again(journal)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('"event":"exam","annotator":"ann","task_id":"t0"', "line 1: grade: is missing"),
        ('"event":"grade","annotator":"ann","task_id":"t0"', "line 1: grade: is missing"),
        ('"event":"borders","annotator":"ann","task_id":"t0","end":3', "line 1: start: is missing"),
        ('"event":"grade","annotator":"ann","task_id":"t0","grade":1,"start":3', "line 1: end: is missing"),
        ('"event":"undo","annotator":"ann"', "line 1: undone: is missing"),
    ],
)
def test_an_event_without_what_it_needs_is_refused_by_line(make_set: Make, line: str, message: str) -> None:
    task_set = make_set()
    head = f'"seq":1,"time":"2026-05-31T12:00:00.000000Z","tasks":"{task_set.fingerprint}"'
    (task_set.folder / "journal.jsonl").write_text("{" + head + "," + line + "}\n")
    with pytest.raises(FormatError) as caught:
        Journal.open(task_set)
    assert message in str(caught.value)
