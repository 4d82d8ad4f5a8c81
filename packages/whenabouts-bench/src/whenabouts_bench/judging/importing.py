"""Import answers from Label Studio, or from a copy of the task set on another machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from whenabouts.intake.files import FormatError, Sign, read_head
from whenabouts_bench.judging.events import Answer, Event, State
from whenabouts_bench.judging.journal import Journal, read_journal
from whenabouts_bench.judging.label_studio import read_answers
from whenabouts_bench.judging.tasks import Task, TaskSet


@dataclass(frozen=True, slots=True)
class Imported:
    """The numbers of an import's answers that are `new`, `changed`, or the `same` as before."""

    new: int
    changed: int
    same: int


def import_answers(journal: Journal, path: Path) -> Imported:
    """Write the answers of a file into the journal, all or none.

    The file is a Label Studio export, or the journal of a copy of this task set. Only answers from an earlier
    import may change. Raises FormatError for a file of another task set, or for an answer that contradicts
    one given here.
    """
    if not path.exists():
        raise FormatError(path, "is not there", accepted="an export of Label Studio, or a journal.jsonl")
    is_journal = read_head(path).has(Sign("seq event tasks"))
    given = _of_journal(path, journal.task_set) if is_journal else read_answers(path, journal.task_set)
    source, changed = path.name, 0

    def make(state: State) -> list[Event]:
        nonlocal changed
        events, changed = _news(path, given, journal.task_set, state)
        return events and [Event("import", source=source), *(replace(e, source=source) for e in events)]

    new = max(0, len(journal.append_made(make)) - 1) - changed
    return Imported(new, changed, len(given) - new - changed)


def _news(path: Path, given: Sequence[Event], task_set: TaskSet, state: State) -> tuple[list[Event], int]:
    """(events to add to a state, how many of them change an imported answer)."""
    events, changed = _exam_news([event for event in given if event.kind == "exam"], state), 0
    for event in given:
        if event.kind == "exam":
            continue
        before, task = state.answer(event.annotator, event.task_id), task_set.task(event.task_id)
        event = replace(event, start=_or(event.start, task.moment.start), end=_or(event.end, task.moment.end))
        if before is not None and _is_same(before, event, task):
            continue
        if before is not None and before.grade is not None and not before.source:
            raise FormatError(
                path,
                f"annotator {event.annotator!r}, task {event.task_id}: was answered here with {before.grade} "
                f"(event {before.seq}), and is answered in the file with",
                value=event.grade,
                accepted="annotators under names of their own, or undo the answer here first",
            )
        changed += before is not None and before.grade is not None
        events.append(event)
    return events, changed


def _exam_news(given: Sequence[Event], state: State) -> list[Event]:
    """The exam answers that continue those in a state; earlier versions could import a part of an exam.

    An annotator whose exam answers here differ from the file's keeps those given here.
    """
    exams: dict[str, dict[str, list[Event]]] = {}
    for event in given:
        exams.setdefault(event.annotator, {}).setdefault(event.task_id, []).append(event)
    news = list[Event]()
    for annotator, answers in exams.items():
        old = state.exam.get(annotator, {})
        grades = {task_id: [event.grade for event in events] for task_id, events in answers.items()}
        if all(grades.get(task_id, [])[: len(here)] == here for task_id, here in old.items()):
            news += [e for task_id, events in answers.items() for e in events[len(old.get(task_id, ())) :]]
    return news


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _is_same(before: Answer, event: Event, task: Task) -> bool:
    borders = (_or(before.start, task.moment.start), _or(before.end, task.moment.end))
    return (before.grade, *borders) == (event.grade, event.start, event.end)


def _of_journal(path: Path, task_set: TaskSet) -> list[Event]:
    """The final answers of a copy's journal, as events: exam answers, then grades in their order."""
    state = State.of(read_journal(path, task_set))
    exam = [
        Event("exam", name, task_id, grade=grade)
        for name, answers in state.exam.items()
        for task_id, grades in answers.items()
        for grade in grades
    ]
    graded = sorted(state.rows(), key=lambda row: row[2].first)
    grades = [Event("grade", name, task, grade=a.grade, start=a.start, end=a.end) for task, name, a in graded]
    return [*exam, *grades]
