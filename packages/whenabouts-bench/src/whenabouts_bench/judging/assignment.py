"""Which tasks are presented, to whom, and progress. Other rules would change exports of existing sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from whenabouts_bench.judging.consensus import Consensus, consensus
from whenabouts_bench.judging.events import Answer, State
from whenabouts_bench.judging.exam import next_exam_task, result_of
from whenabouts_bench.judging.tasks import Task, TaskSet


@dataclass(frozen=True, slots=True)
class Progress:
    """An annotator's progress.

    `judged` tasks have the annotator's grade, presented or not. `left` are presented, lack it and need
    another annotator, even if others look at them now; `skipped` likewise, but were put off. The annotator is
    right in `exam_right` of `exam_tasks` (both 0 without an exam), and `passed` allows judging to begin. Of
    the presented `tasks`, `settled` need no further annotator (graded, or discarded).
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
    """The consensus on a task so far."""
    return consensus(state.grades(task_id), task_set.annotators)


class Openings:
    """The tasks that are presented.

    The first batch of a query is always presented. A later one is if the batch before ends with relevant
    moments: its last candidates (`TaskSet.batch_ends`) are settled, and the mean of their grades is at least
    `TaskSet.still_relevant`.
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
    """The annotator's next task: exam tasks, then the first ungraded one that needs another annotator.

    `held` maps task ids to the number of others who look at them now; a task goes to no more annotators than
    it needs. With `skipped`, only tasks that were put off are given. None if nothing is available now.
    """
    if task_set.exam and not result_of(task_set, state, annotator).passed:
        return next_exam_task(task_set, state, annotator)
    openings, held = Openings(task_set, state), held or {}
    for task in task_set.tasks:
        answer = state.answer(annotator, task.id) or Answer()
        is_wanted = answer.grade is None and answer.skipped is skipped and openings.is_open(task)
        if is_wanted and outcome(task_set, state, task.id).missing > held.get(task.id, 0):
            return task
    return None


def progress(task_set: TaskSet, state: State, annotator: str) -> Progress:
    """The progress of an annotator and of all. Must be fast: with 100,000 tasks, it follows each answer."""
    openings, exam = Openings(task_set, state), result_of(task_set, state, annotator)
    judged = left = skipped = settled = tasks = 0
    for task in task_set.tasks:
        given = state.answers.get(task.id)
        answer = given.get(annotator) if given else None
        is_judged = answer is not None and answer.grade is not None
        judged += is_judged
        if task.batch > 1 and not openings.is_open(task):
            continue
        tasks += 1
        missing = outcome(task_set, state, task.id).missing if given else task_set.annotators
        settled += not missing
        if missing and not is_judged:
            is_skipped = answer is not None and answer.skipped
            skipped, left = skipped + is_skipped, left + (not is_skipped)
    return Progress(
        judged, left, skipped, exam.right, len(task_set.exam), exam.passed, settled=settled, tasks=tasks
    )
