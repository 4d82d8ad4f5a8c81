"""Which task an annotator gets next, and how far everybody is. Nobody is told what others said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from whenabouts_bench.judging.consensus import Consensus, consensus
from whenabouts_bench.judging.events import State
from whenabouts_bench.judging.exam import next_exam_task, result_of
from whenabouts_bench.judging.tasks import Task, TaskSet


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an annotator is.

    `judged` tasks have a grade of the annotator, `left` can be had now, `skipped` were put off. `exam_right`
    of `exam_tasks` are answered well enough (both 0 without an exam), and `passed` says whether judging may
    begin. `settled` of `tasks` need nobody any more.
    """

    judged: int
    left: int
    skipped: int
    exam_right: int
    exam_tasks: int
    passed: bool
    settled: int
    tasks: int


def outcome(task_set: TaskSet, state: State, task_id: str) -> Consensus:
    """What the grades of a task come to."""
    return consensus(state.grades(task_id), task_set.annotators)


class Openings:
    """Which tasks are presented.

    Those of the first batch, and of a next one where the last five candidates of the batch before are settled
    and their mean grade is still relevant.
    """

    def __init__(self, task_set: TaskSet, state: State) -> None:
        self._set, self._state = task_set, state
        self._is_open: dict[tuple[str, int], bool] = {}

    def is_open(self, task: Task) -> bool:
        """Whether a task is presented."""
        return self._batch_is_open(task.query_id, task.batch)

    def _batch_is_open(self, query_id: str, batch: int) -> bool:
        if batch == 1:
            return True
        key = (query_id, batch)
        if key not in self._is_open:
            before = self._batch_is_open(query_id, batch - 1)
            self._is_open[key] = before and self._ends_relevant(query_id, batch - 1)
        return self._is_open[key]

    def _ends_relevant(self, query_id: str, batch: int) -> bool:
        last = self._set.batch_ends.get((query_id, batch), ())
        outcomes = [outcome(self._set, self._state, task_id) for task_id in last]
        grades = [each.grade for each in outcomes if each.grade is not None]
        if not grades or any(each.missing for each in outcomes):
            return False
        return sum(grades) / len(grades) >= self._set.still_relevant


def next_task(
    task_set: TaskSet,
    state: State,
    annotator: str,
    held: Mapping[str, int] | None = None,
    *,
    skipped: bool = False,
) -> Task | None:
    """The exam first, then the first task that needs another annotator and that this one has not graded.

    `held` is task id -> how many others look at it just now: no more get it than it needs. Tasks that were
    put off come with `skipped` only. None where there is nothing (any more, or until others have judged).
    """
    if task_set.exam and not result_of(task_set, state, annotator).passed:
        return next_exam_task(task_set, state, annotator)
    openings, held = Openings(task_set, state), held or {}
    fitting = (
        task
        for task in task_set.tasks
        if _is_skipped(state, annotator, task) is skipped
        and _needs(task_set, state, annotator, task, openings) > held.get(task.id, 0)
    )
    return next(fitting, None)


def _is_skipped(state: State, annotator: str, task: Task) -> bool:
    own = state.answer(annotator, task.id)
    return own is not None and own.skipped


def _needs(task_set: TaskSet, state: State, annotator: str, task: Task, openings: Openings) -> int:
    """How many more annotators a task needs; 0 for one who has graded it."""
    own = state.answer(annotator, task.id)
    if own is not None and own.grade is not None:
        return 0
    return outcome(task_set, state, task.id).missing if openings.is_open(task) else 0


def progress(task_set: TaskSet, state: State, annotator: str) -> Progress:
    """How far an annotator is, and all together.

    Asked after every answer, of 100,000 tasks perhaps: most have no answer, and are passed quickly.
    """
    openings, exam = Openings(task_set, state), result_of(task_set, state, annotator)
    judged = left = skipped = settled = tasks = 0
    for task in task_set.tasks:
        given = state.answers.get(task.id)
        own = given.get(annotator) if given else None
        is_judged = own is not None and own.grade is not None
        judged += is_judged
        if task.batch > 1 and not openings.is_open(task):
            continue
        tasks += 1
        missing = outcome(task_set, state, task.id).missing if given else task_set.annotators
        settled += not missing
        if missing and not is_judged:
            is_skipped = own is not None and own.skipped
            skipped, left = skipped + is_skipped, left + (not is_skipped)
    return Progress(
        judged, left, skipped, exam.right, len(task_set.exam), exam.passed, settled=settled, tasks=tasks
    )
